"""The index of a file store: a SQLite database with the tables of a SQLite store, but without payloads.

For each thread it knows how much of its file it has read, and for each commit where in the file its line is.

It is never synced: it survives the process, but not a power cut. The store rebuilds it from the files after a restart
of the machine, and when it is missing or damaged. Deleting it is always allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from perdure.errors import DamagedStore
from perdure.platform import boot_id
from perdure.stores.disk import FileLocked, locked_for_long
from perdure.stores.file.folder import LockedFile, ThreadFiles
from perdure.stores.file.replay import order_commits, read_columns, replay_lines
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.history import has_thread
from perdure.stores.sqlite.lists import read_head
from perdure.stores.sqlite.schema import TABLES, SqliteDatabase, prepare
from perdure.stores.sqlite.threads import is_process_dead

T = TypeVar("T")

INDEX = "index.db"
FENCE_STEP = 1000
"""A rebuilt index raises all fences by so much: claims that had written nothing are not in the files."""

ADDED = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- bytes of the thread's file that the index has read; NULL: all of it is to be read again
ALTER TABLE threads ADD COLUMN size INTEGER DEFAULT 0;
-- that of the file's first line: a rewritten file has another one
ALTER TABLE threads ADD COLUMN generation TEXT NOT NULL DEFAULT '';
CREATE INDEX threads_unread ON threads (thread) WHERE size IS NULL;

-- where in the thread's file the commit is; `seal` and `body` stay empty
ALTER TABLE commits ADD COLUMN place INTEGER;
ALTER TABLE commits ADD COLUMN size INTEGER;
"""


class IndexDatabase(SqliteDatabase):
    """A connection to the index of a file store."""

    tables: ClassVar[str] = TABLES + ADDED
    payload: ClassVar[str] = "place, size"
    body_bytes: ClassVar[str] = "COALESCE(c.size, 0)"

    def __init__(self, *args: Any, files: ThreadFiles | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.load_body = None if files is None else files.read_body


class FileIndex(SqliteConnection):
    def __init__(self, files: ThreadFiles, busy_seconds: float) -> None:
        database = cast("type[IndexDatabase]", partial(IndexDatabase, files=files))  # `sqlite3.connect` only calls it
        super().__init__(files.folder / INDEX, "OFF", busy_seconds, database)
        self._files = files
        self._ready_in = 0
        """The process that made the index ready."""
        self._is_rebuilding = False
        """While it is: the files are synced at the end, all at once."""

    def transact(self, work: Callable[[SqliteDatabase], T], *, writes: bool = True, syncs: bool = True, **_: bool) -> T:
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
            try:
                self._files.disk.lock(lock, self._files.folder / "index.lock", self._busy_seconds)
            except FileLocked as error:
                raise locked_for_long(error, self._busy_seconds) from error
            if damaged is not None and damaged == self._stat_file():  # else another process has rebuilt it
                self._remove()
            self._ready_in = os.getpid()
            acknowledged: Mapping[tuple[str, str], int] = {}
            try:
                boot, acknowledged = self.read(_read_state)
            except DamagedStore:
                boot = None
            if boot != _boot():
                self._rebuild(acknowledged)
        except BaseException:
            self._ready_in = 0
            raise
        finally:
            self._files.disk.unlock(lock)  # a child that was forked meanwhile has the file open, too
            os.close(lock)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _rebuild(self, acknowledged: Mapping[tuple[str, str], int]) -> None:
        """`acknowledged`: how many bytes of each file the index before had, by thread id and generation."""
        super().close()
        self._remove()
        self._is_rebuilding = True
        try:
            for thread_id in self._files.thread_ids():
                with self._files.lock(thread_id, self._busy_seconds) as file:
                    self._read_file(file, acknowledged)
        finally:
            self._is_rebuilding = False
        self.transact(order_commits)
        self._files.disk.sync_all(self._files.folder)
        self.transact(_complete_rebuild)

    def _read_file(self, file: LockedFile, acknowledged: Mapping[tuple[str, str], int]) -> None:
        try:
            self.catch_up(file)
        except DamagedStore:  # opening that thread raises it; the others are readable
            return
        query = "SELECT generation FROM threads WHERE thread_id = ?"
        generation = self.read(lambda db: db.execute(query, (file.thread_id,)).fetchone())
        size = 0 if generation is None else acknowledged.get((file.thread_id, *generation), 0)
        if self._files.disk.syncs and size > file.size:
            self.set_file_size(file.thread_id, size)

    # ------------------------------------------------------------ in step with the files

    def read_file_size(self, thread_id: str) -> int | None:
        """How much of the thread's file the index has read; None if all of it is to be read again."""
        query = "SELECT size FROM threads WHERE thread_id = ?"
        row = self.read(lambda db: db.execute(query, (thread_id,)).fetchone())
        return 0 if row is None else row[0]

    def set_file_size(self, thread_id: str, size: int | None) -> None:
        values = (size, thread_id)
        self.transact(lambda db: db.execute("UPDATE threads SET size = ? WHERE thread_id = ?", values))

    def catch_up(self, file: LockedFile) -> None:
        """Read the lines of a locked file that the index does not have. Raises DamagedStore."""
        indexed = self.read_file_size(file.thread_id)
        uncut = self._files.to_cut.get(file.thread_id)
        if uncut is not None:
            if indexed is not None and uncut == indexed < file.size:  # else another process has read the rest
                file.cut(uncut)
            del self._files.to_cut[file.thread_id]
        size = file.size
        if indexed == size:
            return
        if size < (indexed or 0):
            head = self.read(lambda db: read_head(db, file.thread_id))
            was = "" if head is None else f", whose last checkpoint was {head.checkpoint_id!r},"
            reason = (
                f"the file of thread {file.thread_id!r}{was} has {size} bytes, and {indexed} were acknowledged: "
                f"commits were lost. To continue from what is there, delete {INDEX!r} beside it"
            )
            raise DamagedStore(str(file.path), reason)
        lines = list(file.scan(indexed or 0, may_cut=True))
        if not self._is_rebuilding:
            file.sync()  # their process may have died before it did
        self.transact(lambda db: replay_lines(db, file, lines, from_start=not indexed))

    def settle(self) -> None:
        """Before lists are read: catch up with files whose process died before it updated the index."""
        unread, owned, dead = self.read(_find_unsettled)
        left_behind = [thread_id for thread_id, process in owned if process in dead]
        for thread_id in [*self._files.to_cut, *unread, *left_behind]:
            try:
                with self._files.lock(thread_id) as file:
                    self.catch_up(file)
                    if file.size == 0:
                        self._files.remove(file)  # of a thread that never got anything
                        self.transact(partial(_delete_if_empty, thread_id=thread_id))
            except FileLocked:
                continue  # another process catches up
            except DamagedStore as error:  # opening that thread raises it; the others are readable
                if error.path == str(self.path):
                    raise
        if dead:
            self.transact(partial(_release_processes, processes=dead))

    def find_differences(self, file: LockedFile) -> list[tuple[int, str | None]]:
        """Number and checkpoint of commits that the index describes otherwise than the file."""
        with closing(IndexDatabase(":memory:", isolation_level=None)) as fresh:
            prepare(fresh, "a new index")
            replay_lines(fresh, file, list(file.scan(0)), from_start=True)
            expected = read_columns(fresh, file.thread_id)
        actual = self.read(lambda db: read_columns(db, file.thread_id))
        return [
            (number, actual[number][0])
            for number, columns in expected.items()
            # A checkpoint whose id another thread took since has none any more.
            if number in actual and actual[number] not in (columns, (None, *columns[1:]))
        ]


def _boot() -> str:
    return boot_id() or "unknown"


def _read_state(db: SqliteDatabase) -> tuple[str | None, dict[tuple[str, str], int]]:
    """The start of the machine that the index is of; if it is another one, also how many bytes of each file were
    acknowledged."""
    row = db.execute("SELECT value FROM meta WHERE key = 'boot_id'").fetchone()
    if row == (_boot(),):
        return row[0], {}
    rows = db.execute("SELECT thread_id, generation, size FROM threads WHERE size IS NOT NULL")
    return None, {(thread_id, generation): size for thread_id, generation, size in rows}


def _complete_rebuild(db: SqliteDatabase) -> None:
    db.execute("UPDATE threads SET fence = fence + ?", (FENCE_STEP,))
    db.execute("INSERT OR REPLACE INTO meta VALUES ('boot_id', ?)", (_boot(),))


def _find_unsettled(db: SqliteDatabase) -> tuple[list[str], list[tuple[str, int]], set[int]]:
    """Threads whose process died while it rewrote their files; threads with an owner, and the row of its process; and
    which of these processes are dead."""
    unread = [thread_id for (thread_id,) in db.execute("SELECT thread_id FROM threads WHERE size IS NULL")]
    owned = db.execute("SELECT thread_id, process FROM threads WHERE owner IS NOT NULL").fetchall()
    return unread, owned, {process for process in {row[1] for row in owned} if is_process_dead(db, process)}


def _release_processes(db: SqliteDatabase, processes: Iterable[int]) -> None:
    for process in processes:
        if is_process_dead(db, process):  # checked again: a new process may have got the row of a deleted one meanwhile
            db.execute("UPDATE threads SET owner = NULL, process = NULL WHERE process IS ?", (process,))


def _delete_if_empty(db: SqliteDatabase, thread_id: str) -> None:
    """Delete the row of a thread that never got anything."""
    if not has_thread(db, thread_id):
        db.execute("DELETE FROM threads WHERE thread_id = ?", (thread_id,))
