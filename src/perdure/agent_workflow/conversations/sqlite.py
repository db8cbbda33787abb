"""Sessions in one SQLite file: a row for each line."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import finalize

from perdure.agent_workflow.conversations.encryption import Sealing, SessionEncryption
from perdure.agent_workflow.conversations.log import (
    Line,
    NotASessionLine,
    SessionLog,
    from_bytes,
)
from perdure.agent_workflow.conversations.store import LoggedSessionStore
from perdure.errors import DamagedStore, NewerFormat, StorageFailed

BUSY_SECONDS = 30.0
KNOWN_SESSIONS = 64
"""How many sessions are cached, so that only their new rows are read."""
_TABLE = """
CREATE TABLE IF NOT EXISTS session_lines (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    line BLOB NOT NULL
) STRICT
"""
_INDEX = "CREATE INDEX IF NOT EXISTS session_lines_of ON session_lines (session_id, number)"
_FIRST = "SELECT line FROM session_lines WHERE number IN (SELECT min(number) FROM session_lines GROUP BY session_id)"


@dataclass
class _KnownRows:
    """The rows that were read of a session: rows are only appended, or all deleted."""

    log: SessionLog
    first: int | None = None
    last: int = 0


class SessionRows:
    """One session's rows, in a transaction."""

    def __init__(self, path: Path, db: sqlite3.Connection, known: _KnownRows) -> None:
        self._path = path
        self._db = db
        session_id = known.log.session_id
        [[first]] = db.execute("SELECT min(number) FROM session_lines WHERE session_id = ?", (session_id,))
        if first != known.first:  # another session of the same id
            known = _KnownRows(SessionLog(session_id, known.log.seal), first)
        self.known = known
        new = "SELECT number, line FROM session_lines WHERE session_id = ? AND number > ? ORDER BY number"
        for number, data in db.execute(new, (session_id, known.last)):
            try:
                self._take(number, data)
            except NotASessionLine as problem:
                reason = f"line {number} of session_lines, of session {session_id!r}, is damaged: {problem}"
                raise DamagedStore(str(path), reason) from problem

    @property
    def log(self) -> SessionLog:
        return self.known.log

    def _take(self, number: int | None, data: bytes) -> None:
        self.log.add(from_bytes(data, str(self._path)))
        self.known.last = number or self.known.last
        if self.known.first is None:
            self.known.first = number

    def append(self, line: Line) -> None:
        data = self.log.to_stored(line)
        row = (self.log.session_id, data)
        added = self._db.execute("INSERT INTO session_lines (session_id, line) VALUES (?, ?)", row)
        self._take(added.lastrowid, data)

    def sync(self) -> None:
        """A committed row is durable."""


class SessionDatabase:
    """All sessions of a database. Many threads may use one object; they take turns."""

    def __init__(self, path: str | os.PathLike[str], encryption: SessionEncryption | None = None) -> None:
        self.path = Path(path)
        self.sealing = Sealing(encryption, str(self.path))
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._process_id = 0
        self._remembered: OrderedDict[str, _KnownRows] = OrderedDict()

    @contextmanager
    def open(self, session_id: str, *, writes: bool) -> Iterator[SessionRows]:
        with self._transaction("BEGIN IMMEDIATE" if writes else "BEGIN") as db:
            known = self._remembered.pop(session_id, None) or self._new_rows(session_id)
            rows = SessionRows(self.path, db, known)
            yield rows
            db.execute("COMMIT")
            self._remembered[session_id] = rows.known  # last: after an error the rows are read again
            while len(self._remembered) > KNOWN_SESSIONS:
                self._remembered.popitem(last=False)

    def _new_rows(self, session_id: str) -> _KnownRows:
        return _KnownRows(SessionLog(session_id, self.sealing.seal_for(session_id)))

    def remove(self, session_id: str) -> None:
        with self._transaction("BEGIN IMMEDIATE") as db:
            db.execute("DELETE FROM session_lines WHERE session_id = ?", (session_id,))
            db.execute("COMMIT")

    def session_ids(self) -> list[str]:
        with self._transaction("BEGIN") as db:
            rows = db.execute("SELECT DISTINCT session_id FROM session_lines ORDER BY session_id")
            return [session_id for (session_id,) in rows]

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Rolled back unless it is committed."""
        try:
            with self._lock:
                db = self._connect()
                db.execute(begin)
                try:
                    self.sealing.check(_first_lines(db))
                    yield db
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StorageFailed("SqliteSessionStore", f"use {str(self.path)!r}", str(error)) from error

    def _connect(self) -> sqlite3.Connection:
        """The connection stays open: closing the last connection of a file checkpoints the whole WAL."""
        if self._db is not None and self._process_id == os.getpid():
            return self._db
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _TABLE, _INDEX):
                _execute_patiently(db, statement)
        except BaseException:
            db.close()
            raise
        self._db, self._process_id = db, os.getpid()
        finalize(self, db.close).atexit = False
        return db


def _execute_patiently(db: sqlite3.Connection, statement: str) -> None:
    """Retries while another process creates the file or its journal: SQLite's busy timeout does not cover that."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _first_lines(db: sqlite3.Connection) -> Iterator[Line]:
    for (data,) in db.execute(_FIRST):
        try:
            yield from_bytes(data, "session_lines")
        except (NotASessionLine, NewerFormat):
            continue  # reported when that session is read


class SqliteSessionStore(LoggedSessionStore):
    """Stores conversations in one SQLite file, for any number of processes of one machine; with `encryption`, encrypted
    like those of a `JsonSessionStore`."""

    def __init__(self, path: str | os.PathLike[str], *, encryption: SessionEncryption | None = None) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError("A SqliteSessionStore is a file. For one in memory use InMemorySessionStore().")
        super().__init__(SessionDatabase(path, encryption), blocks=True)
