"""Stores that are interrupted, or disturbed by others at work: finished work is whole, and no caller waits in vain."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.conformance.whole_threads import all_of, read_out, renamed

from perdure.errors import StorageFailed
from perdure.store import Store
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import checkpoint_ids, own, save_thread, thread_ids

# ---------------------------------------------------------------- a thread that comes to be, and a kill


class Snapshots(Disk):
    """Keeps what is in the folder before and after a file is put in its place: what a process killed then leaves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(syncs=False)
        self.folder = folder

    def replace(self, source: Path, target: Path) -> None:
        shutil.copytree(target.parent, self.folder / "before")
        super().replace(source, target)
        shutil.copytree(target.parent, self.folder / "after")


async def add(store: Store) -> None:
    await store.add_thread(*renamed(*await read_out(store, "t"), "u"))


async def copy(store: Store) -> None:
    await store.copy_thread("t", "u")


WAYS: dict[str, Callable[[Store], Awaitable[None]]] = {"add_thread": add, "copy_thread": copy}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
async def test_thread_created_as_its_process_is_killed_is_listed_or_absent(
    make: Callable[[Store], Awaitable[None]], tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store", disk=Snapshots(tmp_path))
    await save_thread(store, "t", 3, events=1)
    await make(store)
    expected = await all_of(store, "u")
    await store.close()
    before, after = (FileStore(tmp_path / name, fsync=False) for name in ("before", "after"))
    assert await thread_ids(before) == ["t"] and await before.thread_header("u") is None
    assert list(await before.check()) == []
    assert not await before.delete_thread("u")
    await make(before)
    assert await thread_ids(before) == ["t", "u"]
    assert await thread_ids(after) == ["t", "u"] and len(await checkpoint_ids(after, thread_id="u")) == 3
    head = await after.head("u")
    assert head is not None and head.info.number == 3
    actual = await all_of(after, "u")
    assert {name: actual[name] for name in ("infos", "events", "chunks")} == {
        name: expected[name] for name in ("infos", "events", "chunks")
    }
    assert list(await after.check()) == []
    for restarted in (before, after):
        await restarted.close()


# ---------------------------------------------------------------- reads while the file is rewritten again and again


class AgainAndAgain(Disk):
    """Does something every other time when it is looked whether the file of a thread is still the same: the one that is
    opened then is read."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.act: Callable[[], None] | None = None
        self.looks = 0

    def is_same(self, fd: int, path: Path) -> bool:
        if self.act is not None and path.name == "t.jsonl":
            self.looks += 1
            if self.looks % 2:
                self.act()
        return super().is_same(fd, path)


async def test_a_thread_is_read_however_often_another_prunes_it_meanwhile(tmp_path: Path) -> None:
    disk = AgainAndAgain()
    reader = FileStore(tmp_path, disk=disk)
    pruner = FileStore(tmp_path, fsync=False, busy_seconds=0.02)
    await save_thread(pruner, "t", 40, events=1)
    doomed = [f"t-{number}" for number in range(1, 31)]
    refused: list[str] = []

    def prune() -> None:
        try:
            asyncio.run(pruner.prune("t", doomed[:1]))
            del doomed[:1]
        except StorageFailed as error:
            refused.append(str(error))  # the reader has the file by now

    expected = await pruner.find_checkpoint("t-40")
    disk.act = prune
    assert await reader.find_checkpoint("t-40") == expected
    disk.act = None
    assert 0 < len(doomed) < 30 and refused, "it was pruned until the reader had its file"
    await reader.close()
    await pruner.close()


# ---------------------------------------------------------------- freeing that fails


def harm_sqlite(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "threads.db")) as db, db:
        db.execute("UPDATE commits SET body = x'00' WHERE number = 2")


def harm_file(folder: Path) -> None:
    path = folder / "threads" / "t.jsonl"
    data = bytearray(path.read_bytes())
    data[data.index(b"c2") + 1] ^= 1
    with path.open("r+b") as file:  # the same file: it is open
        file.write(data)


UNFREEABLE: dict[str, tuple[Callable[[Path], Store], Callable[[Path], None]]] = {
    "sqlite": (lambda folder: SqliteStore(folder / "threads.db", synchronous="NORMAL"), harm_sqlite),
    "file": (lambda folder: FileStore(folder / "threads", fsync=False), harm_file),
}


@pytest.mark.parametrize("kind", UNFREEABLE)
async def test_commit_succeeds_when_its_pruned_space_cannot_be_freed(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, harm = UNFREEABLE[kind]
    store = make(tmp_path)
    owner = await own(store)
    for number in range(1, 41):
        if number == 5:
            harm(tmp_path)
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, prunes=[number - 1])
    assert await checkpoint_ids(store) == ["t-40"]
    assert "thread t: pruning failed, space not freed" in caplog.text
    await owner.release()
    again = await own(store, owner="run-2")
    assert again.number == 40 and again.opened.damage is None
    await again.save()
    await store.close()


# ---------------------------------------------------------------- nothing to prune


def database_in(folder: Path) -> Path:
    (database,) = folder.rglob("*.db")
    return database


@pytest.mark.parametrize("kind", UNFREEABLE)
async def test_empty_prune_does_not_wait_for_a_writer(kind: str, tmp_path: Path) -> None:
    made: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(tmp_path / "threads.db", synchronous="NORMAL", busy_seconds=0.05),
        "file": lambda: FileStore(tmp_path / "threads", fsync=False, busy_seconds=0.05),
    }
    store = made[kind]()
    await save_thread(store, "t", 3, events=1)
    await save_thread(store, "other", 1)
    await store.prune("t", ["t-1"], events_before=2)
    with closing(sqlite3.connect(database_in(tmp_path), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        for going, events_before in (([], 0), (["t-1"], 0), (["other-1", "nothing"], 2)):
            assert await store.prune("t", going, events_before=events_before) == 0
        assert await store.prune("nobody", ["t-2"]) == 0
    assert await store.prune("t", ["t-2"]) == 1
    await store.close()
