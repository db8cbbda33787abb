"""A fake clock that moves by itself while a test has nothing to say about time."""

from __future__ import annotations

import asyncio
import threading

from perdure import RetryPolicy, WorkflowBuilder, WorkflowContext, executor
from perdure.testing import FakeClock, ScriptedExecutor


async def test_time_advances_to_where_the_first_sleeper_wakes() -> None:
    clock = FakeClock()
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.monotonic())

    naps = [asyncio.create_task(nap(seconds)) for seconds in (30, 10)]
    await clock.wait_for_sleepers(2)
    clock.advance_to_next()
    await naps[1]
    assert (woken, clock.sleepers) == ([10], 1)
    clock.advance_to_next()
    await naps[0]
    clock.advance_to_next()
    assert (woken, clock.monotonic()) == ([10, 30], 30)


async def test_while_skipping_no_sleeper_waits_and_each_sees_its_own_time() -> None:
    clock = FakeClock()
    async with clock.skipping():
        await asyncio.gather(clock.sleep(3600), clock.sleep(60))
        assert clock.monotonic() == 3600
        await clock.sleep(1)
    assert clock.monotonic() == 3601


async def test_after_skipping_time_stands_still_again() -> None:
    clock = FakeClock()
    async with clock.skipping():
        pass
    sleeper = asyncio.create_task(clock.sleep(1))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(1)
    await sleeper


async def test_timeout_does_not_pass_while_the_work_inside_it_continues() -> None:
    @executor(timeout=5)
    async def busy(text: str, ctx: WorkflowContext[str, str]) -> None:
        for _ in range(20):  # work of the event loop, not waiting
            await asyncio.sleep(0)
        await ctx.yield_output(text)

    clock = FakeClock()
    async with clock.skipping():
        result = await WorkflowBuilder(start_executor=busy, clock=clock).build().run("done")
    assert result.get_outputs() == ["done"]


async def test_a_timeout_does_not_pass_while_a_thread_works() -> None:
    may_end = threading.Event()

    @executor(timeout=5, input=str, workflow_output=str)
    def in_a_thread(text: str) -> str:
        may_end.wait()
        return text

    clock = FakeClock()
    async with clock.skipping():
        run = asyncio.create_task(WorkflowBuilder(start_executor=in_a_thread, clock=clock).build().run("done"))
        await clock.wait_for_sleepers()
        for _ in range(500):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0
        may_end.set()
        await run


async def test_skipping_jumps_to_the_retries_of_a_run() -> None:
    clock = FakeClock()
    shaky = ScriptedExecutor(
        "shaky",
        [ConnectionError("1"), ConnectionError("2"), "done"],
        input=str,
        workflow_output=str,
        retry=RetryPolicy(3, initial_delay=10),
    )
    async with clock.skipping():
        result = await WorkflowBuilder(start_executor=shaky, clock=clock).build().run("go")
    assert (result.get_outputs(), clock.monotonic()) == (["done"], 30)
