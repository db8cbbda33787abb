"""A thread's state as clients of AgentFlow know it: context, execution_meta, and the shared state beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.agents.conversation.message import Message
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.events import WorkflowRunState
from perdure.records import ThreadInfo
from perdure.server.agentflow.messages import messages_to_client
from perdure.server.problems import HttpProblem
from perdure.server.threads.tenancy import Space
from perdure.server.threads.to_json import plain

OWN_KEYS = frozenset({"context", "context_summary", "execution_meta"})
"""Keys that are no part of the shared state."""

_STATUSES = {
    WorkflowRunState.IDLE.value: "completed",
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value: "interrupted_before",
    WorkflowRunState.FAILED.value: "error",
    WorkflowRunState.CANCELLED.value: "interrupted_before",
}


def execution_meta(info: ThreadInfo, head: WorkflowCheckpoint, space: Space) -> dict[str, Any]:
    waiting = next(iter(head.pending_request_info_events.values()), None)
    due = next(iter(head.deliveries), None)
    last = head.outputs[-1].executor_id if head.outputs else None
    return {
        "current_node": due.target_id if due is not None else (waiting and waiting.source_executor_id) or last,
        "step": head.iteration_count,
        "status": _STATUSES.get(info.status, "running"),
        "interrupted_node": None if waiting is None else waiting.source_executor_id,
        "interrupt_reason": None if waiting is None else "input_required",
        "interrupt_data": None if waiting is None else {"request_id": waiting.request_id, "value": plain(waiting.data)},
        "thread_id": space.outside(info.thread_id),
        "stop_current_execution": "stopped" if info.status == WorkflowRunState.CANCELLED.value else "none",
        "internal_data": {},
    }


def state_to_client(info: ThreadInfo, head: WorkflowCheckpoint, context: list[Message], space: Space) -> dict[str, Any]:
    return {
        **plain({key: value for key, value in head.state.items() if key not in OWN_KEYS}),
        "context": messages_to_client(context),
        "context_summary": plain(head.state.get("context_summary")),
        "execution_meta": execution_meta(info, head, space),
    }


def merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Dicts are merged, None is passed over, everything else takes the place of what was there."""
    after = dict(stored)
    for key, value in given.items():
        if value is None:
            continue
        before = after.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        after[key] = merged(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return after


def with_state(head: WorkflowCheckpoint, given: Mapping[str, Any]) -> WorkflowCheckpoint:
    """The head with these values in its shared state. Raises HttpProblem for a value of another type."""
    return msgspec.structs.replace(head, state=changed_state(head.state, given))


def changed_state(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The state with these values in it. Raises HttpProblem for a value of another type."""
    after = merged(before, {key: value for key, value in given.items() if key not in ("context", "execution_meta")})
    for key, value in after.items():
        stored = before.get(key)
        if key in before and stored is not None and not _fits(stored, value):
            raise HttpProblem(
                422,
                "wrong_state_type",
                f"state.{key} holds {type(stored).__name__}, not {type(value).__name__}. Nothing was written.",
                field=f"state.{key}",
            )
    return after


def _fits(stored: Any, value: Any) -> bool:
    if type(stored) is float and type(value) is int:
        return True
    return type(stored) is type(value)


STATE_SCHEMA: dict[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "context": {"type": "array", "items": {"$ref": "#/$defs/Message"}, "description": "What was said so far."},
        "context_summary": {"type": ["string", "null"]},
        "execution_meta": {"type": "object", "readOnly": True, "description": "Where the thread stands."},
    },
    "additionalProperties": True,
    "$defs": {
        "Message": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "message_id": {"type": "string"},
                "role": {"enum": ["user", "assistant", "system", "tool"]},
                "content": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}
