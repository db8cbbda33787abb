"""Function workflows as agents: in a conversation, in another workflow, and with any input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentResponse,
    Content,
    FunctionalWorkflowAgent,
    InMemoryCheckpointStorage,
    Message,
    RunContext,
    WorkflowBuilder,
    WrongInputType,
    executor,
    step,
    workflow,
)
from perdure.graph.context import WorkflowContext
from perdure.testing import ScriptedAgent


@dataclass(frozen=True)
class Order:
    item: str


@workflow(description="says hello")
async def greeting(name: str) -> str:
    return f"hello {name}"


@workflow
async def reading(messages: list[Message]) -> str:
    return " and ".join(message.text for message in messages)


@workflow
async def selling(order: Order, ctx: RunContext) -> str:
    place = await ctx.request_info(order, str, request_id="place")
    return f"{order.item} to {place}"


@workflow
async def counting(name: str, ctx: RunContext) -> str:
    ctx.set_state("count", ctx.get_state("count", 0) + 1)
    return f"{name} {ctx.get_state('count')}"


@pytest.mark.parametrize(
    ("messages", "text"),
    [("Ann", "hello Ann"), (Message("user", "Ann"), "hello Ann"), (["Ann", "Bob"], "hello Ann\nBob")],
)
async def test_a_function_of_text_gets_the_text_of_messages(messages: Any, text: str) -> None:
    assert (await greeting.as_agent().run(messages)).text == text


async def test_a_function_of_messages_gets_texts_as_messages() -> None:
    assert (await reading.as_agent().run(["one", "two"])).text == "one and two"


async def test_a_value_that_the_function_does_not_take_is_rejected() -> None:
    with pytest.raises(WrongInputType, match="'selling' cannot handle input of type 'int'"):
        await selling.as_agent().run(5)


async def test_an_agent_has_the_name_and_description_of_its_function() -> None:
    agent, named = greeting.as_agent(), greeting.as_agent("host", description="welcomes", context_providers=["kept"])
    assert isinstance(agent, FunctionalWorkflowAgent)
    assert (agent.name, agent.id, agent.description) == ("greeting", "FunctionalWorkflowAgent_greeting", "says hello")
    assert (named.name, named.description, named.context_providers) == ("host", "welcomes", ["kept"])


async def test_a_session_is_a_thread_of_the_function() -> None:
    agent = counting.build(InMemoryCheckpointStorage()).as_agent()
    session = agent.create_session()
    assert [(await agent.run("Ann", session=session)).text for _ in range(2)] == ["Ann 1", "Ann 2"]
    assert [message.text for message in session.messages] == ["Ann", "Ann 1", "Ann", "Ann 2"]
    assert (await agent.run("Bob")).text == "Bob 1"


async def test_a_request_is_an_approval_that_its_id_answers() -> None:
    agent = selling.build().as_agent()
    (request,) = (await agent.run(Order("tea"))).user_input_requests
    call = request.function_call
    assert (request.type, request.id, list(agent.pending_requests)) == ("function_approval_request", "place", ["place"])
    assert call is not None and call.arguments == {"request_id": "place", "data": {"item": "tea"}}
    assert (await agent.run(responses={"place": "Lyon"})).text == "tea to Lyon"
    assert agent.pending_requests == {}


async def test_updates_of_agents_in_the_function_are_not_its_own() -> None:
    @step
    async def ask(text: str) -> str:
        return str((await ScriptedAgent("inner", ["one two"]).run(text)).text)

    @workflow
    async def flow(text: str) -> str:
        return f"whole: {await ask(text)}"

    stream = flow.as_agent().run("go", stream=True)
    assert "".join([update.text async for update in stream]) == "whole: one two"
    assert (await stream.get_final_response()).text == "whole: one two"


@pytest.mark.parametrize(("value", "text"), [({"n": 1}, "{'n': 1}"), (["a", "b"], "['a', 'b']"), (True, "True")])
async def test_an_output_that_is_no_text_is_the_value_and_its_text(value: Any, text: str) -> None:
    @workflow
    async def flow(_: str) -> Any:
        return value

    response: AgentResponse = await flow.as_agent().run("go")
    assert (response.text, response.value) == (text, value)


async def test_an_output_of_messages_is_the_response() -> None:
    @workflow
    async def flow(_: str) -> list[Message]:
        return [Message("assistant", "one"), Message("assistant", "two")]

    assert [message.text for message in (await flow.as_agent().run("go")).messages] == ["one", "two"]


async def test_a_function_agent_in_a_graph_asks_its_question_there() -> None:
    @workflow
    async def choosing(text: str, ctx: RunContext) -> str:
        return f"{text}: {await ctx.request_info('which?', str)}"

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        await ctx.send_message(AgentExecutorRequest(messages=[Message("user", text)], should_respond=True))

    agent = AgentExecutor(choosing.as_agent(), id="chooser")
    graph = WorkflowBuilder(start_executor=start).add_edge(start, agent).build()
    (request,) = (await graph.run("tea")).get_request_info_events()
    assert isinstance(request.data, Content) and request.data.type == "function_call"
    answered = await graph.run(responses={str(request.request_id): "green"})
    assert [output.text for output in answered.get_outputs()] == ["tea: green"]
