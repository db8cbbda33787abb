"""The index of a file store that is deleted or remade while stores use it: no store writes by its old content."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from perdure.errors import StorageFailed, ThreadConflict
from perdure.stores.disk import Disk
from perdure.stores.file.folder import ThreadFiles
from perdure.stores.file.index import INDEX, FileIndex
from perdure.stores.file.store import FileStore
from perdure.testing.conformance.threads import checkpoint_ids, own, save_thread

Make = Callable[..., FileStore]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """One more object on the same folder, as another process would have."""
    made: list[FileStore] = []

    def one(disk: Disk | None = None) -> FileStore:
        made.append(FileStore(tmp_path, disk=disk or Disk(syncs=False)))
        return made[-1]

    yield one
    for store in made:
        await store.close()


def delete_index(folder: Path) -> None:
    for file in folder.glob(f"{INDEX}*"):
        file.unlink()


def damage_index(folder: Path) -> None:
    for file in folder.glob(f"{INDEX}*"):
        file.write_bytes(b"no database" * 1000)


# ---------------------------------------------------------------- deleted while others live


async def test_fence_of_a_deleted_index_is_refused(make: Make, tmp_path: Path) -> None:
    old = await own(make(), owner="old")
    await old.save()
    delete_index(tmp_path)
    new = await own(make(), owner="new")
    with pytest.raises(ThreadConflict):
        await old.save("of the old one")
    with pytest.raises(ThreadConflict):
        await old.record(1)
    with pytest.raises(ThreadConflict):
        await old.store.renew(old.lease)
    await new.save()
    assert await checkpoint_ids(old.store) == ["t-1", "t-2"]


async def test_owner_conflicts_after_index_deletion_before_the_next_open(make: Make, tmp_path: Path) -> None:
    old = await own(make())
    await old.save()
    delete_index(tmp_path)
    with pytest.raises(ThreadConflict):
        await old.save()
    await (await own(old.store, owner="next")).save()


async def test_claim_without_writes_has_a_lower_fence_than_the_next_claim(make: Make, tmp_path: Path) -> None:
    """Its fence is in no file, and users may give two runs one id."""
    store = make()
    await save_thread(store, "t")
    old = await own(store, owner="nightly")
    delete_index(tmp_path)
    new = await own(make(), owner="nightly")
    assert new.lease.fence > old.lease.fence
    with pytest.raises(ThreadConflict):
        await old.record(1)
    with pytest.raises(ThreadConflict):
        await old.save()
    await old.release()  # of a lease that was taken over: it is left alone
    await new.save()


async def test_reader_with_the_deleted_index_open_sees_later_writes(make: Make, tmp_path: Path) -> None:
    reader = make()
    await save_thread(reader, "t")
    delete_index(tmp_path)
    await save_thread(make(), "u")
    assert sorted(await checkpoint_ids(reader)) == ["t-1", "u-1"]
    assert (await reader.head("u")) is not None
    assert await reader.read_chunks("u", [1]) == {1: {}}


class SlowToLock(Disk):
    """Waits before it takes the lock of a thread, until the test releases it."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.is_slow, self.waits, self.goes_on = False, threading.Event(), threading.Event()

    def lock(self, fd: int, path: Path, seconds: float) -> None:
        if self.is_slow and path.name == "t.jsonl":
            self.waits.set()
            assert self.goes_on.wait(10)
        super().lock(fd, path, seconds)


async def test_index_remade_while_a_writer_waits_for_the_file_is_read_again(make: Make, tmp_path: Path) -> None:
    disk = SlowToLock()
    old = await own(make(disk), owner="old")
    await old.save()
    disk.is_slow = True
    late = asyncio.create_task(old.save("too late"))
    await asyncio.to_thread(disk.waits.wait, 10)
    delete_index(tmp_path)
    new = await own(make(), owner="new")
    disk.goes_on.set()
    with pytest.raises(ThreadConflict):
        await late
    await new.save()
    assert await checkpoint_ids(new.store) == ["t-1", "t-2"]


# ---------------------------------------------------------------- found damaged


def index_of(folder: Path, busy_seconds: float = 5.0) -> FileIndex:
    return FileIndex(ThreadFiles(folder, Disk(syncs=False)), busy_seconds)


def file_there(folder: Path) -> int:
    return (folder / INDEX).stat().st_ino


async def test_damaged_index_is_remade_once_by_the_first_reader_that_notices(make: Make, tmp_path: Path) -> None:
    await save_thread(make(), "t")
    first, second = index_of(tmp_path), index_of(tmp_path)
    first.make_ready()
    second.make_ready()
    was = file_there(tmp_path)
    first.make_ready(is_damaged=True)
    assert file_there(tmp_path) != was
    owner = await own(make())  # a claim that is in the new index only
    remade = file_there(tmp_path)
    second.make_ready(is_damaged=True)
    assert file_there(tmp_path) == remade
    await owner.save()
    first.close()
    second.close()


async def test_locked_index_is_not_removed(make: Make, tmp_path: Path) -> None:
    await save_thread(make(), "t")
    index, disk = index_of(tmp_path, 0.05), Disk()
    index.make_ready()
    was = file_there(tmp_path)
    held = tmp_path / "index.lock"
    fd = disk.open(held)
    disk.lock(fd, held, 5)
    with pytest.raises(StorageFailed, match=r"index\.lock"):
        index.make_ready(is_damaged=True)
    assert file_there(tmp_path) == was
    os.close(fd)
    index.make_ready()
    assert file_there(tmp_path) == was  # only the reader that found the damage knows of it
    index.close()


async def test_stores_that_notice_damage_together_all_continue_with_one_owner(make: Make, tmp_path: Path) -> None:
    stores = [make() for _ in range(4)]
    for number, store in enumerate(stores):
        await save_thread(store, f"thread-{number}")
        await store.close()
    damage_index(tmp_path)
    claims = await asyncio.gather(*(own(store, "thread-0") for store in stores), return_exceptions=True)
    (owner,) = [claim for claim in claims if not isinstance(claim, BaseException)]
    await owner.save()
    for store in stores:
        assert len(await checkpoint_ids(store)) == 5
