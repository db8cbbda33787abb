"""A store in PostgreSQL, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial, partialmethod
from uuid import UUID, uuid4

from perdure.clock import complete
from perdure.records import Commit, JournalEntry, Lease
from perdure.stores.notify import NotifyingStore, PollInterval, bus_for
from perdure.stores.packing import item_seal, seal
from perdure.stores.postgres import checkpoints, copies, pruning, threads
from perdure.stores.postgres.commits import CommitWriter
from perdure.stores.postgres.database import Batcher, Database
from perdure.stores.postgres.leases import HeldThread, Leases
from perdure.stores.postgres.rows import check_id, thread_key
from perdure.stores.postgres.urls import location_of
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


class PostgresStore(NotifyingStore):
    """Implements `perdure.store.Store`. A commit is one statement and one round trip; concurrent ones share it."""

    poll_interval = PollInterval(0.1, 1.0)

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "perdure",
        pool_size: int = 10,
        acquire_seconds: float = 30.0,
        statement_seconds: float = 30.0,
    ) -> None:
        self.db = Database(dsn, schema, pool_size, acquire_seconds, statement_seconds)
        self.location = location_of(dsn, schema)
        """Server, database and schema: stores with the same tables have the same location."""
        super().__init__(bus_for(("postgres", self.location)))
        self._leases = Leases(self.db)
        self.open, self.renew = self._leases.open, self._leases.renew
        self.thread_header = partial(copies.load_header, self.db)
        self.commits = partial(copies.load_commits, self.db)
        self._commits = CommitWriter(self.db)

    async def release(self, lease: Lease) -> None:
        if await self._leases.release(lease):
            await pruning.collect_garbage(self.db, lease.thread_id)
        self.bus.notify(lease.thread_id)

    async def commit(self, commit: Commit) -> None:
        await self._commits.write(commit, self._leases.held.get(commit.lease))
        self.bus.notify(commit.lease.thread_id)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        held = self._leases.held.get(lease) or HeldThread(has_journal=True)  # released, or opened by another object
        held.has_journal = True
        if held.journal is None:
            held.journal = Batcher(partial(_write_journal, self.db, lease))
        # Not cancelled halfway: an entry under way is recorded although a failed sibling ends the superstep meanwhile.
        await complete(held.journal.add((uuid4(), entry)))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        check_id("thread id", thread_id, None)
        check_id("item id", item_id)
        check_id("kind", kind)
        values = (thread_key(thread_id), thread_id, item_id, kind, body, item_seal(thread_id, item_id, kind, body))
        while not await self.db.value(_POST, *values):
            pass  # another process created or deleted the thread at this moment
        self.bus.notify(thread_id)

    async def close(self) -> None:
        if self._leases.heartbeat.is_beating:
            await asyncio.to_thread(self._leases.heartbeat.stop)
        await self.db.close()

    # Methods that are functions of the database, in the modules of their ideas.
    find_checkpoint = checkpoints.find_checkpoint
    head = checkpoints.load_head
    read_chunks = checkpoints.read_chunks
    infos = checkpoints.list_infos
    events_after = checkpoints.load_events
    thread_ids = threads.list_thread_ids
    last_seq = threads.load_last_seq
    pending_requests = threads.list_pending_requests
    due = threads.list_due
    delete_thread = threads.delete_thread
    check = threads.find_damage
    size = threads.measure_size
    pin = partialmethod(copies.set_pin, is_pinned=True)
    unpin = partialmethod(copies.set_pin, is_pinned=False)
    add_thread = copies.add_thread
    copy_thread = copies.copy_thread
    rewrite = copies.rewrite
    prune = pruning.prune
    threads = threads.list_threads  # the last: it hides the module


async def _write_journal(db: Database, lease: Lease, batch: Sequence[tuple[UUID, JournalEntry]]) -> Sequence[None]:
    thread_id, key = lease.thread_id, thread_key(lease.thread_id)
    entries = [(mark, entry.delivery_id, entry.body) for mark, entry in batch]
    rows = [(*entry, seal(thread_id, *entry[1:])) for entry in entries]
    columns = map(list, zip(*rows, strict=True))
    if await db.value(_APPEND, key, lease.fence, lease.owner, *columns) is None:
        raise fence_conflict(lease, await db.value("SELECT fence FROM {s}.threads WHERE thread = $1", key))
    return [None] * len(batch)
