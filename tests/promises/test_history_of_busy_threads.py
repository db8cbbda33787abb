"""Rewinds and checkpoints of threads that another owner moves: refused, queued, or taken, as the caller chose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.processes import Other, Place, Raised
from tests.promises.stages import Again, Stage, ledger
from tests.turns import turns

from perdure import ThreadBusy, ThreadConflict, Workflow, WorkflowRunResult, WorkflowRunState
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import Faults

Running = asyncio.Task[WorkflowRunResult]


async def begun(storage: Any) -> tuple[Workflow, Stage, Any, Running]:
    """Thread `t` with one entry, while the second one is being written; and where to go back to."""
    stage = Stage()
    workflow = ledger(stage, storage)
    await workflow.run("a", thread_id="t")
    target = (await workflow.history("t"))[0]
    stage.close("ledger")
    run = asyncio.create_task(workflow.run("b", thread_id="t"))
    await stage.entered["ledger"].wait()
    return workflow, stage, target, run


# ---------------------------------------------------------------- in this process


async def test_a_thread_that_is_running_is_neither_rewound_nor_checkpointed(
    storage: StoreCheckpointStorage, again: Again
) -> None:
    workflow, stage, target, run = await begun(storage)
    other = again(workflow, lambda: ledger(stage, storage))
    before = await storage.history("t")
    for attempt in (
        other.rewind("t", target),
        storage.rewind("t", target),
        other.checkpoint("t"),
        storage.checkpoint("t"),
    ):
        with pytest.raises(ThreadBusy, match=r"Thread 't' is being run by run .*Nothing was written"):
            await attempt
    assert await storage.history("t") == before
    stage.gates["ledger"].set()
    assert (await run).get_outputs() == [["a", "b"]]


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_a_rewind_that_waits_comes_after_the_run(
    storage: StoreCheckpointStorage, again: Again, place: str
) -> None:
    workflow, stage, target, run = await begun(storage)
    other = again(workflow, lambda: ledger(stage, storage))
    chosen = other if place == "workflow" else storage
    rewinding = asyncio.create_task(chosen.rewind("t", target, on_busy="enqueue"))
    await turns(5)
    assert not rewinding.done()
    stage.gates["ledger"].set()
    assert (await run).get_outputs() == [["a", "b"]]
    made = await rewinding
    assert made.previous_checkpoint_id == target.checkpoint_id and made.number > 4
    assert (await storage.load(made)).state["entries"] == ["a"]


async def test_cancelled_waiting_rewind_leaves_no_trace(storage: StoreCheckpointStorage) -> None:
    workflow, stage, target, run = await begun(storage)
    for waiting in (storage.rewind("t", target, on_busy="enqueue"), workflow.rewind("t", target, on_busy="enqueue")):
        task = asyncio.create_task(waiting)
        await turns(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    stage.gates["ledger"].set()
    assert (await run).get_outputs() == [["a", "b"]]
    assert (await workflow.run("c", thread_id="t")).get_outputs() == [["a", "b", "c"]]


async def test_a_rewind_that_interrupts_ends_the_run_of_its_workflow_cleanly(any_storage: Any) -> None:
    workflow, stage, target, run = await begun(any_storage)
    await workflow.rewind("t", target, on_busy="interrupt")
    assert (await run).get_final_state() is WorkflowRunState.CANCELLED
    assert stage.cancelled == ["ledger"]
    stage.gates["ledger"].set()
    assert (await workflow.run("c", thread_id="t")).get_outputs() == [["a", "c"]]


@pytest.mark.parametrize("how", [{"on_busy": "interrupt"}, {"takeover": True}])
async def test_rewind_that_takes_the_thread_fails_the_run_of_another_object(
    storage: StoreCheckpointStorage, how: Any
) -> None:
    for place in ("workflow", "storage"):
        _, stage, target, run = await begun(storage)
        chosen = ledger(stage, storage) if place == "workflow" else storage
        await chosen.rewind("t", target, **how)
        stage.gates["ledger"].set()
        with pytest.raises(ThreadConflict, match="changed by another owner"):
            await run
        entries = (await storage.load((await storage.history("t"))[0])).state["entries"]
        assert entries == (await storage.load(target)).state["entries"], "nothing of the run was stored"
        await storage.delete_thread("t")


async def test_run_that_waits_for_a_rewind_continues_from_its_target(storage: StoreCheckpointStorage) -> None:
    faults, stage = Faults(), Stage()
    workflow = ledger(stage, faults.wrap(storage))
    for message in "ab":
        await workflow.run(message, thread_id="t")
    first = (await storage.history("t"))[-2]
    with faults.pause("open") as pause:
        rewinding = asyncio.create_task(workflow.rewind("t", first))
        await pause
        later = asyncio.create_task(workflow.run("c", thread_id="t", on_busy="enqueue"))
        await turns(3)
    assert (await rewinding).previous_checkpoint_id == first.checkpoint_id
    assert (await later).get_outputs() == [["a", "c"]]


async def test_a_run_that_interrupts_a_rewind_comes_after_it(storage: StoreCheckpointStorage) -> None:
    faults, stage = Faults(), Stage()
    await ledger(stage, storage).run("a", thread_id="t")
    await ledger(stage, storage).run("b", thread_id="t")
    first = (await storage.history("t"))[-2]
    workflow = ledger(stage, faults.wrap(storage))
    with faults.pause("commit") as pause:
        rewinding = asyncio.create_task(workflow.rewind("t", first))
        await pause
        run = asyncio.create_task(workflow.run("c", thread_id="t", on_busy="interrupt"))
        await turns(3)
    assert (await rewinding).previous_checkpoint_id == first.checkpoint_id
    assert (await run).get_outputs() == [["a", "c"]]


@pytest.mark.parametrize("point", ["open", "commit", "release"])
@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_cancelled_rewind_completes_and_releases_the_thread(
    storage: StoreCheckpointStorage, point: Any, place: str
) -> None:
    faults, stage, went_on = Faults(), Stage(), list[str]()
    await ledger(stage, storage).run("a", thread_id="t")
    head = (await storage.history("t"))[0]
    faulty = faults.wrap(storage)
    chosen: Any = ledger(stage, faulty) if place == "workflow" else faulty

    async def user() -> None:
        await chosen.rewind("t", head)
        went_on.append("as if nothing had happened")

    with faults.pause(point) as pause:
        task = asyncio.create_task(user())
        await pause
        task.cancel()
        await turns(3)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert went_on == []
    await turns(5)
    assert (await ledger(stage, storage).run("b", thread_id="t")).get_outputs() == [["a", "b"]]


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_rewind_with_a_failed_commit_changes_nothing_and_frees_the_thread(
    storage: StoreCheckpointStorage, place: str
) -> None:
    faults, stage = Faults(), Stage()
    await ledger(stage, storage).run("a", thread_id="t")
    before = await storage.history("t")
    faulty = faults.wrap(storage)
    chosen: Any = ledger(stage, faulty) if place == "workflow" else faulty
    faults.fail("commit", error=OSError("no space left"))
    with pytest.raises(Exception, match="no space left"):
        await chosen.rewind("t", before[-1])
    assert await storage.history("t") == before
    assert (await ledger(stage, storage).run("b", thread_id="t")).get_outputs() == [["a", "b"]]


# ---------------------------------------------------------------- in other processes


async def held(place: Place) -> Other:
    """A process that owns thread `t`, in its handler."""
    owner = place.run(ledger, "first", held=["ledger"])
    await owner.wait_for("entered", "ledger")
    return owner


async def test_thread_that_runs_elsewhere_is_rewound_only_by_an_interrupt(place: Place) -> None:
    owner = await held(place)
    async with place.storage() as storage:
        entry = (await storage.history("t"))[0]
        for chosen in (ledger(Stage(), storage), storage):
            with pytest.raises(ThreadBusy):
                await chosen.rewind("t", entry)
            with pytest.raises(ThreadBusy):
                await chosen.checkpoint("t")
        assert await storage.history("t") == [entry]
        await ledger(Stage(), storage).rewind("t", entry, on_busy="interrupt")
        owner.open_gate("ledger")
        with pytest.raises(Raised, match="ThreadConflict"):
            await owner.result()
        assert (await ledger(Stage(), storage).run(thread_id="t")).get_outputs() == [["first"]]


async def test_a_thread_whose_owner_was_killed_can_be_rewound_at_once(place: Place) -> None:
    owner = await held(place)
    await owner.kill()
    async with place.storage() as storage:
        entry = (await storage.history("t"))[0]
        await storage.rewind("t", entry)
        assert (await ledger(Stage(), storage).run(thread_id="t")).get_outputs() == [["first"]]


async def test_a_rewind_waits_for_a_run_in_another_process(place: Place) -> None:
    owner = await held(place)
    async with place.storage() as storage:
        entry = (await storage.history("t"))[0]
        rewinding = asyncio.create_task(storage.rewind("t", entry, on_busy="enqueue"))
        await turns(5)
        owner.open_gate("ledger")
        assert await owner.result() == [["first"]]
        made = await rewinding
        assert made.number > 2 and (await storage.diff(entry, made)).is_empty
