"""What is written between commits: the journal of a thread's owner, and the inbox, which needs no owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from perdure.cancelling import await_uncancelled
from perdure.records import JournalEntry, Lease
from perdure.stores.packing import seal
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rows import check_id, fence_conflict, item_seal, thread_key

T = TypeVar("T")

_APPEND = """
WITH mine AS (UPDATE {s}.threads SET journal_writes = journal_writes + 1 WHERE thread = $1 AND fence = $2 AND owner = $3
  RETURNING 1),
written AS (INSERT INTO {s}.journal (thread, mark, delivery_id, body, seal)
  SELECT $1, e.mark, e.delivery_id, e.body, e.seal FROM mine, unnest($4::uuid[], $5::bigint[], $6::bytea[], $7::bytea[])
    WITH ORDINALITY e (mark, delivery_id, body, seal, place) ORDER BY e.place ON CONFLICT DO NOTHING)
SELECT 1 FROM mine
"""
"""Updates the thread's row, so that a process that takes the thread over waits for the entry and sees it."""

_POST = """
WITH created AS (INSERT INTO {s}.threads (thread, thread_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1),
locked AS (SELECT 1 FROM {s}.threads WHERE thread = $1 FOR KEY SHARE),
posted AS (INSERT INTO {s}.inbox (thread, item_id, kind, body, seal) SELECT $1, $3::text, $4::text, $5::bytea, $6::bytea
  WHERE EXISTS (SELECT 1 FROM created) OR EXISTS (SELECT 1 FROM locked) ON CONFLICT DO NOTHING)
SELECT EXISTS (SELECT 1 FROM created) OR EXISTS (SELECT 1 FROM locked)
"""
"""The lock prevents that the thread is deleted meanwhile. It does not wait for commits."""


class BatchWriter(Generic[T]):
    """One caller writes the items of all that wait; items added meanwhile form the next batch. For one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[T, asyncio.Future[bool]]] = []
        self._is_writing = False

    async def add(self, item: T, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        """Return when the item is written. Items are written in the order of adding. An item may be written again if
        the caller that wrote it was cancelled."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._is_writing and await self._is_written(done):
            return
        self._is_writing = True  # this caller writes, for all that wait
        batch, self._waiting = self._waiting, []
        try:
            await write([item for item, _ in batch])
        except asyncio.CancelledError:
            others = [entry for entry in batch if entry[1] is not done and not entry[1].done()]
            self._waiting = others + self._waiting
            raise
        except Exception as error:
            for _, other in batch:
                if other is not done and not other.done():
                    other.set_exception(error)
                    other.exception()  # its caller may be gone
            raise
        else:
            for _, other in batch:
                if not other.done():
                    other.set_result(True)
        finally:
            self._wake_next()

    async def _is_written(self, done: asyncio.Future[bool]) -> bool:
        """False: the caller writes the next batch."""
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None and not done.result():
                self._waiting = [entry for entry in self._waiting if entry[1] is not done]
                self._wake_next()  # this caller was to write
            raise

    def _wake_next(self) -> None:
        """Let the first caller that waits write the next batch."""
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]
        self._is_writing = bool(self._waiting)
        if self._waiting:
            self._waiting[0][1].set_result(False)


class HeldThread:
    """What this process knows of a thread that it owns."""

    __slots__ = ("has_journal", "journal")

    def __init__(self, has_journal: bool) -> None:
        self.has_journal = has_journal
        """Whether the journal may have entries. Another process cannot add one without taking the thread over."""
        self.journal: BatchWriter[tuple[UUID, JournalEntry]] = BatchWriter()


async def append_journal(db: Database, held: HeldThread, lease: Lease, entry: JournalEntry) -> None:
    held.has_journal = True
    # Not cancelled halfway: an entry under way is recorded although a failed sibling ends the superstep meanwhile.
    adding = held.journal.add((uuid4(), entry), lambda batch: _write_journal(db, lease, batch))
    _, cancelled = await await_uncancelled(adding)
    if cancelled is not None:
        raise cancelled


async def _write_journal(db: Database, lease: Lease, batch: Sequence[tuple[UUID, JournalEntry]]) -> None:
    thread_id, key = lease.thread_id, thread_key(lease.thread_id)
    is_owner = await db.value(
        _APPEND,
        key,
        lease.fence,
        lease.owner,
        [mark for mark, _ in batch],
        [entry.delivery_id for _, entry in batch],
        [entry.body for _, entry in batch],
        [seal(thread_id, entry.delivery_id, entry.body) for _, entry in batch],
    )
    if is_owner is None:
        raise fence_conflict(lease, await db.row("SELECT fence FROM {s}.threads WHERE thread = $1", key))


async def post(db: Database, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
    check_id("thread id", thread_id, None)
    check_id("item id", item_id)
    check_id("kind", kind)
    values = (thread_key(thread_id), thread_id, item_id, kind, body, item_seal(thread_id, item_id, kind, body))
    while not await db.value(_POST, *values):
        pass  # another process created or deleted the thread at this moment
