"""A message to a thread with unfinished work: it waits, sets the work aside, or is rejected."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.flows import Gate, Weather, alone, asking, countdown, crossing, function, gated, warnings_of
from tests.unit.engine.nested import on_any_storage

from perdure import (
    InMemoryCheckpointStorage,
    InvalidRun,
    ThreadNotIdle,
    Workflow,
    WorkflowBuilder,
    WorkflowConvergenceException,
    WorkflowExecutor,
)


async def fail(workflow: Workflow, message: str, **options: Any) -> None:
    with pytest.raises(ConnectionError):
        await workflow.run(message, **options)


@on_any_storage
async def test_message_after_a_failed_run_of_the_default_thread_is_taken(make_storage: Any) -> None:
    weather, storage = Weather(), make_storage()
    workflow = crossing(weather, checkpoint_storage=storage)
    await fail(workflow, "first")
    weather.is_bad = False
    result = await workflow.run("second")
    assert result.get_outputs() == ["second"] and weather.seen == ["first", "second"]
    [warning] = warnings_of([event for event in result if "left out" in str(event.data)])
    assert ("are gone" in warning) is (storage is None)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_work_that_was_set_aside_continues_from_its_checkpoint(durability: Any) -> None:
    weather, storage = Weather(), InMemoryCheckpointStorage()
    workflow = crossing(weather, checkpoint_storage=storage)
    await fail(workflow, "first", durability=durability)
    before = workflow.status
    weather.is_bad = False
    result = await workflow.run("second", durability=durability)
    [warning] = [text for text in warnings_of(result) if "left out" in text]
    checkpoint_id = warning.split("checkpoint_id='")[1].split("'")[0]
    assert checkpoint_id in [info.checkpoint_id for info in await workflow.history(result.thread_id)]
    assert (await workflow.run(checkpoint_id=checkpoint_id)).get_outputs() == ["first"]
    assert weather.seen == ["first", "second", "first"] and before.value == "FAILED"


async def test_recorded_steps_of_work_that_was_set_aside_are_not_repeated() -> None:
    calls: list[str] = []
    broken = [True]

    async def note(text: str) -> str:
        calls.append(text)
        return text

    async def work(message: str, ctx: Any) -> None:
        noted = await ctx.step(note, message)
        if broken[0]:
            raise ConnectionError
        await ctx.yield_output(noted)

    workflow = alone(work, checkpoint_storage=InMemoryCheckpointStorage())
    await fail(workflow, "first")
    broken[0] = False
    result = await workflow.run("second")
    [warning] = [text for text in warnings_of(result) if "left out" in text]
    checkpoint_id = warning.split("checkpoint_id='")[1].split("'")[0]
    assert (await workflow.run(checkpoint_id=checkpoint_id)).get_outputs() == ["first"]
    assert calls == ["first", "second"]


async def test_caller_of_a_named_thread_chooses_what_a_message_does() -> None:
    weather = Weather()
    workflow = crossing(weather, checkpoint_storage=InMemoryCheckpointStorage())
    for thread_id in ("resumed", "set aside", "rejected"):
        await fail(workflow, "first", thread_id=thread_id)
    with pytest.raises(ThreadNotIdle, match="on_unfinished='resume'"):
        await workflow.run("second", thread_id="rejected", on_unfinished="reject")
    weather.is_bad, weather.seen[:] = False, []
    await workflow.run("second", thread_id="resumed", on_unfinished="resume")
    assert weather.seen == ["first", "second"]
    weather.seen.clear()
    await workflow.run("second", thread_id="set aside", on_unfinished="discard")
    assert weather.seen == ["second"]


async def test_message_after_the_superstep_limit_needs_a_choice_of_the_caller() -> None:
    workflow = countdown(max_iterations=2)
    with pytest.raises(WorkflowConvergenceException):
        await workflow.run(5)
    with pytest.raises(ThreadNotIdle, match="in-flight"):
        await workflow.run(1)
    assert (await workflow.run(0, on_unfinished="discard")).get_outputs() == ["lift-off"]


async def test_message_that_is_rejected_leaves_the_unfinished_work() -> None:
    weather = Weather()
    workflow = crossing(weather)
    await fail(workflow, "first")
    with pytest.raises(ThreadNotIdle):
        await workflow.run("second", on_unfinished="reject")
    weather.is_bad = False
    assert (await workflow.run()).get_outputs() == ["first"]


async def test_unfinished_child_is_set_aside_with_its_parent() -> None:
    weather = Weather()
    child = WorkflowExecutor(crossing(weather), "child")
    start = function("start", lambda message, ctx: ctx.send_message(message))
    end = function("end", lambda message, ctx: ctx.yield_output(message))
    workflow = WorkflowBuilder(start_executor=start).add_chain([start, child, end]).build()
    with pytest.raises(Exception, match="child"):
        await workflow.run("first")
    weather.is_bad = False
    assert (await workflow.run("second")).get_outputs() == ["second"]
    assert weather.seen == ["first", "second"]


async def test_pending_request_survives_the_work_that_is_set_aside() -> None:
    workflow = asking()
    await workflow.run("one")
    child = WorkflowExecutor(asking(), "child", propagate_request=True)
    outer = WorkflowBuilder(start_executor=child).build()
    asked = (await outer.run("one")).get_request_info_events()
    assert [event.request_id for event in asked] == ["one"]
    assert len((await outer.run("two", on_unfinished="discard")).get_request_info_events()) == 2


async def test_cancelled_run_of_the_default_thread_leaves_it_open_for_a_message() -> None:
    gate = Gate()
    workflow = gated(gate)
    stream = workflow.run("first", stream=True)
    events = aiter(stream)
    while (await anext(events)).type != "executor_invoked":
        pass
    await stream.aclose()
    gate.opened.set()
    assert (await workflow.run("second")).get_outputs() == ["second"]


async def test_unknown_choice_for_unfinished_work_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidRun, match=r"on_unfinished must be one of .*did you mean 'discard'"):
        await crossing(Weather()).run("x", on_unfinished="discrad")  # type: ignore[call-overload]  # misspelt
