"""The events that a consumer receives: their order and their fields."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from tests.unit.engine.flows import (
    Gate,
    Weather,
    alone,
    asking,
    countdown,
    crossing,
    function,
    gated,
    kinds,
    relay,
    shouting,
    sink,
    take_all,
    warnings_of,
)

from perdure import (
    CheckpointInfo,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowRunState,
)
from perdure.engine.delivery.lane import Lane, make_lane
from perdure.isolation import isolate


async def streamed(workflow: Workflow, message: Any) -> list[WorkflowEvent]:
    return [event async for event in workflow.run(message, stream=True)]


async def streamed_until_failure(workflow: Workflow, message: Any, error: type[Exception]) -> list[WorkflowEvent]:
    seen: list[WorkflowEvent] = []
    with pytest.raises(error):
        await take_all(workflow.run(message, stream=True), seen)
    return seen


async def test_run_emits_events_from_start_to_final_status() -> None:
    superstep = ["superstep_started", "executor_invoked", "executor_completed", "superstep_completed"]
    with_output = [*superstep[:2], "output", *superstep[2:]]
    events = await streamed(shouting(), "hi")
    assert kinds(events) == ["started", "status", *superstep, *with_output, "status"]
    assert [event.iteration for event in events if event.iteration] == [1, 1, 2, 2]
    assert [event.executor_id for event in events if event.executor_id] == ["shout", "shout"] + ["deliver"] * 3


async def test_checkpoint_saved_is_emitted_before_its_superstep_completes() -> None:
    events = await streamed(shouting(checkpoint_storage=InMemoryCheckpointStorage()), "hi")
    emitted = [
        kind for kind in kinds(events) if kind in ("checkpoint_saved", "superstep_started", "superstep_completed")
    ]
    superstep = ["superstep_started", "checkpoint_saved", "superstep_completed"]
    assert emitted == ["checkpoint_saved", *superstep, *superstep]


async def test_invoked_and_completed_events_carry_inputs_and_outputs() -> None:
    events = await streamed(shouting(), "hi")
    data = [event.data for event in events if event.type in ("executor_invoked", "executor_completed")]
    assert data == ["hi", ["HI"], "HI", ["<HI>"]]


async def test_an_executor_that_gave_nothing_completes_with_none() -> None:
    events = await streamed(alone(lambda message, ctx: None), "x")
    assert [event.data for event in events if event.type == "executor_completed"] == [None]


async def test_superstep_completed_names_executors_and_pending_work() -> None:
    storage = InMemoryCheckpointStorage()
    start, left, right = relay("start"), sink("left"), sink("right")
    builder = WorkflowBuilder(name="fan", start_executor=start, checkpoint_storage=storage)
    events = await streamed(builder.add_fan_out_edges(start, [left, right]).build(), 1)
    first, second = [event for event in events if event.type == "superstep_completed"]
    assert first.executors == ("start",) and second.executors == ("left", "right")
    assert (first.has_pending_messages, second.has_pending_messages) == (True, False)
    assert (first.has_pending_requests, second.has_pending_requests) == (False, False)
    ids = await storage.list_checkpoint_ids(workflow_name="fan")
    assert isinstance(first.checkpoint, CheckpointInfo) and first.checkpoint.checkpoint_id == ids[1]
    assert second.checkpoint is not None and str(second.checkpoint) == ids[2]
    assert first.last_seq is not None and second.last_seq is not None and first.last_seq < second.last_seq


async def test_without_a_storage_superstep_completed_has_no_checkpoint() -> None:
    events = await streamed(shouting(), "hi")
    assert {event.checkpoint for event in events if event.type == "superstep_completed"} == {None}


async def test_superstep_completed_reports_a_pending_request() -> None:
    (completed,) = [event for event in await streamed(asking(), "why") if event.type == "superstep_completed"]
    assert completed.has_pending_requests is True


async def test_request_info_event_has_everything_that_an_answer_needs() -> None:
    (request,) = [event for event in await streamed(asking(str), "why") if event.type == "request_info"]
    assert request.request_id == "why" and request.source_executor_id == "asker"
    assert request.data.text == "why" and request.request_type is type(request.data) and request.response_type is str


async def test_live_events_have_no_seq() -> None:
    events = await streamed(shouting(checkpoint_storage=InMemoryCheckpointStorage()), "hi")
    assert {event.seq for event in events} == {None}


async def test_failure_events_carry_executor_error_and_traceback() -> None:
    events = await streamed_until_failure(crossing(Weather()), "cart", ConnectionError)
    assert kinds(events)[-4:] == ["executor_failed", "superstep_discarded", "failed", "status"]
    of_executor, of_run = (event.details for event in events if event.type in ("executor_failed", "failed"))
    for details in (of_executor, of_run):
        assert isinstance(details, WorkflowErrorDetails)
        assert (details.error_type, details.message) == ("ConnectionError", "the bridge is closed")
        assert details.traceback is not None and "pass_through" in details.traceback
    assert of_executor is not None and of_executor.executor_id == "bridge"
    assert events[-1].state is WorkflowRunState.FAILED


async def test_superstep_discarded_names_the_superstep_that_failed() -> None:
    events = await streamed_until_failure(crossing(Weather()), "cart", ConnectionError)
    assert [event.iteration for event in events if event.type == "superstep_discarded"] == [2]


async def test_the_failed_event_names_the_executor_that_failed() -> None:
    events = await streamed_until_failure(crossing(Weather()), "cart", ConnectionError)
    (failed,) = [event for event in events if event.type == "failed"]
    assert failed.details is not None and failed.details.executor_id == "bridge"


# ---------------------------------------------------------------- states


def states(events: list[WorkflowEvent]) -> list[str]:
    return [event.state.value for event in events if event.type == "status" and event.state]


async def test_a_plain_run_goes_from_in_progress_to_idle() -> None:
    assert states(await streamed(shouting(), "hi")) == ["IN_PROGRESS", "IDLE"]


async def test_run_that_asks_emits_pending_statuses_at_first_request_and_end() -> None:
    expected = ["IN_PROGRESS", "IN_PROGRESS_PENDING_REQUESTS", "IDLE_WITH_PENDING_REQUESTS"]
    assert states(await streamed(asking(), "two questions")) == expected


async def test_result_holds_statuses_only_on_request_and_the_timeline_always() -> None:
    workflow = shouting()
    without, with_them = await workflow.run("a"), await workflow.run("b", include_status_events=True)
    assert states(without) == [] and states(with_them) == ["IN_PROGRESS", "IDLE"]
    assert states(without.status_timeline()) == states(with_them.status_timeline()) == ["IN_PROGRESS", "IDLE"]
    assert "started" not in kinds(without) + kinds(with_them)


async def test_the_status_of_the_workflow_follows_its_own_thread() -> None:
    gate = Gate()
    workflow = gated(gate)
    statuses = [workflow.status]
    running = asyncio.ensure_future(workflow.run("x"))
    await gate.arrived.wait()
    statuses.append(workflow.status)
    gate.opened.set()
    await running
    statuses.append(workflow.status)
    assert statuses == [WorkflowRunState.IDLE, WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE]


async def test_status_of_a_workflow_that_asked_is_pending_requests() -> None:
    workflow = asking()
    await workflow.run("why")
    assert workflow.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_status_of_a_workflow_is_failed_until_its_failed_run_is_resumed() -> None:
    weather = Weather()
    workflow = crossing(weather)
    await streamed_until_failure(workflow, "cart", ConnectionError)
    statuses = [workflow.status]
    weather.is_bad = False
    await workflow.run()
    statuses.append(workflow.status)
    assert statuses == [WorkflowRunState.FAILED, WorkflowRunState.IDLE]


async def test_the_status_of_a_workflow_whose_run_was_cancelled_is_cancelled() -> None:
    gate = Gate()
    workflow = gated(gate)
    async with workflow.run("x", stream=True) as stream:
        async for _ in stream:
            await gate.arrived.wait()
            break
    assert workflow.status is WorkflowRunState.CANCELLED


# ---------------------------------------------------------------- the result


async def test_the_result_knows_its_thread_run_and_checkpoint() -> None:
    storage = InMemoryCheckpointStorage()
    result = await shouting(checkpoint_storage=storage).run("hi", thread_id="t", run_id="r")
    latest = await storage.get_latest(workflow_name="shouting")
    assert latest is not None
    assert (result.thread_id, result.run_id, result.checkpoint_id) == ("t", "r", latest.checkpoint_id)
    assert result.usage == {} and result.get_final_state() is WorkflowRunState.IDLE


async def test_without_a_storage_the_result_has_no_checkpoint() -> None:
    assert (await shouting().run("hi")).checkpoint_id is None


async def test_intermediate_outputs_are_separate_and_hidden_outputs_are_left_out() -> None:
    steps = [relay_and_yield(name) for name in ("hidden", "draft", "final")]
    builder = WorkflowBuilder(start_executor=steps[0], output_from=[steps[2]], intermediate_output_from=[steps[1]])
    result = await builder.add_chain(steps).build().run("x")
    assert (result.get_outputs(), result.get_intermediate_outputs()) == (["final"], ["draft"])
    completed = [event.data for event in result if event.type == "executor_completed"]
    assert completed[0] == ["x"]


def relay_and_yield(name: str) -> Any:
    async def work(message: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(name)
        if name != "final":
            await ctx.send_message(message)

    return function(name, work)


async def test_change_of_an_output_by_a_consumer_does_not_change_the_thread() -> None:
    workflow = alone(lambda message, ctx: ctx.yield_output([message]))
    result = await workflow.run("mine", thread_id="t")
    result.get_outputs()[0].append("changed by the consumer")
    assert (await workflow.run(thread_id="t")).get_outputs() == [["mine"]]


async def test_change_of_a_question_by_a_consumer_does_not_change_the_request() -> None:
    workflow = asking(str)
    (request,) = (await workflow.run("why")).get_request_info_events()
    request.data.text = "changed by the consumer"
    assert (await workflow.run(responses={"why": "so"})).get_outputs() == ["why: so"]


async def test_change_of_an_input_by_a_consumer_does_not_change_its_redelivery() -> None:
    weather = Weather()
    workflow = crossing(weather)
    for event in await streamed_until_failure(workflow, ["cart"], ConnectionError):
        if event.type == "executor_invoked":
            event.data.append("changed by the consumer")
    weather.is_bad = False
    assert (await workflow.run()).get_outputs() == [["cart"]]


# ---------------------------------------------------------------- events of executors


async def test_an_executors_own_event_is_marked_as_such() -> None:
    result = await alone(lambda message, ctx: ctx.add_event(WorkflowEvent("progress", {"done": 1}))).run("x")
    (event,) = [event for event in result if event.type == "progress"]
    assert (event.origin, event.executor_id, event.data) == (WorkflowEventSource.EXECUTOR, "only", {"done": 1})


@pytest.mark.parametrize("kind", ["started", "status", "failed", "output", "intermediate"])
async def test_executor_cannot_forge_events_of_the_engine(kind: str) -> None:
    result = await alone(lambda message, ctx: ctx.add_event(WorkflowEvent(kind, "forged"))).run("x")
    assert not [event for event in result if event.data == "forged"]
    [warning] = warnings_of(result)
    assert warning.startswith(f"Executor 'only' attempted to emit a {kind!r} event")
    reserved = "ctx.yield_output()" if kind in ("output", "intermediate") else "framework lifecycle notifications"
    assert f", which is reserved for {reserved}" in warning


async def test_handler_knows_whether_its_run_is_streamed() -> None:
    workflow = alone(lambda message, ctx: ctx.yield_output(ctx.is_streaming()))
    assert (await workflow.run("x")).get_outputs() == [False]
    assert (await workflow.run("x", stream=True).get_final_response()).get_outputs() == [True]


async def test_iterations_are_counted_from_one_for_each_message() -> None:
    workflow = countdown()
    for message in (2, 1):
        result = await workflow.run(message)
        counted = [event.iteration for event in result if event.type == "superstep_completed"]
        assert counted == list(range(1, message + 2))


async def test_events_made_by_hand_equal_the_events_of_a_run() -> None:
    """So that a consumer can be tested without a workflow."""
    emitted = [event async for event in shouting().run("hi", stream=True)]
    made = [
        WorkflowEvent.started(),
        WorkflowEvent.status(WorkflowRunState.IN_PROGRESS),
        WorkflowEvent.superstep_started(1),
        WorkflowEvent.executor_invoked("shout", "hi"),
    ]
    assert emitted[: len(made)] == made
    assert WorkflowEvent.output("deliver", "<HI>") in emitted


@pytest.mark.parametrize("build", [shouting, countdown, asking])
async def test_plain_lanes_emit_what_other_lanes_emit(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane outside sub-workflows skips what only lanes in them, or with suspended deliveries, need."""

    def make_careful_lane(*arguments: Any) -> Lane:
        lane = make_lane(*arguments)
        lane._is_plain = False
        return lane

    message: Any = 3 if build is countdown else "hi"
    events, storages = [], [InMemoryCheckpointStorage(), InMemoryCheckpointStorage()]
    for make, storage in zip((make_lane, make_careful_lane), storages, strict=True):
        monkeypatch.setattr("perdure.engine.run.superstep.make_lane", make)
        emitted = await build(checkpoint_storage=storage).run(message, thread_id="t")
        logged = [event async for event in storage.follow("t", until_idle=True)]
        events.append([(event.type, event.executor_id, event.data) for event in (*emitted, *logged)])
    assert events[0] == events[1]


async def test_data_of_a_failure_is_its_details_live_and_in_the_log() -> None:
    storage = InMemoryCheckpointStorage()
    bridge = function("bridge", Weather().pass_through)
    builder = WorkflowBuilder(start_executor=bridge, checkpoint_storage=storage).with_policy(bridge, on_error="skip")
    emitted = list(await builder.build().run("cart", thread_id="t"))
    logged = [event async for event in storage.follow("t", until_idle=True)]
    for events in (emitted, logged):
        failure = next(event for event in events if event.type == "executor_failed")
        assert isinstance(failure.data, WorkflowErrorDetails) and failure.data == failure.details


@pytest.mark.parametrize("name", ["request_id", "source_executor_id", "request_type", "response_type"])
def test_field_of_requests_on_another_event_raises_and_has_a_default(name: str) -> None:
    event = WorkflowEvent.output("a", 1)
    with pytest.raises(RuntimeError, match=f"{name} is only available for request_info events, got type='output'"):
        getattr(event, name)
    assert getattr(event, name, None) is None
    assert WorkflowEvent.from_dict(event.to_dict()) == event
    assert isolate([event]) == [event] and copy.deepcopy(event) == event


async def test_events_of_any_type_are_saved_in_the_state() -> None:
    events = [WorkflowEvent.output("a", [1]), WorkflowEvent.request_info("1", "a", {"k": 1}, str)]
    storage = InMemoryCheckpointStorage()
    flow = alone(lambda message, ctx: ctx.set_state("events", events), checkpoint_storage=storage)
    await flow.run("x", thread_id="t")
    checkpoint = await storage.load((await storage.list_checkpoint_infos())[-1].checkpoint_id)
    assert checkpoint.state["events"] == events


class Progress(WorkflowEvent[str]):
    """An event of a user's class, whose own attributes live consumers see."""

    def __init__(self, text: str, percent: int) -> None:
        super().__init__("progress", data=text)
        self.percent = percent


async def test_an_event_of_a_subclass_with_an_init_keeps_its_attributes_live() -> None:
    async def report(message: str, ctx: WorkflowContext) -> None:
        await ctx.add_event(Progress("half", 50))

    events = await streamed(alone(report), "x")
    (progress,) = [event for event in events if isinstance(event, Progress)]
    assert (progress.data, progress.percent, progress.executor_id) == ("half", 50, "only")


def test_the_init_of_an_event_rejects_unknown_fields() -> None:
    class Wrong(WorkflowEvent):
        def __init__(self) -> None:
            super().__init__("wrong", perent=3)  # type: ignore[call-arg]  # the point

    with pytest.raises(TypeError, match="unexpected argument 'perent'"):
        Wrong()
