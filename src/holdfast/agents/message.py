"""Message: one turn of a conversation, by one speaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from holdfast.agents.content import Content
from holdfast.agents.serialised import Serialised


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
        given: Any = self.contents
        if type(given) is tuple and all(type(one) is Content for one in given):
            return
        if isinstance(given, (str, Content)):
            given = (given,)
        contents = tuple(Content.from_text(one) if isinstance(one, str) else one for one in given or ())
        wrong = next((one for one in contents if not isinstance(one, Content)), None)
        if wrong is not None:
            raise TypeError(f"A message is made of texts and Contents, got {wrong!r}.")
        msgspec.structs.force_setattr(self, "contents", contents)

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
