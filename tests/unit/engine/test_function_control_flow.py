"""Function workflows are plain async code: their control flow works as written, also after a pause."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.engine.function_flows import Calls, begin, paused_and_resumed, raising

from perdure import InMemoryCheckpointStorage, RunContext, workflow


async def test_loop_with_a_condition_takes_the_same_branches_when_resumed() -> None:
    calls = Calls()
    double = calls.step(lambda n: n * 2)

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        kept, n = [], 1
        while n < 20:
            n = await double(n)
            if n % 3 == 1:
                continue
            kept.append(n)
        await ctx.request_info("go on?", str)
        return kept

    assert await paused_and_resumed(flow) == [2, 8, 32]
    assert calls == [1, 2, 4, 8, 16]


async def test_gather_gives_each_its_own_result_in_the_order_of_its_arguments() -> None:
    calls = Calls()
    square = calls.step(lambda n: n * n)

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        squares = await asyncio.gather(*(square(n) for n in (3, 1, 2)))
        await ctx.request_info("go on?", str)
        return list(squares) + list(await asyncio.gather(square(5), square(4)))

    assert await paused_and_resumed(flow) == [9, 1, 4, 25, 16]
    assert calls == [3, 1, 2, 5, 4]


async def test_a_task_group_gives_each_task_its_own_result() -> None:
    calls = Calls()
    square = calls.step(lambda n: n * n)

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(square(n)) for n in (1, 2, 3)]
        await ctx.request_info("go on?", str)
        return [task.result() for task in tasks]

    assert await paused_and_resumed(flow) == [1, 4, 9]
    assert calls == [1, 2, 3]


async def test_question_of_a_task_group_is_answered_after_other_tasks_have_ended() -> None:
    calls = Calls()
    note = calls.step()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(note(1)), group.create_task(ctx.request_info("go on?", str))]
        return [task.result() for task in tasks]

    assert await paused_and_resumed(flow) == [1, "yes"]
    assert calls == [1]


class Relays:
    """Steps that end in the order in which the test says."""

    def __init__(self) -> None:
        self.calls = Calls()
        self._ends = {name: asyncio.Event() for name in "abc"}
        self.step = self.calls.step(name="relay")
        self.step.function = self._run

    def end(self, name: str) -> None:
        self._ends[name].set()

    async def _run(self, name: str) -> str:
        self.calls.append(name)
        await self._ends[name].wait()
        return name


async def test_task_that_ended_first_is_first_again_in_a_replay() -> None:
    relays = Relays()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        tasks = [asyncio.create_task(relays.step(name)) for name in "ab"]
        relays.end("b")
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = [task.result() for task in done]
        relays.end("a")
        await asyncio.wait(left)
        await ctx.request_info("go on?", str)
        return first

    assert await paused_and_resumed(flow) == ["b"]
    assert relays.calls == ["a", "b"]


async def test_as_completed_gives_replayed_results_in_their_first_order() -> None:
    relays = Relays()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        came: list[str] = []
        for expected, result in zip("cab", asyncio.as_completed([relays.step(name) for name in "abc"]), strict=True):
            relays.end(expected)
            came.append(await result)
        await ctx.request_info("go on?", str)
        return came

    assert await paused_and_resumed(flow) == ["c", "a", "b"]
    assert sorted(relays.calls) == ["a", "b", "c"]


async def test_loser_of_a_race_is_not_called_again_when_the_function_resumes() -> None:
    calls = Calls()
    quick, never = calls.step(), asyncio.Event()
    lost = calls.step(name="lost")

    async def wait(name: str) -> None:
        calls.append(name)
        await never.wait()

    lost.function = wait

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        tasks = [asyncio.create_task(quick("quick")), asyncio.create_task(lost("slow"))]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await ctx.request_info("go on?", str)
        return str(done.pop().result())

    assert await paused_and_resumed(flow) == "quick"
    assert calls == ["quick", "slow"]


async def test_a_task_made_early_and_awaited_late_has_its_result() -> None:
    calls = Calls()
    note = calls.step()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[int]:
        early = asyncio.create_task(note(1))
        late = await note(2)
        await ctx.request_info("go on?", str)
        return [await early, late, await note(3)]

    assert await paused_and_resumed(flow) == [1, 2, 3]
    assert sorted(calls) == [1, 2, 3]


async def test_a_caught_error_is_caught_again_without_calling_the_step() -> None:
    calls = Calls()
    fail, note = calls.step(raising(ValueError("no way"))), calls.step(name="other")

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        try:
            way = await fail(1)
        except ValueError as error:
            way = f"caught {error}"
        finally:
            await note(2)
        await ctx.request_info("go on?", str)
        return way

    assert await paused_and_resumed(flow) == "caught no way"
    assert calls == [1, 2]


async def test_errors_in_a_task_group_are_caught_by_kind_again() -> None:
    calls = Calls()
    late, missing = calls.step(raising(TimeoutError("late"))), calls.step(raising(KeyError("it")), name="missing")

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        caught = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(late(1))
                group.create_task(missing(2))
        except* TimeoutError as errors:
            caught += [repr(error) for error in errors.exceptions]
        except* KeyError as errors:
            caught += [repr(error) for error in errors.exceptions]
        await ctx.request_info("go on?", str)
        return caught

    assert await paused_and_resumed(flow) == ["TimeoutError('late')", "KeyError('it')"]
    assert calls == [1, 2]


async def test_gathered_errors_are_values_again() -> None:
    calls = Calls()
    fail, note = calls.step(raising(OSError("gone"))), calls.step(name="other")

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        results = await asyncio.gather(fail(1), note(2), return_exceptions=True)
        await ctx.request_info("go on?", str)
        return [repr(result) for result in results]

    assert await paused_and_resumed(flow) == ["OSError('gone')", "2"]
    assert calls == [1, 2]


async def test_steps_called_in_a_step_are_part_of_it_and_not_called_again() -> None:
    calls = Calls()
    inner = calls.step(lambda n: n + 1)
    outer = calls.step(name="outer")

    async def twice(n: int) -> int:
        calls.append("outer")
        return int(await inner(await inner(n)))

    outer.function = twice

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        result = await outer(1)
        await ctx.request_info("go on?", str)
        return int(result)

    assert await paused_and_resumed(flow) == 3
    assert calls == ["outer", 1, 2]


async def test_inner_step_is_not_called_again_after_its_outer_step_failed() -> None:
    calls = Calls()
    inner, outer = calls.step(), calls.step(name="outer")

    async def fail_once(_: str) -> str:
        calls.append("outer")
        await inner("inner")
        if calls.count("outer") == 1:
            raise ConnectionError("not now")
        return "done"

    outer.function = fail_once

    @workflow
    async def flow(_: str) -> str:
        return str(await outer("x"))

    storage = InMemoryCheckpointStorage()
    with pytest.raises(ConnectionError):
        await begin(flow, storage)
    assert (await flow.build(storage).run(thread_id="t")).get_outputs() == ["done"]
    assert calls == ["outer", "inner", "outer"]


async def test_a_function_may_call_itself_with_steps_at_every_depth() -> None:
    calls = Calls()
    note = calls.step()

    async def factorial(n: int) -> int:
        return int(await note(n)) * (await factorial(n - 1) if n > 1 else 1)

    @workflow
    async def flow(_: str, ctx: RunContext) -> int:
        product = await factorial(4)
        await ctx.request_info("go on?", str)
        return product

    assert await paused_and_resumed(flow) == 24
    assert calls == [4, 3, 2, 1]


async def test_a_workflow_called_in_another_records_its_steps_with_the_caller() -> None:
    calls = Calls()
    note = calls.step()

    @workflow
    async def inner(n: int, ctx: RunContext) -> str:
        await note(n)
        return f"{n} {await ctx.request_info('go on?', str)}"

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        await note(1)
        return await inner(2, ctx)

    assert await paused_and_resumed(flow) == "2 yes"
    assert calls == [1, 2]


async def test_called_workflow_takes_its_context_in_any_place_or_not_at_all() -> None:
    @workflow
    async def last(message: str, ctx: RunContext) -> str:
        return f"{message} {ctx.thread_id}"

    @workflow
    async def first(ctx: RunContext, message: str) -> str:
        return f"{message} {ctx.thread_id}"

    @workflow
    async def only(ctx: RunContext) -> str:
        return ctx.thread_id

    @workflow
    async def without(message: str) -> str:
        return message

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        return [
            await last("a"),  # type: ignore[call-arg]  # the context is filled in
            await last("b", ctx),
            await last("c", ctx=ctx),
            await first(message="d"),  # type: ignore[call-arg]  # the context is filled in
            await first(ctx, "e"),
            await only(),  # type: ignore[call-arg]  # the context is filled in
            await without("f"),
        ]

    result = await begin(flow, None)
    assert result.get_outputs() == [["a t", "b t", "c t", "d t", "e t", "t", "f"]]


async def test_a_timeout_around_a_step_cancels_it_and_is_caught_again() -> None:
    calls = Calls()
    hang = calls.step(name="hang")
    cancelled = asyncio.Event()

    async def wait(name: str) -> None:
        calls.append(name)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    hang.function = wait

    @workflow
    async def flow(_: str) -> str:
        try:
            async with asyncio.timeout(0):
                await hang("x")
        except TimeoutError:
            return f"too late, cancelled: {cancelled.is_set()}"
        return "never"

    assert (await begin(flow, None)).get_outputs() == ["too late, cancelled: True"]


async def test_cancelled_step_is_performed_when_the_function_calls_it_again() -> None:
    calls = Calls()
    fetch = calls.step(name="fetch")

    async def hang_once(name: str) -> str:
        calls.append(name)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return f"got {name}"

    fetch.function = hang_once

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            async with asyncio.timeout(0):
                result = await fetch("x")
        except TimeoutError:
            result = await fetch("x")
        await ctx.request_info("go on?", str)
        return str(result)

    assert await paused_and_resumed(flow) == "got x"
