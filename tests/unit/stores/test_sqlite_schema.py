"""A new SQLite file that two connections make at the same time: the second finds what the first made."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from perdure.errors import StorageFailed
from perdure.stores.sqlite.connection import SqliteConnection
from perdure.stores.sqlite.schema import SqliteDatabase, is_made, prepare
from perdure.stores.sqlite.threads import ensure_thread, find_thread


def connect(path: Path) -> SqliteDatabase:
    db = sqlite3.connect(path, isolation_level=None, timeout=0, factory=SqliteDatabase)
    db.execute("PRAGMA journal_mode = WAL")
    return db


@pytest.mark.parametrize("moment", range(4))
def test_tables_made_by_another_during_a_look_are_recognised(moment: int, tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    mine, other = connect(path), connect(path)
    seen: list[str] = []

    def before_each(statement: str) -> None:
        if len(seen) == moment:
            prepare(other, str(path))
        seen.append(statement)

    mine.set_trace_callback(before_each)
    is_made(mine, str(path))
    mine.set_trace_callback(None)
    assert len(seen) > moment and is_made(other, str(path))
    prepare(mine, str(path))
    assert is_made(mine, str(path))
    mine.close()
    other.close()


def test_connection_waits_for_a_lock_that_sqlite_does_not_wait_for(tmp_path: Path) -> None:
    """As when another process changes the file to have a log, or recovers it: the answer comes at once."""
    connection, tries = SqliteConnection(tmp_path / "threads.db", "NORMAL", 10.0), list[bool]()

    def work(db: SqliteDatabase) -> bool:
        tries.append(find_thread(db, "t") is None)
        ensure_thread(db, "t")
        if len(tries) < 3:
            raise sqlite3.OperationalError("database is locked")
        return True

    assert connection.transact(work, writes=True, syncs=False)
    assert tries == [True, True, True]  # the work before each error was undone
    connection.close()


def test_lock_wait_ends_after_the_busy_seconds_of_the_caller(tmp_path: Path) -> None:
    connection, tries = SqliteConnection(tmp_path / "threads.db", "NORMAL", 0.05), list[int]()

    connection.transact(lambda db: None, writes=False, syncs=False)  # opening the file is not what takes so long

    def work(db: SqliteDatabase) -> None:
        tries.append(1)
        raise sqlite3.OperationalError("database is locked")

    with pytest.raises(StorageFailed, match=r"more than 0\.05 seconds"):
        connection.transact(work, writes=True, syncs=False)
    assert len(tries) > 1
    connection.close()
