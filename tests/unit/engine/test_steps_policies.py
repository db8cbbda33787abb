"""Steps that fail: retried, timed out, skipped or raised, and the records of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Boom,
    Context,
    Flaky,
    SkippingClock,
    alone,
    asleep,
    cancelled,
    executor_outline,
    of_kind,
    started,
)

from perdure import InMemoryCheckpointStorage, RetryPolicy, TimedOut, UnsavableValue, Workflow
from perdure.testing import FakeClock

THRICE = RetryPolicy(3, initial_delay=10, backoff=2)


def one_step(flaky: Flaky, clock: FakeClock | None = None, storage: Any = None, **policy: Any) -> Workflow:
    """Yields what its one step gives."""

    async def act(number: int) -> int:
        flaky.meet(number)
        return number * 2

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(await ctx.step(act, 4, **policy))

    return alone(work, clock=clock or SkippingClock(), checkpoint_storage=storage)


# ---------------------------------------------------------------- retry


@pytest.mark.parametrize("retry", [3, THRICE, AT_ONCE], ids=["number", "policy", "at once"])
async def test_a_step_that_fails_is_tried_again(retry: Any) -> None:
    flaky = Flaky(2)
    assert (await one_step(flaky, retry=retry).run("x")).get_outputs() == [8]
    assert flaky.calls == [4, 4, 4]


async def test_the_last_error_is_raised_in_the_handler() -> None:
    with pytest.raises(Boom, match="attempt 3"):
        await one_step(Flaky(5), retry=THRICE).run("x")


async def test_attempts_of_a_step_wait_for_their_delays_and_emit_events() -> None:
    clock, flaky = FakeClock(), Flaky(2)
    run = started(one_step(flaky, clock, retry=THRICE).run("x"))
    for calls, delay in ((1, 10), (2, 20)):
        await asleep(clock, run)
        clock.advance(delay - 1)
        await asleep(clock, run)
        assert len(flaky.calls) == calls
        clock.advance(1)
    result = await run
    assert [event.data for event in of_kind(result, "executor_retrying")] == [
        {"attempt": 1, "delay_seconds": 10},
        {"attempt": 2, "delay_seconds": 20},
    ]
    about = [kind for kind, who in executor_outline(result) if who == "only/act"]
    assert about == ["invoked", "retrying", "retrying", "completed"]


async def test_the_attempts_of_a_step_survive_a_restart() -> None:
    clock, storage, flaky = FakeClock(), InMemoryCheckpointStorage(), Flaky(9)
    for delay in (10, 20):
        run = started(one_step(flaky, clock, storage, retry=THRICE).run(None if flaky.calls else "x", thread_id="t"))
        await asleep(clock, run)
        await cancelled(run)
        clock.advance(delay)
    with pytest.raises(Boom, match="attempt 3"):
        await one_step(flaky, clock, storage, retry=THRICE).run(thread_id="t")


async def test_step_beside_a_step_that_waits_for_its_retry_continues() -> None:
    clock, flaky, seen = FakeClock(), Flaky(1), list[str]()

    async def flaky_step() -> str:
        flaky.meet()
        return "flaky"

    async def calm_step() -> str:
        seen.append("calm")
        return "calm"

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(await asyncio.gather(ctx.step(flaky_step, retry=THRICE), ctx.step(calm_step)))

    run = started(alone(work, clock=clock).run("x"))
    await asleep(clock, run)
    assert seen == ["calm"]
    clock.advance(10)
    assert (await run).get_outputs() == [["flaky", "calm"]] and seen == ["calm"]


async def test_a_step_of_an_executor_that_is_retried_has_all_its_attempts_again() -> None:
    """The delivery failed with the step's error, so its record is dropped: the next attempt starts it again."""
    flaky = Flaky(3)

    async def act() -> str:
        flaky.meet()
        return "done"

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(await ctx.step(act, retry=RetryPolicy(2, initial_delay=0)))

    result = await alone(work, policy={"retry": RetryPolicy(2, initial_delay=0)}).run("x")
    assert result.get_outputs() == ["done"] and len(flaky.calls) == 4


# ---------------------------------------------------------------- errors


async def test_replay_raises_a_caught_error_again_without_calling_the_step() -> None:
    calls: list[str] = []

    async def act() -> None:
        calls.append("act")
        raise Boom("no")

    async def work(message: str, ctx: Context) -> None:
        try:
            await ctx.step(act)
        except Boom as error:
            ctx.set_state("caught", str(error))
        await ctx.sleep(5)
        await ctx.yield_output(f"caught {ctx.get_state('caught')}")

    for storage in (None, InMemoryCheckpointStorage()):
        calls.clear()
        result = await alone(work, clock=SkippingClock(), checkpoint_storage=storage).run("x")
        assert result.get_outputs() == ["caught no"] and calls == ["act"]


async def test_a_step_whose_error_ended_the_run_is_called_again_by_the_next() -> None:
    storage, flaky = InMemoryCheckpointStorage(), Flaky(1)
    with pytest.raises(Boom):
        await one_step(flaky, storage=storage).run("x", thread_id="t")
    assert (await one_step(flaky, storage=storage).run(thread_id="t")).get_outputs() == [8]


async def test_the_error_of_a_fallback_function_is_remembered_too() -> None:
    calls: list[str] = []

    async def act() -> None:
        calls.append("act")
        raise Boom

    async def instead() -> None:
        calls.append("instead")
        raise KeyError("neither")

    async def work(message: str, ctx: Context) -> None:
        try:
            await ctx.step(act, on_error=instead)
        except KeyError:
            await ctx.sleep(5)
        await ctx.yield_output("survived")

    result = await alone(work, clock=SkippingClock(), checkpoint_storage=InMemoryCheckpointStorage()).run("x")
    assert result.get_outputs() == ["survived"] and calls == ["act", "instead"]


# ---------------------------------------------------------------- stepped over


async def test_skipped_step_returns_none_and_an_isolated_step_returns_its_error() -> None:
    seen: list[Any] = []

    async def fail() -> None:
        raise Boom("no")

    async def work(message: str, ctx: Context) -> None:
        seen[:] = [await ctx.step(fail, on_error="skip"), await ctx.step(fail, on_error="isolate")]
        await ctx.sleep(5)
        await ctx.yield_output("went on")

    for storage in (None, InMemoryCheckpointStorage()):
        result = await alone(work, clock=SkippingClock(), checkpoint_storage=storage).run("x")
        assert result.get_outputs() == ["went on"]
        assert seen[0] is None and isinstance(seen[1], Boom) and str(seen[1]) == "no"
        skipped = of_kind(result, "executor_skipped")
        assert [(event.executor_id, event.data) for event in skipped] == [
            ("only/fail", "skip"),
            ("only/fail", "isolate"),
        ]


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_fallback_function_is_called_with_the_same_arguments(is_sync: bool) -> None:
    flaky = Flaky(9)

    async def instead(number: int) -> int:
        return number + 100

    def instead_in_thread(number: int) -> int:
        return number + 100

    workflow = one_step(flaky, retry=AT_ONCE, on_error=instead_in_thread if is_sync else instead)
    result = await workflow.run("x")
    assert result.get_outputs() == [104] and len(flaky.calls) == 3
    assert [event.data for event in of_kind(result, "executor_skipped")] == ["fallback"]


async def test_skipped_or_replaced_step_is_not_called_again_on_replay() -> None:
    calls: list[str] = []

    async def act(word: str) -> None:
        calls.append(word)
        raise Boom

    async def instead(word: str) -> str:
        calls.append(f"instead {word}")
        return word.upper()

    async def work(message: str, ctx: Context) -> None:
        values = [await ctx.step(act, "a", on_error="skip"), await ctx.step(act, "b", on_error=instead)]
        await ctx.sleep(5)
        await ctx.yield_output(values)

    workflow = alone(work, clock=SkippingClock(), checkpoint_storage=InMemoryCheckpointStorage())
    assert (await workflow.run("x")).get_outputs() == [[None, "B"]]
    assert calls == ["a", "b", "instead b"]


# ---------------------------------------------------------------- timeout


async def test_a_step_that_takes_too_long_is_cancelled_and_awaited() -> None:
    clock, order = FakeClock(), list[str]()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("cleaned up")

    async def work(message: str, ctx: Context) -> None:
        try:
            await ctx.step(slow, timeout=30)
        except TimedOut as error:
            order.append("timed out")
            await ctx.yield_output(str(error))

    run = started(alone(work, clock=clock).run("x"))
    await asleep(clock, run)
    clock.advance(30)
    [message] = (await run).get_outputs()
    assert order == ["cleaned up", "timed out"]
    assert message.startswith("'only/slow' did not end within 30 s. It was cancelled")


async def test_a_step_that_timed_out_is_tried_again() -> None:
    clock, calls = FakeClock(), list[str]()

    async def slow() -> str:
        calls.append("called")
        if len(calls) < 3:
            await asyncio.Event().wait()
        return "in time"

    async def work(message: str, ctx: Context) -> None:
        await ctx.yield_output(await ctx.step(slow, timeout=5, retry=AT_ONCE))

    run = started(alone(work, clock=clock).run("x"))
    for _ in range(2):
        await asleep(clock, run)
        clock.advance(5)
        await asyncio.sleep(0)
    assert (await run).get_outputs() == ["in time"]


# ---------------------------------------------------------------- values that cannot be stored


class Odd(Exception):
    """Cannot be made again from what it says."""

    def __init__(self, connection: object) -> None:
        super().__init__("lost")
        self.connection = connection


async def test_error_that_cannot_be_stored_is_logged_and_its_step_runs_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []

    async def act() -> None:
        calls.append("act")
        raise Odd(object())

    async def work(message: str, ctx: Context) -> None:
        try:
            await ctx.step(act)
        except Odd:
            await ctx.sleep(5)
        await ctx.yield_output("went on")

    with caplog.at_level(logging.WARNING, logger="perdure"):
        workflow = alone(work, clock=SkippingClock(), checkpoint_storage=InMemoryCheckpointStorage())
        assert (await workflow.run("x")).get_outputs() == ["went on"]
    assert calls == ["act", "act"]
    assert "step 'act' failed with Odd, which cannot be stored" in caplog.text


async def test_unsavable_result_fails_the_run_even_if_the_handler_catches_it() -> None:
    async def connect() -> object:
        return object()

    async def work(message: str, ctx: Context) -> None:
        try:
            await ctx.step(connect)
        except UnsavableValue:
            pass  # nothing to see here
        await ctx.yield_output("went on")

    with pytest.raises(UnsavableValue, match="result of step 'connect'"):
        await alone(work, checkpoint_storage=InMemoryCheckpointStorage()).run("x")


# ---------------------------------------------------------------- sleeping in a step


async def test_a_step_may_sleep_and_after_a_crash_sleeps_only_the_rest() -> None:
    clock, storage, calls = FakeClock(), InMemoryCheckpointStorage(), list[str]()

    async def work(message: str, ctx: Context) -> None:
        async def slow() -> str:
            calls.append("slow")
            await ctx.sleep(60)
            return "slept"

        await ctx.yield_output(await ctx.step(slow))

    run = started(alone(work, clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(40)
    run = started(alone(work, clock=clock, checkpoint_storage=storage).run(thread_id="t"))
    await asleep(clock, run)
    clock.advance(20)
    assert (await run).get_outputs() == ["slept"] and calls == ["slow", "slow"]
