"""Values as JSON for clients: what is stored with its types is shown without them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Union

import msgspec

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import PerdureError, type_name
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo, PendingRequest, ThreadInfo
from perdure.server.threads.tenancy import Space

# ---------------------------------------------------------------- schemas


def schema_of(annotation: Any) -> dict[str, Any]:
    """An empty one, which anything fits, for a type that has none."""
    if annotation is None or annotation is Any or isinstance(annotation, str):
        return {}
    if hasattr(annotation, "model_json_schema"):
        found: dict[str, Any] = annotation.model_json_schema()
        return found
    try:
        schema: dict[str, Any] = msgspec.json.schema(annotation)
    except (TypeError, ValueError, NameError, RecursionError):
        return {}
    return schema


def schema_of_any(annotations: Iterable[Any]) -> dict[str, Any]:
    """Of something that may be of any of these types."""
    given = [one for one in annotations if one is not types.NoneType]
    if not given:
        return {}
    together = schema_of(Union[tuple(given)])  # noqa: UP007  # a union of types known only now
    if together:
        return together
    each = [schema for one in given if (schema := schema_of(one))]
    return {"anyOf": each} if len(each) == len(given) else {}


DEEPEST = 100
"""Levels of a value that are shown."""


def plain(value: Any, depth: int = 0) -> Any:
    """Only what JSON has. What no JSON can be made of is shown as text."""
    if value is None or (isinstance(value, (bool, int, float)) and type(value) in (bool, int, float)):
        return value
    if type(value) is str:
        return _writable(value)
    if depth > DEEPEST:
        return "..."
    if hasattr(value, "to_dict") and not isinstance(value, type):
        try:
            return plain(value.to_dict(), depth + 1)
        except (PerdureError, TypeError, ValueError):
            return repr(value)
    if isinstance(value, Mapping):
        return {_writable(str(key)): plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one, depth + 1) for one in value]
    if isinstance(value, type):
        return type_name(value)
    try:
        built = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return _writable(repr(value))
    return plain(built, depth + 1) if built is not value else _writable(repr(value))


def _writable(text: str) -> str:
    """Without halves of surrogate pairs, which UTF-8 cannot write."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def plain_event(event: WorkflowEvent, space: Space, *, hides_errors: bool = False) -> dict[str, Any]:
    """The fields that are set. `response_type` is told by name."""
    defaults = zip(event.__struct_fields__, (..., *event.__struct_defaults__), strict=True)
    told = {name: value for name, default in defaults if (value := getattr(event, name)) is not default}
    if event.checkpoint is not None:
        told["checkpoint"] = plain_info(event.checkpoint, space)
    if event.thread_id is not None:
        told["thread_id"] = space.outside(event.thread_id)
    if event.details is not None:
        told["details"] = plain_error(event.details, hides=hides_errors)
    terms = event.terms
    if terms is not None:
        told["terms"] = {"deadline": terms.deadline, "assignee": terms.assignee}
        if terms.default is not ...:
            told["terms"]["default"] = terms.default
    shown: dict[str, Any] = plain(told)
    return shown


def plain_error(details: Any, *, hides: bool) -> dict[str, Any]:
    """An error of a workflow's own code. In production only its kind is told; the log has the rest."""
    if hides:
        return {"error_type": details.error_type, "message": "The log of the server says more."}
    return {"error_type": details.error_type, "message": details.message, "executor_id": details.executor_id}


def plain_info(info: CheckpointInfo, space: Space) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(info)
    told["thread_id"] = space.outside(info.thread_id)
    return told


def plain_checkpoint(checkpoint: WorkflowCheckpoint, space: Space) -> dict[str, Any]:
    """Where a thread stood: its state, what was due, what was asked, what came out."""
    return {
        **plain_info(checkpoint.info, space),
        "state": plain(checkpoint.state),
        "messages": plain([msgspec.structs.asdict(one) for one in checkpoint.deliveries]),
        "pending_requests": [plain_request(one, space) for one in checkpoint.pending_request_info_events.values()],
        "outputs": [plain(one.data) for one in checkpoint.outputs if one.type == "output"],
        "executors": {
            key: {"saved": plain(one.saved), "private": plain(one.private)} for key, one in checkpoint.executors.items()
        },
        "usage": plain(checkpoint.metadata.get("usage", {})),
    }


def plain_request(event: WorkflowEvent, space: Space) -> dict[str, Any]:
    """What is asked, and what an answer looks like."""
    terms = event.terms
    return {
        "request_id": event.request_id,
        "executor_id": event.source_executor_id,
        "data": plain(event.data),
        "response_type": None if event.response_type is None else plain(event.response_type),
        "response_schema": schema_of(event.response_type),
        "deadline": None if terms is None or terms.deadline is None else terms.deadline.isoformat(),
        "assignee": None if terms is None else terms.assignee,
    }


def plain_pending(pending: PendingRequest, space: Space) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(pending)
    told["thread_id"] = space.outside(pending.thread_id)
    return told


def plain_thread(info: ThreadInfo, space: Space, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """As users of AgentFlow know it, and then where it stands."""
    about = about or {}
    return {
        "thread_id": space.outside(info.thread_id),
        "thread_name": about.get("name"),
        "user_id": space.user_id,
        "metadata": plain(about.get("metadata")),
        "updated_at": info.updated_at,
        "run_id": info.run_id,
        "workflow_name": info.workflow_name,
        "status": info.status,
        "checkpoint_id": info.checkpoint_id,
        "number": info.number,
        "due_at": None if info.due_at is None else info.due_at.isoformat(),
    }
