"""Message, its parts (Content), and AgentSession: the messages of a conversation. All are exact in JSON."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast
from uuid import uuid4

import msgspec

from perdure.checkpoints.encode import tool_codec
from perdure.codecs.types import register_type
from perdure.errors import UnreadableValue
from perdure.isolation import isolate

_codec = functools.cache(tool_codec)
"""For values without a JSON form: NaN, bytes, tuples, large integers, your own data types."""


def encode_value(value: Any, path: str) -> Any:
    """The value as JSON. Raises UnsavableValue with the path."""
    return _codec().encode(value, path)


def decode_value(encoded: Any, path: str) -> Any:
    """Raises UnreadableValue."""
    return _codec().decode(encoded, path)


class JsonStruct(msgspec.Struct, frozen=True):
    """Data that is equal after a conversion to JSON and back."""

    kind: ClassVar[str | None] = None
    """The `type` in `to_dict`, for a class without such a field."""
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {}
    """Fields that hold one of these types, or several."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold any value."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without default values."""
        data: dict[str, Any] = {} if self.kind is None else {"type": self.kind}
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value is not field.default and (value != () or field.default != ()):
                data[field.name] = self._encode_field(field.name, value)
        return data

    def _encode_field(self, name: str, value: Any) -> Any:
        if name not in self.parts:
            return encode_value(value, f"{type(self).__name__}.{name}")
        return [part.to_dict() for part in value] if isinstance(value, tuple) else value.to_dict()

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ValueError for invalid data. Unknown fields are ignored."""
        if not isinstance(data, Mapping):
            raise ValueError(f"Not a {cls.__name__}: expected a dict, got {data!r}.")
        try:
            fields = {name: cls._decode_field(name, data[name]) for name in cls.__struct_fields__ if name in data}
            others = {name: fields.pop(name) for name in list(fields) if name in cls.parts or name in cls.free}
            converted = msgspec.convert(fields, cls)
            return msgspec.structs.replace(converted, **others)
        except (msgspec.ValidationError, UnreadableValue, TypeError) as error:
            raise ValueError(f"Not a {cls.__name__}: {error}") from error

    @classmethod
    def _decode_field(cls, name: str, value: Any) -> Any:
        if name not in cls.parts or value is None:
            return decode_value(value, f"{cls.__name__}.{name}")
        part: Any = cls.parts[name]
        return part.from_dict(value) if isinstance(value, (Mapping, str)) else tuple(map(part.from_dict, value))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            data = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ValueError(f"Not a {cls.__name__}: {error}") from error
        return cls.from_dict(data)


UsageDetails: TypeAlias = Mapping[str, int]
"""Counts by name: `input_token_count`, `output_token_count`, `total_token_count`, and others of the model."""


class Content(JsonStruct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One part of a message. Its fields depend on `type`; create it with `Content.from_text(...)` and similar
    methods."""

    type: str
    text: str | None = None
    """`text`, `text_reasoning`."""
    uri: str | None = None
    """`uri`; `data` as a data: URI."""
    media_type: str | None = None
    message: str | None = None
    """`error`."""
    error_code: str | None = None
    error_details: str | None = None
    usage_details: dict[str, int] | None = None
    call_id: str | None = None
    """`function_call` and `function_result`: the id of the call."""
    name: str | None = None
    """`function_call`: the function."""
    arguments: str | dict[str, Any] | None = None
    """`function_call`: the model's arguments, usually a JSON text."""
    result: Any = None
    """`function_result`."""
    exception: str | None = None
    """`function_result` of a function that raised."""
    id: str | None = None
    """`function_approval_*`: the id of the request."""
    function_call: Content | None = None
    """`function_approval_*`: the requested call. A response may change its arguments."""
    approved: bool | None = None
    reason: str | None = None
    """`function_approval_response`: the reason of a rejection, for the model."""
    user_input_request: bool | None = None
    """Whether it needs an answer before the agent can continue."""
    additional_properties: dict[str, Any] | None = None

    free: ClassVar[frozenset[str]] = frozenset({"arguments", "result", "additional_properties"})

    def __post_init__(self) -> None:
        if self.arguments is not None and not isinstance(self.arguments, (str, dict)):
            raise TypeError(f"The arguments of a call are a text or a dict, got {self.arguments!r}.")
        if self.additional_properties is not None and not self.additional_properties:
            msgspec.structs.force_setattr(self, "additional_properties", None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | str) -> Self:
        """A text is accepted as text content. Fields of other frameworks go to `additional_properties`. Raises
        ValueError for invalid data."""
        if isinstance(data, str):
            data = {"type": "text", "text": data}
        if not isinstance(data, Mapping):
            raise ValueError(f"Not a {cls.__name__}: expected a dict or a text, got {data!r}.")
        known = {name: value for name, value in data.items() if name in cls.__struct_fields__}
        others = {name: value for name, value in data.items() if name not in known and value not in (None, False)}
        if others:
            known["additional_properties"] = {**(known.get("additional_properties") or {}), **others}
        if isinstance(counts := known.get("usage_details"), Mapping):
            known["usage_details"] = {name: count for name, count in counts.items() if count is not None}
        return super().from_dict(known)

    @classmethod
    def from_text(cls, text: str) -> Content:
        return cls("text", text=text)

    @classmethod
    def from_text_reasoning(cls, text: str) -> Content:
        return cls("text_reasoning", text=text)

    @classmethod
    def from_data(cls, data: bytes, media_type: str) -> Content:
        uri = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        return cls("data", uri=uri, media_type=media_type)

    @classmethod
    def from_uri(cls, uri: str, *, media_type: str | None = None) -> Content:
        return cls("data" if uri.startswith("data:") else "uri", uri=uri, media_type=media_type)

    @classmethod
    def from_error(
        cls, message: str | None = None, *, error_code: str | None = None, error_details: str | None = None
    ) -> Content:
        return cls("error", message=message, error_code=error_code, error_details=error_details)

    @classmethod
    def from_usage(cls, usage_details: UsageDetails) -> Content:
        return cls("usage", usage_details=dict(usage_details))

    @classmethod
    def from_function_call(
        cls, call_id: str, name: str, *, arguments: str | Mapping[str, Any] | None = None
    ) -> Content:
        call_arguments = dict(arguments) if isinstance(arguments, Mapping) else arguments
        return cls("function_call", call_id=call_id, name=name, arguments=call_arguments)

    @classmethod
    def from_function_result(cls, call_id: str, *, result: Any = None, exception: object = None) -> Content:
        description = None if exception is None else str(exception) or type(exception).__name__
        return cls("function_result", call_id=call_id, result=result, exception=description)

    @classmethod
    def from_function_approval_request(cls, id: str, function_call: Content) -> Content:
        return cls("function_approval_request", id=id, function_call=function_call, user_input_request=True)

    @classmethod
    def from_function_approval_response(
        cls, approved: bool, id: str, function_call: Content, *, reason: str | None = None
    ) -> Content:
        return cls("function_approval_response", id=id, function_call=function_call, approved=approved, reason=reason)

    def to_function_approval_response(
        self, approved: bool, *, reason: str | None = None, arguments: Mapping[str, Any] | str | None = None
    ) -> Content:
        """The answer to a `function_approval_request`; `arguments` approves the call with changed arguments."""
        if self.type != "function_approval_request" or self.id is None or self.function_call is None:
            raise ValueError(f"Only a function_approval_request can be answered, this is a {self.type}.")
        call = self.function_call
        if arguments is not None:
            changed = arguments if isinstance(arguments, str) else dict(arguments)
            call = msgspec.structs.replace(call, arguments=changed)
        return Content.from_function_approval_response(approved, self.id, call, reason=reason)

    def approve(self, arguments: Mapping[str, Any] | str | None = None) -> Content:
        return self.to_function_approval_response(True, arguments=arguments)

    def reject(self, reason: str | None = None) -> Content:
        return self.to_function_approval_response(False, reason=reason)

    def parse_arguments(self) -> dict[str, Any]:
        """The arguments of a function call. Raises ValueError for a text that is not a JSON object."""
        if self.arguments is None or self.arguments == "":
            return {}
        if not isinstance(self.arguments, str):
            return dict(self.arguments)
        try:
            parsed = msgspec.json.decode(self.arguments)
        except msgspec.DecodeError as error:
            raise ValueError(
                f"The arguments of {self.name!r} are not valid JSON: {error}. They are: {self.arguments}"
            ) from error
        if not isinstance(parsed, dict):
            raise ValueError(f"The arguments of {self.name!r} are not a JSON object: {self.arguments}")
        return cast(dict[str, Any], parsed)

    def data_bytes(self) -> bytes:
        """The bytes of `data`."""
        if self.uri is None or not self.uri.startswith("data:"):
            raise ValueError(f"This {self.type} content holds no data.")
        head, _, body = self.uri.partition(",")
        return base64.b64decode(body) if head.endswith(";base64") else body.encode()

    def __str__(self) -> str:
        return self.text or ""


def as_contents(value: Any) -> tuple[Content, ...]:
    """From texts and Contents, one or several. Raises TypeError for other values."""
    if type(value) is tuple and {Content}.issuperset(map(type, value)):
        return cast(tuple[Content, ...], value)
    if isinstance(value, (str, Content)):
        value = (value,)
    if value is not None and (isinstance(value, Mapping) or not isinstance(value, Iterable)):
        raise TypeError(f"A message consists of texts and Contents, got {value!r}.")
    contents = [Content("text", text=item) if isinstance(item, str) else item for item in value or ()]
    for content in contents:
        if not isinstance(content, Content):
            raise TypeError(f"A message consists of texts and Contents, got {content!r}.")
    return tuple(contents)


Content.parts = {"function_call": Content}


def _to_stored_content(content: Content) -> dict[str, Any]:
    """Without unset fields: each turn of each conversation stores its messages."""
    pairs = ((name, getattr(content, name)) for name in Content.__struct_fields__)
    return {name: value for name, value in pairs if value is not None}


register_type(Content, _to_stored_content, lambda fields: Content(**fields))


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
        return "".join([content.text or "" for content in self.contents if content.type == "text"])

    def of_type(self, kind: str) -> list[Content]:
        return [content for content in self.contents if content.type == kind]

    def __str__(self) -> str:
        return self.text


def as_messages(value: Any) -> list[Message]:
    """Texts and contents become user messages. Raises TypeError for other values."""
    if value is None:
        return []
    items = [value] if isinstance(value, (str, Content, Message)) else value
    if not isinstance(items, Iterable):
        raise TypeError(f"Expected a text, a Message, or several of them, got {value!r}.")
    messages = []
    for item in items:
        if not isinstance(item, (str, Content, Message)):
            raise TypeError(f"Expected a text or a Message, got {item!r}.")
        messages.append(item if isinstance(item, Message) else Message("user", item))
    return messages


def _to_stored(message: Message) -> list[Any]:
    """The fields in order, up to the last set field; plain texts as strings."""
    contents = [content.text if _is_plain_text(content) else content for content in message.contents]
    fields = [message.role, contents, message.author_name, message.message_id, message.additional_properties]
    while len(fields) > 2 and fields[-1] is None:
        fields.pop()
    return fields


def _is_plain_text(content: Content) -> bool:
    fields = msgspec.structs.astuple(content)
    return content.type == "text" and content.text is not None and fields.count(None) == len(fields) - 2


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
