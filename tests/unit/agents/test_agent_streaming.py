"""Streaming: updates arrive while the model replies, join to the response, and are not emitted twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from tests.unit.agents.agent_models import Script, call
from tests.unit.agents.test_agent_in_workflows import Boom, flow, last

from perdure.agents import AgentResponse, AgentResponseUpdate, AgentSession, tool
from perdure.agents.pydantic.agent import Agent


async def updates_of(stream: Any) -> list[AgentResponseUpdate]:
    return [update async for update in stream]


def double(number: int) -> int:
    """Twice."""
    return 2 * number


async def thinking(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
    """Yields reasoning, text and a call; then a text."""
    if len(messages) == 1:
        yield {0: DeltaThinkingPart(content="Let me ")}
        yield {0: DeltaThinkingPart(content="see.", signature="signed")}
        yield "I will "
        yield "count."
        yield {2: DeltaToolCall("double", '{"num', tool_call_id="c1")}
        yield {2: DeltaToolCall(json_args='ber": 2}')}
    else:
        yield "Four."


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(FunctionModel(stream_function=thinking), id="reasoning"),
        pytest.param(TestModel(), id="test model"),
        pytest.param(Script([["Wait.", call("double", {"number": 2}, "c1")], "It is four."]).model(), id="words"),
        pytest.param(Script([call("double", {"number": 2}, "c1"), "It is four."]).plain(), id="no stream"),
    ],
)
async def test_updates_join_to_the_response(model: Any) -> None:
    stream = Agent(model, name="writer", tools=[double]).run("Go", stream=True)
    updates = await updates_of(stream)
    response = await stream.get_final_response()
    assert AgentResponse.from_updates(updates) == response
    assert response.usage_details is not None


async def test_reasoning_is_streamed_and_its_signature_goes_back_to_the_model() -> None:
    received: list[Any] = []

    async def listening(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        received.append(messages)
        async for delta in thinking(messages, info):
            yield delta

    agent, session = Agent(FunctionModel(stream_function=listening), name="writer", tools=[double]), AgentSession()
    stream = agent.run("Go", stream=True, session=session)
    contents = [content for update in await updates_of(stream) for content in update.contents]
    assert "".join(content.text or "" for content in contents if content.type == "text_reasoning") == "Let me see."
    again = AgentSession.from_dict(session.to_dict())
    await updates_of(agent.run("More", stream=True, session=again))
    (part,) = [item for item in received[-1][1].parts if item.part_kind == "thinking"]
    assert (part.content, part.signature) == ("Let me see.", "signed")


async def test_value_is_streamed_as_its_json_text() -> None:
    async def answers(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall("final_result", '{"response": [1,', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args=" 2]}")}

    stream = Agent(FunctionModel(stream_function=answers), name="writer", output_type=list[int]).run("Go", stream=True)
    updates = await updates_of(stream)
    response = await stream.get_final_response()
    assert response.value == [1, 2]
    assert AgentResponse.from_updates(updates) == response
    assert "".join(update.text for update in updates) == '{"response":[1,2]}'


async def test_updates_are_emitted_while_the_model_still_replies() -> None:
    is_received = asyncio.Event()

    async def slowly(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        yield "One"
        await asyncio.wait_for(is_received.wait(), 60)
        yield " two"

    text = ""
    async for update in Agent(FunctionModel(stream_function=slowly), name="writer").run("Go", stream=True):
        text += update.text
        if text == "One":
            is_received.set()
    assert text == "One two"


async def test_agent_called_by_a_tool_does_not_stream_to_the_caller() -> None:
    async def ask_expert() -> str:
        """Ask."""
        expert = Agent(Script(["Between us."]).model(), name="expert")
        return (await expert.run("Well?")).text

    agent = Agent(Script([call("ask_expert", {}, "c1"), "It is so."]).model(), name="writer", tools=[ask_expert])
    stream = agent.run("Go", stream=True)
    updates = await updates_of(stream)
    assert "".join(update.text for update in updates) == "It is so."
    assert AgentResponse.from_updates(updates) == await stream.get_final_response()


async def test_resumed_run_does_not_stream_recorded_text_again(tmp_path: Path) -> None:
    @tool
    def fail() -> str:
        raise Boom

    replies = [["First part.", call("fail", {}, "c1")], "Second part."]

    async def watched(agent: Agent, **options: Any) -> tuple[str, AgentResponse | None]:
        text = ""
        stream = flow(agent, tmp_path).run(**options, thread_id="t", stream=True)
        try:
            async for event in stream:
                text += event.data.text if isinstance(event.data, AgentResponseUpdate) else ""
            return text, last(await stream.get_final_response())
        except Boom:
            return text, None

    first, _ = await watched(Agent(Script(replies).model(), name="writer", tools=[fail]), message="Go")
    assert first == "First part."

    @tool(name="fail")
    def works() -> str:
        return "fine"

    second, response = await watched(Agent(Script(replies).model(), name="writer", tools=[works]))
    assert second == "Second part."
    assert response is not None
    assert response.text == "First part.Second part."
