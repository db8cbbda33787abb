"""What is in a session: entries that only ever follow others, and how far each execution has come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from perdure.agents.conversation.content import read_value, told_value
from perdure.agents.conversation.message import Message
from perdure.digests import digest_of
from perdure.errors import ConversationNotFound, MissingKey, NewerFormat

FORMAT = 1
START = b'{"sum":"'
_AFTER_SUM = len(START) + 22 + 2


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was said, and after what. Never changed: a version of a conversation is the id of an entry, and
    means that entry with all those before it."""

    thread_id: str
    parent: str = ""
    """The version that it follows; empty: it is the first."""
    messages: tuple[Message, ...] = ()
    repeats: tuple[str, ...] = ()
    """In place of messages: entries whose messages are part of the conversation from here on. These are stored once."""
    workflow_name: str = ""
    execution_id: str = ""
    node_id: str = ""
    at: datetime | None = None
    state: dict[str, Any] = {}  # msgspec copies it
    """What else the node's agent keeps from turn to turn."""


class SessionHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far an execution has come in a thread."""

    thread_id: str
    execution_id: str
    version: str
    """Empty: what it said there was taken back."""


class SessionLine(msgspec.Struct, tag="session", tag_field="line", omit_defaults=True):
    """The first one of a session."""

    session_id: str
    format: int
    made: str
    """Tells a session from one of the same id that was deleted."""
    key: str = ""
    """Of one that is encrypted: what ids of entries are made with, encrypted."""


class EntryLine(msgspec.Struct, tag="entry", tag_field="line", omit_defaults=True):
    entry_id: str
    thread_id: str
    parent: str = ""
    messages: list[Any] = []
    repeats: tuple[str, ...] = ()
    workflow_name: str = ""
    execution_id: str = ""
    node_id: str = ""
    at: datetime | None = None
    state: Any = None
    sealed: str = ""
    """In place of messages and state, where these are encrypted."""


class HeadLine(msgspec.Struct, tag="head", tag_field="line"):
    thread_id: str
    execution_id: str
    version: str


Line: TypeAlias = SessionLine | EntryLine | HeadLine
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(SessionLine | EntryLine | HeadLine)


class NotASessionLine(ValueError):
    """Bytes that are not a line as it was written."""


def to_bytes(line: Line) -> bytes:
    data = msgspec.json.encode(line)
    return b'%b%b",%b\n' % (START, digest_of(data).encode(), data[1:])


def from_bytes(data: bytes, place: str) -> Line:
    """Raises NotASessionLine, or NewerFormat for what a newer perdure wrote."""
    if not data.startswith(START) or not data.endswith(b"\n"):
        raise NotASessionLine("it is not a line that was written whole")
    content = b"{" + data[_AFTER_SUM:-1]
    if digest_of(content).encode() != data[len(START) : len(START) + 22]:
        raise NotASessionLine("its content does not have its checksum")
    try:
        line = _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise NotASessionLine(str(error)) from error
    if isinstance(line, SessionLine) and line.format > FORMAT:
        raise NewerFormat(place, line.format, FORMAT)
    return line


def is_torn(data: bytes) -> bool:
    """Whether it could be a line of ours that was not written whole: cut off, or with blocks that never came to be."""
    is_ours = all(one in (0, wanted) for one, wanted in zip(data, START, strict=False))
    return is_ours and (not data.endswith(b"\n") or b"\0" in data)


def line_of(entry: SessionEntry) -> EntryLine:
    """Without an id, which is made where it is kept."""
    return EntryLine(
        "",
        entry.thread_id,
        entry.parent,
        [one.to_dict() for one in entry.messages],
        entry.repeats,
        entry.workflow_name,
        entry.execution_id,
        entry.node_id,
        entry.at,
        told_value(entry.state, "state") if entry.state else None,
    )


def with_id(line: EntryLine, digest: Callable[[bytes], str]) -> EntryLine:
    """With an id that is made from what it says: the same said again after the same, as after a crash, is the same
    entry."""
    said = msgspec.structs.replace(line, entry_id="", at=None)
    return msgspec.structs.replace(line, entry_id=digest(msgspec.json.encode(said, order="deterministic")))


def _entry_of(line: EntryLine) -> SessionEntry:
    """Made anew each time: what one reader does with it is not seen by another."""
    return SessionEntry(
        thread_id=line.thread_id,
        parent=line.parent,
        messages=tuple(map(Message.from_dict, line.messages)),
        repeats=line.repeats,
        workflow_name=line.workflow_name,
        execution_id=line.execution_id,
        node_id=line.node_id,
        at=line.at,
        state=read_value(line.state, "state") if line.state is not None else {},
    )


class Seal:
    """What a session's lines are where they are kept. Here: what they are."""

    def __init__(self, session_id: str, store: str = "memory") -> None:
        self.session_id = session_id
        self.store = store

    @property
    def place(self) -> str:
        return f"Session {self.session_id!r} in {self.store!r}"

    def begun(self) -> SessionLine:
        """The first line of a new session."""
        return SessionLine(self.session_id, FORMAT, os.urandom(8).hex())

    def begin(self, line: SessionLine) -> None:
        """The lines that follow are of this session. Raises MissingKey or PlaintextRefused."""
        if line.key:
            raise MissingKey(self.place)

    def digest(self, data: bytes) -> str:
        """What an entry's id is made with."""
        return digest_of(data)

    def seal(self, line: EntryLine) -> EntryLine:
        return line

    def unseal(self, line: EntryLine) -> EntryLine:
        """Raises NotASessionLine, MissingKey or PlaintextRefused."""
        if line.sealed:
            raise MissingKey(self.place)
        return line


class SessionLog:
    """One session, from its lines."""

    def __init__(self, session_id: str, seal: Seal | None = None) -> None:
        self.session_id = session_id
        self.seal = seal or Seal(session_id)
        self.made = ""
        self._entries: dict[str, EntryLine] = {}
        self._heads: dict[tuple[str, str], HeadLine] = {}
        """By thread and execution; the one that was moved last comes last."""

    @property
    def is_empty(self) -> bool:
        return not self.made

    def kept(self, line: Line) -> bytes:
        """What is to be kept of a line."""
        return to_bytes(self.seal.seal(line) if isinstance(line, EntryLine) else line)

    def take(self, line: Line) -> None:
        """As it was kept. Raises NotASessionLine, MissingKey or PlaintextRefused."""
        if isinstance(line, EntryLine):
            self._entries[line.entry_id] = self.seal.unseal(line)
        elif isinstance(line, HeadLine):
            self._heads.pop((line.thread_id, line.execution_id), None)
            self._heads[line.thread_id, line.execution_id] = line
        else:
            self.seal.begin(line)
            self.made = line.made

    def knows(self, line: EntryLine | HeadLine) -> bool:
        """Whether it would change nothing. Raises ConversationNotFound for one that follows what is not there."""
        if isinstance(line, HeadLine):
            self.check([line.version])
            return self._heads.get((line.thread_id, line.execution_id)) == line
        self.check([line.parent, *line.repeats])
        return line.entry_id in self._entries

    def check(self, versions: Iterable[str]) -> None:
        for version in versions:
            if version and version not in self._entries:
                raise ConversationNotFound(self.session_id, version)

    def chain(self, version: str) -> list[str]:
        """The ids of an entry and of those before it, oldest first."""
        self.check([version])
        found: list[str] = []
        while version:
            found.append(version)
            version = self._entries[version].parent
        return found[::-1]

    def read(self, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by id, in the order in which they are part of the conversation."""
        ids: dict[str, None] = {}
        for one in self.chain(version):
            ids |= dict.fromkeys([*self._entries[one].repeats, one])
        return {one: _entry_of(self._entries[one]) for one in ids}

    def heads(self) -> list[SessionHead]:
        return [
            SessionHead(thread_id=one.thread_id, execution_id=one.execution_id, version=one.version)
            for one in self._heads.values()
        ]


def messages_in(entries: Mapping[str, SessionEntry]) -> list[Message]:
    return [message for entry in entries.values() for message in entry.messages]
