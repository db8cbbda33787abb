"""Steps that are not async, that are tried again, and that have a limit of time."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.function_flows import THREAD, Calls, Cancelling, begin, outline, paused_and_resumed, resume
from tests.unit.engine.policy_flows import SkippingClock

from perdure import InMemoryCheckpointStorage, RetryPolicy, RunContext, TimedOut, get_run_context, step, workflow
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import FakeClock

# ---------------------------------------------------------------- not async


async def test_a_step_that_is_not_async_runs_in_a_thread_and_is_recorded() -> None:
    threads: list[threading.Thread] = []

    @step
    def crunch(n: int) -> int:
        threads.append(threading.current_thread())
        return n * 2

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        doubled = await crunch(21)
        await ctx.request_info("go on?", str)
        return doubled

    assert await paused_and_resumed(flow) == 42
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


async def test_steps_in_threads_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)

    @step
    def meet(name: str) -> str:
        meeting.wait()
        return name

    @workflow
    async def flow(_: str) -> list[str]:
        return list(await asyncio.gather(meet("a"), meet("b")))

    assert (await begin(flow, None)).get_outputs() == [["a", "b"]]


async def test_a_step_in_a_thread_has_the_context() -> None:
    @step
    def look(key: str) -> str:
        context = get_run_context()
        assert context is not None
        context.set_state(key, "seen")
        return context.thread_id

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[Any]:
        thread_id = await look("k")
        await ctx.request_info("go on?", str)
        return [thread_id, ctx.get_state("k")]

    assert await paused_and_resumed(flow) == [THREAD, "seen"]


async def test_error_of_a_step_in_a_thread_is_raised_in_the_function() -> None:
    @step
    def fail() -> None:
        raise KeyError("missing")

    @workflow
    async def flow(_: str) -> str:
        try:
            await fail()
        except KeyError as error:
            return repr(error)
        return "never"

    assert (await begin(flow, None)).get_outputs() == ["KeyError('missing')"]


async def test_a_cancelled_run_waits_for_the_thread_of_its_step() -> None:
    entered, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @step
    def crunch() -> int:
        entered.set()
        may_end.wait(10)
        ended.set()
        return 1

    @workflow
    async def flow(_: str) -> int:
        return await crunch()

    storage = InMemoryCheckpointStorage()
    run = asyncio.create_task(begin(flow, storage))
    await asyncio.to_thread(entered.wait, 10)
    run.cancel()
    await asyncio.sleep(0)
    assert not run.done()
    may_end.set()
    await asyncio.wait([run])
    assert run.cancelled() and ended.is_set()


# ---------------------------------------------------------------- tried again


class Flaky:
    """Fails so many times, then gives how often it was called."""

    def __init__(self, fails: int, error: Exception | None = None) -> None:
        self.calls = 0
        self.keys: list[str] = []
        self._fails = fails
        self._error = error or ConnectionError("down")

    async def fetch(self) -> int:
        self.calls += 1
        context = get_run_context()
        assert context is not None
        self.keys.append(context.idempotency_key)
        if self.calls <= self._fails:
            raise self._error
        return self.calls

    def flow(self, **policy: Any) -> Any:
        fetch = step(name="fetch", **policy)(self.fetch)

        @workflow
        async def flow(_: str) -> int:
            return int(await fetch())

        return flow


async def test_step_is_retried_after_its_delay_and_each_retry_emits_an_event() -> None:
    flaky, clock = Flaky(2), FakeClock()
    run = asyncio.create_task(begin(flaky.flow(retry=RetryPolicy(3, initial_delay=10)), None, clock=clock))
    for seconds, calls in ((10, 1), (20, 2)):
        await clock.wait_for_sleepers()
        assert flaky.calls == calls
        clock.advance(seconds)
    result = await run
    assert result.get_outputs() == [3]
    retried = [(event.executor_id, event.data) for event in result if event.type == "executor_retrying"]
    assert retried == [
        ("fetch", {"attempt": 1, "delay_seconds": 10.0}),
        ("fetch", {"attempt": 2, "delay_seconds": 20.0}),
    ]


async def test_after_the_last_attempt_its_error_is_raised_in_the_function() -> None:
    flaky = Flaky(99)
    with pytest.raises(ConnectionError, match="down"):
        await begin(flaky.flow(retry=3), InMemoryCheckpointStorage(), clock=SkippingClock())
    assert flaky.calls == 3


async def test_an_error_that_is_not_to_be_tried_again_is_raised_at_once() -> None:
    flaky = Flaky(99, ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        await begin(flaky.flow(retry=RetryPolicy(3, retry_on=OSError)), None, clock=SkippingClock())
    assert flaky.calls == 1


async def test_attempts_are_counted_across_processes() -> None:
    flaky, clock, storage = Flaky(99), FakeClock(), InMemoryCheckpointStorage()
    flow = flaky.flow(retry=RetryPolicy(3, initial_delay=10))
    run = asyncio.create_task(begin(flow, storage, clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(10)
    await clock.wait_for_sleepers()
    run.cancel()
    await asyncio.wait([run])
    assert flaky.calls == 2
    run = asyncio.create_task(resume(flow, storage, clock=clock))
    await clock.wait_for_sleepers()
    assert flaky.calls == 2  # the delay continues, too
    clock.advance(20)
    with pytest.raises(ConnectionError):
        await run
    assert flaky.calls == 3


async def test_an_attempt_that_is_only_in_the_journal_counts_and_its_delay_too() -> None:
    flaky, clock, store = Flaky(1), FakeClock(), Cancelling()
    flow, storage = flaky.flow(retry=RetryPolicy(2, initial_delay=10)), StoreCheckpointStorage(store)
    store.run = asyncio.create_task(begin(flow, storage, clock=clock))
    await asyncio.wait([store.run])
    assert store.run.cancelled()
    store.run = None
    run = asyncio.create_task(resume(flow, storage, clock=clock))
    await clock.wait_for_sleepers()
    assert flaky.calls == 1
    clock.advance(10)
    assert (await run).get_outputs() == [2]


async def test_all_attempts_of_a_step_have_the_same_key_for_outside_services() -> None:
    flaky = Flaky(2)
    result = await begin(flaky.flow(retry=3), InMemoryCheckpointStorage(), clock=SkippingClock())
    assert result.get_outputs() == [3]
    assert len(set(flaky.keys)) == 1


async def test_steps_have_keys_of_their_own_for_outside_services() -> None:
    keys: list[str] = []

    @step
    async def look(n: int) -> None:
        context = get_run_context()
        assert context is not None
        keys.append(context.idempotency_key)

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        keys.append(ctx.idempotency_key)
        for n in (1, 1, 2):
            await look(n)
        keys.append(ctx.idempotency_key)

    await begin(flow, None)
    assert keys[0] == keys[-1]
    assert len(set(keys)) == 4


async def test_other_branch_continues_while_a_branch_waits_for_its_retry() -> None:
    flaky, clock, calls = Flaky(1), FakeClock(), Calls()
    fetch, note = step(name="fetch", retry=RetryPolicy(2, initial_delay=60))(flaky.fetch), calls.step()

    @workflow
    async def flow(_: str) -> list[Any]:
        async def notes() -> str:
            for n in range(3):
                await note(n)
            return "noted"

        return list(await asyncio.gather(fetch(), notes()))

    run = asyncio.create_task(begin(flow, InMemoryCheckpointStorage(), clock=clock))
    await clock.wait_for_sleepers()
    assert calls == [0, 1, 2]
    clock.advance(60)
    assert (await run).get_outputs() == [[2, "noted"]]
    assert calls == [0, 1, 2]


# ---------------------------------------------------------------- in time


def hanging(cancelled: asyncio.Event, **policy: Any) -> Any:
    @step(timeout=timedelta(seconds=30), **policy)
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    @workflow
    async def flow(_: str) -> Any:
        try:
            return await hang()
        except TimeoutError as error:
            return f"{type(error).__name__}, cancelled: {cancelled.is_set()}"

    return flow


async def test_step_that_takes_too_long_is_cancelled_and_raises_timed_out() -> None:
    clock, cancelled = FakeClock(), asyncio.Event()
    run = asyncio.create_task(begin(hanging(cancelled), InMemoryCheckpointStorage(), clock=clock))
    await clock.wait_for_sleepers()
    clock.advance(30)
    result = await run
    assert result.get_outputs() == [f"{TimedOut.__name__}, cancelled: True"]
    assert ("executor_failed", "hang") in outline(result, "executor_failed")


async def test_a_timeout_counts_as_a_failed_attempt() -> None:
    clock, cancelled = FakeClock(), asyncio.Event()
    run = asyncio.create_task(begin(hanging(cancelled, retry=RetryPolicy(2, initial_delay=5)), None, clock=clock))
    for seconds in (30, 5, 30):
        await clock.wait_for_sleepers()
        clock.advance(seconds)
    result = await run
    assert result.get_outputs() == ["TimedOut, cancelled: True"]
    assert len(outline(result, "executor_retrying")) == 1


async def test_a_step_in_time_is_not_disturbed() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        return int(await ctx.step(Flaky(0).fetch, timeout=30))

    assert (await begin(flow, None, clock=FakeClock())).get_outputs() == [1]


# ---------------------------------------------------------------- what stands in for a failed step


async def test_skipped_step_returns_none_and_an_isolated_step_returns_its_error() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = [await ctx.step(Flaky(9).fetch, name=mode, on_error=mode) for mode in ("skip", "isolate")]
        await ctx.request_info("go on?", str)
        return [repr(result) for result in results]

    assert await paused_and_resumed(flow) == ["None", "ConnectionError('down')"]


async def test_fallback_is_called_with_the_same_arguments_and_is_recorded() -> None:
    calls = Calls()

    async def fetch(page: int) -> str:
        raise ConnectionError("down")

    async def from_cache(page: int) -> str:
        calls.append(page)
        return f"cached {page}"

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        result = await ctx.step(fetch, 7, on_error=from_cache)
        await ctx.request_info("go on?", str)
        return str(result)

    assert await paused_and_resumed(flow) == "cached 7"
    assert calls == [7]


@pytest.mark.parametrize("policy", [{"retry": 0}, {"retry": "3"}, {"timeout": 0}, {"timeout": -1}, {"on_error": None}])
def test_invalid_policy_is_rejected_at_its_definition(policy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expect"):
        step(name="fetch", **policy)(Flaky(0).fetch)
