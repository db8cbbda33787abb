"""A Magentic team: planned, worked, judged and answered; what each of them is told; what begins anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.magentic_team import (
    PLAIN,
    STALLING,
    TASK,
    Manager,
    crew,
    judged,
    kinds,
    private_of,
    remembered,
    said,
    team,
    warned,
)

from perdure import InMemoryCheckpointStorage, WorkflowRunState
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, AgentResponseUpdate
from perdure.agents.executor import AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.tools import tool
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor
from perdure.graph.handlers import handler
from perdure.orchestrations.group_chat.types import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
)
from perdure.orchestrations.magentic.ledger import MagenticProgressLedger, MagenticResetSignal, MagenticTaskLedger
from perdure.testing.scripted import Call, ScriptedAgent


async def test_the_manager_plans_says_who_does_what_and_answers() -> None:
    result = await team().run(TASK)

    [answer] = result.get_outputs()
    assert isinstance(answer, AgentResponse)
    assert answer.text == "Answer from: It is 7 metres."
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 3]
    plan, ledger, *_ = [one.data.content for one in result if one.type == "magentic_orchestrator"]
    assert "Plan 1" in plan.text
    assert TASK in plan.text
    assert isinstance(ledger, MagenticProgressLedger)
    assert ledger.instruction_or_question.answer == "Look it up."
    assert ledger.is_request_satisfied.reason == "because of is_request_satisfied"
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert result.get_intermediate_outputs() == []


async def test_what_the_manager_found_while_it_planned_is_there_when_it_judges() -> None:
    manager = Manager(PLAIN)
    await team(manager=manager).run(TASK)

    facts, plan, first, *_ = manager.heard
    assert facts[0] == TASK
    assert plan[:3] == [TASK, facts[1], "Facts 1"]
    assert first[:5] == [*plan, "Plan 1"]


async def test_each_participant_is_told_the_plan_and_all_that_was_said_once() -> None:
    storage = InMemoryCheckpointStorage()
    rounds = [
        judged("researcher", "Look."),
        judged("writer", "Write."),
        judged("researcher", "Check."),
        judged(is_done=True),
    ]
    await team(storage, rounds).run(TASK, thread_id="t")

    plan = ("magentic_manager", "The team works on this task:")
    assert said((await private_of(storage, "t", "writer"))["session"].messages) == [
        plan,
        ("magentic_manager", "Look."),
        ("researcher", "7 metres."),
        ("magentic_manager", "Write."),
        ("writer", "It is 7 metres."),
    ]
    assert said((await private_of(storage, "t", "researcher"))["session"].messages) == [
        plan,
        ("magentic_manager", "Look."),
        ("researcher", "7 metres."),
        ("magentic_manager", "Write."),
        ("writer", "It is 7 metres."),
        ("magentic_manager", "Check."),
        ("researcher", "7.5 metres."),
    ]


# ---------------------------------------------------------------- stalls and limits


async def test_work_that_gets_nowhere_is_planned_anew_and_the_agents_know_nothing_of_it() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(*STALLING)
    result = await team(storage, manager=manager, max_stall_count=1).run(TASK, thread_id="t")

    ledgers = ["progress_ledger_updated"] * 3
    assert kinds(result) == ["plan_created", *ledgers, "replanned", *ledgers]
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]
    state = await remembered(storage, "t")
    assert (state.context.round_count, state.context.stall_count, state.context.reset_count) == (6, 0, 1)
    private = await private_of(storage, "t", "researcher")
    assert "7.5 metres." not in repr(private), "nothing is left of it anywhere"
    session = private["session"]
    assert session.session_id == "t/researcher/1"
    # The first reply of its script again: it has forgotten that it gave it.
    assert [text for name, text in said(session.messages) if name == "researcher"] == ["7 metres."]
    assert "Plan 2" in session.messages[0].text
    replanning = next(heard for heard in manager.heard if "lists of facts" in heard[-1])
    assert "7.5 metres." in replanning, "the new plan is made knowing what went wrong"
    after = manager.heard[manager.heard.index(replanning) + 2]
    assert "7.5 metres." not in after
    assert after[0] == TASK


async def test_a_turn_with_progress_makes_up_for_one_without() -> None:
    stalled, fine = judged(is_stalled=True), judged()
    rounds = [fine, stalled, fine, stalled, judged(is_done=True)]
    script = ScriptedAgent("researcher", lambda messages: "Another try.")
    result = await team(None, rounds, max_stall_count=1, participants=[script]).run(TASK)
    assert "replanned" not in kinds(result)


async def test_a_stall_before_anybody_has_spoken_plans_nothing_anew() -> None:
    rounds = [judged(is_stalled=True), judged(is_done=True)]
    result = await team(None, rounds, max_stall_count=0).run(TASK)
    assert kinds(result) == ["plan_created", *["progress_ledger_updated"] * 2]


async def test_where_no_reset_is_left_the_answer_is_made_from_what_there_is() -> None:
    result = await team(None, *STALLING, max_stall_count=1, max_reset_count=0).run(TASK)
    assert [one.text for one in result.get_outputs()] == ["Answer from: 7.5 metres."]
    assert "replanned" not in kinds(result)
    [warning] = warned(result)
    assert warning == (
        f"The task {TASK!r} ends before it is done. The work does not progress, and the limit of 0 resets is reached."
    )


async def test_where_no_round_is_left_the_answer_is_made_from_what_there_is() -> None:
    manager = Manager([judged()] * 5)
    result = await team(manager=manager, max_round_count=2).run(TASK)
    assert [one.text for one in result.get_outputs()] == ["Answer from: 7.5 metres."]
    assert kinds(result).count("progress_ledger_updated") == 2
    assert "The limit of 2 rounds is reached." in warned(result)[0]
    assert manager.heard[-1][-2].startswith("The limit of 2 rounds is reached."), (
        "the manager knows why it has to answer"
    )


async def test_more_rounds_than_a_workflow_has_supersteps_by_default_are_possible() -> None:
    script = ScriptedAgent("researcher", lambda messages: "More.")
    result = await team(None, [judged()] * 80, max_round_count=70, participants=[script]).run(TASK)
    assert kinds(result).count("progress_ledger_updated") == 70


# ---------------------------------------------------------------- people, and more tasks


async def test_a_thread_that_is_done_takes_a_new_task_and_knows_the_last() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    first = await team(storage, manager=manager).run(TASK, thread_id="t")
    second = await team(storage, manager=manager).run("And at Saint-Malo?", thread_id="t")

    assert [one.text for one in first.get_outputs()] == ["Answer from: It is 7 metres."]
    assert [one.text for one in second.get_outputs()] == ["Answer from: It is 7.5 metres."]
    state = await remembered(storage, "t")
    assert state.context.task == "And at Saint-Malo?"
    assert state.context.round_count == 3
    assert said(state.dialogue) == [
        (None, TASK),
        ("manager", "Answer from: It is 7 metres."),
        (None, "And at Saint-Malo?"),
        ("manager", "Answer from: It is 7.5 metres."),
    ]
    new_facts = [heard for heard in manager.heard if "take stock" in heard[-1]][1]
    assert new_facts[:3] == [TASK, "Answer from: It is 7 metres.", "And at Saint-Malo?"]


async def test_a_thread_that_is_done_gives_its_answer_again_without_asking_anybody() -> None:
    storage, manager = InMemoryCheckpointStorage(), Manager(PLAIN)
    first = await team(storage, manager=manager).run(TASK, thread_id="t")
    asked = len(manager.heard)
    again = await team(storage, manager=manager).run(thread_id="t")
    assert again.get_outputs() == first.get_outputs()
    assert len(manager.heard) == asked


async def test_an_empty_task_is_answered_and_leaves_the_thread_usable() -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage).run("  ", thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["The task is empty: say what is to be done."]
    result = await team(storage).run(TASK, thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]


@pytest.mark.parametrize("task", [Message("user", TASK), [Message("user", TASK)], ["It is for a sailor.", TASK]])
async def test_a_task_may_be_a_message_or_several(task: Any) -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage).run(task, thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]
    assert (await remembered(storage, "t")).context.task == TASK


# ---------------------------------------------------------------- who takes part, and what is shown


async def test_the_calls_of_a_tool_stay_with_the_one_who_made_them() -> None:
    @tool
    def gauge(place: str) -> str:
        return "7"

    storage = InMemoryCheckpointStorage()
    calling = ScriptedAgent("researcher", [Call("gauge", {"place": "Brest"}), "7 metres."], tools=[gauge])
    await team(storage, participants=[calling, crew()[1]]).run(TASK, thread_id="t")

    history = (await remembered(storage, "t")).context.chat_history
    assert {part.type for one in history for part in one.contents} == {"text"}
    assert any(
        one.of_type("function_call") for one in (await private_of(storage, "t", "researcher"))["session"].messages
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
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]


class Gauge(Executor):
    """Answers with a plain text."""

    @handler
    async def read(self, request: AgentExecutorRequest, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"7 metres, asked: {request.messages[-1].text}")


async def test_an_executor_may_be_on_the_team_and_answer_with_a_text() -> None:
    storage = InMemoryCheckpointStorage()
    result = await team(storage, participants=[Gauge("researcher"), crew()[1]]).run(TASK, thread_id="t")
    assert [one.text for one in result.get_outputs()] == ["Answer from: It is 7 metres."]
    history = (await remembered(storage, "t")).context.chat_history
    assert ("researcher", "7 metres, asked: Look it up.") in said(history)


class Mate(Executor):
    """Takes part as executors do in a group chat, and can forget."""

    @handler
    async def hear(self, told: GroupChatParticipantMessage, ctx: WorkflowContext) -> None:
        ctx.private["heard"] = [*ctx.private.get("heard", []), *(one.text for one in told.messages[1:])]

    @handler
    async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        heard = " ".join(ctx.private["heard"])
        await ctx.send_message(
            GroupChatResponseMessage(Message("assistant", f"{asked.additional_instruction} {heard}"))
        )

    @handler
    async def forget(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        ctx.private["heard"] = [f"reset {signal.reset_count}"]


async def test_an_executor_of_a_group_chat_may_be_on_the_team_and_forgets_if_it_can() -> None:
    workflow = team(None, *STALLING, max_stall_count=1, participants=[crew()[0], Mate("writer")])
    result = await workflow.run(TASK)
    answer = "Answer from: Write it down. reset 1 Look it up. 7 metres."
    assert [one.text for one in result.get_outputs()] == [answer]


class Deaf(Executor):
    @handler
    async def hear(self, number: int, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
        """Of no use to a team."""


def test_an_executor_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(TypeError, match="Executor 'writer' has no handler for AgentExecutorRequest"):
        team(participants=[Deaf("writer")])


async def test_one_who_says_nothing_is_said_to_have_said_nothing() -> None:
    storage = InMemoryCheckpointStorage()
    silent = ScriptedAgent("researcher", [""])
    await team(storage, participants=[silent, crew()[1]]).run(TASK, thread_id="t")
    history = (await remembered(storage, "t")).context.chat_history
    assert ("researcher", "(researcher gave no answer.)") in said(history)


async def test_outputs_of_the_team_are_shown_where_that_is_asked_for() -> None:
    result = await team(output_from=["writer"], intermediate_output_from="all_other").run(TASK)
    assert [one.text for one in result.get_outputs()] == ["It is 7 metres.", "Answer from: It is 7 metres."]
    assert [one.text for one in result.get_intermediate_outputs()] == ["7 metres."]


async def test_of_the_manager_only_the_final_answer_is_streamed() -> None:
    told = [
        event.data.text
        async for event in team().run(TASK, stream=True)
        if event.type == "data" and event.executor_id == "magentic_orchestrator"
        if isinstance(event.data, AgentResponseUpdate)
    ]
    assert "".join(told) == "Answer from: It is 7 metres."


async def test_a_given_ledger_is_the_first_plan_of_a_thread() -> None:
    manager = Manager(PLAIN)
    given = MagenticTaskLedger(Message("assistant", "Facts 1"), Message("assistant", "Ask the pilot."))
    result = await team(manager=manager, task_ledger=given).run(TASK)
    [plan, *_] = [one.data.content for one in result if one.type == "magentic_orchestrator"]
    assert "Ask the pilot." in plan.text
    assert not any("take stock" in heard[-1] for heard in manager.heard)


async def test_usage_of_manager_and_team_adds_up() -> None:
    result = await team().run(TASK)
    assert result.usage == {"input_token_count": 8, "output_token_count": 8}  # 2 to plan, 3 ledgers, 2 turns, 1 answer
