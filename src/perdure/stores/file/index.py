"""The index of a file store: a SQLite database with the tables of a SQLite store, but without payloads.

It is never synced: what is written to it survives the process, but not a power cut. So it is made anew from the files
when the machine was started since, when it is missing, or when it is damaged. Deleting it is always allowed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.errors import DamagedStore
from perdure.platform import boot_id
from perdure.stores.disk import FileLocked, locked_for_long
from perdure.stores.file.folder import ThreadFile, ThreadFiles
from perdure.stores.file.lines import (
    VERSION,
    Before,
    FileCommitLine,
    FileThreadLine,
    JournalLine,
    Line,
    PinLine,
    PostLine,
    commit_of,
    completed,
    pending_request,
    request_part,
)
from perdure.stores.rewriting import WaitingItems
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.lists import ListQuery
from perdure.stores.sqlite.rows import Payload
from perdure.stores.sqlite.schema import prepare
from perdure.stores.sqlite.tables import Tables

T = TypeVar("T")

INDEX = "index.db"


class FileIndex(Connection):
    """The connection of a file store."""

    def __init__(self, files: ThreadFiles, busy_seconds: float) -> None:
        super().__init__(files.folder / INDEX, "OFF", busy_seconds)
        self._files = files
        self._busy = busy_seconds
        self._ready_in = 0
        self._is_being_made = False
        """From all files: these are synced at the end, all at once."""

    def transact(
        self, work: Callable[[Tables], T], *, writes: bool = True, syncs: bool = True, checks: bool = False
    ) -> T:
        if self._ready_in != os.getpid():
            self.make_ready()
        return super().transact(work, writes=writes, syncs=True)

    def close(self) -> None:
        super().close()
        self._ready_in = 0

    # ------------------------------------------------------------ made from the files

    def _foreign(self) -> DamagedStore:
        return DamagedStore(str(self.path), "what is left of it is not an index any more")  # no file of anybody else's

    def _is_replaced(self) -> bool:
        return False  # `make_ready` sees to it, with the locks that it needs

    @property
    def is_current(self) -> bool:
        """Whether the file that was opened is still the one in the folder: somebody may have deleted or remade it."""
        return self._ready_in == os.getpid() and self._file is not None and self._file == self._file_there()

    def make_ready(self, *, is_damaged: bool = False) -> None:
        """See to it that the index is there, and of this start of the machine. One that is damaged is made anew."""
        if self.is_current and not is_damaged:
            return
        damaged = self._file if is_damaged else None
        self.close()
        self._files.disk.make_folder(self._files.folder)
        lock = self._files.disk.open(self._files.folder / "index.lock")
        try:
            self._lock(lock)
            if damaged is not None and damaged == self._file_there():  # else another process has made it anew
                self._remove()
            self._ready_in = os.getpid()
            acknowledged: Mapping[tuple[str, str], int] = {}
            try:
                is_of_this_boot = self._now(lambda tables: tables.meta("boot_id"), writes=False) == _boot()
                if not is_of_this_boot:
                    acknowledged = self._now(lambda tables: tables.sizes(), writes=False)
            except DamagedStore:
                is_of_this_boot = False
            if not is_of_this_boot:
                self._make_anew(acknowledged)
        except BaseException:
            self._ready_in = 0
            raise
        finally:
            self._files.disk.unlock(lock)  # a child that was forked meanwhile has the file open too
            os.close(lock)

    def _lock(self, fd: int) -> None:
        """Raises StorageFailed."""
        try:
            self._files.disk.lock(fd, self._files.folder / "index.lock", self._busy)
        except FileLocked as error:
            raise locked_for_long(error, self._busy) from error

    def _now(self, work: Callable[[Tables], T], *, writes: bool = True) -> T:
        """Without looking whether it is ready: while it is made so."""
        return super().transact(work, writes=writes, syncs=True)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _make_anew(self, acknowledged: Mapping[tuple[str, str], int]) -> None:
        """`acknowledged`: what an older index says about the size of each file."""
        super().close()
        self._remove()
        self._is_being_made = True
        try:
            self._take_in_all(acknowledged)
        finally:
            self._is_being_made = False
        self._files.disk.sync_all(self._files.folder)
        self._now(lambda tables: tables.set_meta("boot_id", _boot()))

    def _take_in_all(self, acknowledged: Mapping[tuple[str, str], int]) -> None:
        for thread_id in self._files.thread_ids():
            with self._files.locked_at_last(thread_id, self._busy) as file:
                try:
                    self.catch_up(file)
                except DamagedStore:  # whoever opens that thread is told; the others go on
                    continue
                written = self._now(partial(Tables.written, thread_id=thread_id), writes=False)
                known = acknowledged.get((thread_id, written), 0)
                if self._files.disk.syncs and known > file.size:
                    self._now(partial(Tables.set_size, thread_id=thread_id, size=known))
        self._now(lambda tables: tables.put_in_order())
        # Claims that had written nothing are not in the files: whoever holds one must not be the next owner's equal.
        self._now(lambda tables: tables.raise_fences(1000))

    # ------------------------------------------------------------ in step with a file

    def catch_up(self, file: ThreadFile) -> None:
        """Take in what the file has and the index has not. Raises DamagedStore."""
        row = self.transact(lambda tables: tables.size_of(file.thread_id), writes=False)
        known = 0 if row is None else row[0]
        undone = self._files.to_cut.get(file.thread_id)
        if undone is not None:
            if known is not None and undone == known < file.size:  # else somebody has taken it in meanwhile
                file.cut(undone)
            del self._files.to_cut[file.thread_id]
        size = file.size
        if known == size:
            return
        if size < (known or 0):
            raise self._lost(file, size, known or 0)
        lines = list(file.scan(known or 0, may_cut=True))
        if not self._is_being_made:
            file.sync()  # whoever wrote them may have died before
        self.transact(lambda tables: self._take_all(tables, file, lines, anew=known is None))

    def _lost(self, file: ThreadFile, size: int, known: int) -> DamagedStore:
        head = self.transact(lambda tables: tables.head_of(file.thread_id), writes=False)
        was = "" if head is None else f", whose last checkpoint was {head[0].checkpoint_id!r},"
        reason = (
            f"the file of thread {file.thread_id!r}{was} has {size} bytes, and {known} were acknowledged: commits were "
            f"lost. To go on from what is there, delete {INDEX!r} beside it"
        )
        return DamagedStore(str(file.path), reason)

    def _take_all(self, tables: Tables, file: ThreadFile, lines: list[tuple[int, int, Line]], *, anew: bool) -> None:
        thread_id = file.thread_id
        places = tables.clear_thread(thread_id) if anew else {}
        first = None
        for place, length, line in lines:
            self.take_in(tables, file, place, length, line)
            first = line if isinstance(line, FileThreadLine) else first
        if first is not None:
            tables.stand_at_least(thread_id, first.number, first.fence, first.last_seq)
            tables.say(thread_id, first.number, first.status, first.updated_at)
            thread = tables.thread(thread_id)
            if first.workflow_name is not None and tables.standing(thread).number == first.number:
                tables.set_workflow(thread, first.workflow_name)  # its last commit may be gone
        tables.put_back(thread_id, places)
        tables.set_size(thread_id, file.size)

    def take_in(self, tables: Tables, file: ThreadFile, place: int, size: int, line: Line) -> None:
        thread_id = file.thread_id
        thread = tables.thread(thread_id)
        if isinstance(line, FileCommitLine):
            commit = commit_of(thread_id, completed(line, tables.told_before(thread)))
            if commit.info is not None and tables.is_taken_since(commit.info):
                commit = msgspec.structs.replace(commit, info=None)
            tables.append(tables.standing(thread), commit, Payload(line.number, None, None, place, size))
            tables.stand_at_least(thread_id, line.number, line.fence, 0)
        elif isinstance(line, JournalLine):
            for delivery_id, body in line.entries:
                tables.append_journal(thread_id, delivery_id, bytes(body))
            tables.stand_at_least(thread_id, 0, line.fence, 0)
        elif isinstance(line, PostLine):
            tables.post(thread_id, line.item_id, line.kind, bytes(line.body))
        elif isinstance(line, PinLine):
            tables.set_pin(thread, line.number, is_pinned=line.is_pinned)
        elif line.thread_id != thread_id:
            raise DamagedStore(str(file.path), f"it is the file of thread {line.thread_id!r}, not of {thread_id!r}")
        else:
            tables.consume(thread_id, line.consumed)
            tables.set_written(thread_id, line.written, line.version)
            tables.stand_at_least(thread_id, 0, 0, line.last_seq)  # lines after it count from there
            tables.keep(thread, line.first_seq, line.silent_before, line.pins, line.forgotten)
            if line.requests:
                tables.ask(thread, [pending_request(thread_id, one) for one in line.requests])
            if line.workflow_name is not None:
                tables.set_workflow(thread, line.workflow_name)
        tables.set_size(thread_id, place + size)

    def differences(self, file: ThreadFile) -> list[tuple[int, str | None]]:
        """Number and checkpoint of commits that the index tells otherwise than the file does."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            prepare(db, "an index made anew")
            anew = Tables(db)
            for place, length, line in file.scan(0):
                self.take_in(anew, file, place, length, line)
            expected = anew.told_of(file.thread_id)
        found = self.transact(lambda tables: tables.told_of(file.thread_id), writes=False)
        return [
            (number, found[number][0])
            for number, told in expected.items()
            # One whose id another thread took since has none any more.
            if number in found and found[number] != told and found[number] != (None, *told[1:])
        ]

    def settle(self) -> None:
        """Before lists are read: what somebody wrote and did not come to tell the index is told to it."""
        self._catch_up_all([*self._files.to_cut, *self.transact(lambda tables: tables.unread(), writes=False)])
        owned = self.transact(lambda tables: tables.owned(), writes=False)
        dead = self.transact(
            lambda tables: {process for process in {process for _, process in owned} if tables.is_gone(process)},
            writes=False,
        )
        self._catch_up_all([thread_id for thread_id, process in owned if process in dead])
        if dead:
            # Looked at again: a new process may have come by the number of one that was forgotten meanwhile.
            self.transact(lambda tables: tables.release_all([one for one in dead if tables.is_gone(one)]))

    def _catch_up_all(self, thread_ids: Iterable[str]) -> None:
        for thread_id in thread_ids:
            try:
                with self._files.locked(thread_id) as file:
                    self.catch_up(file)
                    if file.size == 0:
                        self._files.remove(file)  # of a thread that did not come to be
                        self.transact(partial(Tables.drop_if_empty, thread_id=thread_id))
            except FileLocked:
                continue  # somebody is at it
            except DamagedStore as error:  # whoever opens that thread is told; the others go on
                if error.path == str(self.path):
                    raise

    def all_lines(self, file: ThreadFile) -> list[Line]:
        """With all that they left to those before them, and without what is not so any more."""
        rows = self.transact(lambda tables: tables.bodies(file.thread_id), writes=False)
        checkpoints = {row.number for row in rows if row.checkpoint_id is not None}
        before = Before()
        lines: list[Line] = []
        for _, _, read in file.scan(0):
            line = read
            if isinstance(line, FileCommitLine):
                line = completed(line, before)
                before = before.after(line)
                if line.number not in checkpoints:  # another took its id since
                    line = msgspec.structs.replace(line, checkpoint_id=None)
            else:
                before = before.after(line)
            lines.append(line)
        return lines

    def first_line(self, tables: Tables, thread_id: str) -> FileThreadLine:
        """Where the thread stands, for a file that is written anew."""
        thread = tables.thread(thread_id)
        standing = tables.standing(thread)
        (info,) = tables.threads(ListQuery(thread_id=thread_id)) or (None,)
        return FileThreadLine(
            thread_id,
            VERSION,
            number=standing.number,
            fence=standing.fence,
            last_seq=standing.last_seq,
            written=os.urandom(8).hex(),
            workflow_name=tables.told_before(thread).workflow_name,
            status=standing.status,
            updated_at="" if info is None else info.updated_at,
            consumed=tables.consumed(thread),
            first_seq=tables.first_seq(thread),
            silent_before=tables.silent_before(thread),
            pins=sorted(tables.pins(thread)),
        )

    def waiting(self, tables: Tables, thread_id: str) -> WaitingItems:
        thread = tables.thread(thread_id)
        fence = tables.standing(thread).fence
        return WaitingItems(
            [request_part(one) for one in tables.requests(ListQuery(thread_id=thread_id))],
            [PostLine(item.item_id, item.kind, msgspec.Raw(item.body)) for item in tables.inbox(thread_id)],
            [JournalLine(fence, [(one.delivery_id, msgspec.Raw(one.body))]) for one in tables.journal(thread_id, 0)],
        )


def _boot() -> str:
    return boot_id() or "unknown"
