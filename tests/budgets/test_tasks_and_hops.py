"""What a superstep costs the event loop: tasks that are made, and hops to a store's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.budgets.budgets import Made, check_made
from tests.budgets.flows import STORAGES, steps


class Counts:
    tasks = 0
    hops = 0


@contextmanager
def counted() -> Iterator[Counts]:
    """All that the running loop has to do with meanwhile."""
    loop, made = asyncio.get_running_loop(), Counts()
    factory, call_soon = loop.get_task_factory(), loop.call_soon_threadsafe

    def task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        made.tasks += 1
        return asyncio.Task(work, loop=loop, **options)

    def hop(*arguments: Any, **more: Any) -> Any:
        made.hops += 1
        return call_soon(*arguments, **more)

    loop.set_task_factory(task)  # type: ignore[arg-type]  # further options are passed on
    loop.call_soon_threadsafe = hop  # type: ignore[method-assign, assignment]  # a tap on the real method
    try:
        yield made
    finally:
        loop.set_task_factory(factory)
        loop.call_soon_threadsafe = call_soon  # type: ignore[method-assign]  # put back


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("kind", STORAGES)
async def test_superstep_and_turn_make_the_budgeted_tasks_and_hops(
    kind: str, durability: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made: dict[int, Counts] = {}
    dsn = request.getfixturevalue("dsn") if kind == "postgres" else ""
    async with STORAGES[kind](tmp_path, dsn) as storage:
        workflow = steps(storage)
        await workflow.run(3, thread_id="t", durability=durability)
        for count in (10, 30):
            with counted() as made[count]:
                await workflow.run(count, thread_id="t", durability=durability)
    check_made(kind, durability, Made(*each(made[10].tasks, made[30].tasks), *each(made[10].hops, made[30].hops)))


def each(few: int, many: int) -> tuple[int, int]:
    """Of a superstep, and beside them: from what 10 and 30 took."""
    assert (many - few) % 20 == 0, f"{few} for 10 supersteps, {many} for 30"
    return (many - few) // 20, few - (many - few) // 2
