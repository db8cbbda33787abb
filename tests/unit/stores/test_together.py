"""Entries of the journal that wait at the same time: written in one go, and each has its own outcome."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.turns import turns

from perdure.errors import DamagedStore, StorageFailed, ThreadConflict
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.worker import Job, WorkerThread
from perdure.testing.conformance.threads import ThreadOwner, own, read_as_owner, save_thread

MANY = 20
AnyStore = SqliteStore | FileStore


class HeldStore:
    """A store whose own thread is busy until the test releases it: all calls wait meanwhile."""

    def __init__(self, store: AnyStore) -> None:
        self.store = store
        self._goes_on = threading.Event()
        self._busy: asyncio.Task[bool] | None = None

    async def hold(self) -> None:
        self._goes_on.clear()
        self._busy = asyncio.create_task(self.store._tables.worker.run(lambda: self._goes_on.wait(10)))
        await turns(2)

    async def let_go(self) -> None:
        await turns(3)  # all that was asked for is in line by now
        self._goes_on.set()
        if self._busy is not None:
            assert await self._busy


class CountingDisk(Disk):
    """Counts what is synced, and need not do it."""

    def __init__(self) -> None:
        super().__init__(syncs=True)
        self.syncs_made = 0
        self.fails = False

    def sync(self, fd: int) -> None:
        self.syncs_made += 1
        if self.fails:
            raise OSError("no space left")


@pytest.fixture(params=["sqlite", "file"])
async def held(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HeldStore]:
    made: AnyStore = FileStore(tmp_path, fsync=False)
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL", busy_seconds=0.1)
    yield HeldStore(made)
    await made.close()


async def record_at_once(held: HeldStore, *entries: tuple[ThreadOwner, int]) -> list[BaseException | None]:
    """All of them wait at the same time; how each ended."""
    await held.hold()
    waiting = [asyncio.create_task(owner.record(delivery_id)) for owner, delivery_id in entries]
    await held.let_go()
    return await asyncio.gather(*waiting, return_exceptions=True)


async def deliveries(store: AnyStore, thread_id: str = "t") -> list[int]:
    return [delivery_id for delivery_id, _ in (await read_as_owner(store, thread_id))["journal"]]


# ---------------------------------------------------------------- one for all


async def test_entries_that_wait_together_cost_a_file_one_sync(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = FileStore(tmp_path, disk=disk)
    owner = await own(store)
    await owner.save()
    disk.syncs_made = 0
    assert await record_at_once(HeldStore(store), *((owner, number) for number in range(MANY))) == [None] * MANY
    assert disk.syncs_made == 1
    assert await deliveries(store) == list(range(MANY))
    await store.close()


async def test_entries_of_several_threads_cost_one_sync_for_each_file(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = FileStore(tmp_path, disk=disk)
    owners = [await own(store, name) for name in "abc"]
    for owner in owners:
        await owner.save()
    disk.syncs_made = 0
    await record_at_once(HeldStore(store), *((owners[number % 3], number) for number in range(MANY)))
    assert disk.syncs_made == 3
    assert await deliveries(store, "b") == list(range(1, MANY, 3))
    await store.close()


async def test_entries_that_wait_together_are_one_transaction_of_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL")
    owners = [await own(store, name) for name in "ab"]
    statements: list[str] = []
    assert store._connection._db is not None
    store._connection._db.set_trace_callback(statements.append)
    await record_at_once(HeldStore(store), *((owners[number % 2], number) for number in range(MANY)))
    assert statements.count("COMMIT") == 1
    assert await deliveries(store, "a") == list(range(0, MANY, 2))
    await store.close()


async def test_single_entry_does_not_wait_for_others(held: HeldStore) -> None:
    owner = await own(held.store)
    for number in range(3):
        await owner.record(number)
    assert await deliveries(held.store) == [0, 1, 2]


# ---------------------------------------------------------------- each its own outcome


async def test_lost_lease_fails_only_its_own_entries(held: HeldStore) -> None:
    loser = await own(held.store, owner="loser")
    winner = await own(held.store, owner="winner", takeover=True)
    other = await own(held.store, "u")
    ended = await record_at_once(held, (winner, 1), (loser, 2), (other, 3), (loser, 4), (winner, 5))
    assert [type(outcome) for outcome in ended] == [type(None), ThreadConflict, type(None), ThreadConflict, type(None)]
    assert await deliveries(held.store) == [1, 5]
    assert await deliveries(held.store, "u") == [3]


async def test_lost_lease_fails_its_entry_with_no_other_entry_waiting(held: HeldStore) -> None:
    loser = await own(held.store)
    await own(held.store, owner="winner", takeover=True)
    assert [type(outcome) for outcome in await record_at_once(held, (loser, 1))] == [ThreadConflict]
    assert await deliveries(held.store) == []


async def test_a_damaged_file_fails_the_entries_of_its_thread_only(tmp_path: Path) -> None:
    store = FileStore(tmp_path, fsync=False)
    bad, good = await own(store, "bad"), await own(store, "good")
    for owner in (bad, good):
        await owner.save()
    (tmp_path / "bad.jsonl").write_bytes(b"cut")
    ended = await record_at_once(HeldStore(store), (bad, 1), (good, 2), (bad, 3), (good, 4))
    assert [type(outcome) for outcome in ended] == [DamagedStore, type(None), DamagedStore, type(None)]
    assert await deliveries(store, "good") == [2, 4]
    await store.close()


async def test_failing_disk_fails_all_waiting_entries_and_stores_none(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = FileStore(tmp_path, disk=disk)
    owner = await own(store)
    await owner.save()
    disk.fails = True
    ended = await record_at_once(HeldStore(store), (owner, 1), (owner, 2))
    disk.fails = False
    assert [type(outcome) for outcome in ended] == [StorageFailed, StorageFailed]
    await owner.record(3)
    assert await deliveries(store) == [3]
    await store.close()


async def test_locked_database_fails_all_waiting_entries_and_stores_none(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteStore(path, synchronous="NORMAL", busy_seconds=0.05)
    owner = await own(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ended = await record_at_once(HeldStore(store), (owner, 1), (owner, 2))
    other.close()
    assert [type(outcome) for outcome in ended] == [StorageFailed, StorageFailed]
    await owner.record(3)
    assert await deliveries(store) == [3]
    await store.close()


async def test_entry_cancelled_while_it_waits_does_not_affect_others(held: HeldStore) -> None:
    owner = await own(held.store)
    await held.hold()
    waiting = [asyncio.create_task(owner.record(number)) for number in range(3)]
    await turns(3)
    waiting[0].cancel()
    await held.let_go()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError) and ended[1:] == [None, None]
    assert [number for number in await deliveries(held.store) if number] == [1, 2]


# ---------------------------------------------------------------- by itself


class Writer:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def write(self, batch: Sequence[Job[int]]) -> None:
        self.batches.append([job.work for job in batch])
        for job in batch:
            if job.work == 1:
                job.error = ValueError("its own")
        if len(batch) > 2:
            raise OSError("everybody's")


async def test_error_of_one_job_is_not_hidden_by_the_error_of_its_batch() -> None:
    writer, thread, goes_on = Writer(), WorkerThread("test"), threading.Event()
    busy = asyncio.create_task(thread.run(lambda: goes_on.wait(10)))
    await turns(2)
    waiting = [asyncio.create_task(thread.run(number, writer.write)) for number in range(3)]
    await turns(2)
    goes_on.set()
    ended = await asyncio.gather(busy, *waiting, return_exceptions=True)
    assert [str(outcome) for outcome in ended[1:]] == ["everybody's", "its own", "everybody's"]
    assert writer.batches == [[0, 1, 2]]
    thread.stop()


async def test_store_that_wrote_a_journal_ends_with_its_last_reference(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore(tmp_path / "threads.db", synchronous="NORMAL")
    await save_thread(store, "t")
    await (await own(store)).record(1)
    (own_thread,) = set(threading.enumerate()) - before
    del store
    gc.collect()
    own_thread.join(5)
    assert not own_thread.is_alive()
