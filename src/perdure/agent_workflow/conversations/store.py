"""The contract of session stores, and the store in memory. A session has threads; entries are only appended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar, runtime_checkable

from perdure.agent_workflow.conversations.encryption import Sealing
from perdure.agent_workflow.conversations.log import (
    EntryLine,
    HeadLine,
    Line,
    SessionEntry,
    SessionHead,
    SessionLog,
    from_bytes,
    line_of,
    messages_in,
    with_id,
)
from perdure.agents.conversation.message import Message
from perdure.names import check_identifier

T = TypeVar("T")


@runtime_checkable
class SessionStore(Protocol):
    """Stores conversations. Entries never change, so a version can always be read.

    A version is the id of an entry. Entries that follow the same entry are branches: neither contains the other.
    """

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        """Append an entry, and return its version. It is durable when this returns. An equal entry changes nothing.

        Raises ConversationNotFound if the session has not what it follows.
        """
        ...

    async def advance(self, session_id: str, head: SessionHead) -> None:
        """Set the version that an execution has reached in a thread. Existing versions stay readable."""
        ...

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by version, in the order of the conversation. Raises ConversationNotFound."""
        ...

    async def heads(self, session_id: str) -> list[SessionHead]:
        """The version that each execution has reached in each thread, in the order of their last change."""
        ...

    async def sessions(self) -> list[str]:
        """The ids of all sessions, in order."""
        ...

    async def delete(self, session_id: str) -> None:
        """Delete a session, if it exists. An execution that refers to it cannot continue."""
        ...

    async def threads(self, session_id: str) -> list[str]:
        """The ids of threads with messages."""
        return list(dict.fromkeys(head.thread_id for head in await self.heads(session_id) if head.version))

    async def messages(
        self, session_id: str, thread_id: str, version: str | None = None, *, execution_id: str | None = None
    ) -> list[Message]:
        """The messages of a thread: up to a version, or up to the head of an execution; by default the newest head.
        Empty for a thread without messages."""
        if version is None:
            versions = [
                head.version
                for head in await self.heads(session_id)
                if head.version and head.thread_id == thread_id and execution_id in (None, head.execution_id)
            ]
            version = versions[-1] if versions else ""
        return messages_in(await self.read(session_id, version))


class _OpenedSession(Protocol):
    """A session with exclusive write access."""

    @property
    def log(self) -> SessionLog: ...

    def append(self, line: Line) -> None: ...

    def sync(self) -> None: ...


class SessionLines(Protocol):
    """Stores the lines of sessions, in order."""

    @property
    def sealing(self) -> Sealing | None:
        """None if other users cannot read the lines."""

    def open(self, session_id: str, *, writes: bool) -> AbstractContextManager[_OpenedSession | None]: ...

    def remove(self, session_id: str) -> None: ...

    def session_ids(self) -> list[str]: ...


class LoggedSessionStore(SessionStore):
    """Over lines that are only appended."""

    def __init__(self, lines: SessionLines, *, blocks: bool) -> None:
        self._lines = lines
        self._blocks = blocks
        """Whether it waits for a disk or for other processes."""

    @property
    def keeps_plain_text(self) -> bool:
        """Whether its files contain messages as plain text."""
        return self._lines.sealing is not None and self._lines.sealing.is_plain

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        if bool(entry.messages) == bool(entry.repeats):
            raise ValueError(f"An entry has either messages or repeated entries, got {entry!r}.")
        return await self._put(session_id, line_of(entry))

    async def advance(self, session_id: str, head: SessionHead) -> None:
        await self._put(session_id, HeadLine(head.thread_id, head.execution_id, head.version))

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        return await self._read_log(session_id, lambda log: log.read(version))

    async def heads(self, session_id: str) -> list[SessionHead]:
        return await self._read_log(session_id, SessionLog.heads)

    async def sessions(self) -> list[str]:
        return sorted(await self._do(self._lines.session_ids))

    async def delete(self, session_id: str) -> None:
        check_identifier("session_id", session_id)
        await self._do(lambda: self._lines.remove(session_id))

    async def _put(self, session_id: str, new: EntryLine | HeadLine) -> str:
        """Returns its version."""
        check_identifier("session_id", session_id)

        def put() -> str:
            with self._lines.open(session_id, writes=True) as session:
                assert session is not None  # noqa: S101  # `writes` creates it
                log, line = session.log, new
                first = log.seal.first_line() if log.is_empty else None
                if isinstance(line, EntryLine):
                    line = with_id(line, log.seal.digest)
                if log.has(line):
                    session.sync()
                else:
                    for appended in (line,) if first is None else (first, line):
                        session.append(appended)
                return line.entry_id if isinstance(line, EntryLine) else line.version

        return await self._do(put)

    async def _read_log(self, session_id: str, read: Callable[[SessionLog], T]) -> T:
        check_identifier("session_id", session_id)

        def read_open() -> T:
            with self._lines.open(session_id, writes=False) as session:
                return read(SessionLog(session_id) if session is None else session.log)

        return await self._do(read_open)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self._blocks else work()


class InMemorySessionStore(LoggedSessionStore):
    """Stores conversations in the memory of the process: for tests and short-lived work."""

    def __init__(self) -> None:
        super().__init__(_MemoryLines(), blocks=False)


class _MemorySession:
    def __init__(self, session_id: str) -> None:
        self.log = SessionLog(session_id)

    def append(self, line: Line) -> None:
        """Through bytes, so that values equal those of a disk."""
        self.log.add(from_bytes(self.log.to_stored(line), "memory"))

    def sync(self) -> None:
        """Memory needs no sync."""


class _MemoryLines:
    sealing = None

    def __init__(self) -> None:
        self._sessions: dict[str, _MemorySession] = {}

    @contextmanager
    def open(self, session_id: str, *, writes: bool) -> Iterator[_MemorySession]:
        session = self._sessions.get(session_id) or _MemorySession(session_id)
        yield session
        if not session.log.is_empty:
            self._sessions[session_id] = session

    def remove(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def session_ids(self) -> list[str]:
        return list(self._sessions)
