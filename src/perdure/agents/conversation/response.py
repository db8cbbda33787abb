"""Responses of agents, whole and in pieces, and their structured values."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import msgspec

from perdure.agents.conversation.content import Content, Serialised, add_usage, as_contents
from perdure.agents.conversation.message import Message


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
        for content in update.contents:
            if content.type == "usage":
                self.usage = add_usage(self.usage, content.usage_details)
            else:
                contents.append(content)
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
        return "".join(content.text or "" for content in self.contents if content.type == "text")

    @property
    def user_input_requests(self) -> list[Content]:
        return [content for content in self.contents if content.user_input_request]

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
        for message in messages:
            if not isinstance(message, Message):
                raise TypeError(f"A response is made of Messages, got {message!r}.")
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
        contents = [content for message in self.messages for content in message.contents]
        answered = {content.id for content in contents if content.type == "function_approval_response"}
        results = {content.call_id for content in contents if content.type == "function_result"}
        return [
            content
            for content in contents
            if content.user_input_request
            and (content.call_id not in results if content.id is None else content.id not in answered)
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
                contents=message.contents,
                role=message.role,
                author_name=message.author_name,
                message_id=message.message_id,
                additional_properties=message.additional_properties,
                is_whole=True,
                **said,
            )
            for message in self.messages
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
T = TypeVar("T")
_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def value_in(response: AgentResponse, kind: type[T]) -> T:
    """The value that a response holds: as such, or as JSON in the text of its last message, fenced or with words around
    it. Raises ValueError, which says what is wrong."""
    name = getattr(kind, "__name__", str(kind))
    plain: Any = kind  # a checker takes it for a class, which list[int] is not
    if not isinstance(plain, GenericAlias) and isinstance(response.value, plain):
        return response.value  # type: ignore[no-any-return]
    if response.value is not None:
        try:
            return _validator(kind)(_builtin(response.value))
        except ValueError as error:  # a ValidationError, msgspec's and pydantic's alike
            raise ValueError(f"No {name}: {error}. It is: {response.value!r}") from error
    own = [message for message in response.messages if message.role not in ("user", "tool")]
    text = next((one.text for one in reversed(own) if one.text.strip()), "")
    problem = "it is empty" if not text else "it holds no JSON"
    for found in _candidates(text):
        try:
            decoded = msgspec.json.decode(found)
        except msgspec.DecodeError:
            continue
        try:
            return _validator(kind)(decoded)
        except ValueError as error:
            problem = str(error)
    raise ValueError(f"No {name}: {problem}. The answer was: {text[:500]!r}")


def _validator(kind: type[T]) -> Callable[[Any], T]:
    """pydantic's own for its models."""
    validate = getattr(kind, "model_validate", None)
    return validate if callable(validate) else lambda value: msgspec.convert(value, kind, strict=False)


def _builtin(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else msgspec.to_builtins(value)


def _candidates(text: str) -> Iterator[str]:
    """Where JSON may be: all of it, what is fenced, and what is in brackets."""
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]
