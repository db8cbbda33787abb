"""Joining up: the messages that were streamed, out of the updates that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.agents.content import Content, add_usage
from perdure.agents.message import Message

if TYPE_CHECKING:
    from perdure.agents.response import AgentResponseUpdate


class Joined:
    """Messages as they are put together from updates."""

    def __init__(self) -> None:
        self._of: list[tuple[AgentResponseUpdate, list[Content], dict[str, Any]]] = []
        self.usage: dict[str, int] | None = None
        self.rest: dict[str, Any] = {}
        """What was told of the response as a whole."""

    def add(self, update: AgentResponseUpdate) -> None:
        for name in ("response_id", "agent_id", "created_at", "finish_reason", "value"):
            if getattr(update, name) is not None:
                self.rest[name] = getattr(update, name)
        if update.is_whole:
            self._of.append((update, list(update.contents), dict(update.additional_properties or {})))
            return
        contents = []
        for one in update.contents:
            if one.type == "usage":
                self.usage = add_usage(self.usage, one.usage_details)
            else:
                contents.append(one)
        if not contents and update.role is None:
            if update.additional_properties is not None:
                self.rest["additional_properties"] = update.additional_properties
            return
        place = self._place_of(update)
        _append(self._of[place][1], contents)
        self._of[place][2].update(update.additional_properties or {})

    def _place_of(self, update: AgentResponseUpdate) -> int:
        """Of its message: the last one, or any with its id, since agents may speak at the same time."""
        last = len(self._of) - 1
        if last >= 0 and not is_another(self._of[last][0], update):
            return last
        for place in range(last - 1, -1, -1) if update.message_id is not None else ():
            if not is_another(self._of[place][0], update, by_id=True):
                return place
        self._of.append((update, [], {}))
        return len(self._of) - 1

    def messages(self) -> list[Message]:
        return [
            Message(
                first.role or "assistant",
                tuple(contents),
                first.author_name,
                first.message_id,
                properties or None,
            )
            for first, contents, properties in self._of
        ]


def is_another(before: AgentResponseUpdate, update: AgentResponseUpdate, *, by_id: bool = False) -> bool:
    """Whether they belong to different messages. Further back than the last one only the same id will do."""
    if before.is_whole:
        return True
    if update.message_id != before.message_id and (by_id or None not in (update.message_id, before.message_id)):
        return True
    return any(getattr(update, name) not in (None, getattr(before, name)) for name in ("role", "author_name"))


def _append(contents: list[Content], more: Sequence[Content]) -> None:
    """Texts that follow each other are one text; pieces of one call are one call. Contents that came in one update were
    apart from the beginning."""
    for place, one in enumerate(more):
        last = contents[-1] if contents and place == 0 else None
        if last is not None and _is_same_text(last, one):
            contents[-1] = msgspec.structs.replace(last, text=(last.text or "") + (one.text or ""))
        elif last is not None and one.type == last.type == "function_call" and one.call_id in (None, "", last.call_id):
            first, then = last.arguments or "", one.arguments or ""
            joined = first + then if isinstance(first, str) and isinstance(then, str) else then or first
            contents[-1] = msgspec.structs.replace(last, arguments=joined or None, name=last.name or one.name)
        else:
            contents.append(one)


def _is_same_text(last: Content, one: Content) -> bool:
    is_text = one.type == last.type and one.type in ("text", "text_reasoning")
    return is_text and one.id in (None, last.id) and not (one.additional_properties or last.additional_properties)
