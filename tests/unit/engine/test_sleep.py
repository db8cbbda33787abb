"""ctx.sleep: the superstep is committed without the sleeper, and a restart waits only for the rest."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.policy_flows import (
    Context,
    Flaky,
    SkippingClock,
    alone,
    asleep,
    cancelled,
    failing,
    fan,
    napping,
    of_kind,
    relay,
    started,
    worker,
)

from perdure import Executor, InMemoryCheckpointStorage, InvalidRun, Workflow, WorkflowBuilder
from perdure.testing import FakeClock

# ---------------------------------------------------------------- how long


@pytest.mark.parametrize("duration", [60, 60.0, timedelta(minutes=1)], ids=repr)
async def test_a_run_waits_for_its_sleeper(duration: Any) -> None:
    clock = FakeClock()
    run = started(napping(duration, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(59)
    await asleep(clock, run)
    clock.advance(1)
    assert (await run).get_outputs() == ["x woke"]


async def test_a_sleep_may_last_until_a_time_of_any_zone() -> None:
    clock = FakeClock(datetime(2026, 1, 1, 12, tzinfo=UTC))
    zone = datetime.strptime("+0200", "%z").tzinfo
    run = started(napping(datetime(2026, 1, 1, 14, 30, tzinfo=zone), clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(29 * 60)
    await asleep(clock, run)
    clock.advance(60)
    assert (await run).get_outputs() == ["x woke"]


@pytest.mark.parametrize("duration", [0, timedelta(0), datetime(2020, 1, 1, tzinfo=UTC)], ids=repr)
async def test_a_time_that_has_come_is_not_waited_for(duration: Any) -> None:
    result = await napping(duration, clock=FakeClock()).run("x")
    assert result.get_outputs() == ["x woke"]
    assert len(of_kind(result, "superstep_completed")) == 1


BAD_DURATIONS = [-1, timedelta(seconds=-1), "60", None, True, float("nan"), float("inf"), 1e18, timedelta.max]


@pytest.mark.parametrize("duration", BAD_DURATIONS, ids=repr)
async def test_a_duration_that_makes_no_sense_is_refused(duration: Any) -> None:
    with pytest.raises(ValueError, match=r"ctx.sleep expects seconds or a timedelta") as refused:
        await napping(duration, clock=FakeClock()).run("x")
    assert f"got {duration!r}" in str(refused.value)


async def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(InvalidRun, match=r"ctx.sleep needs a time with a zone, got .* try .replace\(tzinfo=UTC\)"):
        await napping(naive, clock=FakeClock()).run("x")


async def test_handler_may_sleep_any_number_of_times() -> None:
    woken: list[str] = []
    result = await napping(*[1] * 30, woken=woken, clock=SkippingClock(), max_iterations=3).run("x")
    assert result.get_outputs() == ["x woke"] and woken == ["x"]


# ---------------------------------------------------------------- other branches continue


async def test_superstep_is_committed_without_the_sleeper_and_branches_continue() -> None:
    clock, storage, calm = FakeClock(), InMemoryCheckpointStorage(), Flaky(0)

    async def nap(message: Any, ctx: Context) -> None:
        await ctx.sleep(60)
        await ctx.send_message("nap")

    def build() -> Workflow:
        return fan(worker("naps", nap), failing("calm", calm), clock=clock, checkpoint_storage=storage)

    run = started(build().run("x", thread_id="t"))
    await asleep(clock, run)
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.messages == {} and head.buffers != {}
    [sleeper] = head.suspended.values()
    assert sleeper.message.target_id == "naps" and sleeper.due_at == clock.now() + timedelta(seconds=60)
    await cancelled(run)
    clock.advance(60)
    assert (await build().run(thread_id="t")).get_outputs() == [["nap", "x-calm"]]
    assert len(calm.calls) == 1


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, order = FakeClock(), list[str]()

    def napper(seconds: int) -> Executor:
        async def nap(message: Any, ctx: Context) -> None:
            await ctx.sleep(seconds)
            order.append(f"{seconds} at {clock.monotonic():g}")

        return worker(f"for {seconds}", nap)

    source = relay("source")
    builder = WorkflowBuilder(start_executor=source, clock=clock)
    run = started(
        builder.add_fan_out_edges(source, [napper(seconds) for seconds in (30, 10, 20, 10)[:3]]).build().run("x")
    )
    for _ in range(3):
        await asleep(clock, run)
        clock.advance(10)
    await run
    assert order == ["10 at 10", "20 at 20", "30 at 30"]


async def test_branches_of_one_handler_sleep_at_the_same_time() -> None:
    clock = FakeClock()

    async def work(message: Any, ctx: Context) -> None:
        async def nap(seconds: int) -> str:
            await ctx.sleep(seconds)
            return f"{seconds} at {clock.monotonic():g}"

        await ctx.yield_output(await asyncio.gather(nap(20), nap(10), nap(10)))

    run = started(alone(work, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(10)
    await asleep(clock, run)
    clock.advance(10)
    [naps] = (await run).get_outputs()
    assert naps[0] == "20 at 20", "those that woke before tell the time of the last replay"


async def test_a_step_that_runs_beside_a_sleep_ends_first() -> None:
    clock, gate, calls = FakeClock(), asyncio.Event(), list[str]()

    async def slow() -> str:
        calls.append("called")
        await gate.wait()
        return "slow"

    async def work(message: Any, ctx: Context) -> None:
        async def nap() -> str:
            await ctx.sleep(10)
            return f"woke at {clock.monotonic():g}"

        await ctx.yield_output(await asyncio.gather(ctx.step(slow), nap()))

    run = started(alone(work, clock=clock).run("x"))
    await asleep(clock, run)
    gate.set()
    await turns(40)
    clock.advance(10)
    assert (await run).get_outputs() == [["slow", "woke at 10"]] and calls == ["called"]


async def test_a_sleep_that_ends_before_the_step_beside_it_needs_no_suspension() -> None:
    clock, gate = FakeClock(), asyncio.Event()

    async def work(message: Any, ctx: Context) -> None:
        async def nap() -> None:
            await ctx.sleep(10)
            gate.set()

        await asyncio.gather(ctx.step(gate.wait), nap())
        await ctx.yield_output("both")

    run = started(alone(work, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(10)
    assert (await run).get_outputs() == ["both"]


@pytest.mark.parametrize("siblings", [0, 1])
async def test_handler_that_swallows_the_cancellation_of_its_sleep_still_sleeps(siblings: int) -> None:
    clock, woken = FakeClock(), list[str]()

    async def stubborn(message: Any, ctx: Context) -> None:
        try:
            await ctx.sleep(10)
            woken.append(message)
        except asyncio.CancelledError:
            await ctx.send_message("too early")
        await ctx.yield_output("end")

    source = worker("source", lambda message, ctx: ctx.send_message(message))
    builder = WorkflowBuilder(start_executor=source, clock=clock).add_edge(source, worker("stubborn", stubborn))
    for place in range(siblings):
        builder.add_edge(source, worker(f"sibling{place}", lambda message, ctx: None))
    run = started(builder.build().run("x"))
    await asleep(clock, run)
    clock.advance(10)
    result = await run
    assert result.get_outputs() == ["end"] and woken == ["x"]
    assert [event.data for event in of_kind(result, "output")] == ["end"]
