"""Promise 6: a sub-workflow's supersteps are durable too; whatever interrupts it, it resumes where it stood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from tests.promises.stages import Again, Stage
from tests.unit.engine.nested import (
    THREAD,
    Clerk,
    Split,
    Take,
    answered_by,
    around,
    asking,
    committed,
    deep,
    due,
    line,
    outline,
)

from perdure import SubWorkflowFailed, Workflow, WorkflowBuilder, WorkflowRunState
from perdure.checkpoints.storage import StoreCheckpointStorage

Make: TypeAlias = Callable[[Stage, Any], Workflow]


def one_deep(stage: Stage, storage: Any) -> Workflow:
    return around(line(stage), storage)


def three_deep(stage: Stage, storage: Any) -> Workflow:
    return deep(line(stage), 3, storage)


nestings = pytest.mark.parametrize("make", [one_deep, three_deep])


@nestings
@pytest.mark.parametrize("place", ["a", "b", "c"])
async def test_a_failure_inside_a_child_is_resumed_inside_it(
    make: Make, place: str, any_storage: Any, again: Again
) -> None:
    stage = Stage()
    stage.failing = {place}
    flow = make(stage, any_storage)
    with pytest.raises(SubWorkflowFailed):
        await flow.run("x", thread_id=THREAD)
    stage.failing.clear()
    result = await again(flow, lambda: make(stage, any_storage)).run(thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b-c"]
    assert [stage.called(name) for name in "abc"] == [1 + (name == place) for name in "abc"]


@nestings
@pytest.mark.parametrize("place", ["a", "b", "c"])
async def test_a_run_cancelled_inside_a_child_is_resumed_inside_it(
    make: Make, place: str, any_storage: Any, again: Again
) -> None:
    stage = Stage()
    stage.close(place)
    flow = make(stage, any_storage)
    running = asyncio.ensure_future(flow.run("x", thread_id=THREAD))
    await stage.entered[place].wait()
    running.cancel()
    await asyncio.wait([running])
    assert stage.cancelled == [place]
    stage.gates[place].set()
    result = await again(flow, lambda: make(stage, any_storage)).run(thread_id=THREAD)
    assert (result.get_outputs(), result.get_final_state()) == (["x-a-b-c"], WorkflowRunState.IDLE)
    assert [stage.called(name) for name in "abc"] == [1 + (name == place) for name in "abc"]


@nestings
async def test_a_stream_that_is_left_inside_a_child_is_resumed_inside_it(
    make: Make, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    flow = make(stage, storage)
    stream = flow.run("x", stream=True, thread_id=THREAD)
    async for event in stream:
        if event.type == "superstep_completed" and stage.called("b"):
            break
    await stream.aclose()
    assert due((await committed(storage))[-1])[0].endswith("/c")
    result = await again(flow, lambda: make(stage, storage)).run(thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b-c"]
    assert stage.calls == ["a(x)", "b(x-a)", "c(x-a-b)"]


@nestings
async def test_a_process_that_dies_after_any_commit_is_taken_over_by_another(
    make: Make, storage: StoreCheckpointStorage
) -> None:
    """Each checkpoint as the head that a new process finds: only what came after is run."""
    stage = Stage()
    await make(stage, storage).run("x", thread_id=THREAD)
    next_due = {"a": "abc", "b": "bc", "c": "c"}
    left = "abc"
    for checkpoint in await committed(storage):
        paths = due(checkpoint)
        left = next_due.get(paths[0].rpartition("/")[2], "" if left == "c" else left) if paths else ""
        stage.calls.clear()
        resumed = await make(stage, storage).run(checkpoint_id=checkpoint.checkpoint_id, fork=True)
        assert resumed.get_outputs() == ["x-a-b-c"]
        assert "".join(call[0] for call in stage.calls) == left


@nestings
@pytest.mark.parametrize("fork", [True, False], ids=["fork", "rewind"])
async def test_a_fork_or_rewind_into_a_child_that_fails_is_resumed_inside_it_too(
    make: Make, fork: bool, storage: StoreCheckpointStorage, again: Again
) -> None:
    stage = Stage()
    flow = make(stage, storage)
    await flow.run("x", thread_id=THREAD)
    middle = next(checkpoint for checkpoint in await committed(storage) if due(checkpoint)[0].endswith("/b"))
    thread_id = "fork" if fork else THREAD
    stage.calls.clear()
    stage.failing = {"c"}
    with pytest.raises(SubWorkflowFailed):
        await flow.run(checkpoint_id=middle.checkpoint_id, fork=fork, thread_id=thread_id)
    stage.failing.clear()
    resumed = await again(flow, lambda: make(stage, storage)).run(thread_id=thread_id)
    assert resumed.get_outputs() == ["x-a-b-c"]
    assert stage.calls == ["b(x-a)", "c(x-a-b)", "c(x-a-b)"]


async def test_a_failure_in_one_child_does_not_repeat_its_sibling(storage: StoreCheckpointStorage) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.failing, stage.fails_after = {"q"}, 1

    def build() -> Workflow:
        first, last = Split("first"), Take("last")
        first_child, second_child = line(stage, "ap", name="one"), line(stage, "bq", name="two")
        builder = WorkflowBuilder(name="siblings", start_executor=first, checkpoint_storage=storage)
        builder.add_fan_out_edges(first, [first_child, second_child])
        return builder.add_edge(first_child, last).add_edge(second_child, last).build()

    with pytest.raises(SubWorkflowFailed, match="'two'"):
        await build().run("x", thread_id=THREAD)
    stage.failing.clear()
    result = await build().run(thread_id=THREAD)
    assert result.get_outputs() == ["x-a-p", "x-b-q"]
    assert [stage.called(name) for name in "apbq"] == [1, 1, 1, 2]
    assert outline(result, "executor_bypassed") == [("executor_bypassed", "one/p")]


async def test_failure_in_the_parent_does_not_repeat_a_child_beside_it(
    storage: StoreCheckpointStorage,
) -> None:
    stage = Stage()
    stage.watch_journal(storage)
    stage.failing, stage.fails_after = {"plain"}, 1

    def build() -> Workflow:
        """`in` is one superstep behind: then `plain` and `child/a` run side by side."""
        first, pause, plain = Split("first"), Split("pause"), line(stage, ["plain"], name="parent")
        child = line(stage, "a", name="child")
        builder = WorkflowBuilder(name="beside", start_executor=first, checkpoint_storage=storage)
        builder.add_fan_out_edges(first, [child, pause])
        return builder.add_edge(pause, plain.get_start_executor()).build()

    with pytest.raises(Exception, match="plain"):
        await build().run("x", thread_id=THREAD)
    assert due((await committed(storage))[-1]) == ["plain", "child/a"]
    stage.failing.clear()
    await build().run(thread_id=THREAD)
    assert (stage.called("a"), stage.called("plain")) == (1, 2)


async def test_an_answer_on_its_way_into_a_child_is_not_lost(any_storage: Any, again: Again) -> None:
    """Asked, answered by the parent, and interrupted before the child receives the answer."""
    flow = answered_by(Clerk("clerk"), asking(), any_storage)
    stream = flow.run("p", stream=True, thread_id=THREAD)
    answered = 0
    async for event in stream:
        answered += (event.type, event.executor_id) == ("executor_completed", "clerk")
        if answered and event.type == "superstep_completed":
            break
    await stream.aclose()
    other = again(flow, lambda: answered_by(Clerk("clerk"), asking(), any_storage))
    result = await other.run(thread_id=THREAD)
    assert result.get_outputs() == ["p=yes p"]
    assert ("executor_invoked", "clerk") not in outline(result, "executor_invoked")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_every_durability_resumes_a_failed_child_to_the_same_end(
    durability: Any, storage: StoreCheckpointStorage
) -> None:
    stage = Stage()
    stage.failing = {"b"}
    with pytest.raises(SubWorkflowFailed):
        await three_deep(stage, storage).run("x", thread_id=THREAD, durability=durability)
    stage.failing.clear()
    result = await three_deep(stage, storage).run(thread_id=THREAD, durability=durability)
    assert result.get_outputs() == ["x-a-b-c"]
