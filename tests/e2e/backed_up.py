"""Threads that run while a test backs up their store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from perdure import Workflow, WorkflowBuilder, WorkflowContext, executor
from perdure.checkpoints.storage import StoreCheckpointStorage

LAST = 30
THREADS = [f"t-{number}" for number in range(6)]
WHOLE = list(range(LAST + 1))
"""The output of each thread."""


def counting(storage: StoreCheckpointStorage, gate: Gate | None = None) -> Workflow:
    """A workflow that counts to LAST, one number in each superstep. A gate stops its threads within a superstep."""

    async def count(number: int, ctx: WorkflowContext[int, list[int]]) -> None:
        seen = [*ctx.get_state("seen", []), number]
        ctx.set_state("seen", seen)
        if gate is not None:
            await gate.pass_at(number)
        if number == LAST:
            await ctx.yield_output(seen)
        else:
            await ctx.send_message(number + 1)

    first, second = executor(id="one")(count), executor(id="two")(count)
    builder = WorkflowBuilder(name="counting", start_executor=first, checkpoint_storage=storage)
    return builder.add_edge(first, second).add_edge(second, first).build()


class Gate:
    """Stops each thread near its end, in a superstep that is not committed."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._waiting = 0
        self.all_wait = asyncio.Event()

    async def pass_at(self, number: int) -> None:
        if number == LAST - 5 and not self._open.is_set():
            self._waiting += 1
            if self._waiting == len(THREADS):
                self.all_wait.set()
            await self._open.wait()

    def open(self) -> None:
        self._open.set()


@asynccontextmanager
async def running_threads(storage: StoreCheckpointStorage) -> AsyncIterator[tuple[Gate, Sequence[Awaitable[Any]]]]:
    """Start all threads before the block, and wait for their end after it."""
    gate = Gate()
    workflow = counting(storage, gate)
    runs = [asyncio.create_task(workflow.run(0, thread_id=thread_id)) for thread_id in THREADS]
    try:
        yield gate, runs
    finally:
        gate.open()
        await asyncio.gather(*runs, return_exceptions=True)


async def assert_complete(runs: Sequence[Awaitable[Any]]) -> None:
    """Assert that each run has its whole output in spite of the backup."""
    assert [(await run).get_outputs() for run in runs] == [[WHOLE]] * len(THREADS)


async def resume_all(storage: StoreCheckpointStorage, *, takeover: bool = False) -> None:
    """Resume every thread of the backup, and assert that each has its whole output."""
    threads = [thread.thread_id for thread in await storage.list_threads()]
    assert sorted(threads) == THREADS
    for thread_id in threads:
        result = await counting(storage).run(thread_id=thread_id, takeover=takeover)
        assert result.get_outputs() == [WHOLE]
    assert await storage.verify() == []
