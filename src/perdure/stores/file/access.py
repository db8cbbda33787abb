"""Access to the files of a store: each locked while it is used, with the index in step with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar
from weakref import finalize

import msgspec

from perdure.errors import DamagedCheckpoint, DamagedStore, PerdureError, StorageFailed, ThreadConflict
from perdure.log import get_logger
from perdure.records import JournalEntry, Lease
from perdure.stores.disk import Disk, FileLocked, locked_for_long
from perdure.stores.file.folder import LockedFile, ThreadFiles
from perdure.stores.file.index import FileIndex
from perdure.stores.file.lines import JournalLine, Line
from perdure.stores.file.replay import index_line
from perdure.stores.sqlite.connection import SqliteWriter
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import prove_lease
from perdure.stores.worker import Job

logger = get_logger("stores")
LOCK_POLL_SECONDS = 0.01
MIN_JOURNAL_BYTES = 16 * 1024
MAX_REWRITE_BYTES = 16 * 1024 * 1024
"""A release rewrites a file with much settled journal, unless it is so large that its caller would wait for long."""
MAX_READS = 4
"""Reads without a lock: after that many with damage, the file is locked for another one."""
T = TypeVar("T")


_Entry: TypeAlias = tuple[Lease, JournalEntry]
"""A journal entry that waits to be written."""


class FileAccess(SqliteWriter):
    """Reads and writes of a file store. All blocking work is done on one worker thread."""

    def __init__(self, folder: Path, disk: Disk, busy_seconds: float) -> None:
        self._folder = folder
        self._busy_seconds = busy_seconds
        self.files = ThreadFiles(folder, disk)
        self.index = FileIndex(self.files, busy_seconds)
        super().__init__("perdure-files", self.index)
        self._end_of_files = finalize(self, self.files.close)
        self._end_of_files.atexit = False  # the system closes them
        self._journal_bytes: dict[str, int] = {}
        """Bytes of journal that this store wrote to the file of a thread since it opened the thread."""

    async def close(self) -> None:
        await self.worker.run(self.files.close)
        await super().close()

    # ------------------------------------------------------------ one thread's file

    async def with_file(self, thread_id: str, work: Callable[[LockedFile], T], *, uncancellable: bool = False) -> T:
        """Do the work with the thread's file locked, and the index in step with it."""
        return await self.wait_for_locks(
            lambda: self.worker.run(lambda: self.lock(thread_id, work), uncancellable=uncancellable)
        )

    async def wait_for_locks(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat the attempt while another process has the file locked. Raises StorageFailed after `busy_seconds`.

        It waits here and not on the worker thread: that process may be stopped, and other threads must not wait for it.
        """
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return await attempt()
            except FileLocked as error:
                if time.monotonic() >= until:
                    raise locked_for_long(error, self._busy_seconds) from error
            await asyncio.sleep(LOCK_POLL_SECONDS)

    def lock(self, thread_id: str, work: Callable[[LockedFile], T]) -> T:
        """`with_file`, on the worker thread. Raises FileLocked."""

        def attempt() -> T:
            while True:
                self.index.make_ready()
                with self.files.lock(thread_id) as file:
                    if not self.index.is_current:  # rebuilt while this thread waited: other owners, other fences
                        continue
                    try:
                        self.index.catch_up(file)
                        return work(file)
                    except PerdureError:
                        self.remove_if_new(file)
                        raise

        return self.guard(attempt)

    def guard(self, work: Callable[[], T]) -> T:
        """Rebuild the index once if it turns out to be damaged, and repeat the work."""
        try:
            try:
                return work()
            except DamagedStore as error:
                if error.path != str(self.index.path):
                    raise
                logger.warning("the index of %s is damaged; rebuilding it from the files: %s", self._folder, error)
                self.index.make_ready(is_damaged=True)
                return work()
        except OSError as error:
            raise StorageFailed("FileStore", f"use {str(self._folder)!r}", str(error)) from error

    # ------------------------------------------------------------ the index

    def claim(self, thread_id: str, work: Callable[[SqliteDatabase], T]) -> Awaitable[T]:
        return self.with_file(thread_id, lambda _: self.index.transact(work))

    async def write(self, work: Callable[[SqliteDatabase], T], **_: object) -> T:
        return await self.worker.run(lambda: self.guard(lambda: self.index.transact(work)))

    async def read(self, work: Callable[[SqliteDatabase], T]) -> T:
        return await self.worker.run(lambda: self.guard(lambda: self._read(work)))

    async def read_lists(self, work: Callable[[SqliteDatabase], T]) -> T:
        def read() -> T:
            self.index.make_ready()
            self.index.settle()
            return self._read(work)

        return await self.wait_for_locks(lambda: self.worker.run(lambda: self.guard(read)))

    def _read(self, work: Callable[[SqliteDatabase], T]) -> T:
        """Places and lines are not read in one step: where they do not fit, another process rewrites the file."""
        thread_id = None
        for _ in range(MAX_READS):
            self.index.make_ready()
            try:
                return self.index.read(work)
            except DamagedCheckpoint as error:
                thread_id = error.thread_id
                self.index.settle()
        if thread_id is None or not self.files.path_of(thread_id).exists():
            return self.index.read(work)
        with self.files.lock(thread_id, self._busy_seconds) as file:
            self.index.catch_up(file)
            return self.index.read(work)

    # ------------------------------------------------------------ changing a locked file

    def append(self, file: LockedFile, line: Line) -> None:
        place, size = file.append(line)
        self.update_index(file, lambda db: index_line(db, file.thread_id, (place, size, line)))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        """Append it to the journal. Entries that wait at the same time are one line for each thread."""
        await self.wait_for_locks(lambda: self.worker.run((lease, entry), self._append_entries))

    def _append_entries(self, jobs: list[Job[_Entry]]) -> None:
        for thread_id in dict.fromkeys(job.work[0].thread_id for job in jobs):
            mine = [job for job in jobs if job.work[0].thread_id == thread_id]
            try:
                self.lock(thread_id, partial(self._append_line, jobs=mine))
            except (PerdureError, FileLocked) as error:
                for job in mine:
                    job.error = job.error or error

    def _append_line(self, file: LockedFile, jobs: Sequence[Job[_Entry]]) -> None:
        def prove(db: SqliteDatabase) -> None:
            for job in jobs:
                try:
                    prove_lease(db, job.work[0])
                except ThreadConflict as error:
                    job.error = error

        self.index.read(prove)
        proved = [job.work for job in jobs if job.error is None]
        if proved:  # all with one lease: a thread has one owner
            bodies = [(entry.delivery_id, msgspec.Raw(entry.body)) for _, entry in proved]
            self.append(file, JournalLine(proved[0][0].fence, bodies))
            size = sum(len(body) for _, body in bodies)
            self._journal_bytes[file.thread_id] = self._journal_bytes.get(file.thread_id, 0) + size

    def is_mostly_journal(self, file: LockedFile) -> bool:
        """Whether much of the file is journal that commits have settled: a rewrite frees it."""
        written = self._journal_bytes.pop(file.thread_id, 0)
        return written >= MIN_JOURNAL_BYTES and file.size <= min(8 * written, MAX_REWRITE_BYTES)

    def update_index(self, file: LockedFile, work: Callable[[SqliteDatabase], T]) -> T | None:
        """Never raises: a line on the disk is acknowledged, and the index catches up later."""
        try:
            return self.index.transact(work)
        except PerdureError as error:
            logger.warning("thread %s: its index is behind its file, and catches up later: %s", file.thread_id, error)
            return None

    def rewrite(self, file: LockedFile, lines: Iterable[Line]) -> None:
        """Replace the file by these lines, atomically, and the rows of the index that describe it."""
        # First: if this process dies in between, the places in the index are wrong.
        self.index.set_file_size(file.thread_id, None)
        self.files.rewrite(file, lines)
        try:
            with self.files.lock(file.thread_id, self._busy_seconds) as replaced:
                self.index.catch_up(replaced)
        except FileLocked:  # by another process, which catches up
            logger.warning("thread %s: its index catches up later, another process has its file locked", file.thread_id)

    def remove_if_new(self, file: LockedFile) -> None:
        """Remove the file of a thread that never got anything."""
        if file.is_open and file.size == 0:
            self.files.remove(file)
