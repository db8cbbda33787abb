"""The walk of one run and of one resume on SQLite, counted and not timed: a regression fails on any machine.

Each budget is what the walk takes, with a few calls to spare. A change that takes less lowers it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Never

from tests.counting import watched
from tests.parsing import ROOT

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor

RUN = {"files": 46, "calls": 330, "encodings": 3, "decodings": 0, "codecs": 0, "transactions": 4}
"""At most this many, for a run of one executor on a new thread. The transactions: claim, input, superstep, release."""
RESUME = {"files": 41, "calls": 276, "encodings": 0, "decodings": 1, "codecs": 1, "transactions": 3}
"""The same for a resume of that thread in a storage that has not read it. The transactions: claim, status, release."""


@executor
async def shout(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text.upper())


def build(storage: SqliteCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="walk", start_executor=shout, checkpoint_storage=storage).build()


def excess(counts: dict[str, int], budgets: dict[str, int]) -> dict[str, str]:
    return {name: f"{count} of {budgets[name]}" for name, count in counts.items() if count > budgets[name]}


async def count_walks(path: Path) -> list[dict[str, int]]:
    with watched() as walk:
        async with SqliteCheckpointStorage(path) as storage:
            workflow = build(storage)
            await workflow.run("warm", thread_id="warm")
            with walk.on():
                result = await workflow.run("hello", thread_id="t")
            run = walk.counts
        async with SqliteCheckpointStorage(path) as storage:
            workflow = build(storage)
            with walk.on():
                resumed = await workflow.run(thread_id="t")
    assert result.get_outputs() == resumed.get_outputs() == ["HELLO"]
    return [run, walk.counts]


def test_a_run_and_its_resume_stay_within_their_budgets(tmp_path: Path) -> None:
    # In a process of its own: what other tests left to the garbage collector would be counted here.
    command = [sys.executable, "-m", "tests.test_walk", str(tmp_path / "walk.db")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # our own
    run, resume = json.loads(process.stdout)
    assert not excess(run, RUN), run
    assert not excess(resume, RESUME), resume


if __name__ == "__main__":
    print(json.dumps(asyncio.run(count_walks(Path(sys.argv[1])))))
