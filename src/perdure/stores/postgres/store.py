"""A store in PostgreSQL, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from perdure.records import Commit, JournalEntry, Lease, OpenedThread
from perdure.store import Subscription
from perdure.stores.notify import PollInterval, bus_for
from perdure.stores.postgres import checkpoints, copies, journal, pruning, threads
from perdure.stores.postgres.commits import CommitWriter
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.journal import HeldThread
from perdure.stores.postgres.leases import Leases
from perdure.stores.postgres.urls import location_of


class PostgresStore:
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
        self.bus = bus_for(("postgres", self.location))
        self.has_subscribers = self.bus.has_subscribers
        self._leases = Leases(self.db)
        self._commits = CommitWriter(self.db)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        return await self._leases.open(thread_id, owner, takeover=takeover)

    async def renew(self, lease: Lease) -> None:
        await self._leases.renew(lease)

    async def release(self, lease: Lease) -> None:
        if await self._leases.release(lease):
            await pruning.collect_garbage(self.db, lease.thread_id)
        self.bus.notify(lease.thread_id)

    async def commit(self, commit: Commit) -> None:
        await self._commits.write(commit, self._leases.held.get(commit.lease))
        self.bus.notify(commit.lease.thread_id)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        held = self._leases.held.get(lease)
        if held is None:  # released, or opened by another object
            held = HeldThread(self.db, lease, has_journal=True)
        await journal.append_journal(held, entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await journal.post(self.db, thread_id, item_id, kind, body)
        self.bus.notify(thread_id)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)

    async def close(self) -> None:
        if self._leases.has_heartbeat:
            await asyncio.to_thread(self._leases.stop_heartbeat)
        await self.db.close()

    # Methods that are functions of the database, in the modules of their ideas.
    find_checkpoint = checkpoints.find_checkpoint
    head = checkpoints.load_head
    read_chunks = checkpoints.read_chunks
    infos = checkpoints.list_infos
    events_after = checkpoints.load_events
    has_thread = threads.has_thread
    thread_ids = threads.list_thread_ids
    last_seq = threads.load_last_seq
    pending_requests = threads.list_pending_requests
    due = threads.list_due
    delete_thread = threads.delete_thread
    check = threads.find_damage
    size = threads.measure_size
    pin = copies.pin
    unpin = copies.unpin
    thread_header = copies.load_header
    commits = copies.load_commits
    add_thread = copies.add_thread
    copy_thread = copies.copy_thread
    rewrite = copies.rewrite
    prune = pruning.prune
    threads = threads.list_threads  # the last: it hides the module
