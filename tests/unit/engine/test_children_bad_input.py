"""Invalid sub-workflows: the build of the graph rejects them with an error that names the problem."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Relay, Stage
from tests.unit.engine.nested import THREAD, Give, Split, Take, around, asking, line, seen

from perdure import (
    DuplicateExecutorId,
    DuplicateRequest,
    InMemoryCheckpointStorage,
    SubWorkflowFailed,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WrongInputType,
    executor,
)
from perdure.errors import TypeCompatibilityError


async def not_marked(text: str) -> str:
    return text


@pytest.mark.parametrize("thing", [None, 7, "line", not_marked, WorkflowBuilder, Give("g", Stage()), object()])
def test_only_a_workflow_can_be_a_child(thing: Any) -> None:
    with pytest.raises(TypeError, match="takes a Workflow, or a function marked @workflow, got"):
        WorkflowExecutor(thing, "sub")


@pytest.mark.parametrize("id", ["", None, 7])
def test_a_child_needs_an_id(id: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        WorkflowExecutor(line(Stage()), id)


def test_two_children_with_the_same_id_are_rejected() -> None:
    first = Split("first")
    children = [WorkflowExecutor(line(Stage()), "sub"), WorkflowExecutor(line(Stage()), "sub")]
    with pytest.raises(DuplicateExecutorId, match="'sub'"):
        WorkflowBuilder(start_executor=first).add_fan_out_edges(first, children).build()


def test_a_child_may_not_have_the_id_of_an_executor() -> None:
    first = Split("sub")
    with pytest.raises(DuplicateExecutorId, match="'sub'"):
        WorkflowBuilder(start_executor=first).add_edge(first, WorkflowExecutor(line(Stage()), "sub")).build()


def test_two_workflows_with_the_same_name_need_different_executor_ids() -> None:
    first = Split("first")
    twice = [line(Stage(), name="line"), line(Stage(), name="line")]
    with pytest.raises(DuplicateExecutorId, match="'line'"):
        WorkflowBuilder(start_executor=first).add_fan_out_edges(first, twice).build()


@pytest.mark.parametrize("taken", ["sub/b", "sub/inner/b"])
def test_executor_with_the_path_of_an_inner_executor_is_rejected(taken: str) -> None:
    """Two sources of events would have the same path."""
    start = Relay("b", Stage())
    inner = WorkflowExecutor(line(Stage(), "b"), "inner")
    child = WorkflowBuilder(name="child", start_executor=start).add_edge(start, inner).build()
    first, other = Split("first"), Take(taken)
    builder = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [WorkflowExecutor(child, "sub"), other])
    with pytest.raises(DuplicateExecutorId, match=taken):
        builder.build()


def test_child_that_does_not_accept_the_sent_type_is_rejected() -> None:
    @executor
    async def numbers(number: int, ctx: WorkflowContext[int]) -> None: ...

    first, sub = Split("first"), WorkflowExecutor(WorkflowBuilder(start_executor=numbers).build(), "sub")
    with pytest.raises(TypeCompatibilityError, match="outputs types str but target executor can only handle types int"):
        WorkflowBuilder(start_executor=first).add_edge(first, sub).build()


async def test_input_that_the_first_executor_of_a_child_rejects_fails_the_call() -> None:
    flow = WorkflowBuilder(start_executor=WorkflowExecutor(line(Stage()), "sub")).build()
    with pytest.raises(WrongInputType, match="'sub'"):
        await flow.run(7)


async def test_two_children_that_propagate_the_same_request_id_are_rejected() -> None:
    """A request is known by thread and request id."""
    flow = around(asking(request_id="approval"), InMemoryCheckpointStorage(), propagate_request=True)
    with pytest.raises((DuplicateRequest, SubWorkflowFailed), match="approval"):
        await flow.run("p q", thread_id=THREAD)


async def test_ids_of_a_child_may_be_those_of_its_parent() -> None:
    """A path distinguishes them."""
    first, last = Split("a"), Take("b")
    sub = WorkflowExecutor(line(Stage(), "ab"), "sub")
    flow = WorkflowBuilder(start_executor=first).add_edge(first, sub).add_edge(sub, last).build()
    events = await seen(flow.run("x", stream=True))
    invoked = [event.executor_id for event in events if event.type == "executor_invoked"]
    assert invoked == ["a", "sub", "sub/a", "sub/b", "b"]
