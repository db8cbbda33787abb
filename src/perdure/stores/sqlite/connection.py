"""A connection to a SQLite file: opened when it is needed, a transaction for each piece of work, errors explained.

The path of a write: `SqliteWriter.write` gives it to the worker thread, which makes one transaction of all writes that
wait, so that one sync serves all. Each write has a savepoint: an error of one undoes that one only.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakSet, finalize

from perdure.errors import DamagedStore, PerdureError, StorageFailed
from perdure.records import Lease
from perdure.stores.disk import Disk
from perdure.stores.process_identity import RENEW_SECONDS
from perdure.stores.sqlite.schema import PAGE_BYTES, NotOurs, SqliteDatabase, read_pragma, set_up
from perdure.stores.sqlite.threads import release_lease, renew_process
from perdure.stores.worker import Job, WorkerThread

T = TypeVar("T")

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
_SIGNS_OF_DAMAGE = ("malformed", "not a database", "disk image", "decode to UTF-8", "no such column", "no such table")
_inherited: list[object] = []
"""Connections of the parent process: this process must not close them, not even by their finalizers."""


class WouldWait(Exception):
    """Another thread or process uses the file."""


class SqliteConnection:
    """Used by the worker thread of a store only, but for transactions that do not wait."""

    def __init__(
        self,
        path: Path,
        synchronous: str,
        busy_seconds: float,
        database: type[SqliteDatabase] = SqliteDatabase,
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
        self.is_unsynced = synchronous in ("NORMAL", "OFF")
        """Whether a commit leaves it to the system when it reaches the disk."""
        self.log_pages = 0
        """About the pages in the log of an unsynced file, since it was last moved into the file."""
        self.gate = threading.RLock()
        """Held during each transaction. A fork waits for it: a child would inherit a lock that it cannot release."""
        _CONNECTIONS.add(self)
        self.held: set[Lease] = set()
        """Leases of threads that this store owns."""
        self.unreleased: list[Lease] = []
        """Leases whose release failed. Each heartbeat tries it again."""

    def transact(
        self,
        work: Callable[[SqliteDatabase], T],
        *,
        writes: bool,
        syncs: bool,
        checks: bool = False,
        waits: bool = True,
    ) -> T:
        """All of the work happens, or none. Raises StorageFailed, DamagedStore, or what the work raises.

        `syncs`: it survives a power cut. `checks`: also where it does, the file must still be the one that was opened.
        `waits=False`: from any thread; raises WouldWait where another thread or process uses the file.
        """
        until = time.monotonic() + self._busy_seconds
        pause = MIN_PAUSE_SECONDS
        while self.gate.acquire(blocking=waits):
            try:
                return self._try(work, writes=writes, syncs=syncs, checks=checks, waits=waits)
            except sqlite3.Error as error:
                if not _is_busy(error) or (waits and time.monotonic() >= until):
                    raise self._explain(error) from error
                if not waits:
                    break
            except OSError as error:
                raise StorageFailed("SqliteStore", f"use {str(self.path)!r}", str(error)) from error
            except (UnicodeDecodeError, OverflowError) as error:  # a column holds a value of another type
                raise DamagedStore(str(self.path), str(error)) from error
            finally:
                self.gate.release()
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
        raise WouldWait

    def _try(self, work: Callable[[SqliteDatabase], T], *, writes: bool, syncs: bool, checks: bool, waits: bool) -> T:
        db = self._db
        if db is None or self._process_id != os.getpid():
            if not waits:
                raise WouldWait
            db = self._open()
        # A stat for each claim and each heartbeat, but not for each commit.
        if writes and (checks or not syncs) and self._file != self._stat_file():
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
        except BaseException:
            db.forget_rows()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if writes and self.is_unsynced:
            self.log_pages += TRANSACTION_PAGES
        if waits and self.log_pages >= WAL_PAGES:  # a commit on an event loop must not wait for the disk
            self.log_pages = 0
            try:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error:
                pass  # all commits are in the log; a later call tries again
        return result

    def _open(self) -> SqliteDatabase:
        if self._process_id != os.getpid() and self._db is not None:  # the parent's, after a fork
            _inherited.append(self._db)
            self._db = None
        if self._db is None:
            if not self.path.parent.is_dir():
                Disk(syncs=self._synchronous != "OFF").make_folder(self.path.absolute().parent)
            db = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False, factory=self._database
            )
            try:
                set_up(db, self.path, self._synchronous, 4 * WAL_PAGES if self.is_unsynced else WAL_PAGES)
            except NotOurs as error:
                db.close()
                raise self._refuse_foreign() from error
            except BaseException:
                db.close()
                raise
            self._db, self._process_id, self._syncs = db, os.getpid(), True
            self._file = self._stat_file()
        return self._db

    def _refuse_foreign(self) -> PerdureError:
        reason = "it is a database of something else, or of a perdure before its first release"
        return StorageFailed("SqliteStore", f"open {str(self.path)!r}", reason)

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

    def free_pages(self, *, if_many: bool = False) -> bool:
        """Return some free pages to the system; whether there are more. Other processes go first.

        `if_many`: only if they are a large part of the file.
        """
        try:
            with self.gate:
                db = self._open()
                free = int(read_pragma(db, "freelist_count"))
                if not free or (if_many and free <= max(FREE_PAGES, read_pragma(db, "page_count") // 4)):
                    return False
                db.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
                left = int(read_pragma(db, "freelist_count"))
                self._must_truncate = self._must_truncate or left < free
                return 0 < left < free
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

    def close(self) -> None:
        """After the transaction under way, which may be on another thread."""
        with self.gate:
            db, self._db = self._db, None
            if db is not None and self._process_id != os.getpid():
                _inherited.append(db)
            elif db is not None:
                db.close()  # the last connection to close moves the log into the file and removes it

    def _explain(self, error: sqlite3.Error) -> PerdureError:
        text = str(error)
        is_damage = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if is_damage or any(sign in text for sign in _SIGNS_OF_DAMAGE):
            return DamagedStore(str(self.path), text)
        if _is_busy(error):
            text = f"another process has held it for more than {self._busy_seconds:g} seconds ({text}); is one stopped?"
        return StorageFailed("SqliteStore", f"use {str(self.path)!r}", text)


def _is_busy(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


_CONNECTIONS: WeakSet[SqliteConnection] = WeakSet()
_held_for_fork: list[SqliteConnection] = []


def _hold_all() -> None:
    for connection in list(_CONNECTIONS):
        connection.gate.acquire()
        _held_for_fork.append(connection)


def _release_all() -> None:
    while _held_for_fork:
        _held_for_fork.pop().gate.release()


class _Write(NamedTuple):
    work: Callable[[SqliteDatabase], object]
    syncs: bool


class SqliteWriter:
    """Reads and writes through one connection, on one thread."""

    def __init__(self, name: str, connection: SqliteConnection) -> None:
        self.connection = connection
        self.worker = WorkerThread(name, connection.renew, RENEW_SECONDS)
        self._end = finalize(self, connection.close)

    async def read(self, work: Callable[[SqliteDatabase], T]) -> T:
        return await self.worker.run(partial(self.connection.transact, work, writes=False, syncs=True))

    read_lists = read
    """`read` of one thread, and across threads: they differ in a store of files."""

    def claim(self, thread_id: str, work: Callable[[SqliteDatabase], T]) -> Awaitable[T]:
        """The write that claims a thread. Not synced: a power cut that undoes the claim ends its process, too."""
        return self.write(work, syncs=False)

    async def write(
        self,
        work: Callable[[SqliteDatabase], T],
        *,
        syncs: bool = True,
        uncancellable: bool = False,
        size: int | None = None,
    ) -> T:
        """All of the work happens, or none. `syncs`: it survives a power cut.

        `size`: about the bytes that it writes. A small write that need not wait for anything is made on this thread:
        the hop would take 65 us, and the write takes 100 (decision 0017).
        """
        connection = self.connection
        if size is not None and connection.is_unsynced and size <= MAX_BYTES_NOW and connection.log_pages < WAL_PAGES:
            try:
                result = connection.transact(work, writes=True, syncs=True, waits=False)
                connection.log_pages += size // PAGE_BYTES
                return result
            except WouldWait:
                pass
        outcome: T = await self.worker.run(_Write(work, syncs), self._write_all, uncancellable=uncancellable)
        return outcome

    def _write_all(self, jobs: list[Job[_Write]]) -> None:
        """On the worker thread."""
        if len(jobs) > 1:
            syncs = [job.work.syncs for job in jobs]
            # A claim among them checks that the file is still the same, as a claim alone does.
            attempt = partial(_attempt_all, jobs=jobs)
            errors = self.connection.transact(attempt, writes=True, syncs=any(syncs), checks=not all(syncs))
            for job, error in zip(jobs, errors, strict=True):
                job.error = error
            jobs = [job for job in jobs if isinstance(job.error, _OF_DATABASE)]
        for job in jobs:
            job.error = None
            try:
                job.result = self.connection.transact(job.work.work, writes=True, syncs=job.work.syncs)
            except BaseException as error:  # noqa: BLE001  # its caller raises it
                job.error = error

    async def close(self) -> None:
        if self.connection.unreleased:
            await self.worker.run(self.connection.renew)  # the last attempt to release them
        await self.worker.run(self.connection.close)
        self.worker.stop()


_FILE_ERRORS = frozenset(
    getattr(sqlite3, f"SQLITE_{name}") for name in ("BUSY", "LOCKED", "READONLY", "IOERR", "FULL", "CANTOPEN")
)
"""Errors of the database file, which concern all writes of a batch."""


_OF_DATABASE = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""A write with one of these gets a transaction of its own, where the connection explains the error."""


def _attempt_all(db: SqliteDatabase, jobs: list[Job[_Write]]) -> list[Exception | None]:
    """The error of each write."""
    errors: list[Exception | None] = []
    for job in jobs:
        try:
            job.result, error = db.attempt(job.work.work), None
        except OSError:
            raise
        except Exception as raised:  # its caller raises it
            if getattr(raised, "sqlite_errorcode", 0) & 0xFF in _FILE_ERRORS:
                raise
            error = raised
        errors.append(error)
    return errors


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
