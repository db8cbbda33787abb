"""Lanes of one superstep, side by side: those that never wait share a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from tests.unit.engine.flows import function, relay

from perdure import Workflow, WorkflowBuilder, WorkflowContext

Work = Callable[[str], Awaitable[None]]
NAMES = ["a", "b", "c", "d"]


def side_by_side(work: Work) -> Workflow:
    """Executors `a` to `d` side by side; each does the work with its name."""

    def executor(name: str) -> Any:
        async def run(message: int, ctx: WorkflowContext[int, str]) -> None:
            await work(name)

        return function(name, run, accepts=int)

    start = relay("start")
    return WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [executor(name) for name in NAMES]).build()


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.parametrize("waiting", ["", "a", "c", "abcd"])
async def test_lanes_have_context_variables_of_their_own(waiting: str) -> None:
    seen: dict[str, tuple[str, str]] = {}

    async def work(name: str) -> None:
        before = VARIABLE.get()
        VARIABLE.set(name)
        if name in waiting:
            await asyncio.sleep(0)
        seen[name] = before, VARIABLE.get()

    await side_by_side(work).run(1)
    assert seen == {name: ("unset", name) for name in NAMES}
    assert VARIABLE.get() == "unset"


async def test_lanes_that_wait_have_tasks_of_their_own_and_run_concurrently() -> None:
    barrier = asyncio.Barrier(len(NAMES))
    tasks = set()

    async def work(name: str) -> None:
        await barrier.wait()
        tasks.add(asyncio.current_task())

    await side_by_side(work).run(1)
    assert len(tasks) == len(NAMES)


async def test_lanes_after_a_failed_lane_still_run_and_join_its_error() -> None:
    ran = []

    async def work(name: str) -> None:
        ran.append(name)
        if name in "bc":
            raise ValueError(name)

    with pytest.raises(ValueError, match="b") as raised:
        await side_by_side(work).run(1)
    assert ran == NAMES
    assert raised.value.__notes__ == ["Executor 'c' failed in the same superstep: ValueError('c')"]


async def test_timeout_inside_a_lane_cancels_only_that_lane() -> None:
    ended = []

    async def work(name: str) -> None:
        try:
            async with asyncio.timeout(0.01 if name == "b" else None):
                await asyncio.sleep(60 if name == "b" else 0)
        except TimeoutError:
            ended.append("late")
        ended.append(name)

    await side_by_side(work).run(1)
    assert sorted(ended) == ["a", "b", "c", "d", "late"]
