"""Promise 18: retention and pruning free the space. A thread that runs for ever does not grow."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from tests.chance import SOAK
from tests.promises.histories import Seen, numbers
from tests.promises.processes import Place
from tests.promises.stages import Does
from tests.schemas import SCHEMAS

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder
from perdure.checkpoints.history.retention import KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage

KB, MB = 1024, 1024 * 1024


def on_disk(place: Place, vacuum: str = "VACUUM") -> int:
    """Bytes on the disk; of PostgreSQL those that are left after a vacuum."""
    if place.kind == "postgres":
        SCHEMAS.fetch(place.folder, f"{vacuum} {{s}}.commits")
        SCHEMAS.fetch(place.folder, f"{vacuum} {{s}}.threads")
    return place.on_disk()


def size_of_rows(place: Place) -> int:
    """Bytes on the disk. A plain VACUUM keeps the empty end of a table while any other session has a lock on it."""
    return on_disk(place, "VACUUM FULL")


def looping(storage: StoreCheckpointStorage, *, grows: bool = False) -> Workflow:
    """In each superstep a text of 16 KB that is another each time, and one more item of 1 KB in a list."""
    chance = random.Random(1)

    async def work(left: int, ctx: Any) -> None:
        ctx.set_state("text", chance.randbytes(8 * KB).hex())
        if grows:
            ctx.set_state("log", [*ctx.get_state("log", []), chance.randbytes(KB // 2).hex()])
        if left > 1:
            await ctx.send_message(left - 1)

    loop = Does("loop", work)
    return WorkflowBuilder(name="loop", start_executor=loop, checkpoint_storage=storage).add_edge(loop, loop).build()


async def test_1000_commits_under_latest_only_take_what_the_last_ones_need(apart: Place) -> None:
    """17 MB are written: 1 MB that is still there, and the rest is gone. What 64 of them left is freed together."""
    most, rounds = 0, 10 if apart.kind == "postgres" and not SOAK else 20
    async with apart.storage(retention=LatestOnly()) as storage:
        workflow = looping(storage, grows=True)
        for _ in range(rounds):
            await workflow.run(49, thread_id="t")  # with the input 50 commits
            most = max(most, on_disk(apart))
        assert await storage.store.size() == on_disk(apart) or apart.kind == "postgres"
        assert await numbers(storage) == [50 * rounds]
        head = await storage.get_latest(thread_id="t")
        assert head is not None and len(head.state["log"]) == 49 * rounds
    closed = on_disk(apart)
    print(f"{apart.kind}: open {most / MB:.1f} MB, closed {closed / MB:.1f} MB")
    assert closed <= 4 * MB and most <= 8 * MB


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(10)], ids=repr)
async def test_a_thread_in_memory_does_not_grow(retention: Retention) -> None:
    storage, sizes = InMemoryCheckpointStorage(retention=retention), list[int]()
    workflow = looping(storage)
    for _ in range(20):
        await workflow.run(24, thread_id="t")
        sizes.append(await storage.store.size())
    assert max(sizes) <= 2 * MB and max(sizes[5:]) <= 2 * max(sizes[:5]), sizes


async def test_growing_list_in_memory_does_not_keep_values_beside_it() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly())
    workflow = looping(storage, grows=True)
    for _ in range(8):
        await workflow.run(49, thread_id="t")
    assert await storage.store.size() <= 2.5 * MB, "of 6.8 that were written"


@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_pruning_gives_the_space_back_at_once(apart: Place) -> None:
    async with apart.storage() as storage:
        workflow, seen = looping(storage), Seen()
        await workflow.run(99, thread_id="t")
        await workflow.run(99, thread_id="u")
        full = on_disk(apart)
        report = await storage.prune(keep_last=1)
        left = on_disk(apart)
        assert report.freed_bytes == full - left and report.checkpoints == 198
        await seen.look(storage)
    print(f"{apart.kind}: {full / MB:.1f} MB, {left / MB:.1f} MB while it is open, {on_disk(apart) / KB:.0f} KB")
    assert full > 3 * MB and on_disk(apart) < 0.15 * MB


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_postgresql_reuses_the_space_of_pruned_rows(apart: Place) -> None:
    """It keeps its tables as large as they were, and puts what comes into what was freed."""
    async with apart.storage() as storage:
        workflow, seen = looping(storage), Seen()
        sizes = []
        for round_ in range(3):
            await workflow.run(99, thread_id=f"t{round_}")
            await workflow.run(99, thread_id=f"u{round_}")
            sizes.append(apart.on_disk())
            before = await storage.store.size()
            report = await storage.prune(keep_last=1)
            left = await storage.store.size()
            assert report.freed_bytes == before - left and report.checkpoints == 198
            assert before > 3 * MB and left < (round_ + 1) * 0.1 * MB
            on_disk(apart)
        await seen.look(storage)
    assert max(sizes) < 1.3 * sizes[0], sizes  # of three times as much that was written


async def test_threads_that_are_deleted_leave_nothing_behind(apart: Place) -> None:
    async with apart.storage() as storage:
        workflow = looping(storage)
        await workflow.run(1, thread_id="stays")
        await storage.close()
        before = on_disk(apart)
        for number in range(20):
            await workflow.run(9, thread_id=f"t{number}")
        await storage.close()
        full = on_disk(apart)
        [kept] = await storage.list_checkpoint_infos(thread_id="stays", limit=1)
        await storage.pin(kept)
        report = await storage.prune(older_than=timedelta(0), whole_threads=True)
        assert report.whole_threads == 20 and [skipped.thread_id for skipped in report.skipped] == ["stays"]
    assert full > 3 * MB and size_of_rows(apart) < before + 0.1 * MB
