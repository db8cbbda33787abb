"""Values, events, checkpoints and threads as JSON for clients, without type names."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Union

import msgspec

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import PerdureError, type_name
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo, ThreadInfo
from perdure.server.auth.principal import Space

# ---------------------------------------------------------------- schemas


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a type; an empty schema, which accepts any value, for a type without one."""
    if annotation is None or annotation is Any or isinstance(annotation, str):
        return {}
    if hasattr(annotation, "model_json_schema"):
        model_schema: dict[str, Any] = annotation.model_json_schema()
        return model_schema
    try:
        schema: dict[str, Any] = msgspec.json.schema(annotation)
    except (TypeError, ValueError, NameError, RecursionError):
        return {}
    return schema


def schema_of_any(annotations: Iterable[Any]) -> dict[str, Any]:
    """The JSON Schema of a union of these types."""
    kinds = [kind for kind in annotations if kind is not types.NoneType]
    if not kinds:
        return {}
    together = schema_of(Union[tuple(kinds)])  # noqa: UP007  # a union of types known only now
    if together:
        return together
    each = [schema for kind in kinds if (schema := schema_of(kind))]
    return {"anyOf": each} if len(each) == len(kinds) else {}


MAX_DEPTH = 100
"""Deeper levels of a value become `...`."""
_AS_IT_IS = frozenset({types.NoneType, bool, int, float})


def to_json(value: Any, depth: int = 0) -> Any:
    """Convert a value to JSON types; a value that has no JSON form becomes its `repr`."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is str:
        return value if value.isascii() else _writable(value)
    if depth > MAX_DEPTH:
        return "..."
    if hasattr(value, "to_dict") and not isinstance(value, type):
        try:
            return to_json(value.to_dict(), depth + 1)
        except (PerdureError, TypeError, ValueError):
            return repr(value)
    if isinstance(value, Mapping):
        entries: dict[str, Any] = {}
        for key, item in value.items():
            name = str(key)
            name = name if name.isascii() else _writable(name)
            entries[name] = item if type(item) in _AS_IT_IS else to_json(item, depth + 1)
        return entries
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item, depth + 1) for item in value]
    if isinstance(value, type):
        return type_name(value)
    try:
        built = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return _writable(repr(value))
    return to_json(built, depth + 1) if built is not value else _writable(repr(value))


def _writable(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def event_to_json(event: WorkflowEvent, space: Space, *, hides_errors: bool = False) -> dict[str, Any]:
    """The fields of an event that are set; `response_type` by name."""
    defaults = zip(event.__struct_fields__, (..., *event.__struct_defaults__), strict=True)
    fields = {name: value for name, default in defaults if (value := getattr(event, name)) is not default}
    if event.checkpoint is not None:
        fields["checkpoint"] = checkpoint_info_to_json(event.checkpoint, space)
    if event.thread_id is not None:
        fields["thread_id"] = space.public_id(event.thread_id)
    if event.details is not None:
        fields["details"] = error_to_json(event.details, hides=hides_errors)
    terms = event.terms
    if terms is not None:
        fields["terms"] = {"deadline": terms.deadline, "assignee": terms.assignee}
        if terms.default is not ...:
            fields["terms"]["default"] = terms.default
    return {name: value if type(value) in _AS_IT_IS else to_json(value, 1) for name, value in fields.items()}


def error_to_json(details: Any, *, hides: bool) -> dict[str, Any]:
    """An error of a workflow's own code. In production only its type is returned; the log has the message."""
    if hides:
        return {"error_type": details.error_type, "message": "The server log has the details."}
    return {"error_type": details.error_type, "message": details.message, "executor_id": details.executor_id}


def checkpoint_info_to_json(info: CheckpointInfo, space: Space) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(info)
    body["thread_id"] = space.public_id(info.thread_id)
    return body


def checkpoint_to_json(checkpoint: WorkflowCheckpoint, space: Space) -> dict[str, Any]:
    """A checkpoint: state, due messages, pending requests, outputs, executors and usage."""
    return {
        **checkpoint_info_to_json(checkpoint.info, space),
        "state": to_json(checkpoint.state),
        "messages": to_json([msgspec.structs.asdict(delivery) for delivery in checkpoint.deliveries]),
        "pending_requests": [
            request_to_json(event, space) for event in checkpoint.pending_request_info_events.values()
        ],
        "outputs": [to_json(event.data) for event in checkpoint.outputs if event.type == "output"],
        "executors": {
            key: {"saved": to_json(memory.saved), "private": to_json(memory.private)}
            for key, memory in checkpoint.executors.items()
        },
        "usage": to_json(checkpoint.metadata.get("usage", {})),
    }


def request_to_json(event: WorkflowEvent, space: Space) -> dict[str, Any]:
    """A pending request, with the schema of its answer."""
    terms = event.terms
    return {
        "request_id": event.request_id,
        "executor_id": event.source_executor_id,
        "data": to_json(event.data),
        "response_type": None if event.response_type is None else to_json(event.response_type),
        "response_schema": schema_of(event.response_type),
        "deadline": None if terms is None or terms.deadline is None else terms.deadline.isoformat(),
        "assignee": None if terms is None else terms.assignee,
    }


def thread_to_json(info: ThreadInfo, space: Space, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A thread: the fields of AgentFlow first, then its status."""
    about = about or {}
    return {
        "thread_id": space.public_id(info.thread_id),
        "thread_name": about.get("name"),
        "user_id": space.user_id,
        "metadata": to_json(about.get("metadata")),
        "updated_at": info.updated_at,
        "run_id": info.run_id,
        "workflow_name": info.workflow_name,
        "status": info.status,
        "checkpoint_id": info.checkpoint_id,
        "number": info.number,
        "due_at": None if info.due_at is None else info.due_at.isoformat(),
    }
