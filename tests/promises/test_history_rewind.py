"""Rewinds: a commit that goes back to any checkpoint of a thread. Nothing is run, and what came after stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import (
    Again,
    Asker,
    Boom,
    Does,
    Sink,
    Stage,
    Tally,
    alone,
    chain,
    edited,
    fan,
    ledger,
    rewrite_head,
)

from perdure import AlreadyAnswered, DamagedCheckpoint, Opaque, Workflow, WorkflowCheckpoint, WorkflowContext
from perdure.checkpoints.storage import StoreCheckpointStorage


async def oldest_first(workflow: Workflow, thread_id: str = "t") -> list[Any]:
    return (await workflow.history(thread_id))[::-1]


# ---------------------------------------------------------------- going back


async def test_rewound_thread_continues_as_a_run_from_that_checkpoint(any_storage: Any, again: Again) -> None:
    stage = Stage()

    def build() -> Workflow:
        return fan(stage, any_storage, kind=Tally)

    workflow = build()
    for thread_id in ("t", "model"):
        await workflow.run("x", thread_id=thread_id)
        await workflow.run("y", thread_id=thread_id)
    history, model = await oldest_first(workflow), await oldest_first(workflow, "model")
    for target, same in zip(history, model, strict=True):
        calls = len(stage.calls)
        made = await again(workflow, build).rewind("t", target)
        assert len(stage.calls) == calls, "nothing is run"
        assert made.previous_checkpoint_id == target.checkpoint_id and made.status == target.status
        assert (await workflow.history("t"))[0] == made
        resumed = await again(workflow, build).run(thread_id="t")
        expected = await again(workflow, build).run(checkpoint_id=same)
        assert resumed.get_outputs() == expected.get_outputs()
        assert resumed.get_final_state() is expected.get_final_state()
        heads = [(await workflow.history(thread_id))[0] for thread_id in ("t", "model")]
        assert (await workflow.diff(*heads)).is_empty


async def test_rewind_keeps_later_checkpoints_as_a_branch(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    for message in "abc":
        await workflow.run(message, thread_id="t")
    history = await oldest_first(workflow)
    made = await workflow.rewind("t", history[1])
    assert made.number == history[-1].number + 1
    assert (await workflow.run("d", thread_id="t")).get_outputs() == [["a", "d"]]
    branches = await workflow.branches("t")
    assert [info.checkpoint_id for info in branches.main.checkpoints[:3]] == [
        *(info.checkpoint_id for info in history[:2]),
        made.checkpoint_id,
    ]
    [left] = branches.main.children
    assert [info.checkpoint_id for info in left.checkpoints] == [info.checkpoint_id for info in history[2:]]
    assert branches.common(left.newest, branches.head) == history[1]
    await workflow.rewind("t", left.newest)
    assert (await workflow.run("e", thread_id="t")).get_outputs() == [["a", "b", "c", "e"]]


async def test_a_rewind_can_be_repeated_and_differs_only_in_its_place(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    target = (await workflow.history("t"))[-1]
    made = [await place.rewind("t", target) for place in (workflow, storage, workflow, storage)]
    assert [info.number for info in made] == [made[0].number + at for at in range(4)]
    for info in made:
        assert (await storage.diff(target, info)).is_empty
        assert (await storage.load(info)).counters.epoch == info.number
        assert info.previous_checkpoint_id == target.checkpoint_id


async def test_idempotency_keys_change_after_a_rewind(storage: StoreCheckpointStorage) -> None:
    keys: list[str] = []

    async def note(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        keys.append(ctx.idempotency_key)

    workflow = alone(Does("note", note), storage)
    await workflow.run("x", thread_id="t")
    entry = (await workflow.history("t"))[-1]
    for place in (storage, workflow, storage):
        await place.rewind("t", entry)
        await workflow.run(thread_id="t")
    assert len(keys) == len(set(keys)) == 4


async def test_rewind_restores_the_requests_of_its_checkpoint(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Asker("asker"), storage)
    asked = await workflow.run("who", thread_id="t")
    await workflow.run(responses={"who": "ann"}, thread_id="t")
    answered = (await workflow.history("t"))[0]
    with pytest.raises(AlreadyAnswered):
        await workflow.run(responses={"who": "bob"}, thread_id="t")
    for place in (storage, workflow):
        await place.rewind("t", str(asked.checkpoint_id))
        assert [request.request_id for request in await storage.pending_requests(thread_id="t")] == ["who"]
        [thread] = await storage.list_threads()
        assert thread.status == "IDLE_WITH_PENDING_REQUESTS"
        again = await workflow.run(responses={"who": "bob"}, thread_id="t")
        assert again.get_outputs() == ["who=bob"]
    await workflow.rewind("t", answered)
    assert await storage.pending_requests(thread_id="t") == []


async def test_rewind_discards_the_journal_of_the_head(storage: StoreCheckpointStorage) -> None:
    for place in ("workflow", "storage"):
        stage = Stage()
        stage.watch_journal(storage)
        stage.failing, stage.fails_after = {"b"}, 2
        workflow = fan(stage, storage)
        with pytest.raises(Boom):
            await workflow.run("x", thread_id=place)
        await (workflow if place == "workflow" else storage).rewind(place, (await workflow.history(place))[0])
        stage.failing.clear()
        assert (await workflow.run(thread_id=place)).get_outputs() == ["x-source-a+x-source-b+x-source-c"]
        assert stage.called("a") == stage.called("c") == 2, "what was recorded belonged to the head before"


async def test_rewind_keeps_messages_in_the_inbox(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    first = (await workflow.history("t"))[0]
    await workflow.run("b", thread_id="t")
    await storage.store.post("t", "item", "message", b'"sent"')
    await storage.rewind("t", first)
    assert (await workflow.run(thread_id="t")).get_outputs() == [["a", "sent"]]


async def test_log_continues_after_a_rewind_without_a_gap(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    await storage.rewind("t", (await workflow.history("t"))[-1])
    await workflow.run(thread_id="t")
    async with workflow.open(thread_id="t") as run:
        events = [event async for event in run.events(after=0)]
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    assert [event.data for event in events if event.type == "output"] == [["a"], ["a"]]


async def test_the_objects_own_executors_go_back_with_the_thread(any_storage: Any) -> None:
    tally = Tally("tally", Stage())
    workflow = chain(tally, Sink("end"), storage=any_storage)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    first = next(info for info in await oldest_first(workflow) if info.status == "IDLE")
    await workflow.rewind("t", first)
    assert (await workflow.run("x", thread_id="t")).get_outputs() == ["tally=2"]
    assert tally.total == 2


async def test_first_thread_that_runs_still_uses_the_passed_executors(storage: StoreCheckpointStorage) -> None:
    await chain(Tally("tally", Stage()), Sink("end"), storage=storage).run("x", thread_id="t")
    tally = Tally("tally", Stage())
    workflow = chain(tally, Sink("end"), storage=storage)
    await workflow.rewind("t", (await workflow.history("t"))[0])
    await workflow.checkpoint("t")
    await workflow.run("x", thread_id="new")
    assert tally.total == 1, "nothing but a run uses them up"


# ---------------------------------------------------------------- a damaged head


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_rewind_recovers_from_a_damaged_head(storage: StoreCheckpointStorage, place: str) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    whole = (await workflow.history("t"))[0]
    await workflow.run("b", thread_id="t")
    damaged = await rewrite_head(storage, "t", edited(lambda tree: tree.pop("counters")))
    for attempt in (workflow.checkpoint("t"), storage.checkpoint("t"), workflow.run("c", thread_id="t")):
        with pytest.raises(DamagedCheckpoint, match=damaged):
            await attempt
    with pytest.raises(DamagedCheckpoint, match=damaged):
        await storage.rewind("t", damaged)
    await (workflow if place == "workflow" else storage).rewind("t", whole)
    assert (await workflow.run("c", thread_id="t")).get_outputs() == [["a", "c"]]


async def test_undeclared_types_pass_through_a_rewind_unchanged(storage: StoreCheckpointStorage) -> None:
    note = Opaque("gone:Note", {"text": "x"})
    for number, value in enumerate((note, 1), 1):
        await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=f"c{number}", thread_id="t", state={"n": value}))
    made = await storage.rewind("t", "c1")
    assert (await storage.load(made)).state == {"n": note}
