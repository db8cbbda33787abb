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
    """Keeps conversations. Nothing that was said is ever changed, so whoever knows a version can always read it.

    A version is the id of an entry. Those that follow the same one are branches: neither sees the other.
    """

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        """Add an entry, and give its version. It is stored when this returns. The same entry again changes nothing.

        Raises ConversationNotFound if the session has not what it follows.
        """
        ...

    async def advance(self, session_id: str, head: SessionHead) -> None:
        """Say how far an execution has come in a thread. Nothing is lost by it: versions stay what they are."""
        ...

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        """The entries up to a version, by version, in the order in which they are part of the conversation. Raises
        ConversationNotFound."""
        ...

    async def heads(self, session_id: str) -> list[SessionHead]:
        """How far each execution has come in each thread; the one that was moved last comes last."""
        ...

    async def sessions(self) -> list[str]:
        """The ids of all sessions, in order."""
        ...

    async def delete(self, session_id: str) -> None:
        """Forget all of it. An execution that refers to it cannot go on. Nothing happens if there is none."""
        ...

    async def threads(self, session_id: str) -> list[str]:
        """In which something was said."""
        return list(dict.fromkeys(one.thread_id for one in await self.heads(session_id) if one.version))

    async def messages(
        self, session_id: str, thread_id: str, version: str | None = None, *, execution_id: str | None = None
    ) -> list[Message]:
        """What was said in a thread: up to a version, or by how far an execution has come; else the one that spoke
        last. Empty where nothing was said."""
        if version is None:
            found = [
                one.version
                for one in await self.heads(session_id)
                if one.version and one.thread_id == thread_id and execution_id in (None, one.execution_id)
            ]
            version = found[-1] if found else ""
        return messages_in(await self.read(session_id, version))


class _OpenedSession(Protocol):
    """A session that nobody else appends to meanwhile."""

    @property
    def log(self) -> SessionLog: ...

    def append(self, line: Line) -> None: ...

    def sync(self) -> None: ...


class _Keeper(Protocol):
    """Whatever keeps the lines of sessions, in order."""

    @property
    def sealing(self) -> Sealing | None:
        """None where nothing is kept that somebody else could read."""

    def opened(self, session_id: str, *, writes: bool) -> AbstractContextManager[_OpenedSession | None]: ...

    def remove(self, session_id: str) -> None: ...

    def session_ids(self) -> list[str]: ...


class LoggedSessionStore(SessionStore):
    """Over lines that are only ever added."""

    def __init__(self, keeper: _Keeper, *, blocks: bool) -> None:
        self._keeper = keeper
        self._blocks = blocks
        """Whether it has to wait for a disk, or for other processes."""

    @property
    def keeps_plain_text(self) -> bool:
        """Whether whoever has its files can read what was said."""
        return self._keeper.sealing is not None and self._keeper.sealing.is_plain

    async def append(self, session_id: str, entry: SessionEntry) -> str:
        if bool(entry.messages) == bool(entry.repeats):
            raise ValueError(f"An entry has either messages or entries that it repeats, got {entry!r}.")
        return await self._put(session_id, line_of(entry))

    async def advance(self, session_id: str, head: SessionHead) -> None:
        await self._put(session_id, HeadLine(head.thread_id, head.execution_id, head.version))

    async def read(self, session_id: str, version: str) -> dict[str, SessionEntry]:
        return await self._look(session_id, lambda log: log.read(version))

    async def heads(self, session_id: str) -> list[SessionHead]:
        return await self._look(session_id, SessionLog.heads)

    async def sessions(self) -> list[str]:
        return sorted(await self._do(self._keeper.session_ids))

    async def delete(self, session_id: str) -> None:
        check_identifier("session_id", session_id)
        await self._do(lambda: self._keeper.remove(session_id))

    async def _put(self, session_id: str, given: EntryLine | HeadLine) -> str:
        """Gives its version."""
        check_identifier("session_id", session_id)

        def put() -> str:
            with self._keeper.opened(session_id, writes=True) as session:
                assert session is not None  # noqa: S101  # made, if there was none
                log, line = session.log, given
                first = log.seal.begun() if log.is_empty else None
                if isinstance(line, EntryLine):
                    line = with_id(line, log.seal.digest)
                if log.knows(line):
                    session.sync()
                else:
                    for one in (line,) if first is None else (first, line):
                        session.append(one)
                return line.entry_id if isinstance(line, EntryLine) else line.version

        return await self._do(put)

    async def _look(self, session_id: str, look: Callable[[SessionLog], T]) -> T:
        check_identifier("session_id", session_id)

        def read() -> T:
            with self._keeper.opened(session_id, writes=False) as session:
                return look(SessionLog(session_id) if session is None else session.log)

        return await self._do(read)

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self._blocks else work()


class InMemorySessionStore(LoggedSessionStore):
    """Keeps conversations as long as the process lives: for tests and short-lived work."""

    def __init__(self) -> None:
        super().__init__(_Memory(), blocks=False)


class _InMemory:
    def __init__(self, session_id: str) -> None:
        self.log = SessionLog(session_id)

    def append(self, line: Line) -> None:
        """Through its bytes, so that it is what a disk would give back."""
        self.log.take(from_bytes(self.log.kept(line), "memory"))

    def sync(self) -> None:
        """There is nothing to lose."""


class _Memory:
    sealing = None

    def __init__(self) -> None:
        self._sessions: dict[str, _InMemory] = {}

    @contextmanager
    def opened(self, session_id: str, *, writes: bool) -> Iterator[_InMemory]:
        found = self._sessions.get(session_id) or _InMemory(session_id)
        yield found
        if not found.log.is_empty:
            self._sessions[session_id] = found

    def remove(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def session_ids(self) -> list[str]:
        return list(self._sessions)
