"""Stores of format 1 that this version takes up: changed once, wholly, and they say what they are from then on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.contract.acts import everything, own

from perdure.records import Damage
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.schema import UPGRADES, is_made, prepare
from perdure.stores.sqlite.store import SqliteStore

OF_FORMAT_1 = Path(__file__).parents[2] / "fixtures" / "format-1"


@pytest.mark.parametrize("has_index", [True, False], ids=["with its index", "without"])
@pytest.mark.parametrize("act", ["pin", "forgets", "events"])
async def test_a_file_of_format_1_says_that_it_is_of_format_2_before_anything_that_only_that_has(
    act: str, has_index: bool, tmp_path: Path
) -> None:
    shutil.copytree(OF_FORMAT_1 / "threads", tmp_path / "threads")
    if has_index:
        shutil.copy(OF_FORMAT_1 / "index", tmp_path / "threads" / "index.db")
    store = FileStore(tmp_path / "threads", fsync=False)
    first = (await store.infos(thread_id="chunks"))[0]
    if act == "pin":
        await store.pin(first.checkpoint_id)
    else:
        owner = await own(store, "chunks", takeover=True, workflow_name="keeping")
        given: dict[str, Any] = {"prunes": [first.number]} if act == "forgets" else {"prunes_events_before": 2}
        await owner.save(timestamp="2027-01-01T00:00:00+00:00", **given)
        await owner.record(1)
    assert versions(tmp_path / "threads" / "chunks.jsonl") == [1, 2]
    before = await everything(store)
    await store.close()
    (tmp_path / "threads" / "index.db").unlink()
    again = FileStore(tmp_path / "threads", fsync=False)
    found = await everything(again)
    assert {**found, "threads": None} == {**before, "threads": None}  # nobody owns a thread in a new index
    assert list(await again.check()) == list[Damage]()
    await again.close()


def versions(path: Path) -> list[int]:
    """Those that a thread's file says, in order; whoever only knows the first must not meet what is newer before the
    second."""
    said = []
    for line in map(json.loads, path.read_bytes().splitlines()):
        if line.get("line") == "thread":
            said.append(line["version"])
        is_newer = line.get("line") == "pin" or "forgets" in line or "silent_before" in line
        assert not is_newer or said[-1] == 2, line
    return said


async def test_the_first_prune_of_a_sqlite_file_of_format_1_makes_it_give_space_back_from_then_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "threads.sqlite3"
    shutil.copy(OF_FORMAT_1 / path.name, path)
    assert pragma(path, "auto_vacuum") == 0
    store = SqliteStore(path, synchronous="NORMAL")
    for thread_id in ("rewound", "chunks"):
        *older, head = await store.infos(thread_id=thread_id)
        expected = await store.find_checkpoint(head.checkpoint_id)
        assert await store.prune(thread_id, [one.checkpoint_id for one in older]) == len(older)
        found = await store.find_checkpoint(head.checkpoint_id)
        assert found is not None and expected is not None and found.root == expected.root
        assert (pragma(path, "auto_vacuum"), pragma(path, "freelist_count")) == (2, 0)
    await store.close()
    assert path.stat().st_size < (OF_FORMAT_1 / path.name).stat().st_size


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        ((value,),) = db.execute(f"PRAGMA {name}").fetchall()
        return int(value)


@pytest.mark.parametrize("moment", range(4))
def test_a_file_of_format_1_that_another_changes_while_one_looks_is_changed_once(moment: int, tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    shutil.copy(OF_FORMAT_1 / path.name, path)
    mine, other = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    for db in (mine, other):
        db.execute("PRAGMA journal_mode = WAL")
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
    for db in (mine, other):
        db.close()


def test_a_file_of_format_1_that_another_changes_first_is_changed_once(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    shutil.copy(OF_FORMAT_1 / path.name, path)
    mine, other = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    for db in (mine, other):
        db.execute("PRAGMA journal_mode = WAL")
    seen: list[str] = []

    def before_each(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            prepare(other, str(path))
        seen.append(statement)

    mine.set_trace_callback(before_each)
    prepare(mine, str(path))
    mine.set_trace_callback(None)
    assert "BEGIN IMMEDIATE" in seen and not any("ALTER" in one for one in seen)
    for db in (mine, other):
        assert is_made(db, str(path))
        db.close()


@pytest.mark.parametrize("moment", range(len(UPGRADES[1].strip().split(";\n"))))
def test_a_change_to_format_2_that_is_cut_short_is_as_if_it_had_not_begun(moment: int, tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    shutil.copy(OF_FORMAT_1 / path.name, path)
    db = sqlite3.connect(path, isolation_level=None)
    changes: list[int] = []

    def refuse(action: int, *_: str | None) -> int:
        is_change = action in (sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_CREATE_TABLE)
        changes.extend([action] if is_change else [])
        return sqlite3.SQLITE_DENY if is_change and len(changes) > moment else sqlite3.SQLITE_OK

    db.set_authorizer(refuse)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        prepare(db, str(path))
    db.set_authorizer(None)
    assert not is_made(db, str(path))
    prepare(db, str(path))
    assert is_made(db, str(path))
    db.close()
    connection = Connection(path, "NORMAL", 1.0)
    assert connection.transact(lambda tables: tables.changed_schema(), writes=False, syncs=False) == []
    connection.close()
