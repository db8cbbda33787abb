"""The outputs that a node will have, as far as they are known before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.agent_workflow.definition.config import ANSWER, NodeConfig
from perdure.agent_workflow.definition.draft import Draft, NodeDraft
from perdure.agent_workflow.execution.values import HANDOFF, INPUT, MATCHED_TYPE, fields_of, keys_in


def outputs_known(node: NodeDraft) -> list[str] | None:
    """None: any output is possible, as with an approval, which may add data to the outputs."""
    return None if node.config.approval is not None else outputs_of_agent(node)


def outputs_of_agent(node: NodeDraft) -> list[str] | None:
    """The outputs before an approval."""
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
    keys_by_type = [_keys_of_type(kind) for kind in node.types]
    if not keys_by_type or any(keys is None for keys in keys_by_type):
        return None
    return list(dict.fromkeys([*(key for keys in keys_by_type if keys is not None for key in keys), *more]))


def _keys_of_type(kind: Any) -> list[str] | None:
    """The keys of a value of this type as plain data; None if they are unknown."""
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
    """Whether a path such as `review.score` may exist: the fields inside an output are unknown."""
    names = set(outputs)
    return path in names or path.split(".", maxsplit=1)[0] in names


def outputs_by_node(draft: Draft) -> dict[str, Collection[str] | None]:
    """The output keys of each node; None: unknown before it runs."""
    return {node_id: outputs_known(node) for node_id, node in draft.nodes.items()}


def needs_of(draft: Draft) -> dict[str, Collection[str]]:
    """For each node, the nodes whose outputs it may refer to, beside those that lead to it."""
    known = outputs_by_node(draft)
    needs: dict[str, Collection[str]] = {}
    for node_id, node in draft.nodes.items():
        approval = node.config.approval
        if node.needs_approval is not None or (approval is not None and approval.predicate is not None):
            needs[node_id] = list(known)  # a function may use all outputs
            continue
        needs[node_id] = {name for key in _keys_needed(node.config) for name in _named_by(key, known)}
    return needs


def _keys_needed(config: NodeConfig) -> Iterator[str]:
    if config.map is not None:
        yield config.map.over
    if config.input_template is not None:
        yield from keys_in(config.input_template)
    if config.input_key is not None:
        yield config.input_key


def _named_by(key: str, known: dict[str, Collection[str] | None]) -> Iterator[str]:
    head = key.partition(".")[0]
    if head == INPUT:
        return
    for node, keys in known.items():
        if node == head or keys is None or has_field(key, keys):
            yield node
