"""What a node is told: from a template, by a key, or what the execution was given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.agents.message import Message
from holdfast.errors import did_you_mean
from holdfast.orchestrations.agent_workflow.conditions import field_in, is_missing
from holdfast.orchestrations.agent_workflow.definition import NodeConfig
from holdfast.orchestrations.agent_workflow.standing import NodeTask

INPUT = "input"
"""The key of what the execution was given."""
USUAL = ("question", "input", "message", "query", "prompt")
"""Keys of outputs that are meant for whoever comes next."""
_PLACE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def keys_in(template: str) -> list[str]:
    return _PLACE.findall(template)


def as_text(value: Any) -> str:
    """A text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Values:
    """All that a node can refer to: outputs as `key` or `node.key`, and the execution's input."""

    def __init__(self, task: NodeTask) -> None:
        self._input = task.input
        self._near = {source: task.outputs[source] for source in task.sources if source in task.outputs}
        self._outputs = task.outputs

    def find(self, key: str, place: str) -> Any:
        """Of the nodes that led here first. Raises ValueError for a key that nobody has given."""
        for outputs in self._candidates():
            value = field_in(outputs, key)
            if not is_missing(value):
                return value
        known = list(self.known())
        raise ValueError(
            f"{place}: no node before it gave {key!r}{did_you_mean(key, known)}. There is: {', '.join(known)}."
        )

    def _candidates(self) -> Iterator[Mapping[str, Any]]:
        yield from self._near.values()
        yield {node: outputs for node, outputs in self._outputs.items() if outputs}  # as node.key
        yield from self._outputs.values()
        if isinstance(self._input, Mapping):
            yield self._input
        yield {INPUT: self._input}

    def known(self) -> Iterator[str]:
        for node, outputs in self._outputs.items():
            yield from (f"{node}.{key}" for key in outputs)
        if isinstance(self._input, Mapping):
            yield from self._input
        yield INPUT

    def usual(self) -> Any:
        """What a node without a key or a template is told: an output under one of the usual names, else the input."""
        for outputs in self._near.values():
            for key in USUAL:
                if key in outputs:
                    return outputs[key]
        if self._input not in ("", None):
            return self._input
        texts = (value for outputs in self._near.values() for value in outputs.values() if isinstance(value, str))
        return next(texts, "")


def input_of(node: str, config: NodeConfig, values: Values, more: Mapping[str, Any] | None = None) -> str:
    """`more`: values that only this input has, such as the item of a map."""
    place = f"agents.{node}"
    if config.input_template is not None:

        def filled(found: re.Match[str]) -> str:
            key = found[1]
            given = field_in(more or {}, key)
            return as_text(values.find(key, f"{place}.input_template") if is_missing(given) else given)

        return _PLACE.sub(filled, config.input_template)
    if more is not None:
        return as_text(next(iter(more.values())))
    if config.input_key is not None:
        return as_text(values.find(config.input_key, f"{place}.input_key"))
    return as_text(values.usual())


def messages_for(config: NodeConfig, text: str) -> list[Message]:
    """What the agent is given: what only this node tells it, and its input."""
    told = [config.instructions] if config.instructions else []
    told += [f"{name}: {as_text(value)}" for name, value in config.context.items()]
    before = [Message("system", "\n\n".join(told))] if told else []
    return [*before, Message("user", text)]
