"""A commit that need not wait for the disk runs on the event loop; a commit that has to wait leaves the loop free."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import DamagedStore
from perdure.stores.sqlite.connection import MAX_BYTES_NOW, SqliteConnection
from perdure.stores.sqlite.schema import is_made
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import checkpoint_ids, own


async def is_made_at_once(store: SqliteStore, checkpoint_id: str, **parts: Any) -> bool:
    """Whether a commit came to its end before the loop went round."""
    owner = await own(store, checkpoint_id)
    making = asyncio.ensure_future(owner.save(checkpoint_id, **parts))
    await asyncio.sleep(0)
    at_once = making.done()
    await making
    return at_once


def size_of(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.parametrize(("synchronous", "expected"), [("NORMAL", True), ("OFF", True), ("FULL", False)])
async def test_only_a_commit_that_is_not_synced_is_made_on_the_loop(
    tmp_path: Path, synchronous: str, expected: bool
) -> None:
    store = SqliteStore(tmp_path / "threads.db", synchronous=synchronous)
    assert await is_made_at_once(store, "a") is expected
    await store.close()


@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
async def test_damaged_row_is_the_same_error_on_the_loop_and_beside_it(tmp_path: Path, synchronous: str) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path, synchronous=synchronous)
    owner = await own(store)
    await owner.save("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE threads SET status = CAST(x'fffe' AS TEXT)")
    with pytest.raises(DamagedStore, match="UTF-8"):
        await owner.save("b")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE threads SET status = ''")
    await owner.save("b")
    assert await checkpoint_ids(store) == ["a", "b"]
    await store.close()


async def test_large_commit_is_not_made_on_the_loop(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL")
    assert not await is_made_at_once(store, "a", chunks={"c": b'"%b"' % (b"x" * MAX_BYTES_NOW)})
    await store.close()


async def test_loop_stays_free_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path, synchronous="NORMAL")
    owner = await own(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(owner.save("a"))
    for _ in range(20):  # turns that a commit which blocks the loop would not allow
        await asyncio.sleep(0.001)
    assert not waiting.done()
    other.execute("ROLLBACK")
    await waiting
    assert await checkpoint_ids(store) == ["a"]
    other.close()
    await store.close()


def test_closing_waits_for_a_write_on_another_thread(tmp_path: Path) -> None:
    connection = SqliteConnection(tmp_path / "threads.db", "NORMAL", 1.0)
    connection.transact(lambda db: None, writes=False, syncs=True)
    closing = threading.Thread(target=connection.close)

    def close_during(db: sqlite3.Connection) -> list[tuple[int]]:
        closing.start()
        closing.join(0.1)  # SQLite crashes the process if its memory is freed under a statement
        assert closing.is_alive(), "the connection was closed under the write"
        return db.execute("SELECT 1").fetchall()

    assert connection.transact(close_during, writes=True, syncs=True, waits=False) == [(1,)]
    closing.join()


async def test_the_log_stays_small_however_many_commits_are_made(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path, synchronous="NORMAL")
    owner = await own(store)
    for _ in range(1500):
        await owner.save(chunks={"c": b'"%b"' % (b"x" * 2000)})
    assert size_of(path) > 2_000_000, "the commits were not put into the file"
    assert size_of(Path(f"{path}-wal")) < 2_000_000
    await store.close()


async def test_file_created_by_another_during_opening_is_not_taken_for_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.db"
    first, other = SqliteConnection(path, "NORMAL", 1.0), SqliteConnection(path, "NORMAL", 1.0)

    def made_by_another(db: sqlite3.Connection, place: str) -> bool:
        was_made = is_made(db, place)
        monkeypatch.undo()
        other.transact(lambda db: None, writes=True, syncs=False)
        return was_made

    monkeypatch.setattr("perdure.stores.sqlite.schema.is_made", made_by_another)

    first.transact(lambda db: None, writes=True, syncs=False)

    assert path.stat().st_size > 0
    first.close()
    other.close()
