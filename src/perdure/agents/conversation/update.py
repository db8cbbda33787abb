"""Responses of agents in pieces, and how pieces become messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from perdure.agents.conversation.content import Content, as_contents
from perdure.agents.conversation.content_fields import add_usage
from perdure.agents.conversation.json_struct import JsonStruct, is_own
from perdure.agents.conversation.message import Message


class AgentResponseUpdate(JsonStruct, omit_defaults=True, repr_omit_defaults=True, kw_only=True):
    """A part of a response, as it is emitted. Updates of one message have the same `message_id`, or none."""

    contents: list[Content] = msgspec.field(default_factory=list)
    role: str | None = None
    author_name: str | None = None
    agent_id: str | None = None
    response_id: str | None = None
    message_id: str | None = None
    created_at: str | None = None
    finish_reason: str | None = None
    value: Any = None
    """The structured output, with the last update."""
    continuation_token: dict[str, Any] | None = None
    merge_mode: str | None = None
    additional_properties: dict[str, Any] | None = None
    is_whole: bool = False
    """Whether it is a complete message: it is not joined with others, and keeps its usage contents."""
    raw_representation: Any = None
    """What the model's client got. Not stored."""

    kind: ClassVar[str | None] = "agent_response_update"
    not_stored: ClassVar[frozenset[str]] = frozenset({"raw_representation"})
    twin: ClassVar[str] = "AgentResponseUpdate"
    parts: ClassVar[Mapping[str, type[JsonStruct]]] = {"contents": Content}
    free: ClassVar[frozenset[str]] = frozenset({"value", "additional_properties", "continuation_token"})
    _operation_state: ClassVar[None] = None
    """The framework reads it."""

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
            continuation_token: dict[str, Any] | None = None,
            merge_mode: str | None = None,
            additional_properties: dict[str, Any] | None = None,
            is_whole: bool = False,
            raw_representation: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        self.contents = as_contents(self.contents)

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


def as_update(value: Any, agent_name: str | None) -> AgentResponseUpdate:
    """An item of an agent's stream as an update."""
    if is_own(value, AgentResponseUpdate):
        update = cast(AgentResponseUpdate, value)
        is_all_own = {Content}.issuperset(map(type, update.contents))
        return update if is_all_own else msgspec.structs.replace(update)  # with contents that the framework added
    if isinstance(value, str):
        return AgentResponseUpdate(contents=[Content.from_text(value)], role="assistant", author_name=agent_name)
    contents = getattr(value, "contents", None)
    if contents is None:
        raise TypeError(f"Agent {agent_name!r} streamed {value!r}. Expected an AgentResponseUpdate or a text.")
    names = ("role", "agent_id", "response_id", "message_id", "created_at", "finish_reason", "merge_mode")
    fields = {name: text_of(value, name) for name in names}
    return AgentResponseUpdate(
        contents=as_contents(contents),
        author_name=text_of(value, "author_name") or agent_name,
        continuation_token=getattr(value, "continuation_token", None),
        additional_properties=properties_of(value),
        **fields,
    )


def properties_of(value: Any) -> dict[str, Any] | None:
    field = getattr(value, "additional_properties", None)
    return dict(field) if isinstance(field, Mapping) and field else None


def text_of(value: Any, name: str) -> Any:
    field = getattr(value, name, None)
    return None if field is None else str(getattr(field, "value", field))


def counts_of(value: Any) -> dict[str, int] | None:
    if not isinstance(value, Mapping):
        return None
    return {str(name): count for name, count in value.items() if isinstance(count, int)}


class UpdateJoiner:
    """Joins updates to messages."""

    def __init__(self) -> None:
        self._of: list[tuple[AgentResponseUpdate, list[Content], dict[str, Any]]] = []
        self.usage: dict[str, int] | None = None
        self.rest: dict[str, Any] = {}
        """Fields of the response as a whole."""

    def add(self, update: AgentResponseUpdate) -> None:
        for name in ("response_id", "agent_id", "created_at", "finish_reason", "value", "continuation_token"):
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
            if update.additional_properties:
                self.rest["additional_properties"] = update.additional_properties
            return
        index = self._index_of(update)
        first, before, properties = self._of[index]
        _append(before, contents)
        properties.update(update.additional_properties or {})
        ids = {name: getattr(first, name) or getattr(update, name) for name in ("author_name", "message_id")}
        self._of[index] = (msgspec.structs.replace(first, **ids), before, properties)

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
            Message(first.role or "assistant", contents, first.author_name, first.message_id, properties)
            for first, contents, properties in self._of
        ]


def is_other_message(before: AgentResponseUpdate, update: AgentResponseUpdate, *, by_id: bool = False) -> bool:
    """Whether they belong to different messages. Only an equal id matches a message before the last."""
    if before.is_whole:
        return True
    if update.message_id != before.message_id and (by_id or None not in (update.message_id, before.message_id)):
        return True
    authors = {before.author_name, update.author_name} - {None}
    return len(authors) > 1 or update.role not in (None, before.role or "assistant")


def _append(contents: list[Content], more: Sequence[Content]) -> None:
    """Consecutive texts become one text, and parts of one call become one call. Contents of the same update stay
    separate."""
    for index, content in enumerate(more):
        last = contents[-1] if contents and index == 0 else None
        if last is not None and _is_continued(last, content):
            contents[-1] = last + content
        else:
            contents.append(content)


def _is_continued(last: Content, content: Content) -> bool:
    if last.type != content.type:
        return False
    if content.type == "function_call":
        return content.call_id in (None, "", last.call_id)
    has_properties = content.additional_properties or last.additional_properties
    return content.type in ("text", "text_reasoning") and content.id in (None, last.id) and not has_properties
