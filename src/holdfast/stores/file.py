"""A store in a folder: one append-only file of JSON lines for each thread, readable with any tool.

The files are the truth. Beside them lies `index.db` (`file_index.py`), which answers lists and finds, says who owns
what, and knows how much of each file was acknowledged. A line is appended and synced first, then the index is told. A
process that dies between the two leaves a file that is longer than the index says: whoever opens the thread next reads
the rest, and cuts off a last line that is not whole, since that was never acknowledged. A file that is shorter has lost
what was acknowledged, and that is an error.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import finalize

import msgspec

from holdfast.errors import (
    DamagedCheckpoint,
    DamagedStore,
    HoldfastError,
    StorageFailed,
    ThreadBusy,
    ThreadConflict,
    ThreadNotFound,
)
from holdfast.log import get_logger
from holdfast.records import Commit, JournalEntry, Lease, OpenedThread
from holdfast.stores.columns import to_id
from holdfast.stores.disk import Disk, FileLocked, locked_for_long
from holdfast.stores.file_index import FileIndex
from holdfast.stores.indexed import IndexedStore, delete_rows
from holdfast.stores.lines import Before, CommitLine, JournalLine, Line, NoLine, PostLine, commit_line
from holdfast.stores.packing import pack_body
from holdfast.stores.rewriting import copied_lines, pruned_lines
from holdfast.stores.rows import Payload, Standing
from holdfast.stores.sqlite_tables import Tables
from holdfast.stores.thread_files import ThreadFile, ThreadFiles
from holdfast.stores.together import WaitingEntry, WrittenTogether

logger = get_logger("stores")
LOCK_POLL_SECONDS = 0.01
READ_TIMES = 5
"""How often something is read before it is called damaged."""
T = TypeVar("T")


class FileStore(IndexedStore):
    """Implements `holdfast.store.Store`, for any number of processes of one machine."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self._busy_seconds = busy_seconds
        self.path = Path(path).absolute()  # the program may change its folder
        self._files = ThreadFiles(self.path, disk or Disk(syncs=fsync))
        self._index = FileIndex(self._files, busy_seconds)
        super().__init__("holdfast-files", self._index)
        self._journal = WrittenTogether(self._thread, self._write_journal)
        self._end_of_files = finalize(self, self._files.close)
        self._end_of_files.atexit = False  # the system closes them

    def _payload(self, thread_id: str, payload: Payload) -> bytes:
        """Empty for what is not there any more, or is not what was written."""
        if payload.place is None or payload.size is None:
            return b""
        try:
            line = self._files.read(thread_id, payload.place, payload.size)
        except (NoLine, FileNotFoundError):
            return b""
        if not isinstance(line, CommitLine) or line.number != payload.number:
            return b""
        return bytes(line.body)

    async def _with_file(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        return await self._patiently(lambda: self._thread.do(lambda: self._locked(thread_id, work)))

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """A file that another process has locked is waited for here, not in the store's own thread: it may have been
        stopped, and others are not to wait for it."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return await attempt()
            except FileLocked as error:
                if time.monotonic() >= until:
                    raise locked_for_long(error, self._busy_seconds) from error
            await asyncio.sleep(LOCK_POLL_SECONDS)

    def _locked(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        """With the thread's file locked, and the index in step with it."""
        return self._guarded(lambda: self._locked_once(thread_id, work))

    def _locked_once(self, thread_id: str, work: Callable[[ThreadFile], T]) -> T:
        while True:
            self._index.make_ready()
            with self._files.locked(thread_id) as file:
                if not self._index.is_current:  # made anew while this one waited: other owners, other fences
                    continue
                try:
                    self._index.catch_up(file)
                    return work(file)
                except HoldfastError:
                    self._remove_if_new(file)
                    raise

    def _guarded(self, work: Callable[[], T]) -> T:
        """An index that turns out to be damaged is made anew from the files, once; then the work is tried again."""
        try:
            try:
                return work()
            except DamagedStore as error:
                if error.path != str(self._index.path):
                    raise
                logger.warning("the index of %s is damaged, and made anew: %s", self.path, error)
                self._index.make_ready(is_damaged=True)
                return work()
        except OSError as error:
            raise StorageFailed("FileStore", f"use {str(self.path)!r}", str(error)) from error

    async def _do(self, work: Callable[[Tables], T], *, writes: bool = True, syncs: bool = True) -> T:
        if writes:
            return await self._thread.do(lambda: self._guarded(lambda: self._index.transact(work)))
        return await self._thread.do(lambda: self._guarded(lambda: self._read(work)))

    def _read(self, work: Callable[[Tables], T]) -> T:
        """Places and lines are not read in one step: where they do not fit, a file may have been written anew."""
        for _ in range(READ_TIMES - 1):
            self._index.make_ready()
            try:
                return self._index.transact(work, writes=False)
            except DamagedCheckpoint:
                self._index.settle()
        return self._index.transact(work, writes=False)

    async def _list(self, work: Callable[[Tables], T]) -> T:
        def do() -> T:
            self._index.make_ready()
            self._index.settle()
            return self._read(work)

        return await self._patiently(lambda: self._thread.do(lambda: self._guarded(do)))

    def _append(self, file: ThreadFile, line: Line) -> None:
        place, size = file.append(line)
        self._tell_index(file, lambda tables: self._index.take_in(tables, file, place, size, line))

    def _tell_index(self, file: ThreadFile, work: Callable[[Tables], None]) -> None:
        """Once a line is on the disk it has happened, whatever becomes of the index."""
        try:
            self._index.transact(work)
        except HoldfastError as error:
            logger.warning("thread %s: its index is behind its file, and follows later: %s", file.thread_id, error)

    async def close(self) -> None:
        await self._thread.do(self._files.close)
        await super().close()

    # ------------------------------------------------------------ owning a thread

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        def work(file: ThreadFile) -> OpenedThread:
            return self._index.transact(lambda tables: self._opened(tables, thread_id, owner, takeover))

        try:
            return await self._with_file(thread_id, work)
        except ThreadBusy:
            await self._do(lambda tables: tables.shorten_leases())
            raise

    def _remove_if_new(self, file: ThreadFile) -> None:
        """A thread that never got anything leaves no file behind."""
        if file.is_open and file.size == 0:
            self._files.remove(file)

    async def release(self, lease: Lease) -> None:
        def work(file: ThreadFile) -> None:
            self._index.transact(lambda tables: tables.release(lease))
            self._remove_if_new(file)

        self._index.held.discard(lease)
        try:
            await self._with_file(lease.thread_id, work)
        except HoldfastError:
            self._index.unreleased.append(lease)  # tried again with the next heartbeat
            raise

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        def check(tables: Tables) -> tuple[Standing, Before]:
            standing = tables.check(commit)
            return standing, tables.told_before(standing.thread)

        def work(file: ThreadFile) -> None:
            standing, before = self._index.transact(check, writes=False)
            line = commit_line(commit, pack_body(commit), before)
            place, size = file.append(line)
            payload = Payload(commit.number, None, None, place, size)
            self._tell_index(file, lambda tables: tables.append_at(standing, commit, payload, place + size))

        thread_id = commit.lease.thread_id
        await self._patiently(lambda: self._thread.do_to_the_end(lambda: self._locked(thread_id, work)))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._patiently(lambda: self._journal.add(lease, entry))

    def _write_journal(self, batch: Sequence[WaitingEntry]) -> None:
        for thread_id in dict.fromkeys(one.lease.thread_id for one in batch):
            mine = [one for one in batch if one.lease.thread_id == thread_id]
            try:
                self._locked(thread_id, partial(self._write_entries, batch=mine))
            except (HoldfastError, FileLocked) as error:
                for one in mine:
                    one.error = one.error or error

    def _write_entries(self, file: ThreadFile, batch: Sequence[WaitingEntry]) -> None:
        def prove(tables: Tables) -> None:
            for one in batch:
                try:
                    tables.prove(one.lease)
                except ThreadConflict as error:
                    one.error = error

        self._index.transact(prove, writes=False)
        good = [one for one in batch if one.error is None]
        if good:  # all with one lease: only one owner's can be proved
            entries = [(one.entry.delivery_id, msgspec.Raw(one.entry.body)) for one in good]
            self._append(file, JournalLine(good[0].lease.fence, entries))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        def work(file: ThreadFile) -> None:
            if not self._index.transact(lambda tables: tables.has_item(thread_id, item_id), writes=False):
                self._append(file, PostLine(item_id, kind, msgspec.Raw(body)))

        await self._with_file(thread_id, work)

    # ------------------------------------------------------------ removing and copying

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str]) -> int:
        doomed = set(checkpoint_ids)

        def check(tables: Tables) -> set[int]:
            rows = tables.bodies(thread_id)
            gone = {row.number for row in rows if row.checkpoint_id is not None and to_id(row.checkpoint_id) in doomed}
            head, owner = tables.head_of(thread_id), tables.owner_of(thread_id)
            if owner is not None and head is not None and head[0].number in gone:
                raise ThreadBusy(thread_id, owner)
            return gone

        def work(file: ThreadFile) -> int:
            gone = self._index.transact(check, writes=False)
            if gone:
                first = self._index.transact(lambda tables: self._index.first_line(tables, thread_id))
                waiting = self._index.transact(lambda tables: self._index.waiting(tables, thread_id))
                self._rewrite(file, pruned_lines(self._index.all_lines(file), gone, first, waiting))
            else:
                self._remove_if_new(file)
            return len(gone)

        return await self._with_file(thread_id, work)

    def _rewrite(self, file: ThreadFile, lines: list[Line]) -> None:
        # Should this process die in between, the places in the index are wrong: so it is told before that they are.
        self._index.transact(lambda tables: tables.set_size(file.thread_id, None))
        self._files.rewrite(file, lines)
        self._catch_up_now(file.thread_id)

    def _catch_up_now(self, thread_id: str) -> None:
        """After the point of no return. Should another process have the file, it is read anew by whoever comes next."""
        try:
            with self._files.locked_at_last(thread_id, self._busy_seconds) as file:
                self._index.catch_up(file)
        except FileLocked:
            logger.warning("thread %s: its index follows later, another process has its file locked", thread_id)

    async def delete_thread(self, thread_id: str) -> bool:
        def work(file: ThreadFile) -> bool:
            was_there = self._index.transact(lambda tables: delete_rows(tables, thread_id))
            self._files.remove(file)
            return was_there

        return await self._with_file(thread_id, work)

    async def copy_thread(self, thread_id: str, to: str) -> None:
        def check(tables: Tables) -> None:
            if tables.find_thread(thread_id) is None:
                raise ThreadNotFound(thread_id)
            if tables.find_thread(to) is not None:
                raise ThreadBusy(to, tables.owner_of(to))

        def work(file: ThreadFile) -> None:
            self._index.transact(check, writes=False)
            standing = self._index.transact(lambda tables: self._index.first_line(tables, thread_id))
            first = msgspec.structs.replace(standing, thread_id=to, fence=0, consumed=())
            lines = copied_lines(self._index.all_lines(file), first)
            with self._files.locked(to) as target:
                self._files.rewrite(target, lines)
            self._catch_up_now(to)
            self._index.transact(lambda tables: tables.move_to_end(tables.thread(to)))

        await self._with_file(thread_id, work)
