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
from perdure.stores.sqlite.schema import NotOurs, is_made, prepare
from perdure.stores.sqlite.tables import Tables

T = TypeVar("T")

PAGE_BYTES = 512
"""Small, since most commits are: a commit writes whole pages to the log, and what it leaves of its last one is lost."""
WAL_PAGES = 2000
"""Pages after which the log is put into the file: a small one keeps what is on disk small while the store is open."""
PAGES_A_TRANSACTION = 8
"""About as many are written beside the payload: the ends of tables and indexes, and the thread's row."""
PAGES_AT_ONCE = 2000
"""Given back to the system in one step: whoever commits waits for it."""
_INCREMENTAL = 2
LARGEST_AT_ONCE = 65536
"""Bytes: what an event loop may be kept from other work by."""
SHORTEST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.02
_OF_PARENTS: list[object] = []
"""Connections that this process has from the one it was forked from."""
_WITHOUT_SYNC = ("NORMAL", "OFF")
_SIGNS_OF_DAMAGE = ("malformed", "not a database", "disk image", "decode to UTF-8", "no such column", "no such table")


class Connection:
    """Used by the own thread of a store only."""

    def __init__(self, path: Path, synchronous: str, busy_seconds: float) -> None:
        self.path = path
        self._synchronous = synchronous
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self._tables: Tables | None = None
        self._process_id = 0
        self._file: tuple[int, int] | None = None
        """Which file was opened: the path may lead to another since."""
        self._syncs = True
        self._is_smaller = False
        """Whether pages were given back, which the file does not show yet."""
        self._unmoved_pages = 0
        """In the log, about, where it is put into the file by `_move_log`."""
        self.gate = threading.RLock()
        """Held over each transaction. A fork waits for it: a child would inherit a lock that nobody in it gives up."""
        _CONNECTIONS.add(self)
        self.held: set[Lease] = set()
        """Of threads that this store owns."""
        self.unreleased: list[Lease] = []
        """Those that could not be given up, and are to be."""

    def transact(self, work: Callable[[Tables], T], *, writes: bool, syncs: bool, checks: bool = False) -> T:
        """All of the work happens, or none. Raises StorageFailed, DamagedStore, or what the work raises."""
        until = time.monotonic() + self._busy_seconds
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            try:
                with self.gate:
                    result = self._try(work, writes=writes, syncs=syncs, checks=checks)
                    self._move_log()
                    return result
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() >= until:
                    raise self._explained(error) from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except OSError as error:
                raise StorageFailed("SqliteStore", f"use {str(self.path)!r}", str(error)) from error
            except (UnicodeDecodeError, OverflowError) as error:  # of a column that holds something else
                raise DamagedStore(str(self.path), str(error)) from error

    def transact_at_once(self, work: Callable[[Tables], None], size: int) -> bool:
        """The same from any thread, if nothing has to be waited for: no sync, no other thread, no other process. Then a
        hop to the store's own thread would take as long as the work. `size`: about the bytes it writes."""
        if self._synchronous not in _WITHOUT_SYNC or size > LARGEST_AT_ONCE:
            return False
        if self._unmoved_pages >= WAL_PAGES or self._db is None:
            return False
        if self._process_id != os.getpid() or not self.gate.acquire(blocking=False):
            return False
        try:
            self._try(work, writes=True, syncs=True)
            self._unmoved_pages += size // PAGE_BYTES
        except sqlite3.Error as error:
            if not _is_busy(error):
                raise self._explained(error) from error
            return False
        finally:
            self.gate.release()
        return True

    def _move_log(self) -> None:
        """Into the file, where commits do not do it: one that is made on an event loop must not wait for the disk."""
        if self._unmoved_pages >= WAL_PAGES and self._db is not None:
            self._unmoved_pages = 0
            try:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                pass  # what was committed is; the next time will do

    def _try(self, work: Callable[[Tables], T], *, writes: bool, syncs: bool, checks: bool = False) -> T:
        db, tables = self._opened()
        is_looked_at = checks or not syncs  # where a thread is claimed, and with each heartbeat
        if writes and is_looked_at and self._is_replaced():
            self.close()
            reason = "the file was removed or replaced while it was open. Nothing of this was written"
            raise StorageFailed("SqliteStore", f"use {str(self.path)!r}", reason)
        if syncs is not self._syncs and writes:
            db.execute(f"PRAGMA synchronous = {self._synchronous if syncs else 'NORMAL'}")
            self._syncs = syncs
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(tables)
            db.execute("COMMIT")
            if writes and self._synchronous in _WITHOUT_SYNC:
                self._unmoved_pages += PAGES_A_TRANSACTION
        except BaseException:
            tables.forget()  # what it remembers may have been undone
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return result

    def _opened(self) -> tuple[sqlite3.Connection, Tables]:
        if self._process_id != os.getpid() and self._db is not None:  # of a process that forked: it is the parent's
            _OF_PARENTS.append(self._db)  # not to be closed here, not even by its finalizer
            self._db = None
        if self._db is None or self._tables is None:
            Disk(syncs=self._synchronous != "OFF").make_folder(self.path.absolute().parent)
            db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                was_made = is_made(db, str(self.path))  # before anything is changed in what may be somebody else's
                self._refuse_cut_off(db)
                db.execute(f"PRAGMA synchronous = {self._synchronous}")
                db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; another keeps its own
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the same
                db.execute("PRAGMA journal_mode = WAL")
                is_moved_later = self._synchronous in _WITHOUT_SYNC
                db.execute(f"PRAGMA wal_autocheckpoint = {4 * WAL_PAGES if is_moved_later else WAL_PAGES}")
                if not was_made:
                    prepare(db, str(self.path))
            except NotOurs as error:
                db.close()
                raise self._foreign() from error
            except BaseException:
                db.close()
                raise
            self._db, self._tables, self._process_id, self._syncs = db, Tables(db), os.getpid(), True
            self._file = self._file_there()
        return self._db, self._tables

    def _refuse_cut_off(self, db: sqlite3.Connection) -> None:
        """SQLite takes what is missing of a last page for zeros."""
        for is_last in (False, True):
            size = self.path.stat().st_size
            ((page_bytes,),) = db.execute("PRAGMA page_size").fetchall()
            if size % page_bytes == 0:
                return
            if is_last:
                raise sqlite3.DatabaseError(f"its size, {size} bytes, is no multiple of a page: it was cut off")
            # Somebody else may have made the file since this connection looked at it: reading tells it of their pages.
            db.execute("SELECT count(*) FROM sqlite_master").fetchall()

    def _foreign(self) -> PerdureError:
        return StorageFailed("SqliteStore", f"open {str(self.path)!r}", "it is a database of something else")

    def _is_replaced(self) -> bool:
        return self._file != self._file_there()

    def _file_there(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def renew(self) -> None:
        """Say that this process lives, while it owns something."""
        if not self.unreleased and (not self.held or self._db is None):
            return

        def work(tables: Tables) -> None:
            tables.renew()
            for lease in self.unreleased:
                tables.release(lease)

        try:
            self.transact(work, writes=True, syncs=False)
            self.unreleased = []
        except PerdureError:
            pass  # the next time will do; whoever needs the store is told

    def give_back_some(self) -> bool:
        """Free pages to the system; whether there are more. What another process does at the same time goes first."""
        try:
            with self.gate:
                db, _ = self._opened()
                ((free,),) = db.execute("PRAGMA freelist_count").fetchall()
                ((mode,),) = db.execute("PRAGMA auto_vacuum").fetchall()
                if free and mode == _INCREMENTAL:
                    db.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
                elif free:  # a file of the first version: it is put together anew, once
                    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
                    db.execute("VACUUM")
                ((left,),) = db.execute("PRAGMA freelist_count").fetchall()
                self._is_smaller = self._is_smaller or left < free
                return bool(0 < left < free)  # else it is done, or cannot be
        except (sqlite3.Error, UnicodeDecodeError):
            return False

    def move_log(self) -> None:
        """Into the file, which only then gets smaller."""
        if not self._is_smaller:
            return
        self._is_smaller = False
        try:
            with self.gate:
                self._opened()[0].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            pass  # somebody reads; the next time will do

    def integrity(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        try:
            with self.gate:
                db, _ = self._opened()
                rows = db.execute("PRAGMA integrity_check").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message about damage may hold what is damaged
            return [str(error)]
        return [str(text) for (text,) in rows if text != "ok"]

    def pages(self) -> tuple[int, int]:
        """All of them, and those that are free."""
        with self.gate:
            db, _ = self._opened()
            ((count,),) = db.execute("PRAGMA page_count").fetchall()
            ((free,),) = db.execute("PRAGMA freelist_count").fetchall()
            return int(count), int(free)

    def close(self) -> None:
        db, self._db, self._tables = self._db, None, None
        if db is not None and self._process_id != os.getpid():
            _OF_PARENTS.append(db)
        elif db is not None:
            db.close()  # the last one to close puts the log into the file and removes it

    def _explained(self, error: sqlite3.Error) -> PerdureError:
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


# ---------------------------------------------------------------- forks

_CONNECTIONS: WeakSet[Connection] = WeakSet()
_held_for_a_fork: list[Connection] = []


def _hold_all() -> None:
    for connection in list(_CONNECTIONS):
        connection.gate.acquire()
        _held_for_a_fork.append(connection)


def _let_all_go() -> None:
    while _held_for_a_fork:
        _held_for_a_fork.pop().gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_let_all_go, after_in_child=_let_all_go)
