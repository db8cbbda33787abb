"""The log of a session: entries that are only appended, and the head of each execution."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from perdure.agents.conversation.content import decode_value, encode_value
from perdure.agents.conversation.message import Message
from perdure.digests import digest_of
from perdure.errors import ConversationNotFound, MissingKey, NewerFormat

FORMAT = 1
START = b'{"sum":"'
_AFTER_SUM = len(START) + 22 + 2


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, and the entry that they follow. An entry never changes. A version of a conversation is the id of an
    entry: it means that entry and all entries before it."""

    thread_id: str
    parent: str = ""
    """The version that it follows; empty for the first entry."""
    messages: tuple[Message, ...] = ()
    repeats: tuple[str, ...] = ()
    """Instead of messages: entries whose messages are part of the conversation from here on. They are stored once."""
    workflow_name: str = ""
    execution_id: str = ""
    node_id: str = ""
    at: datetime | None = None
    state: dict[str, Any] = {}  # msgspec copies it
    """The state that the node's agent keeps between turns."""


class SessionHead(msgspec.Struct, frozen=True, kw_only=True):
    """The version that an execution has reached in a thread."""

    thread_id: str
    execution_id: str
    version: str
    """Empty: a rewind removed its entries."""


class SessionLine(msgspec.Struct, tag="session", tag_field="line", omit_defaults=True):
    """The first line of a session."""

    session_id: str
    format: int
    created: str
    """Distinguishes a session from a deleted session of the same id."""
    key: str = ""
    """Of an encrypted session: the encrypted key of the ids of entries."""


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
    """Replaces messages and state in an encrypted session."""


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


def from_bytes(data: bytes, location: str) -> Line:
    """Raises NotASessionLine, or NewerFormat for a line of a newer perdure."""
    if not data.startswith(START) or not data.endswith(b"\n"):
        raise NotASessionLine("it is incomplete")
    content = b"{" + data[_AFTER_SUM:-1]
    if digest_of(content).encode() != data[len(START) : len(START) + 22]:
        raise NotASessionLine("its checksum does not match its content")
    try:
        line = _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise NotASessionLine(str(error)) from error
    if isinstance(line, SessionLine) and line.format > FORMAT:
        raise NewerFormat(location, line.format, FORMAT)
    return line


def is_torn(data: bytes) -> bool:
    """Whether it may be an incomplete line of ours: cut off, or with blocks that were never written."""
    is_ours = all(byte in (0, expected) for byte, expected in zip(data, START, strict=False))
    return is_ours and (not data.endswith(b"\n") or b"\0" in data)


def line_of(entry: SessionEntry) -> EntryLine:
    """Without an id: the store creates it."""
    return EntryLine(
        "",
        entry.thread_id,
        entry.parent,
        [message.to_dict() for message in entry.messages],
        entry.repeats,
        entry.workflow_name,
        entry.execution_id,
        entry.node_id,
        entry.at,
        encode_value(entry.state, "state") if entry.state else None,
    )


def with_id(line: EntryLine, digest: Callable[[bytes], str]) -> EntryLine:
    """With an id from its content: equal messages after the same entry, as after a crash, are the same entry."""
    content = msgspec.structs.replace(line, entry_id="", at=None)
    return msgspec.structs.replace(line, entry_id=digest(msgspec.json.encode(content, order="deterministic")))


def _entry_of(line: EntryLine) -> SessionEntry:
    """A new object for each reader, so that readers do not share mutable values."""
    return SessionEntry(
        thread_id=line.thread_id,
        parent=line.parent,
        messages=tuple(map(Message.from_dict, line.messages)),
        repeats=line.repeats,
        workflow_name=line.workflow_name,
        execution_id=line.execution_id,
        node_id=line.node_id,
        at=line.at,
        state=decode_value(line.state, "state") if line.state is not None else {},
    )


class Seal:
    """Converts a session's lines to their stored form. This one stores them unchanged."""

    def __init__(self, session_id: str, store: str = "memory") -> None:
        self.session_id = session_id
        self.store = store

    @property
    def location(self) -> str:
        return f"Session {self.session_id!r} in {self.store!r}"

    def first_line(self) -> SessionLine:
        """The first line of a new session."""
        return SessionLine(self.session_id, FORMAT, os.urandom(8).hex())

    def begin(self, line: SessionLine) -> None:
        """Read the first line. Raises MissingKey or PlaintextRefused."""
        if line.key:
            raise MissingKey(self.location)

    def digest(self, data: bytes) -> str:
        """The digest for an entry's id."""
        return digest_of(data)

    def seal(self, line: EntryLine) -> EntryLine:
        return line

    def unseal(self, line: EntryLine) -> EntryLine:
        """Raises NotASessionLine, MissingKey or PlaintextRefused."""
        if line.sealed:
            raise MissingKey(self.location)
        return line


class SessionLog:
    """One session, read from its lines."""

    def __init__(self, session_id: str, seal: Seal | None = None) -> None:
        self.session_id = session_id
        self.seal = seal or Seal(session_id)
        self.created = ""
        self._entries: dict[str, EntryLine] = {}
        self._heads: dict[tuple[str, str], HeadLine] = {}
        """By thread and execution, in the order of their last change."""

    @property
    def is_empty(self) -> bool:
        return not self.created

    def to_stored(self, line: Line) -> bytes:
        return to_bytes(self.seal.seal(line) if isinstance(line, EntryLine) else line)

    def add(self, line: Line) -> None:
        """Add a stored line. Raises NotASessionLine, MissingKey or PlaintextRefused."""
        if isinstance(line, EntryLine):
            self._entries[line.entry_id] = self.seal.unseal(line)
        elif isinstance(line, HeadLine):
            self._heads.pop((line.thread_id, line.execution_id), None)
            self._heads[line.thread_id, line.execution_id] = line
        else:
            self.seal.begin(line)
            self.created = line.created

    def has(self, line: EntryLine | HeadLine) -> bool:
        """Whether the log has this line. Raises ConversationNotFound if the entries that it refers to are missing."""
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
        ids: list[str] = []
        while version:
            ids.append(version)
            version = self._entries[version].parent
        return ids[::-1]

    def read(self, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by id, in the order in which they are part of the conversation."""
        ids: dict[str, None] = {}
        for entry_id in self.chain(version):
            ids |= dict.fromkeys([*self._entries[entry_id].repeats, entry_id])
        return {entry_id: _entry_of(self._entries[entry_id]) for entry_id in ids}

    def heads(self) -> list[SessionHead]:
        return [
            SessionHead(thread_id=head.thread_id, execution_id=head.execution_id, version=head.version)
            for head in self._heads.values()
        ]


def messages_in(entries: Mapping[str, SessionEntry]) -> list[Message]:
    return [message for entry in entries.values() for message in entry.messages]
