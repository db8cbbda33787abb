"""The part of a store that only reads SQLite tables: the same for a SQLite store and for the index of a file store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from perdure.errors import PerdureError
from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    Lease,
    LoggedEvents,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Subscription
from perdure.stores.notify import PollInterval, bus_for
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.integrity import check_thread, list_all_thread_ids
from perdure.stores.sqlite.lists import (
    ListQuery,
    find_info,
    list_checkpoints,
    list_due_threads,
    list_requests,
    list_thread_ids,
    list_threads,
    read_head,
    read_last_seq,
)
from perdure.stores.sqlite.owners import prove_lease, renew_process
from perdure.stores.sqlite.payloads import ReadPayloads, read_chunks, read_commits, read_events, read_stored
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.transfer import read_standing
from perdure.stores.worker import WorkerThread

T = TypeVar("T")


class TableAccess(Protocol):
    """How a store reaches its tables. Each call is one transaction."""

    worker: WorkerThread

    @property
    def connection(self) -> Connection:
        """Used on the worker thread only."""

    async def read(self, work: Callable[[SqliteDatabase], T]) -> T:
        """Read one thread."""

    async def read_lists(self, work: Callable[[SqliteDatabase], T]) -> T:
        """Read across threads."""

    async def write(self, work: Callable[[SqliteDatabase], T], *, syncs: bool = True) -> T:
        """All of the work happens, or none."""

    async def close(self) -> None: ...


class IndexedStore:
    """All of `perdure.store.Store` that writes no payload."""

    poll_interval = PollInterval()

    def __init__(self, tables: TableAccess, read_payloads: ReadPayloads) -> None:
        self.bus = bus_for(tables.connection.path)
        self.publish, self.has_subscribers = self.bus.publish, self.bus.has_subscribers
        self._tables = tables
        self._read_payloads = read_payloads

    async def close(self) -> None:
        await self._tables.close()

    async def renew(self, lease: Lease) -> None:
        def work(db: SqliteDatabase) -> None:
            prove_lease(db, lease)
            renew_process(db)

        await self._tables.write(work, syncs=False)

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        def work(db: SqliteDatabase) -> StoredCheckpoint | None:
            return read_stored(db, self._read_payloads, find_info(db, checkpoint_id))

        return await self._tables.read_lists(work)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        def work(db: SqliteDatabase) -> StoredCheckpoint | None:
            return read_stored(db, self._read_payloads, read_head(db, thread_id))

        return await self._tables.read_lists(work)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        wanted = [*numbers]
        return await self._tables.read(lambda db: read_chunks(db, self._read_payloads, thread_id, wanted))

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        return await self._tables.read_lists(lambda db: list_checkpoints(db, workflow_name, thread_id, limit, before))

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
        query = ListQuery(workflow_name, thread_id, prefix, statuses)
        return await self._tables.read_lists(lambda db: list_threads(db, query, limit, before))

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        return await self._tables.read_lists(lambda db: list_thread_ids(db, prefix, after, limit))

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        query = ListQuery(workflow_name, thread_id, prefix)
        return await self._tables.read_lists(lambda db: list_requests(db, query, limit))

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return await self._tables.read_lists(lambda db: list_due_threads(db, now, limit))

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return await self._tables.read_lists(lambda db: read_events(db, self._read_payloads, thread_id, seq))

    async def last_seq(self, thread_id: str) -> int:
        return await self._tables.read_lists(lambda db: read_last_seq(db, thread_id))

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        return await self._tables.read_lists(lambda db: read_standing(db, thread_id))

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return await self._tables.read_lists(lambda db: read_commits(db, self._read_payloads, thread_id, after, limit))

    # ------------------------------------------------------------ notifications

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)

    # ------------------------------------------------------------ as a whole

    async def check(self) -> Sequence[Damage]:
        damage = [*await self._check_files()]
        for thread_id in await self._tables.read_lists(list_all_thread_ids):
            try:
                damage += await self._tables.read_lists(
                    partial(check_thread, read=self._read_payloads, thread_id=thread_id)
                )
            except (PerdureError, TypeError, ValueError) as error:  # rows with values of other types
                damage.append(Damage(f"it cannot be looked at: {error}", thread_id))
        return damage

    async def _check_files(self) -> Sequence[Damage]:
        """Damage that shows without reading single threads."""
        raise NotImplementedError(f"{type(self).__name__} must implement this method.")

    async def _free_pages(self) -> None:
        """Return free pages to the system. Step by step, so that other work gets its turn."""
        while await self._tables.worker.run(self._tables.connection.free_pages):
            pass
        await self._tables.worker.run(self._tables.connection.truncate_log)
