"""What an agent said, as the outputs of its node: plain data, the same before and after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.agent_workflow.definition.config import ANSWER, NodeConfig
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import Tool
from perdure.agents.turns.structured import value_in

MATCHED_TYPE = "matched_type"
"""The output that names the type of a union output."""
HANDOFF = "handoff"
"""The output that names whom a router hands off to."""


def plain(value: Any) -> Any:
    """Only what JSON has."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else msgspec.to_builtins(value)


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


# ---------------------------------------------------------------- handoffs


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
