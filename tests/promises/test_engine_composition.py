"""A sub-workflow is more than one superstep of its parent: it resumes where it crashed, and is seen at work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.promises.stages import Again, Stage, collect
from tests.unit.engine.nested import THREAD, around, committed, due, line

from perdure import SubWorkflowFailed, WorkflowEvent
from perdure.checkpoints.storage import StoreCheckpointStorage


async def test_crash_late_in_a_child_does_not_restart_the_child(any_storage: Any, again: Again) -> None:
    stage = Stage()
    stage.failing = {"d"}
    flow = around(line(stage, "abcde"), any_storage)
    with pytest.raises(SubWorkflowFailed):
        await flow.run("x", thread_id=THREAD)
    stage.failing.clear()
    result = await again(flow, lambda: around(line(stage, "abcde"), any_storage)).run(thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b-c-d-e"]
    assert [stage.called(name) for name in "abcde"] == [1, 1, 1, 2, 1]


async def test_each_superstep_of_a_child_is_a_superstep_of_the_thread(storage: StoreCheckpointStorage) -> None:
    await around(line(Stage(), "abcde"), storage).run("x", thread_id=THREAD)
    inside = [due(checkpoint) for checkpoint in await committed(storage) if checkpoint.children]
    assert inside == [["sub/a"], ["sub/b"], ["sub/c"], ["sub/d"], ["sub/e"]]


async def test_events_of_a_running_child_reach_watchers_of_the_parent() -> None:
    stage = Stage()
    stage.close("b")
    seen: list[WorkflowEvent] = []
    stream = around(line(stage)).run("x", stream=True)
    async for event in stream:
        seen.append(event)
        if event.executor_id == "sub/b":
            break
    assert not stage.gates["b"].is_set(), "the child waits in its second superstep, and is seen to"
    inside = [(event.type, event.executor_id) for event in seen if str(event.executor_id).startswith("sub/")]
    assert inside == [("executor_invoked", "sub/a"), ("executor_completed", "sub/a"), ("executor_invoked", "sub/b")]
    await stream.aclose()


async def test_events_before_the_failure_of_a_child_are_emitted() -> None:
    stage = Stage()
    stage.failing = {"b"}
    seen: list[WorkflowEvent] = []
    with pytest.raises(SubWorkflowFailed):
        await collect(around(line(stage)).run("x", stream=True), seen)
    executor_ids = [event.executor_id for event in seen if event.type in ("executor_completed", "executor_failed")]
    assert executor_ids == ["first", "sub/a", "sub/b", "sub"]
