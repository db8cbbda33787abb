"""Damage of a SQLite file that SQLite itself does not notice: an error of ours that names it, and never other bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import DamagedCheckpoint, DamagedStore, ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import checkpoint_ids, own, read_everything, save_thread, thread_ids

MADE: dict[str, tuple[Callable[[Path], Store], str]] = {
    "sqlite": (lambda folder: SqliteStore(folder / "threads.db", synchronous="NORMAL"), "threads.db"),
    "file": (lambda folder: FileStore(folder / "threads", fsync=False), "threads/index.db"),
}


@pytest.fixture(params=MADE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, tmp_path: Path) -> Callable[[], Store]:
    return lambda: MADE[kind][0](tmp_path)


@pytest.fixture
def database(kind: str, tmp_path: Path) -> Path:
    return tmp_path / MADE[kind][1]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement).rowcount > 0, "it changes nothing"


def change_behind_an_index(path: Path, index: str, statement: str) -> None:
    """Change the table without its index: the index then leads to other rows, as where a bit of it flipped."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        row = db.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = ?", (index,))
        kept = row.fetchone()
        db.execute("DELETE FROM sqlite_master WHERE name = ?", (index,))
    change(path, statement)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)


# ---------------------------------------------------------------- heads


@pytest.mark.parametrize("head", ["1", "NULL", "99"])
async def test_a_head_that_is_not_the_newest_checkpoint_is_an_error(
    make: Callable[[], Store], database: Path, head: str
) -> None:
    store = make()
    await save_thread(store, "t", 3)
    await save_thread(store, "other", 3)
    await store.close()
    change(database, f"UPDATE threads SET head = {head} WHERE thread_id = 't'")
    with pytest.raises(DamagedCheckpoint, match="'t'"):
        await store.head("t")
    other = await store.head("other")
    assert other is not None and other.info.checkpoint_id == "other-3"
    opened = await store.open("t", "run-2")
    assert opened.damage and opened.root is None
    await store.close()


# ---------------------------------------------------------------- indexes that lead elsewhere


ELSEWHERE = {
    "another id": ("commits_checkpoint", "checkpoint_id = CASE checkpoint_id WHEN 't-1' THEN 't-2' ELSE 't-1' END"),
    "another number": ("commits_number", "number = 3 - number"),
    "a number that it does not have": ("commits_number", "number = number + 70"),
}


@pytest.mark.parametrize(("index", "change_of_row"), ELSEWHERE.values(), ids=ELSEWHERE)
async def test_wrong_index_entry_never_returns_another_checkpoint(
    make: Callable[[], Store], database: Path, index: str, change_of_row: str
) -> None:
    store = make()
    await save_thread(store, "t", 3)
    right = {checkpoint_id: await store.find_checkpoint(checkpoint_id) for checkpoint_id in await checkpoint_ids(store)}
    await store.close()
    change_behind_an_index(database, index, f"UPDATE commits SET {change_of_row} WHERE number < 3")
    for checkpoint_id in ("t-1", "t-2"):
        try:
            checkpoint = await store.find_checkpoint(checkpoint_id)
        except (DamagedCheckpoint, DamagedStore):
            continue
        assert checkpoint is not None and checkpoint.root == getattr(right[checkpoint_id], "root", None)
    assert getattr(await store.find_checkpoint("t-3"), "root", None) == getattr(right["t-3"], "root", None)
    assert list(await store.check()) != []
    await store.close()


# ---------------------------------------------------------------- cut off


def cut(path: Path, lost: int) -> None:
    path.write_bytes(path.read_bytes()[:-lost])


@pytest.mark.parametrize("lost", [1, 100, 511])
async def test_database_without_a_part_of_its_last_page_is_not_read_as_whole(
    make: Callable[[], Store], kind: str, database: Path, lost: int
) -> None:
    store = make()
    await save_thread(store, "t", 5, events=2)
    before = await read_everything(store)
    await store.close()
    cut(database, lost)
    if kind == "file":  # its index is remade
        assert await read_everything(store) == before
    else:
        for attempt in (store.events_after("t", None), store.head("t"), store.open("t", "run-2")):
            with pytest.raises(DamagedStore, match=r"threads\.db.*cut off"):
                await attempt
    await store.close()


async def test_events_missing_at_the_end_of_a_log_are_reported(make: Callable[[], Store], database: Path) -> None:
    store = make()
    await save_thread(store, "t", 3, events=2)
    await store.close()
    change(database, "UPDATE commits SET first_seq = NULL, events = NULL WHERE number = 3")
    for seq in (None, 0, 4):
        with pytest.raises(DamagedCheckpoint, match=r"'t'.*6 were committed"):
            await store.events_after("t", seq)
    await store.close()


# ---------------------------------------------------------------- columns that hold something else


FOREIGN = {
    "text that is none": "UPDATE threads SET status = CAST(x'ff' AS TEXT)",
    "a time that never comes": "UPDATE commits SET timestamp = 9000000000000000000",
}


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN)
async def test_invalid_column_value_is_damage_and_not_a_foreign_error(
    make: Callable[[], Store], kind: str, database: Path, statement: str
) -> None:
    store = make()
    await save_thread(store, "t", 2, events=1)
    before = await read_everything(store)
    await store.close()
    change(database, statement)
    attempts: list[Callable[[], Any]] = [store.infos, store.threads, lambda: store.find_checkpoint("t-1")]
    if kind == "file":  # its index is remade
        for attempt in attempts:
            await attempt()
        assert await read_everything(store) == before
    else:
        outcomes = [await outcome(attempt) for attempt in attempts]
        assert DamagedStore in outcomes and set(outcomes) <= {DamagedStore, None}, outcomes
        assert list(await store.check()) != []
    await store.close()


async def outcome(attempt: Callable[[], Any]) -> type[Exception] | None:
    try:
        await attempt()
    except Exception as error:  # noqa: BLE001  # whatever it is, that is the outcome
        return type(error)
    return None


@pytest.mark.parametrize("identity", ["{}", '"nobody"', ""])
async def test_unreadable_owner_holds_its_thread_no_longer_than_its_lease(
    make: Callable[[], Store], database: Path, identity: str
) -> None:
    store = make()
    await (await own(store)).save()
    await store.close()
    change(database, f"UPDATE processes SET identity = '{identity}'")
    assert await thread_ids(store) == ["t"]
    with pytest.raises(ThreadBusy):
        await own(store, owner="run-2")
    change(database, "UPDATE processes SET leased_until = 1.0")
    await (await own(store, owner="run-3")).save()
    assert await checkpoint_ids(store) == ["t-1", "t-2"]
    await store.close()


async def test_takeover_works_from_an_owner_that_cannot_be_read(make: Callable[[], Store], database: Path) -> None:
    store = make()
    stale = await own(store)
    await stale.save()
    await store.close()
    change(database, "UPDATE processes SET identity = '{}'")
    await (await own(store, owner="run-2", takeover=True)).save()
    with pytest.raises(ThreadConflict):
        await stale.save()
    assert await checkpoint_ids(store) == ["t-1", "t-2"]
    await store.close()


# ---------------------------------------------------------------- what a check finds


CHANGED_LETTERS = {
    b"name TEXT NOT NULL": b"name TEXT NOT N\xd5LL",
    b"thread_id TEXT": b"thread_i\xe4 TEXT",
    b"TABLE processes": b"TABLE proc\xe5sses",
    b"workflow INTEGER PRIMARY": b"workflow INTEGER PRIMABY",
    b"item INTEGER PRIMARY": b"item INTEGER PRIMABY",
    b"requests (": b"requestt (",
}


async def test_changed_letter_in_the_schema_is_damage_and_not_a_foreign_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL")
    await save_thread(store, "t", 2)
    await store.close()
    whole = store.path.read_bytes()
    for right, wrong in CHANGED_LETTERS.items():
        (place,) = places(whole, right)
        store.path.write_bytes(whole[:place] + wrong + whole[place + len(right) :])
        assert await damages(store), wrong
        assert await outcome(store.threads) in (None, DamagedStore), wrong
        await store.close()


async def test_changed_letter_of_a_thread_id_is_detected_wherever_it_is(tmp_path: Path) -> None:
    """Also in the index by which a thread is found: a list names it, and a look for it finds nothing."""
    store = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL")
    for thread_id in ("before", "unmistakable", "zero"):
        await (await own(store, thread_id)).note(events=1)
    await store.close()
    whole = store.path.read_bytes()
    offsets = list(places(whole, b"unmistakable"))
    assert len(offsets) == 2, "in the table and in its index"
    for place in offsets:
        store.path.write_bytes(whole[:place] + b"unmistakeble" + whole[place + 12 :])
        assert list(await store.check()) != [], place
        await store.close()


@pytest.mark.parametrize("column", ["run_id = 'another'", "status = 'IDLE'", "timestamp = timestamp + 1"])
async def test_changed_columns_of_a_commit_without_a_checkpoint_are_detected(
    make: Callable[[], Store], database: Path, column: str
) -> None:
    store = make()
    owner = await own(store)
    await owner.save(events=1)
    await owner.note(events=1, status="CANCELLED")
    await owner.release()
    assert list(await store.check()) == []
    await store.close()
    change(database, f"UPDATE commits SET {column} WHERE number = 2")
    assert [damage.thread_id for damage in await store.check()] == ["t"]
    await store.close()


async def damages(store: Store) -> list[str]:
    try:
        return [damage.reason for damage in await store.check()]
    except DamagedStore as error:  # where hardly anything of it can be read
        return [error.reason]


def places(data: bytes, wanted: bytes) -> list[int]:
    return [place for place in range(len(data)) if data.startswith(wanted, place)]
