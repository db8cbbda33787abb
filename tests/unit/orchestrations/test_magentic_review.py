"""Plan review: a plan that waits for a person, in another process and for as long as it takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import (
    PLAIN,
    STALLING,
    TASK,
    Manager,
    crew,
    first_lines,
    kinds,
    remembered,
    team,
)

from perdure import (
    AlreadyAnswered,
    AnswerRejected,
    InMemoryCheckpointStorage,
    RequestInfoFunctionArgs,
    WorkflowRunState,
)
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.graph.graph import WorkflowExecutor
from perdure.orchestrations.magentic import MagenticPlanReviewRequest, MagenticPlanReviewResponse
from perdure.orchestrations.magentic_builder import MagenticBuilder
from perdure.testing.scripted import ScriptedAgent
from perdure.workflows.builder import WorkflowBuilder

ANSWER = "Answer from: It is 7 metres."


def reviewed(storage: Any, **options: Any) -> Any:
    return team(storage, enable_plan_review=True, **options)


def asked(result: Any) -> MagenticPlanReviewRequest:
    [event] = result.get_request_info_events()
    request: MagenticPlanReviewRequest = event.data
    assert event.request_id == request.request_id
    return request


async def test_team_waits_until_the_plan_is_approved() -> None:
    storage = InMemoryCheckpointStorage()
    paused = await reviewed(storage).run(TASK, thread_id="t")

    assert paused.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert kinds(paused) == ["plan_created"]
    request = asked(paused)
    assert "Plan 1" in request.plan.text
    assert request.current_progress is None
    assert not request.is_stalled

    result = await reviewed(storage).run(thread_id="t", responses={request.request_id: request.approve()})
    assert [output.text for output in result.get_outputs()] == [ANSWER]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_revised_plan_includes_the_feedback_and_is_reviewed_again() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    first = asked(await reviewed(storage, manager=manager).run(TASK, thread_id="t"))
    again = await reviewed(storage, manager=manager).run(
        thread_id="t", responses={first.request_id: first.revise("Ask the pilot first.")}
    )
    assert kinds(again) == ["replanned"]
    second = asked(again)
    assert second.request_id != first.request_id
    assert "Plan 2" in second.plan.text
    assert "Ask the pilot first." in manager.received[2]

    third = asked(
        await reviewed(storage, manager=manager).run(
            thread_id="t", responses={second.request_id: second.revise(["No.", Message("user", "Shorter.")])}
        )
    )
    assert "Plan 3" in third.plan.text
    result = await reviewed(storage, manager=manager).run(thread_id="t", responses={third.request_id: third.approve()})
    assert [output.text for output in result.get_outputs()] == [ANSWER]
    assert [text for _, text in first_lines((await remembered(storage, "t")).dialogue)] == [
        TASK,
        "Ask the pilot first.",
        "No.",
        "Shorter.",
        ANSWER,
    ]


async def test_plan_after_a_stall_is_reviewed_with_the_judgement_behind_it() -> None:
    storage = InMemoryCheckpointStorage()

    def make() -> Any:
        return reviewed(storage, manager=Manager(*STALLING), max_stall_count=1)

    first = asked(await make().run(TASK, thread_id="t"))
    stalled = asked(await make().run(thread_id="t", responses={first.request_id: first.approve()}))
    assert stalled.is_stalled
    assert "Plan 2" in stalled.plan.text
    assert stalled.current_progress is not None
    assert stalled.current_progress.is_in_loop.answer is True
    revised = asked(await make().run(thread_id="t", responses={stalled.request_id: stalled.revise("Be quick.")}))
    assert revised.is_stalled
    result = await make().run(thread_id="t", responses={revised.request_id: revised.approve()})
    assert [output.text for output in result.get_outputs()] == [ANSWER]
    assert (await remembered(storage, "t")).context.reset_count == 1


async def test_review_is_pending_once_after_repeated_resumes() -> None:
    storage = InMemoryCheckpointStorage()
    request = asked(await reviewed(storage).run(TASK, thread_id="t"))
    for _ in range(2):
        assert asked(await reviewed(storage).run(thread_id="t")) == request
    answers = {request.request_id: request.approve()}
    await reviewed(storage).run(thread_id="t", responses=answers)
    with pytest.raises(AlreadyAnswered):
        await reviewed(storage).run(thread_id="t", responses=answers)


async def test_message_during_the_review_reaches_the_manager() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    request = asked(await reviewed(storage, manager=manager).run(TASK, thread_id="t"))
    assert asked(await reviewed(storage, manager=manager).run("In feet, please.", thread_id="t")) == request
    assert len(manager.received) == 2, "nothing was planned for it"
    result = await reviewed(storage, manager=manager).run(
        thread_id="t", responses={request.request_id: request.approve()}
    )
    assert [output.text for output in result.get_outputs()] == [ANSWER]
    assert "In feet, please." in manager.received[2]


async def test_an_answer_of_another_kind_is_rejected_and_the_plan_still_waits() -> None:
    storage = InMemoryCheckpointStorage()
    request = asked(await reviewed(storage).run(TASK, thread_id="t"))
    with pytest.raises(AnswerRejected, match="MagenticPlanReviewResponse"):
        await reviewed(storage).run(thread_id="t", responses={request.request_id: "yes"})
    assert asked(await reviewed(storage).run(thread_id="t")) == request


async def test_an_answer_may_come_as_json() -> None:
    storage = InMemoryCheckpointStorage()
    request = asked(await reviewed(storage).run(TASK, thread_id="t"))
    sent_back = {"review": [{"role": "user", "contents": [{"type": "text", "text": "Shorter."}]}]}
    second = asked(await reviewed(storage).run(thread_id="t", responses={request.request_id: sent_back}))
    result = await reviewed(storage).run(thread_id="t", responses={second.request_id: {"review": []}})
    assert [output.text for output in result.get_outputs()] == [ANSWER]


@pytest.mark.parametrize("feedback", ["", "  ", [], [Message("user", "")]])
def test_revision_without_feedback_is_rejected(feedback: Any) -> None:
    with pytest.raises(ValueError, match="To approve the plan, use approve"):
        MagenticPlanReviewResponse.revise(feedback)


async def test_review_can_be_turned_on_and_off_by_the_builder() -> None:
    builder = MagenticBuilder(participants=crew(), manager_agent=ScriptedAgent("manager", Manager(PLAIN)))
    builder.with_plan_review().with_checkpointing(InMemoryCheckpointStorage())
    assert "Plan 1" in asked(await builder.build().run(TASK)).plan.text
    result = await builder.with_plan_review(False).build().run(TASK)
    assert [output.text for output in result.get_outputs()] == [ANSWER]


async def test_inner_team_has_its_plans_reviewed_by_the_outer_workflow() -> None:
    storage = InMemoryCheckpointStorage()

    def make() -> Any:
        inner = reviewed(None, manager=Manager(*STALLING), max_stall_count=1)
        child = WorkflowExecutor(inner, "child", propagate_request=True, allow_direct_output=True)
        return WorkflowBuilder(name="harbour", start_executor=child, checkpoint_storage=storage).build()

    first = asked(await make().run(TASK, thread_id="t"))
    second = asked(await make().run(thread_id="t", responses={first.request_id: first.approve()}))
    assert second.is_stalled
    result = await make().run(thread_id="t", responses={second.request_id: second.approve()})
    assert [output.text for output in result.get_outputs()] == [ANSWER]


# ---------------------------------------------------------------- as an agent


async def test_team_as_an_agent_answers_and_continues_in_its_session() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s")
    response = await team(storage).as_agent("tides").run(TASK, session=session)
    assert response.text == ANSWER
    again = await team(storage).as_agent("tides").run("And at Saint-Malo?", session=session)
    assert again.text == "Answer from: It is 7.5 metres."


async def test_a_team_that_is_an_agent_streams_its_answer() -> None:
    stream = team(InMemoryCheckpointStorage()).as_agent("tides").run(TASK, stream=True)
    assert "".join([update.text async for update in stream]) == ANSWER


async def test_team_as_an_agent_requests_plan_review_by_a_function_call() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s")
    response = await reviewed(storage).as_agent("tides").run(TASK, session=session)
    [call] = [content for message in response.messages for content in message.of_type("function_call")]
    assert call.name == "request_info"
    arguments = RequestInfoFunctionArgs.from_dict(call.parse_arguments())
    assert arguments.request_id == arguments.request_event.data.request_id == call.call_id
    approval = Content.from_function_result(str(call.call_id), result=MagenticPlanReviewResponse.approve())
    answered = await reviewed(storage).as_agent("tides").run(Message("tool", [approval]), session=session)
    assert answered.text == ANSWER
