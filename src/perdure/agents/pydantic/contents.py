"""Parts of pydantic-ai's messages and our contents. What a content has no field for is kept beside it, as JSON."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic_ai import messages as theirs
from pydantic_core import to_json

from perdure.agents.conversation.content import Content

Kept: TypeAlias = dict[str, Any]
"""A part, or an item of a user's prompt, without what its content has: JSON."""

TEXTS = {"text": "text", "thinking": "text_reasoning"}
URLS = ("image-url", "audio-url", "video-url", "document-url")


# ---------------------------------------------------------------- what a model said


def content_of_part(part: Any, dumped: Kept) -> Content | None:
    """The content of a part of a response; its fields are taken out of `dumped`. None for what only the model's own
    service understands: that stays in `dumped`."""
    kind = dumped["part_kind"]
    if kind in TEXTS:
        text = dumped.pop("content")
        dumped["length"] = len(text)
        return Content(TEXTS[kind], text=text) if text else None
    if kind == "tool-call":
        arguments = dumped.pop("args", None)
        return Content.from_function_call(dumped.pop("tool_call_id"), dumped.pop("tool_name"), arguments=arguments)
    if kind == "file":
        return _take_data(part.content, dumped["content"])
    return None


def part_of_content(content: Content) -> Kept | None:
    """The part of a response for a content of ours, of which nothing was kept. None for what no model says."""
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
    return None


def part_again(kept: Kept, contents: Iterator[Content]) -> Kept:
    """A part that was kept, with what its content has. Raises ValueError where the contents are others by now."""
    part = dict(kept)
    kind = part["part_kind"]
    if kind in TEXTS:
        length = part.pop("length")
        part["content"] = _next(contents, TEXTS[kind]).text if length else ""
        if len(part["content"]) != length:
            raise ValueError("the text is another")
    elif kind == "tool-call":
        call = _next(contents, "function_call")
        part |= {"args": call.arguments, "tool_call_id": call.call_id, "tool_name": call.name}
    elif kind == "file":
        part["content"] = _with_data(_next(contents, "data"), part["content"])
    return part


# ---------------------------------------------------------------- what a model was told


def contents_of_prompt(part: theirs.UserPromptPart, dumped: Kept) -> list[Content]:
    """The contents of a user's prompt; of `dumped` the rest is left."""
    given = dumped.pop("content")
    if isinstance(given, str):
        return [Content.from_text(given)]
    found: list[Content] = []
    items: list[Kept | None] = []
    for item, kept in zip(part.content, given, strict=True):
        content = _content_of_item(item, kept)
        items.append(None if isinstance(kept, str) else kept)
        if content is None:
            kept["whole"] = True
        else:
            found.append(content)
    dumped["items"] = items
    return found


def _content_of_item(item: Any, kept: Any) -> Content | None:
    if isinstance(kept, str):
        return Content.from_text(kept)
    if "content" in kept and isinstance(kept["content"], str):  # a text with something about it
        return Content.from_text(kept.pop("content"))
    if kept["kind"] in URLS:
        return Content("uri", uri=kept.pop("url"), media_type=kept.pop("media_type", None))
    if kept["kind"] == "binary":
        return _take_data(item, kept)
    return None


def prompt_of_contents(contents: list[Content]) -> str | list[Any] | None:
    """The content of a user's prompt for contents of ours, of which nothing was kept."""
    items = [item for item in map(_item_of_content, contents) if item is not None]
    return items[0] if len(items) == 1 and isinstance(items[0], str) else items or None


def prompt_again(kept: Kept, contents: Iterator[Content]) -> Kept:
    part = dict(kept)
    items = part.pop("items", None)
    if items is None:
        part["content"] = _next(contents, "text").text
    else:
        part["content"] = [_item_again(item, contents) for item in items]
    return part


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


def _item_again(kept: Kept | None, contents: Iterator[Content]) -> Any:
    if kept is None:
        return _next(contents, "text").text
    item = dict(kept)
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


# ---------------------------------------------------------------- what a tool gave


def content_of_return(dumped: Kept) -> Content:
    """What a call came to, as JSON has it."""
    told = dumped.pop("content", None)
    problem = None
    if dumped.get("outcome", "success") != "success":
        problem = told if isinstance(told, str) else to_json(told).decode()
        if told is None:
            dumped["content"] = None
    return Content(
        "function_result",
        call_id=dumped.pop("tool_call_id"),
        name=dumped.pop("tool_name"),
        result=None if told is problem else told,
        exception=problem,
    )


def return_of_content(content: Content, names: Mapping[str, str]) -> Kept:
    is_told = content.exception is not None and content.result is None
    part: Kept = {
        "part_kind": "tool-return",
        "tool_name": content.name or names.get(str(content.call_id), "unknown"),
        "content": content.exception if is_told else content.result,
        "tool_call_id": content.call_id,
    }
    return part if content.exception is None else {**part, "outcome": "failed"}


def return_again(kept: Kept, contents: Iterator[Content], names: Mapping[str, str]) -> Kept:
    told = return_of_content(_next(contents, "function_result"), names)
    told.pop("outcome", None)
    return {**told, **kept}


# ---------------------------------------------------------------- data


def _take_data(item: Any, kept: Kept) -> Content:
    del kept["data"]
    return Content.from_data(item.data, kept.pop("media_type"))


def _with_data(content: Content, kept: Kept) -> Kept:
    data = base64.urlsafe_b64encode(content.data_bytes()).decode()
    media_type = content.media_type or str(content.uri)[len("data:") :].partition(";")[0].partition(",")[0]
    return {**kept, "data": data, "media_type": media_type}


def _next(contents: Iterator[Content], kind: str) -> Content:
    found = next(contents, None)
    if found is None or found.type != kind:
        raise ValueError(f"expected a {kind}, got {found and found.type}")
    return found
