"""Outcomes that are on their way to the journal at the same time: written together, and no commit passes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.promises.processes import STORAGES
from tests.turns import turns
from tests.unit.engine.policy_flows import Boom, Context, fan, started, worker

from perdure import step
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.engine.run.loop import RECORDS_PER_CHECKPOINT
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.testing import Faults

SIBLINGS = 20


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    made = STORAGES[request.param](tmp_path)
    yield made
    await made.close()


class HeldDisk(Disk):
    """Counts syncs; while it is held, the next one waits."""

    def __init__(self) -> None:
        super().__init__(syncs=True)
        self.goes_on, self.waits, self.made = threading.Event(), threading.Event(), 0
        self.goes_on.set()

    def sync(self, fd: int) -> None:
        self.made += 1
        self.waits.set()
        assert self.goes_on.wait(10)


async def test_outcomes_of_siblings_that_end_together_cost_a_few_syncs(tmp_path: Path) -> None:
    disk, all_here, may_end = HeldDisk(), asyncio.Barrier(SIBLINGS + 1), asyncio.Event()

    async def work(message: str, ctx: Context) -> None:
        await all_here.wait()
        await may_end.wait()
        await ctx.send_message(message)

    storage = StoreCheckpointStorage(FileStore(tmp_path, disk=disk))
    run = started(fan(*(worker(f"w{number}", work) for number in range(SIBLINGS)), checkpoint_storage=storage).run("x"))
    await all_here.wait()
    disk.made = 0
    disk.goes_on.clear()
    disk.waits.clear()
    may_end.set()
    await asyncio.to_thread(disk.waits.wait, 10)
    await turns(50)  # all others have ended meanwhile, and wait
    disk.goes_on.set()
    assert (await run).get_outputs() == [["x"] * SIBLINGS]
    assert disk.made <= 4  # the first, all others together, and the commits of two supersteps
    await storage.close()


async def test_outcome_of_an_executor_is_recorded_when_that_of_a_sibling_fails(
    storage: StoreCheckpointStorage,
) -> None:
    faults, calls = Faults(), list[str]()

    async def work(message: str, ctx: Context) -> None:
        calls.append(ctx.executor_id)
        await ctx.send_message(ctx.executor_id)

    def siblings() -> Any:
        workers = [worker(name, work) for name in ("a", "b", "c")]
        return fan(*workers, checkpoint_storage=faults.wrap(storage))

    faults.fail("journal", nth=2, error=OSError("the line went dead"))
    with pytest.raises(Exception, match="the line went dead"):
        await siblings().run("x", thread_id="t")
    assert (await siblings().run(thread_id="t")).get_outputs() == [["a", "b", "c"]]
    assert len(calls) < 6  # recorded work is not done again


async def test_checkpoint_in_the_middle_waits_for_outcomes_in_flight(
    storage: StoreCheckpointStorage,
) -> None:
    """An entry names the head that it extends: an entry after another head would not be read."""
    faults, quick, slow, fails = Faults(), list[str](), list[int](), [True]
    pause = faults.pause("journal")
    done = asyncio.Event()

    @step
    async def count(number: int) -> int:
        slow.append(number)
        if number == RECORDS_PER_CHECKPOINT - 1:
            done.set()
        return number

    async def end_at_once(message: str, ctx: Context) -> None:
        quick.append(message)
        await ctx.send_message("quick")

    async def take_many_steps(message: str, ctx: Context) -> None:
        await pause  # the outcome of the other is on its way by now
        for number in range(RECORDS_PER_CHECKPOINT + 2):
            await count(number)
        if fails:
            fails.pop()
            raise Boom
        await ctx.send_message("slow")

    def make() -> Any:
        workers = worker("quick", end_at_once), worker("slow", take_many_steps)
        return fan(*workers, checkpoint_storage=faults.wrap(storage))

    with pause:
        run = started(make().run("x", thread_id="t"))
        await done.wait()
        before = faults.counts["commit"]
        await turns(30)
        assert faults.counts["commit"] == before
    with pytest.raises(Boom):
        await run
    assert faults.counts["commit"] > before + 1  # the checkpoint in the middle, and how the run ended
    assert (await make().run(thread_id="t")).get_outputs() == [["quick", "slow"]]
    assert quick == ["x"] and slow == list(range(RECORDS_PER_CHECKPOINT + 2))


async def test_steps_continue_while_the_outcome_of_a_sibling_is_in_flight(storage: StoreCheckpointStorage) -> None:
    faults, steps = Faults(), list[int]()
    pause = faults.pause("journal")

    @step
    async def count(number: int) -> int:
        steps.append(number)
        return number

    async def take_steps(message: str, ctx: Context) -> None:
        await pause
        for number in range(5):
            await count(number)
        pause.resume()
        await ctx.send_message("slow")

    workers = worker("quick", lambda message, ctx: ctx.send_message("quick")), worker("slow", take_steps)
    with pause:
        async with asyncio.timeout(60):
            result = await fan(*workers, checkpoint_storage=faults.wrap(storage)).run("x", thread_id="t")
    assert result.get_outputs() == [["quick", "slow"]] and steps == list(range(5))
