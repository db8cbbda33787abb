"""A Magentic team pauses for plan review; the checkpoint and the approval resume it, on every storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import PLAIN, Manager, crew, remembered

from perdure import AlreadyAnswered, InMemoryCheckpointStorage, Workflow, WorkflowRunState
from perdure.orchestrations import MagenticBuilder, MagenticPlanReviewRequest
from perdure.testing import ScriptedAgent

MakeStorage = Callable[[], Any]

NAME = "magentic-researcher-writer"
"""Of a team that was given none."""
ANSWER = "Answer from: It is 7 metres."


def build_workflow(storage: Any) -> Workflow:
    researcher, writer = crew()
    manager = ScriptedAgent("manager", Manager(PLAIN))
    return MagenticBuilder(
        participants=[researcher, writer],
        enable_plan_review=True,
        checkpoint_storage=storage,
        manager_agent=manager,
    ).build()


async def run_until_reviewed(workflow: Workflow) -> MagenticPlanReviewRequest:
    """As the document has it."""
    plan_request = None
    async for ev in workflow.run("Draft a brief...", stream=True):
        if ev.type == "request_info" and isinstance(ev.data, MagenticPlanReviewRequest):
            plan_request = ev.data
        if ev.state == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            break
    assert plan_request is not None
    return plan_request


async def test_plan_is_approved_with_the_checkpoint_and_a_new_workflow_object(make_storage: MakeStorage) -> None:
    storage = make_storage()
    workflow = build_workflow(storage)
    plan_request = await run_until_reviewed(workflow)
    checkpoint = await storage.get_latest(workflow_name=workflow.name)

    workflow = build_workflow(storage)
    approval = plan_request.approve()
    outputs = []
    async for ev in workflow.run(
        checkpoint_id=checkpoint.checkpoint_id, stream=True, responses={plan_request.request_id: approval}
    ):
        if ev.type == "output":
            outputs.append(ev.data)

    assert [output.text for output in outputs] == [ANSWER]


async def test_the_checkpoint_holds_the_request_and_resuming_it_asks_again(make_storage: MakeStorage) -> None:
    storage = make_storage()
    plan_request = await run_until_reviewed(build_workflow(storage))
    checkpoint = await storage.get_latest(workflow_name=NAME)
    assert list(checkpoint.pending_request_info_events) == [plan_request.request_id]

    result = await build_workflow(storage).run(checkpoint_id=checkpoint.checkpoint_id)

    assert [event.data for event in result.get_request_info_events()] == [plan_request]
    assert result.get_final_state() == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_a_plan_that_is_sent_back_is_reviewed_again(make_storage: MakeStorage) -> None:
    storage = make_storage()
    first = await run_until_reviewed(build_workflow(storage))
    checkpoint = await storage.get_latest(workflow_name=NAME)

    back = await build_workflow(storage).run(
        checkpoint_id=checkpoint.checkpoint_id, responses={first.request_id: first.revise("Ask the pilot.")}
    )
    [event] = back.get_request_info_events()
    checkpoint = await storage.get_latest(workflow_name=NAME)
    result = await build_workflow(storage).run(
        checkpoint_id=checkpoint.checkpoint_id, responses={event.request_id: event.data.approve()}
    )

    assert event.data.request_id == event.request_id != first.request_id
    assert [output.text for output in result.get_outputs()] == [ANSWER]


async def test_one_checkpoint_is_approved_any_number_of_times(make_storage: MakeStorage) -> None:
    storage = make_storage()
    plan_request = await run_until_reviewed(build_workflow(storage))
    checkpoint = await storage.get_latest(workflow_name=NAME)
    responses = {plan_request.request_id: plan_request.approve()}

    for _ in range(2):
        result = await build_workflow(storage).run(checkpoint_id=checkpoint.checkpoint_id, responses=responses)
        assert [output.text for output in result.get_outputs()] == [ANSWER]

    latest = await storage.get_latest(workflow_name=NAME)
    with pytest.raises(AlreadyAnswered):
        await build_workflow(storage).run(checkpoint_id=latest.checkpoint_id, responses=responses)


async def test_every_checkpoint_of_the_flow_resumes_to_the_same_answer(make_storage: MakeStorage) -> None:
    storage = make_storage()
    plan_request = await run_until_reviewed(build_workflow(storage))
    responses = {plan_request.request_id: plan_request.approve()}
    latest = await storage.get_latest(workflow_name=NAME)
    await build_workflow(storage).run(checkpoint_id=latest.checkpoint_id, responses=responses)

    for saved in await storage.list_checkpoints(workflow_name=NAME):
        result = await build_workflow(storage).run(checkpoint_id=saved.checkpoint_id)
        if result.get_request_info_events():
            result = await build_workflow(storage).run(checkpoint_id=result.checkpoint_id, responses=responses)
        assert [output.text for output in result.get_outputs()] == [ANSWER]


async def test_the_counts_of_the_work_are_in_the_checkpoints() -> None:
    storage = InMemoryCheckpointStorage()
    result = await build_workflow(storage).run("Draft a brief...", thread_id="t")
    [event] = result.get_request_info_events()
    assert (await remembered(storage, "t")).context.round_count == 0
    await build_workflow(storage).run(thread_id="t", responses={event.request_id: event.data.approve()})
    state = await remembered(storage, "t")
    assert state.context.round_count == 3
    assert state.progress is not None
    assert state.progress.is_request_satisfied.answer is True
