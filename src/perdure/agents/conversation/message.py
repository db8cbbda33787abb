"""Message: one message of a conversation; AgentSession: the messages of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from uuid import uuid4

import msgspec

from perdure.agents.conversation.content import Content, JsonStruct, as_contents, decode_value, encode_value
from perdure.codecs.types import register_type
from perdure.errors import UnreadableValue
from perdure.isolation import isolate


class Message(JsonStruct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """`Message("user", "Hello")`, or with contents: `Message("assistant", [Content.from_text("Hello")])`."""

    role: str
    """`user`, `assistant`, `system` or `tool`."""
    contents: tuple[Content, ...] = ()
    author_name: str | None = None
    message_id: str | None = None
    additional_properties: dict[str, Any] | None = None

    kind: ClassVar[str | None] = "message"
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {"contents": Content}
    free: ClassVar[frozenset[str]] = frozenset({"additional_properties"})

    if TYPE_CHECKING:

        def __init__(
            self,
            role: str,
            contents: str | Content | Iterable[str | Content] | None = (),
            author_name: str | None = None,
            message_id: str | None = None,
            additional_properties: dict[str, Any] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.additional_properties is not None and not self.additional_properties:
            msgspec.structs.force_setattr(self, "additional_properties", None)
        role: Any = self.role
        if not isinstance(role, str) or not role:
            raise TypeError(f"A message has a role: user, assistant, system or tool, got {role!r}.")
        msgspec.structs.force_setattr(self, "contents", as_contents(self.contents))

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(content.text or "" for content in self.contents if content.type == "text")

    def of_type(self, kind: str) -> list[Content]:
        return [content for content in self.contents if content.type == kind]

    def __str__(self) -> str:
        return self.text


Messages: TypeAlias = str | Message | Content | Sequence[str | Message | Content] | None
"""The messages that an agent accepts."""


def as_messages(value: Any) -> list[Message]:
    """Texts and contents become user messages. Raises TypeError for other values."""
    if value is None:
        return []
    if isinstance(value, (str, Content, Message)):
        value = [value]
    if not isinstance(value, Iterable):
        raise TypeError(f"Expected a text, a Message, or several of them, got {value!r}.")
    return [_as_message(item) for item in value]


def _as_message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, (str, Content)):
        return Message("user", (value,) if isinstance(value, Content) else (Content.from_text(value),))
    raise TypeError(f"Expected a text or a Message, got {value!r}.")


def is_from(message: Message, agent_name: str) -> bool:
    """Whether it is a message of this agent, not of another."""
    return message.role == "assistant" and message.author_name in (None, agent_name)


def calls_of(conversation: Iterable[Message], agent_name: str) -> set[str | None]:
    """Ids of the calls that this agent made: a model gets results of its own calls only."""
    own = (message for message in conversation if is_from(message, agent_name))
    return {call.call_id for message in own for call in message.of_type("function_call")}


def _to_stored(message: Message) -> list[Any]:
    """The fields in order, up to the last set field; plain texts as strings."""
    contents = [_plain_text(content) for content in message.contents]
    fields = [message.role, contents, message.author_name, message.message_id, message.additional_properties]
    while len(fields) > 2 and fields[-1] is None:
        fields.pop()
    return fields


def _plain_text(content: Content) -> Content | str:
    is_plain = content.type == "text" and content.text is not None and content == Content.from_text(content.text)
    return content.text if is_plain and content.text is not None else content


register_type(Message, _to_stored, lambda fields: Message(*fields))


class AgentSession(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The messages of a conversation, in order. Messages are only appended: a checkpoint refers to a version.

    An agent that runs with a session gets its messages and appends the new messages.
    """

    session_id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    messages: list[Message] = msgspec.field(default_factory=list)
    service_session_id: str | None = None
    """The id of a conversation that the model's service stores."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """The state that an agent keeps between turns."""

    @property
    def version(self) -> int:
        """The number of messages."""
        return len(self.messages)

    def add(self, messages: Iterable[Message]) -> None:
        self.messages.extend(messages)

    def copy(self, *, session_id: str | None = None) -> AgentSession:
        """An independent copy."""
        return AgentSession(
            session_id=session_id or self.session_id,
            messages=list(self.messages),
            service_session_id=self.service_session_id,
            state=isolate(self.state),
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        data = {"type": "session", "session_id": self.session_id, "service_session_id": self.service_session_id}
        data |= {"state": encode_value(self.state, "AgentSession.state")}
        return data | {"messages": [message.to_dict() for message in self.messages]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for invalid data."""
        if not isinstance(data, Mapping):
            raise ValueError(f"Not an AgentSession: expected a dict, got {data!r}.")
        try:
            return cls(
                session_id=msgspec.convert(data["session_id"], str),
                messages=[Message.from_dict(message) for message in data.get("messages") or ()],
                service_session_id=msgspec.convert(data.get("service_session_id"), str | None),
                state=msgspec.convert(decode_value(data.get("state") or {}, "AgentSession.state"), dict[str, Any]),
            )
        except (KeyError, msgspec.ValidationError, UnreadableValue) as error:
            raise ValueError(f"Not an AgentSession: {error}") from error
