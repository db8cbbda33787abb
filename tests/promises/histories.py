"""For the tests of promise 18: histories of threads, what is left of them, and whether that is as it was."""

from __future__ import annotations

from datetime import timedelta
from time import time_ns
from typing import Any

import pytest

from perdure.checkpoints import checkpoint as checkpoints
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.history.retention import KeepFor, KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo

DAY = timedelta(days=1)
POLICIES: list[Retention] = [LatestOnly(), KeepLast(3), KeepFor(DAY)]
EACH_POLICY = pytest.mark.parametrize("retention", POLICIES, ids=lambda policy: type(policy).__name__)


async def numbers(storage: StoreCheckpointStorage, thread_id: str = "t") -> list[int]:
    return [info.number for info in await storage.list_checkpoint_infos(thread_id=thread_id)]


async def infos(storage: StoreCheckpointStorage, thread_id: str = "t") -> dict[int, CheckpointInfo]:
    return {info.number: info for info in await storage.list_checkpoint_infos(thread_id=thread_id)}


async def log(storage: StoreCheckpointStorage, after: int | None = None, thread_id: str = "t") -> list[WorkflowEvent]:
    return [event async for event in read_events(storage, thread_id, after, None)]


class Seen:
    """What checkpoints held when they were new, to compare what is left of them with."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    async def look(self, storage: StoreCheckpointStorage) -> set[str]:
        """All that is stored can be loaded, and is what it was. Gives its ids."""
        stored = {checkpoint.checkpoint_id: content(checkpoint) for checkpoint in await storage.list_checkpoints()}
        for checkpoint_id, now in stored.items():
            assert self.content.setdefault(checkpoint_id, now) == now, checkpoint_id
        return set(stored)


def content(checkpoint: checkpoints.WorkflowCheckpoint) -> dict[str, Any]:
    """All of a checkpoint, but for the one before it, which may be gone."""
    tree = checkpoint.to_dict()
    del tree["previous_checkpoint_id"]
    return tree


class Days:
    """The clock of this machine, which a test may put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._passed = timedelta(0)
        passed = timedelta(microseconds=1)
        monkeypatch.setattr(checkpoints, "time_ns", lambda: time_ns() + self._passed // passed * 1000)

    def pass_(self, days: float) -> None:
        self._passed += days * DAY
