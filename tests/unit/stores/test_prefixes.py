"""Lists of the threads whose ids begin with a text: without reading the rows of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ThreadNotFound
from perdure.stores.memory.store import MemoryStore
from perdure.stores.packing import first_after
from perdure.stores.sqlite.lists import list_requests, list_thread_ids, list_threads, read_last_seq
from perdure.stores.sqlite.schema import SqliteDatabase, prepare
from perdure.testing.conformance.threads import make_request, own, save_thread


def test_first_after_a_prefix_is_the_next_text_without_that_prefix() -> None:
    assert first_after("ann/") == "ann0" and first_after("a\U0010ffff") == "b"
    assert first_after("\ud7ff") == "\ue000", "what stands between them are no characters"
    assert first_after("\U0010ffff\U0010ffff") is None and first_after("") is None


async def test_a_storage_lists_threads_and_requests_of_a_prefix() -> None:
    store = MemoryStore()
    storage = StoreCheckpointStorage(store)
    for name in ("ann/1", "bob/1", "ann/2"):
        await save_thread(store, name, events=2, status="IN_PROGRESS", requests=[make_request(name, "q", 1)])
    await (await own(store, "ann/2")).note(status="IDLE", events=1)

    async def listed(**wanted: object) -> list[str]:
        threads = await storage.list_threads(**wanted)  # type: ignore[arg-type]  # filters are of several types
        return [thread.thread_id for thread in threads]

    assert await listed(prefix="ann/") == ["ann/1", "ann/2"]
    assert await listed(prefix="ann/", limit=1) == ["ann/2"]
    assert await listed(prefix="ann/", limit=1, before="ann/2") == ["ann/1"]
    assert await listed(statuses={"IN_PROGRESS"}) == ["ann/1", "bob/1"]
    assert [request.thread_id for request in await storage.pending_requests(prefix="ann/")] == ["ann/1", "ann/2"]
    assert [await storage.last_seq(thread_id) for thread_id in ("ann/1", "ann/2", "nobody's")] == [2, 3, 0]
    with pytest.raises(ThreadNotFound):
        await listed(prefix="ann/", before="nobody's")
    with pytest.raises(TypeError, match=r"collection of statuses, such as \{'IDLE'\}, got 'IDLE'"):
        await listed(statuses="IDLE")


# ---------------------------------------------------------------- what SQLite does for it


class Counted:
    """Tables with ten threads of one owner beside those of others, and how many steps SQLite takes to read them."""

    def __init__(self, db: SqliteDatabase, others: int) -> None:
        self._db = db
        self._steps = 0
        prepare(db, "a new store")
        ids = [*(f"other {number}/t" for number in range(others)), *(f"ann/{number}" for number in range(10))]
        rows = [(thread_id, number, 1) for number, thread_id in enumerate(ids)]
        db.executemany("INSERT INTO threads (thread_id, moved, number) VALUES (?, ?, ?)", rows)
        db.execute("INSERT INTO requests SELECT thread, 'q', 'e', moved, NULL, NULL FROM threads")

    def steps(self, read: Callable[[SqliteDatabase], object]) -> int:
        def count() -> None:
            self._steps += 1

        self._steps = 0
        self._db.set_progress_handler(count, 1)
        assert read(self._db) is not None
        self._db.set_progress_handler(None, 1)
        return self._steps


def connect() -> SqliteDatabase:
    return sqlite3.connect(":memory:", factory=SqliteDatabase)


@pytest.fixture
def few_and_many() -> Iterator[tuple[Counted, Counted]]:
    with closing(connect()) as few, closing(connect()) as many:
        yield Counted(few, 20), Counted(many, 5000)


READS: dict[str, Callable[[SqliteDatabase], object]] = {
    "threads": lambda db: list_threads(db, prefix="ann/", limit=5),
    "threads before one": lambda db: list_threads(db, prefix="ann/", limit=5, before="ann/7"),
    "threads by status": lambda db: list_threads(db, prefix="ann/", statuses={"", "IDLE"}),
    "ids": lambda db: list_thread_ids(db, prefix="ann/", after="ann/2", limit=50),
    "requests": lambda db: list_requests(db, prefix="ann/", limit=5),
    "last event": lambda db: read_last_seq(db, "ann/1"),
}


@pytest.mark.parametrize("what", READS)
def test_sqlite_lists_a_prefix_in_steps_independent_of_other_threads(
    few_and_many: tuple[Counted, Counted], what: str
) -> None:
    few, many = (counted.steps(READS[what]) for counted in few_and_many)
    assert many <= few + 20, f"{few} steps beside 20 threads, {many} beside 5000"
