"""A store in a folder: one append-only file of JSON lines for each thread, readable with any tool.

The files are the truth. Beside them lies `index.db` (`index.py`), which answers lists, names owners, and knows how much
of each file was acknowledged. The store appends a line and syncs it, then updates the index. A process that dies in
between leaves a file that is longer than the index knows. The next process that opens the thread reads the rest, and
cuts off a torn last line, which was never acknowledged. A file that is shorter has lost acknowledged lines: an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.errors import CheckpointNotFound, PerdureError, ThreadConflict
from perdure.log import get_logger
from perdure.records import Commit, Damage, JournalEntry, Lease, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.disk import Disk, FileLocked
from perdure.stores.file.access import FileAccess
from perdure.stores.file.folder import LockedFile
from perdure.stores.file.history import add_thread, check_files, prune_checkpoints, write_anew
from perdure.stores.file.lines import JournalLine, LineContext, PinLine, PostLine, commit_line
from perdure.stores.file.replay import index_commit, read_context
from perdure.stores.layer import copy_thread
from perdure.stores.packing import pack_body
from perdure.stores.sqlite.commits import check_commit
from perdure.stores.sqlite.lists import find_position
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.store import IndexedStore
from perdure.stores.sqlite.threads import (
    ThreadRow,
    find_thread,
    has_item,
    is_collection_due,
    prove_lease,
    release_lease,
)
from perdure.stores.sqlite.transfer import delete_thread
from perdure.stores.worker import Job

logger = get_logger("stores")

MIN_JOURNAL_BYTES = 16 * 1024
MAX_REWRITE_BYTES = 16 * 1024 * 1024
"""A release rewrites a file with much settled journal, unless it is so large that its caller would wait for long."""


class _Entry(NamedTuple):
    """A journal entry that waits to be written."""

    lease: Lease
    entry: JournalEntry


class FileStore(IndexedStore):
    """Implements `perdure.store.Store`, for any number of processes of one machine."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(path).absolute()  # the program may change its working folder
        self._access = FileAccess(self.path, disk or Disk(syncs=fsync), busy_seconds)
        super().__init__(self._access)
        self._index = self._access.index
        self._journal_bytes: dict[str, int] = {}
        """Bytes of journal that this store wrote to the file of a thread since it opened the thread."""

    async def size(self) -> int:
        return await asyncio.to_thread(self._access.files.total_size)

    async def _release(self, lease: Lease) -> bool:
        def work(file: LockedFile) -> bool:
            self._index.transact(lambda db: release_lease(db, lease))
            is_due = self._index.read(partial(is_collection_due, thread_id=lease.thread_id, at_rest=True))
            is_due = self._is_mostly_journal(file) or is_due
            self._access.remove_if_new(file)
            return is_due

        return await self._access.with_file(lease.thread_id, work)

    def _is_mostly_journal(self, file: LockedFile) -> bool:
        """Whether much of the file is journal that commits have settled: a rewrite frees it."""
        written = self._journal_bytes.pop(file.thread_id, 0)
        return written >= MIN_JOURNAL_BYTES and file.size <= min(8 * written, MAX_REWRITE_BYTES)

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        def prove(db: SqliteDatabase) -> tuple[ThreadRow, LineContext]:
            thread = check_commit(db, commit)
            return thread, read_context(db, thread.thread)

        def work(file: LockedFile) -> bool | None:
            thread, context = self._index.read(prove)
            place, size = file.append(commit_line(commit, pack_body(commit), context))
            return self._access.update_index(file, lambda db: index_commit(db, thread, commit, place, size))

        is_due = await self._access.with_file(commit.lease.thread_id, work, uncancellable=True)
        self.bus.notify(commit.lease.thread_id)
        if is_due:
            await self._collect_garbage(commit.lease.thread_id)

    def _free(self, thread_id: str) -> None:
        self._access.lock(thread_id, partial(write_anew, self._access))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        waiting = _Entry(lease, entry)
        await self._access.wait_for_locks(lambda: self._access.worker.run(waiting, self._write_journal))

    def _write_journal(self, jobs: list[Job[_Entry]]) -> None:
        """One line for each thread."""
        for thread_id in dict.fromkeys(job.work.lease.thread_id for job in jobs):
            mine = [job for job in jobs if job.work.lease.thread_id == thread_id]
            try:
                self._access.lock(thread_id, partial(self._write_entries, jobs=mine))
            except (PerdureError, FileLocked) as error:
                for job in mine:
                    job.error = job.error or error

    def _write_entries(self, file: LockedFile, jobs: Sequence[Job[_Entry]]) -> None:
        def prove(db: SqliteDatabase) -> None:
            for job in jobs:
                try:
                    prove_lease(db, job.work.lease)
                except ThreadConflict as error:
                    job.error = error

        self._index.read(prove)
        proved = [job.work for job in jobs if job.error is None]
        if proved:  # all with one lease: a thread has one owner
            bodies = [(entry.delivery_id, msgspec.Raw(entry.body)) for _, entry in proved]
            self._access.append(file, JournalLine(proved[0].lease.fence, bodies))
            size = sum(len(body) for _, body in bodies)
            self._journal_bytes[file.thread_id] = self._journal_bytes.get(file.thread_id, 0) + size

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        def work(file: LockedFile) -> None:
            if not self._index.read(lambda db: has_item(db, thread_id, item_id)):
                self._access.append(file, PostLine(item_id, kind, msgspec.Raw(body)))

        await self._access.with_file(thread_id, work)
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ keeping, removing and copying

    async def _set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        def work(file: LockedFile) -> None:
            _, owner, number = self._index.read(lambda db: find_position(db, checkpoint_id))
            if owner != thread_id:  # another thread took the id since
                raise CheckpointNotFound(checkpoint_id)
            self._access.append(file, PinLine(number, is_pinned))

        _, thread_id, _ = await self._access.read_lists(lambda db: find_position(db, checkpoint_id))
        await self._access.with_file(thread_id, work)

    async def _prune(self, thread_id: str, checkpoint_ids: set[str], events_before: int) -> int:
        return await self._access.with_file(
            thread_id, lambda file: prune_checkpoints(self._access, file, checkpoint_ids, events_before)
        )

    async def _delete(self, thread_id: str, if_unmoved_since: int | None) -> bool:
        def work(file: LockedFile) -> bool:
            is_deleted = self._index.transact(lambda db: delete_thread(db, thread_id, if_unmoved_since))
            if is_deleted or not file.size:
                self._access.files.remove(file)
            return is_deleted

        return await self._access.with_file(thread_id, work)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        if await self._access.read_lists(lambda db: find_thread(db, thread_id)) is None:
            return 0
        return await self._access.with_file(thread_id, lambda file: write_anew(self._access, file, change=change))

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await self._access.with_file(header.thread_id, lambda file: add_thread(self._access, file, header, commits))

    async def copy_thread(self, thread_id: str, to: str) -> None:
        await copy_thread(self, thread_id, to)

    async def _check_files(self) -> Sequence[Damage]:
        return await self._access.wait_for_locks(
            lambda: self._access.worker.run(lambda: self._access.guard(lambda: check_files(self._access)))
        )
