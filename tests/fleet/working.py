"""Processes that all run one workflow on the same threads, each waiting its turn, or taking it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never, TypedDict

from tests.fleet.harbour import all_at_once

from perdure import (
    Executor,
    PostgresCheckpointStorage,
    RunInterrupted,
    ThreadBusy,
    ThreadConflict,
    ThreadNotIdle,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
)


class Work(TypedDict):
    dsn: str
    schema: str
    folder: str
    seed: int
    processes: int
    threads: int
    runs: int
    """Of each process."""


class Note(Executor):
    """Writes down what it is given, with a step before and after."""

    @handler
    async def take(self, word: str, ctx: WorkflowContext[str]) -> None:
        await ctx.step(asyncio.sleep, 0, name="before")
        ctx.state.setdefault("words", []).append(word)
        await ctx.send_message(word)


class Counter(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, str]) -> None:
        self.count += 1
        await ctx.yield_output(f"{word} was the {self.count}.")

    async def on_checkpoint_save(self) -> dict[str, int]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def build(storage: PostgresCheckpointStorage) -> Workflow:
    note = Note("note")
    return (
        WorkflowBuilder(name="work", start_executor=note, checkpoint_storage=storage)
        .add_edge(note, Counter("tell"))
        .build()
    )


def live(order: Work, report_ready: Callable[[], object]) -> None:
    report_ready()
    all_at_once(order["processes"], lambda number: asyncio.run(_work(order, number)))


async def _work(order: Work, number: int) -> None:
    chance = random.Random(f"{order['seed']} {number}")
    storage = PostgresCheckpointStorage(order["dsn"], schema=order["schema"], pool_size=4)
    workflow = build(storage)

    async def run(turn: int) -> list[str]:
        word, thread_id = f"{number}.{turn}", f"thread {chance.randrange(order['threads'])}"
        how: dict[str, Any] = chance.choice([{"on_busy": "enqueue"}] * 6 + [{"on_busy": "reject"}, {"takeover": True}])
        try:
            result = await workflow.run(word, thread_id=thread_id, **how)
        except (ThreadBusy, ThreadNotIdle):
            return ["refused", thread_id, word]
        except (ThreadConflict, RunInterrupted):
            return ["conflict", thread_id, word]
        is_done = result.get_final_state() == WorkflowRunState.IDLE  # otherwise a run of this process has taken it
        return ["done" if is_done else "conflict", thread_id, word, *result.get_outputs()]

    outcomes = await asyncio.gather(*(run(turn) for turn in range(order["runs"])))
    (Path(order["folder"]) / f"outcomes-{number}").write_text(json.dumps(outcomes), encoding="utf-8")
    await storage.close()
