"""Threads whose costs are counted: one that takes so many supersteps, and one that gets 1 KB with each turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.promises.stages import Does

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import FileCheckpointStorage, PostgresCheckpointStorage, SqliteCheckpointStorage

KB = 1024

STORAGES: dict[str, Callable[[Path, str], StoreCheckpointStorage]] = {
    "memory": lambda folder, dsn: InMemoryCheckpointStorage(),
    "file": lambda folder, dsn: FileCheckpointStorage(folder / "threads", fsync=False),
    "sqlite": lambda folder, dsn: SqliteCheckpointStorage(folder / "threads.db"),
    "sqlite, NORMAL": lambda folder, dsn: SqliteCheckpointStorage(folder / "threads.db", synchronous="NORMAL"),
    "postgres": lambda folder, dsn: PostgresCheckpointStorage(dsn),
}


def steps(storage: Any) -> Workflow:
    """Take as many supersteps as the message names, and then yield a word."""

    async def take(left: int, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("left", left)
        await (ctx.send_message(left - 1) if left > 1 else ctx.yield_output("done"))

    executor = Does("steps", take)
    builder = WorkflowBuilder(name="steps", start_executor=executor, checkpoint_storage=storage, max_iterations=1000)
    return builder.add_edge(executor, executor).build()


def talk(storage: Any) -> Workflow:
    """Keep all messages."""

    async def take_message(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("log", [*ctx.get_state("log", []), message])

    return WorkflowBuilder(
        name="talk", start_executor=Does("listener", take_message), checkpoint_storage=storage
    ).build()


def messages(count: int) -> list[str]:
    """1 KB each, with nothing that could be shared or compressed."""
    chance = random.Random(1)
    return [chance.randbytes(KB // 2).hex() for _ in range(count)]
