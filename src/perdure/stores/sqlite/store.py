"""A store in one SQLite file, for any number of processes of one machine; its reading part also serves file stores."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

from perdure.errors import DamagedCheckpoint, PerdureError, ThreadBusy
from perdure.log import get_logger
from perdure.names import RESERVED_THREAD
from perdure.records import Commit, Damage, JournalEntry, Lease, OpenedThread, StoredCheckpoint
from perdure.store import Rewrite
from perdure.stores.layer import copy_thread
from perdure.stores.notify import NotifyingStore, bus_for
from perdure.stores.packing import pack_body, seal
from perdure.stores.sqlite import commits, health, history, lists, payloads, threads
from perdure.stores.sqlite.connection import SqliteConnection, SqliteWriter
from perdure.stores.sqlite.schema import SqliteDatabase

logger = get_logger("stores")
P = ParamSpec("P")
T = TypeVar("T")


_Work: TypeAlias = Callable[Concatenate[SqliteDatabase, P], T]
_Method: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _method(way: Literal["read_lists", "write"], work: _Work[P, T]) -> _Method[P, T]:
    """The method of a store that does this work with its tables; to write, in a transaction."""

    async def method(store: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await getattr(store._tables, way)(lambda db: work(db, *args, **options))
        return result

    return method


class IndexedStore(NotifyingStore, ABC):
    """All of `perdure.store.Store` that writes no payload."""

    def __init__(self, tables: SqliteWriter) -> None:
        super().__init__(bus_for(tables.connection.path))
        self._tables = tables
        self._connection = tables.connection
        self.close = tables.close

    @abstractmethod
    async def _check_files(self) -> Sequence[Damage]:
        """Damage that shows without reading single threads."""

    @abstractmethod
    async def _prune(self, thread_id: str, checkpoint_ids: set[str], events_before: int) -> int:
        """`prune`, without returning pages to the system."""

    @abstractmethod
    async def _delete(self, thread_id: str, if_unmoved_since: int | None) -> bool:
        """`delete_thread`, without returning pages to the system."""

    @abstractmethod
    def _release(self, lease: Lease) -> Awaitable[bool]:
        """Release the thread; whether its garbage is to be collected now."""

    @abstractmethod
    def _free(self, thread_id: str) -> object:
        """Free the space of what was pruned, on the worker thread."""

    # ------------------------------------------------------------ owning a thread

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        def work(db: SqliteDatabase) -> OpenedThread:
            opened = open_thread(db, thread_id, owner, takeover=takeover)
            self._connection.held.add(opened.lease)
            return opened

        try:
            return await self._tables.claim(thread_id, work)
        except ThreadBusy:
            await self._tables.write(threads.shorten_leases, syncs=False)
            raise

    async def release(self, lease: Lease) -> None:
        self._connection.held.discard(lease)
        try:
            is_due = await self._release(lease)
        except PerdureError:
            self._connection.unreleased.append(lease)
            raise
        if self.has_subscribers(lease.thread_id):
            self.bus.notify(lease.thread_id)
        if is_due:
            await self._collect_garbage(lease.thread_id)

    async def renew(self, lease: Lease) -> None:
        def work(db: SqliteDatabase) -> None:
            threads.prove_lease(db, lease)
            threads.renew_process(db)

        await self._tables.write(work, syncs=False)

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await self._tables.read_lists(lambda db: payloads.read_stored(db, lists.find_info(db, checkpoint_id)))

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        return await self._tables.read_lists(lambda db: payloads.read_stored(db, lists.read_head(db, thread_id)))

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        wanted = [*numbers]
        return await self._tables.read(lambda db: payloads.read_chunks(db, thread_id, wanted))

    infos = _method("read_lists", lists.list_checkpoints)
    threads = _method("read_lists", lists.list_threads)
    thread_ids = _method("read_lists", lists.list_thread_ids)
    pending_requests = _method("read_lists", lists.list_requests)
    due = _method("read_lists", lists.list_due_threads)
    events_after = _method("read_lists", payloads.read_events)
    last_seq = _method("read_lists", lists.read_last_seq)
    thread_header = _method("read_lists", history.read_standing)
    commits = _method("read_lists", payloads.read_commits)

    # ------------------------------------------------------------ as a whole

    copy_thread = copy_thread

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        pruned = set(checkpoint_ids)
        if not await self._tables.read_lists(lambda db: history.has_to_prune(db, thread_id, pruned, events_before)):
            return 0
        count = await self._prune(thread_id, pruned, events_before)
        await self._free_pages()
        return count

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        is_deleted = await self._delete(thread_id, if_unmoved_since)
        await self._free_pages()
        return is_deleted

    async def _collect_garbage(self, thread_id: str) -> None:
        """Never raises: the next commit that prunes tries it again."""
        try:
            await self._tables.worker.run(partial(self._free, thread_id), uncancellable=True)
        except Exception as error:  # noqa: BLE001  # the commit was made
            logger.warning("thread %s: pruning failed, space not freed: %s", thread_id, error)

    async def check(self) -> Sequence[Damage]:
        damage = [*await self._check_files()]
        for thread_id in await self._tables.read_lists(health.list_all_thread_ids):
            try:
                damage += await self._tables.read_lists(partial(health.check_thread, thread_id=thread_id))
            except (PerdureError, TypeError, ValueError) as error:  # rows with values of other types
                damage.append(Damage(f"it cannot be looked at: {error}", thread_id))
        return damage

    async def _free_pages(self) -> None:
        """Return free pages to the system. Step by step, so that other work gets its turn."""
        while await self._tables.worker.run(self._connection.free_pages):
            pass
        await self._tables.worker.run(self._connection.truncate_log)


def open_thread(db: SqliteDatabase, thread_id: str, owner: str, *, takeover: bool) -> OpenedThread:
    """Claim the thread, and read its head, journal and inbox. Raises ThreadBusy; damage is part of the result."""
    thread = threads.claim_thread(db, thread_id, owner, takeover=takeover)
    newest = commits.newest_checkpoint(db, thread.thread)
    info = None if newest is None else lists.read_info(db, thread.thread, newest)
    root, damage, journal, inbox = None, None, [], []
    try:
        commits.check_thread_row(db, thread_id, thread, newest)
        if newest is not None and info is None:
            raise DamagedCheckpoint("of its head", f"commit {newest} is not where it should be", thread_id)
        root = None if info is None else payloads.read_root(db, info)
        journal = threads.read_journal(db, thread.thread, thread_id, thread.number)
        inbox = threads.read_inbox(db, thread.thread, thread_id)
        db.without_journal.discard(thread_id)
        if not journal:
            db.without_journal.add(thread_id)
    except DamagedCheckpoint as error:
        root, damage = None, error.reason
    return OpenedThread(
        lease=Lease(thread_id, owner, thread.fence),
        number=thread.number,
        info=info,
        root=root,
        last_seq=thread.last_seq,
        journal=journal,
        inbox=inbox,
        status=thread.status,
        damage=damage,
        is_encrypted=threads.find_thread(db, RESERVED_THREAD) is not None,
    )


class SqliteStore(IndexedStore):
    """Implements `perdure.store.Store`. A commit is one transaction, and one hop to the worker thread and back."""

    def __init__(self, path: str | os.PathLike[str], *, synchronous: str = "FULL", busy_seconds: float = 30.0) -> None:
        self.path = Path(path).absolute()  # the program may change its working folder
        self._writer = SqliteWriter("perdure-sqlite", SqliteConnection(self.path, synchronous, busy_seconds))
        super().__init__(self._writer)

    async def size(self) -> int:
        return sum(health.file_size(Path(f"{self.path}{suffix}")) for suffix in ("", "-wal", "-shm"))

    def _release(self, lease: Lease) -> Awaitable[bool]:
        def work(db: SqliteDatabase) -> bool:
            threads.release_lease(db, lease)
            return threads.is_collection_due(db, lease.thread_id, at_rest=True)

        return self._writer.write(work, syncs=False)

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        thread_id, body = commit.lease.thread_id, pack_body(commit)
        payload = seal(thread_id, commit.number, body), body
        prunes = bool(commit.prunes or commit.prunes_events_before)

        def work(db: SqliteDatabase) -> bool:
            thread = commits.check_commit(db, commit)
            commits.insert_commit(db, thread, commit, payload)
            return prunes and commits.prune_with_commit(db, thread, commit)

        is_due = await self._writer.write(work, uncancellable=True, size=len(body))
        if self.has_subscribers(thread_id):
            self.bus.notify(thread_id)
        if is_due:
            await self._collect_garbage(thread_id)

    def _free(self, thread_id: str) -> None:
        # Not synced: garbage that a power cut brings back is collected again.
        self._connection.transact(lambda db: history.prune_thread(db, thread_id, set()), writes=True, syncs=False)
        self._connection.free_pages(if_many=True)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        def work(db: SqliteDatabase) -> None:
            thread = threads.prove_lease(db, lease)
            threads.append_journal(db, thread.thread, lease.thread_id, entry.delivery_id, entry.body)

        await self._writer.write(work)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._writer.write(lambda db: threads.post_item(db, thread_id, item_id, kind, body))
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ keeping, removing and copying

    pin = _method("write", partial(history.set_pin, is_pinned=True))
    unpin = _method("write", partial(history.set_pin, is_pinned=False))
    _prune = _method("write", history.prune_thread)
    _delete = _method("write", history.delete_thread)
    add_thread = _method("write", history.add_thread)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        """Leaves damaged payloads as they are, and raises the first DamagedCheckpoint when all others are done."""
        number: int | None = 0
        parts = []
        while number is not None:  # a page for each transaction: other writers get their turn
            page = partial(history.rewrite_page, thread_id=thread_id, after=number, change=change)
            number, changes = await self._writer.write(page)
            parts.append(changes)
        parts.append(await self._writer.write(lambda db: history.rewrite_pending(db, thread_id, change)))
        for error in chain.from_iterable(part.damage for part in parts):
            raise error
        return sum(part.count for part in parts)

    async def _check_files(self) -> Sequence[Damage]:
        reasons = await self._writer.worker.run(self._connection.check_integrity)
        reasons += await self._writer.read(health.check_schema)
        return [Damage(reason) for reason in [*reasons, *await self._writer.read(health.find_orphans)]]
