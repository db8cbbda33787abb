"""Events of a thread's log as the chunks that `stream` gives: the same ones, whichever way they came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.client.answers import AT_REST, Chunk, Message
from perdure.client.errors import UnreadableAnswer

_MEDIA = ("image", "audio", "video", "document")
_OWN = ("thread_id", "run_id", "timestamp", "seq")


def chunk_from(seq: int | None, told: Mapping[str, Any]) -> Chunk:
    """What a server streamed. Raises UnreadableAnswer."""
    try:
        return msgspec.convert({**told, "seq": seq}, Chunk)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"A chunk of the stream cannot be read: {error}") from error


def notice(thread_id: str, run_id: str | None, data: Mapping[str, Any]) -> Chunk:
    """Something about the stream itself."""
    return Chunk(
        event="updates", data=dict(data), thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time()
    )


def chunks_of(event: Mapping[str, Any], seq: int | None, said_before: int = 0) -> list[Chunk]:
    """What an event says to those who follow a turn: an output of several messages is several chunks. `said_before`:
    messages of the run's outputs before it; one without an id is known by its place among them."""
    kind, data = event.get("type"), event.get("data")
    if kind == "data" and isinstance(data, Mapping) and data.get("type") == "agent_response_update":
        delta = message_from(data, str(data.get("message_id") or ""), delta=True)
        return [_chunk(event, None, "message", message=delta)]
    if kind == "output":
        said = enumerate(_said(data, event.get("executor_id")), said_before)
        run_id = event.get("run_id")
        return [_chunk(event, seq, "message", message=message_from(one, f"{run_id}-out{at}")) for at, one in said]
    if kind == "failed":
        return [_chunk(event, seq, "error", data=event.get("details"))]
    if kind == "request_info":
        return [_chunk(event, seq, "updates", data={"status": "interrupted", "request": request_from(event)})]
    shown = {key: value for key, value in event.items() if key not in _OWN}
    return [_chunk(event, seq, "updates", data=shown)]


def _chunk(event: Mapping[str, Any], seq: int | None, name: str, **more: Any) -> Chunk:
    thread_id, run_id = event.get("thread_id"), event.get("run_id")
    return Chunk(event=name, seq=seq, thread_id=thread_id, run_id=run_id, metadata={}, timestamp=time.time(), **more)


def end_of(chunk: Chunk) -> str | None:
    """The state in which the run ended, if this is what says so."""
    data = chunk.data
    if chunk.seq is None or not isinstance(data, Mapping) or data.get("type") != "status":
        return None
    state = data.get("state")
    return state if state in AT_REST else None


def request_from(event: Mapping[str, Any]) -> dict[str, Any]:
    """A request, of which the log does not know what an answer looks like."""
    terms = event.get("terms") or {}
    return {
        "request_id": event.get("request_id"),
        "executor_id": event.get("source_executor_id"),
        "data": event.get("data"),
        "response_type": event.get("response_type"),
        "response_schema": None,
        "deadline": terms.get("deadline"),
        "assignee": terms.get("assignee"),
    }


# ---------------------------------------------------------------- messages


def _said(data: Any, author: Any) -> list[Mapping[str, Any]]:
    if isinstance(data, Mapping) and data.get("type") == "agent_response":
        return list(data.get("messages") or ())
    if _is_message(data):
        return [data]
    if isinstance(data, list) and data and all(_is_message(one) for one in data):
        return data
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return [{"role": "assistant", "contents": [{"type": "text", "text": text}], "author_name": author}]


def _is_message(data: Any) -> bool:
    return isinstance(data, Mapping) and data.get("type") == "message" and "role" in data


def message_from(told: Mapping[str, Any], message_id: str, *, delta: bool = False) -> Message:
    contents = [one for one in told.get("contents") or () if isinstance(one, Mapping)]
    calls = [_block(one) for one in contents if one.get("type") == "function_call"]
    usages = [one.get("usage_details") for one in contents if one.get("type") == "usage"]
    return Message(
        message_id=(told.get("message_id") or message_id) if not delta else told.get("message_id"),
        role=told.get("role") or "assistant",
        content=[_block(one) for one in contents if one.get("type") != "usage"],
        delta=delta,
        tools_calls=calls or None,
        reasoning="".join(one.get("text") or "" for one in contents if one.get("type") == "text_reasoning"),
        metadata=dict(told.get("additional_properties") or {}),
        usages=usages[-1] if usages else None,
        author_name=told.get("author_name"),
    )


def _block(content: Mapping[str, Any]) -> dict[str, Any]:
    kind = content.get("type")
    if kind == "text":
        return {"type": "text", "text": content.get("text") or "", "annotations": []}
    if kind == "text_reasoning":
        return {"type": "reasoning", "summary": content.get("text") or ""}
    if kind == "function_call":
        args = _arguments(content.get("arguments"))
        return {"type": "tool_call", "id": content.get("call_id"), "name": content.get("name"), "args": args}
    if kind == "function_result":
        failure = content.get("exception")
        return {
            "type": "tool_result",
            "call_id": content.get("call_id"),
            "output": content.get("result") if failure is None else failure,
            "is_error": failure is not None,
            "status": "completed" if failure is None else "failed",
        }
    if kind == "error":
        return {"type": "error", "message": content.get("message") or ""}
    if content.get("uri") is not None:
        media_type = content.get("media_type")
        family = (media_type or "").split("/", 1)[0]
        media = {"kind": "url", "url": content["uri"], "mime_type": media_type}
        return {"type": family if family in _MEDIA else "document", "media": media}
    return {"type": "data", "data": dict(content)}


def _arguments(given: Any) -> Any:
    if given is None or given == "":
        return {}
    if not isinstance(given, str):
        return given
    try:
        found = msgspec.json.decode(given)
    except msgspec.DecodeError:
        return given
    return found if isinstance(found, dict) else given
