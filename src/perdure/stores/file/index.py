"""The index of a file store: a SQLite database with the tables of a SQLite store, but without payloads.

It is never synced: it survives the process, but not a power cut. The store rebuilds it from the files after a restart
of the machine, and when it is missing or damaged. Deleting it is always allowed.
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
from perdure.records import Commit
from perdure.stores.disk import FileLocked, locked_for_long
from perdure.stores.file.folder import LockedFile, ThreadFiles
from perdure.stores.file.lines import (
    VERSION,
    FileCommitLine,
    FileThreadLine,
    JournalLine,
    Line,
    LineContext,
    PendingLines,
    PinLine,
    PostLine,
    complete_line,
    pending_request,
    request_part,
    to_commit,
)
from perdure.stores.file.schema import (
    IndexDatabase,
    clear_thread,
    delete_if_empty,
    is_id_taken,
    list_file_sizes,
    list_owned,
    list_unread,
    order_commits,
    raise_fences,
    raise_thread,
    read_columns,
    read_context,
    read_file_size,
    read_generation,
    read_meta,
    release_processes,
    restore_position,
    restore_seqs,
    restore_status,
    set_file_size,
    set_meta,
    set_workflow,
)
from perdure.stores.sqlite.commits import insert_commit, replace_requests
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.lists import ListQuery, list_requests, list_threads, read_head
from perdure.stores.sqlite.retention import list_pins, prune_with_commit, read_kept_events, set_pin
from perdure.stores.sqlite.schema import SqliteDatabase, prepare
from perdure.stores.sqlite.threads import (
    ThreadRow,
    append_journal,
    consume_items,
    ensure_thread,
    find_thread,
    is_process_dead,
    list_consumed,
    post_item,
    read_inbox,
    read_journal,
    read_thread,
)

T = TypeVar("T")

INDEX = "index.db"
FENCE_STEP = 1000
"""A rebuilt index raises all fences by so much: claims that had written nothing are not in the files."""


class FileIndex(Connection):
    """The connection of a file store."""

    def __init__(self, files: ThreadFiles, busy_seconds: float) -> None:
        super().__init__(files.folder / INDEX, "OFF", busy_seconds, IndexDatabase)
        self._files = files
        self._ready_in = 0
        """The process that made the index ready."""
        self._is_rebuilding = False
        """While it is: the files are synced at the end, all at once."""

    def transact(
        self,
        work: Callable[[SqliteDatabase], T],
        *,
        writes: bool = True,
        syncs: bool = True,
        checks: bool = False,
        waits: bool = True,
    ) -> T:
        """Never checks for another file: `make_ready` detects it, under the locks that it needs."""
        if self._ready_in != os.getpid():
            self.make_ready()
        return super().transact(work, writes=writes, syncs=True)

    def read(self, work: Callable[[SqliteDatabase], T]) -> T:
        return self.transact(work, writes=False)

    def close(self) -> None:
        super().close()
        self._ready_in = 0

    def _refuse_foreign(self) -> DamagedStore:
        return DamagedStore(str(self.path), "it is not an index any more")

    @property
    def is_current(self) -> bool:
        """Whether the open file is still the one in the folder, and not deleted or rebuilt."""
        return self._ready_in == os.getpid() and self._file is not None and self._file == self._stat_file()

    # ------------------------------------------------------------ rebuilt from the files

    def make_ready(self, *, is_damaged: bool = False) -> None:
        """Open the index, and rebuild it if it is damaged or older than the last start of the machine."""
        if self.is_current and not is_damaged:
            return
        damaged = self._file if is_damaged else None
        self.close()
        self._files.disk.make_folder(self._files.folder)
        lock = self._files.disk.open(self._files.folder / "index.lock")
        try:
            self._lock(lock)
            if damaged is not None and damaged == self._stat_file():  # else another process has rebuilt it
                self._remove()
            self._ready_in = os.getpid()
            acknowledged: Mapping[tuple[str, str], int] = {}
            try:
                is_of_this_boot = self.read(lambda db: read_meta(db, "boot_id")) == _boot()
                if not is_of_this_boot:
                    acknowledged = self.read(list_file_sizes)
            except DamagedStore:
                is_of_this_boot = False
            if not is_of_this_boot:
                self._rebuild(acknowledged)
        except BaseException:
            self._ready_in = 0
            raise
        finally:
            self._files.disk.unlock(lock)  # a child that was forked meanwhile has the file open, too
            os.close(lock)

    def _lock(self, fd: int) -> None:
        """Raises StorageFailed."""
        try:
            self._files.disk.lock(fd, self._files.folder / "index.lock", self._busy_seconds)
        except FileLocked as error:
            raise locked_for_long(error, self._busy_seconds) from error

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _rebuild(self, acknowledged: Mapping[tuple[str, str], int]) -> None:
        """`acknowledged`: how many bytes of each file the index before had."""
        super().close()
        self._remove()
        self._is_rebuilding = True
        try:
            self._read_all_files(acknowledged)
        finally:
            self._is_rebuilding = False
        self._files.disk.sync_all(self._files.folder)
        self.transact(lambda db: set_meta(db, "boot_id", _boot()))

    def _read_all_files(self, acknowledged: Mapping[tuple[str, str], int]) -> None:
        for thread_id in self._files.thread_ids():
            with self._files.wait_for_lock(thread_id, self._busy_seconds) as file:
                try:
                    self.catch_up(file)
                except DamagedStore:  # opening that thread raises it; the others are readable
                    continue
                generation = self.read(partial(read_generation, thread_id=thread_id))
                size = acknowledged.get((thread_id, generation), 0)
                if self._files.disk.syncs and size > file.size:
                    self.transact(partial(set_file_size, thread_id=thread_id, size=size))
        self.transact(order_commits)
        self.transact(lambda db: raise_fences(db, FENCE_STEP))

    # ------------------------------------------------------------ in step with the files

    def catch_up(self, file: LockedFile) -> None:
        """Read the lines of a locked file that the index does not have. Raises DamagedStore."""
        indexed = self.read(lambda db: read_file_size(db, file.thread_id))
        uncut = self._files.to_cut.get(file.thread_id)
        if uncut is not None:
            if indexed is not None and uncut == indexed < file.size:  # else another process has read the rest
                file.cut(uncut)
            del self._files.to_cut[file.thread_id]
        size = file.size
        if indexed == size:
            return
        if size < (indexed or 0):
            raise self._lost_commits(file, size, indexed or 0)
        lines = list(file.scan(indexed or 0, may_cut=True))
        if not self._is_rebuilding:
            file.sync()  # their process may have died before it did
        self.transact(lambda db: _index_lines(db, file, lines, from_start=indexed is None))

    def _lost_commits(self, file: LockedFile, size: int, indexed: int) -> DamagedStore:
        head = self.read(lambda db: read_head(db, file.thread_id))
        was = "" if head is None else f", whose last checkpoint was {head.checkpoint_id!r},"
        reason = (
            f"the file of thread {file.thread_id!r}{was} has {size} bytes, and {indexed} were acknowledged: commits "
            f"were lost. To continue from what is there, delete {INDEX!r} beside it"
        )
        return DamagedStore(str(file.path), reason)

    def settle(self) -> None:
        """Before lists are read: catch up with files whose process died before it updated the index."""
        self._catch_up_all([*self._files.to_cut, *self.read(list_unread)])
        owned = self.read(list_owned)
        dead = self.read(
            lambda db: {process for process in {process for _, process in owned} if is_process_dead(db, process)}
        )
        self._catch_up_all([thread_id for thread_id, process in owned if process in dead])
        if dead:
            # Checked again: a new process may have got the row of one that was deleted meanwhile.
            self.transact(
                lambda db: release_processes(db, [process for process in dead if is_process_dead(db, process)])
            )

    def _catch_up_all(self, thread_ids: Iterable[str]) -> None:
        for thread_id in thread_ids:
            try:
                with self._files.lock(thread_id) as file:
                    self.catch_up(file)
                    if file.size == 0:
                        self._files.remove(file)  # of a thread that never got anything
                        self.transact(partial(delete_if_empty, thread_id=thread_id))
            except FileLocked:
                continue  # another process catches up
            except DamagedStore as error:  # opening that thread raises it; the others are readable
                if error.path == str(self.path):
                    raise

    def find_differences(self, file: LockedFile) -> list[tuple[int, str | None]]:
        """Number and checkpoint of commits that the index describes otherwise than the file."""
        with closing(sqlite3.connect(":memory:", isolation_level=None, factory=IndexDatabase)) as fresh:
            prepare(fresh, "a new index")
            for place, length, line in file.scan(0):
                index_line(fresh, file, place, length, line)
            expected = read_columns(fresh, file.thread_id)
        actual = self.read(lambda db: read_columns(db, file.thread_id))
        return [
            (number, actual[number][0])
            for number, columns in expected.items()
            # A checkpoint whose id another thread took since has none any more.
            if number in actual and actual[number] not in (columns, (None, *columns[1:]))
        ]

    def read_lines(self, file: LockedFile) -> list[Line]:
        """All lines of a locked file, complete, and without the ids of checkpoints that are pruned."""
        query = "SELECT number FROM commits WHERE thread = ? AND checkpoint_id IS NOT NULL"
        rows = self.read(lambda db: db.execute(query, (find_thread(db, file.thread_id),)).fetchall())
        checkpoints = {number for (number,) in rows}
        context = LineContext()
        lines: list[Line] = []
        for _, _, line in file.scan(0):
            complete = complete_line(line, context) if isinstance(line, FileCommitLine) else line
            context = context.after(complete)
            if isinstance(complete, FileCommitLine) and complete.number not in checkpoints:
                complete = msgspec.structs.replace(complete, checkpoint_id=None)
            lines.append(complete)
        return lines


def _boot() -> str:
    return boot_id() or "unknown"


# ---------------------------------------------------------------- lines into rows


def index_commit(db: SqliteDatabase, thread: ThreadRow, commit: Commit, place: int, size: int) -> None:
    """Insert a commit whose line is in the thread's file, and prune."""
    insert_commit(db, thread, commit, (place, size))
    prune_with_commit(db, thread, commit)
    db.execute("UPDATE threads SET size = ? WHERE thread = ?", (place + size, thread.thread))


def index_line(db: SqliteDatabase, file: LockedFile, place: int, size: int, line: Line) -> None:
    """Raises DamagedStore for the first line of another thread."""
    thread_id = file.thread_id
    thread = ensure_thread(db, thread_id)
    if isinstance(line, FileCommitLine):
        commit = to_commit(thread_id, complete_line(line, read_context(db, thread)))
        if commit.info is not None and is_id_taken(db, commit.info):
            commit = msgspec.structs.replace(commit, info=None)
        index_commit(db, read_thread(db, thread), commit, place, size)
        raise_thread(db, thread_id, number=line.number, fence=line.fence)
    elif isinstance(line, JournalLine):
        for delivery_id, body in line.entries:
            append_journal(db, thread, thread_id, delivery_id, bytes(body))
        raise_thread(db, thread_id, fence=line.fence)
    elif isinstance(line, PostLine):
        post_item(db, thread_id, line.item_id, line.kind, bytes(line.body))
    elif isinstance(line, PinLine):
        set_pin(db, thread, line.number, is_pinned=line.is_pinned)
    elif line.thread_id != thread_id:
        raise DamagedStore(str(file.path), f"it is the file of thread {line.thread_id!r}, not of {thread_id!r}")
    else:
        _index_first_line(db, thread, line)
    set_file_size(db, thread_id, place + size)


def _index_first_line(db: SqliteDatabase, thread: int, line: FileThreadLine) -> None:
    consume_items(db, line.thread_id, line.consumed)
    restore_position(db, thread, line)
    if line.requests:
        replace_requests(db, thread, [pending_request(line.thread_id, part) for part in line.requests])
    if line.workflow_name is not None:
        set_workflow(db, thread, line.workflow_name)


def _index_lines(db: SqliteDatabase, file: LockedFile, lines: list[tuple[int, int, Line]], *, from_start: bool) -> None:
    thread_id = file.thread_id
    seqs = clear_thread(db, thread_id) if from_start else {}
    first = None
    for place, length, line in lines:
        index_line(db, file, place, length, line)
        first = line if isinstance(line, FileThreadLine) else first
    if first is not None:
        raise_thread(db, thread_id, number=first.number, fence=first.fence, last_seq=first.last_seq)
        restore_status(db, thread_id, first.number, first.status, first.updated_at)
        thread = ensure_thread(db, thread_id)
        if first.workflow_name is not None and read_thread(db, thread).number == first.number:
            set_workflow(db, thread, first.workflow_name)  # the file may not have its last commit any more
    restore_seqs(db, thread_id, seqs)
    set_file_size(db, thread_id, file.size)


# ---------------------------------------------------------------- rows into lines


def first_line(db: SqliteDatabase, thread_id: str) -> FileThreadLine:
    """The first line of a file that is rewritten: the position of the thread."""
    thread = ensure_thread(db, thread_id)
    row = read_thread(db, thread)
    (info,) = list_threads(db, ListQuery(thread_id=thread_id)) or (None,)
    first_seq, events_dropped_before = read_kept_events(db, thread)
    return FileThreadLine(
        thread_id,
        VERSION,
        number=row.number,
        fence=row.fence,
        last_seq=row.last_seq,
        generation=os.urandom(8).hex(),
        workflow_name=read_context(db, thread).workflow_name,
        status=row.status,
        updated_at="" if info is None else info.updated_at,
        consumed=list_consumed(db, thread),
        first_seq=first_seq,
        events_dropped_before=events_dropped_before,
        pins=sorted(list_pins(db, thread)),
    )


def pending_lines(db: SqliteDatabase, thread_id: str) -> PendingLines:
    thread = ensure_thread(db, thread_id)
    fence = read_thread(db, thread).fence
    return PendingLines(
        [request_part(request) for request in list_requests(db, ListQuery(thread_id=thread_id))],
        [PostLine(item.item_id, item.kind, msgspec.Raw(item.body)) for item in read_inbox(db, thread, thread_id)],
        [
            JournalLine(fence, [(entry.delivery_id, msgspec.Raw(entry.body))])
            for entry in read_journal(db, thread, thread_id, 0)
        ],
    )
