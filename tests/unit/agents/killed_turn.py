"""A turn with ten tool calls at once, whose process kills itself when nine of them are recorded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.unit.agents.agent_models import Script, call, note

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder
from perdure.agents.pydantic.agent import Agent

CALLS = [call("count", {"number": place}, f"c{place}") for place in range(10)]


def counter(folder: Path, *, is_stuck: bool) -> Agent:
    log = folder / "log"

    async def count(number: int) -> int:
        """Count."""
        note(log, tool=number)
        if is_stuck and number == 9:
            await asyncio.Event().wait()
        return number + 1

    return Agent(Script([CALLS, "All counted."], log).model(), name="counter", tools=[count])


def flow(folder: Path, *, is_stuck: bool = False) -> Workflow:
    storage = SqliteCheckpointStorage(folder / "threads.db")
    agent = counter(folder, is_stuck=is_stuck)
    return WorkflowBuilder(start_executor=agent, checkpoint_storage=storage, name="counting").build()


async def until_nine_are_recorded(events: Any) -> None:
    recorded = 0
    async for event in events:
        recorded += event.type == "executor_completed" and str(event.executor_id).endswith(".count")
        if recorded == 9:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    workflow = flow(Path(sys.argv[1]), is_stuck=True)
    asyncio.run(until_nine_are_recorded(workflow.run("Count to ten.", thread_id="t", stream=True)))
