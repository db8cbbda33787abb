"""Turns of agents that record nothing themselves: recorded as a whole, streamed, asked, with accepted arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import InMemoryCheckpointStorage, WorkflowBuilder
from perdure.agents.base import take_live_turn, take_turn
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.errors import InvalidRun
from perdure.testing import Faults, ProcessGone
from perdure.workflows.workflow import Workflow


class Plain:
    """Takes messages and nothing else."""

    name = "plain"

    def __init__(self) -> None:
        self.received: list[list[str]] = []

    async def run(self, messages: list[Message]) -> str:
        self.received.append([message.text for message in messages])
        return f"answer {len(self.received)}"


class Remembering:
    """Keeps something in its session, and streams."""

    name = "remembering"

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def run(self, messages: Any, *, stream: bool = False, session: AgentSession, **kwargs: Any) -> Any:
        self.runs.append(kwargs)
        session.state["turns"] = session.state.get("turns", 0) + 1
        session.service_session_id = "kept elsewhere"
        text = f"turn {session.state['turns']}"
        return self._stream(text) if stream else self._answer(text)

    async def _answer(self, text: str) -> AgentResponse:
        return AgentResponse(messages=Message("assistant", text, self.name), usage_details={"tokens": 2})

    async def _stream(self, text: str) -> AsyncIterator[Any]:
        for word in (text[:4], text[4:]):
            yield SimpleNamespace(contents=[Content.from_text(word)], role="assistant")
        yield SimpleNamespace(contents=[Content.from_usage({"tokens": 2})], role=None)


class Asking:
    """Asks for approval, then continues with the answer."""

    name = "asking"

    def __init__(self) -> None:
        self.received: list[list[str]] = []

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        contents = [content for message in messages for content in message.contents]
        self.received.append([content.type for content in contents])
        answers = [content for content in contents if content.type == "function_approval_response"]
        if answers:
            reply: Any = f"approved: {answers[0].approved}"
        else:
            reply = Content.from_function_approval_request("r1", Content.from_function_call("c1", "pay"))
        return AgentResponse(messages=Message("assistant", reply, self.name), usage_details={"tokens": 1})


def flow(agent: Any, storage: Any = None) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=agent, checkpoint_storage=storage).build()


def texts(result: Any) -> list[str]:
    return [response.text for response in result.get_outputs()]


async def test_agent_without_a_session_parameter_receives_all_earlier_messages() -> None:
    agent, storage = Plain(), InMemoryCheckpointStorage()
    await flow(agent, storage).run("hi", thread_id="t")
    assert texts(await flow(agent, storage).run("more", thread_id="t")) == ["answer 2"]
    assert agent.received == [["hi"], ["hi", "answer 1", "more"]]


async def test_turn_is_recorded_as_a_whole_and_not_repeated() -> None:
    agent, storage, faults = Plain(), InMemoryCheckpointStorage(), Faults()
    faults.crash("journal", nth=1, when="after")
    with pytest.raises(ProcessGone):
        await flow(agent, faults.wrap(storage)).run("hi", thread_id="t")
    assert texts(await flow(agent, storage).run(thread_id="t", takeover=True)) == ["answer 1"]
    assert len(agent.received) == 1


async def test_session_state_of_an_agent_is_part_of_the_thread() -> None:
    storage = InMemoryCheckpointStorage()
    assert texts(await flow(Remembering(), storage).run("hi", thread_id="t")) == ["turn 1"]
    result = await flow(Remembering(), storage).run("more", thread_id="t")
    assert texts(result) == ["turn 2"]
    assert texts(await flow(Remembering(), storage).run("hi", thread_id="other")) == ["turn 1"]
    assert result.usage == {"tokens": 4}


async def test_stream_of_another_type_is_emitted_live_and_joins_to_the_response() -> None:
    stream = flow(Remembering()).run("hi", stream=True)
    live = [event.data async for event in stream if event.type == "output"]
    assert [update.text for update in live] == ["turn", " 1", ""]
    [response] = (await stream.get_final_response()).get_outputs()
    assert response.messages == [Message("assistant", "turn 1", "remembering")]
    assert response.usage_details == {"tokens": 2}


async def test_an_agent_gets_the_arguments_that_it_takes() -> None:
    agent = Remembering()
    await flow(agent).run("hi", client_kwargs={"seed": 1})
    await flow(Plain()).run("hi", client_kwargs={"seed": 1})
    assert agent.runs == [{"client_kwargs": {"seed": 1}}]


async def test_agent_that_asks_continues_with_the_answer_in_the_same_turn() -> None:
    storage, agent = InMemoryCheckpointStorage(), Asking()
    [request] = (await flow(agent, storage).run("hi", thread_id="t")).get_request_info_events()
    answers = {request.request_id: request.data.approve()}
    result = await flow(agent, storage).run(responses=answers, thread_id="t")
    [response] = result.get_outputs()
    assert [message.text for message in response.messages] == ["", "", "approved: True"]
    assert response.user_input_requests == []
    assert agent.received == [["text"], ["function_approval_response"]]
    assert response.usage_details == result.usage == {"tokens": 2}


async def test_question_outside_of_a_workflow_is_in_the_response() -> None:
    response = await take_turn(Asking(), [Message("user", "hi")])
    assert [request.id for request in response.user_input_requests] == ["r1"]
    with pytest.raises(InvalidRun, match="needs a workflow"):
        await take_live_turn(Asking(), [Message("user", "hi")])


async def test_failing_agent_fails_the_run_and_the_thread_can_be_resumed() -> None:
    class Failing(Plain):
        async def run(self, messages: list[Message]) -> str:
            answer = await super().run(messages)
            if len(self.received) == 1:
                raise ConnectionError("no line")
            return answer

    agent, storage = Failing(), InMemoryCheckpointStorage()
    with pytest.raises(ConnectionError, match="no line"):
        await flow(agent, storage).run("hi", thread_id="t")
    assert texts(await flow(agent, storage).run(thread_id="t")) == ["answer 2"]


async def test_agent_with_an_invalid_output_is_named() -> None:
    class Nonsense(Plain):
        async def run(self, messages: list[Message]) -> Any:
            return 3

    with pytest.raises(TypeError, match="Agent 'plain' returned 3"):
        await flow(Nonsense()).run("hi")
