"""Reading what somebody prunes at the same moment: it is gone or it is there, and never damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perdure import CheckpointNotFound, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import CheckpointInfo, StoredCheckpoint
from perdure.stores.memory.store import MemoryStore


class PrunedMeanwhile(MemoryStore):
    """Once a method has answered, and before anybody can use the answer, checkpoints go."""

    def __init__(self) -> None:
        super().__init__()
        self.doomed: dict[str, list[str]] = {}

    async def _prune_after(self, method: str) -> None:
        await self.prune("t", self.doomed.pop(method, []))

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        found = await super().infos(**filters)
        await self._prune_after("infos")
        return found

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found = await super().find_checkpoint(checkpoint_id)
        await self._prune_after("find_checkpoint")
        return found


@pytest.fixture
async def store() -> PrunedMeanwhile:
    """A thread with checkpoints "1" to "4", none of which shares anything large with another."""
    made = PrunedMeanwhile()
    storage = StoreCheckpointStorage(made)
    for number in range(1, 5):
        state = {"text": [f"{number} {line} " * 100 for line in range(20)]}
        await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=str(number), thread_id="t", state=state))
    return made


async def test_a_checkpoint_that_goes_while_it_is_loaded_is_not_found(store: PrunedMeanwhile) -> None:
    store.doomed["find_checkpoint"] = ["2"]
    with pytest.raises(CheckpointNotFound):
        await StoreCheckpointStorage(store).load("2")


@pytest.mark.parametrize("method", ["infos", "find_checkpoint"])
async def test_a_list_leaves_out_what_went_since_it_was_begun(method: str, store: PrunedMeanwhile) -> None:
    store.doomed[method] = ["1", "3"]
    found = await StoreCheckpointStorage(store).list_checkpoints(thread_id="t")
    assert [one.checkpoint_id for one in found] == ["2", "4"]


@pytest.mark.parametrize("method", ["infos", "find_checkpoint"])
async def test_the_latest_is_the_one_before_when_the_latest_goes(method: str, store: PrunedMeanwhile) -> None:
    store.doomed[method] = ["3", "4"]
    latest = await StoreCheckpointStorage(store).get_latest(thread_id="t")
    assert latest is not None and latest.checkpoint_id == "2" and latest.state["text"][0].startswith("2 0")


async def test_there_is_no_latest_when_all_go(store: PrunedMeanwhile) -> None:
    store.doomed["infos"] = ["1", "2", "3", "4"]
    assert await StoreCheckpointStorage(store).get_latest(thread_id="t") is None
