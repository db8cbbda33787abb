"""A connection to a SQLite file: opened when it is needed, a transaction for each piece of work, errors explained."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from perdure.errors import DamagedStore, PerdureError, StorageFailed
from perdure.records import Lease
from perdure.stores.disk import Disk
from perdure.stores.sqlite.owners import release_lease, renew_process
from perdure.stores.sqlite.schema import NotOurs, SqliteDatabase, is_made, prepare

T = TypeVar("T")

PAGE_BYTES = 512
"""Small, since most commits are: a commit writes whole pages to the log, and the rest of its last page is lost."""
WAL_PAGES = 2000
"""Pages after which the log is moved into the file: a small log keeps an open store small on disk."""
TRANSACTION_PAGES = 8
"""About the pages of a transaction beside its payload: the ends of tables and indexes, and the thread's row."""
FREE_PAGES = 2000
"""Pages that one step returns to the system: commits wait for it."""
MAX_BYTES_NOW = 65536
"""The largest write that is made on an event loop, which does no other work meanwhile."""
MIN_PAUSE_SECONDS = 0.001
MAX_PAUSE_SECONDS = 0.02
NOT_NOW = object()
"""Returned by `transact_now` if the work has to wait."""
_WITHOUT_SYNC = ("NORMAL", "OFF")
_SIGNS_OF_DAMAGE = ("malformed", "not a database", "disk image", "decode to UTF-8", "no such column", "no such table")
_inherited: list[object] = []
"""Connections of the parent process: this process must not close them, not even by their finalizers."""


class Connection:
    """Used by the worker thread of a store only, but for `transact_now`."""

    def __init__(
        self, path: Path, synchronous: str, busy_seconds: float, database: type[SqliteDatabase] = SqliteDatabase
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._busy_seconds = busy_seconds
        self._database = database
        self._db: SqliteDatabase | None = None
        self._process_id = 0
        self._file: tuple[int, int] | None = None
        """Device and inode of the open file: the path may lead to another one since."""
        self._syncs = True
        self._must_truncate = False
        """Whether pages were freed that the file still has, until its log is moved into it."""
        self._log_pages = 0
        """About the pages in the log, where `_move_log` moves it into the file."""
        self.gate = threading.RLock()
        """Held during each transaction. A fork waits for it: a child would inherit a lock that it cannot release."""
        _CONNECTIONS.add(self)
        self.held: set[Lease] = set()
        """Leases of threads that this store owns."""
        self.unreleased: list[Lease] = []
        """Leases whose release failed. Each heartbeat tries it again."""

    def transact(self, work: Callable[[SqliteDatabase], T], *, writes: bool, syncs: bool, checks: bool = False) -> T:
        """All of the work happens, or none. Raises StorageFailed, DamagedStore, or what the work raises."""
        until = time.monotonic() + self._busy_seconds
        pause = MIN_PAUSE_SECONDS
        while True:
            try:
                with self.gate:
                    result = self._try(work, writes=writes, syncs=syncs, checks=checks)
                    self._move_log()
                    return result
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() >= until:
                    raise self._explain(error) from error
                time.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            except OSError as error:
                raise StorageFailed("SqliteStore", f"use {str(self.path)!r}", str(error)) from error
            except (UnicodeDecodeError, OverflowError) as error:  # a column holds a value of another type
                raise DamagedStore(str(self.path), str(error)) from error

    def transact_now(self, work: Callable[[SqliteDatabase], T], size: int) -> T | object:
        """The same from any thread, or `NOT_NOW` if it would wait for a sync, another thread or another process.

        A hop to the worker thread would take as long as the work (decision 0017). `size`: about the bytes it writes.
        """
        if self._synchronous not in _WITHOUT_SYNC or size > MAX_BYTES_NOW:
            return NOT_NOW
        if self._log_pages >= WAL_PAGES or not self.gate.acquire(blocking=False):
            return NOT_NOW
        try:
            if self._db is None or self._process_id != os.getpid():
                return NOT_NOW
            result = self._try(work, writes=True, syncs=True)
            self._log_pages += size // PAGE_BYTES
        except sqlite3.Error as error:
            if not _is_busy(error):
                raise self._explain(error) from error
            return NOT_NOW
        finally:
            self.gate.release()
        return result

    def _move_log(self) -> None:
        """Move the log into the file, where commits do not: one on an event loop must not wait for the disk."""
        if self._log_pages >= WAL_PAGES and self._db is not None:
            self._log_pages = 0
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                pass  # all commits are in the log; the next call tries again

    def _try(self, work: Callable[[SqliteDatabase], T], *, writes: bool, syncs: bool, checks: bool = False) -> T:
        db = self._open()
        # A stat for each claim and each heartbeat, but not for each commit.
        if writes and (checks or not syncs) and self._is_replaced():
            self.close()
            reason = "the file was removed or replaced while it was open. Nothing of this was written"
            raise StorageFailed("SqliteStore", f"use {str(self.path)!r}", reason)
        if syncs is not self._syncs and writes:
            db.execute(f"PRAGMA synchronous = {self._synchronous if syncs else 'NORMAL'}")
            self._syncs = syncs
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(db)
            db.execute("COMMIT")
            if writes and self._synchronous in _WITHOUT_SYNC:
                self._log_pages += TRANSACTION_PAGES
        except BaseException:
            db.forget_rows()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return result

    def _open(self) -> SqliteDatabase:
        if self._process_id != os.getpid() and self._db is not None:  # the parent's, after a fork
            _inherited.append(self._db)
            self._db = None
        if self._db is None:
            Disk(syncs=self._synchronous != "OFF").make_folder(self.path.absolute().parent)
            db = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False, factory=self._database
            )
            try:
                self._set_up(db)
            except NotOurs as error:
                db.close()
                raise self._refuse_foreign() from error
            except BaseException:
                db.close()
                raise
            self._db, self._process_id, self._syncs = db, os.getpid(), True
            self._file = self._stat_file()
        return self._db

    def _set_up(self, db: SqliteDatabase) -> None:
        was_made = is_made(db, str(self.path))  # first: the file of another program must not be changed
        self._refuse_cut_off(db)
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; an existing one keeps its own
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the same
        db.execute("PRAGMA journal_mode = WAL")
        is_moved_later = self._synchronous in _WITHOUT_SYNC
        db.execute(f"PRAGMA wal_autocheckpoint = {4 * WAL_PAGES if is_moved_later else WAL_PAGES}")
        if not was_made:
            prepare(db, str(self.path))

    def _refuse_cut_off(self, db: SqliteDatabase) -> None:
        """SQLite reads zeros for the missing rest of a last page."""
        for is_last in (False, True):
            size = self.path.stat().st_size
            ((page_bytes,),) = db.execute("PRAGMA page_size").fetchall()
            if size % page_bytes == 0:
                return
            if is_last:
                raise sqlite3.DatabaseError(f"its size, {size} bytes, is not a multiple of a page: it was cut off")
            # Another process may have created the file since this connection looked at it: a read sees its page size.
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()

    def _refuse_foreign(self) -> PerdureError:
        reason = "it is a database of something else, or of a perdure before its first release"
        return StorageFailed("SqliteStore", f"open {str(self.path)!r}", reason)

    def _is_replaced(self) -> bool:
        return self._file != self._stat_file()

    def _stat_file(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def renew(self) -> None:
        """The heartbeat: extend the lease of this process while it owns a thread, and release what it could not."""
        if not self.unreleased and (not self.held or self._db is None):
            return

        def work(db: SqliteDatabase) -> None:
            renew_process(db)
            for lease in self.unreleased:
                release_lease(db, lease)

        try:
            self.transact(work, writes=True, syncs=False)
            self.unreleased = []
        except PerdureError:
            pass  # the next heartbeat tries again; calls of the store raise their own errors

    def free_pages(self) -> bool:
        """Return some free pages to the system; whether there are more. Other processes go first."""
        try:
            with self.gate:
                db = self._open()
                ((free,),) = db.execute("PRAGMA freelist_count").fetchall()
                if free:
                    db.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
                ((left,),) = db.execute("PRAGMA freelist_count").fetchall()
                self._must_truncate = self._must_truncate or left < free
                return bool(0 < left < free)
        except (sqlite3.Error, UnicodeDecodeError):
            return False

    def truncate_log(self) -> None:
        """Move the log into the file, which gets smaller only then."""
        if not self._must_truncate:
            return
        self._must_truncate = False
        try:
            with self.gate:
                self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            pass  # another connection reads; the next call does it

    def check_integrity(self) -> list[str]:
        """Damage that SQLite itself detects."""
        try:
            with self.gate:
                rows = self._open().execute("PRAGMA integrity_check").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message about damage may quote damaged text
            return [str(error)]
        return [str(text) for (text,) in rows if text != "ok"]

    def count_pages(self) -> tuple[int, int]:
        """All pages of the file, and the free ones."""
        with self.gate:
            db = self._open()
            ((count,),) = db.execute("PRAGMA page_count").fetchall()
            ((free,),) = db.execute("PRAGMA freelist_count").fetchall()
            return int(count), int(free)

    def close(self) -> None:
        """After the transaction under way: `transact_now` may have one on another thread."""
        with self.gate:
            db, self._db = self._db, None
            if db is not None and self._process_id != os.getpid():
                _inherited.append(db)
            elif db is not None:
                db.close()  # the last connection to close moves the log into the file and removes it

    def _explain(self, error: sqlite3.Error) -> PerdureError:
        text = str(error)
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return DamagedStore(str(self.path), text)
        if any(sign in text for sign in _SIGNS_OF_DAMAGE):
            return DamagedStore(str(self.path), text)
        if _is_busy(error):
            text = f"another process has held it for more than {self._busy_seconds:g} seconds ({text}); is one stopped?"
        return StorageFailed("SqliteStore", f"use {str(self.path)!r}", text)


def _is_busy(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


_CONNECTIONS: WeakSet[Connection] = WeakSet()
_held_for_fork: list[Connection] = []


def _hold_all() -> None:
    for connection in list(_CONNECTIONS):
        connection.gate.acquire()
        _held_for_fork.append(connection)


def _release_all() -> None:
    while _held_for_fork:
        _held_for_fork.pop().gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
