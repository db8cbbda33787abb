"""with_request_info: a person looks at an answer before anybody else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.teams import Recorder, assert_no_request_is_repeated, session_texts, texts

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
from perdure.orchestrations.fixed_order import ConcurrentBuilder, SequentialBuilder
from perdure.orchestrations.group_chat import GroupChatState
from perdure.orchestrations.group_chat_builder import GroupChatBuilder
from perdure.orchestrations.participants import AgentRequestInfoResponse
from perdure.testing.scripted import ScriptedAgent

approve = AgentRequestInfoResponse.approve


def feedback(*messages: str) -> AgentRequestInfoResponse:
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
    """Return the request id and the text of each pending request, by executor."""
    requests = {}
    for event in result.get_request_info_events():
        assert isinstance(event.data, AgentExecutorResponse)
        assert event.response_type is AgentRequestInfoResponse
        assert event.source_executor_id == event.data.executor_id
        requests[event.data.executor_id] = (event.request_id, event.data.agent_response.text)
    return requests


# ---------------------------------------------------------------- requests and their effects


async def test_sequence_continues_after_each_approval() -> None:
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


async def test_feedback_to_an_answer_is_answered_and_reviewed_again() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [recorder.agent("writer", ["One.", "Two.", "Three."]), recorder.agent("critic", ["Good."])]
        builder = SequentialBuilder(participants=team, checkpoint_storage=storage)
        return builder.with_request_info(agents=["writer"]).build()

    result = await build().run("Write.", thread_id="t")
    seen, ids = [], set()
    for answer in (feedback("Shorter.", "Please."), AgentRequestInfoResponse.from_messages([Message("user", "More.")])):
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
    assert recorder.received["critic"] == [everything]
    assert await session_texts(storage, "writer") == everything


async def test_panel_members_are_reviewed_separately() -> None:
    storage = InMemoryCheckpointStorage()
    pending = asked(await concurrent(storage).run("Write.", thread_id="t"))
    assert {name: text for name, (_, text) in pending.items()} == {"writer": "A draft.", "critic": "Good."}
    result = await concurrent(storage).run(responses={pending["critic"][0]: feedback("Sure?")}, thread_id="t")
    again = asked(result)
    assert again["writer"] == pending["writer"]
    assert again["critic"][1] == "Better."
    assert result.get_outputs() == []
    answers = {request_id: approve() for request_id, _ in again.values()}
    [response] = (await concurrent(storage).run(responses=answers, thread_id="t")).get_outputs()
    assert texts(response.messages) == ["A draft.", "Better."]


async def test_group_chat_members_receive_only_approved_answers() -> None:
    recorder, storage = Recorder(), InMemoryCheckpointStorage()

    def build() -> Workflow:
        team = [recorder.agent("writer", ["One.", "Two."]), recorder.agent("critic", ["Good."])]
        builder = GroupChatBuilder(participants=team, selection_func=in_turn, max_rounds=2, checkpoint_storage=storage)
        return builder.with_request_info(agents=[team[0]]).build()

    [(request_id, _)] = asked(await build().run("Write.", thread_id="t")).values()
    [(request_id, text)] = asked(await build().run(responses={request_id: feedback("No.")}, thread_id="t")).values()
    assert text == "Two."
    result = await build().run(responses={request_id: approve()}, thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert recorder.received["critic"] == [["Write.", "Two."]]


@pytest.mark.parametrize("build", TEAMS, ids=lambda build: build.__name__)
async def test_request_is_pending_once_after_repeated_resumes(build: Build) -> None:
    storage = InMemoryCheckpointStorage()
    first = asked(await build(storage).run("Write.", thread_id="t"))
    assert first
    assert asked(await build(storage).run(thread_id="t")) == first
    assert asked(await build(storage).run(thread_id="t")) == first


@pytest.mark.parametrize("build", TEAMS, ids=lambda build: build.__name__)
async def test_stop_at_any_write_changes_no_result_and_repeats_no_request(build: Build, tmp_path: Path) -> None:
    def answer(event: WorkflowEvent) -> AgentRequestInfoResponse:
        return feedback("Again.") if event.data.agent_response.text == "A draft." else approve()

    await assert_no_request_is_repeated(build, "Write.", tmp_path, answer, at_once=2 if build is concurrent else 1)


# ---------------------------------------------------------------- as an agent


async def test_agent_of_a_team_requests_review_by_a_function_call() -> None:
    storage, session = InMemoryCheckpointStorage(), AgentSession(session_id="s")
    response = await sequential(storage).as_agent().run("Write.", session=session)
    for answer in (feedback("Better."), approve(), msgspec.to_builtins(approve())):
        [call] = response.messages[-1].of_type("function_call")
        assert call.name == "request_info"
        message = Message("tool", [Content.from_function_result(str(call.call_id), result=answer)])
        response = await sequential(storage).as_agent().run(message, session=session)
    assert texts(response.messages) == ["Good."]


# ---------------------------------------------------------------- invalid options and answers


class Plain(Executor):
    @handler
    async def receive(self, messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None: ...


def test_request_info_accepts_only_agents_of_the_team() -> None:
    def builder() -> SequentialBuilder:
        return SequentialBuilder(participants=[Plain("plain"), *duo()])

    with pytest.raises(ValueError, match=r"not agent participants: 'writers' is not .* \(did you mean 'writer'\?\)"):
        builder().with_request_info(agents=["writers"]).build()
    with pytest.raises(ValueError, match="not agent participants: 'plain' is an executor"):
        builder().with_request_info(agents=["plain"]).build()
    with pytest.raises(TypeError, match="agents= is a list, got 'writer'"):
        builder().with_request_info(agents="writer")


async def test_answer_of_a_wrong_type_is_rejected_and_the_request_stays() -> None:
    workflow = sequential(InMemoryCheckpointStorage())
    [(request_id, _)] = asked(await workflow.run("Write.", thread_id="t")).values()
    with pytest.raises(AnswerRejected):
        await workflow.run(responses={request_id: "Fine."}, thread_id="t")
    assert len(asked(await workflow.run(thread_id="t"))) == 1


def test_feedback_without_messages_approves() -> None:
    assert approve() == AgentRequestInfoResponse.from_strings([]) == AgentRequestInfoResponse.from_messages([])
    with pytest.raises(TypeError, match=r"several texts, got one: 'No\.'"):
        AgentRequestInfoResponse.from_strings("No.")
