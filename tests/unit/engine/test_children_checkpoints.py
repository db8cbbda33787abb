"""Checkpoints of nested workflows: as plain JSON and back, and compared with the graphs of today at every level."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.promises.stages import Relay, Stage
from tests.six_methods import SixMethods
from tests.unit.engine.nested import (
    THREAD,
    Clerk,
    Desk,
    Give,
    KeptCounter,
    Question,
    Split,
    answered_by,
    around,
    asking,
    committed,
    deep,
    due,
    line,
)

from perdure import (
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    RunContext,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowExecutor,
    step,
    workflow,
)
from perdure.testing import FakeClock


def round_trip(checkpoint: WorkflowCheckpoint) -> WorkflowCheckpoint:
    return WorkflowCheckpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict())))


# ---------------------------------------------------------------- as JSON and back


@step
async def look_up(name: str) -> str:
    return name.upper()


@workflow
async def slow(name: str, ctx: RunContext) -> str:
    entry = await look_up(name)
    await ctx.sleep(timedelta(hours=1))
    answer: str = await ctx.request_info(Question(entry), str)
    return f"{entry}={answer}"


async def everything(storage: Any) -> None:
    """Threads whose checkpoints hold children, requests, hooks, buffers and suspended deliveries."""
    counter = WorkflowBuilder(name="counting", start_executor=KeptCounter("count")).build()
    await deep(counter, 2, storage).run("x y", thread_id="hooks")
    await answered_by(Desk("desk"), asking(), storage).run("p q", thread_id="desk")
    await answered_by(Clerk("clerk"), asking(), storage).run("p q", thread_id="clerk")
    await deep(asking(), 2, storage, propagate_request=True).run("p", thread_id="outside")
    clock = FakeClock()
    sub = WorkflowExecutor(slow, "sub", propagate_request=True)
    first = Split("first")
    sleepy = WorkflowBuilder(name="sleepy", start_executor=first, checkpoint_storage=storage, clock=clock)
    stream = sleepy.add_edge(first, sub).build().run("p q", stream=True, thread_id="sleepy")
    async for event in stream:
        if event.type == "superstep_completed" and event.iteration == 3:
            break
    await stream.aclose()


@pytest.mark.parametrize("make_storage", [InMemoryCheckpointStorage, SixMethods])
async def test_checkpoints_with_children_and_suspensions_survive_a_round_trip(
    make_storage: Any,
) -> None:
    storage = make_storage()
    await everything(storage)
    kept = list(storage.kept.values()) if isinstance(storage, SixMethods) else await storage.list_checkpoints()
    assert any(saved.children for saved in kept)
    for checkpoint in kept:
        assert round_trip(checkpoint).to_dict() == checkpoint.to_dict()
        assert due(round_trip(checkpoint)) == due(checkpoint)
    asleep = [child for saved in kept for child in saved.children.values() if child.suspended]
    assert len(asleep) == 2
    for child in asleep:
        [sleeper] = child.suspended.values()
        assert sleeper.due_at is not None and [record.name for record in sleeper.records if record.name] == [
            "look_up",
            "sleep",
        ]


async def test_child_resumes_from_a_checkpoint_copied_to_another_storage_as_json() -> None:
    here, there = InMemoryCheckpointStorage(), SixMethods()
    await deep(line(Stage(), "abc"), 2, here).run("x", thread_id=THREAD)
    for checkpoint in await committed(here):
        copied = round_trip(checkpoint)
        await there.save(copied)
        resumed = await deep(line(Stage(), "abc"), 2).run(
            checkpoint_id=copied.checkpoint_id, checkpoint_storage=there, fork=True
        )
        assert resumed.get_outputs() == ["x-a-b-c"]


async def test_a_loaded_checkpoint_shares_no_child_with_the_storage() -> None:
    storage = InMemoryCheckpointStorage()
    await around(line(Stage()), storage).run("x", thread_id=THREAD)
    inside = (await committed(storage))[3]
    (await storage.load(inside.checkpoint_id)).children.clear()
    for child in (await storage.load(inside.checkpoint_id)).children.values():
        child.messages.clear()
    assert due(await storage.load(inside.checkpoint_id)) == ["sub/b"]


# ---------------------------------------------------------------- changed graphs


def changed(ids: str, storage: Any, stage: Stage, depth: int = 1, **extra: Any) -> Workflow:
    return deep(line(stage, ids, **extra), depth, storage)


async def interrupted(storage: Any, stage: Stage, depth: int = 1) -> None:
    """Stands before `b`, inside the innermost child."""
    stage.failing = {"b"}
    with pytest.raises(SubWorkflowFailed):
        await changed("abc", storage, stage, depth).run("x", thread_id=THREAD)
    stage.failing.clear()


@pytest.mark.parametrize(("depth", "where"), [(1, "'l1'"), (2, "'l1' in sub-workflow 'l2'")])
async def test_changed_inner_graph_is_rejected_with_the_name_of_its_sub_workflow(depth: int, where: str) -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    await interrupted(storage, stage, depth)
    with pytest.raises(IncompatibleWorkflow, match=f"in sub-workflow {where} executor 'b' is gone"):
        await changed("ac", storage, stage, depth).run(thread_id=THREAD)
    assert (await changed("abc", storage, stage, depth).run(thread_id=THREAD)).get_outputs() == ["x-a-b-c"]


async def test_an_addition_to_an_inner_graph_is_a_warning_that_names_it() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    await interrupted(storage, stage)

    def grown() -> Workflow:
        a, b, c, extra = Relay("a", stage), Relay("b", stage), Give("c", stage), Give("extra", stage)
        builder = WorkflowBuilder(name="line", start_executor=a).add_chain([a, b, c])
        return deep(builder.add_edge(b, extra).build(), 1, storage)

    result = await grown().run(thread_id=THREAD)
    [warning] = [event.data for event in result if event.type == "warning"]
    assert "in sub-workflow 'l1' executor 'extra' is new" in warning
    assert result.get_outputs() == ["x-a-b-c", "x-a-b-extra"]


async def test_force_drops_messages_that_are_due_to_a_removed_inner_executor() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    await interrupted(storage, stage)
    result = await changed("ac", storage, stage).run(thread_id=THREAD, force=True)
    assert result.get_outputs() == []
    assert (await committed(storage))[-1].children == {}


async def test_a_sub_workflow_replaced_by_a_plain_executor_is_refused() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    await interrupted(storage, stage)
    start, plain = Split("in"), Give("l1", stage)
    builder = WorkflowBuilder(name="around 1", start_executor=start, checkpoint_storage=storage)
    with pytest.raises(IncompatibleWorkflow, match=r"'l1' was a .*WorkflowExecutor and is a .*Give"):
        await builder.add_edge(start, plain).build().run(thread_id=THREAD)


# ---------------------------------------------------------------- rewinds and forks


async def test_a_fork_in_the_middle_of_a_child_takes_the_child_along() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    flow = deep(line(stage), 2, storage)
    await flow.run("x", thread_id=THREAD)
    middle = next(checkpoint for checkpoint in await committed(storage) if due(checkpoint) == ["l1/l2/b"])
    stage.calls.clear()
    fork = await deep(line(stage), 2, storage).run(checkpoint_id=middle.checkpoint_id, fork=True, thread_id="fork")
    assert fork.get_outputs() == ["x-a-b-c"]
    assert stage.calls == ["b(x-a)", "c(x-a-b)"]
    assert [due(checkpoint) for checkpoint in await committed(storage, "fork")] == [["l1/l2/b"], ["l1/l2/c"], []]


async def test_rewind_into_a_child_runs_the_later_supersteps_again() -> None:
    storage, stage = InMemoryCheckpointStorage(), Stage()
    flow = around(line(stage), storage)
    await flow.run("x y", thread_id=THREAD)
    middle = next(checkpoint for checkpoint in await committed(storage) if due(checkpoint) == ["sub/b", "sub/b"])
    for _ in range(2):
        stage.calls.clear()
        assert (await flow.run(checkpoint_id=middle.checkpoint_id)).get_outputs() == ["x-a-b-c", "y-a-b-c"]
        assert stage.calls == ["b(x-a)", "b(y-a)", "c(x-a-b)", "c(y-a-b)"]


async def test_after_a_rewind_behind_an_answer_a_childs_request_is_pending_again() -> None:
    storage = InMemoryCheckpointStorage()
    flow = around(asking(), storage, propagate_request=True)
    [request] = (await flow.run("p", thread_id=THREAD)).get_request_info_events()
    asked = (await committed(storage))[-1]
    await flow.run(responses={str(request.request_id): "A"}, thread_id=THREAD)
    result = await flow.run(checkpoint_id=asked.checkpoint_id, responses={str(request.request_id): "B"})
    assert result.get_outputs() == ["p=B"]


async def test_messages_of_a_thread_include_those_inside_of_its_children_by_path() -> None:
    workflow = around(line(Stage()), InMemoryCheckpointStorage())
    await workflow.run("p", thread_id=THREAD)
    messages = await workflow.messages(THREAD)
    assert [message.delivery_id for message in messages] == list(range(1, len(messages) + 1)), "none is missing"
    assert [message.target_id for message in messages if "/" in str(message.target_id)] == ["sub/a", "sub/b", "sub/c"]
    assert [message.source_id for message in messages if message.target_id == "sub/c"] == ["sub/b"]
