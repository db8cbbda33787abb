"""Sleeping in a function workflow: until the same time whatever happens meanwhile, and any number of times."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, begin, questions, resume
from tests.unit.engine.policy_flows import SkippingClock

from perdure import InMemoryCheckpointStorage, InvalidRun, RunContext, WorkflowRunState, workflow
from perdure.testing import FakeClock


def napping(calls: Calls, *naps: float) -> Any:
    note = calls.step()

    @workflow
    async def napping(_: str, ctx: RunContext) -> str:
        for number, seconds in enumerate(naps):
            await ctx.sleep(seconds)
            await note(number)
        return "awake"

    return napping


async def test_a_run_waits_for_the_sleeper_with_the_clock_of_its_workflow() -> None:
    clock, calls = FakeClock(), Calls()
    run = asyncio.create_task(begin(napping(calls, 60, 30), None, clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(59)
    await asyncio.sleep(0)
    assert calls == []
    clock.advance(1)
    await clock.wait_for_sleepers()
    assert calls == [0]
    clock.advance(30)
    assert (await run).get_outputs() == ["awake"]


async def test_a_workflow_built_of_a_built_one_has_its_clock() -> None:
    clock = FakeClock()
    run = asyncio.create_task(napping(Calls(), 60).build(clock=clock).build().run("go"))
    await clock.wait_for_sleepers()
    clock.advance(60)
    assert (await run).get_outputs() == ["awake"]


async def cancelled_while_asleep(flow: Any, storage: Any, clock: FakeClock) -> None:
    run = asyncio.create_task(begin(flow, storage, clock=clock))
    await clock.wait_for_sleepers()
    run.cancel()
    await asyncio.wait([run])


async def test_sleep_continues_in_another_process_until_the_same_time() -> None:
    clock, calls, storage = FakeClock(), Calls(), InMemoryCheckpointStorage()
    flow = napping(calls, 60)
    await cancelled_while_asleep(flow, storage, clock)
    clock.advance(40)
    run = asyncio.create_task(resume(flow, storage, clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(20)
    assert (await run).get_outputs() == ["awake"]
    assert calls == [0]


async def test_sleep_that_came_due_between_runs_ends_at_once() -> None:
    clock, calls, storage = FakeClock(), Calls(), InMemoryCheckpointStorage()
    flow = napping(calls, 60)
    await cancelled_while_asleep(flow, storage, clock)
    clock.advance(3600)
    assert (await resume(flow, storage, clock=clock)).get_outputs() == ["awake"]


async def test_a_sleeper_is_kept_in_the_checkpoint_with_its_time() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    await cancelled_while_asleep(napping(Calls(), 60), storage, clock)
    head = await storage.get_latest(thread_id=THREAD)
    assert head is not None
    assert [sleeper.due_at for sleeper in head.suspended.values()] == [clock.now() + timedelta(seconds=60)]


@pytest.mark.parametrize("kind", ["seconds", "timedelta", "time"])
async def test_function_may_sleep_for_a_duration_or_until_a_time(kind: str) -> None:
    clock = FakeClock()
    until: Any = {"seconds": 90, "timedelta": timedelta(seconds=90), "time": clock.now() + timedelta(seconds=90)}[kind]

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.sleep(until)

    began = clock.now()
    run = asyncio.create_task(begin(flow, None, clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(90)
    await run
    assert clock.now() - began == timedelta(seconds=90)


@pytest.mark.parametrize("duration", [-1, "soon", None, float("nan"), float("inf")])
async def test_invalid_duration_is_rejected(duration: Any) -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.sleep(duration)

    with pytest.raises(ValueError, match=r"ctx\.sleep"):
        await begin(flow, None)


async def test_a_time_without_a_zone_is_refused() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.sleep(FakeClock().now().replace(tzinfo=None))

    with pytest.raises(InvalidRun, match="zone"):
        await begin(flow, None)


async def test_sleepers_side_by_side_wake_in_the_order_of_their_times() -> None:
    woken: list[int] = []

    async def wake(seconds: int) -> None:  # async: threads of plain functions end in any order
        woken.append(seconds)

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        async def nap(seconds: int) -> None:
            await ctx.sleep(seconds)
            await ctx.step(wake, seconds)

        await asyncio.gather(*(nap(seconds) for seconds in (30, 10, 20)))

    await begin(flow, InMemoryCheckpointStorage(), clock=SkippingClock())
    assert woken == [10, 20, 30]


async def test_running_step_continues_and_keeps_a_sleeping_branch_in_memory() -> None:
    clock, may_end, order = FakeClock(), asyncio.Event(), Calls()
    slow, note = order.step(name="slow"), order.step(name="note")

    async def wait(_: str) -> None:
        await may_end.wait()
        order.append("slow ended")

    slow.function = wait

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        async def nap() -> None:
            await ctx.sleep(10)
            await note("slept")
            may_end.set()

        await asyncio.gather(slow("x"), nap())

    run = asyncio.create_task(begin(flow, InMemoryCheckpointStorage(), clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(10)
    await run
    assert order == ["slept", "slow ended"]


async def test_polling_loop_of_120_sleeps_does_not_reach_the_superstep_limit() -> None:
    polls: list[int] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        while await ctx.step(poll) < 120:
            await ctx.sleep(60)
        return len(polls)

    def poll() -> int:
        polls.append(1)
        return len(polls)

    built = flow.build(InMemoryCheckpointStorage(), clock=SkippingClock())
    assert built.max_iterations < 120
    assert (await built.run("go", thread_id=THREAD)).get_outputs() == [120]


async def test_run_does_not_wait_for_a_sleeper_while_a_question_is_pending() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        results = await asyncio.gather(ctx.sleep(60), ctx.request_info("ok?", str))
        return str(results[1])

    asked = await begin(flow, storage, clock=clock)
    assert asked.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    run = asyncio.create_task(resume(flow, storage, clock=clock, responses={questions(asked)["ok?"]: "yes"}))
    await clock.wait_for_sleepers()  # no question is pending any more: now it waits
    clock.advance(60)
    assert (await run).get_outputs() == ["yes"]
