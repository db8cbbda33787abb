"""Reading while another process prunes: a checkpoint is there or missing, and never damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import CheckpointNotFound, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import CheckpointInfo, StoredCheckpoint
from perdure.stores.memory.store import MemoryStore


class PrunedMeanwhile(MemoryStore):
    """Prunes checkpoints after a method has its result and before the caller receives it."""

    def __init__(self) -> None:
        super().__init__()
        self.doomed: dict[str, list[str]] = {}

    async def _prune_after(self, method: str) -> None:
        await self.prune("t", self.doomed.pop(method, []))

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        infos = await super().infos(**filters)
        await self._prune_after("infos")
        return infos

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        checkpoint = await super().find_checkpoint(checkpoint_id)
        await self._prune_after("find_checkpoint")
        return checkpoint


@pytest.fixture
async def store() -> PrunedMeanwhile:
    """A thread with checkpoints "1" to "4", none of which shares anything large with another."""
    made = PrunedMeanwhile()
    storage = StoreCheckpointStorage(made)
    for number in range(1, 5):
        state = {"text": [f"{number} {line} " * 100 for line in range(20)]}
        await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=str(number), thread_id="t", state=state))
    return made


async def test_checkpoint_pruned_while_it_is_loaded_is_not_found(store: PrunedMeanwhile) -> None:
    store.doomed["find_checkpoint"] = ["2"]
    with pytest.raises(CheckpointNotFound):
        await StoreCheckpointStorage(store).load("2")


@pytest.mark.parametrize("method", ["infos", "find_checkpoint"])
async def test_list_leaves_out_checkpoints_pruned_since_it_began(method: str, store: PrunedMeanwhile) -> None:
    store.doomed[method] = ["1", "3"]
    checkpoints = await StoreCheckpointStorage(store).list_checkpoints(thread_id="t")
    assert [checkpoint.checkpoint_id for checkpoint in checkpoints] == ["2", "4"]


@pytest.mark.parametrize("method", ["infos", "find_checkpoint"])
async def test_latest_is_the_next_older_checkpoint_when_the_latest_is_pruned(
    method: str, store: PrunedMeanwhile
) -> None:
    store.doomed[method] = ["3", "4"]
    latest = await StoreCheckpointStorage(store).get_latest(thread_id="t")
    assert latest is not None and latest.checkpoint_id == "2" and latest.state["text"][0].startswith("2 0")


async def test_no_latest_exists_when_all_checkpoints_are_pruned(store: PrunedMeanwhile) -> None:
    store.doomed["infos"] = ["1", "2", "3", "4"]
    assert await StoreCheckpointStorage(store).get_latest(thread_id="t") is None
