"""AgentFlow's format: messages, a thread's state, and the default workflow's graph."""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.agents.conversation.message import Content, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.names import random_digits
from perdure.records import ThreadInfo
from perdure.server.auth.principal import Space
from perdure.server.problems import HttpProblem
from perdure.server.threads.to_json import schema_of, to_json
from perdure.workflows.workflow import Workflow

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
        raise HttpProblem(422, "invalid_message", f"{path}: {error}", field=path) from error


def _require_text(text: Any, path: str) -> str:
    if not isinstance(text, str):
        raise _invalid_message(path, f"expected a text, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid_message(path, "expected text that UTF-8 can encode") from None
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
    default_type = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}.get(
        kind, "application/octet-stream"
    )
    media_type = media.get("mime_type") or default_type
    url, data = media.get("url"), media.get("data_base64") or media.get("data")
    if isinstance(url, str) and url.startswith(("http://", "https://", "data:")):
        return Content.from_uri(
            _require_text(url, f"{path}.url"), media_type=_require_text(media_type, f"{path}.mime_type")
        )
    if isinstance(data, str):
        try:
            return Content.from_data(
                base64.b64decode(data, validate=True), _require_text(media_type, f"{path}.mime_type")
            )
        except binascii.Error:
            raise _invalid_message(f"{path}.data_base64", "expected base64") from None
    raise _invalid_message(path, "expected a url (http, https or data) or data_base64")


def _invalid_message(field: str, reason: str) -> HttpProblem:
    return HttpProblem(422, "invalid_message", f"{field}: {reason}. Nothing was started.", field=field)


# ---------------------------------------------------------------- to clients


def output_messages(event: WorkflowEvent) -> list[Message]:
    """The messages of an output event."""
    return to_messages(event.data, "assistant", event.executor_id)


def to_messages(data: Any, role: str, author: str | None = None) -> list[Message]:
    if isinstance(data, AgentResponse):
        return list(data.messages)
    if isinstance(data, Message):
        return [data]
    if isinstance(data, list) and data and all(isinstance(item, Message) for item in data):
        return list(data)
    text = data if isinstance(data, str) else msgspec.json.encode(to_json(data)).decode()
    return [Message(role, text, author)]


def with_run_ids(messages: Iterable[Message], run: str, first: int = 0) -> list[Message]:
    """Message ids from a run id. A workflow without an agent stores no message ids."""
    return [
        message if message.message_id else msgspec.structs.replace(message, message_id=f"{run}{at}")
        for at, message in enumerate(messages, first)
    ]


def message_to_client(message: Message, message_id: str) -> dict[str, Any]:
    calls = [_block(content) for content in message.of_type("function_call")]
    reasoning = "".join(content.text or "" for content in message.of_type("text_reasoning"))
    usages = [content.usage_details for content in message.of_type("usage")]
    return {
        "message_id": message.message_id or message_id,
        "role": message.role,
        "content": [_block(content) for content in message.contents if content.type != "usage"],
        "delta": False,
        "tools_calls": calls or None,
        "reasoning": reasoning,
        "timestamp": None,
        "metadata": to_json(message.additional_properties or {}),
        "usages": to_json(usages[-1]) if usages else None,
        "author_name": message.author_name,
    }


def messages_to_client(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages without an id get one from their position, which is stable in an append-only conversation."""
    return [message_to_client(message, place_id(at)) for at, message in enumerate(messages)]


def place_id(at: int) -> str:
    return f"m{at}"


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


OWN_KEYS = frozenset({"context", "context_summary", "execution_meta"})
"""Keys that are not part of the shared state."""

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
        "interrupt_data": None
        if waiting is None
        else {"request_id": waiting.request_id, "value": to_json(waiting.data)},
        "thread_id": space.public_id(info.thread_id),
        "stop_current_execution": "stopped" if info.status == WorkflowRunState.CANCELLED.value else "none",
        "internal_data": {},
    }


def state_to_client(info: ThreadInfo, head: WorkflowCheckpoint, context: list[Message], space: Space) -> dict[str, Any]:
    return {
        **to_json({key: value for key, value in head.state.items() if key not in OWN_KEYS}),
        "context": messages_to_client(context),
        "context_summary": to_json(head.state.get("context_summary")),
        "execution_meta": execution_meta(info, head, space),
    }


def merge_state(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts recursively; None is ignored; any other value replaces the stored one."""
    after = dict(stored)
    for key, value in changes.items():
        if value is None:
            continue
        before = after.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        after[key] = merge_state(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return after


def with_state(head: WorkflowCheckpoint, changes: Mapping[str, Any]) -> WorkflowCheckpoint:
    """The head with these changes in its shared state. Raises HttpProblem for a value of another type."""
    return msgspec.structs.replace(head, state=update_state(head.state, changes))


def update_state(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The state with these changes. Raises HttpProblem for a value of another type."""
    after = merge_state(
        before, {key: value for key, value in changes.items() if key not in ("context", "execution_meta")}
    )
    for key, value in after.items():
        stored = before.get(key)
        if key in before and stored is not None and not _is_same_type(stored, value):
            raise HttpProblem(
                422,
                "wrong_state_type",
                f"state.{key} holds {type(stored).__name__}, not {type(value).__name__}. Nothing was written.",
                field=f"state.{key}",
            )
    return after


def _is_same_type(stored: Any, value: Any) -> bool:
    if type(stored) is float and type(value) is int:
        return True
    return type(stored) is type(value)


STATE_SCHEMA: dict[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "context": {"type": "array", "items": {"$ref": "#/$defs/Message"}, "description": "The messages so far."},
        "context_summary": {"type": ["string", "null"]},
        "execution_meta": {"type": "object", "readOnly": True, "description": "The status of the thread."},
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


START, END = "__start__", "__end__"


def graph_to_client(workflow: Workflow, storage: StoreCheckpointStorage) -> dict[str, Any]:
    nodes = [START, *workflow.executors, END]
    edges = [(START, workflow.start_executor_id)]
    edges += [(edge.source_id, edge.target_id) for group in workflow.edge_groups for edge in group.edges]
    leaves = [node for node in workflow.executors if all(source != node for source, _ in edges)]
    edges += [(node, END) for node in leaves]
    info = {
        "name": workflow.name,
        "node_count": len(nodes),
        "edge_count": len(edges),
        "is_realtime": False,
        "checkpointer": True,
        "checkpointer_type": type(storage).__name__,
        "publisher": False,
        "store": False,
        "interrupt_before": None,
        "interrupt_after": None,
        "context_type": None,
        "id_generator": "time-ordered",
        "id_type": "string",
        "state_type": "AgentState",
        "state_fields": ["context", "context_summary", "execution_meta"],
    }
    return {
        "info": info,
        "nodes": [{"id": node, "name": node} for node in nodes],
        "edges": [{"id": f"{source}->{target}", "source": source, "target": target} for source, target in edges],
    }


def tools_to_client(workflow: Workflow) -> dict[str, Any]:
    """The tools of each agent, by node."""
    agents = (
        (node, executor.agent) for node, executor in workflow.executors.items() if isinstance(executor, AgentExecutor)
    )
    return {"nodes": [{"node": node, "tools": _tools(agent)} for node, agent in agents]}


def _tools(agent: Any) -> list[dict[str, Any]]:
    tools = getattr(agent, "tools", None)
    entries: list[Any] = list(tools.values()) if isinstance(tools, Mapping) else list(tools or ())
    return [
        {"name": tool.name, "description": tool.description, "source": "local", "parameters": _parameters(tool)}
        for tool in entries
        if isinstance(tool, Tool)
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    hidden = {"return", tool.context_parameter}
    annotations = {name: annotation for name, annotation in tool._annotations.items() if name not in hidden}
    parameters = inspect.signature(tool.function).parameters
    required = [
        name for name in annotations if name in parameters and parameters[name].default is inspect.Parameter.empty
    ]
    return {
        "type": "object",
        "properties": {name: schema_of(annotation) for name, annotation in annotations.items()},
        "required": required,
    }
