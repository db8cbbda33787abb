"""Deadlines of a sub-workflow's questions: the default is delivered, or the request expires and the child ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.nested import (
    THREAD,
    Split,
    Take,
    asking,
    committed,
    deep,
)

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowBuilder, WorkflowExecutor, WorkflowRunState
from perdure.testing import FakeClock

PENDING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


def asked_inside(clock: FakeClock, storage: Any, **terms: Any) -> Workflow:
    """The child gets no answer: its parent has no edge for the question."""
    child = asking(deadline=clock.now() + timedelta(hours=1), **terms)
    first, last, sub = Split("first"), Take("last"), WorkflowExecutor(child, "sub")
    builder = WorkflowBuilder(name="inside", start_executor=first, checkpoint_storage=storage, clock=clock)
    return builder.add_edge(first, sub).add_edge(sub, last).build()


def asked_outside(clock: FakeClock, storage: Any, depth: int, **terms: Any) -> Workflow:
    child: Any = asking(deadline=clock.now() + timedelta(hours=1), **terms)
    first = Split("first")
    sub = WorkflowExecutor(deep(child, depth - 1, propagate_request=True) if depth > 1 else child, "sub", True, True)
    builder = WorkflowBuilder(name="outside", start_executor=first, checkpoint_storage=storage, clock=clock)
    return builder.add_edge(first, sub).build()


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_childs_default_is_delivered_when_its_deadline_has_passed(depth: int) -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    flow = asked_outside(clock, storage, depth, default="nobody")
    assert (await flow.run("p", thread_id=THREAD)).get_final_state() is PENDING
    clock.advance(3601)
    done = await flow.run(thread_id=THREAD)
    assert (done.get_outputs(), done.get_final_state()) == (["p=nobody"], WorkflowRunState.IDLE)
    assert (await committed(storage))[-1].children == {}


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_childs_request_without_a_default_expires_under_its_path(depth: int) -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    flow = asked_outside(clock, storage, depth)
    await flow.run("p", thread_id=THREAD)
    clock.advance(3601)
    done = await flow.run(thread_id=THREAD)
    [error] = [event for event in done if event.type == "error"]
    assert error.executor_id == ("sub/ask" if depth == 1 else "sub/l1/ask")
    assert done.get_final_state() is WorkflowRunState.IDLE
    assert (await committed(storage))[-1].children == {}


async def test_default_for_a_question_to_the_parent_arrives_after_its_deadline() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    flow = asked_inside(clock, storage, default="nobody")
    assert (await flow.run("p", thread_id=THREAD)).get_outputs() == []
    clock.advance(3601)
    assert (await flow.run(thread_id=THREAD)).get_outputs() == ["p=nobody"]
    assert (await committed(storage))[-1].children == {}


async def test_an_open_run_delivers_a_childs_default_by_itself() -> None:
    clock = FakeClock()
    flow = asked_outside(clock, InMemoryCheckpointStorage(), 1, default="nobody")
    async with flow.open(thread_id=THREAD) as run:
        await run.send("p")
        await run.wait()
        watched = run.events()
        clock.advance(3601)
        async for event in watched:
            if event.type == "output":
                assert event.data == "p=nobody"
                break
        await run.wait()
