"""Messages of pydantic-ai as ours, and back, without loss. Fields that ours lack are kept as JSON."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, UserPromptPart
from pydantic_core import to_json

from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message

Extra: TypeAlias = dict[str, Any]
"""A part, or an item of a user's prompt, without the fields of its content: JSON."""

TEXTS = {"text": "text", "thinking": "text_reasoning"}
KINDS = {**TEXTS, "tool-call": "function_call", "tool-return": "function_result", "file": "data"}
"""Of contents, by the kind of the part."""
PROMPTS = ("text", "data", "uri")
URLS = ("image-url", "audio-url", "video-url", "document-url")

EXTRA = "pydantic_ai"
"""The key of a message's `additional_properties` for fields of pydantic-ai's message that ours lacks."""
OURS = "perdure"
"""The key of the `metadata` of pydantic-ai's message for fields of ours that it lacks."""

USUAL = {"state": "complete", "outcome": "success"}
"""Default values, which are not stored."""
ROLES = {"system-prompt": "system", "user-prompt": "user"}


def to_message(response: ModelResponse, author_name: str | None = None) -> Message:
    """A model's answer. Consecutive texts become one content, as in a stream."""
    dumped = _dump(response)
    parts: list[Extra] = dumped.pop("parts", [])
    contents: list[Content] = []
    for part, extra in zip(response.parts, parts, strict=True):
        for content in _contents_of_part(part, extra):
            last = contents[-1] if contents else None
            if last is not None and last.type == content.type and content.type in TEXTS.values():
                contents[-1] = msgspec.structs.replace(last, text=f"{last.text}{content.text}")
            else:
                contents.append(content)
    if len(parts) != len(contents) or any(extra.keys() - {"part_kind", "length"} for extra in parts):
        dumped["parts"] = parts
    return _message("assistant", contents, dumped, author_name)


def request_to_messages(request: ModelRequest) -> list[Message]:
    """One of ours for each role in the request."""
    dumped = _dump(request)
    pairs = list(zip(request.parts, dumped.pop("parts", []), strict=True))
    messages: list[Message] = []
    for role, some in groupby(pairs, lambda pair: ROLES.get(pair[1]["part_kind"], "tool")):
        contents: list[Content] = []
        parts: list[Extra] = []
        for part, extra in some:
            contents += _contents_of_part(part, extra)
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
    author = ours.get("author_name", author_name)
    return Message(ours.get("role", role), tuple(contents), author, ours.get("message_id"), properties or None)


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
    parts = _restore_parts(extra.pop("parts", None), message.contents, names)
    if parts is None:
        parts = _parts((content for content in message.contents if content.type != "function_result"), names)
    request = {"kind": "request", "parts": results}
    if not parts and not _is_theirs(message):
        return [request] if results else []
    response = {"kind": "response", "parts": parts, **extra}
    return [response, request] if results else [response]


def _parts(contents: Iterable[Content], names: Mapping[str, str]) -> list[Extra]:
    return [part for part in (_part_of_content(content, names) for content in contents) if part is not None]


def _restore_parts(
    parts: Sequence[Extra] | None, contents: Sequence[Content], names: Mapping[str, str]
) -> list[Extra] | None:
    """None if the message has changed since it was stored: then its contents count."""
    if parts is None:
        return None
    remaining = iter(_split(parts, contents))
    try:
        restored = [_restore_part(extra, remaining, names) for extra in parts]
    except (KeyError, ValueError):
        return None
    return restored if next(remaining, None) is None else None


def _split(parts: Sequence[Extra], contents: Sequence[Content]) -> Iterator[Content]:
    """Texts of a response as they were before they were joined."""
    texts = [part for part in parts if part["part_kind"] in TEXTS and part["length"]]
    lengths = [(TEXTS[part["part_kind"]], part["length"]) for part in texts]
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
    contents = [content for content in message.contents if content.type in PROMPTS and (content.text or content.uri)]
    if not contents:
        return []
    if contents[0].type == "text":
        contents[0] = Content.from_text(f"{message.author_name}: {contents[0].text}")
    return [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": _prompt_of(contents)}]}]


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
    if message.role in ("system", "developer"):
        texts = [content.text for content in message.contents if content.text]
        return results + [{"part_kind": "system-prompt", "content": text} for text in texts]
    prompt = _prompt_of(message.contents)
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


def _contents_of_part(part: Any, dumped: Extra) -> list[Content]:
    """The contents of a part; their fields are removed from `dumped`. None for a part that is internal to pydantic-ai
    and the model: it stays in `dumped`."""
    kind = dumped["part_kind"]
    if kind in TEXTS:
        text = dumped.pop("content")
        dumped["length"] = len(text)
        return [Content(TEXTS[kind], text=text)] if text else []
    if kind == "tool-call":
        arguments = dumped.pop("args", None)
        return [Content.from_function_call(dumped.pop("tool_call_id"), dumped.pop("tool_name"), arguments=arguments)]
    if kind == "file":
        return [_take_data(part.content, dumped["content"])]
    if kind == "system-prompt":
        return [Content.from_text(dumped.pop("content"))]
    if kind == "user-prompt":
        return _contents_of_prompt(part, dumped)
    return [_content_of_return(dumped)] if kind == "tool-return" else []


def _part_of_content(content: Content, names: Mapping[str, str]) -> Extra | None:
    """The part for a content without extra fields. None for contents that models neither produce nor get. `names` are
    those of called functions, by call id."""
    for kind, ours in TEXTS.items():
        if content.type == ours:
            return {"part_kind": kind, "content": content.text or ""}
    if content.type == "function_call":
        return {
            "part_kind": "tool-call",
            "tool_name": content.name,
            "args": content.arguments,
            "tool_call_id": content.call_id,
        }
    if content.type == "data":
        return {"part_kind": "file", "content": _with_data(content, {"kind": "binary"})}
    return _return_of_content(content, names) if content.type == "function_result" else None


def _restore_part(extra: Extra, contents: Iterator[Content], names: Mapping[str, str]) -> Extra:
    """A part from its extra fields and its contents. Raises ValueError if the contents have changed."""
    part = dict(extra)
    kind, length = part["part_kind"], part.pop("length", None)
    if "items" in part:
        part["content"] = [_restore_item(item, contents) for item in part.pop("items")]
    elif kind in ROLES:
        part["content"] = _next(contents, "text").text
    elif length == 0:
        part["content"] = ""
    elif kind in KINDS:
        plain = _part_of_content(_next(contents, KINDS[kind]), names) or {}
        if length is not None and length != len(plain["content"]):
            raise ValueError("the text has changed")
        if kind == "file":
            part["content"] = {**plain["content"], **part["content"]}
        part = {**plain, **part}
    return part


def _contents_of_prompt(part: UserPromptPart, dumped: Extra) -> list[Content]:
    """The contents of a user's prompt; `dumped` keeps the rest."""
    content = dumped.pop("content")
    if isinstance(content, str):
        return [Content.from_text(content)]
    contents: list[Content] = []
    items: list[Extra | None] = []
    for item, extra in zip(part.content, content, strict=True):
        converted = _content_of_item(item, extra)
        items.append(None if isinstance(extra, str) else extra)
        if converted is None:
            extra["whole"] = True
        else:
            contents.append(converted)
    dumped["items"] = items
    return contents


def _content_of_item(item: Any, extra: Any) -> Content | None:
    if isinstance(extra, str):
        return Content.from_text(extra)
    if "content" in extra and isinstance(extra["content"], str):  # a text with metadata
        return Content.from_text(extra.pop("content"))
    if extra["kind"] in URLS:
        return Content("uri", uri=extra.pop("url"), media_type=extra.pop("media_type", None))
    if extra["kind"] == "binary":
        return _take_data(item, extra)
    return None


def _prompt_of(contents: Iterable[Content]) -> str | list[Any] | None:
    """The content of a user's prompt for contents without extra fields."""
    items = [item for item in map(_item_of_content, contents) if item is not None]
    return items[0] if len(items) == 1 and isinstance(items[0], str) else items or None


def _item_of_content(content: Content) -> Any:
    if content.type == "text":
        return content.text or ""
    if content.type == "data":
        return _with_data(content, {"kind": "binary"})
    if content.type == "uri":
        media_type = content.media_type or mimetypes.guess_type(str(content.uri))[0] or "application/octet-stream"
        kind = f"{media_type.partition('/')[0]}-url"
        return {"kind": kind if kind in URLS else "document-url", "url": content.uri, "media_type": media_type}
    return None


def _restore_item(extra: Extra | None, contents: Iterator[Content]) -> Any:
    if extra is None:
        return _next(contents, "text").text
    item = dict(extra)
    if item.pop("whole", False):
        return item
    if item["kind"] in URLS:
        content = _next(contents, "uri")
        media_type = {} if content.media_type is None else {"media_type": content.media_type}
        return {**item, "url": content.uri, **media_type}
    if item["kind"] == "binary":
        return _with_data(_next(contents, "data"), item)
    return {**item, "content": _next(contents, "text").text}


def _content_of_return(dumped: Extra) -> Content:
    """The result of a call, as JSON data."""
    result = dumped.pop("content", None)
    problem = None
    if dumped.get("outcome", "success") != "success":
        problem = result if isinstance(result, str) else to_json(result).decode()
        if result is None:
            dumped["content"] = None
    return Content(
        "function_result",
        call_id=dumped.pop("tool_call_id"),
        name=dumped.pop("tool_name"),
        result=None if result is problem else result,
        exception=problem,
    )


def _return_of_content(content: Content, names: Mapping[str, str]) -> Extra:
    is_error = content.exception is not None and content.result is None
    part: Extra = {
        "part_kind": "tool-return",
        "tool_name": content.name or names.get(str(content.call_id), "unknown"),
        "content": content.exception if is_error else content.result,
        "tool_call_id": content.call_id,
    }
    return part if content.exception is None else {**part, "outcome": "failed"}


def _take_data(item: Any, extra: Extra) -> Content:
    del extra["data"]
    return Content.from_data(item.data, extra.pop("media_type"))


def _with_data(content: Content, extra: Extra) -> Extra:
    data = base64.urlsafe_b64encode(content.data_bytes()).decode()
    media_type = content.media_type or str(content.uri)[len("data:") :].partition(";")[0].partition(",")[0]
    return {**extra, "data": data, "media_type": media_type}


def _next(contents: Iterator[Content], kind: str) -> Content:
    content = next(contents, None)
    if content is None or content.type != kind:
        raise ValueError(f"expected a {kind}, got {content and content.type}")
    return content


def as_builtin(value: Any) -> Any:
    """For JSON: any value of a tool."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)
