"""A run that ended leaves nothing to the garbage collector: references free its events, which may be many."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from perdure import InMemoryCheckpointStorage, RunContext, WorkflowBuilder, WorkflowContext, executor, workflow


@executor
async def countdown(left: int, ctx: WorkflowContext[int, int]) -> None:
    ctx.set_state("left", [left])
    if left:
        await ctx.send_message(left - 1)
    await ctx.yield_output(await ctx.step(abs, left))


@workflow
async def add(left: int, ctx: RunContext) -> int:
    return left + int(await ctx.step(abs, left))


async def cyclic_garbage(work: Any) -> Counter[str]:
    """The package's objects that only the garbage collector can free, by type."""
    await work()  # fills caches
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await work()
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        return Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith("perdure"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("only", [countdown, add])
async def test_a_run_leaves_no_cycle(only: Any, is_stored: bool) -> None:
    storage = InMemoryCheckpointStorage() if is_stored else None
    if only is add:
        built = add.build(storage)
    else:
        built = WorkflowBuilder(start_executor=only, checkpoint_storage=storage).add_edge(only, only).build()

    async def run() -> None:
        await built.run(5, thread_id="t")

    assert not await cyclic_garbage(run)


async def test_a_streamed_run_leaves_no_cycle() -> None:
    built = WorkflowBuilder(start_executor=countdown).add_edge(countdown, countdown).build()

    async def run() -> None:
        async for _ in built.run(5, thread_id="t", stream=True):
            pass

    assert not await cyclic_garbage(run)
