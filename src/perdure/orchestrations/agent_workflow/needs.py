"""Which outputs of others a node can refer to: it is told no more than that."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perdure.orchestrations.agent_workflow.definition import NodeConfig
from perdure.orchestrations.agent_workflow.drafting import Draft
from perdure.orchestrations.agent_workflow.inputs import INPUT, keys_in
from perdure.orchestrations.agent_workflow.known_outputs import has_field, outputs_known


def givers_of(draft: Draft) -> dict[str, Collection[str] | None]:
    """What each node may give; None: that is known only when it has."""
    return {node_id: outputs_known(node) for node_id, node in draft.nodes.items()}


def needs_of(draft: Draft) -> dict[str, Collection[str]]:
    """For each node those whose outputs it may ask for, beside the nodes that lead to it."""
    givers = givers_of(draft)
    needs: dict[str, Collection[str]] = {}
    for node_id, node in draft.nodes.items():
        approval = node.config.approval
        if node.needs_approval is not None or (approval is not None and approval.predicate is not None):
            needs[node_id] = list(givers)  # a function may look at all of them
            continue
        needs[node_id] = {one for key in _keys_of(node.config) for one in _named_by(key, givers)}
    return needs


def _keys_of(config: NodeConfig) -> Iterator[str]:
    if config.map is not None:
        yield config.map.over
    if config.input_template is not None:
        yield from keys_in(config.input_template)
    if config.input_key is not None:
        yield config.input_key


def _named_by(key: str, givers: dict[str, Collection[str] | None]) -> Iterator[str]:
    head = key.partition(".")[0]
    if head == INPUT:
        return
    for node, keys in givers.items():
        if node == head or keys is None or has_field(key, keys):
            yield node
