"""What is written between commits: the journal of a thread's owner, and the inbox, which needs no owner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID, uuid4

from perdure.cancelling import complete
from perdure.records import JournalEntry, Lease
from perdure.stores.packing import item_seal, seal
from perdure.stores.postgres.database import Batcher, Database
from perdure.stores.postgres.rows import check_id, thread_key
from perdure.stores.process_identity import fence_conflict

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


class HeldThread:
    """What this process knows of a thread that it owns."""

    __slots__ = ("has_journal", "journal")

    def __init__(self, db: Database, lease: Lease, *, has_journal: bool) -> None:
        self.has_journal = has_journal
        """Whether the journal may have entries. Another process cannot add one without taking the thread over."""
        self.journal = Batcher(partial(_write_journal, db, lease))


async def append_journal(held: HeldThread, entry: JournalEntry) -> None:
    held.has_journal = True
    # Not cancelled halfway: an entry under way is recorded although a failed sibling ends the superstep meanwhile.
    await complete(held.journal.add((uuid4(), entry)))


async def _write_journal(db: Database, lease: Lease, batch: Sequence[tuple[UUID, JournalEntry]]) -> Sequence[None]:
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
        raise fence_conflict(lease, await db.value("SELECT fence FROM {s}.threads WHERE thread = $1", key))
    return [None] * len(batch)


async def post(db: Database, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
    check_id("thread id", thread_id, None)
    check_id("item id", item_id)
    check_id("kind", kind)
    values = (thread_key(thread_id), thread_id, item_id, kind, body, item_seal(thread_id, item_id, kind, body))
    while not await db.value(_POST, *values):
        pass  # another process created or deleted the thread at this moment
