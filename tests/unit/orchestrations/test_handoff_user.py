"""The user in a handoff: asked, answering, and speaking without being asked."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from tests.unit.orchestrations.handoff_team import answer_question, question, refund, talked, team, to_public

from perdure import InMemoryCheckpointStorage, WorkflowRunState
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import AnswerRejected
from perdure.orchestrations.handoff import HandoffAgentUserRequest
from perdure.testing.scripted import Call, ScriptedAgent
from perdure.workflows.workflow import Workflow

Storage: TypeAlias = InMemoryCheckpointStorage


@pytest.fixture
def storage() -> Storage:
    return InMemoryCheckpointStorage()


async def test_an_agent_that_does_not_hand_off_asks_the_user_with_its_response(storage: Storage) -> None:
    result = await team(storage, ScriptedAgent("a", ["What is it?"])).build().run("Hello", thread_id="t")
    _, request = question(result)
    assert request.agent_response.text == "What is it?"
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


@pytest.mark.parametrize(
    "reply",
    [
        "A lamp.",
        ["A lamp."],
        Message("user", "A lamp."),
        [Message("user", "A lamp.")],
        HandoffAgentUserRequest.create_response("A lamp."),
        [{"role": "user", "contents": [{"type": "text", "text": "A lamp."}]}],
    ],
    ids=["text", "texts", "message", "messages", "create_response", "as JSON"],
)
async def test_the_user_answers_with_messages_or_just_a_text(storage: Storage, reply: Any) -> None:
    workflow = team(storage, ScriptedAgent("a", ["What is it?", "I see."])).build()
    result = await answer_question(workflow, await workflow.run("Hello", thread_id="t"), reply)
    assert to_public(await talked(storage, "t"))[2:] == [("user", "A lamp."), ("a", "I see.")]
    assert question(result)[1].agent_response.text == "I see."


async def test_invalid_answer_is_rejected_and_the_question_stays(storage: Storage) -> None:
    workflow = team(storage, ScriptedAgent("a", ["What is it?", "I see."])).build()
    result = await workflow.run("Hello", thread_id="t")
    with pytest.raises(AnswerRejected, match="is still pending"):
        await answer_question(workflow, result, 7)
    assert (await answer_question(workflow, result, "A lamp.")).get_outputs()[0].text == "I see."


def test_create_response_rejects_an_answer_without_messages() -> None:
    with pytest.raises(ValueError, match=r"terminate\(\)"):
        HandoffAgentUserRequest.create_response([])
    with pytest.raises(TypeError, match="7"):
        HandoffAgentUserRequest.create_response([7])


async def test_user_can_end_a_conversation_and_restart_it_with_the_start_agent(storage: Storage) -> None:
    def build() -> Workflow:
        a = ScriptedAgent("a", [Call("handoff_to_b"), "Here I am again."])
        return team(storage, a, ScriptedAgent("b", ["And then?"])).build()

    asked = await build().run("Hello", thread_id="t")
    ended = await answer_question(build(), asked, HandoffAgentUserRequest.terminate())
    assert (ended.get_final_state(), ended.get_outputs()) == (WorkflowRunState.IDLE, [])
    again = await build().run("One more thing", thread_id="t")
    assert [output.text for output in again.get_outputs()] == ["Here I am again."]
    assert to_public(await talked(storage, "t")) == [
        ("user", "Hello"),
        ("b", "And then?"),
        ("user", "One more thing"),
        ("a", "Here I am again."),
    ]


async def test_new_message_reaches_the_agent_that_waits_for_the_user(storage: Storage) -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b")])
    b = ScriptedAgent("b", ["And then?", "I see.", "Both of it."])
    workflow = team(storage, a, b).build()
    asked = await workflow.run("Hello", thread_id="t")
    more = await workflow.run("By the way", thread_id="t")
    assert [output.text for output in more.get_outputs()] == ["I see."]
    late = await workflow.run(responses={question(asked)[0]: "Nothing."}, thread_id="t")
    assert [output.text for output in late.get_outputs()] == ["Both of it."]
    conversation = to_public(await talked(storage, "t"))
    assert [text for _, text in conversation] == [
        "Hello",
        "And then?",
        "By the way",
        "I see.",
        "Nothing.",
        "Both of it.",
    ]


async def test_two_answers_at_once_are_two_messages_and_one_agent_has_the_floor(storage: Storage) -> None:
    a = ScriptedAgent("a", ["Yes?", "Go on.", Call("handoff_to_b")])
    workflow = team(storage, a, ScriptedAgent("b", ["Now me."])).build()
    asked = await workflow.run("Hello", thread_id="t")
    more = await workflow.run("Well,", thread_id="t")
    both = {str(event.request_id): f"answer {n}" for n, event in enumerate(more.get_request_info_events())}
    assert len(both) == 2
    assert question(asked)[0] in both
    result = await workflow.run(responses=both, thread_id="t")
    texts = [text for _, text in to_public(await talked(storage, "t"))]
    assert texts == ["Hello", "Yes?", "Well,", "Go on.", "answer 0", "answer 1", "Now me."]
    assert len(result.get_request_info_events()) == 1


async def test_a_model_that_fails_leaves_the_thread_usable(storage: Storage) -> None:
    def build(replies: list[Any]) -> Workflow:
        return team(storage, ScriptedAgent("a", [Call("handoff_to_b")]), ScriptedAgent("b", replies)).build()

    with pytest.raises(ConnectionError, match="nobody answers"):
        await build([ConnectionError("nobody answers")]).run("Hello", thread_id="t")
    result = await build(["Here."]).run(thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["", "Here."]
    assert to_public(await talked(storage, "t")) == [("user", "Hello"), ("b", "Here.")]


# ---------------------------------------------------------------- while an agent has its turn


async def waiting_for_approval(storage: Storage) -> tuple[WorkflowRunResult, str]:
    """A clerk waits for an approval, and an older question is open beside it."""
    workflow = clerk(storage)
    asked = await workflow.run("Hello", thread_id="t")
    working = await workflow.run("My money", thread_id="t")
    assert len(working.get_request_info_events()) == 2
    return working, question(asked)[0]


def clerk(storage: Storage) -> Workflow:
    replies: list[Any] = ["Yes?", Call("refund", {"item": "lamp", "amount": 80}), "Paid.", "You are welcome."]
    return team(storage, ScriptedAgent("clerk", replies, tools=[refund])).build()


def approvals(result: WorkflowRunResult) -> dict[str, Any]:
    asked = [event for event in result.get_request_info_events() if isinstance(event.data, Content)]
    return {str(event.request_id): event.data.approve() for event in asked}


async def test_message_during_a_turn_is_delivered_after_that_turn(storage: Storage) -> None:
    working, _ = await waiting_for_approval(storage)
    result = await clerk(storage).run("And thanks", thread_id="t")
    assert result.get_outputs() == []
    done = await clerk(storage).run(responses=approvals(working), thread_id="t")
    assert [output.text for output in done.get_outputs()] == ["Paid.", "You are welcome."]
    texts = [text for _, text in to_public(await talked(storage, "t"))]
    assert texts == ["Hello", "Yes?", "My money", "Paid.", "And thanks", "You are welcome."]


async def test_conversation_that_the_user_ends_during_a_turn_ends_after_it(storage: Storage) -> None:
    working, older = await waiting_for_approval(storage)
    await clerk(storage).run(responses={older: HandoffAgentUserRequest.terminate()}, thread_id="t")
    done = await clerk(storage).run(responses=approvals(working), thread_id="t")
    assert [output.text for output in done.get_outputs()] == ["Paid."]
    assert done.get_final_state() is WorkflowRunState.IDLE


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "in this object only"])
async def test_failing_termination_condition_loses_no_message(is_stored: bool) -> None:
    troubles = [ValueError("not now")]

    def is_over(messages: list[Message]) -> bool:
        if len(messages) == 5 and troubles:
            raise troubles.pop()
        return False

    replies: list[Any] = ["Yes?", Call("refund", {"item": "lamp", "amount": 80}), "Paid.", "You are welcome."]
    agent = ScriptedAgent("clerk", replies, tools=[refund])
    stored = InMemoryCheckpointStorage() if is_stored else None
    workflow = team(stored, agent, termination_condition=is_over).build()
    await workflow.run("Hello", thread_id="t")
    working = await workflow.run("My money", thread_id="t")
    await workflow.run("And thanks", thread_id="t")
    with pytest.raises(ValueError, match="not now"):
        await workflow.run(responses=approvals(working), thread_id="t")
    done = await workflow.run(thread_id="t")
    assert [output.text for output in done.get_outputs()] == ["Paid.", "You are welcome."]
