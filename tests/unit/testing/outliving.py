"""Storages that outlive a process, and a workflow: what children of a test import, so it imports little itself."""

from __future__ import annotations

from pathlib import Path

from perdure import FileCheckpointStorage, RunContext, SqliteCheckpointStorage, step, workflow


def files(folder: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(folder / "threads")


def sqlite_file(folder: Path) -> SqliteCheckpointStorage:
    return SqliteCheckpointStorage(folder / "threads.db")


@step
async def half(number: int) -> int:
    return number // 2


@workflow
async def halved(number: int, ctx: RunContext) -> int:
    ctx.set_state("was", number)
    return await half(number)
