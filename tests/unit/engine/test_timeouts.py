"""A timeout of an executor: the handler is cancelled and awaited before anything else happens."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Context,
    alone,
    asleep,
    chained,
    fan,
    of_kind,
    relay,
    sink,
    started,
    worker,
)

from perdure import FunctionExecutor, InMemoryCheckpointStorage, TimedOut, WorkflowBuilder
from perdure.testing import FakeClock


async def hang(message: Any, ctx: Context) -> None:
    await asyncio.Event().wait()


async def test_a_handler_that_takes_too_long_fails_with_timed_out() -> None:
    clock = FakeClock()
    run = started(alone(hang, policy={"timeout": timedelta(minutes=1)}, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(59.9)
    await turns(20)
    assert not run.done()
    clock.advance(0.1)
    with pytest.raises(TimedOut, match=r"'only' did not end within 60 s. It was cancelled, and the attempt") as late:
        await run
    assert (late.value.executor_id, late.value.seconds) == ("only", 60)
    assert isinstance(late.value, TimeoutError), "for whoever catches the common one"


async def test_handler_that_ends_in_time_leaves_no_alarm() -> None:
    clock = FakeClock()
    run = alone(lambda message, ctx: ctx.yield_output("in time"), policy={"timeout": 60}, clock=clock).run("x")
    assert (await run).get_outputs() == ["in time"]
    await asyncio.sleep(0)
    assert clock.sleepers == 0


async def test_an_error_of_the_handler_is_not_taken_for_a_timeout() -> None:
    async def fail(message: Any, ctx: Context) -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own") as failed:
        await alone(fail, policy={"timeout": 60}).run("x")
    assert not isinstance(failed.value, TimedOut)


async def test_its_clean_up_has_ended_before_anything_else_happens() -> None:
    clock, order, may_clean = FakeClock(), list[str](), asyncio.Event()

    async def slow(message: Any, ctx: Context) -> None:
        order.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            await may_clean.wait()
            order.append("cleaned up")

    spare = worker("spare", lambda message, ctx: order.append("fallback"))
    run = started(chained(worker("slow", slow, timeout=5, on_error=spare), sink(), clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(5)
    await turns(20)
    assert order == ["began"] and not run.done(), "the run waits for the clean-up"
    may_clean.set()
    await run
    assert order == ["began", "cleaned up", "fallback"]


async def test_handler_that_resists_cancellation_is_awaited_and_its_result_kept() -> None:
    clock, may_end = FakeClock(), asyncio.Event()

    async def stubborn(message: Any, ctx: Context) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                pass  # it will end when it wants to
        await ctx.yield_output("done all the same")

    run = started(alone(stubborn, policy={"timeout": 5}, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(5)
    await turns(20)
    assert not run.done()
    may_end.set()
    assert (await run).get_outputs() == ["done all the same"]


async def test_an_error_during_the_clean_up_is_the_cause_of_the_timeout() -> None:
    clock = FakeClock()

    async def slow(message: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("while cleaning up")

    run = started(alone(slow, policy={"timeout": 5}, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(5)
    with pytest.raises(TimedOut) as late:
        await run
    assert isinstance(late.value.__cause__, KeyError)


async def test_function_in_a_thread_has_ended_when_its_timeout_is_raised() -> None:
    """A thread cannot be cancelled, so it is waited for: its side effects belong to the attempt."""
    clock, entered, may_end, ended = FakeClock(), asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def blocking(message: str) -> None:
        loop.call_soon_threadsafe(entered.set)
        may_end.wait(10)
        ended.append(message)
        raise RuntimeError("too late")

    start = FunctionExecutor(blocking, "blocking", timeout=5)
    run = started(WorkflowBuilder(start_executor=start, clock=clock).build().run("x"))
    await entered.wait()
    await asleep(clock, run)
    clock.advance(5)
    await turns(20)
    assert not run.done()
    may_end.set()
    with pytest.raises(TimedOut):
        await run
    assert ended == ["x"]


async def test_each_attempt_has_the_whole_time() -> None:
    clock, attempts, entered = FakeClock(), list[float](), asyncio.Event()

    async def slow_twice(message: Any, ctx: Context) -> None:
        attempts.append(clock.monotonic())
        entered.set()
        if len(attempts) < 3:
            await asyncio.Event().wait()
        await ctx.yield_output("third time lucky")

    run = started(alone(slow_twice, policy={"timeout": 5, "retry": AT_ONCE}, clock=clock).run("x"))
    for _ in range(2):
        await entered.wait()
        entered.clear()
        await asleep(clock, run)
        clock.advance(5)
    result = await run
    assert result.get_outputs() == ["third time lucky"] and attempts == [0, 5, 10]
    details = [event.details.error_type for event in of_kind(result, "executor_retrying") if event.details]
    assert details == ["TimedOut", "TimedOut"]


async def test_a_late_sibling_is_isolated_and_the_others_are_kept() -> None:
    clock = FakeClock()
    run = started(fan(worker("slow", hang, timeout=5, on_error="isolate"), relay("calm"), clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(5)
    assert (await run).get_outputs() == [["x-calm"]]


async def test_late_attempt_leaves_no_trace() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    async def slow(message: Any, ctx: Context) -> None:
        ctx.set_state("key", "value")
        await ctx.send_message("sent")
        await ctx.yield_output("yielded")
        await asyncio.Event().wait()

    start = worker("slow", slow, timeout=5, on_error="skip")
    run = started(chained(start, sink(), clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    clock.advance(5)
    assert (await run).get_outputs() == []
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.state == {} and head.messages == {}


async def test_a_run_cancelled_while_a_handler_with_a_timeout_runs_is_cancelled() -> None:
    clock, ended = FakeClock(), list[str]()

    async def slow(message: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    run = started(alone(slow, policy={"timeout": 5, "on_error": "skip"}, clock=clock).run("x"))
    await asleep(clock, run)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended == ["cleaned up"]


async def test_a_sleep_does_not_use_up_the_time_of_its_handler() -> None:
    """Asleep, nothing runs: the limit is on what does."""
    clock = FakeClock()

    async def sleeper(message: Any, ctx: Context) -> None:
        await ctx.sleep(100)
        await ctx.yield_output("slept")

    run = started(alone(sleeper, policy={"timeout": 5}, clock=clock).run("x"))
    await asleep(clock, run)
    while not run.done():
        await turns(30)
        clock.advance(1)
    assert (await run).get_outputs() == ["slept"]


@pytest.mark.parametrize("timeout", [None, 5])
async def test_run_cancelled_at_any_turn_of_a_starting_sleep_is_cancelled(timeout: float | None) -> None:
    async def sleeper(message: Any, ctx: Context) -> None:
        await ctx.sleep(100)

    workflow = alone(sleeper, policy={"timeout": timeout}, clock=FakeClock())
    for moment in range(40):
        run = started(workflow.run("x", thread_id=f"t{moment}"))
        await turns(moment)
        run.cancel()
        await turns(40)
        was_cancelled = run.cancelled()
        run.cancel()
        await asyncio.wait([run])
        assert was_cancelled, f"its cancellation at turn {moment} was swallowed"
