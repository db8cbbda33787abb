"""What fields of a document take beyond their types: said in words, tested, and said to editors by the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.graph.policy import LONGEST
from perdure.orchestrations.agent_workflow import definition as parts


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
