"""EventRecorder: events to be looked at, and to be waited for."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.testing.flows import two_steps

from perdure import InMemoryCheckpointStorage, WorkflowBuilder
from perdure.testing import EventRecorder, Faults, ScriptedExecutor


async def test_recorder_collects_a_stream_and_returns_the_result() -> None:
    recorder = EventRecorder()
    result = await recorder.collect(two_steps(None).run("hi", stream=True))
    assert result.get_outputs() == recorder.outputs == ["<HI>"]
    assert recorder.types[0] == "started" and recorder.types[-1] == "status"
    assert [event.executor_id for event in recorder.of_type("executor_invoked")] == ["shout", "frame"]


async def test_events_are_found_by_type_and_fields() -> None:
    recorder = EventRecorder()
    await recorder.collect(two_steps(None).run("hi", stream=True))
    [invoked] = recorder.of_type("executor_invoked", executor_id="frame")
    assert invoked.data == "HI"
    both = recorder.of_type("executor_invoked", "executor_completed", executor_id="frame")
    assert [event.type for event in both] == ["executor_invoked", "executor_completed"]
    assert recorder.of_type("executor_invoked", executor_id="nobody") == []


async def test_events_before_a_failure_are_kept() -> None:
    recorder = EventRecorder()
    failing = ScriptedExecutor("failing", [OSError("no")], input=str)
    with pytest.raises(OSError, match="no"):
        await recorder.collect(WorkflowBuilder(start_executor=failing).build().run("hi", stream=True))
    assert recorder.of_type("executor_failed", executor_id="failing")
    assert len(list(recorder)) == len(recorder) > 0
    recorder.clear()
    assert recorder.types == []


async def test_an_event_can_be_waited_for_whether_it_is_past_or_to_come(faults: Faults) -> None:
    recorder = EventRecorder()
    workflow = two_steps(faults.wrap(InMemoryCheckpointStorage()))
    with faults.pause("commit", nth=2) as pause:
        run = asyncio.create_task(recorder.collect(workflow.run("hi", stream=True)))
        assert (await recorder.seen("executor_invoked")).executor_id == "shout"
        assert (await recorder.seen("executor_invoked", executor_id="shout")).data == "hi"
        frame = asyncio.create_task(recorder.seen("executor_invoked", executor_id="frame"))
        await pause
        assert not frame.done()
    assert (await frame).data == "HI"
    await run
