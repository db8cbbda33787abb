"""A Magentic team plans, works, judges and answers: the input of each agent, and replanning."""

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
    judged,
    kinds,
    private_of,
    remembered,
    team,
    warned,
)

from perdure import InMemoryCheckpointStorage, TypeCompatibilityError, WorkflowRunState
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.conversation.update import AgentResponseUpdate
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.tools import tool
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.orchestrations.group_chat import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
)
from perdure.orchestrations.magentic import MagenticProgressLedger, MagenticResetSignal, MagenticTaskLedger
from perdure.testing.scripted import Call, ScriptedAgent


async def test_manager_plans_assigns_work_and_answers() -> None:
    result = await team().run(TASK)

    [answer] = result.get_outputs()
    assert isinstance(answer, AgentResponse)
    assert answer.text == "Answer from: It is 7 metres."
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 3]
    plan, ledger, *_ = [event.data.content for event in result if event.type == "magentic_orchestrator"]
    assert "Plan 1" in plan.text
    assert TASK in plan.text
    assert isinstance(ledger, MagenticProgressLedger)
    assert ledger.instruction_or_question.answer == "Look it up."
    assert ledger.is_request_satisfied.reason == "because of is_request_satisfied"
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert result.get_intermediate_outputs() == []


async def test_manager_sees_its_facts_and_plan_when_it_judges() -> None:
    manager = Manager(PLAIN)
    await team(manager=manager).run(TASK)

    facts, plan, first, *_ = manager.received
    assert facts[0] == TASK
    assert plan[:3] == [TASK, facts[1], "Facts 1"]
    assert first[0] == TASK
    assert "Facts 1" in first[1] and "Plan 1" in first[1]
    assert len(first) == 3, "its questions for facts and plan are not part of the conversation"


async def test_each_participant_receives_the_plan_and_each_message_once() -> None:
    storage = InMemoryCheckpointStorage()
    rounds = [
        judged("researcher", "Look."),
        judged("writer", "Write."),
        judged("researcher", "Check."),
        judged(is_done=True),
    ]
    await team(storage, rounds).run(TASK, thread_id="t")

    plan = ("magentic_manager", "The team works on this task:")
    assert first_lines((await private_of(storage, "t", "writer"))["session"].messages) == [
        plan,
        ("magentic_manager", "Look."),
        ("researcher", "7 metres."),
        ("magentic_manager", "Write."),
        ("writer", "It is 7 metres."),
    ]
    assert first_lines((await private_of(storage, "t", "researcher"))["session"].messages) == [
        plan,
        ("magentic_manager", "Look."),
        ("researcher", "7 metres."),
        ("magentic_manager", "Write."),
        ("writer", "It is 7 metres."),
        ("magentic_manager", "Check."),
        ("researcher", "7.5 metres."),
    ]


# ---------------------------------------------------------------- stalls and limits


async def test_stalled_work_is_planned_again_and_agents_forget_it() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(*STALLING)
    result = await team(storage, manager=manager, max_stall_count=1).run(TASK, thread_id="t")

    ledgers = ["progress_ledger_updated"] * 3
    assert kinds(result) == ["plan_created", *ledgers, "replanned", *ledgers]
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    state = await remembered(storage, "t")
    assert (state.context.round_count, state.context.stall_count, state.context.reset_count) == (6, 0, 1)
    private = await private_of(storage, "t", "researcher")
    assert "7.5 metres." not in repr(private), "nothing is left of it anywhere"
    session = private["session"]
    assert session.session_id == "t/researcher/1"
    # The first reply of its script again: it has forgotten that it gave it.
    assert [text for name, text in first_lines(session.messages) if name == "researcher"] == ["7 metres."]
    assert "Plan 2" in session.messages[0].text
    replanning = next(texts for texts in manager.received if "lists of facts" in texts[-1])
    assert "7.5 metres." in replanning, "the new plan is made knowing what went wrong"
    after = manager.received[manager.received.index(replanning) + 2]
    assert "7.5 metres." not in after
    assert after[0] == TASK


async def test_turn_with_progress_offsets_a_stalled_turn() -> None:
    stalled, fine = judged(is_stalled=True), judged()
    rounds = [fine, stalled, fine, stalled, judged(is_done=True)]
    script = ScriptedAgent("researcher", lambda messages: "Another try.")
    result = await team(None, rounds, max_stall_count=1, participants=[script]).run(TASK)
    assert "replanned" not in kinds(result)


async def test_stall_before_the_first_turn_does_not_replan() -> None:
    rounds = [judged(is_stalled=True), judged(is_done=True)]
    result = await team(None, rounds, max_stall_count=0).run(TASK)
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 2]


async def test_answer_uses_existing_replies_when_no_reset_is_left() -> None:
    result = await team(None, *STALLING, max_stall_count=1, max_reset_count=0).run(TASK)
    assert [output.text for output in result.get_outputs()] == ["Answer from: 7.5 metres."]
    assert "replanned" not in kinds(result)
    [warning] = warned(result)
    assert warning == (
        f"The task {TASK!r} ends before it is done. The work does not progress, and the limit of 0 resets is reached."
    )


async def test_answer_uses_existing_replies_when_no_round_is_left() -> None:
    manager = Manager([judged()] * 5)
    result = await team(manager=manager, max_round_count=2).run(TASK)
    assert [output.text for output in result.get_outputs()] == ["Answer from: 7.5 metres."]
    assert kinds(result).count("progress_ledger_updated") == 2
    assert "The limit of 2 rounds is reached." in warned(result)[0]
    assert manager.received[-1][-2].startswith("The limit of 2 rounds is reached."), (
        "the manager knows why it has to answer"
    )


async def test_rounds_may_exceed_the_default_superstep_limit() -> None:
    script = ScriptedAgent("researcher", lambda messages: "More.")
    result = await team(None, [judged()] * 80, max_round_count=70, participants=[script]).run(TASK)
    assert kinds(result).count("progress_ledger_updated") == 70


# ---------------------------------------------------------------- people, and more tasks


async def test_finished_thread_takes_a_new_task_and_remembers_the_last() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    first = await team(storage, manager=manager).run(TASK, thread_id="t")
    second = await team(storage, manager=manager).run("And at Saint-Malo?", thread_id="t")

    assert [output.text for output in first.get_outputs()] == ["Answer from: It is 7 metres."]
    assert [output.text for output in second.get_outputs()] == ["Answer from: It is 7.5 metres."]
    state = await remembered(storage, "t")
    assert state.context.task == "And at Saint-Malo?"
    assert state.context.round_count == 3
    assert first_lines(state.dialogue) == [
        (None, TASK),
        ("manager", "Answer from: It is 7 metres."),
        (None, "And at Saint-Malo?"),
        ("manager", "Answer from: It is 7.5 metres."),
    ]
    new_facts = [texts for texts in manager.received if "take stock" in texts[-1]][1]
    assert new_facts[:3] == [TASK, "Answer from: It is 7 metres.", "And at Saint-Malo?"]


async def test_finished_thread_returns_its_answer_without_a_new_request() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    first = await team(storage, manager=manager).run(TASK, thread_id="t")
    asked = len(manager.received)
    again = await team(storage, manager=manager).run(thread_id="t")
    assert again.get_outputs() == first.get_outputs()
    assert len(manager.received) == asked


async def test_an_empty_task_is_answered_and_leaves_the_thread_usable() -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage).run("  ", thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["The task is empty: say what is to be done."]
    result = await team(storage).run(TASK, thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]


@pytest.mark.parametrize("task", [Message("user", TASK), [Message("user", TASK)], ["It is for a sailor.", TASK]])
async def test_a_task_may_be_a_message_or_several(task: Any) -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage).run(task, thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    assert (await remembered(storage, "t")).context.task == TASK


# ---------------------------------------------------------------- who takes part, and what is shown


async def test_tool_calls_stay_with_the_agent_that_made_them() -> None:
    @tool
    def gauge(place: str) -> str:
        return "7"

    storage = InMemoryCheckpointStorage()
    calling = ScriptedAgent("researcher", [Call("gauge", {"place": "Brest"}), "7 metres."], tools=[gauge])
    await team(storage, participants=[calling, crew()[1]]).run(TASK, thread_id="t")

    history = (await remembered(storage, "t")).context.chat_history
    assert {part.type for message in history for part in message.contents} == {"text"}
    assert any(
        message.of_type("function_call")
        for message in (await private_of(storage, "t", "researcher"))["session"].messages
    )


async def test_a_tool_that_needs_approval_waits_in_the_middle_of_the_work() -> None:
    @tool(approval=True)
    def gauge(place: str) -> str:
        return "7"

    storage = InMemoryCheckpointStorage()

    def make() -> Any:
        calling = ScriptedAgent("researcher", [Call("gauge", {"place": "Brest"}), "7 metres."], tools=[gauge])
        return team(storage, participants=[calling, crew()[1]])

    [asked] = (await make().run(TASK, thread_id="t")).get_request_info_events()
    assert asked.source_executor_id == "researcher"
    result = await make().run(thread_id="t", responses={asked.request_id: asked.data.approve()})
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]


class Gauge(Executor):
    """Answers with a plain text."""

    @handler
    async def read(self, request: AgentExecutorRequest, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"7 metres, asked: {request.messages[-1].text}")


async def test_an_executor_may_be_on_the_team_and_answer_with_a_text() -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage, participants=[Gauge("researcher"), crew()[1]]).run(TASK, thread_id="t")
    assert [output.text for output in result.get_outputs()] == ["Answer from: It is 7 metres."]
    history = (await remembered(storage, "t")).context.chat_history
    assert ("researcher", "7 metres, asked: Look it up.") in first_lines(history)


class Mate(Executor):
    """Takes part as executors do in a group chat, and can forget."""

    @handler
    async def receive(self, delivery: GroupChatParticipantMessage, ctx: WorkflowContext) -> None:
        ctx.private["heard"] = [*ctx.private.get("heard", []), *(message.text for message in delivery.messages[1:])]

    @handler
    async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        received = " ".join(ctx.private["heard"])
        await ctx.send_message(
            GroupChatResponseMessage(Message("assistant", f"{asked.additional_instruction} {received}"))
        )

    @handler
    async def forget(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private["heard"] = [f"reset {signal.reset_count}"]


async def test_group_chat_executor_on_the_team_is_reset_with_the_team() -> None:
    workflow = team(None, *STALLING, max_stall_count=1, participants=[crew()[0], Mate("writer")])
    result = await workflow.run(TASK)
    answer = "Answer from: Write it down. reset 1 Look it up. 7 metres."
    assert [output.text for output in result.get_outputs()] == [answer]


class Deaf(Executor):
    @handler
    async def receive(self, number: int, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        """Of no use to a team."""


def test_executor_without_the_needed_handler_is_rejected() -> None:
    with pytest.raises(TypeCompatibilityError, match=r"'writer'\. Source executor outputs types AgentExecutorRequest"):
        team(participants=[Deaf("writer")])


async def test_empty_reply_of_a_participant_is_recorded_as_no_answer() -> None:
    storage = InMemoryCheckpointStorage()
    silent = ScriptedAgent("researcher", [""])
    await team(storage, participants=[silent, crew()[1]]).run(TASK, thread_id="t")
    history = (await remembered(storage, "t")).context.chat_history
    assert ("researcher", "(researcher gave no answer.)") in first_lines(history)


async def test_team_outputs_are_returned_if_requested() -> None:
    result = await team(output_from=["writer"], intermediate_output_from="all_other").run(TASK)
    assert [output.text for output in result.get_outputs()] == ["It is 7 metres.", "Answer from: It is 7 metres."]
    assert [output.text for output in result.get_intermediate_outputs()] == ["7 metres."]


async def test_only_the_final_answer_of_the_manager_is_streamed() -> None:
    texts = [
        event.data.text
        async for event in team().run(TASK, stream=True)
        if event.type == "data" and event.executor_id == "magentic_orchestrator"
        if isinstance(event.data, AgentResponseUpdate)
    ]
    assert "".join(texts) == "Answer from: It is 7 metres."


async def test_task_ledger_option_is_the_first_plan_of_a_thread() -> None:
    manager = Manager(PLAIN)
    ledger = MagenticTaskLedger(Message("assistant", "Facts 1"), Message("assistant", "Ask the pilot."))
    result = await team(manager=manager, task_ledger=ledger).run(TASK)
    [plan, *_] = [event.data.content for event in result if event.type == "magentic_orchestrator"]
    assert "Ask the pilot." in plan.text
    assert not any("take stock" in texts[-1] for texts in manager.received)


async def test_usage_of_manager_and_team_adds_up() -> None:
    result = await team().run(TASK)
    assert result.usage == {"input_token_count": 8, "output_token_count": 8}  # 2 to plan, 3 ledgers, 2 turns, 1 answer
