"""Promise 17: the latest checkpoint and a list of 100 read no payload, and cost the same with 10 or 10,000 stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from typing import Any

import pytest
from tests.counting import counted_lines
from tests.promises.multiplying import multiply
from tests.promises.processes import Place
from tests.promises.stages import Asker, Stage, alone, ledger
from tests.schemas import SCHEMAS

from perdure import DamagedCheckpoint, InMemoryCheckpointStorage
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import CheckpointInfo, Commit

Call = Callable[[StoreCheckpointStorage], Awaitable[Sequence[Any]]]

# ---------------------------------------------------------------- no payload


async def ten_turns(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    for number in range(10):
        await workflow.run(f"{number}" * 1000, thread_id="t")
    await alone(Asker("asker"), storage).run("colour", thread_id="asked")


async def all_lists(storage: StoreCheckpointStorage) -> list[Any]:
    return [
        await storage.list_checkpoint_infos(),
        await storage.list_checkpoint_infos(thread_id="t", limit=5),
        await storage.list_checkpoint_infos(workflow_name="alone", limit=1),
        await storage.list_checkpoint_ids(workflow_name="alone"),
        await storage.list_threads(),
        await storage.pending_requests(),
    ]


async def test_lists_never_ask_the_store_for_a_payload(storage: StoreCheckpointStorage) -> None:
    await ten_turns(storage)
    before = await all_lists(storage)

    async def refused(*arguments: Any, **more: Any) -> Any:
        raise AssertionError("a list read a payload")

    for method in ("open", "find_checkpoint", "head", "read_chunks", "events_after"):
        setattr(storage.store, method, refused)  # what would read one
    assert await all_lists(storage) == before
    assert len(before[0]) == 22


def destroy_payloads(place: Place) -> None:
    if place.kind == "sqlite":
        with closing(sqlite3.connect(place.database)) as db, db:
            db.execute("UPDATE commits SET body = zeroblob(length(body))")
    elif place.kind == "postgres":
        SCHEMAS.fetch(place.folder, "UPDATE {s}.commits SET root = '', events = '', chunks = NULL")
    for path in place.folder.rglob("*.jsonl"):
        path.write_bytes(b"\0" * path.stat().st_size)


async def test_lists_are_the_same_when_every_payload_is_destroyed(place: Place) -> None:
    async with place.storage() as storage:
        await ten_turns(storage)
        before = await all_lists(storage)
    destroy_payloads(place)
    async with place.storage() as storage:
        assert await all_lists(storage) == before
        with pytest.raises(DamagedCheckpoint, match=before[1][-1].checkpoint_id):
            await storage.get_latest(thread_id="t")


async def test_the_latest_reads_the_payload_of_no_other_checkpoint(place: Place) -> None:
    """It needs what it shares with those before, and nothing that they alone have."""
    async with place.storage() as storage:
        await ten_turns(storage)
    if place.kind == "sqlite":
        with closing(sqlite3.connect(place.database)) as db, db:
            db.execute(
                "UPDATE commits SET body = NULL WHERE thread = (SELECT thread FROM threads WHERE thread_id = 't')"
            )
    elif place.kind == "postgres":
        gone = "UPDATE {s}.commits SET root = NULL, events = NULL, chunks = NULL WHERE thread ="
        SCHEMAS.fetch(place.folder, gone + " (SELECT thread FROM {s}.threads WHERE thread_id = 't')")
    else:
        (path,) = place.folder.rglob("t.jsonl")
        path.unlink()
    async with place.storage() as storage:
        latest = await storage.get_latest()
    assert latest is not None and latest.thread_id == "asked"


# ---------------------------------------------------------------- the same cost


async def fill_memory(storage: StoreCheckpointStorage, count: int, *, in_own_threads: bool) -> None:
    opened = await storage.store.open("many", "filler")
    for number in range(1, count + 1):
        if in_own_threads:
            opened = await storage.store.open(f"made-{number}", "filler")
        at = 1 if in_own_threads else opened.number + number
        thread_id = opened.lease.thread_id
        info = CheckpointInfo(f"made-{number}", thread_id, "alone", at, at, None, "2026-01-01T00:00:00+00:00")
        await storage.store.commit(Commit(opened.lease, at, info, b"{}", timestamp=info.timestamp))


LISTS: dict[str, Call] = {
    "100 of all": lambda storage: storage.list_checkpoint_infos(limit=100),
    "100 of a workflow": lambda storage: storage.list_checkpoint_infos(workflow_name="alone", limit=100),
    "100 of a thread": lambda storage: storage.list_checkpoint_infos(thread_id="many", limit=100),
    "100 of a small workflow": lambda storage: storage.list_checkpoint_infos(workflow_name="small", limit=100),
    "100 of a small thread": lambda storage: storage.list_checkpoint_infos(thread_id="small", limit=100),
    "latest": lambda storage: storage.list_checkpoint_infos(limit=1),
    "latest of a workflow": lambda storage: storage.list_checkpoint_infos(workflow_name="alone", limit=1),
    "latest of a small workflow": lambda storage: storage.list_checkpoint_infos(workflow_name="small", limit=1),
    "latest of a thread": lambda storage: storage.list_checkpoint_infos(thread_id="many", limit=1),
    "an older page": lambda storage: storage.list_checkpoint_infos(before="made-9", limit=5),
}


async def filled(storage: StoreCheckpointStorage, count: int, place: Place | None, *, in_own_threads: bool) -> None:
    """So many of one workflow, and 22 of a small one around them."""
    small = ledger(Stage(), storage, name="small")
    for _ in range(10):
        await small.run("x", thread_id="small")
    await ledger(Stage(), storage).run("x", thread_id="many")
    if place is None:
        await fill_memory(storage, count, in_own_threads=in_own_threads)
    else:
        await storage.close()
        multiply(place, count, in_own_threads=in_own_threads)
    await small.run("x", thread_id="small")


async def lines(call: Call, storage: StoreCheckpointStorage) -> int:
    """How many lines of Python are executed for it."""
    await call(storage)
    with counted_lines() as counted:
        await call(storage)
    return counted.count


async def steps(call: Call, storage: StoreCheckpointStorage, connections: list[sqlite3.Connection]) -> int:
    """How many instructions SQLite takes for it: a row that is looked at costs several, and luck plays no part."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    await call(storage)
    connections[-1].set_progress_handler(count, 1)
    await call(storage)
    connections[-1].set_progress_handler(None, 1)
    assert taken > 10
    return taken


def grown(done: dict[int, dict[str, int]]) -> dict[str, str]:
    """Lists that are more than half as much work again with 10,000 stored."""
    few, many = done[100], done[10_000]
    return {name: f"{few[name]} -> {count}" for name, count in many.items() if count > 1.5 * few[name]}


def expected_lengths(*, in_own_threads: bool) -> list[int]:
    """How many each of the lists holds."""
    return [100, 100, 2 if in_own_threads else 100, 22, 22, 1, 1, 1, 1, 5]


SHAPES = pytest.mark.parametrize("in_own_threads", [False, True], ids=["one thread", "many threads"])


@SHAPES
@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_lists_cost_the_same_with_100_or_10_000_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch, in_own_threads: bool
) -> None:
    """100, so that a list of 100 is as long with few stored as with many."""
    connect, connections = sqlite3.connect, list[sqlite3.Connection]()

    def kept(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connections.append(connect(*arguments, **more))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", kept)
    done, read = dict[int, dict[str, int]](), dict[int, dict[str, int]]()
    async with AsyncExitStack() as stack:
        for count in (100, 10_000):
            here = Place(place.kind, place.folder / f"{count}")
            here.folder.mkdir()
            storage = await stack.enter_async_context(here.storage())
            await filled(storage, count, here, in_own_threads=in_own_threads)
            done[count] = {name: await steps(call, storage, connections) for name, call in LISTS.items()}
            assert [len(await call(storage)) for call in LISTS.values()] == expected_lengths(
                in_own_threads=in_own_threads
            )
            read[count] = {name: await lines(call, storage) for name, call in LISTS.items()}
    assert (grown(done), grown(read)) == ({}, {})


@SHAPES
async def test_lists_in_memory_cost_the_same_with_100_or_10_000_stored(in_own_threads: bool) -> None:
    read = dict[int, dict[str, int]]()
    for count in (100, 10_000):
        storage = InMemoryCheckpointStorage()
        await filled(storage, count, None, in_own_threads=in_own_threads)
        assert [len(await call(storage)) for call in LISTS.values()] == expected_lengths(in_own_threads=in_own_threads)
        read[count] = {name: await lines(call, storage) for name, call in LISTS.items()}
    assert grown(read) == {}
