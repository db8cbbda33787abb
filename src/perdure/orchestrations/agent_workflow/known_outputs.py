"""Which outputs a node will have, as far as that can be told before it has run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.orchestrations.agent_workflow.definition import ANSWER
from perdure.orchestrations.agent_workflow.drafting import NodeDraft
from perdure.orchestrations.agent_workflow.outputs import HANDOFF, MATCHED_TYPE, fields_of


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
    found = [_keys_of(kind) for kind in node.types]
    if not found or any(one is None for one in found):
        return None
    return list(dict.fromkeys([*(key for one in found if one is not None for key in one), *more]))


def _keys_of(kind: Any) -> list[str] | None:
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
