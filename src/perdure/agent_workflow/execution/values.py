"""The input of a node's agent, and its answer as outputs: plain data, equal before and after a restart."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.agent_workflow.definition.condition import MISSING, field_in, is_missing
from perdure.agent_workflow.definition.config import ANSWER, NodeConfig
from perdure.agent_workflow.state import NodeTask, plain
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.tools import Tool
from perdure.errors import did_you_mean

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

    def __init__(self, task: NodeTask, givers: Mapping[str, Collection[str] | None]) -> None:
        self._givers = givers
        """What each node may give; None: that is known only when it has."""
        self._waiting = task.waiting
        self._input = task.input
        self._near = {source: task.outputs[source] for source in task.sources if source in task.outputs}
        self._outputs = task.outputs

    def find(self, key: str, place: str) -> Any:
        """Of the nodes that led here first. Raises ValueError for a key that nobody has given."""
        value = self._look_for(key)
        if not is_missing(value):
            return value
        known = list(self.known())
        raise ValueError(
            f"{place}: no node before it gave {key!r}{did_you_mean(key, known)}. There is: {', '.join(known)}."
        )

    def text(self, key: str, place: str) -> str:
        """For a template: what a node would give that was skipped, has failed or has not run yet is empty."""
        value = self._look_for(key)
        return "" if is_missing(value) and self._may_come(key, self._givers) else as_text(self.find(key, place))

    def first(self, key: str, place: str) -> Any:
        """For an input key: in the first pass of a loop, what only the pass before could give is the usual input."""
        later = {node: self._givers[node] for node in self._waiting if node in self._givers}
        is_to_come = is_missing(self._look_for(key)) and self._may_come(key, later)
        return self.usual() if is_to_come else self.find(key, place)

    def _may_come(self, key: str, givers: Mapping[str, Collection[str] | None]) -> bool:
        head, _, rest = key.partition(".")
        own = givers.get(head) if rest else None
        if head in givers and rest and (own is None or rest.partition(".")[0] in own):
            return True
        return any(keys is None or head in keys for node, keys in givers.items() if node not in self._outputs)

    def _look_for(self, key: str) -> Any:
        found = (field_in(outputs, key) for outputs in self._candidates())
        return next((one for one in found if not is_missing(one)), MISSING)

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
        """What a node without a key or a template is told: what has one of the usual names, of the nodes that led here
        or of the input, else the whole input."""
        given = [self._input] if isinstance(self._input, Mapping) else []
        for outputs in (*self._near.values(), *given):
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
            return values.text(key, f"{place}.input_template") if is_missing(given) else as_text(given)

        return _PLACE.sub(filled, config.input_template)
    if more is not None:
        return as_text(next(iter(more.values())))
    if config.input_key is not None:
        return as_text(values.first(config.input_key, f"{place}.input_key"))
    return as_text(values.usual())


def messages_for(config: NodeConfig, text: str) -> list[Message]:
    """What the agent is given: what only this node tells it, and its input."""
    told = [config.instructions] if config.instructions else []
    told += [f"{name}: {as_text(value)}" for name, value in config.context.items()]
    before = [Message("system", "\n\n".join(told))] if told else []
    return [*before, Message("user", text)]


MATCHED_TYPE = "matched_type"
"""The output that names the type of a union output."""
HANDOFF = "handoff"
"""The output that names whom a router hands off to."""


def outputs_of(node: str, config: NodeConfig, response: AgentResponse, types: Sequence[type]) -> dict[str, Any]:
    """Raises ValueError if it is not what the node is to give."""
    if config.output_mode == "structured":
        return _spread(config, plain(value_in(response, types[0])))
    if config.output_mode == "union":
        kind, value = _one_of(node, response, types)
        return {**_spread(config, plain(value)), MATCHED_TYPE: kind.__name__}
    if config.output_mode == "handoff":
        return {HANDOFF: handoff_in(node, config, response), config.output_key or ANSWER: response.text}
    return {config.output_key or ANSWER: response.text}


def _spread(config: NodeConfig, value: Any) -> dict[str, Any]:
    """Each field is an output; with an output key the whole is one."""
    if config.output_key is not None or not isinstance(value, Mapping):
        return {config.output_key or ANSWER: value}
    return dict(value)


def _one_of(node: str, response: AgentResponse, types: Sequence[type]) -> tuple[type, Any]:
    for kind in types:
        if isinstance(response.value, kind):
            return kind, response.value
    problems = []
    for kind in sorted(types, key=lambda one: one is str):  # any answer is a text: that is asked last
        if kind is str:
            return kind, response.text
        try:
            return kind, value_in(response, kind)
        except ValueError as error:
            problems.append(str(error))
    names = ", ".join(kind.__name__ for kind in types)
    raise ValueError(f"agents.{node}: the answer is none of {names}. {problems[0]}")


def fields_of(kind: Any) -> list[str] | None:
    """The names of its fields; None if they cannot be told before there is a value."""
    model = getattr(kind, "model_fields", None)
    if isinstance(model, Mapping):
        return list(model)
    try:
        info: Any = msgspec.inspect.type_info(kind)
    except Exception:  # noqa: BLE001  # whatever a type raises that msgspec does not know
        return None
    fields = getattr(info, "fields", None)
    return None if fields is None else [one.encode_name for one in fields]


def handoff_tools(config: NodeConfig) -> list[Tool]:
    """One for each node that a router may hand off to."""
    return [_handoff_tool(one.target, one.description) for one in config.handoffs]


def _handoff_tool(target: str, description: str | None) -> Tool:
    def hand_off() -> str:
        return f"Handed off to {target}."

    name = handoff_name(target)
    hand_off.__name__ = hand_off.__qualname__ = name
    return Tool(hand_off, name=name, description=description or f"Hand off to {target}.", ends_turn=True)


def handoff_name(target: str) -> str:
    return f"handoff_to_{target}"


def handoff_in(node: str, config: NodeConfig, response: AgentResponse) -> str:
    """Whom the router chose: by calling a tool, by naming a target and nothing else, or else the default."""
    targets = {handoff_name(one.target): one.target for one in config.handoffs}
    called = [call.name for message in response.messages for call in message.of_type("function_call")]
    chosen = [targets[name] for name in called if name in targets]
    if chosen:
        return chosen[-1]
    said = response.text.strip().strip(".\"'`")
    if said in targets.values():
        return said
    if config.default_handoff is not None:
        return config.default_handoff
    raise ValueError(
        f"agents.{node}: the router handed off to nobody, and has no default handoff. It may hand off to "
        f"{', '.join(targets.values())}. It said: {response.text[:200]!r}"
    )
