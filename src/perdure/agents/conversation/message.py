"""Message, and AgentSession: the messages of a conversation. Both are exact in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast
from uuid import uuid4

import msgspec

from perdure.agents.conversation.content import Content, as_contents, is_plain_text
from perdure.agents.conversation.json_struct import (
    JsonStruct,
    TwinType,
    copy_fields,
    decode_value,
    encode_value,
    framework_class,
    is_json,
    is_own,
    twin_class,
)
from perdure.codecs.types import register_type
from perdure.errors import UnreadableValue
from perdure.isolation import isolate


class Message(JsonStruct, omit_defaults=True, repr_omit_defaults=True):
    """`Message("user", "Hello")`, or with contents: `Message("assistant", [Content.from_text("Hello")])`."""

    role: str
    """`user`, `assistant`, `system` or `tool`."""
    contents: list[Content] = msgspec.field(default_factory=list)
    author_name: str | None = None
    message_id: str | None = None
    additional_properties: dict[str, Any] = msgspec.field(default_factory=dict)
    raw_representation: Any = None
    """What the model's client got. A checkpoint has it if it is JSON data."""

    kind: ClassVar[str | None] = "message"
    twin: ClassVar[str] = "Message"
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
            raw_representation: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self.additional_properties = dict(self.additional_properties or {})
        role: Any = self.role
        if not isinstance(role, str) or not role:
            raise TypeError(f"A message has a role: user, assistant, system or tool, got {role!r}.")
        self.contents = as_contents(self.contents)

    @property
    def text(self) -> str:
        """All of its text."""
        return " ".join([content.text or "" for content in self.contents if content.type == "text"])

    def of_type(self, kind: str) -> list[Content]:
        return [content for content in self.contents if content.type == kind]

    def __str__(self) -> str:
        return self.text


def as_message(value: Any, role: str = "user") -> Message:
    """A Message, one of Agent Framework, or contents of a message with this role. Raises TypeError for other values."""
    if is_own(value, Message) and {Content}.issuperset(map(type, value.contents)):
        return cast(Message, value)
    if isinstance(value, Message):  # the framework's, or ours with contents that the framework added
        return Message(**copy_fields(value, Message))
    return Message(role, as_contents(value))


def as_messages(value: Any) -> list[Message]:
    """Texts and contents become user messages. Raises TypeError for other values."""
    if value is None:
        return []
    if isinstance(value, (str, Content, Message)):
        return [as_message(value)]
    if not isinstance(value, Iterable):
        raise TypeError(f"Expected a text, a Message, or several of them, got {value!r}.")
    messages = []
    for item in value:
        if not isinstance(item, (str, Content, Message)):
            raise TypeError(f"Expected a text or a Message, got {item!r}.")
        messages.append(as_message(item))
    return messages


def _to_stored(message: Message) -> list[Any]:
    """The fields in order, up to the last set field; plain texts as strings."""
    contents = [content.text if is_plain_text(content) else content for content in message.contents]
    raw = message.raw_representation if is_json(message.raw_representation) else None
    fields = [message.role, contents, message.author_name, message.message_id, message.additional_properties, raw]
    while len(fields) > 2 and not fields[-1] and fields[-1] is not False:
        fields.pop()
    return fields


register_type(Message, _to_stored, lambda fields: Message(*fields))


class AgentSession(msgspec.Struct, kw_only=True, omit_defaults=True, metaclass=TwinType):
    """The messages of a conversation, in order. Messages are only appended: a checkpoint refers to a version.

    An agent that runs with a session gets its messages and appends the new messages.
    """

    session_id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    messages: list[Message] = msgspec.field(default_factory=list)
    service_session_id: Any = None
    """The id of a conversation that the model's service stores: a text, or a dict."""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    """The state that an agent keeps between turns."""

    twin: ClassVar[str] = "AgentSession"
    if not TYPE_CHECKING:
        __class__ = twin_class

    def __post_init__(self) -> None:
        self.session_id = self.session_id or str(uuid4())
        if not {Message}.issuperset(map(type, self.messages)):
            self.messages = as_messages(self.messages)

    @property
    def version(self) -> int:
        """The number of messages."""
        return len(self.messages)

    def add(self, messages: Iterable[Message]) -> None:
        self.messages.extend(messages)

    def copy(self, *, session_id: str | None = None) -> AgentSession:
        """An independent copy."""
        parts = {"messages": isolate(self.messages), "state": isolate(self.state)}
        return msgspec.structs.replace(self, session_id=session_id or self.session_id, **parts)

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
                service_session_id=msgspec.convert(data.get("service_session_id"), str | dict[str, Any] | None),
                state=msgspec.convert(decode_value(data.get("state") or {}, "AgentSession.state"), dict[str, Any]),
            )
        except (KeyError, msgspec.ValidationError, UnreadableValue) as error:
            raise ValueError(f"Not an AgentSession: {error}") from error


FRAMEWORK_STATE = "agent_framework"
"""The key of our session's state for a session of the framework, as a dict."""
OWN_STATE = "perdure"
"""The key of their session's state for our messages."""


def as_session(value: Any) -> AgentSession | None:
    """A session, or one of Agent Framework as ours. Raises TypeError for other values."""
    if value is None or is_own(value, AgentSession):
        return cast(AgentSession | None, value)
    if not isinstance(value, AgentSession):
        raise TypeError(f"Expected an AgentSession, got {value!r}.")
    state = {name: item for name, item in value.state.items() if name != OWN_STATE}
    return AgentSession(
        session_id=value.session_id,
        messages=value.state.get(OWN_STATE, []),
        service_session_id=value.service_session_id,
        state={**state, FRAMEWORK_STATE: value.to_dict()},
    )


def put_back(session: AgentSession, into: Any) -> None:
    """Keep what turns added to a copy of the session in the session itself, which may be one of Agent Framework."""
    into.service_session_id = session.service_session_id
    if is_own(into, AgentSession):
        into.messages = session.messages
        into.state.update(session.state)
    else:
        into.state.update({name: item for name, item in session.state.items() if name != FRAMEWORK_STATE})
        into.state[OWN_STATE] = session.messages


def put_all_back(session: AgentSession, into: Any) -> None:
    """`put_back`, or the state of an agent of Agent Framework, as its programs read it."""
    kept = session.state.get(FRAMEWORK_STATE)
    if kept is None:
        put_back(session.copy(), into)
    else:
        into.state.update(framework_class(AgentSession.twin).from_dict(kept).state)
        into.service_session_id = session.service_session_id
