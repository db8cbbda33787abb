"""Responses of agents, whole and in pieces, and their structured values."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

import msgspec
from msgspec.structs import replace

from perdure.agents.conversation.content import Content, as_contents
from perdure.agents.conversation.json_struct import JsonStruct, copy_fields, is_own
from perdure.agents.conversation.message import Message, as_message
from perdure.agents.conversation.update import (
    AgentResponseUpdate,
    UpdateJoiner,
    as_update,
    counts_of,
    properties_of,
    text_of,
    update_of,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    ValueT = TypeVarWithDefault("ValueT", default=Any)

    class _Response(JsonStruct, Generic[ValueT]): ...
else:

    class _Response(JsonStruct):
        def __class_getitem__(cls, kind: Any) -> type:
            return cls


class AgentResponse(_Response, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """All messages of an agent's turn, including its calls and their results."""

    messages: list[Message] = msgspec.field(default_factory=list)
    response_id: str | None = None
    agent_id: str | None = None
    created_at: str | None = None
    finish_reason: str | None = None
    usage_details: dict[str, int] | None = None
    value: Any = None
    """The structured output, if requested."""
    response_format: Any = None
    """The type of `value`, read from the last message unless `value` is given."""
    continuation_token: dict[str, Any] | None = None
    additional_properties: dict[str, Any] = msgspec.field(default_factory=dict)
    raw_representation: Any = None
    """What the model's client got. Not stored."""

    kind: ClassVar[str | None] = "agent_response"
    twin: ClassVar[str] = "AgentResponse"
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {"messages": Message}
    free: ClassVar[frozenset[str]] = frozenset({"value", "additional_properties", "continuation_token"})
    hidden: ClassVar[frozenset[str]] = frozenset({"raw_representation", "response_format"})
    not_stored: ClassVar[frozenset[str]] = hidden
    _operation_state: ClassVar[None] = None
    """The framework reads it."""

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
            response_format: Any = None,
            continuation_token: dict[str, Any] | None = None,
            additional_properties: dict[str, Any] | None = None,
            raw_representation: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        value: Any = self.messages
        messages = [value] if isinstance(value, (Message, str)) else value or []
        for message in messages:
            if not isinstance(message, Message):
                raise TypeError(f"A response consists of Messages, got {message!r}.")
        self.messages = list(map(as_message, messages))
        self.additional_properties = dict(self.additional_properties or {})
        if isinstance(self.response_format, type) and self.value is None:
            with contextlib.suppress(ValueError):
                self.value = value_in(self, self.response_format)

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
    def from_updates(
        cls, updates: Iterable[AgentResponseUpdate], *, output_format_type: Any = None, value: Any = None
    ) -> Self:
        """The response that was streamed, with this value, or one of this type from its text."""
        joined = UpdateJoiner()
        for update in updates:
            joined.add(as_update(update, None))
        fields = joined.rest if value is None else joined.rest | {"value": value}
        messages = joined.messages()
        return cls(messages=messages, usage_details=joined.usage, response_format=output_format_type, **fields)

    @classmethod
    async def from_update_generator(
        cls, updates: AsyncIterable[AgentResponseUpdate], *, output_format_type: Any = None
    ) -> Self:
        """The response of a stream."""
        return cls.from_updates([update async for update in updates], output_format_type=output_format_type)

    def to_updates(self) -> list[AgentResponseUpdate]:
        """Updates that `from_updates` joins to this response."""
        ids: dict[str, Any] = {"response_id": self.response_id, "agent_id": self.agent_id}
        updates = [update_of(message, contents=message.contents, is_whole=True, **ids) for message in self.messages]
        usage = [] if self.usage_details is None else [Content.from_usage(self.usage_details)]
        last = {name: getattr(self, name) for name in _LAST}
        last["additional_properties"] = self.additional_properties or None
        if usage or any(value is not None for value in (last if updates else {**last, **ids}).values()):
            updates.append(AgentResponseUpdate(contents=usage, **ids, **last))
        return updates

    def __str__(self) -> str:
        return self.text


_LAST = ("created_at", "finish_reason", "value", "continuation_token", "additional_properties")
"""Fields of a response that its last update has."""


def as_response(value: Any, agent_name: str | None) -> AgentResponse:
    """The return value of an agent's `run` as a response. Raises TypeError for other values."""
    if is_own(value, AgentResponse):
        response = cast(AgentResponse, value)
        own = list(map(as_message, response.messages))
        return response if all(map(operator.is_, own, response.messages)) else replace(response, messages=own)
    items = [value] if isinstance(value, (str, Message, Content)) else value
    if isinstance(items, (list, tuple)) and items:
        return AgentResponse(messages=[as_agent_message(item, agent_name) for item in items])
    messages = getattr(value, "messages", None)
    if isinstance(messages, Sequence) and not isinstance(messages, str):
        try:
            structured = getattr(value, "value", None)
        except ValueError:  # the text is not a value of the requested type
            structured = None
        fields = {name: text_of(value, name) for name in ("response_id", "agent_id", "created_at", "finish_reason")}
        return AgentResponse(
            messages=[as_agent_message(message, agent_name) for message in messages],
            usage_details=counts_of(getattr(value, "usage_details", None)),
            value=structured,
            continuation_token=getattr(value, "continuation_token", None),
            additional_properties=properties_of(value),
            raw_representation=getattr(value, "raw_representation", None),
            **fields,
        )
    raise TypeError(
        f"Agent {agent_name!r} returned {value!r}. Expected an AgentResponse, a text, a Message, or an object with "
        "`.messages`."
    )


def as_agent_message(value: Any, agent_name: str | None) -> Message:
    """A message of an agent, with its author."""
    if isinstance(value, (str, Content)):
        return Message("assistant", as_contents(value), agent_name)
    if is_own(value, Message):
        return as_message(value)
    role = getattr(value, "role", None)
    if role is None or getattr(value, "contents", None) is None:
        raise TypeError(f"Agent {agent_name!r} returned {value!r} as a message.")
    fields = copy_fields(value, Message)
    fields["role"] = str(getattr(role, "value", role))
    if fields["role"] == "assistant":
        fields["author_name"] = fields.get("author_name") or agent_name
    return Message(**fields)


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
