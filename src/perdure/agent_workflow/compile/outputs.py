"""The outputs that a node will have, as far as they are known before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.agent_workflow.definition.config import ANSWER, NodeConfig
from perdure.agent_workflow.definition.draft import Draft, NodeDraft
from perdure.agent_workflow.execution.values import HANDOFF, INPUT, MATCHED_TYPE, fields_of, keys_in


def outputs_known(node: NodeDraft) -> list[str] | None:
    """None: there may be any. So it is where somebody who approves can put more into them."""
    return None if node.config.approval is not None else given_outputs(node)


def given_outputs(node: NodeDraft) -> list[str] | None:
    """Before anybody is asked about them."""
    config = node.config
    answer = config.output_key or ANSWER
    if config.workflow is not None or node.workflow is not None:
        return [answer, "outputs"]
    if config.map is not None or config.output_mode == "string":
        return [answer]
    if config.output_mode == "handoff":
        return [HANDOFF, answer]
    more = [MATCHED_TYPE] if config.output_mode == "union" else []
    if config.output_key is not None:
        return [answer, *more]
    found = [_keys_of_type(kind) for kind in node.types]
    if not found or any(one is None for one in found):
        return None
    return list(dict.fromkeys([*(key for one in found if one is not None for key in one), *more]))


def _keys_of_type(kind: Any) -> list[str] | None:
    """Those of a value of this type as plain data; None if they cannot be told."""
    if isinstance(getattr(kind, "model_fields", None), Mapping):
        has_more = getattr(kind, "__pydantic_root_model__", False) or kind.model_config.get("extra") == "allow"
        return None if has_more else [*kind.model_fields, *getattr(kind, "model_computed_fields", ())]
    fields = fields_of(kind)
    if fields is None:
        return None
    info: Any = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.NamedTupleType) or getattr(info, "array_like", False):
        return [ANSWER]  # a list has no keys
    tag = getattr(info, "tag_field", None)
    return fields if tag is None else [tag, *fields]


def has_field(path: str, outputs: Iterable[str]) -> bool:
    """Whether a path such as `review.score` may lead to something: what is in an output is not known."""
    names = set(outputs)
    return path in names or path.split(".", maxsplit=1)[0] in names


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
        needs[node_id] = {one for key in _keys_needed(node.config) for one in _named_by(key, givers)}
    return needs


def _keys_needed(config: NodeConfig) -> Iterator[str]:
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
