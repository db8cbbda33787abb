"""Writes that wait at the same time: one transaction for all, and the error of one write reaches only its caller."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import DamagedStore, StorageFailed, ThreadBusy
from perdure.records import OpenedThread
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.threads import post_item


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "threads.db")
    await made.thread_ids(limit=1)
    yield made
    await made.close()


def transactions_of(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each that is made from now on is synced."""
    made: list[bool] = []
    begin = store._connection._try

    def counted(*arguments: object, **options: bool) -> object:
        made.append(options["syncs"])
        return begin(*arguments, **options)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(store._connection, "_try", counted)
    return made


async def opened(store: SqliteStore, *thread_ids: str) -> list[OpenedThread | BaseException]:
    claims = (store.open(thread_id, f"run of {thread_id}") for thread_id in thread_ids)
    return await asyncio.gather(*claims, return_exceptions=True)


async def test_claims_that_wait_together_share_few_transactions_without_a_sync(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = transactions_of(store, monkeypatch)
    outcomes = await opened(store, *(f"thread {number}" for number in range(40)))
    assert [outcome.lease.owner for outcome in outcomes if isinstance(outcome, OpenedThread)] == [
        f"run of thread {number}" for number in range(40)
    ]
    assert len(made) < 10 and not any(made)


async def test_write_that_must_be_synced_makes_its_whole_group_durable(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = transactions_of(store, monkeypatch)
    posts = (store.post("thread", f"item {number}", "message", b"1") for number in range(20))
    await asyncio.gather(store.open("other", "run"), *posts)
    assert len(made) < 10 and True in made
    assert [item.item_id for item in (await store.open("thread", "run")).inbox] == [f"item {at}" for at in range(20)]


async def test_refused_claim_does_not_affect_the_claims_beside_it(store: SqliteStore) -> None:
    await store.open("busy", "the first run")
    before, busy, after = await opened(store, "before", "busy", "after")
    assert isinstance(before, OpenedThread) and isinstance(after, OpenedThread)
    assert isinstance(busy, ThreadBusy) and busy.run_id == "the first run"


async def test_refused_write_rolls_back_only_its_own_changes(store: SqliteStore) -> None:
    def half(db: SqliteDatabase) -> None:
        post_item(db, "half", "item", "message", b"1")
        raise ThreadBusy("half")

    writes = [
        store.post("whole", "item", "message", b"1"),
        store._writer.write(half),
        store.post("next", "item", "message", b"1"),
    ]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ThreadBusy, type(None)]
    assert await store.thread_ids() == ["next", "whole"]


async def test_a_damaged_row_fails_only_the_write_that_needs_it(store: SqliteStore, tmp_path: Path) -> None:
    first = await opened(store, "good", "bad", "fine")
    for thread in first:
        assert isinstance(thread, OpenedThread)
        await store.release(thread.lease)
    with closing(sqlite3.connect(tmp_path / "threads.db")) as db, db:
        db.execute("UPDATE threads SET status = CAST(x'fffe' AS TEXT) WHERE thread_id = 'bad'")
    good, bad, fine = await opened(store, "good", "bad", "fine")
    assert isinstance(good, OpenedThread) and isinstance(fine, OpenedThread)
    assert isinstance(bad, DamagedStore)


async def test_removed_file_fails_all_waiting_writes_and_is_not_created_again(
    store: SqliteStore, tmp_path: Path
) -> None:
    for file in list(tmp_path.glob("threads.db*")):  # noqa: ASYNC240  # three files of a test
        file.unlink()
    outcomes = await opened(store, "one", "two", "three")
    assert all(isinstance(outcome, StorageFailed) and "removed or replaced" in str(outcome) for outcome in outcomes)
    assert not (tmp_path / "threads.db").exists()


async def test_base_exception_reaches_its_caller_and_reports_match_stored_writes(
    store: SqliteStore,
) -> None:
    class Stop(BaseException):
        pass

    def stop(db: SqliteDatabase) -> None:
        raise Stop

    writes = [
        store.post("one", "item", "message", b"1"),
        store._writer.write(stop),
        store.post("two", "item", "message", b"1"),
    ]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    kept = set(await store.thread_ids())
    assert isinstance(outcomes[1], Stop)
    for thread_id, outcome in (("one", outcomes[0]), ("two", outcomes[2])):
        assert (outcome is None) is (thread_id in kept)


async def test_worker_that_cannot_start_fails_one_write_and_not_later_ones(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise RuntimeError("can't start new thread")

    store._writer.worker.stop()
    with monkeypatch.context() as patched:
        patched.setattr(store._writer.worker, "_start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            await store.post("lost", "item", "message", b"1")
    await store.post("kept", "item", "message", b"1")
    assert await store.thread_ids() == ["kept"]
