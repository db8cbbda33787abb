"""A separate process that runs a thread, and waits in the middle of it until it receives a line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.engine.flows import function, relay

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import PostgresCheckpointStorage


def storage_at(place: str) -> StoreCheckpointStorage:
    return PostgresCheckpointStorage(place) if "://" in place else SqliteCheckpointStorage(place)


def waiting_workflow(storage: Any, wait: Any) -> Workflow:
    """`first` sends to `second`, which awaits `wait()` and yields what it got."""

    async def second(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await wait()
        await ctx.yield_output(message)

    begin, end = relay("first"), function("second", second, accepts=object)
    return (
        WorkflowBuilder(name="elsewhere", start_executor=begin, checkpoint_storage=storage).add_edge(begin, end).build()
    )


@asynccontextmanager
async def running_elsewhere(place: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process is in the second superstep of thread `t`. A line resumes it; it prints how its run ended."""
    pipe = asyncio.subprocess.PIPE
    arguments = (sys.executable, "-m", "tests.unit.engine.running_elsewhere", place)
    process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"arrived\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def main(place: str) -> None:
    async def wait() -> None:
        sys.stdout.write("arrived\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)

    async with storage_at(place) as storage:
        try:
            await waiting_workflow(storage, wait).run("x", thread_id="t")
        except Exception as error:  # noqa: BLE001  # its name is what the test wants
            print(type(error).__name__)
        else:
            print("ended")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
