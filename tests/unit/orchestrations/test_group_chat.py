"""GroupChatBuilder: one speaks at a time; led by a function, or by an orchestrator of one's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.orchestrations.chats import (
    LEADER,
    LONG_ENOUGH,
    OVER,
    AsksTheShortest,
    chat,
    conversation,
    in_turn,
    trio,
)
from tests.unit.orchestrations.teams import Hearing, assert_nothing_is_said_twice, kept_by, texts

from perdure import (
    AgentResponse,
    AgentSession,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowContext,
    WorkflowRunState,
    handler,
)
from perdure.agents.tools import tool
from perdure.errors import WorkflowConvergenceException
from perdure.orchestrations.group_chat.builder import GroupChatBuilder
from perdure.orchestrations.group_chat.orchestrator import BaseGroupChatOrchestrator
from perdure.orchestrations.group_chat.types import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    OrchestrationState,
)
from perdure.orchestrations.request_info import AgentRequestInfoResponse
from perdure.testing.scripted import Call, ScriptedAgent

# ---------------------------------------------------------------- how it goes


async def test_those_who_are_named_speak_in_turn_until_the_rounds_are_over() -> None:
    storage = InMemoryCheckpointStorage()
    result = await chat(storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "bob 1.", "cy 1.", "ann 2.", LONG_ENOUGH]
    [response] = result.get_outputs()
    assert isinstance(response, AgentResponse)
    assert response.messages == (Message("assistant", LONG_ENOUGH, LEADER),)
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_each_is_told_only_what_it_has_not_heard_yet() -> None:
    hearing = Hearing()
    team = [hearing.agent("ann", ["A1.", "A2.", "A3."]), hearing.agent("bob", ["B1."]), hearing.agent("cy", ["C1."])]
    order = ["ann", "ann", "bob", "cy", "ann"]
    await chat(participants=team, selection_func=lambda state: order[state.current_round], max_rounds=5).run("Talk.")
    assert hearing.told == {
        "ann": [["Talk."], [], ["B1.", "C1."]],
        "bob": [["Talk.", "A1.", "A2."]],
        "cy": [["Talk.", "A1.", "A2.", "B1."]],
    }


async def test_the_one_who_chooses_is_told_how_far_it_is() -> None:
    seen: list[GroupChatState] = []

    def choose(state: GroupChatState) -> str:
        seen.append(state)
        return "bob"

    team = [ScriptedAgent("ann", [], description="reads"), ScriptedAgent("bob", ["One.", "Two."])]
    await chat(participants=team, selection_func=choose, max_rounds=2).run("Talk.")
    assert [one.current_round for one in seen] == [0, 1]
    assert [texts(one.conversation) for one in seen] == [["Talk."], ["Talk.", "One."]]
    assert list(seen[0].participants) == ["ann", "bob"]
    assert seen[0].participants["ann"] == "reads"


async def test_it_ends_when_the_condition_is_met_also_at_the_very_beginning() -> None:
    def is_over(messages: list[Message]) -> bool:
        return messages[-1].text in ("bob 1.", "Stop.")

    storage = InMemoryCheckpointStorage()
    result = await chat(storage, termination_condition=is_over).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "bob 1.", OVER]
    assert texts(result.get_outputs()) == [OVER]
    assert texts((await chat(termination_condition=is_over).run("Stop.")).get_outputs()) == [OVER]


async def test_functions_may_be_async_and_their_answers_are_recorded(tmp_path: Path) -> None:
    counted: list[int] = []

    async def choose(state: GroupChatState) -> str:
        counted.append(state.current_round)
        return in_turn(state)

    async def is_over(messages: list[Message]) -> bool:
        return messages[-1].text == "bob 1."

    def build(storage: Any, log: Path) -> Workflow:
        return chat(storage, log, selection_func=choose, termination_condition=is_over)

    result = await build(None, tmp_path / "log").run("Talk.")
    assert texts(result.get_outputs()) == [OVER]
    assert counted == [0, 1]
    steps = [event.executor_id for event in result if event.type == "executor_invoked"]
    assert steps.count(f"{LEADER}/selection_func") == 2
    assert steps.count(f"{LEADER}/termination_condition") == 3


async def test_events_tell_whose_turn_it_is_and_who_has_spoken() -> None:
    told = [event for event in await chat(max_rounds=2).run("Talk.") if event.type == "group_chat"]
    assert {event.executor_id for event in told} == {LEADER}
    assert [event.data for event in told] == [
        GroupChatRequestSentEvent(0, "ann"),
        GroupChatResponseReceivedEvent(1, "ann"),
        GroupChatRequestSentEvent(1, "bob"),
        GroupChatResponseReceivedEvent(2, "bob"),
    ]


async def test_a_second_run_goes_on_with_the_conversation_and_counts_its_rounds_anew() -> None:
    storage = InMemoryCheckpointStorage()
    await chat(storage, max_rounds=1).run("Talk.", thread_id="t")
    await chat(storage, max_rounds=2).run("Go on.", thread_id="t")
    assert await conversation(storage) == [
        *["Talk.", "ann 1.", LONG_ENOUGH],
        *["Go on.", "ann 2.", "bob 1.", LONG_ENOUGH],
    ]


async def test_what_comes_while_somebody_speaks_is_heard_after_that() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [hearing.agent("ann", ["A1.", "A2."]), hearing.agent("bob", ["B1."])]
        builder = GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=3, checkpoint_storage=storage)
        return builder.with_request_info(agents=["ann"]).build()

    await build().run("Talk.", thread_id="t")
    result = await build().run("Hurry.", thread_id="t")
    while result.get_request_info_events():
        answers = {one.request_id: AgentRequestInfoResponse.approve() for one in result.get_request_info_events()}
        result = await build().run(responses=answers, thread_id="t")
    assert await conversation(storage) == ["Talk.", "A1.", "Hurry.", "B1.", "A2.", LONG_ENOUGH]
    assert hearing.told["ann"][-1] == ["Hurry.", "B1."]
    assert hearing.told["bob"] == [["Talk.", "A1.", "Hurry."]]


async def test_calls_of_tools_stay_with_the_one_who_made_them() -> None:
    hearing = Hearing()

    def look_up(word: str) -> str:
        return word.upper()

    reader = ScriptedAgent("ann", [Call("look_up", {"word": "tide"}), "It is TIDE."], tools=[look_up])
    await chat(participants=[reader, hearing.agent("bob", ["Thanks."])], max_rounds=2).run("Talk.")
    assert hearing.told["bob"] == [["Talk.", "It is TIDE."]]


async def test_a_tool_that_needs_approval_pauses_the_chat_for_it() -> None:
    storage = InMemoryCheckpointStorage()

    @tool(approval=True)
    def buy(what: str) -> str:
        return f"{what} bought"

    def build() -> Workflow:
        ann = ScriptedAgent("ann", [Call("buy", {"what": "a kettle"}), "I have it."], tools=[buy])
        return chat(storage, participants=[ann, ScriptedAgent("bob", ["Good."])], max_rounds=2)

    [request] = (await build().run("Talk.", thread_id="t")).get_request_info_events()
    result = await build().run(responses={request.request_id: request.data.approve()}, thread_id="t")
    assert texts(result.get_outputs()) == [LONG_ENOUGH]
    assert await conversation(storage) == ["Talk.", "I have it.", "Good.", LONG_ENOUGH]


async def test_one_workflow_object_leads_many_chats_at_once() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = chat(storage)
    names = [f"thread-{number}" for number in range(8)]
    await asyncio.gather(*(workflow.run(f"Talk in {name}.", thread_id=name) for name in names))
    for name in names:
        kept = OrchestrationState.from_dict(await kept_by(storage, LEADER, name))
        assert texts(kept.conversation) == [f"Talk in {name}.", "ann 1.", "bob 1.", "cy 1.", "ann 2.", LONG_ENOUGH]


async def test_a_chat_may_be_longer_than_the_steps_of_other_workflows() -> None:
    result = await chat(participants=[ScriptedAgent("ann", [f"{n}" for n in range(60)])], max_rounds=60).run("Talk.")
    assert texts(result.get_outputs()) == [LONG_ENOUGH]


async def test_a_chat_that_nothing_ends_is_ended_by_the_engine() -> None:
    with pytest.raises(WorkflowConvergenceException):
        await chat(participants=[ScriptedAgent("ann", lambda _: "More.")], max_rounds=None).run("Talk.")


# ---------------------------------------------------------------- executors, factories, orchestrators of one's own


class Recites(Executor):
    """An executor as a participant."""

    @handler
    async def hear(self, told: GroupChatParticipantMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        ctx.private["heard"] = [*ctx.private.get("heard", []), *texts(told.messages)]

    @handler
    async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", "|".join(ctx.private["heard"]), self.id)))


async def test_an_executor_may_take_part() -> None:
    storage = InMemoryCheckpointStorage()
    team = [ScriptedAgent("ann", ["One.", "Two."]), Recites("recites")]
    await chat(storage, participants=team).run("Talk.", thread_id="t")
    assert (await conversation(storage))[:5] == ["Talk.", "One.", "Talk.|One.", "Two.", "Talk.|One.|Two."]


def test_an_executor_that_cannot_be_asked_is_refused() -> None:
    class Deaf(Executor):
        @handler
        async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
            await ctx.send_message(GroupChatResponseMessage(Message("assistant", "What?")))

    with pytest.raises(TypeError, match="'deaf' has no handler for GroupChatParticipantMessage"):
        chat(participants=[Deaf("deaf")])


async def test_participants_may_be_made_by_factories_for_each_workflow() -> None:
    made: list[str] = []

    def make(name: str) -> ScriptedAgent:
        made.append(name)
        return ScriptedAgent(name, ["Yes."])

    builder = GroupChatBuilder(
        participant_factories=[lambda: make("ann"), lambda: make("bob")], selection_func=in_turn, max_rounds=2
    )
    assert made == []
    for _ in range(2):
        await builder.build().run("Talk.")
    assert made == ["ann", "bob"] * 2


@pytest.mark.parametrize("is_factory", [False, True])
async def test_an_orchestrator_of_ones_own_decides(is_factory: bool) -> None:
    storage = InMemoryCheckpointStorage()
    own: Any = (lambda: AsksTheShortest("So be it.")) if is_factory else AsksTheShortest("So be it.")
    workflow = GroupChatBuilder(participants=trio(), orchestrator=own, checkpoint_storage=storage).build()
    result = await workflow.run("Talk.", thread_id="t")
    assert [one.messages for one in result.get_outputs()] == [(Message("assistant", "So be it.", "chair"),)]
    kept = OrchestrationState.from_dict(await kept_by(storage, "leader"))
    assert texts(kept.conversation) == ["Talk.", "cy 1.", "So be it."]
    assert kept.orchestrator_name == "chair"
    [*_] = await workflow.run("Talk.", thread_id="another")  # by another instance of it, with the same team


def test_one_orchestrator_may_lead_several_teams() -> None:
    own = AsksTheShortest("So be it.")
    teams = [GroupChatBuilder(participants=[one], orchestrator=own).build() for one in trio()]
    assert [list(one.executors["leader"].participant_registry.participants) for one in teams] == [  # type: ignore[attr-defined]
        ["ann"],
        ["bob"],
        ["cy"],
    ]


async def test_an_orchestrator_without_decide_says_so() -> None:
    workflow = GroupChatBuilder(participants=trio(), orchestrator=BaseGroupChatOrchestrator()).build()
    with pytest.raises(NotImplementedError, match="must implement `decide`"):
        await workflow.run("Talk.")


# ---------------------------------------------------------------- what it is told, as an agent, and stopped


async def test_outputs_of_participants_can_be_had_on_the_way() -> None:
    result = await chat(intermediate_output_from="all", max_rounds=3).run("Talk.")
    assert texts(result.get_intermediate_outputs()) == ["ann 1.", "bob 1.", "cy 1."]
    assert texts(result.get_outputs()) == [LONG_ENOUGH]


async def test_its_name_is_always_the_same_and_the_orchestrator_may_have_one() -> None:
    assert chat().name == "group_chat-ann-bob-cy"
    named = chat(name="talk", description="talks", orchestrator_name="chair", max_rounds=1)
    assert (named.name, named.description) == ("talk", "talks")
    assert (await named.run("Talk.")).get_outputs()[0].messages[0].author_name == "chair"


async def test_limits_and_storage_may_be_told_later() -> None:
    storage = InMemoryCheckpointStorage()
    builder = GroupChatBuilder(participants=trio(), selection_func=in_turn).with_max_rounds(9)
    builder.with_termination_condition(lambda messages: len(messages) == 2).with_checkpointing(storage)
    await builder.build().run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", OVER]


async def test_as_an_agent_it_answers_and_goes_on_in_a_session() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="t")
    options: dict[str, Any] = {"output_from": "all", "max_rounds": 2}
    first = await chat(storage, **options).as_agent().run("Talk.", session=session)
    assert texts(first.messages) == ["ann 1.", "bob 1.", LONG_ENOUGH]
    stream = chat(storage, **options).as_agent().run("Go on.", session=session, stream=True)
    updates = [update async for update in stream]
    assert "".join(one.text for one in updates) == f"ann 2.bob 2.{LONG_ENOUGH}"
    assert texts(AgentResponse.from_updates(updates).messages) == ["ann 2.", "bob 2.", LONG_ENOUGH]


async def test_stopped_anywhere_it_comes_to_the_same_end_and_asks_no_model_twice(tmp_path: Path) -> None:
    await assert_nothing_is_said_twice(lambda storage, log: chat(storage, log, max_rounds=3), "Talk.", tmp_path)
