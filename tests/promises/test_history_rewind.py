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


async def test_a_rewound_thread_goes_on_as_a_run_from_that_checkpoint_would(any_storage: Any, again: Again) -> None:
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
        heads = [(await workflow.history(one))[0] for one in ("t", "model")]
        assert (await workflow.diff(*heads)).is_empty


async def test_what_came_after_stays_reachable_as_a_branch(any_storage: Any) -> None:
    workflow = ledger(Stage(), any_storage)
    for message in "abc":
        await workflow.run(message, thread_id="t")
    history = await oldest_first(workflow)
    made = await workflow.rewind("t", history[1])
    assert made.number == history[-1].number + 1
    assert (await workflow.run("d", thread_id="t")).get_outputs() == [["a", "d"]]
    branches = await workflow.branches("t")
    assert [one.checkpoint_id for one in branches.main.checkpoints[:3]] == [
        *(one.checkpoint_id for one in history[:2]),
        made.checkpoint_id,
    ]
    [left] = branches.main.children
    assert [one.checkpoint_id for one in left.checkpoints] == [one.checkpoint_id for one in history[2:]]
    assert branches.common(left.newest, branches.head) == history[1]
    await workflow.rewind("t", left.newest)
    assert (await workflow.run("e", thread_id="t")).get_outputs() == [["a", "b", "c", "e"]]


async def test_a_rewind_can_be_repeated_and_differs_only_in_its_place(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    target = (await workflow.history("t"))[-1]
    made = [await place.rewind("t", target) for place in (workflow, storage, workflow, storage)]
    assert [one.number for one in made] == [made[0].number + at for at in range(4)]
    for one in made:
        assert (await storage.diff(target, one)).is_empty
        assert (await storage.load(one)).counters.epoch == one.number
        assert one.previous_checkpoint_id == target.checkpoint_id


async def test_idempotency_keys_are_others_after_a_rewind(storage: StoreCheckpointStorage) -> None:
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


async def test_requests_are_those_of_the_checkpoint_again(storage: StoreCheckpointStorage) -> None:
    workflow = alone(Asker("asker"), storage)
    asked = await workflow.run("who", thread_id="t")
    await workflow.run(responses={"who": "ann"}, thread_id="t")
    answered = (await workflow.history("t"))[0]
    with pytest.raises(AlreadyAnswered):
        await workflow.run(responses={"who": "bob"}, thread_id="t")
    for place in (storage, workflow):
        await place.rewind("t", str(asked.checkpoint_id))
        assert [one.request_id for one in await storage.pending_requests(thread_id="t")] == ["who"]
        [thread] = await storage.list_threads()
        assert thread.status == "IDLE_WITH_PENDING_REQUESTS"
        again = await workflow.run(responses={"who": "bob"}, thread_id="t")
        assert again.get_outputs() == ["who=bob"]
    await workflow.rewind("t", answered)
    assert await storage.pending_requests(thread_id="t") == []


async def test_what_was_recorded_since_the_head_does_not_count_after_a_rewind(storage: StoreCheckpointStorage) -> None:
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


async def test_messages_that_were_sent_to_the_thread_are_not_lost(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    first = (await workflow.history("t"))[0]
    await workflow.run("b", thread_id="t")
    await storage.store.post("t", "item", "message", b'"sent"')
    await storage.rewind("t", first)
    assert (await workflow.run(thread_id="t")).get_outputs() == [["a", "sent"]]


async def test_the_log_goes_on_without_a_gap(storage: StoreCheckpointStorage) -> None:
    workflow = ledger(Stage(), storage)
    await workflow.run("a", thread_id="t")
    await storage.rewind("t", (await workflow.history("t"))[-1])
    await workflow.run(thread_id="t")
    async with workflow.open(thread_id="t") as run:
        told = [event async for event in run.events(after=0)]
    assert [event.seq for event in told] == [*range(1, len(told) + 1)]
    assert [event.data for event in told if event.type == "output"] == [["a"], ["a"]]


async def test_the_objects_own_executors_go_back_with_the_thread(any_storage: Any) -> None:
    tally = Tally("tally", Stage())
    workflow = chain(tally, Sink("end"), storage=any_storage)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    first = next(one for one in await oldest_first(workflow) if one.status == "IDLE")
    await workflow.rewind("t", first)
    assert (await workflow.run("x", thread_id="t")).get_outputs() == ["tally=2"]
    assert tally.total == 2


async def test_the_first_thread_that_runs_still_gets_the_given_executors(storage: StoreCheckpointStorage) -> None:
    await chain(Tally("tally", Stage()), Sink("end"), storage=storage).run("x", thread_id="t")
    given = Tally("tally", Stage())
    workflow = chain(given, Sink("end"), storage=storage)
    await workflow.rewind("t", (await workflow.history("t"))[0])
    await workflow.checkpoint("t")
    await workflow.run("x", thread_id="new")
    assert given.total == 1, "nothing but a run uses them up"


# ---------------------------------------------------------------- a damaged head


@pytest.mark.parametrize("place", ["workflow", "storage"])
async def test_it_is_the_way_back_from_a_damaged_head(storage: StoreCheckpointStorage, place: str) -> None:
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


async def test_types_that_nobody_declared_go_through_unchanged(storage: StoreCheckpointStorage) -> None:
    note = Opaque("gone:Note", {"text": "x"})
    for number, value in enumerate((note, 1), 1):
        await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=f"c{number}", thread_id="t", state={"n": value}))
    made = await storage.rewind("t", "c1")
    assert (await storage.load(made)).state == {"n": note}
