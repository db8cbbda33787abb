"""What an agent answers: the response, and the updates that it is streamed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import msgspec

from holdfast.agents.content import Content, add_usage
from holdfast.agents.message import Message
from holdfast.agents.serialised import Serialised


class AgentResponseUpdate(Serialised, frozen=True, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """A part of a response, as it comes in. Updates of one message have the same `message_id`, or none."""

    contents: tuple[Content, ...] = ()
    role: str | None = None
    author_name: str | None = None
    agent_id: str | None = None
    response_id: str | None = None
    message_id: str | None = None
    created_at: str | None = None
    finish_reason: str | None = None
    value: Any = None
    """The structured output, with the last update."""
    additional_properties: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.contents) is not tuple:
            msgspec.structs.force_setattr(self, "contents", Message("", self.contents).contents)

    @property
    def text(self) -> str:
        return "".join(one.text or "" for one in self.contents if one.type == "text")

    @property
    def user_input_requests(self) -> list[Content]:
        return [one for one in self.contents if one.user_input_request]

    def __str__(self) -> str:
        return self.text


class AgentResponse(Serialised, frozen=True, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """All that an agent said in one turn: its messages, the calls it made and their results among them."""

    messages: tuple[Message, ...] = ()
    response_id: str | None = None
    agent_id: str | None = None
    created_at: str | None = None
    finish_reason: str | None = None
    usage_details: dict[str, int] | None = None
    value: Any = None
    """The structured output, if one was asked for."""
    additional_properties: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.messages) is not tuple:
            given = [self.messages] if isinstance(self.messages, Message) else self.messages
            msgspec.structs.force_setattr(self, "messages", tuple(given))

    @property
    def text(self) -> str:
        """The text of all its messages."""
        return "".join(message.text for message in self.messages)

    @property
    def user_input_requests(self) -> list[Content]:
        """What somebody has to answer before the agent can go on."""
        return [one for message in self.messages for one in message.contents if one.user_input_request]

    @classmethod
    def from_updates(cls, updates: Iterable[AgentResponseUpdate]) -> Self:
        """The response that was streamed."""
        joined = _Joined()
        for update in updates:
            joined.add(update)
        return cls(messages=tuple(joined.messages()), usage_details=joined.usage, **joined.rest)

    def to_updates(self) -> list[AgentResponseUpdate]:
        """Updates that join up to this response."""
        said: dict[str, Any] = {"response_id": self.response_id, "agent_id": self.agent_id}
        updates = [
            AgentResponseUpdate(
                contents=one.contents,
                role=one.role,
                author_name=one.author_name,
                message_id=one.message_id or f"message-{place}",
                additional_properties=one.additional_properties,
                **said,
            )
            for place, one in enumerate(self.messages, 1)
        ]
        usage = () if self.usage_details is None else (Content.from_usage(self.usage_details),)
        ended = (self.created_at, self.finish_reason, self.value)
        if usage or any(one is not None for one in ended):
            last = dict(zip(("created_at", "finish_reason", "value"), ended, strict=True))
            updates.append(AgentResponseUpdate(contents=usage, **said, **last))
        return updates

    def __str__(self) -> str:
        return self.text


class _Joined:
    """Messages as they are put together from updates."""

    def __init__(self) -> None:
        self._of: list[tuple[AgentResponseUpdate, list[Content]]] = []
        self.usage: dict[str, int] | None = None
        self.rest: dict[str, Any] = {}

    def add(self, update: AgentResponseUpdate) -> None:
        for name in ("response_id", "agent_id", "created_at", "finish_reason", "value"):
            if getattr(update, name) is not None:
                self.rest[name] = getattr(update, name)
        contents = []
        for one in update.contents:
            if one.type == "usage":
                self.usage = add_usage(self.usage, one.usage_details)
            else:
                contents.append(one)
        if not contents and update.role is None:
            return
        if not self._of or _is_another(self._of[-1][0], update):
            self._of.append((update, []))
        _append(self._of[-1][1], contents)

    def messages(self) -> list[Message]:
        return [
            Message(
                first.role or "assistant",
                tuple(contents),
                first.author_name,
                None if first.message_id is not None and first.message_id.startswith("message-") else first.message_id,
                first.additional_properties,
            )
            for first, contents in self._of
        ]


def _is_another(before: AgentResponseUpdate, update: AgentResponseUpdate) -> bool:
    if update.message_id is not None and before.message_id is not None and update.message_id != before.message_id:
        return True
    return any(getattr(update, name) not in (None, getattr(before, name)) for name in ("role", "author_name"))


def _append(contents: list[Content], more: Sequence[Content]) -> None:
    """Texts that follow each other are one text; pieces of one call are one call."""
    for one in more:
        last = contents[-1] if contents else None
        if (
            last is not None
            and one.type == last.type
            and one.type in ("text", "text_reasoning")
            and _is_plain(one, last)
        ):
            contents[-1] = msgspec.structs.replace(last, text=(last.text or "") + (one.text or ""))
        elif last is not None and one.type == last.type == "function_call" and one.call_id == last.call_id:
            first, then = last.arguments or "", one.arguments or ""
            joined = first + then if isinstance(first, str) and isinstance(then, str) else then or first
            contents[-1] = msgspec.structs.replace(last, arguments=joined, name=last.name or one.name)
        else:
            contents.append(one)


def _is_plain(*some: Content) -> bool:
    return not any(one.additional_properties for one in some)
