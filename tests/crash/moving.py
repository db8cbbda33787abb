"""What another process does with threads until it is killed: copies a store, exports, imports."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.promises.processes import STORAGES, Act, FarStage, Place

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import copy_store


async def copy(stage: FarStage, target: StoreCheckpointStorage, kind: str, folder: Path) -> float:
    """Seconds that it took."""
    async with STORAGES[kind](folder) as source:
        stage.report("ready")
        began = time.monotonic()
        report = await copy_store(source, target)
        assert report.is_complete, report
        return time.monotonic() - began


async def export(stage: FarStage, storage: StoreCheckpointStorage, thread_id: str, path: Path) -> float:
    stage.report("ready")
    began = time.monotonic()
    await storage.export_thread(thread_id, path, overwrite=True)
    return time.monotonic() - began


async def take_in(stage: FarStage, storage: StoreCheckpointStorage, path: Path) -> float:
    stage.report("ready")
    began = time.monotonic()
    await storage.import_thread(path)
    return time.monotonic() - began


async def killed_at(place: Place, seconds: float, act: Act, *arguments: object) -> None:
    """Start one of these in another process, and kill it so long after it began."""
    other = place.start(act, *arguments)
    await other.wait_for("ready")
    await asyncio.sleep(seconds)
    await other.kill()
