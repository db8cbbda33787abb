"""What an agent answers: the response, and the updates that it is streamed in."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from perdure.agents.content import Content, as_contents
from perdure.agents.joining import Joined
from perdure.agents.message import Message
from perdure.agents.serialised import Serialised


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
    is_whole: bool = False
    """A message as it is: nothing is joined to it, and nothing taken out of it."""

    kind: ClassVar[str | None] = "agent_response_update"
    parts: ClassVar[Mapping[str, type[Serialised]]] = {"contents": Content}
    free: ClassVar[frozenset[str]] = frozenset({"value", "additional_properties"})

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            contents: str | Content | Iterable[str | Content] | None = (),
            role: str | None = None,
            author_name: str | None = None,
            agent_id: str | None = None,
            response_id: str | None = None,
            message_id: str | None = None,
            created_at: str | None = None,
            finish_reason: str | None = None,
            value: Any = None,
            additional_properties: dict[str, Any] | None = None,
            is_whole: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "contents", as_contents(self.contents))

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

    kind: ClassVar[str | None] = "agent_response"
    parts: ClassVar[Mapping[str, type[Serialised]]] = {"messages": Message}
    free: ClassVar[frozenset[str]] = frozenset({"value", "additional_properties"})

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            messages: Message | Iterable[Message] | None = (),
            response_id: str | None = None,
            agent_id: str | None = None,
            created_at: str | None = None,
            finish_reason: str | None = None,
            usage_details: dict[str, int] | None = None,
            value: Any = None,
            additional_properties: dict[str, Any] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: Any = [self.messages] if isinstance(self.messages, (Message, str)) else self.messages or ()
        messages = tuple(given)
        for one in messages:
            if not isinstance(one, Message):
                raise TypeError(f"A response is made of Messages, got {one!r}.")
        msgspec.structs.force_setattr(self, "messages", messages)
        if self.additional_properties is not None and not self.additional_properties:
            msgspec.structs.force_setattr(self, "additional_properties", None)

    @property
    def text(self) -> str:
        """The text of all its messages."""
        return "".join(message.text for message in self.messages)

    @property
    def user_input_requests(self) -> list[Content]:
        """What somebody has to answer before the agent can go on; not what was answered in the same turn."""
        contents = [one for message in self.messages for one in message.contents]
        answered = {one.id for one in contents if one.type == "function_approval_response"}
        results = {one.call_id for one in contents if one.type == "function_result"}
        return [
            one
            for one in contents
            if one.user_input_request and (one.call_id not in results if one.id is None else one.id not in answered)
        ]

    @classmethod
    def from_updates(cls, updates: Iterable[AgentResponseUpdate]) -> Self:
        """The response that was streamed."""
        joined = Joined()
        for update in updates:
            joined.add(update)
        return cls(messages=tuple(joined.messages()), usage_details=joined.usage, **joined.rest)

    @classmethod
    async def from_update_generator(cls, updates: AsyncIterable[AgentResponseUpdate]) -> Self:
        """The response that is being streamed."""
        return cls.from_updates([update async for update in updates])

    def to_updates(self) -> list[AgentResponseUpdate]:
        """Updates that join up to this response."""
        said: dict[str, Any] = {"response_id": self.response_id, "agent_id": self.agent_id}
        updates = [
            AgentResponseUpdate(
                contents=one.contents,
                role=one.role,
                author_name=one.author_name,
                message_id=one.message_id,
                additional_properties=one.additional_properties,
                is_whole=True,
                **said,
            )
            for one in self.messages
        ]
        usage = () if self.usage_details is None else (Content.from_usage(self.usage_details),)
        last = {name: getattr(self, name) for name in _LAST}
        if usage or any(one is not None for one in (last if updates else {**last, **said}).values()):
            updates.append(AgentResponseUpdate(contents=usage, **said, **last))
        return updates

    def __str__(self) -> str:
        return self.text


_LAST = ("created_at", "finish_reason", "value", "additional_properties")
"""What the last update tells of a response."""
