"""Agents that hand a conversation off: the next agent, the input of each agent, and the end."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import pytest
from tests.unit.orchestrations.handoff_team import (
    CONVERSATION,
    FIRST,
    answer,
    answer_question,
    answers,
    handing_off,
    handoffs,
    recording_script,
    support,
    talked,
    team,
    to_public,
)

from perdure import InMemoryCheckpointStorage, WorkflowRunState
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.orchestrations import handoff as handoff_executor
from perdure.orchestrations.handoff import HandoffSentEvent
from perdure.orchestrations.participants import clean_conversation_for_handoff
from perdure.testing.scripted import Call, ScriptedAgent

Storage: TypeAlias = InMemoryCheckpointStorage


@pytest.fixture
def storage() -> Storage:
    return InMemoryCheckpointStorage()


async def test_support_case_passes_between_agents_in_new_workflow_objects(storage: Storage) -> None:
    result = await support(storage).run(FIRST, thread_id="t")
    outputs: list[tuple[str, str]] = []
    sent = handoffs(result)
    while responses := answers(result):
        outputs += [(str(output.messages[0].author_name), output.text) for output in result.get_outputs()]
        result = await support(storage).run(responses=responses, thread_id="t")
        sent += handoffs(result)
    assert to_public(await talked(storage, "t")) == CONVERSATION
    assert sent == [HandoffSentEvent("triage", "refunds"), HandoffSentEvent("refunds", "shipping")]
    assert outputs == [
        ("triage", "What is the order?"),
        ("triage", "Refunds will see to it."),
        ("refunds", "The lamp is refunded, the bulb is not: too late."),
        ("refunds", ""),
        ("shipping", "It comes tomorrow."),
    ]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_two_pending_approvals_are_answered_singly_in_new_objects(storage: Storage) -> None:
    first = await support(storage).run(FIRST, thread_id="t")
    asked = await support(storage).run(responses=answers(first), thread_id="t")
    lamp, bulb = asked.get_request_info_events()
    assert [event.data.function_call.name for event in (lamp, bulb)] == ["refund", "refund"]

    half = await support(storage).run(responses={str(bulb.request_id): answer(bulb)}, thread_id="t")
    assert [event.request_id for event in half.get_request_info_events()] == [lamp.request_id]
    done = await support(storage).run(responses={str(lamp.request_id): answer(lamp)}, thread_id="t")
    [response] = done.get_outputs()
    results = [
        content.result or content.exception
        for message in response.messages
        for content in message.of_type("function_result")
    ]
    assert results == ["80 paid back for the lamp", "Rejected: too late"]


async def test_next_agent_receives_the_conversation_without_tool_calls(storage: Storage) -> None:
    log: list[list[Message]] = []
    triage = ScriptedAgent(
        "triage", [Call("look"), handing_off("One moment.", "triage", "clerk"), "Back."], tools=[lambda: 1]
    )
    picture = Content.from_data(b"\x00", "image/png")
    start = Message("user", ["See:", picture])
    clerk = ScriptedAgent("clerk", recording_script(log, ["A lamp.", Call("handoff_to_triage")]))
    workflow = team(storage, triage, clerk).build()
    result = await workflow.run(start, thread_id="t")
    assert log == [[start, Message("assistant", "One moment.", "triage")]]
    await answer_question(workflow, result, "Thanks")
    assert log[1] == [*log[0], Message("assistant", "A lamp.", "clerk"), Message("user", "Thanks")]


async def test_agent_that_gets_the_floor_back_receives_each_message_once(storage: Storage) -> None:
    log: list[list[Message]] = []
    first = ScriptedAgent("first", recording_script(log, [handing_off("To you.", "first", "second"), "Mine again."]))
    second = ScriptedAgent("second", ["Who are you?", handing_off("Back to you.", "second", "first")])
    workflow = team(storage, first, second).build()
    result = await workflow.run("Hello", thread_id="t")
    await answer_question(workflow, result, "Ann")
    assert [message.text for message in log[1]] == ["Hello", "To you.", "", "Who are you?", "Ann", "Back to you."]


async def test_cleaning_keeps_message_objects_that_are_clean(storage: Storage) -> None:
    call = Content.from_function_call("1", "look")
    reply = Message("assistant", "Yes.", "a")
    picture = Content.from_data(b"\x00", "image/png")
    user = Message("user", ["See:", picture])
    mixed = Message("assistant", ["Let me look.", call, picture], "a", additional_properties={"x": 1})
    tool = Message("tool", [Content.from_function_result("1", result="a text")])
    approval = Message("user", [Content.from_function_approval_request("1", call).approve()])
    empty = Message("assistant", [""], "a")
    cleaned = clean_conversation_for_handoff([reply, user, mixed, tool, approval, empty])
    assert cleaned == [reply, user, Message("assistant", "Let me look.", "a", additional_properties={"x": 1})]
    assert cleaned[0] is reply
    assert cleaned[1] is user


# ---------------------------------------------------------------- who is next


async def test_the_first_of_two_handoffs_in_one_turn_counts(storage: Storage) -> None:
    a = ScriptedAgent("a", [[Call("handoff_to_c"), Call("handoff_to_b")]])
    b, c = ScriptedAgent("b", ["I am b."]), ScriptedAgent("c", ["I am c."])
    result = await team(storage, a, b, c).build().run("Hello", thread_id="t")
    assert handoffs(result) == [HandoffSentEvent("a", "c")]
    assert [output.text for output in result.get_outputs()] == ["", "I am c."]


async def test_invalid_handoff_is_reported_to_the_model_which_continues(storage: Storage) -> None:
    log: list[list[Message]] = []
    calls = [
        Call("handoff_to_nobody"),
        Call("handoff_to_a"),
        Call("handoff_to_c"),
        "Then I do it myself.",
    ]
    a = ScriptedAgent("a", recording_script(log, calls))
    workflow = team(storage, a, ScriptedAgent("b", []), ScriptedAgent("c", [])).add_handoff("a", ["b"]).build()
    result = await workflow.run("Hello", thread_id="t")
    errors = [content.exception for content in (part for m in log[-1] for part in m.of_type("function_result"))]
    assert errors == [f"No tool 'handoff_to_{name}' exists." for name in ("nobody", "a", "c")]
    assert handoffs(result) == []
    assert to_public(await talked(storage, "t")) == [("user", "Hello"), ("a", "Then I do it myself.")]


async def test_handoff_with_malformed_arguments_is_rejected_and_retried(storage: Storage) -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b", "{not json"), Call("handoff_to_b", {"reason": "b knows"})])
    result = await team(storage, a, ScriptedAgent("b", ["Here."])).build().run("Hello")
    assert [output.text for output in result.get_outputs()] == ["", "Here."]


async def test_start_agent_is_the_first_unless_it_is_named(storage: Storage) -> None:
    a, b = ScriptedAgent("a", ["I am a."]), ScriptedAgent("b", ["I am b."])
    for builder, expected in (
        (team(storage, a, b), "a"),
        (team(storage, a, b).with_start_agent("b"), "b"),
        (team(storage, a, b).with_start_agent(b), "b"),
    ):
        result = await builder.build().run("Hello")
        assert result.get_outputs()[0].text == f"I am {expected}."


async def test_reply_of_the_user_returns_to_the_previous_or_the_start_agent(
    storage: Storage,
) -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b"), "Me again."])
    b = ScriptedAgent("b", ["And you?", "Still me."])
    for returns, expected in ((True, "Still me."), (False, "Me again.")):
        workflow = team(storage, a, b).enable_return_to_previous(returns).build()
        result = await workflow.run("Hello", thread_id=f"returns {returns}")
        assert (await answer_question(workflow, result, "Fine.")).get_outputs()[0].text == expected


async def test_handoff_tools_have_the_description_of_the_handoff_or_target(storage: Storage) -> None:
    offered: list[Any] = []

    class Curious(ScriptedAgent):
        async def turn(self, messages: Any, session: Any, *, tools: Any = (), **kwargs: Any) -> AgentResponse:
            offered.extend((tool.name, tool.description) for tool in tools)
            return await super().turn(messages, session, tools=tools, **kwargs)

    a = Curious("a", ["Hello."])
    others = [ScriptedAgent("b c", [], description="Knows c."), ScriptedAgent("d", []), ScriptedAgent("e", [])]
    await (
        team(storage, a, *others)
        .add_handoff(a, others[:2])
        .add_handoff(a, ["d"], description="For d.")
        .build()
        .run("Hi")
    )
    assert offered == [("handoff_to_b_c", "Knows c."), ("handoff_to_d", "For d.")]


# ---------------------------------------------------------------- the end, and autonomous mode


async def test_termination_condition_ends_the_conversation_before_a_question(storage: Storage) -> None:
    async def later(messages: list[Message]) -> bool:
        return len(messages) >= 2

    for number, condition in enumerate((later, lambda messages: len(messages) >= 2)):
        workflow = team(storage, ScriptedAgent("a", ["Done."]), termination_condition=condition).build()
        result = await workflow.run("Hello", thread_id=f"t{number}")
        assert [output.text for output in result.get_outputs()] == ["Done."]
        assert result.get_final_state() is WorkflowRunState.IDLE


async def test_termination_condition_is_checked_before_a_turn_and_a_handoff(storage: Storage) -> None:
    a = ScriptedAgent("a", [handing_off("Goodbye.", "a", "b")])
    over = (
        team(storage, a, ScriptedAgent("b", []))
        .with_termination_condition(lambda messages: "Goodbye" in messages[-1].text)
        .build()
    )
    assert (await over.run("Goodbye", thread_id="t")).get_outputs() == []
    result = await over.run("Hello", thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Goodbye."]
    assert (handoffs(result), result.get_final_state()) == ([], WorkflowRunState.IDLE)


async def test_autonomous_agent_continues_up_to_its_limit_and_then_asks(storage: Storage) -> None:
    log: list[list[Message]] = []
    a = ScriptedAgent("a", recording_script(log, ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]))
    mode: dict[str, Any] = {"agents": [a], "prompts": {"a": "Go on."}, "turn_limits": {"a": 2}}
    workflow = team(storage, a, ScriptedAgent("b", [])).with_autonomous_mode(**mode).build()
    result = await workflow.run("Count", thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["One.", "Two.", "Three."]
    assert [message.text for message in log[-1]] == ["Count", "One.", "Go on.", "Two.", "Go on."]
    assert [text for _, text in to_public(await talked(storage, "t"))] == ["Count", "One.", "Two.", "Three."]
    again = await answer_question(workflow, result, "More")  # the user has spoken, so the count restarts
    assert [output.text for output in again.get_outputs()] == ["Four.", "Five.", "Six."]


async def test_all_agents_are_autonomous_by_default_with_a_limit_of_fifty_turns(storage: Storage) -> None:
    a = ScriptedAgent("a", [*["Hm."] * 3, Call("handoff_to_b")])
    b = ScriptedAgent("b", ["Well."] * 51)
    result = await team(storage, a, b).with_autonomous_mode().build().run("Hello")
    texts = [output.text for output in result.get_outputs()]
    assert texts == ["Hm."] * 3 + [""] + ["Well."] * 51


async def test_turn_limit_of_zero_asks_at_once(storage: Storage) -> None:
    a = ScriptedAgent("a", ["One.", "Two."])
    result = await team(storage, a).with_autonomous_mode(turn_limits={"a": 0}).build().run("Hello")
    assert [output.text for output in result.get_outputs()] == ["One."]


# ---------------------------------------------------------------- outputs, usage, streams


async def test_participants_may_be_outputs_or_intermediate_outputs(storage: Storage) -> None:
    a, b = ScriptedAgent("a", [Call("handoff_to_b")]), ScriptedAgent("b", ["Here."])
    result = await team(storage, a, b, output_from=["b"], intermediate_output_from="all_other").build().run("Hello")
    assert [output.text for output in result.get_outputs()] == ["Here."]
    assert len(result.get_intermediate_outputs()) == 1


async def test_words_stream_as_they_come_and_usage_adds_up_over_the_thread(storage: Storage) -> None:
    a = ScriptedAgent("a", [Call("handoff_to_b")], usage={"total_token_count": 3})
    b = ScriptedAgent("b", ["One word more.", "Yes."], usage={"total_token_count": 4})
    workflow = team(storage, a, b).build()
    stream = workflow.run("Hello", thread_id="t", stream=True)
    updates = [event async for event in stream if event.type == "output"]
    parts = [
        event.data for event in updates if isinstance(event.data, AgentResponseUpdate) and event.executor_id == "b"
    ]
    words = [part.text for part in parts if part.text]
    assert words == ["One", " word", " more."]
    result = await answer_question(workflow, await stream.get_final_response(), "Really?")
    assert result.usage == {"total_token_count": 11}


# ---------------------------------------------------------------- many


async def test_endless_handoffs_ask_the_user_after_a_hundred(
    storage: Storage,
) -> None:
    a, b = (
        ScriptedAgent("a", lambda _: Call("handoff_to_b")),
        ScriptedAgent("b", lambda _: Call("handoff_to_a")),
    )
    result = await team(storage, a, b).build().run("Hello", thread_id="t")
    assert len(handoffs(result)) == 101
    [warning] = [event.data for event in result if event.type == "warning"]
    assert "handed off 100 times in a row; before 'b' continues" in warning
    fixed = team(storage, a, ScriptedAgent("b", lambda _: "Enough.")).build()
    result = await answer_question(fixed, result, "Stop it")
    conversation = to_public(await talked(storage, "t"))
    assert conversation == [("user", "Hello"), ("user", "Stop it"), ("b", "Enough.")]


async def test_handoff_count_restarts_when_the_user_speaks(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff_executor, "MAX_HANDOFFS", 3)
    a, b = (
        ScriptedAgent("a", lambda _: Call("handoff_to_b")),
        ScriptedAgent("b", lambda _: Call("handoff_to_a")),
    )
    workflow = team(storage, a, b).build()
    result = await workflow.run("Hello", thread_id="t")
    assert len(handoffs(result)) == 4
    assert len(handoffs(await answer_question(workflow, result, "Go on"))) == 4


async def test_one_workflow_object_serves_isolated_threads_concurrently(
    storage: Storage,
) -> None:
    workflow = support(storage)
    cases = ["t1", "t2", "t3"]

    async def whole_case(thread_id: str) -> None:
        result = await workflow.run(FIRST, thread_id=thread_id)
        while responses := answers(result):
            result = await workflow.run(responses=responses, thread_id=thread_id)

    await asyncio.gather(*map(whole_case, cases))
    for thread_id in cases:
        assert to_public(await talked(storage, thread_id)) == CONVERSATION
