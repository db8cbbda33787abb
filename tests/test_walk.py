"""The walk of one run and of one resume on SQLite, counted and not timed: a regression fails on any machine.

Each budget is what the walk takes. A change that takes less lowers it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Never

import pytest
from tests.counting import watched

from perdure import SqliteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor, isolation

RUN = {"files": 54, "calls": 352, "encodings": 3, "decodings": 0, "codecs": 0, "transactions": 4}
"""At most this many, for a run of one executor on a new thread. The transactions: claim, input, superstep, release."""
RESUME = {"files": 54, "calls": 352, "encodings": 3, "decodings": 1, "codecs": 1, "transactions": 3}
"""The same for a resume of that thread in a storage that has not read it. The transactions: claim, status, release."""


@executor
async def shout(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text.upper())


def build(storage: SqliteCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="walk", start_executor=shout, checkpoint_storage=storage).build()


def excess(counts: dict[str, int], budgets: dict[str, int]) -> dict[str, str]:
    return {name: f"{count} of {budgets[name]}" for name, count in counts.items() if count > budgets[name]}


async def test_a_run_and_its_resume_stay_within_their_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_copied_otherwise", False)  # as in a new process: other tests have values of users
    with watched() as walk:
        async with SqliteCheckpointStorage(tmp_path / "walk.db") as storage:
            workflow = build(storage)
            await workflow.run("warm", thread_id="warm")
            with walk.on():
                result = await workflow.run("hello", thread_id="t")
            run = walk.counts
        async with SqliteCheckpointStorage(tmp_path / "walk.db") as storage:
            workflow = build(storage)
            with walk.on():
                resumed = await workflow.run(thread_id="t")
            resume = walk.counts
    assert result.get_outputs() == resumed.get_outputs() == ["HELLO"]
    assert not excess(run, RUN), run
    assert not excess(resume, RESUME), resume
