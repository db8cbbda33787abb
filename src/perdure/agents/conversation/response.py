"""Responses of agents, whole and in pieces, and their structured values."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import msgspec

from perdure.agents.conversation.message import Content, JsonStruct, Message, UsageDetails, as_contents


def add_usage(first: UsageDetails | None, second: UsageDetails | None) -> dict[str, int]:
    """The sum of each count."""
    total = dict(first or {})
    for name, count in (second or {}).items():
        total[name] = total.get(name, 0) + count
    return total


class UpdateJoiner:
    """Joins updates to messages."""

    def __init__(self) -> None:
        self._of: list[tuple[AgentResponseUpdate, list[Content], dict[str, Any]]] = []
        self.usage: dict[str, int] | None = None
        self.rest: dict[str, Any] = {}
        """Fields of the response as a whole."""

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
        index = self._index_of(update)
        _append(self._of[index][1], contents)
        self._of[index][2].update(update.additional_properties or {})

    def _index_of(self, update: AgentResponseUpdate) -> int:
        """The index of the update's message: the last one, or one with its id, since agents may run concurrently."""
        last = len(self._of) - 1
        if last >= 0 and not is_other_message(self._of[last][0], update):
            return last
        for index in range(last - 1, -1, -1) if update.message_id is not None else ():
            if not is_other_message(self._of[index][0], update, by_id=True):
                return index
        self._of.append((update, [], {}))
        return len(self._of) - 1

    def messages(self) -> list[Message]:
        return [
            Message(first.role or "assistant", tuple(contents), first.author_name, first.message_id, properties or None)
            for first, contents, properties in self._of
        ]


def is_other_message(before: AgentResponseUpdate, update: AgentResponseUpdate, *, by_id: bool = False) -> bool:
    """Whether they belong to different messages. Only an equal id matches a message before the last."""
    if before.is_whole:
        return True
    if update.message_id != before.message_id and (by_id or None not in (update.message_id, before.message_id)):
        return True
    return any(getattr(update, name) not in (None, getattr(before, name)) for name in ("role", "author_name"))


def _append(contents: list[Content], more: Sequence[Content]) -> None:
    """Consecutive texts become one text, and parts of one call become one call. Contents of the same update stay
    separate."""
    for index, content in enumerate(more):
        last = contents[-1] if contents and index == 0 else None
        if last is not None and _is_same_text(last, content):
            contents[-1] = msgspec.structs.replace(last, text=(last.text or "") + (content.text or ""))
        elif last is not None and _is_same_call(last, content):
            first, then = last.arguments or "", content.arguments or ""
            joined = first + then if isinstance(first, str) and isinstance(then, str) else then or first
            contents[-1] = msgspec.structs.replace(last, arguments=joined or None, name=last.name or content.name)
        else:
            contents.append(content)


def _is_same_call(last: Content, content: Content) -> bool:
    return content.type == last.type == "function_call" and content.call_id in (None, "", last.call_id)


def _is_same_text(last: Content, content: Content) -> bool:
    is_text = content.type == last.type and content.type in ("text", "text_reasoning")
    has_properties = content.additional_properties or last.additional_properties
    return is_text and content.id in (None, last.id) and not has_properties


class AgentResponseUpdate(JsonStruct, frozen=True, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """A part of a response, as it is emitted. Updates of one message have the same `message_id`, or none."""

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
    """Whether it is a complete message: it is not joined with others, and keeps its usage contents."""

    kind: ClassVar[str | None] = "agent_response_update"
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {"contents": Content}
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


def update_of(message: Message, **fields: Any) -> AgentResponseUpdate:
    """A part of this message, with these fields."""
    return AgentResponseUpdate(
        role=message.role,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=message.additional_properties,
        **fields,
    )


class AgentResponse(JsonStruct, frozen=True, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """All messages of an agent's turn, including its calls and their results."""

    messages: tuple[Message, ...] = ()
    response_id: str | None = None
    agent_id: str | None = None
    created_at: str | None = None
    finish_reason: str | None = None
    usage_details: dict[str, int] | None = None
    value: Any = None
    """The structured output, if requested."""
    additional_properties: dict[str, Any] | None = None

    kind: ClassVar[str | None] = "agent_response"
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {"messages": Message}
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
        value: Any = [self.messages] if isinstance(self.messages, (Message, str)) else self.messages or ()
        messages = tuple(value)
        for message in messages:
            if not isinstance(message, Message):
                raise TypeError(f"A response consists of Messages, got {message!r}.")
        msgspec.structs.force_setattr(self, "messages", messages)
        if self.additional_properties is not None and not self.additional_properties:
            msgspec.structs.force_setattr(self, "additional_properties", None)

    @property
    def text(self) -> str:
        """The text of all its messages."""
        return "".join(message.text for message in self.messages)

    @property
    def user_input_requests(self) -> list[Content]:
        """Requests that need an answer before the agent can continue, without those answered in the same turn."""
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
        joined = UpdateJoiner()
        for update in updates:
            joined.add(update)
        return cls(messages=tuple(joined.messages()), usage_details=joined.usage, **joined.rest)

    @classmethod
    async def from_update_generator(cls, updates: AsyncIterable[AgentResponseUpdate]) -> Self:
        """The response of a stream."""
        return cls.from_updates([update async for update in updates])

    def to_updates(self) -> list[AgentResponseUpdate]:
        """Updates that `from_updates` joins to this response."""
        ids: dict[str, Any] = {"response_id": self.response_id, "agent_id": self.agent_id}
        updates = [update_of(message, contents=message.contents, is_whole=True, **ids) for message in self.messages]
        usage = () if self.usage_details is None else (Content.from_usage(self.usage_details),)
        last = {name: getattr(self, name) for name in _LAST}
        if usage or any(value is not None for value in (last if updates else {**last, **ids}).values()):
            updates.append(AgentResponseUpdate(contents=usage, **ids, **last))
        return updates

    def __str__(self) -> str:
        return self.text


_LAST = ("created_at", "finish_reason", "value", "additional_properties")
"""Fields of a response that its last update has."""
T = TypeVar("T")
_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


def value_in(response: AgentResponse, kind: type[T]) -> T:
    """The structured value of a response: its `value`, or JSON in the text of its last message, which may have a fence
    or other text around it. Raises ValueError with the problem."""
    name = getattr(kind, "__name__", str(kind))
    plain: Any = kind  # list[int] is not a class for isinstance
    if not isinstance(plain, GenericAlias) and isinstance(response.value, plain):
        return response.value  # type: ignore[no-any-return]
    if response.value is not None:
        try:
            dump = getattr(response.value, "model_dump", None)
            return _validator(kind)(dump() if callable(dump) else msgspec.to_builtins(response.value))
        except ValueError as error:  # ValidationErrors of msgspec and of pydantic
            raise ValueError(f"Not a {name}: {error}. It is: {response.value!r}") from error
    own = [message for message in response.messages if message.role not in ("user", "tool")]
    text = next((message.text for message in reversed(own) if message.text.strip()), "")
    problem = "it is empty" if not text else "it contains no JSON"
    for candidate in _candidates(text):
        try:
            decoded = msgspec.json.decode(candidate)
        except msgspec.DecodeError:
            continue
        try:
            return _validator(kind)(decoded)
        except ValueError as error:
            problem = str(error)
    raise ValueError(f"Not a {name}: {problem}. The answer was: {text[:500]!r}")


def _validator(kind: type[T]) -> Callable[[Any], T]:
    """pydantic's validator for its models, msgspec's for other types."""
    validate = getattr(kind, "model_validate", None)
    return validate if callable(validate) else lambda value: msgspec.convert(value, kind, strict=False)


def _candidates(text: str) -> Iterator[str]:
    """Texts that may be JSON: the whole, fenced blocks, and text in brackets."""
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]
            yield text[text.rfind(f"\n{opening}") + 1 : end + 1]  # the last of several
