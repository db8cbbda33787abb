"""Messages of pydantic-ai as ours, and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse
from pydantic_core import to_json

from perdure.agents.conversation.message import Content, Message
from perdure.agents.pydantic.contents import (
    TEXTS,
    Extra,
    contents_of_part,
    part_of_content,
    prompt_of_contents,
    restore_part,
)

EXTRA = "pydantic_ai"
"""The key of a message's `additional_properties` for fields of pydantic-ai's message that ours lacks."""
OURS = "perdure"
"""The key of the `metadata` of pydantic-ai's message for fields of ours that it lacks."""

USUAL = {"state": "complete", "outcome": "success"}
"""Default values, which are not stored."""
ROLES = {"system-prompt": "system", "user-prompt": "user"}
NOT_FOR_MODELS = ("usage", "error", "function_approval_request", "function_approval_response")


def to_messages(messages: Iterable[ModelMessage], author_name: str | None = None) -> list[Message]:
    """As our messages. A request becomes one message for each role in it."""
    ours: list[Message] = []
    for message in messages:
        ours += [to_message(message, author_name)] if isinstance(message, ModelResponse) else _of_request(message)
    return ours


def to_message(response: ModelResponse, author_name: str | None = None) -> Message:
    """A model's answer. Consecutive texts become one content, as in a stream."""
    dumped = _dump(response)
    parts: list[Extra] = dumped.pop("parts", [])
    contents: list[Content] = []
    for part, extra in zip(response.parts, parts, strict=True):
        for content in contents_of_part(part, extra):
            last = contents[-1] if contents else None
            if last is not None and last.type == content.type and content.type in TEXTS.values():
                contents[-1] = msgspec.structs.replace(last, text=f"{last.text}{content.text}")
            else:
                contents.append(content)
    if len(parts) != len(contents) or any(extra.keys() - {"part_kind", "length"} for extra in parts):
        dumped["parts"] = parts
    return _message("assistant", contents, dumped, author_name)


def without_timestamps(message: Message) -> Message:
    """Without the times of its parts: a repeated turn would have other times, and so other messages."""
    extra = dict((message.additional_properties or {}).get(EXTRA, {}))
    parts = [{name: value for name, value in part.items() if name != "timestamp"} for part in extra.pop("parts", ())]
    if any(part.keys() - {"part_kind"} for part in parts) or len(parts) != len(message.contents):
        extra["parts"] = parts
    return msgspec.structs.replace(message, additional_properties={EXTRA: extra} if extra else None)


def _of_request(request: ModelRequest) -> list[Message]:
    dumped = _dump(request)
    pairs = list(zip(request.parts, dumped.pop("parts", []), strict=True))
    messages: list[Message] = []
    for role, some in groupby(pairs, lambda pair: ROLES.get(pair[1]["part_kind"], "tool")):
        contents: list[Content] = []
        parts: list[Extra] = []
        for part, extra in some:
            contents += contents_of_part(part, extra)
            parts.append(extra)
        first = {"joined": True} if messages else dumped
        messages.append(_message(role, contents, {**first, "parts": parts}))
    return messages or [_message("tool", [], {**dumped, "parts": []})]


def _message(role: str, contents: Sequence[Content], extra: Extra, author_name: str | None = None) -> Message:
    ours: dict[str, Any] = {}
    metadata = extra.get("metadata")
    if isinstance(metadata, dict) and OURS in metadata:
        ours = metadata[OURS]
        extra["metadata"] = {name: value for name, value in metadata.items() if name != OURS} or None
    extra = {name: value for name, value in extra.items() if value is not None and name != "kind"}
    properties = {**ours.get("additional_properties", {}), **({EXTRA: extra} if extra else {})}
    return Message(
        ours.get("role", role),
        tuple(contents),
        ours.get("author_name", author_name),
        ours.get("message_id"),
        properties or None,
    )


def _dump(message: ModelMessage) -> dict[str, Any]:
    """As JSON data, without default values."""
    dumped: dict[str, Any] = ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]
    dumped["parts"] = [_unusual(part) for part in dumped.get("parts", [])]
    if "usage" in dumped:
        dumped["usage"] = {name: count for name, count in dumped["usage"].items() if count} or None
    return _unusual(dumped)


def _unusual(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name == "content" or value != USUAL.get(name)}


def from_messages(messages: Iterable[Message], own_name: str | None = None) -> list[ModelMessage]:
    """As messages of pydantic-ai. With `own_name`, for that agent's model: messages of other agents become user
    messages, and their calls are removed, since the agent has other tools."""
    theirs: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    """Names of called functions, by call id."""
    for message in messages:
        if message.role == "assistant" and own_name is not None and message.author_name not in (None, own_name):
            theirs += _from_other_agent(message)
        elif message.role == "assistant":
            names |= {str(call.call_id): str(call.name) for call in message.of_type("function_call")}
            theirs += _response(message, names)
        else:
            _add_request(theirs, message, names, is_known_only=own_name is not None)
    converted: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(to_json(theirs, fallback=as_builtin))
    return converted


def _response(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    extra = _extra_of(message)
    results = _parts(message.of_type("function_result"), names)
    contents = [content for content in message.contents if content.type != "function_result"]
    parts = _restore_parts(extra.pop("parts", None), message.contents, names)
    if parts is None:
        parts = _parts(contents, names)
    request = {"kind": "request", "parts": results}
    if not parts and not _is_theirs(message):
        return [request] if results else []
    response = {"kind": "response", "parts": parts, **extra}
    return [response, request] if results else [response]


def _parts(contents: Iterable[Content], names: Mapping[str, str]) -> list[Extra]:
    parts = (part_of_content(content, names) for content in contents)
    return [part for part in parts if part is not None]


def _restore_parts(
    parts: Sequence[Extra] | None, contents: Sequence[Content], names: Mapping[str, str]
) -> list[Extra] | None:
    """None if the message has changed since it was stored: then its contents count."""
    if parts is None:
        return None
    remaining = iter(_split(parts, contents))
    try:
        restored = [restore_part(extra, remaining, names) for extra in parts]
    except (KeyError, ValueError):
        return None
    return restored if next(remaining, None) is None else None


def _split(parts: Sequence[Extra], contents: Sequence[Content]) -> Iterator[Content]:
    """Texts of a response as they were before they were joined."""
    lengths = [
        (TEXTS[part["part_kind"]], part["length"]) for part in parts if part["part_kind"] in TEXTS and part["length"]
    ]
    if not lengths:
        yield from contents
        return
    for content in contents:
        text = content.text or ""
        while content.type in TEXTS.values() and lengths and lengths[0][0] == content.type and text:
            length = lengths.pop(0)[1]
            yield Content(content.type, text=text[:length])
            text = text[length:]
        if text or content.type not in TEXTS.values():
            yield msgspec.structs.replace(content, text=text or None)


def _from_other_agent(message: Message) -> list[dict[str, Any]]:
    contents = [
        content
        for content in message.contents
        if content.type in ("text", "data", "uri") and (content.text or content.uri)
    ]
    if not contents:
        return []
    if contents[0].type == "text":
        contents[0] = Content.from_text(f"{message.author_name}: {contents[0].text}")
    return [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": prompt_of_contents(contents)}]}]


def _add_request(
    requests: list[dict[str, Any]], message: Message, names: Mapping[str, str], *, is_known_only: bool
) -> None:
    extra = _extra_of(message)
    restored = _restore_parts(extra.pop("parts", None), message.contents, names)
    if restored is None:
        restored = _request_parts(message, names)
    if is_known_only:
        restored = [part for part in restored if part["part_kind"] != "tool-return" or part["tool_call_id"] in names]
    if extra.pop("joined", False) and requests and requests[-1]["kind"] == "request":
        requests[-1]["parts"] += restored
    elif restored or _is_theirs(message):
        requests.append({"kind": "request", "parts": restored, **extra})


def _request_parts(message: Message, names: Mapping[str, str]) -> list[Extra]:
    results = _parts(message.of_type("function_result"), names)
    skipped = ("function_result", *NOT_FOR_MODELS)
    contents = [content for content in message.contents if content.type not in skipped]
    if message.role in ("system", "developer"):
        texts = [content.text for content in contents if content.text]
        return results + [{"part_kind": "system-prompt", "content": text} for text in texts]
    prompt = prompt_of_contents(contents)
    return results if prompt is None else [*results, {"part_kind": "user-prompt", "content": prompt}]


def _is_theirs(message: Message) -> bool:
    return EXTRA in (message.additional_properties or {})


def _extra_of(message: Message) -> Extra:
    properties = dict(message.additional_properties or {})
    extra: Extra = dict(properties.pop(EXTRA, None) or {})
    role = None if message.role in ("user", "assistant", "system", "tool") else message.role
    own = {
        "role": role,
        "author_name": message.author_name,
        "message_id": message.message_id,
        "additional_properties": properties or None,
    }
    ours = {name: value for name, value in own.items() if value is not None}
    if ours:
        extra["metadata"] = {**(extra.get("metadata") or {}), OURS: ours}
    return extra


def as_builtin(value: Any) -> Any:
    """For JSON: any value of a tool."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
