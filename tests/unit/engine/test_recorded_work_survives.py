"""Recorded work is neither repeated nor lost: after failures, answers, changes of storage and of durability."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, begin, questions, resume
from tests.unit.engine.policy_flows import Boom, Context, Flaky, alone, asleep, cancelled, chained, fan, started, worker

from perdure import InMemoryCheckpointStorage, RetryPolicy, RunContext, workflow
from perdure.errors import StorageFailed, ThreadNotIdle
from perdure.testing import FakeClock, Faults

is_same_object = pytest.mark.parametrize("is_same", [True, False], ids=["same object", "another object"])


class Sum:
    """Adds up what its numbered steps give; the step with the number `broken` fails."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.broken: int | None = None
        add = self.calls.step(self._give)

        @workflow(name="sum")
        async def flow(steps: int) -> int:
            return sum([await add(number) for number in range(steps)])

        self.flow = flow

    def _give(self, number: int) -> int:
        if number == self.broken:
            raise Boom(f"step {number}")
        return number


@pytest.fixture
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every third record, so that a few steps do what a hundred do otherwise."""
    monkeypatch.setattr("perdure.engine.run.loop.RECORDS_PER_CHECKPOINT", 3)


# ---------------------------------------------------------------- checkpoints in the middle of a function


@pytest.mark.usefixtures("short_journal")
@is_same_object
async def test_steps_around_a_checkpoint_in_the_middle_are_not_called_again(is_same: bool) -> None:
    work, storage = Sum(), InMemoryCheckpointStorage()
    flow = work.flow.build(storage)
    work.broken = 5
    with pytest.raises(Boom, match="step 5"):
        await flow.run(8, thread_id=THREAD)
    work.broken = None
    result = await (flow if is_same else work.flow.build(storage)).run(thread_id=THREAD)
    assert result.get_outputs() == [28]
    assert work.calls == [0, 1, 2, 3, 4, 5, 5, 6, 7]


@pytest.mark.usefixtures("short_journal")
async def test_failing_checkpoint_in_the_middle_is_not_a_failure_of_the_step() -> None:
    calls, faults = Calls(), Faults()
    storage = faults.wrap(InMemoryCheckpointStorage())
    faults.fail("commit", nth=2, error=OSError("disk full"))
    add = calls.step()

    @workflow
    async def flow(steps: int) -> list[Any]:
        return [(await asyncio.gather(add(number), return_exceptions=True))[0] for number in range(steps)]

    with pytest.raises(StorageFailed):
        await begin(flow, storage, 6)
    assert (await resume(flow, storage)).get_outputs() == [[0, 1, 2, 3, 4, 5]]
    assert calls == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("short_journal")
async def test_a_branch_cancelled_during_a_checkpoint_in_the_middle_is_cancelled() -> None:
    calls, faults = Calls(), Faults()
    storage = faults.wrap(InMemoryCheckpointStorage())
    pause = faults.pause("commit", nth=2)
    add = calls.step()

    @workflow
    async def flow(steps: int) -> str:
        async def branch() -> None:
            for number in range(steps):
                await add(number)

        task = asyncio.create_task(branch())
        await pause
        task.cancel()
        pause.resume()
        await asyncio.wait([task])
        return "cancelled" if task.cancelled() else "went on"

    assert (await begin(flow, storage, 50)).get_outputs() == ["cancelled"]
    assert calls == [0, 1, 2]


@pytest.mark.usefixtures("short_journal")
async def test_retry_waits_for_its_time_after_a_sibling_made_a_checkpoint() -> None:
    flaky, clock, storage = Flaky(failures=9), FakeClock(), InMemoryCheckpointStorage()
    has_failed, is_far, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fail(message: Any, ctx: Context) -> None:
        has_failed.set()
        flaky.meet(message)

    async def walk(_: Any, ctx: Context) -> None:
        await has_failed.wait()
        for number in range(7):
            await ctx.step(lambda: None, name="walk", key=str(number))
        is_far.set()
        await may_end.wait()

    def build() -> Any:
        retried = worker("retried", fail, retry=RetryPolicy(3, initial_delay=1000, max_delay=5000))
        return fan(retried, worker("walker", walk), clock=clock, checkpoint_storage=storage)

    await _left_behind(build(), is_far)
    may_end.set()
    run = started(build().run(thread_id=THREAD, takeover=True))
    await asleep(clock, run)
    assert len(flaky.calls) == 1
    await cancelled(run)


@pytest.mark.usefixtures("short_journal")
async def test_delivery_interrupted_after_a_checkpoint_is_logged_from_its_start() -> None:
    storage, is_far = InMemoryCheckpointStorage(), asyncio.Event()

    async def walk(_: Any, ctx: Context) -> None:
        for number in range(4):
            await ctx.step(lambda: None, name="walk", key=str(number))
        if not is_far.is_set():
            is_far.set()
            await asyncio.Event().wait()

    await _left_behind(alone(walk, checkpoint_storage=storage), is_far)
    flow = alone(walk, checkpoint_storage=storage)
    await flow.run(thread_id=THREAD)
    async with flow.open(thread_id=THREAD) as handle:
        logged = [event.type async for event in handle.events(after=0) if event.executor_id == "only"]
    assert logged == ["executor_invoked", "executor_completed"]


@pytest.mark.usefixtures("short_journal")
async def test_thread_left_after_a_checkpoint_in_the_middle_rejects_new_messages() -> None:
    storage, is_far = InMemoryCheckpointStorage(), asyncio.Event()

    async def ask(message: Any, ctx: Context) -> None:
        await ctx.request_info("who?", str)
        await ctx.send_message(message)

    async def walk(_: Any, ctx: Context) -> None:
        for number in range(4):
            await ctx.step(lambda: None, name="walk", key=str(number))
        is_far.set()
        await asyncio.Event().wait()

    def build() -> Any:
        return chained(worker("asking", ask), worker("walker", walk), checkpoint_storage=storage)

    await _left_behind(build(), is_far)
    with pytest.raises(ThreadNotIdle):
        await build().run("y", thread_id=THREAD)


async def _left_behind(flow: Any, moment: asyncio.Event) -> None:
    """Run up to the moment, and end there."""
    run = started(flow.run("x", thread_id=THREAD))
    await moment.wait()
    await cancelled(run)


# ---------------------------------------------------------------- answers, storages, durability


@is_same_object
async def test_an_answer_that_comes_after_a_failure_counts_and_repeats_no_step(is_same: bool) -> None:
    clock, storage, calls, flaky = FakeClock(), InMemoryCheckpointStorage(), Calls(), Flaky()
    done, failing = calls.step(name="done"), calls.step(flaky.meet, name="failing")

    @workflow(name="both")
    async def both(_: str, ctx: RunContext) -> str:
        async def later() -> None:
            await ctx.sleep(10)
            await done("done")
            await failing("failing")

        return (await asyncio.gather(ctx.request_info("who?", str), later()))[0]

    flow = both.build(storage, clock=clock)
    asked = questions(await flow.run("go", thread_id=THREAD))
    clock.advance(11)
    with pytest.raises(Boom):
        await flow.run(thread_id=THREAD)
    if not is_same:
        flow = both.build(storage, clock=clock)
    result = await flow.run(responses={asked["who?"]: "bob"}, thread_id=THREAD)
    assert (result.get_outputs(), questions(result)) == (["bob"], {})
    assert calls == ["done", "failing", "failing"]


@pytest.mark.parametrize("is_stored", [True, False], ids=["durability exit", "no storage"])
async def test_thread_begun_without_a_journal_can_be_resumed_once_it_has_one(is_stored: bool) -> None:
    work, storage = Sum(), InMemoryCheckpointStorage()
    flow = work.flow.build(storage if is_stored else None)
    for broken, options in ((3, {"durability": "exit"} if is_stored else {}), (6, {"checkpoint_storage": storage})):
        work.broken = broken
        with pytest.raises(Boom, match=f"step {broken}"):
            await flow.run(8 if broken == 3 else None, thread_id=THREAD, **options)
    work.broken = None
    already = len(work.calls)
    assert (await resume(work.flow, storage)).get_outputs() == [28]
    assert work.calls[already:] == [6, 7]
