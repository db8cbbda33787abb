"""GroupChatBuilder: one agent speaks at a time, selected by a function or by a custom orchestrator."""

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
from tests.unit.orchestrations.teams import Recorder, assert_no_request_is_repeated, kept_by, texts

from perdure import (
    AgentResponse,
    AgentSession,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    TypeCompatibilityError,
    Workflow,
    WorkflowContext,
    WorkflowRunState,
    handler,
)
from perdure.agents.tools import tool
from perdure.errors import WorkflowConvergenceException
from perdure.orchestrations.group_chat import (
    BaseGroupChatOrchestrator,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    OrchestrationState,
)
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.orchestrations.participants import AgentRequestInfoResponse
from perdure.testing.scripted import Call, ScriptedAgent

# ---------------------------------------------------------------- how it goes


async def test_selected_agents_speak_in_turn_until_max_rounds() -> None:
    storage = InMemoryCheckpointStorage()
    result = await chat(storage).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "bob 1.", "cy 1.", "ann 2.", LONG_ENOUGH]
    [response] = result.get_outputs()
    assert isinstance(response, AgentResponse)
    assert response.messages == [Message("assistant", LONG_ENOUGH, LEADER)]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_each_agent_receives_only_new_messages() -> None:
    recorder = Recorder()
    team = [recorder.agent("ann", ["A1.", "A2.", "A3."]), recorder.agent("bob", ["B1."]), recorder.agent("cy", ["C1."])]
    order = ["ann", "ann", "bob", "cy", "ann"]
    await chat(participants=team, selection_func=lambda state: order[state.current_round], max_rounds=5).run("Talk.")
    assert recorder.received == {
        "ann": [["Talk."], [], ["B1.", "C1."]],
        "bob": [["Talk.", "A1.", "A2."]],
        "cy": [["Talk.", "A1.", "A2.", "B1."]],
    }


async def test_selection_function_receives_the_state_of_the_chat() -> None:
    seen: list[GroupChatState] = []

    def choose(state: GroupChatState) -> str:
        seen.append(state)
        return "bob"

    team = [ScriptedAgent("ann", [], description="reads"), ScriptedAgent("bob", ["One.", "Two."])]
    await chat(participants=team, selection_func=choose, max_rounds=2).run("Talk.")
    assert [state.current_round for state in seen] == [0, 1]
    assert [texts(state.conversation) for state in seen] == [["Talk."], ["Talk.", "One."]]
    assert list(seen[0].participants) == ["ann", "bob"]
    assert seen[0].participants["ann"] == "reads"


async def test_termination_condition_ends_the_chat_also_at_the_start() -> None:
    def is_over(messages: list[Message]) -> bool:
        return messages[-1].text in ("bob 1.", "Stop.")

    storage = InMemoryCheckpointStorage()
    result = await chat(storage, termination_condition=is_over).run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", "bob 1.", OVER]
    assert texts(result.get_outputs()) == [OVER]
    assert texts((await chat(termination_condition=is_over).run("Stop.")).get_outputs()) == [OVER]


async def test_async_functions_are_accepted_and_their_results_recorded(tmp_path: Path) -> None:
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


async def test_events_name_the_selected_and_the_answering_speaker() -> None:
    events = [event for event in await chat(max_rounds=2).run("Talk.") if event.type == "group_chat"]
    assert {event.executor_id for event in events} == {LEADER}
    assert [event.data for event in events] == [
        GroupChatRequestSentEvent(0, "ann"),
        GroupChatResponseReceivedEvent(1, "ann"),
        GroupChatRequestSentEvent(1, "bob"),
        GroupChatResponseReceivedEvent(2, "bob"),
    ]


async def test_second_run_continues_the_conversation_and_restarts_its_rounds() -> None:
    storage = InMemoryCheckpointStorage()
    await chat(storage, max_rounds=1).run("Talk.", thread_id="t")
    await chat(storage, max_rounds=2).run("Go on.", thread_id="t")
    assert await conversation(storage) == [
        *["Talk.", "ann 1.", LONG_ENOUGH],
        *["Go on.", "ann 2.", "bob 1.", LONG_ENOUGH],
    ]


async def test_message_during_a_turn_is_delivered_after_that_turn() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [recorder.agent("ann", ["A1.", "A2."]), recorder.agent("bob", ["B1."])]
        builder = GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=3, checkpoint_storage=storage)
        return builder.with_request_info(agents=["ann"]).build()

    await build().run("Talk.", thread_id="t")
    result = await build().run("Hurry.", thread_id="t")
    while result.get_request_info_events():
        answers = {event.request_id: AgentRequestInfoResponse.approve() for event in result.get_request_info_events()}
        result = await build().run(responses=answers, thread_id="t")
    assert await conversation(storage) == ["Talk.", "A1.", "Hurry.", "B1.", "A2.", LONG_ENOUGH]
    assert recorder.received["ann"][-1] == ["Hurry.", "B1."]
    assert recorder.received["bob"] == [["Talk.", "A1.", "Hurry."]]


async def test_tool_calls_stay_with_the_agent_that_made_them() -> None:
    recorder = Recorder()

    def look_up(word: str) -> str:
        return word.upper()

    reader = ScriptedAgent("ann", [Call("look_up", {"word": "tide"}), "It is TIDE."], tools=[look_up])
    await chat(participants=[reader, recorder.agent("bob", ["Thanks."])], max_rounds=2).run("Talk.")
    assert recorder.received["bob"] == [["Talk.", "It is TIDE."]]


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


async def test_chat_may_exceed_the_default_superstep_limit() -> None:
    result = await chat(participants=[ScriptedAgent("ann", [f"{n}" for n in range(60)])], max_rounds=60).run("Talk.")
    assert texts(result.get_outputs()) == [LONG_ENOUGH]


async def test_engine_ends_a_chat_without_an_end_condition() -> None:
    with pytest.raises(WorkflowConvergenceException):
        await chat(participants=[ScriptedAgent("ann", lambda _: "More.")], max_rounds=None).run("Talk.")


# ---------------------------------------------------------------- executors, factories, custom orchestrators


class Recites(Executor):
    """An executor as a participant."""

    @handler
    async def receive(
        self, message: GroupChatParticipantMessage, ctx: WorkflowContext[GroupChatResponseMessage]
    ) -> None:
        ctx.private["heard"] = [*ctx.private.get("heard", []), *texts(message.messages)]

    @handler
    async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", "|".join(ctx.private["heard"]), self.id)))


async def test_an_executor_may_take_part() -> None:
    storage = InMemoryCheckpointStorage()
    team = [ScriptedAgent("ann", ["One.", "Two."]), Recites("recites")]
    await chat(storage, participants=team).run("Talk.", thread_id="t")
    assert (await conversation(storage))[:5] == ["Talk.", "One.", "Talk.|One.", "Two.", "Talk.|One.|Two."]


class Deaf(Executor):
    @handler
    async def speak(self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", "What?")))


async def test_executor_that_reads_no_messages_takes_part_without_them() -> None:
    result = await chat(participants=[Deaf("deaf")], intermediate_output_from=None, max_rounds=1).run("Talk.")
    assert [event.data for event in result if event.type == "warning"] == []
    assert texts(result.get_outputs()) == ["The group chat has reached the maximum number of rounds."]


def test_executor_that_cannot_be_asked_is_rejected() -> None:
    class Mute(Executor):
        @handler
        async def read(self, new: GroupChatParticipantMessage, ctx: WorkflowContext) -> None:
            pass

    with pytest.raises(TypeCompatibilityError, match=r"'mute'\. Source executor outputs types GroupChatRequestMessage"):
        chat(participants=[Mute("mute")])


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
async def test_custom_orchestrator_decides(is_factory: bool) -> None:
    storage = InMemoryCheckpointStorage()
    own: Any = (lambda: AsksTheShortest("So be it.")) if is_factory else AsksTheShortest("So be it.")
    workflow = GroupChatBuilder(participants=trio(), orchestrator=own, checkpoint_storage=storage).build()
    result = await workflow.run("Talk.", thread_id="t")
    assert [output.messages for output in result.get_outputs()] == [[Message("assistant", "So be it.", "chair")]]
    kept = OrchestrationState.from_dict(await kept_by(storage, "leader"))
    assert texts(kept.conversation) == ["Talk.", "cy 1.", "So be it."]
    assert kept.orchestrator_name == "chair"
    [*_] = await workflow.run("Talk.", thread_id="another")  # by another instance of it, with the same team


def test_one_orchestrator_may_lead_several_teams() -> None:
    own = AsksTheShortest("So be it.")
    teams = [GroupChatBuilder(participants=[agent], orchestrator=own).build() for agent in trio()]
    assert [list(team.executors["leader"].participant_registry.participants) for team in teams] == [  # type: ignore[attr-defined]
        ["ann"],
        ["bob"],
        ["cy"],
    ]


async def test_orchestrator_without_decide_raises_not_implemented() -> None:
    workflow = GroupChatBuilder(participants=trio(), orchestrator=BaseGroupChatOrchestrator()).build()
    with pytest.raises(NotImplementedError, match="must implement `decide`"):
        await workflow.run("Talk.")


# ---------------------------------------------------------------- options, as an agent, and stopped


async def test_participant_outputs_are_available_as_intermediate_outputs() -> None:
    result = await chat(intermediate_output_from="all", max_rounds=3).run("Talk.")
    assert texts(result.get_intermediate_outputs()) == ["ann 1.", "bob 1.", "cy 1."]
    assert texts(result.get_outputs()) == [LONG_ENOUGH]


async def test_default_name_lists_the_participants_and_the_leader_can_be_named() -> None:
    assert chat().name == "group_chat-ann-bob-cy"
    named = chat(name="talk", description="talks", orchestrator_name="chair", max_rounds=1)
    assert (named.name, named.description) == ("talk", "talks")
    assert (await named.run("Talk.")).get_outputs()[0].messages[0].author_name == "chair"


async def test_limits_and_storage_can_be_set_after_construction() -> None:
    storage = InMemoryCheckpointStorage()
    builder = GroupChatBuilder(participants=trio(), selection_func=in_turn).with_max_rounds(9)
    builder.with_termination_condition(lambda messages: len(messages) == 2).with_checkpointing(storage)
    await builder.build().run("Talk.", thread_id="t")
    assert await conversation(storage) == ["Talk.", "ann 1.", OVER]


async def test_agent_of_a_chat_answers_and_continues_in_a_session() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="t")
    options: dict[str, Any] = {"output_from": "all", "max_rounds": 2}
    first = await chat(storage, **options).as_agent().run("Talk.", session=session)
    assert texts(first.messages) == ["ann 1.", "bob 1.", LONG_ENOUGH]
    stream = chat(storage, **options).as_agent().run("Go on.", session=session, stream=True)
    updates = [update async for update in stream]
    assert "".join(update.text for update in updates) == f"ann 2.bob 2.{LONG_ENOUGH}"
    assert texts(AgentResponse.from_updates(updates).messages) == ["ann 2.", "bob 2.", LONG_ENOUGH]


async def test_stop_at_any_write_changes_no_result_and_repeats_no_request(tmp_path: Path) -> None:
    await assert_no_request_is_repeated(lambda storage, log: chat(storage, log, max_rounds=3), "Talk.", tmp_path)
