"""The walk of a run, of a resume and of a turn streamed over HTTP: counted, so a regression fails on any machine.

Each budget is what the walk takes, with a few calls to spare. A change that takes less lowers it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Never

from tests.counting import watched
from tests.parsing import ROOT
from tests.server.routes.calling import Called, turn
from tests.server.serving import project

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor
from perdure.checkpoints import follow
from perdure.server import create_app

RUN = {"files": 39, "calls": 332, "encodings": 3, "decodings": 0, "codecs": 0, "transactions": 4}
"""At most this many, for a run of one executor on a new thread. The transactions: claim, input, superstep, release."""
RESUME = {"files": 37, "calls": 274, "encodings": 0, "decodings": 1, "codecs": 1, "transactions": 3}
"""The same for a resume of that thread in a storage that has not read it. The transactions: claim, status, release."""
STREAMED_TURN = {"files": 60, "calls": 1680, "encodings": 7, "decodings": 1, "codecs": 0, "transactions": 4}
"""The same for a streamed turn that begins a thread."""


@executor
async def shout(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text.upper())


def build(storage: SqliteCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="walk", start_executor=shout, checkpoint_storage=storage).build()


def excess(counts: dict[str, int], budgets: dict[str, int]) -> dict[str, str]:
    return {name: f"{count} of {budgets[name]}" for name, count in counts.items() if count > budgets[name]}


async def count_run_and_resume(folder: Path) -> list[dict[str, int]]:
    with watched() as walk:
        async with SqliteCheckpointStorage(folder / "walk.db") as storage:
            workflow = build(storage)
            await workflow.run("warm", thread_id="warm")
            with walk.on():
                result = await workflow.run("hello", thread_id="t")
            run = walk.counts
        async with SqliteCheckpointStorage(folder / "walk.db") as storage:
            workflow = build(storage)
            with walk.on():
                resumed = await workflow.run(thread_id="t")
    assert result.get_outputs() == resumed.get_outputs() == ["HELLO"]
    return [run, walk.counts]


async def count_streamed_turn(folder: Path) -> list[dict[str, int]]:
    follow.MIN_POLL_SECONDS = 60.0  # a busy machine reads no more often
    with watched() as walk:
        app = create_app(str(folder / "perdure.json"))
        try:
            called = Called(app)
            async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "warm")) as stream:
                await stream.all()
            await app.service.recovery.stop()
            with walk.on():
                async with called.stream("POST", "/v1/graph/stream", turn("My name is Ann", "t")) as stream:
                    chunks = await stream.all()
        finally:
            await app.aclose()
    assert [chunk.id for chunk in chunks if chunk.id is not None] == list(range(1, 9)), "the turn did its work"
    return [walk.counts]


WALKS = {"run and resume": count_run_and_resume, "streamed turn": count_streamed_turn}


def count(name: str, folder: Path) -> list[dict[str, int]]:
    """The counts of a walk in a process of its own: the values and apps of other tests change what a process does."""
    environment = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.test_walk", name, str(folder)]
    process = subprocess.run(  # our own
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    counts: list[dict[str, int]] = json.loads(process.stdout.splitlines()[-1])
    return counts


def test_a_run_and_its_resume_stay_within_their_budgets(tmp_path: Path) -> None:
    run, resume = count("run and resume", tmp_path)
    assert not excess(run, RUN), run
    assert not excess(resume, RESUME), resume


def test_streamed_turn_stays_within_its_budgets(tmp_path: Path) -> None:
    (turned,) = count("streamed turn", project(tmp_path))
    assert not excess(turned, STREAMED_TURN), turned


if __name__ == "__main__":
    print(json.dumps(asyncio.run(WALKS[sys.argv[1]](Path(sys.argv[2])))))
