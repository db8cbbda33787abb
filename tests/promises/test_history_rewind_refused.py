"""Rewinds that are refused leave everything as it was."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Relay, Stage, chain, ledger

from perdure import (
    CheckpointNotFound,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    InvalidRun,
    ThreadNotFound,
    Workflow,
)
from perdure.checkpoints.storage import StoreCheckpointStorage


async def unchanged(storage: Any, workflow: Workflow, before: list[Any]) -> None:
    assert await workflow.history("t") == before
    if isinstance(storage, StoreCheckpointStorage):
        assert {thread.thread_id for thread in await storage.list_threads()} <= {"t", "other"}


async def test_a_rewind_of_an_unknown_thread_or_checkpoint_is_refused(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    await workflow.run("a", thread_id="t")
    before = await workflow.history("t")
    places: list[Any] = [workflow, any_storage] if isinstance(any_storage, StoreCheckpointStorage) else [workflow]
    for place in places:
        with pytest.raises(ThreadNotFound, match="No thread 'nobody'"):
            await place.rewind("nobody", before[0])
        with pytest.raises(CheckpointNotFound, match="No checkpoint found with ID nowhere "):
            await place.rewind("t", "nowhere")
        for thread_id in ("", None, 5):
            with pytest.raises((InvalidRun, ThreadNotFound)):
                await place.rewind(thread_id, before[0])
    await unchanged(any_storage, workflow, before)


async def test_a_rewind_to_a_checkpoint_of_another_thread_is_refused(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    await workflow.run("a", thread_id="t")
    await workflow.run("b", thread_id="other")
    before, foreign = await workflow.history("t"), (await workflow.history("other"))[0]
    places: list[Any] = [workflow, any_storage] if isinstance(any_storage, StoreCheckpointStorage) else [workflow]
    for place in places:
        with pytest.raises(InvalidRun, match=r"belongs to thread 'other', so thread 't' cannot go back.*Nothing was"):
            await place.rewind("t", foreign)
    await unchanged(any_storage, workflow, before)


async def test_rewind_to_an_incompatible_checkpoint_is_refused(any_storage: Any) -> None:
    workflow = chain(Relay("one", Stage()), Relay("two", Stage()), storage=any_storage)
    await workflow.run("x", thread_id="t")
    before = await workflow.history("t")
    other = chain(Relay("one", Stage()), Relay("three", Stage()), storage=any_storage)
    with pytest.raises(IncompatibleWorkflow, match="two"):
        await other.rewind("t", before[-1])
    await unchanged(any_storage, workflow, before)
    assert (await other.rewind("t", before[-1], force=True)).number == before[0].number + 1


@pytest.mark.parametrize("on_busy", ["wait", "", None, "enque"])
async def test_unknown_value_of_on_busy_is_refused(on_busy: Any) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    head = (await workflow.history("t"))[0]
    for place in (workflow, storage):
        with pytest.raises(InvalidRun, match="on_busy must be one of 'reject', 'enqueue', 'interrupt'"):
            await place.rewind("t", head, on_busy=on_busy)
        with pytest.raises(InvalidRun, match="on_busy must be one of"):
            await place.checkpoint("t", on_busy=on_busy)
