"""Runs of the OpenAI Agents SDK that its model led to a dead end: what they are told as, and what is left of them."""

from __future__ import annotations

from typing import Any

import agents as sdk

from perdure.errors import AgentFailed

DEAD_ENDS = (
    sdk.MaxTurnsExceeded,
    sdk.ModelBehaviorError,
    sdk.ModelRefusalError,
    sdk.OutputGuardrailTripwireTriggered,
    sdk.ToolInputGuardrailTripwireTriggered,
    sdk.ToolOutputGuardrailTripwireTriggered,
)
"""What the SDK raises because of a model's answers: whenever these are replayed."""
RESULTS = (sdk.ToolCallOutputItem, sdk.HandoffOutputItem)
CALLS = (sdk.ToolCallItem, sdk.HandoffCallItem)


def dead_end(agent_name: str, error: sdk.AgentsException) -> AgentFailed:
    text = str(error).strip() or type(error).__name__
    failure = AgentFailed(
        agent_name,
        f"its turn failed with {type(error).__name__}: {text if text.endswith('.') else f'{text}.'}",
        "Finished calls of the turn are recorded. Mend the model, its tools or what it is told, and resume: the model "
        "is asked again after them, as often as in a new turn.",
    )
    failure.__cause__ = error
    return failure


def finished_items(items: list[Any]) -> list[Any]:
    """Without the last answer, which nothing came of, and without calls that have no result."""
    last = max((place for place, one in enumerate(items) if isinstance(one, RESULTS)), default=-1)
    kept = items[: last + 1]
    done = {_call_id(one) for one in kept if isinstance(one, RESULTS)}
    return [one for one in kept if not isinstance(one, CALLS) or _call_id(one) in done]


def _call_id(item: Any) -> Any:
    raw = item.raw_item
    return raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
