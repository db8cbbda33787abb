"""Parts of pydantic-ai's messages as our contents, and back. Fields that a content lacks are kept as JSON."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic_ai import messages as theirs
from pydantic_core import to_json

from perdure.agents.conversation.message import Content

Extra: TypeAlias = dict[str, Any]
"""A part, or an item of a user's prompt, without the fields of its content: JSON."""

TEXTS = {"text": "text", "thinking": "text_reasoning"}
URLS = ("image-url", "audio-url", "video-url", "document-url")


def contents_of_part(part: Any, dumped: Extra) -> list[Content]:
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


def part_of_content(content: Content, names: Mapping[str, str]) -> Extra | None:
    """The part for a content without extra fields. None for contents that models neither produce nor get. `names` are
    those of called functions, by call id."""
    if content.type == "text":
        return {"part_kind": "text", "content": content.text or ""}
    if content.type == "text_reasoning":
        return {"part_kind": "thinking", "content": content.text or ""}
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


def restore_part(extra: Extra, contents: Iterator[Content], names: Mapping[str, str]) -> Extra:
    """A part from its extra fields and its contents. Raises ValueError if the contents have changed."""
    part = dict(extra)
    kind = part["part_kind"]
    if kind in TEXTS:
        length = part.pop("length")
        part["content"] = _next(contents, TEXTS[kind]).text if length else ""
        if len(part["content"]) != length:
            raise ValueError("the text has changed")
    elif kind == "tool-call":
        part = {**(part_of_content(_next(contents, "function_call"), names) or {}), **part}
    elif kind == "file":
        part["content"] = _with_data(_next(contents, "data"), part["content"])
    elif kind == "system-prompt":
        part["content"] = _next(contents, "text").text
    elif kind == "tool-return":
        plain = _return_of_content(_next(contents, "function_result"), names)
        plain.pop("outcome", None)
        part = {**plain, **part}
    elif kind == "user-prompt":
        items = part.pop("items", None)
        if items is None:
            part["content"] = _next(contents, "text").text
        else:
            part["content"] = [_restore_item(item, contents) for item in items]
    return part


def _contents_of_prompt(part: theirs.UserPromptPart, dumped: Extra) -> list[Content]:
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


def prompt_of_contents(contents: list[Content]) -> str | list[Any] | None:
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
        item["url"] = content.uri
        if content.media_type is not None:
            item["media_type"] = content.media_type
        return item
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
