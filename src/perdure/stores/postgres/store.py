"""A store in PostgreSQL, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Rewrite, Subscription
from perdure.stores.notify import PollInterval, bus_for
from perdure.stores.postgres import checkpoints, copies, journal, pruning, threads
from perdure.stores.postgres.commits import CommitWriter
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.journal import HeldThread
from perdure.stores.postgres.leases import Leases
from perdure.stores.postgres.threads import ThreadFilter
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

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await checkpoints.find_checkpoint(self.db, checkpoint_id)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        return await checkpoints.load_head(self.db, thread_id)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        return await checkpoints.read_chunks(self.db, thread_id, numbers)

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        return await checkpoints.list_infos(self.db, workflow_name, thread_id, limit, before)

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        selected = ThreadFilter(workflow_name, thread_id, prefix, statuses, limit, before)
        return await threads.list_threads(self.db, selected)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return await checkpoints.load_events(self.db, thread_id, seq)

    async def last_seq(self, thread_id: str) -> int:
        return await threads.load_last_seq(self.db, thread_id)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        selected = ThreadFilter(workflow_name, thread_id, prefix, limit=limit)
        return await threads.list_pending_requests(self.db, selected)

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return await threads.list_due(self.db, now, limit)

    async def has_thread(self, thread_id: str) -> bool:
        return await threads.has_thread(self.db, thread_id)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        return await threads.list_thread_ids(self.db, prefix, after, limit)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)

    async def pin(self, checkpoint_id: str) -> None:
        await copies.set_pin(self.db, checkpoint_id, is_pinned=True)

    async def unpin(self, checkpoint_id: str) -> None:
        await copies.set_pin(self.db, checkpoint_id, is_pinned=False)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        return await pruning.prune(self.db, thread_id, checkpoint_ids, events_before)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        return await threads.delete_thread(self.db, thread_id, if_unmoved_since)

    async def copy_thread(self, thread_id: str, to: str) -> None:
        await copies.copy_thread(self.db, thread_id, to)

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        return await copies.load_header(self.db, thread_id)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return await copies.load_commits(self.db, thread_id, after, limit)

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await copies.add_thread(self.db, header, commits)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return await copies.rewrite(self.db, thread_id, change)

    async def check(self) -> Sequence[Damage]:
        return await threads.find_damage(self.db)

    async def size(self) -> int:
        return await threads.measure_size(self.db)

    async def close(self) -> None:
        if self._leases.has_heartbeat:
            await asyncio.to_thread(self._leases.stop_heartbeat)
        await self.db.close()
