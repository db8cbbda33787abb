"""Messages of pydantic-ai and ours: converted both ways, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse
from pydantic_core import to_json

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.pydantic.contents import (
    TEXTS,
    Kept,
    content_of_part,
    content_of_return,
    contents_of_prompt,
    part_again,
    part_of_content,
    prompt_again,
    prompt_of_contents,
    return_again,
    return_of_content,
)

KEPT = "pydantic_ai"
"""In a message's `additional_properties`: what pydantic-ai's message has and ours has no field for."""
OURS = "perdure"
"""In the `metadata` of pydantic-ai's message: what ours has, and theirs has no field for."""

USUAL = {"state": "complete", "outcome": "success"}
"""Not worth keeping: what is not there is that."""
ROLES = {"system-prompt": "system", "user-prompt": "user"}
NEVER_TOLD = ("usage", "error", "function_approval_request", "function_approval_response")


# ---------------------------------------------------------------- theirs to ours


def to_messages(given: Iterable[ModelMessage], author_name: str | None = None) -> list[Message]:
    """Ours. A request may be several: one for each role that speaks in it."""
    found: list[Message] = []
    for one in given:
        found += [to_message(one, author_name)] if isinstance(one, ModelResponse) else _of_request(one)
    return found


def to_message(response: ModelResponse, author_name: str | None = None) -> Message:
    """What a model answered. Texts that follow each other are one content, as they are when they are streamed."""
    dumped = _dumped(response)
    parts: list[Kept] = dumped.pop("parts", [])
    contents: list[Content] = []
    for part, kept in zip(response.parts, parts, strict=True):
        content = content_of_part(part, kept)
        if content is None:
            continue
        last = contents[-1] if contents else None
        if last is not None and last.type == content.type and content.type in TEXTS.values():
            contents[-1] = msgspec.structs.replace(last, text=f"{last.text}{content.text}")
        else:
            contents.append(content)
    if len(parts) != len(contents) or any(kept.keys() - {"part_kind", "length"} for kept in parts):
        dumped["parts"] = parts
    return _message("assistant", contents, dumped, author_name)


def timeless(message: Message) -> Message:
    """Without the times of its parts: a turn that is run again would have others, and so other messages."""
    kept = dict((message.additional_properties or {}).get(KEPT, {}))
    parts = [{name: one for name, one in part.items() if name != "timestamp"} for part in kept.pop("parts", ())]
    if any(part.keys() - {"part_kind"} for part in parts) or len(parts) != len(message.contents):
        kept["parts"] = parts
    return msgspec.structs.replace(message, additional_properties={KEPT: kept} if kept else None)


def _of_request(request: ModelRequest) -> list[Message]:
    dumped = _dumped(request)
    pairs = list(zip(request.parts, dumped.pop("parts", []), strict=True))
    found: list[Message] = []
    for role, some in groupby(pairs, lambda pair: ROLES.get(pair[1]["part_kind"], "tool")):
        contents: list[Content] = []
        parts: list[Kept] = []
        for part, kept in some:
            contents += _contents_of(part, kept)
            parts.append(kept)
        first = {"joined": True} if found else dumped
        found.append(_message(role, contents, {**first, "parts": parts}))
    return found or [_message("tool", [], {**dumped, "parts": []})]


def _contents_of(part: Any, kept: Kept) -> list[Content]:
    kind = kept["part_kind"]
    if kind == "system-prompt":
        return [Content.from_text(kept.pop("content"))]
    if kind == "user-prompt":
        return contents_of_prompt(part, kept)
    if kind == "tool-return":
        return [content_of_return(kept)]
    return []  # between pydantic-ai and the model: kept as it is


def _message(role: str, contents: Sequence[Content], kept: Kept, author_name: str | None = None) -> Message:
    ours: dict[str, Any] = {}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict) and OURS in metadata:
        ours = metadata[OURS]
        kept["metadata"] = {name: one for name, one in metadata.items() if name != OURS} or None
    kept = {name: one for name, one in kept.items() if one is not None and name != "kind"}
    properties = {**ours.get("additional_properties", {}), **({KEPT: kept} if kept else {})}
    return Message(
        ours.get("role", role),
        tuple(contents),
        ours.get("author_name", author_name),
        ours.get("message_id"),
        properties or None,
    )


def _dumped(message: ModelMessage) -> dict[str, Any]:
    """As JSON, without what is as it would be anyway."""
    dumped: dict[str, Any] = ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]
    dumped["parts"] = [_unusual(part) for part in dumped.get("parts", [])]
    if "usage" in dumped:
        dumped["usage"] = {name: count for name, count in dumped["usage"].items() if count} or None
    return _unusual(dumped)


def _unusual(given: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in given.items() if name == "content" or one != USUAL.get(name)}


# ---------------------------------------------------------------- ours to theirs


def from_messages(messages: Iterable[Message], own_name: str | None = None) -> list[ModelMessage]:
    """Theirs. With `own_name` it is what that agent's model is told: what other agents said is said to it, and their
    calls are left out, since it has other tools."""
    found: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    """Of the functions that were called, by call id."""
    for message in messages:
        if message.role == "assistant" and own_name is not None and message.author_name not in (None, own_name):
            found += _said_by_another(message)
        elif message.role == "assistant":
            names |= {str(one.call_id): str(one.name) for one in message.of_type("function_call")}
            found += _response(message, names)
        else:
            _add_request(found, message, names, is_known_only=own_name is not None)
    given: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(to_json(found, fallback=as_builtin))
    return given


def _response(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    kept = _kept(message)
    parts = kept.pop("parts", None)
    again = None if parts is None else _parts_again(parts, message.contents)
    if again is None:
        again = [part for part in map(part_of_content, message.contents) if part is not None]
    results = [return_of_content(one, names) for one in message.of_type("function_result")]
    if not again and not _is_theirs(message):
        return [{"kind": "request", "parts": results}] if results else []
    response = {"kind": "response", "parts": again, **kept}
    return [response, {"kind": "request", "parts": results}] if results else [response]


def _parts_again(parts: Sequence[Kept], contents: Sequence[Content]) -> list[Kept] | None:
    """None if the message is another than it was: then its contents are what counts."""
    wanted = iter(_split(parts, contents))
    try:
        again = [part_again(kept, wanted) for kept in parts]
    except (KeyError, ValueError):
        return None
    return again if next(wanted, None) is None else None


def _split(parts: Sequence[Kept], contents: Sequence[Content]) -> Iterator[Content]:
    """Texts as they were before they were joined."""
    lengths = [
        (TEXTS[part["part_kind"]], part["length"]) for part in parts if part["part_kind"] in TEXTS and part["length"]
    ]
    for content in contents:
        text = content.text or ""
        while content.type in TEXTS.values() and lengths and lengths[0][0] == content.type and text:
            length = lengths.pop(0)[1]
            yield Content(content.type, text=text[:length])
            text = text[length:]
        if text or content.type not in TEXTS.values():
            yield msgspec.structs.replace(content, text=text or None)


def _said_by_another(message: Message) -> list[dict[str, Any]]:
    said = [
        content
        for content in message.contents
        if content.type in ("text", "data", "uri") and (content.text or content.uri)
    ]
    if not said:
        return []
    if said[0].type == "text":
        said[0] = Content.from_text(f"{message.author_name}: {said[0].text}")
    return [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": prompt_of_contents(said)}]}]


def _add_request(
    found: list[dict[str, Any]], message: Message, names: Mapping[str, str], *, is_known_only: bool
) -> None:
    kept = _kept(message)
    parts = kept.pop("parts", None)
    again = None if parts is None else _request_parts_again(parts, message.contents, names)
    if again is None:
        again = _request_parts(message, names)
    if is_known_only:
        again = [one for one in again if one["part_kind"] != "tool-return" or one["tool_call_id"] in names]
    if kept.pop("joined", False) and found and found[-1]["kind"] == "request":
        found[-1]["parts"] += again
    elif again or _is_theirs(message):
        found.append({"kind": "request", "parts": again, **kept})


def _request_parts_again(
    parts: Sequence[Kept], contents: Sequence[Content], names: Mapping[str, str]
) -> list[Kept] | None:
    wanted = iter(contents)
    again: list[Kept] = []
    try:
        for kept in parts:
            if kept["part_kind"] == "user-prompt":
                again.append(prompt_again(kept, wanted))
            elif kept["part_kind"] == "system-prompt":
                again.append({**kept, "content": next(wanted).text})
            elif kept["part_kind"] == "tool-return":
                again.append(return_again(kept, wanted, names))
            else:
                again.append(kept)
    except (KeyError, ValueError, StopIteration):
        return None
    return again if next(wanted, None) is None else None


def _request_parts(message: Message, names: Mapping[str, str]) -> list[Kept]:
    results = [return_of_content(one, names) for one in message.of_type("function_result")]
    said = [
        content for content in message.contents if content.type != "function_result" and content.type not in NEVER_TOLD
    ]
    if message.role in ("system", "developer"):
        return results + [{"part_kind": "system-prompt", "content": one.text} for one in said if one.text]
    prompt = prompt_of_contents(said)
    return results if prompt is None else [*results, {"part_kind": "user-prompt", "content": prompt}]


def _is_theirs(message: Message) -> bool:
    return KEPT in (message.additional_properties or {})


def _kept(message: Message) -> Kept:
    properties = dict(message.additional_properties or {})
    kept: Kept = dict(properties.pop(KEPT, None) or {})
    role = None if message.role in ("user", "assistant", "system", "tool") else message.role
    own = {
        "role": role,
        "author_name": message.author_name,
        "message_id": message.message_id,
        "additional_properties": properties or None,
    }
    ours = {name: one for name, one in own.items() if one is not None}
    if ours:
        kept["metadata"] = {**(kept.get("metadata") or {}), OURS: ours}
    return kept


def as_builtin(value: Any) -> Any:
    """For JSON: whatever a tool of somebody's gave."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
