"""A handler that runs again gets its recorded results in their first order, so that it takes the same branches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.flows import warnings_of
from tests.unit.engine.policy_flows import Boom, Context, Flaky, SkippingClock, alone, executor_outline, of_kind

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowRunResult

Work = Callable[[Context], Awaitable[Any]]


async def interrupted(*versions: Work) -> WorkflowRunResult:
    """Each version of the code runs to its end and fails there, on one thread; the last one does not."""
    storage = InMemoryCheckpointStorage()

    def build(work: Work, flaky: Flaky) -> Workflow:
        async def handle(message: Any, ctx: Context) -> None:
            value = await work(ctx)
            flaky.meet()
            await ctx.yield_output(value)

        return alone(handle, checkpoint_storage=storage, clock=SkippingClock())

    for place, version in enumerate(versions[:-1]):
        with pytest.raises(Boom):
            await build(version, Flaky(1)).run(None if place else "x", thread_id="t")
    result: WorkflowRunResult = await build(versions[-1], Flaky(0)).run(thread_id="t")
    return result


class Recorder:
    """Steps that take so many turns, and who was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def take(self, name: str, pace: int = 0) -> str:
        self.calls.append(name)
        await turns(pace)
        return name.upper()


# ---------------------------------------------------------------- the same way again


@pytest.mark.parametrize("paces", [(9, 0), (0, 9), (4, 4)])
async def test_race_between_steps_has_the_same_winner_in_a_replay(paces: tuple[int, int]) -> None:
    recorder, winners = Recorder(), list[str]()

    async def race(ctx: Context) -> str:
        tasks = [
            asyncio.ensure_future(ctx.step(recorder.take, name, pace)) for name, pace in zip("ab", paces, strict=True)
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = str(next(task for task in tasks if task in done).result())
        winners.append(winner)
        await asyncio.gather(*tasks)
        return str(await ctx.step(recorder.take, f"after {winner}"))

    result = await interrupted(race, race, race)
    assert len(set(winners)) == 1 and len(winners) == 3
    assert result.get_outputs() == [f"AFTER {winners[0]}"]
    assert len(recorder.calls) == 3, "the way after the race was found recorded as well"


async def test_replayed_results_come_in_the_order_of_their_records() -> None:
    recorder, seen = Recorder(), list[list[str]]()

    async def work(ctx: Context) -> None:
        order: list[str] = []

        async def take(name: str, pace: int) -> None:
            await ctx.step(recorder.take, name, pace)
            order.append(name)

        await asyncio.gather(*(take(name, pace) for name, pace in (("slow", 6), ("middle", 3), ("quick", 0))))
        seen.append(order)

    await interrupted(work, work)
    assert seen[0] == seen[1] == ["quick", "middle", "slow"]


async def test_task_group_and_loop_with_conditions_take_the_same_branches() -> None:
    recorder = Recorder()

    async def work(ctx: Context) -> list[str]:
        results: list[str] = []
        for place in range(3):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ctx.step(recorder.take, f"{place}{name}")) for name in "ab"]
            results += [task.result() for task in tasks]
            if len(results) == 4:
                results.append(await ctx.step(recorder.take, "extra"))
        return results

    result = await interrupted(work, work, work)
    assert result.get_outputs() == [["0A", "0B", "1A", "1B", "EXTRA", "2A", "2B"]]
    assert len(recorder.calls) == 7


async def test_errors_and_sleeps_keep_their_place_in_the_order() -> None:
    recorder = Recorder()

    async def fail() -> None:
        recorder.calls.append("fail")
        raise KeyError("no")

    async def work(ctx: Context) -> list[str]:
        results = [await ctx.step(recorder.take, "a")]
        try:
            await ctx.step(fail)
        except KeyError:
            results.append("caught")
        await ctx.sleep(10)
        results.append(await ctx.step(recorder.take, "b"))
        return results

    result = await interrupted(work, work)
    assert result.get_outputs() == [["A", "caught", "B"]] and recorder.calls == ["a", "fail", "b"]


async def test_delivery_with_many_sleeps_emits_each_replayed_step_once_a_run() -> None:
    recorder = Recorder()

    async def work(ctx: Context) -> str:
        await ctx.step(recorder.take, "a")
        for _ in range(5):
            await ctx.sleep(10)
        return "end"

    result = await interrupted(work, work)
    assert [who for kind, who in executor_outline(result) if kind == "bypassed"] == ["only/take"]
    assert [who for kind, who in executor_outline(result) if kind == "invoked"] == ["only"], (
        "emitted again, for consumers of this run"
    )
    assert all(event.replayed for event in of_kind(result, "executor_invoked"))


# ---------------------------------------------------------------- code that was changed


def steps(*names: str) -> Work:
    async def work(ctx: Context) -> list[str]:
        return [await ctx.step(recorder.take, name) for name in names]

    recorder = Recorder()
    work.calls = recorder.calls  # type: ignore[attr-defined]  # for the test to look at
    return work


async def test_a_step_that_is_no_longer_reached_is_a_warning_with_its_name() -> None:
    result = await interrupted(steps("a", "b"), steps("a"))
    assert result.get_outputs() == [["A"]]
    [warning] = warnings_of(result)
    assert "'only' ended without reaching recorded steps: 'take'" in warning


async def test_steps_in_another_order_get_their_own_results_and_a_warning() -> None:
    changed = steps("b", "a")
    result = await interrupted(steps("a", "b"), changed)
    assert result.get_outputs() == [["B", "A"]], "never the result of another call"
    assert changed.calls == []  # type: ignore[attr-defined]  # set in `steps`
    assert [text for text in warnings_of(result) if "Step 'take' of 'only' was recorded" in text]


async def test_a_step_put_in_between_is_called_and_the_others_are_not() -> None:
    changed = steps("a", "new", "b")
    result = await interrupted(steps("a", "b"), changed)
    assert result.get_outputs() == [["A", "NEW", "B"]]
    assert changed.calls == ["new"]  # type: ignore[attr-defined]  # set in `steps`


async def test_other_arguments_are_another_call() -> None:
    changed = steps("c")
    result = await interrupted(steps("a"), changed)
    assert result.get_outputs() == [["C"]] and changed.calls == ["c"]  # type: ignore[attr-defined]  # set in `steps`


async def test_unchanged_code_gives_no_warning() -> None:
    for work in (steps("a", "b"), steps(), steps("a", "a", "a")):
        assert warnings_of(await interrupted(work, work, work)) == []


async def test_unchanged_code_with_other_timing_between_steps_gives_no_warning() -> None:
    recorder = Recorder()

    async def work(ctx: Context) -> None:
        async def late(name: str, before: int) -> None:
            await turns(before)
            await ctx.step(recorder.take, name, 2)

        await asyncio.gather(late("a", 5), late("b", 0), late("c", 2))

    assert warnings_of(await interrupted(work, work)) == [] and len(recorder.calls) == 3
