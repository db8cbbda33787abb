"""Promise 14: runs that meet on one thread are rejected, queued or interrupt each other; nothing accepted is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.stages import Again, Asker, Boom, Relay, Stage, alone, entries, fan, ledger

from perdure import NoPendingRequests, StorageFailed, ThreadBusy, ThreadConflict, Workflow, WorkflowRunState
from perdure.checkpoints.storage import StoreCheckpointStorage


async def held(workflow: Workflow, stage: Stage, message: str = "first") -> asyncio.Task[Any]:
    """A run that owns the thread and waits at its gate."""
    stage.close("ledger")
    running = asyncio.create_task(workflow.run(message, thread_id="t"))
    await stage.entered["ledger"].wait()
    return running


async def test_reject_raises_and_leaves_the_owner_alone(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    before = await storage.list_checkpoint_ids()
    other = again(workflow, lambda: ledger(stage, storage))
    with pytest.raises(ThreadBusy, match="Thread 't' is being run by run 'run-") as raised:
        await other.run("second", thread_id="t")
    assert isinstance(raised.value, RuntimeError)
    assert await storage.list_checkpoint_ids() == before, "nothing was written"
    stage.gates["ledger"].set()
    assert (await running).get_outputs() == [["first"]]
    assert (await other.run("third", thread_id="t")).get_outputs() == [["first", "third"]]


async def test_without_a_storage_a_second_run_is_rejected_too() -> None:
    stage = Stage()
    workflow = ledger(stage)
    running = await held(workflow, stage)
    with pytest.raises(ThreadBusy):
        await workflow.run("second", thread_id="t")
    with pytest.raises(ThreadBusy):
        async for _ in workflow.run("second", thread_id="t", stream=True):
            pass
    stage.gates["ledger"].set()
    assert (await running).get_outputs() == [["first"]]


async def test_enqueue_waits_for_its_turn(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    other = again(workflow, lambda: ledger(stage, storage))
    waiting = [asyncio.create_task(other.run(f"{number}", thread_id="t", on_busy="enqueue")) for number in range(5)]
    await asyncio.sleep(0)
    assert stage.calls == ["ledger(first)"]
    stage.gates["ledger"].set()
    await running
    outputs = [(await run).get_outputs() for run in waiting]
    assert sorted(len(output) for (output,) in outputs) == [2, 3, 4, 5, 6], "one after the other"
    assert sorted(await entries(storage)) == ["0", "1", "2", "3", "4", "first"]


async def test_many_runs_through_many_objects_are_all_written_once(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    objects = [ledger(stage, storage) for _ in range(4)]
    runs = [objects[number % 4].run(f"{number}", thread_id="t", on_busy="enqueue") for number in range(20)]
    await asyncio.gather(*runs)
    assert sorted(await entries(storage), key=int) == [f"{number}" for number in range(20)]
    assert len(stage.calls) == 20


async def test_a_run_that_stops_waiting_leaves_no_trace(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    other = again(workflow, lambda: ledger(stage, storage))
    waiting = asyncio.create_task(other.run("second", thread_id="t", on_busy="enqueue"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    stage.gates["ledger"].set()
    await running
    assert await entries(storage) == ["first"]
    assert (await other.run("third", thread_id="t")).get_outputs() == [["first", "third"]]


async def test_interrupt_ends_the_owner_and_keeps_its_message(storage: StoreCheckpointStorage) -> None:
    """What it had accepted was acknowledged by its entry commit, so it is still delivered, and first."""
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    stage.gates["ledger"].set()
    second = await workflow.run("second", thread_id="t", on_busy="interrupt")
    first = await running
    assert first.get_final_state() is WorkflowRunState.CANCELLED and first.get_outputs() == []
    assert second.get_final_state() is WorkflowRunState.IDLE
    assert await entries(storage) == ["first", "second"]


async def test_interrupt_reaches_an_owner_in_another_object(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    running = await held(ledger(stage, storage), stage)
    gate = stage.gates.pop("ledger")
    await ledger(stage, storage).run("second", thread_id="t", on_busy="interrupt")
    gate.set()
    with pytest.raises(ThreadConflict):
        await running
    assert await entries(storage) == ["first", "second"]


async def test_a_resume_can_interrupt_too(storage: StoreCheckpointStorage, again: Again) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    gate = stage.gates.pop("ledger")
    other = again(workflow, lambda: ledger(stage, storage))
    assert (await other.run(thread_id="t", on_busy="interrupt")).get_outputs() == [["first"]]
    gate.set()
    await asyncio.wait([running])
    assert await entries(storage) == ["first"]


async def test_answers_to_a_busy_thread_are_rejected_or_wait(storage: StoreCheckpointStorage, again: Again) -> None:
    workflow = alone(Asker("asker"), storage)
    await workflow.run("colour size", thread_id="t")
    both = await asyncio.gather(
        workflow.run(responses={"colour": "red"}, thread_id="t"),
        again(workflow, lambda: alone(Asker("asker"), storage)).run(responses={"size": "L"}, thread_id="t"),
        return_exceptions=True,
    )
    rejected = [outcome for outcome in both if isinstance(outcome, ThreadBusy)]
    left = [{"colour": "red"}, {"size": "L"}][both.index(rejected[0])] if rejected else {}
    if left:
        await workflow.run(responses=left, thread_id="t", on_busy="enqueue")
    head = await storage.get_latest(thread_id="t")
    assert head is not None
    assert set(head.answered) == {"colour", "size"} and head.pending_request_info_events == {}


# ---------------------------------------------------------------- taking over


async def test_a_run_that_was_taken_over_writes_nothing(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    stalled = await held(ledger(stage, storage), stage)
    gate = stage.gates.pop("ledger")
    taken = await ledger(stage, storage).run(thread_id="t", takeover=True)
    ids = await storage.list_checkpoint_ids()
    gate.set()
    with pytest.raises(ThreadConflict, match=r"Thread 't' was changed by another owner.*Nothing was stored"):
        await stalled
    assert await storage.list_checkpoint_ids() == ids
    assert taken.get_outputs() == [["first"]] and await entries(storage) == ["first"]


async def test_a_run_that_was_taken_over_puts_nothing_into_the_journal(storage: StoreCheckpointStorage) -> None:
    """The winner is still at work: what the loser finishes meanwhile must not count."""
    stage = Stage()
    stage.close("a", "b")
    stalled = asyncio.create_task(fan(stage, storage).run("x", thread_id="t"))
    await stage.entered["b"].wait()
    gates = dict(stage.gates)
    stage.close("a", "b")
    winner = asyncio.create_task(fan(stage, storage).run(thread_id="t", takeover=True))
    await stage.entered["b"].wait()
    gates["a"].set()
    with pytest.raises(ThreadConflict):
        await stalled
    stage.failing = {"b"}
    stage.gates["b"].set()
    with pytest.raises(Boom):
        await winner
    stage.failing, stage.gates = set(), {}
    result = await fan(stage, storage).run(thread_id="t")
    assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert stage.called("a") == 3


async def test_loser_continues_from_the_winner(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    loser = ledger(stage, storage)
    stalled = await held(loser, stage)
    gate = stage.gates.pop("ledger")
    await ledger(stage, storage).run(thread_id="t", takeover=True)
    await ledger(stage, storage).run("second", thread_id="t")
    gate.set()
    await asyncio.wait([stalled])
    assert isinstance(stalled.exception(), ThreadConflict)
    assert (await loser.run("third", thread_id="t")).get_outputs() == [["first", "second", "third"]]


async def test_takeover_of_a_free_thread_is_an_ordinary_run(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("first", thread_id="t", takeover=True)
    assert (await workflow.run("second", thread_id="t")).get_outputs() == [["first", "second"]]


# ---------------------------------------------------------------- releasing


async def test_every_end_of_a_run_releases_the_thread(storage: StoreCheckpointStorage) -> None:
    """Another object can move it at once: after success, failure, cancellation, and a refused call."""
    stage = Stage()
    workflow, other = ledger(stage, storage), ledger(stage, storage)
    stage.failing = {"ledger"}
    with pytest.raises(Boom):
        await workflow.run("first", thread_id="t")
    stage.failing = set()
    await other.run(thread_id="t")
    running = await held(workflow, stage, "second")
    running.cancel()
    await asyncio.wait([running])
    stage.gates.clear()
    await other.run(thread_id="t")
    with pytest.raises(NoPendingRequests):
        await workflow.run(responses={"none": 1}, thread_id="t")
    await other.run("third", thread_id="t")
    assert await entries(storage) == ["first", "second", "third"]


async def test_a_busy_thread_does_not_hold_up_the_others(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    workflow = ledger(stage, storage)
    running = await held(workflow, stage)
    stage.gates, gates = {}, stage.gates
    assert (await workflow.run("x", thread_id="other")).get_outputs() == [["x"]]
    gates["ledger"].set()
    await running


async def test_thread_is_free_when_the_final_status_is_emitted(storage: StoreCheckpointStorage, again: Again) -> None:
    """Leaving the stream there cancels nothing, and the next run succeeds at once."""
    workflow = alone(Asker("asker"), storage)
    async for event in workflow.run("colour", stream=True, thread_id="t"):
        if event.state is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
    other = again(workflow, lambda: alone(Asker("asker"), storage))
    assert (await other.run(responses={"colour": "red"}, thread_id="t")).get_outputs() == ["colour=red"]


async def test_a_failing_final_commit_does_not_keep_the_thread(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    commit = storage.store.commit

    async def full_disk(commit: Any) -> None:
        raise OSError(28, "No space left on device")

    storage.store.commit = full_disk  # type: ignore[method-assign]  # the driver's fault, not ours
    workflow = alone(Relay("relay", stage), storage)
    with pytest.raises(StorageFailed, match="No space left"):
        await workflow.run("x", thread_id="t")
    storage.store.commit = commit  # type: ignore[method-assign]  # the disk has room again
    assert (await workflow.run("y", thread_id="t")).get_final_state() is WorkflowRunState.IDLE
    assert stage.calls == ["relay(y)"]
