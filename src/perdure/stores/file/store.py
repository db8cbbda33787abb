"""A store in a folder: one append-only file of JSON lines for each thread, readable with any tool.

The files are the truth. Beside them lies `index.db` (`file_index.py`), which answers lists and finds, says who owns
what, and knows how much of each file was acknowledged. A line is appended and synced first, then the index is told. A
process that dies between the two leaves a file that is longer than the index says: whoever opens the thread next reads
the rest, and cuts off a last line that is not whole, since that was never acknowledged. A file that is shorter has lost
what was acknowledged, and that is an error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import msgspec

from perdure.errors import PerdureError, ThreadBusy, ThreadConflict
from perdure.log import get_logger
from perdure.records import Commit, JournalEntry, Lease, OpenedThread
from perdure.stores.disk import Disk, FileLocked
from perdure.stores.file.folder import ThreadFile
from perdure.stores.file.history import FileHistory
from perdure.stores.file.lines import VERSION, Before, JournalLine, PostLine, commit_line
from perdure.stores.packing import pack_body
from perdure.stores.sqlite.batching import WaitingEntry, WrittenTogether
from perdure.stores.sqlite.rows import Payload, ThreadRow
from perdure.stores.sqlite.tables import Tables

logger = get_logger("stores")

MUCH_JOURNAL = 16 * 1024
LARGE_FILE = 16 * 1024 * 1024
"""Bytes."""


class FileStore(FileHistory):
    """Implements `perdure.store.Store`, for any number of processes of one machine."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        super().__init__(path, fsync=fsync, busy_seconds=busy_seconds, disk=disk)
        self._journal = WrittenTogether(self._thread, self._write_journal)
        self._journalled: dict[str, int] = {}
        """Bytes of journal that were written to the file of a thread since it was opened here."""

    # ------------------------------------------------------------ owning a thread

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        def work(file: ThreadFile) -> OpenedThread:
            return self._index.transact(lambda tables: self._opened(tables, thread_id, owner, takeover))

        try:
            return await self._with_file(thread_id, work)
        except ThreadBusy:
            await self._do(lambda tables: tables.shorten_leases())
            raise

    async def release(self, lease: Lease) -> None:
        def work(file: ThreadFile) -> None:
            self._index.transact(lambda tables: tables.release(lease))
            thread = self._index.transact(lambda tables: tables.find_thread(lease.thread_id), writes=False)
            if thread is None or not self._sweep_if_due(file, thread, at_rest=True, is_full=self._is_full(file)):
                self._remove_if_new(file)

        self._index.held.discard(lease)
        try:
            await self._with_file(lease.thread_id, work)
        except PerdureError:
            self._index.unreleased.append(lease)  # tried again with the next heartbeat
            raise
        self.bus.notify(lease.thread_id)

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        def check(tables: Tables) -> tuple[ThreadRow, Before, Commit]:
            standing = tables.check(commit)
            if not commit.prunes:
                return standing, tables.told_before(standing.thread), commit
            pins = tables.pins(standing.thread)
            prunes = [number for number in commit.prunes if number not in pins]
            return standing, tables.told_before(standing.thread), msgspec.structs.replace(commit, prunes=prunes)

        def work(file: ThreadFile) -> None:
            standing, before, settled = self._index.transact(check, writes=False)
            if before.version < VERSION:
                self._say_version(file)
            line = commit_line(settled, pack_body(settled), before)
            place, size = file.append(line)
            payload = Payload(commit.number, None, None, place, size)
            self._tell_index(file, lambda tables: tables.append_at(standing, settled, payload, place + size))
            if settled.prunes or settled.prunes_events_before:
                self._sweep_if_due(file, standing.thread)

        thread_id = commit.lease.thread_id
        await self._patiently(lambda: self._thread.do_to_the_end(lambda: self._locked(thread_id, work)))
        self.bus.notify(thread_id)

    def _is_full(self, file: ThreadFile) -> bool:
        """Whether much of a file is a journal that commits have settled: it stays there until the file is written anew,
        which is not done to a large one while somebody waits."""
        journalled = self._journalled.pop(file.thread_id, 0)
        return journalled >= MUCH_JOURNAL and file.size <= min(8 * journalled, LARGE_FILE)

    def _sweep_if_due(self, file: ThreadFile, thread: int, *, at_rest: bool = False, is_full: bool = False) -> bool:
        """Free what was forgotten; whether the file was written anew for it, or that was tried. It is tried again after
        the next commit if it fails."""
        try:
            is_due = is_full or self._index.transact(
                lambda tables: tables.is_sweep_due(thread, at_rest=at_rest), writes=False
            )
            if not is_due:
                return False
            self._prune(file, set())
        except Exception as error:  # noqa: BLE001  # the commit was made, whatever becomes of this
            logger.warning("thread %s: what it forgot still takes space: %s", file.thread_id, error)
        return True

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._patiently(lambda: self._journal.add(lease, entry))

    def _write_journal(self, batch: Sequence[WaitingEntry]) -> None:
        for thread_id in dict.fromkeys(one.lease.thread_id for one in batch):
            mine = [one for one in batch if one.lease.thread_id == thread_id]
            try:
                self._locked(thread_id, partial(self._write_entries, batch=mine))
            except (PerdureError, FileLocked) as error:
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
            size = sum(len(one.entry.body) for one in good)
            self._journalled[file.thread_id] = self._journalled.get(file.thread_id, 0) + size

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        def work(file: ThreadFile) -> None:
            if not self._index.transact(lambda tables: tables.has_item(thread_id, item_id), writes=False):
                self._append(file, PostLine(item_id, kind, msgspec.Raw(body)))

        await self._with_file(thread_id, work)
        self.bus.notify(thread_id)
