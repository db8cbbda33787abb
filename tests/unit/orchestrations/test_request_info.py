"""with_request_info: a person looks at an answer before anybody else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.teams import Hearing, assert_nothing_is_said_twice, heard_by, texts

from perdure import (
    AgentExecutorResponse,
    AgentSession,
    Content,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    handler,
)
from perdure.errors import AnswerRejected
from perdure.orchestrations.concurrent import ConcurrentBuilder
from perdure.orchestrations.group_chat.builder import GroupChatBuilder
from perdure.orchestrations.group_chat.types import GroupChatState
from perdure.orchestrations.request_info import AgentRequestInfoResponse
from perdure.orchestrations.sequential import SequentialBuilder
from perdure.testing.scripted import ScriptedAgent

approve = AgentRequestInfoResponse.approve


def say(*messages: str) -> AgentRequestInfoResponse:
    return AgentRequestInfoResponse.from_strings(messages)


def duo(log: Path | None = None) -> list[Any]:
    return [
        ScriptedAgent("writer", ["A draft.", "A better draft."], log=log),
        ScriptedAgent("critic", ["Good.", "Better."], log=log),
    ]


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % 2]


def sequential(storage: Any = None, log: Path | None = None) -> Workflow:
    return SequentialBuilder(participants=duo(log), checkpoint_storage=storage).with_request_info().build()


def concurrent(storage: Any = None, log: Path | None = None) -> Workflow:
    return ConcurrentBuilder(participants=duo(log), checkpoint_storage=storage).with_request_info().build()


def group_chat(storage: Any = None, log: Path | None = None) -> Workflow:
    builder = GroupChatBuilder(participants=duo(log), selection_func=in_turn, max_rounds=2, checkpoint_storage=storage)
    return builder.with_request_info().build()


Build = Callable[..., Workflow]
TEAMS = [sequential, concurrent, group_chat]


def asked(result: Any) -> dict[str, tuple[str, str]]:
    """By who is asked about: the request, and what was said."""
    found = {}
    for event in result.get_request_info_events():
        assert isinstance(event.data, AgentExecutorResponse)
        assert event.response_type is AgentRequestInfoResponse
        assert event.source_executor_id == event.data.executor_id
        found[event.data.executor_id] = (event.request_id, event.data.agent_response.text)
    return found


# ---------------------------------------------------------------- what is asked, and what comes of it


async def test_approved_one_after_the_other_a_sequence_goes_on() -> None:
    storage = InMemoryCheckpointStorage()
    result = await sequential(storage).run("Write.", thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    [(request_id, text)] = asked(result).values()
    assert (text, result.get_outputs()) == ("A draft.", [])
    result = await sequential(storage).run(responses={request_id: approve()}, thread_id="t")
    [(request_id, text)] = asked(result).values()
    assert (text, result.get_outputs()) == ("Good.", [])
    result = await sequential(storage).run(responses={request_id: approve()}, thread_id="t")
    assert texts(result.get_outputs()) == ["Good."]


async def test_what_is_said_to_an_answer_is_answered_and_asked_about_again() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [hearing.agent("writer", ["One.", "Two.", "Three."]), hearing.agent("critic", ["Good."])]
        builder = SequentialBuilder(participants=team, checkpoint_storage=storage)
        return builder.with_request_info(agents=["writer"]).build()

    result = await build().run("Write.", thread_id="t")
    seen, ids = [], set()
    for answer in (say("Shorter.", "Please."), AgentRequestInfoResponse.from_messages([Message("user", "More.")])):
        [event] = result.get_request_info_events()
        seen.append((event.data.agent_response.text, texts(event.data.full_conversation)))
        ids.add(event.request_id)
        result = await build().run(responses={event.request_id: answer}, thread_id="t")
    [event] = result.get_request_info_events()
    everything = ["Write.", "One.", "Shorter.", "Please.", "Two.", "More.", "Three."]
    assert seen == [("One.", everything[:2]), ("Two.", everything[:5])]
    assert (event.data.agent_response.text, texts(event.data.full_conversation)) == ("Three.", everything)
    assert len({*ids, event.request_id}) == 3, "an answer that comes late is not taken for that to another draft"
    result = await build().run(responses={event.request_id: approve()}, thread_id="t")
    assert texts(result.get_outputs()) == ["Good."]
    assert hearing.told["critic"] == [everything]
    assert await heard_by(storage, "writer") == everything


async def test_of_a_panel_each_is_asked_about_and_answered_by_itself() -> None:
    storage = InMemoryCheckpointStorage()
    pending = asked(await concurrent(storage).run("Write.", thread_id="t"))
    assert {name: text for name, (_, text) in pending.items()} == {"writer": "A draft.", "critic": "Good."}
    result = await concurrent(storage).run(responses={pending["critic"][0]: say("Sure?")}, thread_id="t")
    again = asked(result)
    assert again["writer"] == pending["writer"]
    assert again["critic"][1] == "Better."
    assert result.get_outputs() == []
    answers = {request_id: approve() for request_id, _ in again.values()}
    [response] = (await concurrent(storage).run(responses=answers, thread_id="t")).get_outputs()
    assert texts(response.messages) == ["A draft.", "Better."]


async def test_in_a_group_chat_the_others_hear_only_what_was_approved() -> None:
    hearing, storage = Hearing(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [hearing.agent("writer", ["One.", "Two."]), hearing.agent("critic", ["Good."])]
        builder = GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=2, checkpoint_storage=storage)
        return builder.with_request_info(agents=[team[0]]).build()

    [(request_id, _)] = asked(await build().run("Write.", thread_id="t")).values()
    [(request_id, text)] = asked(await build().run(responses={request_id: say("No.")}, thread_id="t")).values()
    assert text == "Two."
    result = await build().run(responses={request_id: approve()}, thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert hearing.told["critic"] == [["Write.", "Two."]]


@pytest.mark.parametrize("build", TEAMS, ids=lambda one: one.__name__)
async def test_a_request_is_there_once_however_often_the_thread_is_resumed(build: Build) -> None:
    storage = InMemoryCheckpointStorage()
    first = asked(await build(storage).run("Write.", thread_id="t"))
    assert first
    assert asked(await build(storage).run(thread_id="t")) == first
    assert asked(await build(storage).run(thread_id="t")) == first


@pytest.mark.parametrize("build", TEAMS, ids=lambda one: one.__name__)
async def test_stopped_anywhere_it_comes_to_the_same_end_and_asks_no_model_twice(build: Build, tmp_path: Path) -> None:
    def answer(event: WorkflowEvent) -> AgentRequestInfoResponse:
        return say("Again.") if event.data.agent_response.text == "A draft." else approve()

    await assert_nothing_is_said_twice(build, "Write.", tmp_path, answer, at_once=2 if build is concurrent else 1)


# ---------------------------------------------------------------- as an agent


async def test_as_an_agent_a_request_is_a_function_call_and_its_result_the_answer() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s")
    response = await sequential(storage).as_agent().run("Write.", session=session)
    for answer in (say("Better."), approve(), msgspec.to_builtins(approve())):
        [call] = response.messages[-1].of_type("function_call")
        assert call.name == "request_info"
        given = Message("tool", [Content.from_function_result(str(call.call_id), result=answer)])
        response = await sequential(storage).as_agent().run(given, session=session)
    assert texts(response.messages) == ["Good."]


# ---------------------------------------------------------------- what is refused


class Plain(Executor):
    @handler
    async def hear(self, messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None: ...


def test_only_agents_of_the_team_can_be_asked_about() -> None:
    def builder() -> SequentialBuilder:
        return SequentialBuilder(participants=[Plain("plain"), *duo()])

    with pytest.raises(ValueError, match=r"names 'writers', which is not a participant \(did you mean 'writer'\?\)"):
        builder().with_request_info(agents=["writers"]).build()
    with pytest.raises(ValueError, match="names 'plain', which is an executor"):
        builder().with_request_info(agents=["plain"]).build()
    with pytest.raises(ValueError, match="selects no agent"):
        builder().with_request_info(agents=[])
    with pytest.raises(TypeError, match="agents= is a list, got 'writer'"):
        builder().with_request_info(agents="writer")


async def test_an_answer_of_another_kind_is_refused_and_the_request_stays() -> None:
    workflow = sequential(InMemoryCheckpointStorage())
    [(request_id, _)] = asked(await workflow.run("Write.", thread_id="t")).values()
    with pytest.raises(AnswerRejected):
        await workflow.run(responses={request_id: "Fine."}, thread_id="t")
    assert len(asked(await workflow.run(thread_id="t"))) == 1


def test_what_is_said_to_an_answer_is_not_nothing() -> None:
    assert approve().messages == []
    with pytest.raises(ValueError, match=r"To approve, use approve\(\)"):
        AgentRequestInfoResponse.from_strings([])
    with pytest.raises(TypeError, match=r"several texts, got one: 'No\.'"):
        AgentRequestInfoResponse.from_strings("No.")
