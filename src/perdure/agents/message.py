"""Message: one turn of a conversation, by one speaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from perdure.agents.content import Content, as_contents
from perdure.agents.serialised import Serialised
from perdure.codecs.types import register_type


class Message(Serialised, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """`Message("user", "Hello")`, or with contents: `Message("assistant", [Content.from_text("Hello")])`."""

    role: str
    """`user`, `assistant`, `system` or `tool`."""
    contents: tuple[Content, ...] = ()
    author_name: str | None = None
    message_id: str | None = None
    additional_properties: dict[str, Any] | None = None

    kind: ClassVar[str | None] = "message"
    parts: ClassVar[Mapping[str, type[Serialised]]] = {"contents": Content}
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
        return "".join(one.text or "" for one in self.contents if one.type == "text")

    def of_type(self, kind: str) -> list[Content]:
        return [one for one in self.contents if one.type == kind]

    def __str__(self) -> str:
        return self.text


Messages: TypeAlias = str | Message | Content | Sequence[str | Message | Content] | None
"""What an agent may be given."""


def as_messages(given: Any) -> list[Message]:
    """Texts and contents become messages of the user. Raises TypeError for anything else."""
    if given is None:
        return []
    if isinstance(given, (str, Content, Message)):
        given = [given]
    if not isinstance(given, Iterable):
        raise TypeError(f"Expected a text, a Message, or several of them, got {given!r}.")
    return [_as_message(one) for one in given]


def _as_message(one: Any) -> Message:
    if isinstance(one, Message):
        return one
    if isinstance(one, (str, Content)):
        return Message("user", (one,) if isinstance(one, Content) else (Content.from_text(one),))
    raise TypeError(f"Expected a text or a Message, got {one!r}.")


def _to_stored(message: Message) -> list[Any]:
    """In the order of the fields, up to the last that is set; a plain text as such."""
    contents = [_plain_text(one) for one in message.contents]
    fields = [message.role, contents, message.author_name, message.message_id, message.additional_properties]
    while len(fields) > 2 and fields[-1] is None:
        fields.pop()
    return fields


def _plain_text(content: Content) -> Content | str:
    is_plain = content.type == "text" and content.text is not None and content == Content.from_text(content.text)
    return content.text if is_plain and content.text is not None else content


register_type(Message, _to_stored, lambda fields: Message(*fields))
