"""Sessions in a SQLite file: the same lines, as rows."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import DamagedStore, StorageFailed
from holdfast.orchestrations.agent_workflow.session_log import Line, NoLine, SessionLog, from_bytes, to_bytes

BUSY_SECONDS = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS session_lines (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    line BLOB NOT NULL
) STRICT
"""
_INDEX = "CREATE INDEX IF NOT EXISTS session_lines_of ON session_lines (session_id, number)"


class SessionRows:
    """One session's rows, in a transaction."""

    def __init__(self, path: Path, db: sqlite3.Connection, session_id: str) -> None:
        self._path = path
        self._db = db
        self.log = SessionLog(session_id)
        rows = db.execute("SELECT number, line FROM session_lines WHERE session_id = ? ORDER BY number", (session_id,))
        for number, data in rows:
            try:
                self.log.take(from_bytes(data, str(path)))
            except NoLine as problem:
                reason = f"line {number} of session_lines, of session {session_id!r}, is damaged: {problem}"
                raise DamagedStore(str(path), reason) from problem

    def append(self, line: Line) -> None:
        data = to_bytes(line)
        self._db.execute("INSERT INTO session_lines (session_id, line) VALUES (?, ?)", (self.log.session_id, data))
        self.log.take(from_bytes(data, str(self._path)))

    def sync(self) -> None:
        """What is committed is on the disk."""


class SessionDatabase:
    """One object may be used by many threads: each piece of work has a connection of its own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._is_made = False
        self._lock = threading.Lock()

    @contextmanager
    def opened(self, session_id: str, *, writes: bool) -> Iterator[SessionRows]:
        with self._transaction("BEGIN IMMEDIATE" if writes else "BEGIN") as db:
            yield SessionRows(self.path, db, session_id)

    def remove(self, session_id: str) -> None:
        with self._transaction("BEGIN IMMEDIATE") as db:
            db.execute("DELETE FROM session_lines WHERE session_id = ?", (session_id,))

    def session_ids(self) -> list[str]:
        with self._transaction("BEGIN") as db:
            return [one for (one,) in db.execute("SELECT DISTINCT session_id FROM session_lines ORDER BY session_id")]

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            db = self._connected()
            try:
                db.execute(begin)
                yield db
                db.execute("COMMIT")
            finally:
                db.close()  # which takes back what was not committed
        except sqlite3.Error as error:
            raise StorageFailed("SqliteSessionStore", f"use {str(self.path)!r}", str(error)) from error

    def _connected(self) -> sqlite3.Connection:
        with self._lock:
            db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                db.execute("PRAGMA synchronous = FULL")
                if not self._is_made:
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute(_TABLE)
                    db.execute(_INDEX)
                    self._is_made = True
            except BaseException:
                db.close()
                raise
            return db
