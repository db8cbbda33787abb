"""The durable log of a thread: which events it keeps, which only watchers receive, and how it is read back."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest
from tests.unit.engine.flows import Weather, alone, asking, crossing, kinds

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowEvent, WorkflowEventSource, WorkflowRunState


async def log_of(workflow: Workflow, thread_id: str = "t") -> list[WorkflowEvent]:
    async with workflow.open(thread_id=thread_id) as run:
        return [event async for event in run.events(after=0)]


def adding(event: WorkflowEvent) -> Workflow:
    return alone(lambda message, ctx: ctx.add_event(event), checkpoint_storage=InMemoryCheckpointStorage())


async def test_custom_event_of_an_executor_is_kept_with_its_data_and_origin() -> None:
    workflow = adding(WorkflowEvent("progress", {"done": (1, 2)}))
    await workflow.run("x", thread_id="t")
    (event,) = [event for event in await log_of(workflow) if event.type == "progress"]
    assert (event.data, event.origin, event.executor_id) == ({"done": (1, 2)}, WorkflowEventSource.EXECUTOR, "only")


async def test_custom_event_that_cannot_be_stored_does_not_fail_the_run() -> None:
    workflow = adding(WorkflowEvent("progress", Lock()))
    result = await workflow.run("x", thread_id="t")
    assert "progress" in kinds(result) and result.get_final_state() is WorkflowRunState.IDLE
    assert "progress" not in kinds(await log_of(workflow))


async def test_tokens_are_never_part_of_the_log() -> None:
    workflow = adding(WorkflowEvent.emit("only", "a token"))
    assert "data" in kinds(await workflow.run("x", thread_id="t"))
    assert "data" not in kinds(await log_of(workflow))


async def test_a_failure_is_logged_with_its_details_and_nothing_of_its_superstep() -> None:
    workflow = crossing(Weather(), checkpoint_storage=InMemoryCheckpointStorage())
    with pytest.raises(ConnectionError):
        await workflow.run("cart", thread_id="t")
    logged = await log_of(workflow)
    (failed,) = [event for event in logged if event.type == "failed"]
    assert failed.details is not None and failed.details.message == "the bridge is closed"
    assert logged[-1].state is WorkflowRunState.FAILED
    assert [event.iteration for event in logged if event.type == "superstep_started"] == [1]


async def test_seqs_continue_over_runs_and_objects_without_a_gap() -> None:
    storage, weather = InMemoryCheckpointStorage(), Weather()
    with pytest.raises(ConnectionError):
        await crossing(weather, checkpoint_storage=storage).run("cart", thread_id="t")
    weather.is_bad = False
    await crossing(weather, checkpoint_storage=storage).run(thread_id="t")
    logged = await log_of(crossing(weather, checkpoint_storage=storage))
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
    assert len({event.run_id for event in logged}) == 2
    assert [event.data for event in logged if event.type == "output"] == ["cart"]


async def test_a_request_is_read_back_with_its_types_and_terms() -> None:
    workflow = asking(int | None, terms={"assignee": "ann"}, checkpoint_storage=InMemoryCheckpointStorage())
    await workflow.run("why", thread_id="t")
    (request,) = [event for event in await log_of(workflow) if event.type == "request_info"]
    expected: Any = int | None
    assert request.response_type == expected and request.data.text == "why"
    assert request.terms is not None and request.terms.assignee == "ann" and request.seq is not None
