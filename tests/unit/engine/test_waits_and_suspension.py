"""When a delivery is suspended: never while something of it is at work, always once it only waits."""

from __future__ import annotations

import asyncio
import gc
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.turns import AwaitingStore, turns
from tests.unit.engine.function_flows import THREAD, Calls, begin, questions, resume
from tests.unit.engine.policy_flows import Boom, Context, alone, asleep, cancelled, started

from perdure import (
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    Workflow,
    WorkflowRunState,
    get_run_context,
    run_sync,
    step,
    workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import FakeClock


def slow_storage() -> StoreCheckpointStorage:
    """Every call takes many turns of the event loop, as those of files and databases do."""

    async def pause(moment: str) -> None:
        await turns(30)

    return StoreCheckpointStorage(AwaitingStore(pause))


async def due_times(storage: Any) -> list[datetime | None]:
    """When the suspended deliveries of the head are due."""
    head = await storage.get_latest(thread_id=THREAD)
    return [delivery.due_at for delivery in head.suspended.values()]


# ---------------------------------------------------------------- a storage that takes its time


async def test_branch_that_sleeps_beside_a_question_continues_at_its_time() -> None:
    clock, storage, calls = FakeClock(), slow_storage(), Calls()
    noted = calls.step()

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        async def later() -> None:
            await ctx.sleep(10)
            await noted("awake")

        await asyncio.gather(ctx.request_info("who?", str), later())

    await begin(flow, storage, clock=clock)
    assert await due_times(storage) == [clock.now() + timedelta(seconds=10)]
    clock.advance(11)
    result = await resume(flow, storage, clock=clock)
    assert (list(questions(result)), calls) == (["who?"], ["awake"])


async def test_shorter_of_two_sleeps_ends_first_even_if_it_began_later() -> None:
    clock, storage, woken = FakeClock(), slow_storage(), []

    @step
    async def note(name: str) -> None:
        woken.append((name, clock.monotonic()))

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        async def nap(name: str, seconds: float) -> None:
            await ctx.sleep(seconds)
            await note(name)

        await asyncio.gather(nap("long", 100), nap("short", 1))

    async with clock.skipping():
        await begin(flow, storage, clock=clock)
    assert woken == [("short", 1.0), ("long", 100.0)]


# ---------------------------------------------------------------- a step that waits in two branches


@step
async def waits_twice() -> None:
    ctx = get_run_context()
    assert ctx is not None
    await asyncio.gather(ctx.sleep(10), ctx.sleep(20))


@pytest.mark.parametrize("is_stored", [True, False])
async def test_step_is_not_cancelled_when_another_step_waits_in_two_branches(is_stored: bool) -> None:
    clock, log = FakeClock(), []
    is_at_work, may_end = asyncio.Event(), asyncio.Event()

    @step
    async def at_work() -> None:
        log.append("begins")
        is_at_work.set()
        await may_end.wait()
        log.append("ends")

    @workflow
    async def flow(_: str) -> None:
        await asyncio.gather(waits_twice(), at_work())

    run = started(begin(flow, InMemoryCheckpointStorage() if is_stored else None, clock=clock))
    await is_at_work.wait()
    await turns(100)
    may_end.set()
    async with clock.skipping():
        await run
    assert log == ["begins", "ends"]


async def test_a_step_that_only_waits_in_two_branches_is_suspended() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str) -> None:
        await waits_twice()

    run = started(begin(flow, storage, clock=clock))
    await asleep(clock, run)
    await turns(100)
    await cancelled(run)
    assert await due_times(storage) == [clock.now() + timedelta(seconds=10)]


# ---------------------------------------------------------------- abandoned questions and steps


@pytest.mark.parametrize("is_stored", [True, False])
async def test_cancelled_question_is_withdrawn_even_if_the_function_sleeps_again(
    is_stored: bool,
) -> None:
    clock = FakeClock()

    @workflow
    async def impatient(_: str, ctx: RunContext) -> str:
        asking, napping = asyncio.create_task(ctx.request_info("who?", str)), asyncio.create_task(ctx.sleep(10))
        await asyncio.wait([asking, napping], return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        await ctx.sleep(20)
        return "done"

    flow = impatient.build(InMemoryCheckpointStorage() if is_stored else None, clock=clock)
    assert list(questions(await flow.run("go", thread_id=THREAD))) == ["who?"]
    clock.advance(11)
    async with clock.skipping():
        result = await flow.run(thread_id=THREAD)
    assert (result.get_outputs(), questions(result)) == (["done"], {})
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_a_question_that_lost_a_race_with_a_step_is_never_pending() -> None:
    clock, is_asked = FakeClock(), asyncio.Event()

    @workflow
    async def impatient(_: str, ctx: RunContext) -> str:
        asking = asyncio.create_task(ctx.request_info("who?", str))
        await ctx.step(turns, 50)
        asking.cancel()
        is_asked.set()
        await ctx.sleep(20)
        return "done"

    run = started(begin(impatient, InMemoryCheckpointStorage(), clock=clock))
    await is_asked.wait()
    await asleep(clock, run)
    clock.advance(20)
    result = await run
    assert (result.get_outputs(), questions(result)) == (["done"], {})


async def test_cancelled_run_ends_after_the_thread_of_an_unawaited_step() -> None:
    log: list[str] = []
    is_at_work, may_end = threading.Event(), threading.Event()

    @step
    def at_work() -> None:
        is_at_work.set()
        may_end.wait(10)
        log.append("the step has ended")

    @workflow
    async def flow(_: str) -> None:
        left_behind.append(asyncio.create_task(at_work()))
        await asyncio.to_thread(is_at_work.wait, 10)

    left_behind: list[asyncio.Task[None]] = []
    run = started(begin(flow, InMemoryCheckpointStorage()))
    run.add_done_callback(lambda _: log.append("the run has ended"))
    await asyncio.to_thread(is_at_work.wait, 10)
    await turns(20)
    run.cancel()
    await turns(20)
    may_end.set()
    await asyncio.wait([run])
    await turns(1)
    assert log == ["the step has ended", "the run has ended"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_thread_can_be_resumed_after_its_event_loop_closed_during_a_run(
    is_stored: bool,
) -> None:
    calls = Calls()

    @step
    async def hang_once() -> None:
        calls.append("called")
        if len(calls) == 1:
            await asyncio.Event().wait()

    @workflow
    async def sleeping(_: str, ctx: RunContext) -> str:
        await asyncio.gather(ctx.sleep(0.1), hang_once())
        return "done"

    flow = sleeping.build(InMemoryCheckpointStorage() if is_stored else None)
    _closed_under(flow)
    assert run_sync(flow.run(thread_id=THREAD)).get_outputs() == ["done"]


def _closed_under(flow: Workflow) -> None:
    """Run for some turns, in a loop that is closed as a careless user does it."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it says that pending tasks were destroyed
    run = loop.create_task(flow.run("go", thread_id=THREAD))
    loop.run_until_complete(turns(50))
    loop.close()
    del run
    gc.collect()


# ---------------------------------------------------------------- events before a sleep


@pytest.mark.parametrize(
    ("policy", "outputs"),
    [({"on_error": "skip"}, []), ({"retry": RetryPolicy(2, initial_delay=0)}, ["before"])],
    ids=["skipped", "tried again"],
)
async def test_output_of_an_attempt_that_failed_after_a_sleep_is_not_logged(
    policy: dict[str, Any], outputs: list[str]
) -> None:
    clock, failures = FakeClock(), [Boom("once")]

    async def work(_: Any, ctx: Context) -> None:
        await ctx.yield_output("before")
        await ctx.sleep(10)
        if failures:
            raise failures.pop()

    flow = alone(work, policy=policy, clock=clock, checkpoint_storage=InMemoryCheckpointStorage())
    async with clock.skipping():
        result = await flow.run("x", thread_id=THREAD)
    async with flow.open(thread_id=THREAD) as handle:
        logged = [event.data async for event in handle.events(after=0) if event.type == "output"]
    assert [event.data for event in result if event.type == "output"] == outputs
    assert (logged, result.get_outputs()) == (outputs, outputs)
