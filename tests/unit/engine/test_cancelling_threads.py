"""Workflow.cancel: the run of a thread stops, in this process or another, and the thread can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.turns import AwaitingStore, awaiting_storage, turns
from tests.unit.engine.flows import Gate, gated
from tests.unit.engine.running_elsewhere import running_elsewhere, storage_at, waiting_workflow
from tests.unit.engine.test_ownership import start

from perdure import InMemoryCheckpointStorage, RunInterrupted, SqliteCheckpointStorage, WorkflowRunState
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import ThreadConflict
from perdure.testing import FakeClock
from perdure.workflows import threads as stopping

STORAGES = pytest.mark.parametrize(
    "make_storage", [lambda: None, InMemoryCheckpointStorage, awaiting_storage], ids=["none", "memory", "awaiting"]
)


async def statuses(storage: StoreCheckpointStorage) -> list[Any]:
    return [event.state async for event in read_events(storage, "t", 0, None) if event.type == "status"]


async def nothing() -> None:
    return


# ---------------------------------------------------------------- in this process


@STORAGES
async def test_a_run_of_this_process_ends_cancelled_and_is_resumed(make_storage: Callable[[], Any]) -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=make_storage())
    running = start(workflow, "x")
    await gate.arrived.wait()
    assert await workflow.cancel("t") is True
    assert workflow._live.get("t").owner is None, "it has given the thread up"
    assert (await running).get_final_state() is WorkflowRunState.CANCELLED
    assert await workflow.cancel("t") is False
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]
    assert await workflow.cancel("t") is False


async def test_a_run_that_has_not_committed_its_input_yet_ends_when_it_has() -> None:
    gate = Gate()
    storage = awaiting_storage()
    workflow = gated(gate, checkpoint_storage=storage)
    running = start(workflow, "x")
    await turns(1)
    assert await workflow.cancel("t") is True
    assert (await running).get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_the_run_of_another_object_of_this_process_ends_cancelled_too(tmp_path: Path) -> None:
    gate = Gate()
    async with SqliteCheckpointStorage(tmp_path / "t.db") as first, SqliteCheckpointStorage(tmp_path / "t.db") as other:
        running = start(gated(gate, checkpoint_storage=first), "x")
        await gate.arrived.wait()
        second = gated(gate, checkpoint_storage=other)
        assert await second.cancel("t") is True
        assert (await running).get_final_state() is WorkflowRunState.CANCELLED
        assert await second.cancel("t") is False
        gate.opened.set()
        assert (await second.run(thread_id="t")).get_outputs() == ["x"]


async def test_cancel_finds_the_owning_run_while_another_run_is_being_rejected() -> None:
    gate, storage, opening = Gate(), awaiting_storage(), Gate()
    running = start(gated(gate, checkpoint_storage=storage), "x")
    await gate.arrived.wait()
    second = gated(Gate(), checkpoint_storage=storage)

    async def pause(moment: str) -> None:
        if moment == "before open":
            opening.arrived.set()
            await opening.opened.wait()

    assert isinstance(storage.store, AwaitingStore)
    storage.store.pause = pause
    refused = start(second, "y")
    await opening.arrived.wait()
    cancelling = asyncio.ensure_future(second.cancel("t"))
    await turns(2)
    opening.opened.set()
    assert await cancelling is True
    with pytest.raises(RunInterrupted):
        await refused
    assert (await running).get_final_state() is WorkflowRunState.CANCELLED


async def test_enqueued_run_continues_when_the_run_before_it_is_cancelled() -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=InMemoryCheckpointStorage())
    running = start(workflow, "x")
    await gate.arrived.wait()
    waiting = start(workflow, "y", on_busy="enqueue")
    await turns(2)
    assert await workflow.cancel("t") is True
    assert (await running).get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    assert (await waiting).get_final_state() is WorkflowRunState.IDLE


@STORAGES
async def test_cancel_of_a_thread_without_a_run_changes_nothing(make_storage: Callable[[], Any]) -> None:
    gate = Gate()
    gate.opened.set()
    storage = make_storage()
    workflow = gated(gate, checkpoint_storage=storage, clock=FakeClock())
    assert await workflow.cancel("t") is False
    assert workflow._live.find("t") is None
    await workflow.run("x", thread_id="t")
    before = None if storage is None else await workflow.history("t")
    assert await workflow.cancel("t") is False
    assert storage is None or await workflow.history("t") == before


# ---------------------------------------------------------------- in another process


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "t.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


async def test_cancel_fences_out_a_run_of_another_process_and_resumes_here(place: str) -> None:
    async with running_elsewhere(place) as process, storage_at(place) as storage:
        workflow = waiting_workflow(storage, nothing)
        before = await workflow.history("t")
        owner = (await storage.find_thread("t")).run_id
        assert owner is not None
        assert await workflow.cancel("t") is True
        info = await storage.find_thread("t")
        assert (info.status, info.run_id) == ("CANCELLED", None)
        assert await workflow.history("t") == before, "no checkpoint was made"
        assert (await statuses(storage))[-1] is WorkflowRunState.CANCELLED
        assert await workflow.cancel("t") is False
        output, _ = await process.communicate(b"go on\n")
        assert output.decode().split() == [ThreadConflict.__name__]
        assert (await storage.find_thread("t")).status == "CANCELLED", "nothing of that run is stored any more"
        assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_cancel_does_not_report_a_run_that_ended_meanwhile_as_cancelled(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    async with running_elsewhere(path) as process, storage_at(path) as storage:
        workflow = waiting_workflow(storage, nothing)
        seen = await storage.find_thread("t")
        output, _ = await process.communicate(b"go on\n")
        assert output.decode().split() == ["ended"]
        assert await stopping._take_from_owner(workflow, storage, seen) is False
        assert (await storage.find_thread("t")).status == "IDLE"


async def test_a_process_that_is_dead_runs_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    async with running_elsewhere(path) as process, storage_at(path) as storage:
        process.kill()
        await process.wait()
        workflow = waiting_workflow(storage, nothing)
        assert await workflow.cancel("t") is False
        assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]
