"""Checkpoints, rewinds and exports of a thread that moves or is pruned at the same moment are correct."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.promises.stages import Boom, Stage, ledger

from perdure import CheckpointNotFound, InMemoryCheckpointStorage, ThreadBusy, Workflow
from perdure.checkpoints.history.retention import LatestOnly
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.records import Commit


def refusals(storage: StoreCheckpointStorage) -> asyncio.Event:
    """Returns an event that is set once the store reports a thread as busy."""
    refused, open_thread = asyncio.Event(), storage.store.open

    async def noting(*arguments: Any, **options: Any) -> Any:
        try:
            return await open_thread(*arguments, **options)
        except ThreadBusy:
            refused.set()
            raise

    storage.store.open = noting  # type: ignore[method-assign]  # a tap on the real method
    return refused


@pytest.mark.parametrize("ends", ["IDLE", "FAILED"])
@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_queued_checkpoint_keeps_the_status_of_the_run_before_it(
    storage: StoreCheckpointStorage, place: str, ends: str
) -> None:
    stage, refused = Stage(), refusals(storage)
    await ledger(stage, storage).run("a", thread_id="t")
    stage.close("ledger")
    run = asyncio.create_task(ledger(stage, storage).run("b", thread_id="t"))
    await stage.entered["ledger"].wait()
    chosen: Workflow | StoreCheckpointStorage = ledger(stage, storage) if place == "workflow" else storage
    waiting = asyncio.create_task(chosen.checkpoint("t", on_busy="enqueue"))
    await refused.wait()
    [thread] = await storage.list_threads()
    assert thread.status == "IN_PROGRESS"
    stage.failing = {"ledger"} if ends == "FAILED" else set()
    stage.gates["ledger"].set()
    await asyncio.gather(run, return_exceptions=True)
    made = await waiting
    [thread] = await storage.list_threads()
    assert (thread.status, thread.run_id, thread.checkpoint_id) == (ends, None, made.checkpoint_id)
    assert isinstance(run.exception(), Boom) is (ends == "FAILED")


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_rewind_to_a_checkpoint_pruned_meanwhile_raises_not_found(
    storage: StoreCheckpointStorage, place: str
) -> None:
    workflow = ledger(Stage(), storage)
    for message in "ab":
        await workflow.run(message, thread_id="t")
    target, *_, head = await storage.list_checkpoint_infos(thread_id="t")
    commit = storage.store.commit

    async def pruned_before(new_commit: Commit) -> None:
        await storage.store.prune("t", [target.checkpoint_id])
        await commit(new_commit)

    storage.store.commit = pruned_before  # type: ignore[method-assign, assignment]  # a tap on the real method
    chosen: Workflow | StoreCheckpointStorage = workflow if place == "workflow" else storage
    with pytest.raises(CheckpointNotFound, match=target.checkpoint_id):
        await chosen.rewind("t", target)
    storage.store.commit = commit  # type: ignore[method-assign]  # a tap on the real method
    assert (await storage.history("t"))[0] == head
    assert (await workflow.run("c", thread_id="t")).get_outputs() == [["a", "b", "c"]]


async def test_export_of_a_thread_whose_heads_are_pruned_meanwhile_succeeds(
    storage: StoreCheckpointStorage, tmp_path: Path
) -> None:
    """The first head is pinned: lists before and after name the same, and yet the head in between is gone."""
    storage.retention = LatestOnly()
    await ledger(Stage(), storage).run("a", thread_id="t")
    await storage.pin(await storage.checkpoint("t"))
    moves = list(range(4))

    def moved_after(read: Any) -> Any:
        async def moving(*arguments: Any, **options: Any) -> Any:
            result = await read(*arguments, **options)
            if moves and asyncio.current_task() is exporting:
                moves.pop()
                await asyncio.create_task(storage.checkpoint("t"))  # it emits nothing: the log stays as it is
            return result

        return moving

    store: Any = storage.store
    store.infos, store.thread_header = (
        moved_after(store.infos),
        moved_after(store.thread_header),
    )  # taps on the real methods
    exporting = asyncio.create_task(storage.export_thread("t", tmp_path / "t.jsonl"))
    report = await exporting
    assert not moves and report.checkpoints >= 1
    there = InMemoryCheckpointStorage()
    await there.import_thread(tmp_path / "t.jsonl")
    assert await there.verify() == []
    head = await there.get_latest(thread_id="t")
    assert head is not None and head.state["entries"] == ["a"]


async def test_export_into_a_missing_folder_names_the_folder(storage: StoreCheckpointStorage, tmp_path: Path) -> None:
    await ledger(Stage(), storage).run("a", thread_id="t")
    with pytest.raises(FileNotFoundError) as raised:
        await storage.export_thread("t", tmp_path / "none" / "t.jsonl")
    assert raised.value.filename in (str(tmp_path / "none"), str(tmp_path / "none" / "t.jsonl"))
