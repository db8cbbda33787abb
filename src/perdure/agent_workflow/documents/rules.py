"""What fields of a document take beyond their types: said in words, tested, and said to editors by the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from perdure.agent_workflow.definition import config as parts
from perdure.graph.policy import LONGEST

# ---------------------------------------------------------------- places


Problem: TypeAlias = tuple[str, str]
"""A place, and what is wrong there."""
_PLAIN = re.compile(r"[\w$-]+")
_LONGEST = 80


def at(place: str, key: str | int) -> str:
    """`agents.review`, `edges[2]`, and `agents["a b"]` for a key with other characters."""
    if isinstance(key, int):
        return f"{place}[{key}]"
    if not _PLAIN.fullmatch(key):
        return f"{place}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{place}.{key}" if place else key


def below(place: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a document that stands at a place of another."""
    return [(f"{place}.{inner}" if inner else place, problem) for inner, problem in problems]


def shown(value: Any) -> str:
    """A value as a document has it, cut off where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class Rule:
    words: str
    """What is expected."""
    allows: Callable[[Any], bool]
    schema: Mapping[str, Any]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


COUNT = Rule("a positive integer", lambda value: type(value) is int and value >= 1, {"type": "integer", "minimum": 1})
DURATION = Rule(
    "a positive number of seconds, at most a century",
    lambda value: is_number(value) and 0 < value <= LONGEST,
    {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
)
DELAY = Rule(
    "a number of seconds, from 0 to a century",
    lambda value: is_number(value) and 0 <= value <= LONGEST,
    {"type": "number", "minimum": 0, "maximum": LONGEST},
)
NAME = Rule(
    "a text that is not empty",
    lambda value: isinstance(value, str) and bool(value.strip()),
    {"type": "string", "minLength": 1},
)

RULES: Mapping[tuple[type, str], Rule] = {
    (parts.WorkflowConfig, "name"): NAME,
    (parts.WorkflowConfig, "version"): NAME,
    (parts.SettingsConfig, "max_iterations"): COUNT,
    (parts.SettingsConfig, "timeout"): DURATION,
    (parts.SettingsConfig, "model"): NAME,
    (parts.ConversationConfig, "session_id"): NAME,
    (parts.ConversationConfig, "root_thread_id"): NAME,
    (parts.ConversationConfig, "thread_prefix"): NAME,
    (parts.AgentConfig, "model"): NAME,
    (parts.NodeConfig, "input_key"): NAME,
    (parts.NodeConfig, "output_key"): NAME,
    (parts.NodeConfig, "timeout"): DURATION,
    (parts.NodeConfig, "max_concurrent"): COUNT,
    (parts.RetryConfig, "max_attempts"): COUNT,
    (parts.RetryConfig, "initial_delay"): DELAY,
    (parts.RetryConfig, "max_delay"): DELAY,
    (parts.ApprovalConfig, "timeout"): DELAY,
    (parts.MapConfig, "over"): NAME,
    (parts.MapConfig, "max_parallel"): COUNT,
    (parts.EdgeConfig, "delay"): DELAY,
}
"""By the class of the part, and the field as Python names it."""
