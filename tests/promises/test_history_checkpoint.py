"""Checkpoints by hand, and pins: one more commit of the same place, which stays whatever is pruned."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.promises.stages import Again, Asker, Boom, Does, Relay, Sink, Stage, Tally, alone, chain, fan, ledger
from tests.six_methods import SixMethods
from tests.turns import turns

from perdure import CheckpointNotFound, InvalidRun, NoStorage, Workflow, WorkflowContext
from perdure.checkpoints.history.retention import KeepLast
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import FakeClock


async def test_checkpoint_by_hand_repeats_the_head(any_storage: Any, again: Again) -> None:
    def build() -> Workflow:
        return chain(Tally("tally", Stage()), Sink("end"), storage=any_storage)

    workflow = build()
    await workflow.run("x", thread_id="t")
    head = (await workflow.history("t"))[0]
    made = await again(workflow, build).checkpoint("t")
    assert made.previous_checkpoint_id == head.checkpoint_id and made.number > head.number
    assert (await workflow.diff(head, made)).is_empty and (await workflow.history("t"))[0] == made
    assert (await again(workflow, build).run("x", thread_id="t")).get_outputs() == ["tally=2"]
    assert len(await workflow.branches("t")) == 1


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_checkpoint_by_hand_keeps_the_journal_and_the_status(storage: StoreCheckpointStorage, place: str) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.failing, stage.fails_after = {"b"}, 2
    workflow = fan(stage, storage)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    await (workflow if place == "workflow" else storage).checkpoint("t")
    [thread] = await storage.list_threads()
    assert thread.status == "FAILED", "how its last run ended is still true"
    stage.failing.clear()
    resumed = await fan(stage, storage).run(thread_id="t")
    assert resumed.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
    assert stage.called("a") == stage.called("c") == 1, "what was recorded is not run again"


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_checkpoint_by_hand_keeps_pending_requests(storage: StoreCheckpointStorage, place: str) -> None:
    workflow = alone(Asker("asker"), storage)
    await workflow.run("who", thread_id="t")
    before = await storage.pending_requests()
    await (workflow if place == "workflow" else storage).checkpoint("t")
    assert await storage.pending_requests() == before
    assert (await workflow.run(responses={"who": "ann"}, thread_id="t")).get_outputs() == ["who=ann"]


async def test_the_idempotency_key_is_the_same_after_a_checkpoint_by_hand(storage: StoreCheckpointStorage) -> None:
    keys: list[str] = []

    async def note(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise Boom

    workflow = alone(Does("note", note), storage)
    for place, message in ((workflow, "x"), (storage, None)):
        with pytest.raises(Boom):
            await workflow.run(message, thread_id="t")
        await place.checkpoint("t")
    await workflow.run(thread_id="t")
    assert len(keys) == 3 and len(set(keys)) == 1


async def test_a_thread_that_ran_without_a_storage_can_be_saved_by_hand(any_storage: Any) -> None:
    tally = Tally("tally", Stage())
    workflow = chain(tally, Sink("end"))
    result = await workflow.run("x")
    made = await workflow.checkpoint(checkpoint_storage=any_storage)
    assert (made.thread_id, made.number, made.status) == (result.thread_id, 1, "IDLE")
    other = chain(Tally("tally", Stage()), Sink("end"), storage=any_storage)
    assert (await other.run("x", thread_id=made.thread_id)).get_outputs() == ["tally=2"]
    assert (await workflow.run("x")).get_outputs() == ["tally=2"], "the live thread continues beside it"


# ---------------------------------------------------------------- on a handle


async def test_handle_at_rest_makes_one_more_checkpoint(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    async with workflow.open(thread_id="t") as run:
        await run.send("a")
        await run.wait()
        head = run.last_checkpoint
        made = await run.checkpoint()
        assert head is not None and made.previous_checkpoint_id == head.checkpoint_id
        assert run.last_checkpoint == made and (await workflow.history("t"))[0] == made
        await run.send("b")
        result = await run.wait()
    assert result is not None and result.get_outputs() == [["a", "b"]]


async def test_running_handle_returns_the_checkpoint_that_ends_the_superstep(any_storage: Any) -> None:
    stage = Stage()
    stage.close("one", "two")
    workflow = chain(Relay("one", stage), Relay("two", stage), Sink("end"), storage=any_storage)
    async with workflow.open(thread_id="t") as run:
        await run.send("x")
        await stage.entered["one"].wait()
        entry = run.last_checkpoint
        waiting = asyncio.create_task(run.checkpoint())
        await turns(5)
        assert not waiting.done(), "the superstep has not ended"
        stage.gates["one"].set()
        made = await waiting
        assert entry is not None and made.previous_checkpoint_id == entry.checkpoint_id
        assert (await any_storage.load(made.checkpoint_id)).deliveries[0].target_id == "two"
        assert stage.called("end") == 0
        stage.gates["two"].set()
        result = await run.wait()
    assert result is not None and result.get_outputs() == ["x-one-two"]


async def test_sleeping_handle_returns_the_checkpoint_of_its_sleep(any_storage: Any) -> None:
    async def sleep(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.sleep(3600)
        await ctx.yield_output(message)

    clock = FakeClock()
    workflow = alone(Does("sleeper", sleep), any_storage, clock=clock)
    async with workflow.open(thread_id="t") as run:
        await run.send("x")
        await clock.wait_for_sleepers(1)
        made = await asyncio.wait_for(run.checkpoint(), 30)
        assert made == (await workflow.history("t"))[0]
        assert (await any_storage.load(made.checkpoint_id)).suspended
    async with workflow.open(thread_id="t") as run:
        await run.resume()
        assert (await asyncio.wait_for(run.checkpoint(), 30)).number >= made.number
        await clock.wait_for_sleepers(1)
        clock.advance(3600)
        result = await run.wait()
    assert result is not None and result.get_outputs() == ["x"]


async def test_handle_of_a_failed_run_saves_the_restored_state(any_storage: Any) -> None:
    stage = Stage()
    stage.close("ledger")
    stage.failing = {"ledger"}
    workflow = ledger(stage, any_storage)
    async with workflow.open(thread_id="t") as run:
        await run.send("a")
        await stage.entered["ledger"].wait()
        waiting = asyncio.create_task(run.checkpoint())
        stage.gates["ledger"].set()
        made = await waiting
        with pytest.raises(Boom):
            await run.wait()
    assert (await workflow.history("t"))[0] == made
    stage.failing.clear()
    assert (await workflow.run(thread_id="t")).get_outputs() == [["a"]]


async def test_handle_without_storage_or_closed_refuses_a_checkpoint(any_storage: Any) -> None:
    async with ledger(Stage()).open(thread_id="t") as run:
        with pytest.raises(NoStorage, match="Making a checkpoint"):
            await run.checkpoint()
    async with ledger(Stage(), any_storage).open(thread_id="t") as run:
        pass
    with pytest.raises(InvalidRun, match="This handle is closed"):
        await run.checkpoint()


# ---------------------------------------------------------------- pins


async def test_pinned_checkpoint_survives_pruning(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    for message in "abc":
        await workflow.run(message, thread_id="t")
    history = (await workflow.history("t"))[::-1]
    await workflow.pin(history[1])
    await storage.pin(history[1].checkpoint_id)
    assert [info.is_pinned for info in await workflow.history("t")] == [False] * 4 + [True, False]
    assert "(pinned)" in str(await workflow.branches("t"))
    await storage.prune(keep_last=1)
    left = (await workflow.history("t"))[::-1]
    assert [info.checkpoint_id for info in left] == [history[1].checkpoint_id, history[5].checkpoint_id]
    await workflow.rewind("t", history[1])
    assert (await workflow.run("d", thread_id="t")).get_outputs() == [["a", "d"]]
    await storage.unpin(history[1])
    await workflow.unpin(history[1])
    await storage.prune(keep_last=1)
    assert len(await workflow.history("t")) == 1


async def test_a_checkpoint_by_hand_can_be_pinned_under_retention(storage: StoreCheckpointStorage) -> None:
    limited = StoreCheckpointStorage(storage.store, retention=KeepLast(1))
    workflow = ledger(Stage(), limited)
    await workflow.run("a", thread_id="t")
    made = await workflow.checkpoint("t")
    await workflow.pin(made)
    for message in "bcd":
        await workflow.run(message, thread_id="t")
    history = await workflow.history("t")
    assert [info.checkpoint_id for info in history][1:] == [made.checkpoint_id]
    await workflow.rewind("t", made)
    assert (await workflow.run("e", thread_id="t")).get_outputs() == [["a", "e"]]


async def test_an_unknown_checkpoint_cannot_be_pinned(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    for call in (workflow.pin, workflow.unpin, storage.pin, storage.unpin):
        with pytest.raises(CheckpointNotFound, match="ID nowhere "):
            await call("nowhere")


async def test_a_workflow_prunes_exports_and_imports_through_its_storage(
    storage: StoreCheckpointStorage, tmp_path: Path
) -> None:
    workflow, other = ledger(Stage(), storage), ledger(Stage(), storage, name="other")
    for message in "abc":
        await workflow.run(message, thread_id="t")
        await other.run(message, thread_id="of another workflow")
    await workflow.export_thread("t", tmp_path / "t.dump")
    report = await workflow.prune(keep_last=2)
    assert [thread.thread_id for thread in report.threads] == ["t"] and len(await workflow.history("t")) == 2
    assert len(await other.history("of another workflow")) == 6
    copied = await workflow.import_thread(tmp_path / "t.dump", thread_id="copy")
    assert (copied.thread_id, len(await workflow.history("copy"))) == ("copy", 6)
    assert (await workflow.run("d", thread_id="copy")).get_outputs() == [["a", "b", "c", "d"]]


async def test_storage_of_six_methods_refuses_operations_of_a_store(tmp_path: Path) -> None:
    storage = SixMethods()
    workflow = ledger(Stage(), storage)
    made = str((await workflow.run("a", thread_id="t")).checkpoint_id)
    for call in (
        workflow.pin(made),
        workflow.unpin(made),
        workflow.prune(keep_last=1),
        workflow.export_thread("t", tmp_path / "t"),
        workflow.import_thread(tmp_path / "t"),
    ):
        with pytest.raises(InvalidRun, match="SixMethods has only the six methods of CheckpointStorage"):
            await call
    assert not (tmp_path / "t").exists()
