"""Threads that are at work while a backup is made of their store."""

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
"""What each thread puts out in the end."""


def counting(storage: StoreCheckpointStorage, gate: Gate | None = None) -> Workflow:
    """Counts to LAST, a number in each superstep. With a gate, threads stop there in the middle of a superstep."""

    async def count(number: int, ctx: WorkflowContext[int, list[int]]) -> None:
        seen = [*ctx.get_state("seen", []), number]
        ctx.set_state("seen", seen)
        if gate is not None:
            await gate.pass_at(number)
        if number == LAST:
            await ctx.yield_output(seen)
        else:
            await ctx.send_message(number + 1)

    one, two = executor(id="one")(count), executor(id="two")(count)
    builder = WorkflowBuilder(name="counting", start_executor=one, checkpoint_storage=storage)
    return builder.add_edge(one, two).add_edge(two, one).build()


class Gate:
    """Near the end of their way threads wait here, each in a superstep that is not committed."""

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
async def at_work(storage: StoreCheckpointStorage) -> AsyncIterator[tuple[Gate, Sequence[Awaitable[Any]]]]:
    """All threads run when the block begins, and have ended when it ends."""
    gate = Gate()
    workflow = counting(storage, gate)
    runs = [asyncio.create_task(workflow.run(0, thread_id=thread_id)) for thread_id in THREADS]
    try:
        yield gate, runs
    finally:
        gate.open()
        await asyncio.gather(*runs, return_exceptions=True)


async def undisturbed(runs: Sequence[Awaitable[Any]]) -> None:
    """They end as if nobody had made a backup."""
    assert [(await run).get_outputs() for run in runs] == [[WHOLE]] * len(THREADS)


async def go_on(storage: StoreCheckpointStorage, *, takeover: bool = False) -> None:
    """Every thread that the backup has resumes there, and ends as an undisturbed one does."""
    threads = [one.thread_id for one in await storage.list_threads()]
    assert sorted(threads) == THREADS
    for thread_id in threads:
        result = await counting(storage).run(thread_id=thread_id, takeover=takeover)
        assert result.get_outputs() == [WHOLE]
    assert await storage.verify() == []
