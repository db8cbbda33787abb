"""Forks: a new thread from any checkpoint. Nothing is run; refusals leave nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.promises.stages import Again, Asker, Boom, Does, Relay, Sink, Stage, Tally, alone, chain, fan, ledger
from tests.six_methods import SixMethods

from perdure import CheckpointNotFound, IncompatibleWorkflow, ThreadExists, Workflow, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage


async def infos(storage: Any, workflow: Workflow, thread_id: str = "t") -> list[Any]:
    return (await workflow.history(thread_id, checkpoint_storage=storage))[::-1]


async def threads(storage: Any) -> set[str]:
    if isinstance(storage, SixMethods):
        return {checkpoint.thread_id for checkpoint in storage.kept.values()}
    return {thread.thread_id for thread in await storage.list_threads()}


# ---------------------------------------------------------------- as it was


async def test_a_fork_begins_with_what_the_checkpoint_holds_and_runs_nothing(any_storage: Any, again: Again) -> None:
    stage = Stage()
    workflow = fan(stage, any_storage, kind=Tally)
    expected = (await workflow.run("x", thread_id="t")).get_outputs()
    for number, source in enumerate(await infos(any_storage, workflow)):
        calls = len(stage.calls)
        made = await again(workflow, lambda: fan(stage, any_storage, kind=Tally)).fork(source, thread_id=f"f{number}")
        assert (made.thread_id, made.number, made.previous_checkpoint_id) == (f"f{number}", 1, source.checkpoint_id)
        assert (await workflow.diff(source, made)).is_empty
        assert len(stage.calls) == calls
        resumed = await again(workflow, lambda: fan(stage, any_storage, kind=Tally)).run(thread_id=made.thread_id)
        assert resumed.get_outputs() == expected
    assert len(await infos(any_storage, workflow)) == len(await infos(any_storage, workflow, "f0"))


async def test_a_fork_and_its_source_never_see_each_other(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    source = await workflow.run("a", thread_id="t")
    made = await workflow.fork(str(source.checkpoint_id), thread_id="f")
    assert (await workflow.run("b", thread_id="f")).get_outputs() == [["a", "b"]]
    assert (await workflow.run("c", thread_id="t")).get_outputs() == [["a", "c"]]
    assert (await workflow.branches("f")).main.forked_from == source.checkpoint_id
    assert (await workflow.branches("f")).main.checkpoints[0] == made


async def test_a_fork_outlives_the_thread_that_it_came_from(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    long = ["entry " * 100 + str(number) for number in range(30)]
    for entry in long:
        await workflow.run(entry, thread_id="t")
    made = await storage.fork((await storage.history("t"))[0], thread_id="f")
    assert await storage.delete_thread("t")
    assert (await storage.load(made)).state["entries"] == long
    assert (await workflow.run("more", thread_id="f")).get_outputs() == [[*long, "more"]]


async def test_fork_without_a_thread_id_gets_a_new_id(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    source = (await workflow.run("a", thread_id="t")).checkpoint_id
    made = [await workflow.fork(str(source)) for _ in range(3)]
    assert len({info.thread_id for info in made} | {"t"}) == 4
    assert await threads(any_storage) == {"t", *(info.thread_id for info in made)}


async def test_fork_takes_pending_requests_along(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Asker("asker"), storage)
    asked = await workflow.run("who when", thread_id="t")
    await workflow.fork(str(asked.checkpoint_id), thread_id="f")
    pending = await storage.pending_requests(thread_id="f")
    assert sorted(request.request_id for request in pending) == ["when", "who"]
    answered = await workflow.run(responses={"who": "ann", "when": "now"}, thread_id="f")
    assert sorted(answered.get_outputs()) == ["when=now", "who=ann"]
    assert len(await storage.pending_requests(thread_id="t")) == 2, "the source still waits"


async def test_a_fork_has_idempotency_keys_of_its_own(storage: StoreCheckpointStorage) -> None:
    keys: list[str] = []

    async def note(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        keys.append(ctx.idempotency_key)

    workflow = alone(Does("note", note), storage)
    await workflow.run("x", thread_id="t")
    entry = (await storage.history("t"))[-1]
    for thread_id in ("f", "g"):
        await storage.fork(entry, thread_id=thread_id)
        await workflow.run(thread_id=thread_id)
    assert len(keys) == len(set(keys)) == 3


# ---------------------------------------------------------------- refused


async def begun(storage: Any) -> tuple[Workflow, str]:
    workflow = ledger(Stage(), storage)
    return workflow, str((await workflow.run("begin", thread_id="t")).checkpoint_id)


async def test_a_fork_of_an_unknown_checkpoint_is_refused(any_storage: Any) -> None:
    workflow, _ = await begun(any_storage)
    with pytest.raises(CheckpointNotFound, match="No checkpoint found with ID nowhere "):
        await workflow.fork("nowhere", thread_id="f")
    assert await threads(any_storage) == {"t"}


async def test_a_fork_cannot_become_a_thread_that_exists(any_storage: Any, again: Again) -> None:
    workflow, source = await begun(any_storage)
    await workflow.run("begin", thread_id="other")
    before = await infos(any_storage, workflow, "other")
    for thread_id in ("t", "other"):
        with pytest.raises(ThreadExists, match=f"Thread '{thread_id}' was not added.*Nothing was changed"):
            await again(workflow, lambda: ledger(Stage(), any_storage)).fork(source, thread_id=thread_id)
    assert await infos(any_storage, workflow, "other") == before


async def test_a_fork_cannot_become_a_thread_that_is_being_run_or_sent_to(storage: StoreCheckpointStorage) -> None:
    _, source = await begun(storage)
    stage = Stage()
    stage.close("one")
    other = chain(Relay("one", stage), Sink("end"), storage=storage)
    run = asyncio.create_task(other.run("x", thread_id="running"))
    await stage.entered["one"].wait()
    await storage.store.post("sent to", "item", "message", b'"hello"')
    for thread_id in ("running", "sent to"):
        with pytest.raises(ThreadExists):
            await storage.fork(source, thread_id=thread_id)
    stage.gates["one"].set()
    assert (await run).get_outputs() == ["x-one"]


async def test_concurrent_forks_to_one_thread_make_one_fork(storage: StoreCheckpointStorage) -> None:
    _, source = await begun(storage)
    edits = [{"entries": [number]} for number in range(6)]
    forks = [storage.fork(source, thread_id="f", update_state=edit) for edit in edits]
    made = await asyncio.gather(*forks, return_exceptions=True)
    [info] = [result for result in made if not isinstance(result, BaseException)]
    assert sum(isinstance(result, ThreadExists) for result in made) == 5
    assert (await storage.load(info)).state == edits[made.index(info)]
    assert len(await storage.history("f")) == 1


async def test_workflow_forks_only_compatible_checkpoints(any_storage: Any) -> None:
    workflow = chain(Relay("one", Stage()), Relay("two", Stage()), storage=any_storage)
    await workflow.run("x", thread_id="t")
    entry = (await infos(any_storage, workflow))[0]
    other = chain(Relay("one", Stage()), Relay("three", Stage()), storage=any_storage)
    with pytest.raises(IncompatibleWorkflow, match="two"):
        await other.fork(entry, thread_id="f")
    assert await threads(any_storage) == {"t"}
    made = await other.fork(entry, thread_id="f", force=True)
    assert (await workflow.diff(entry, made)).is_empty


async def test_failed_thread_can_be_forked_with_repaired_state(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    stage.failing = {"ledger"}
    workflow = ledger(stage, storage)
    with pytest.raises(Boom):
        await workflow.run("a", thread_id="t")
    stage.failing.clear()
    await workflow.fork((await storage.history("t"))[0], thread_id="f", update_state={"entries": ["mended"]})
    assert (await workflow.run(thread_id="f")).get_outputs() == [["mended", "a"]]
