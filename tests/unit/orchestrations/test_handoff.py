"""Agents that hand a conversation off: who is next, what each of them is told, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.orchestrations.handoff_team import (
    CONVERSATION,
    FIRST,
    answer,
    answers,
    as_told,
    handing_off,
    refund,
    support,
    talked,
)

from holdfast import InMemoryCheckpointStorage, WorkflowRunState
from holdfast.agents.content import Content
from holdfast.agents.message import Message
from holdfast.agents.response import AgentResponse, AgentResponseUpdate
from holdfast.agents.workflows import Workflow
from holdfast.engine.result import WorkflowRunResult
from holdfast.errors import AnswerRejected
from holdfast.orchestrations.handoff import HandoffBuilder
from holdfast.orchestrations.handoff_messages import (
    HandoffAgentUserRequest,
    HandoffSentEvent,
    clean_conversation_for_handoff,
)
from holdfast.testing.scripted_agent import Call, ScriptedAgent

storage: InMemoryCheckpointStorage


@pytest.fixture(autouse=True)
def _empty_storage() -> None:
    global storage
    storage = InMemoryCheckpointStorage()


def team(*agents: ScriptedAgent, **options: Any) -> HandoffBuilder:
    return HandoffBuilder(participants=agents, checkpoint_storage=storage, **options)


def handoffs(result: WorkflowRunResult) -> list[HandoffSentEvent]:
    return [event.data for event in result if event.type == "handoff_sent"]


def question(result: WorkflowRunResult) -> tuple[str, HandoffAgentUserRequest]:
    [event] = result.get_request_info_events()
    return str(event.request_id), event.data


async def say(workflow: Workflow, result: WorkflowRunResult, said: Any) -> WorkflowRunResult:
    """Answer the one question that is open."""
    request_id, _ = question(result)
    return await workflow.run(responses={request_id: said}, thread_id=result.thread_id)


async def test_a_support_case_goes_from_agent_to_agent_each_turn_in_a_new_workflow_object() -> None:
    result = await support(storage).run(FIRST, thread_id="t")
    told: list[tuple[str, str]] = []
    sent = handoffs(result)
    while responses := answers(result):
        told += [(str(one.messages[0].author_name), one.text) for one in result.get_outputs()]
        result = await support(storage).run(responses=responses, thread_id="t")
        sent += handoffs(result)
    assert as_told(await talked(storage, "support", "t")) == CONVERSATION
    assert sent == [HandoffSentEvent("triage", "refunds"), HandoffSentEvent("refunds", "shipping")]
    assert told == [
        ("triage", "What is the order?"),
        ("triage", "Refunds will see to it."),
        ("refunds", "The lamp is refunded, the bulb is not: too late."),
        ("refunds", ""),
        ("shipping", "It comes tomorrow."),
    ]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_two_approvals_wait_at_once_and_are_answered_one_by_one_in_new_workflow_objects() -> None:
    first = await support(storage).run(FIRST, thread_id="t")
    asked = await support(storage).run(responses=answers(first), thread_id="t")
    lamp, bulb = asked.get_request_info_events()
    assert [one.data.function_call.name for one in (lamp, bulb)] == ["refund", "refund"]

    half = await support(storage).run(responses={str(bulb.request_id): answer(bulb)}, thread_id="t")
    assert [one.request_id for one in half.get_request_info_events()] == [lamp.request_id]
    done = await support(storage).run(responses={str(lamp.request_id): answer(lamp)}, thread_id="t")
    [response] = done.get_outputs()
    results = [
        one.result or one.exception for message in response.messages for one in message.of_type("function_result")
    ]
    assert results == ["80 paid back for the lamp", "Rejected: too late"]


def told_to(log: list[list[Message]], replies: list[Any]) -> Any:
    """A script that notes what its model is given."""

    def reply(messages: list[Message]) -> Any:
        log.append(messages)
        return replies.pop(0)

    return reply


async def test_the_next_agent_is_told_what_was_said_and_nothing_of_tools() -> None:
    log: list[list[Message]] = []
    triage = ScriptedAgent(
        "triage", [Call("look"), handing_off("One moment.", "triage", "clerk"), "Back."], tools=[lambda: 1]
    )
    picture = Content.from_data(b"\x00", "image/png")
    start = Message("user", ["See:", picture])
    clerk = ScriptedAgent("clerk", told_to(log, ["A lamp.", Call("handoff_to_triage")]))
    workflow = team(triage, clerk).build()
    result = await workflow.run(start, thread_id="t")
    assert log == [[start, Message("assistant", "One moment.", "triage")]]
    await say(workflow, result, "Thanks")
    assert log[1] == [*log[0], Message("assistant", "A lamp.", "clerk"), Message("user", "Thanks")]


async def test_an_agent_that_gets_the_floor_back_is_told_only_what_it_has_not_heard() -> None:
    log: list[list[Message]] = []
    first = ScriptedAgent("first", told_to(log, [handing_off("To you.", "first", "second"), "Mine again."]))
    second = ScriptedAgent("second", ["Who are you?", handing_off("Back to you.", "second", "first")])
    workflow = team(first, second).build()
    result = await workflow.run("Hello", thread_id="t")
    await say(workflow, result, "Ann")
    assert [one.text for one in log[1]] == ["Hello", "To you.", "", "Who are you?", "Ann", "Back to you."]


async def test_messages_are_cleaned_without_making_new_ones_of_those_that_are_clean() -> None:
    call = Content.from_function_call("1", "look")
    said = Message("assistant", "Yes.", "a")
    picture = Content.from_data(b"\x00", "image/png")
    user = Message("user", ["See:", picture])
    mixed = Message("assistant", ["Let me look.", call, picture], "a", additional_properties={"x": 1})
    tool = Message("tool", [Content.from_function_result("1", result="a text")])
    approval = Message("user", [Content.from_function_approval_request("1", call).approve()])
    empty = Message("assistant", [""], "a")
    cleaned = clean_conversation_for_handoff([said, user, mixed, tool, approval, empty])
    assert cleaned == [said, user, Message("assistant", "Let me look.", "a", additional_properties={"x": 1})]
    assert cleaned[0] is said
    assert cleaned[1] is user


# ---------------------------------------------------------------- who is next


async def test_the_first_of_two_handoffs_in_one_turn_counts() -> None:
    a = ScriptedAgent("a", [[Call("handoff_to_c"), Call("handoff_to_b")]])
    b, c = ScriptedAgent("b", ["I am b."]), ScriptedAgent("c", ["I am c."])
    result = await team(a, b, c).build().run("Hello", thread_id="t")
    assert handoffs(result) == [HandoffSentEvent("a", "c")]
    assert [one.text for one in result.get_outputs()] == ["", "I am c."]


async def test_a_handoff_to_nobody_and_to_oneself_is_told_to_the_model_which_goes_on() -> None:
    log: list[list[Message]] = []
    calls = [Call("handoff_to_nobody"), Call("handoff_to_a"), Call("handoff_to_c"), "Then I do it myself."]
    a = ScriptedAgent("a", told_to(log, calls))
    workflow = team(a, ScriptedAgent("b", []), ScriptedAgent("c", [])).add_handoff("a", ["b"]).build()
    result = await workflow.run("Hello", thread_id="t")
    told = [one.exception for one in (part for m in log[-1] for part in m.of_type("function_result"))]
    assert told == [f"There is no tool 'handoff_to_{name}'." for name in ("nobody", "a", "c")]
    assert handoffs(result) == []
    assert as_told(await talked(storage, "handoff", "t")) == [("user", "Hello"), ("a", "Then I do it myself.")]


async def test_arguments_that_a_handoff_does_not_take_do_not_keep_it_from_happening() -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b", "{not json")])
    result = await team(a, ScriptedAgent("b", ["Here."])).build().run("Hello")
    assert [one.text for one in result.get_outputs()] == ["", "Here."]


async def test_the_start_agent_may_be_named_and_is_the_first_one_otherwise() -> None:
    a, b = ScriptedAgent("a", ["I am a."]), ScriptedAgent("b", ["I am b."])
    for builder, expected in (
        (team(a, b), "a"),
        (team(a, b).with_start_agent("b"), "b"),
        (team(a, b).with_start_agent(b), "b"),
    ):
        result = await builder.build().run("Hello")
        assert result.get_outputs()[0].text == f"I am {expected}."


async def test_what_the_user_says_goes_to_the_start_agent_if_it_does_not_return_to_the_previous_one() -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b"), "Me again."])
    b = ScriptedAgent("b", ["And you?", "Still me."])
    for returns, expected in ((True, "Still me."), (False, "Me again.")):
        workflow = team(a, b).enable_return_to_previous(returns).build()
        result = await workflow.run("Hello", thread_id=f"returns {returns}")
        assert (await say(workflow, result, "Fine.")).get_outputs()[0].text == expected


async def test_tools_are_offered_with_what_was_said_of_the_handoff_or_of_the_target() -> None:
    offered: list[Any] = []

    class Curious(ScriptedAgent):
        async def turn(self, messages: Any, session: Any, *, tools: Any = (), **kwargs: Any) -> AgentResponse:
            offered.extend((one.name, one.description) for one in tools)
            return await super().turn(messages, session, tools=tools, **kwargs)

    a = Curious("a", ["Hello."])
    others = [ScriptedAgent("b c", [], description="Knows c."), ScriptedAgent("d", []), ScriptedAgent("e", [])]
    await team(a, *others).add_handoff(a, others[:2]).add_handoff(a, ["d"], description="For d.").build().run("Hi")
    assert offered == [("handoff_to_b_c", "Knows c."), ("handoff_to_d", "For d.")]


# ---------------------------------------------------------------- the user


async def test_an_agent_that_does_not_hand_off_asks_the_user_with_its_response() -> None:
    result = await team(ScriptedAgent("a", ["What is it?"])).build().run("Hello", thread_id="t")
    _, request = question(result)
    assert request.agent_response.text == "What is it?"
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


@pytest.mark.parametrize(
    "said",
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
async def test_the_user_answers_with_messages_or_just_a_text(said: Any) -> None:
    workflow = team(ScriptedAgent("a", ["What is it?", "I see."])).build()
    result = await say(workflow, await workflow.run("Hello", thread_id="t"), said)
    assert as_told(await talked(storage, "handoff", "t"))[2:] == [("user", "A lamp."), ("a", "I see.")]
    assert question(result)[1].agent_response.text == "I see."


async def test_an_answer_that_is_no_message_is_refused_and_the_question_stays() -> None:
    workflow = team(ScriptedAgent("a", ["What is it?", "I see."])).build()
    result = await workflow.run("Hello", thread_id="t")
    with pytest.raises(AnswerRejected, match="is still pending"):
        await say(workflow, result, 7)
    assert (await say(workflow, result, "A lamp.")).get_outputs()[0].text == "I see."


def test_an_answer_without_messages_is_refused_where_it_would_end_the_conversation_unsaid() -> None:
    with pytest.raises(ValueError, match=r"terminate\(\)"):
        HandoffAgentUserRequest.create_response([])
    with pytest.raises(TypeError, match="7"):
        HandoffAgentUserRequest.create_response([7])


async def test_the_user_ends_the_conversation_and_may_take_it_up_again_with_the_start_agent() -> None:
    def build() -> Workflow:
        a = ScriptedAgent("a", [Call("handoff_to_b"), "Here I am again."])
        return team(a, ScriptedAgent("b", ["And then?"])).build()

    asked = await build().run("Hello", thread_id="t")
    ended = await say(build(), asked, HandoffAgentUserRequest.terminate())
    assert (ended.get_final_state(), ended.get_outputs()) == (WorkflowRunState.IDLE, [])
    again = await build().run("One more thing", thread_id="t")
    assert [one.text for one in again.get_outputs()] == ["Here I am again."]
    assert as_told(await talked(storage, "handoff", "t")) == [
        ("user", "Hello"),
        ("b", "And then?"),
        ("user", "One more thing"),
        ("a", "Here I am again."),
    ]


async def test_a_new_message_while_an_agent_waits_for_the_user_is_heard_by_that_agent() -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b")])
    b = ScriptedAgent("b", ["And then?", "I see.", "Both of it."])
    workflow = team(a, b).build()
    asked = await workflow.run("Hello", thread_id="t")
    more = await workflow.run("By the way", thread_id="t")
    assert [one.text for one in more.get_outputs()] == ["I see."]
    late = await workflow.run(responses={question(asked)[0]: "Nothing."}, thread_id="t")
    assert [one.text for one in late.get_outputs()] == ["Both of it."]
    said = as_told(await talked(storage, "handoff", "t"))
    assert [text for _, text in said] == ["Hello", "And then?", "By the way", "I see.", "Nothing.", "Both of it."]


async def test_two_answers_at_once_are_two_messages_and_one_agent_has_the_floor() -> None:
    a = ScriptedAgent("a", ["Yes?", "Go on.", Call("handoff_to_b")])
    workflow = team(a, ScriptedAgent("b", ["Now me."])).build()
    asked = await workflow.run("Hello", thread_id="t")
    more = await workflow.run("Well,", thread_id="t")
    both = {str(one.request_id): f"answer {n}" for n, one in enumerate(more.get_request_info_events())}
    assert len(both) == 2
    assert question(asked)[0] in both
    result = await workflow.run(responses=both, thread_id="t")
    said = [text for _, text in as_told(await talked(storage, "handoff", "t"))]
    assert said == ["Hello", "Yes?", "Well,", "Go on.", "answer 0", "answer 1", "Now me."]
    assert len(result.get_request_info_events()) == 1


async def test_a_model_that_fails_leaves_the_thread_usable() -> None:
    def build(replies: list[Any]) -> Workflow:
        return team(ScriptedAgent("a", [Call("handoff_to_b")]), ScriptedAgent("b", replies)).build()

    with pytest.raises(ConnectionError, match="nobody answers"):
        await build([ConnectionError("nobody answers")]).run("Hello", thread_id="t")
    result = await build(["Here."]).run(thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["", "Here."]
    assert as_told(await talked(storage, "handoff", "t")) == [("user", "Hello"), ("b", "Here.")]


# ---------------------------------------------------------------- how it ends, and going on alone


async def test_a_termination_condition_ends_it_async_or_not_before_anybody_is_asked() -> None:
    async def later(said: list[Message]) -> bool:
        return len(said) >= 2

    for number, condition in enumerate((later, lambda said: len(said) >= 2)):
        workflow = team(ScriptedAgent("a", ["Done."]), termination_condition=condition).build()
        result = await workflow.run("Hello", thread_id=f"t{number}")
        assert [one.text for one in result.get_outputs()] == ["Done."]
        assert result.get_final_state() is WorkflowRunState.IDLE


async def test_a_termination_condition_is_asked_before_the_agent_speaks_and_before_a_handoff() -> None:
    a = ScriptedAgent("a", [handing_off("Goodbye.", "a", "b")])
    over = team(a, ScriptedAgent("b", [])).with_termination_condition(lambda said: "Goodbye" in said[-1].text).build()
    assert (await over.run("Goodbye", thread_id="t")).get_outputs() == []
    result = await over.run("Hello", thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["Goodbye."]
    assert (handoffs(result), result.get_final_state()) == ([], WorkflowRunState.IDLE)


async def test_an_autonomous_agent_goes_on_by_its_prompt_up_to_its_limit_and_then_asks() -> None:
    log: list[list[Message]] = []
    a = ScriptedAgent("a", told_to(log, ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]))
    mode: dict[str, Any] = {"agents": [a], "prompts": {"a": "Go on."}, "turn_limits": {"a": 2}}
    workflow = team(a, ScriptedAgent("b", [])).with_autonomous_mode(**mode).build()
    result = await workflow.run("Count", thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["One.", "Two.", "Three."]
    assert [one.text for one in log[-1]] == ["Count", "One.", "Go on.", "Two.", "Go on."]
    assert [text for _, text in as_told(await talked(storage, "handoff", "t"))] == ["Count", "One.", "Two.", "Three."]
    again = await say(workflow, result, "More")  # the user has spoken: it counts anew
    assert [one.text for one in again.get_outputs()] == ["Four.", "Five.", "Six."]


async def test_all_agents_are_autonomous_unless_some_are_named_and_fifty_turns_are_the_limit() -> None:
    a = ScriptedAgent("a", [*["Hm."] * 3, Call("handoff_to_b")])
    b = ScriptedAgent("b", ["Well."] * 51)
    result = await team(a, b).with_autonomous_mode().build().run("Hello")
    texts = [one.text for one in result.get_outputs()]
    assert texts == ["Hm."] * 3 + [""] + ["Well."] * 51


async def test_a_turn_limit_of_none_asks_at_once() -> None:
    a = ScriptedAgent("a", ["One.", "Two."])
    result = await team(a).with_autonomous_mode(turn_limits={"a": 0}).build().run("Hello")
    assert [one.text for one in result.get_outputs()] == ["One."]


# ---------------------------------------------------------------- outputs, usage, streams


async def test_participants_may_be_outputs_or_shown_on_the_way() -> None:
    a, b = ScriptedAgent("a", [Call("handoff_to_b")]), ScriptedAgent("b", ["Here."])
    result = await team(a, b, output_from=["b"], intermediate_output_from="all_other").build().run("Hello")
    assert [one.text for one in result.get_outputs()] == ["Here."]
    assert len(result.get_intermediate_outputs()) == 1


async def test_words_stream_as_they_come_and_usage_adds_up_over_the_thread() -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b")], usage={"total_token_count": 3})
    b = ScriptedAgent("b", ["One word more.", "Yes."], usage={"total_token_count": 4})
    workflow = team(a, b).build()
    stream = workflow.run("Hello", thread_id="t", stream=True)
    updates = [event async for event in stream if event.type == "data"]
    told = [one.data for one in updates if isinstance(one.data, AgentResponseUpdate) and one.executor_id == "b"]
    words = [one.text for one in told if one.text]
    assert words == ["One", " word", " more."]
    result = await say(workflow, await stream, "Really?")
    assert result.usage == {"total_token_count": 11}


# ---------------------------------------------------------------- while an agent has its turn


async def waiting_for_approval() -> tuple[WorkflowRunResult, str]:
    """A clerk waits for an approval, and an older question is open beside it."""
    workflow = clerk()
    asked = await workflow.run("Hello", thread_id="t")
    working = await workflow.run("My money", thread_id="t")
    assert len(working.get_request_info_events()) == 2
    return working, question(asked)[0]


def clerk() -> Workflow:
    replies: list[Any] = ["Yes?", Call("refund", {"item": "lamp", "amount": 80}), "Paid.", "You are welcome."]
    return team(ScriptedAgent("clerk", replies, tools=[refund])).build()


def approvals(result: WorkflowRunResult) -> dict[str, Any]:
    asked = [one for one in result.get_request_info_events() if isinstance(one.data, Content)]
    return {str(one.request_id): one.data.approve() for one in asked}


async def test_what_the_user_says_while_an_agent_has_its_turn_is_heard_after_it() -> None:
    working, _ = await waiting_for_approval()
    heard = await clerk().run("And thanks", thread_id="t")
    assert heard.get_outputs() == []
    done = await clerk().run(responses=approvals(working), thread_id="t")
    assert [one.text for one in done.get_outputs()] == ["Paid.", "You are welcome."]
    said = [text for _, text in as_told(await talked(storage, "handoff", "t"))]
    assert said == ["Hello", "Yes?", "My money", "Paid.", "And thanks", "You are welcome."]


async def test_a_conversation_that_the_user_ends_while_an_agent_has_its_turn_ends_after_it() -> None:
    working, older = await waiting_for_approval()
    await clerk().run(responses={older: HandoffAgentUserRequest.terminate()}, thread_id="t")
    done = await clerk().run(responses=approvals(working), thread_id="t")
    assert [one.text for one in done.get_outputs()] == ["Paid."]
    assert done.get_final_state() is WorkflowRunState.IDLE


# ---------------------------------------------------------------- many


async def test_agents_that_hand_off_to_each_other_without_end_ask_the_user_after_a_hundred_times() -> None:
    a, b = ScriptedAgent("a", lambda _: Call("handoff_to_b")), ScriptedAgent("b", lambda _: Call("handoff_to_a"))
    result = await team(a, b).build().run("Hello", thread_id="t")
    assert len(handoffs(result)) == 101
    [warning] = [event.data for event in result if event.type == "warning"]
    assert "handed off 100 times in a row; before 'b' goes on" in warning
    mended = team(a, ScriptedAgent("b", lambda _: "Enough.")).build()
    result = await say(mended, result, "Stop it")
    said = as_told(await talked(storage, "handoff", "t"))
    assert said == [("user", "Hello"), ("user", "Stop it"), ("b", "Enough.")]


async def test_one_workflow_object_serves_threads_side_by_side_that_know_nothing_of_each_other() -> None:
    workflow = support(storage)
    cases = ["t1", "t2", "t3"]

    async def whole_case(thread_id: str) -> None:
        result = await workflow.run(FIRST, thread_id=thread_id)
        while responses := answers(result):
            result = await workflow.run(responses=responses, thread_id=thread_id)

    await asyncio.gather(*map(whole_case, cases))
    for thread_id in cases:
        assert as_told(await talked(storage, "support", thread_id)) == CONVERSATION
