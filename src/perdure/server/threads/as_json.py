"""The data of clients as JSON without type names: values, events, checkpoints, threads, and messages in
AgentFlow's format.
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message, as_messages
from perdure.agents.conversation.response import AgentResponse, as_response
from perdure.agents.executor import AgentExecutor
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.errors import PerdureError, type_name
from perdure.events import WorkflowEvent
from perdure.graph.context import WorkflowContext
from perdure.names import random_digits
from perdure.records import CheckpointInfo, ThreadInfo
from perdure.server.auth.principal import Space
from perdure.server.problems import HttpProblem, unprocessable
from perdure.twins import to_own


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
    pairs = zip(msgspec.structs.asdict(event).items(), (..., *event.__struct_defaults__), strict=True)
    fields = {name: value for (name, value), default in pairs if value is not default}
    if event.type == "executor_failed":
        fields.pop("data", None)  # `details` has it, and may hide it
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
    return {**msgspec.to_builtins(info), "thread_id": space.public_id(info.thread_id)}


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
    """A thread: its status, with the fields of AgentFlow."""
    about = about or {}
    return {
        **msgspec.structs.asdict(info),
        "thread_id": space.public_id(info.thread_id),
        "thread_name": about.get("name"),
        "user_id": space.user_id,
        "metadata": to_json(about.get("metadata")),
        "due_at": None if info.due_at is None else info.due_at.isoformat(),
    }


# ---------------------------------------------------------------- messages from clients


_MEDIA = ("image", "audio", "video", "document")


class MessageBody(msgspec.Struct, frozen=True):
    """A message from a client: a text or content blocks."""

    content: str | list[dict[str, Any]]
    role: str = "user"
    message_id: str | int | None = None
    metadata: dict[str, Any] | None = None
    tools_calls: list[dict[str, Any]] | None = None


def message_from_client(body: MessageBody, path: str) -> Message:
    """Raises HttpProblem for tool calls and tool results, which clients may not send."""
    if body.role not in ("user", "assistant", "system"):
        raise _invalid_message(f"{path}.role", f"role must be user, assistant or system, got {body.role!r}")
    if body.tools_calls:
        raise _invalid_message(f"{path}.tools_calls", "only agents make tool calls; clients cannot send them")
    if isinstance(body.content, str):
        contents: tuple[Content, ...] = (Content.from_text(_require_text(body.content, f"{path}.content")),)
    else:
        contents = tuple(_content(block, f"{path}.content[{at}]") for at, block in enumerate(body.content))
    if not contents:
        raise _invalid_message(f"{path}.content", "a message needs content")
    message_id = random_digits() + random_digits() if body.message_id is None else str(body.message_id)
    return Message(body.role, contents, message_id=message_id, additional_properties=body.metadata or None)


def messages_from_client(bodies: Iterable[MessageBody], path: str = "messages") -> list[Message]:
    return [message_from_client(body, f"{path}[{at}]") for at, body in enumerate(bodies)]


def context_of(state: Mapping[str, Any], path: str) -> list[MessageBody]:
    """The messages in a client's state. Raises HttpProblem."""
    try:
        return msgspec.convert(state.get("context") or [], list[MessageBody])
    except msgspec.ValidationError as error:
        raise unprocessable(path, f"{path}: {error}", "invalid_message") from error


def _require_text(text: Any, path: str) -> str:
    if not isinstance(text, str):
        raise _invalid_message(path, f"expected a text, got {type(text).__name__}")
    return text


def _content(block: Mapping[str, Any], path: str) -> Content:
    kind = block.get("type", "text")
    if kind == "text":
        return Content.from_text(_require_text(block.get("text"), f"{path}.text"))
    if kind == "data" and "data" in block and "media" not in block:
        return Content.from_text(msgspec.json.encode(block["data"]).decode())
    if kind in _MEDIA or kind == "data":
        media = block.get("media")
        return _media(media if isinstance(media, Mapping) else block, kind, f"{path}.media")
    if kind in ("tool_call", "remote_tool_call", "tool_result"):
        raise _invalid_message(f"{path}.type", f"only agents create {kind}; clients cannot send it")
    raise _invalid_message(f"{path}.type", f"expected text, {', '.join(_MEDIA)} or data, got {kind!r}")


def _media(media: Mapping[str, Any], kind: str, path: str) -> Content:
    default_type = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}.get(kind)
    media_type = media.get("mime_type") or default_type or "application/octet-stream"
    url, data = media.get("url"), media.get("data_base64") or media.get("data")
    if isinstance(url, str) and url.startswith(("http://", "https://", "data:")):
        return Content.from_uri(url, media_type=_require_text(media_type, f"{path}.mime_type"))
    if isinstance(data, str):
        media_type = _require_text(media_type, f"{path}.mime_type")
        try:
            return Content.from_data(base64.b64decode(data, validate=True), media_type)
        except binascii.Error:
            raise _invalid_message(f"{path}.data_base64", "expected base64") from None
    raise _invalid_message(path, "expected a url (http, https or data) or data_base64")


def _invalid_message(field: str, reason: str) -> HttpProblem:
    return unprocessable(field, f"{field}: {reason}. Nothing was started.", "invalid_message")


# ---------------------------------------------------------------- to clients


def output_messages(event: WorkflowEvent) -> list[Message]:
    """The messages of an output event."""
    return to_messages(event.data, "assistant", event.executor_id)


def to_messages(data: Any, role: str, author: str | None = None) -> list[Message]:
    """An agent's response or messages, of any framework, as ours; other data as text."""
    if isinstance(data, AgentResponse):
        return as_response(data, author).messages
    if isinstance(data, Message) or (
        isinstance(data, list) and data and all(isinstance(item, Message) for item in data)
    ):
        return as_messages(data)
    text = data if isinstance(data, str) else msgspec.json.encode(to_json(to_own(data))).decode()
    return [Message(role, text, author)]


def message_to_client(message: Message) -> dict[str, Any]:
    usages = [content.usage_details for content in message.contents if content.type == "usage"]
    blocks = [_block(content) for content in message.contents if content.type != "usage"]
    return {
        "message_id": message.message_id,
        "role": message.role,
        "content": blocks,
        "delta": False,
        "tools_calls": [block for block in blocks if block["type"] == "tool_call"] or None,
        "reasoning": "".join([block["summary"] for block in blocks if block["type"] == "reasoning"]),
        "timestamp": None,
        "metadata": to_json(message.additional_properties or {}),
        "usages": to_json(usages[-1]) if usages else None,
        "author_name": message.author_name,
    }


def messages_to_client(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [message_to_client(message) for message in with_ids(messages)]


def _block(content: Content) -> dict[str, Any]:
    if content.type == "text":
        return {"type": "text", "text": to_json(content.text or ""), "annotations": []}
    if content.type == "text_reasoning":
        return {"type": "reasoning", "summary": to_json(content.text or "")}
    if content.type == "function_call":
        return {"type": "tool_call", "id": content.call_id, "name": content.name, "args": _arguments(content)}
    if content.type == "function_result":
        is_error = content.exception is not None
        return {
            "type": "tool_result",
            "call_id": content.call_id,
            "output": to_json(content.exception if is_error else content.result),
            "is_error": is_error,
            "status": "failed" if is_error else "completed",
        }
    if content.type == "error":
        return {"type": "error", "message": to_json(content.message or "")}
    if content.uri is not None:
        kind = (content.media_type or "").split("/", 1)[0]
        media = {"kind": "url", "url": to_json(content.uri), "mime_type": content.media_type}
        return {"type": kind if kind in _MEDIA else "document", "media": media}
    return {"type": "data", "data": to_json(content)}


def _arguments(content: Content) -> Any:
    try:
        return to_json(content.parse_arguments())
    except ValueError:
        return to_json(content.arguments)


# ---------------------------------------------------------------- ids


class SpeakingExecutor(AgentExecutor):
    """An agent executor that gives each message an id.

    The id is derived from the thread and the position in the conversation, so a turn repeated after a crash gives the
    same ids.
    """

    is_stateless = True

    async def respond(
        self, messages: Sequence[Message], ctx: WorkflowContext[Any, Any], repeated: Sequence[Message] = ()
    ) -> AgentResponse:
        response = await super().respond(messages, ctx, repeated)
        session = ctx.private["session"]
        ids, used = {}, set[str]()
        for at, message in enumerate(session.messages):
            if message.message_id is None or message.message_id in used:
                place = at  # after a removal, another message may have the id of this position
                while (new := blake2b(f"{session.session_id}/{place}".encode(), digest_size=12).hexdigest()) in used:
                    place += 1
                ids[id(message)] = session.messages[at] = msgspec.structs.replace(message, message_id=new)
            used.add(session.messages[at].message_id or "")
        if not ids:
            return response
        messages_with_ids = tuple(ids.get(id(message), message) for message in response.messages)
        if any(message.message_id is None for message in messages_with_ids):  # the session holds copies, as its last
            messages_with_ids = tuple(session.messages[len(session.messages) - len(messages_with_ids) :])
        return msgspec.structs.replace(response, messages=messages_with_ids)


def merge_messages(messages: Iterable[Message], added: Iterable[Message]) -> list[Message]:
    """Append messages; a message whose id exists replaces the old one."""
    after = with_ids(messages)
    places = {message.message_id: at for at, message in enumerate(after)}
    for message in added:
        if message.message_id in places:
            after[places[message.message_id]] = message
        else:
            places[message.message_id] = len(after)
            after.append(message)
    return after


def with_ids(messages: Iterable[Message], prefix: str = "m", first: int = 0) -> list[Message]:
    """Give messages without an id the id of their position, which stays when earlier messages are removed.

    `prefix`: names the run, where a workflow without an agent stores no message ids.
    """
    return [
        message if message.message_id else msgspec.structs.replace(message, message_id=f"{prefix}{at}")
        for at, message in enumerate(messages, first)
    ]


def find_message(messages: Iterable[Message], message_id: str) -> tuple[int, Message]:
    """Raises HttpProblem."""
    for at, message in enumerate(with_ids(messages)):
        if message.message_id == message_id:
            return at, message
    raise HttpProblem(404, "message_not_found", f"This thread has no message {message_id!r}.", field="message_id")
