"""WorkflowCheckpoint: its contents, that it is frozen, and that it survives plain JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.six_methods import SixMethods
from tests.unit.engine.flows import Tally, Verdict, asking, function, relay, shouting, sink, tallying

from perdure import (
    CheckpointInfo,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)

BUILTINS = {"tuple": (1, 2), "set": {1}, "int key": {1: "a", "1": "b"}, "when": datetime(2026, 1, 1, tzinfo=UTC)}


async def checkpoints_of(
    workflow: Workflow, storage: InMemoryCheckpointStorage, message: Any
) -> list[WorkflowCheckpoint]:
    await workflow.run(message, thread_id="t", run_id="r", function_invocation_kwargs={"user": "ann"})
    return await storage.list_checkpoints(thread_id="t")


async def test_a_run_leaves_the_entry_and_one_checkpoint_a_superstep() -> None:
    storage = InMemoryCheckpointStorage()
    entry, first, second = await checkpoints_of(shouting(checkpoint_storage=storage), storage, "hi")
    assert [checkpoint.iteration_count for checkpoint in (entry, first, second)] == [0, 1, 2]
    assert [checkpoint.previous_checkpoint_id for checkpoint in (entry, first, second)] == [
        None,
        entry.checkpoint_id,
        first.checkpoint_id,
    ]
    assert {
        (checkpoint.workflow_name, checkpoint.thread_id, checkpoint.run_id) for checkpoint in (entry, first, second)
    } == {("shouting", "t", "r")}
    assert [checkpoint.status for checkpoint in (entry, first, second)] == ["IN_PROGRESS", "IN_PROGRESS", "IDLE"]


async def test_checkpoint_holds_due_deliveries_and_yielded_outputs() -> None:
    storage = InMemoryCheckpointStorage()
    entry, first, second = await checkpoints_of(shouting(checkpoint_storage=storage), storage, "hi")
    assert [(delivery.target_id, delivery.data) for delivery in entry.deliveries] == [("shout", "hi")]
    assert [(message.source_id, message.data) for message in first.messages["shout"]] == [("shout", "HI")]
    assert second.deliveries == [] and [event.data for event in second.outputs] == ["<HI>"]
    assert first.outputs == [] and first.run_kwargs == {"function_invocation_kwargs": {"__global__": {"user": "ann"}}}


async def test_answers_make_a_checkpoint_of_their_own() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(checkpoint_storage=storage)
    await workflow.run("why", thread_id="t")
    before = await storage.list_checkpoint_ids()
    await workflow.run(responses={"why": Verdict(True)}, thread_id="t")
    pause, arrived, _ = (await storage.list_checkpoints())[len(before) - 1 :]
    assert list(pause.pending_request_info_events) == ["why"] and not pause.answered
    assert not arrived.pending_request_info_events and list(arrived.answered) == ["why"]
    assert [delivery.data for delivery in arrived.deliveries] == [Verdict(True)]
    assert arrived.iteration_count == pause.iteration_count


async def test_a_fan_in_that_waits_is_part_of_the_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    start, quick, slow, slower, end = (
        relay("start"),
        relay("quick"),
        relay("slow"),
        relay("slower"),
        sink("end", accepts=list),
    )
    builder = WorkflowBuilder(name="fan", start_executor=start, checkpoint_storage=storage)
    builder.add_fan_out_edges(start, [quick, slow]).add_edge(slow, slower).add_fan_in_edges([quick, slower], end)
    await builder.build().run("x")
    waiting = (await storage.list_checkpoints())[2]
    assert list(waiting.buffers.values()) == [{"quick": ["x"]}]


async def test_executor_memory_is_part_of_the_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    await tallying(Tally(), checkpoint_storage=storage).run("x")
    latest = await storage.get_latest()
    assert latest is not None and latest.executors["tally"].saved == {"count": 1}


def test_a_checkpoint_is_frozen() -> None:
    checkpoint = WorkflowCheckpoint("w", "hash")
    with pytest.raises(AttributeError):
        checkpoint.state = {}  # type: ignore[misc]  # the point


def test_a_checkpoint_made_by_hand_has_an_id_a_time_and_nothing_else() -> None:
    first, second = WorkflowCheckpoint("w", "hash"), WorkflowCheckpoint("w", "hash")
    assert first.checkpoint_id != second.checkpoint_id
    assert datetime.fromisoformat(first.timestamp).tzinfo is not None and first.version == "1.0"
    empty: list[Any] = [
        first.messages,
        first.state,
        first.pending_request_info_events,
        first.metadata,
        first.outputs,
        first.executors,
    ]
    assert not any(empty) and first.iteration_count == 0 and first.previous_checkpoint_id is None


async def full_checkpoint() -> WorkflowCheckpoint:
    """With state, messages, a pending request, outputs, private state and run arguments."""
    storage = InMemoryCheckpointStorage()

    async def work(message: str, ctx: Any) -> None:
        ctx.state.update(BUILTINS)
        ctx.private["seen"] = [message]
        terms = {"deadline": datetime(2999, 1, 1, tzinfo=UTC), "default": 5, "assignee": "ann"}
        await ctx.request_info({"question": (1, 2)}, int | None, request_id="q", **terms)
        await ctx.yield_output(BUILTINS)
        await ctx.send_message(BUILTINS)

    start, end = function("start", work), sink("end")
    builder = WorkflowBuilder(name="full", start_executor=start, checkpoint_storage=storage).add_edge(start, end)
    return (await checkpoints_of(builder.build(), storage, "m"))[1]


async def test_a_checkpoint_survives_plain_json() -> None:
    checkpoint = await full_checkpoint()
    again = WorkflowCheckpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict())))
    assert again == checkpoint
    assert again.state == BUILTINS and type(again.state["tuple"]) is tuple
    assert again.pending_request_info_events["q"].response_type == int | None
    assert again.pending_request_info_events["q"].data == {"question": (1, 2)}


async def test_to_dict_shares_nothing_with_the_checkpoint() -> None:
    checkpoint = await full_checkpoint()
    before = json.dumps(checkpoint.to_dict())
    checkpoint.to_dict()["graph_signature"]["executors"].clear()
    assert json.dumps(checkpoint.to_dict()) == before


async def test_checkpoint_for_a_plain_storage_shares_nothing_with_the_workflow() -> None:
    class Keeping(SixMethods):
        async def save(self, checkpoint: WorkflowCheckpoint) -> str:
            checkpoint.graph_signature["executors"].clear()
            checkpoint.messages.clear()
            return await super().save(checkpoint)

    workflow = shouting(checkpoint_storage=Keeping())
    before = json.dumps(workflow.graph_signature)
    assert (await workflow.run("hi")).get_outputs() == ["<HI>"]
    assert json.dumps(workflow.graph_signature) == before


async def test_the_info_is_the_checkpoint_without_its_payload() -> None:
    checkpoint = await full_checkpoint()
    info = checkpoint.info
    assert CheckpointInfo in type(info).__mro__ and str(info) == checkpoint.checkpoint_id
    same = ("thread_id", "workflow_name", "number", "iteration_count", "previous_checkpoint_id", "timestamp", "run_id")
    assert [getattr(info, name) for name in same] == [getattr(checkpoint, name) for name in same]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tree: tree.pop("workflow_name"), "not a stored checkpoint"),
        (lambda tree: tree.pop("counters"), "its parts do not fit together"),
        (lambda tree: tree.update(counters=[1]), "its parts do not fit together"),
        (lambda tree: tree.update(payloads=[]), "its parts do not fit together"),
        (lambda tree: tree.update(version="9.0"), "format version '9.0'; this perdure reads '1.0'.*upgrade perdure"),
        (lambda tree: tree["state"].update({"$type": "os:system"}), "Cannot read state"),
    ],
)
async def test_damaged_checkpoint_is_rejected(damage: Any, message: str) -> None:
    tree = (await full_checkpoint()).to_dict()
    damage(tree)
    with pytest.raises(WorkflowCheckpointException, match=message):
        WorkflowCheckpoint.from_dict(tree)
