"""AgentExecutor: what an agent in a graph is told, what it sends on, and where its session lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.agents.hearing import Hearing

from perdure import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler
from perdure.agents.conversation.message import AgentSession, Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.executor import AgentExecutor, AgentExecutorRequest, AgentExecutorResponse
from perdure.agents.tools import Tool
from perdure.testing.scripted import Call, ScriptedAgent


def outputs(result: Any) -> list[str]:
    return [one.text for one in result.get_outputs()]


@pytest.mark.parametrize(
    "given",
    [
        "hi",
        Message("user", "hi"),
        ["hi"],
        [Message("user", "hi")],
        AgentExecutorRequest([Message("user", "hi")]),
    ],
)
async def test_an_agent_takes_texts_messages_and_requests(given: Any) -> None:
    heard = Hearing()
    result = await WorkflowBuilder(start_executor=heard.agent("a", ["hello"])).build().run(given)
    assert outputs(result) == ["hello"]
    assert heard.told == {"a": [["hi"]]}


async def test_several_at_once_are_taken_in_order() -> None:
    heard = Hearing()
    workflow = WorkflowBuilder(start_executor=heard.agent("a", ["hello"])).build()
    await workflow.run(["hi", Message("assistant", "there", "b"), "you"])
    assert heard.told == {"a": [["hi", "there", "you"]]}


async def test_an_agent_that_need_not_respond_takes_note_and_says_nothing() -> None:
    heard, storage = Hearing(), InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=heard.agent("a", ["hello"]), checkpoint_storage=storage).build()
    note = AgentExecutorRequest([Message("user", "note this")], should_respond=False)
    assert outputs(await workflow.run(note, thread_id="t")) == []
    assert outputs(await workflow.run("hi", thread_id="t")) == ["hello"]
    assert heard.told == {"a": [["note this", "hi"]]}


# ---------------------------------------------------------------- one agent after the other


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param({}, ["hi", "one", "two"], id="full, by default"),
        pytest.param({"context_mode": "full"}, ["hi", "one", "two"], id="full"),
        pytest.param({"context_mode": "last_agent"}, ["two"], id="last_agent"),
        pytest.param({"context_mode": "custom", "context_filter": lambda all_: all_[:2]}, ["hi", "one"], id="custom"),
    ],
)
async def test_the_mode_says_what_an_agent_is_told_of_those_before(options: Any, told: list[str]) -> None:
    heard = Hearing()
    a, b = heard.agent("a", ["one"]), heard.agent("b", ["two"])
    c = AgentExecutor(heard.agent("c", ["three"]), **options)
    result = await WorkflowBuilder(start_executor=a).add_chain([a, b, c]).build().run("hi")
    assert heard.told["c"] == [told]
    assert outputs(result)[-1] == "three"


@pytest.mark.parametrize(
    "options",
    [
        {"context_mode": "custom"},
        {"context_filter": list},
        {"context_mode": "full", "context_filter": list},
        {"context_mode": "none"},
    ],
)
def test_a_mode_that_makes_no_sense_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="context_"):
        AgentExecutor(ScriptedAgent("a", []), **options)


@pytest.mark.parametrize("mode", ["full", "last_agent"])
async def test_an_agent_that_a_loop_comes_back_to_is_told_only_what_is_new(mode: Any) -> None:
    heard = Hearing()
    a = AgentExecutor(heard.agent("a", ["one", "three", "five"]))
    b = AgentExecutor(heard.agent("b", ["two", "four", "stop"]), context_mode=mode)
    workflow = (
        WorkflowBuilder(start_executor=a)
        .add_edge(a, b)
        .add_edge(b, a, condition=lambda said: said.agent_response.text != "stop")
        .build()
    )
    assert outputs(await workflow.run("hi")) == ["one", "two", "three", "four", "five", "stop"]
    assert heard.told["a"] == [["hi"], ["two"], ["four"]]
    assert heard.told["b"] == [["hi", "one"] if mode == "full" else ["one"], ["three"], ["five"]]


async def test_a_second_run_tells_a_chain_only_what_is_new() -> None:
    heard = Hearing()
    a, b = heard.agent("a", ["one", "two"]), heard.agent("b", ["uno", "dos"])
    workflow = WorkflowBuilder(start_executor=a, checkpoint_storage=InMemoryCheckpointStorage()).add_edge(a, b).build()
    await workflow.run("hi", thread_id="t")
    await workflow.run("more", thread_id="t")
    assert heard.told == {"a": [["hi"], ["more"]], "b": [["hi", "one"], ["more", "two"]]}


async def test_what_a_fan_in_joins_is_told_once_and_then_what_each_has_said() -> None:
    heard = Hearing()
    start, judge = heard.agent("start", ["go"]), heard.agent("judge", ["so be it"])
    team = [heard.agent(name, [f"{name} says"]) for name in ("x", "y", "z")]
    workflow = (
        WorkflowBuilder(start_executor=start).add_fan_out_edges(start, team).add_fan_in_edges(team, judge).build()
    )
    await workflow.run("hi")
    assert heard.told["judge"] == [["hi", "go", "x says", "y says", "z says"]]


async def test_messages_of_one_superstep_are_turns_one_after_the_other() -> None:
    class Twice(Executor):
        @handler
        async def send(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message("first")
            await ctx.send_message("second")

    heard = Hearing()
    twice, a = Twice("twice"), heard.agent("a", ["one", "two"])
    result = await WorkflowBuilder(start_executor=twice).add_edge(twice, a).build().run("go")
    assert outputs(result) == ["one", "two"]
    assert heard.told == {"a": [["first"], ["second"]]}


async def test_the_next_executor_gets_the_response_and_the_whole_conversation() -> None:
    got: list[AgentExecutorResponse] = []

    class Last(Executor):
        @handler
        async def take(self, said: AgentExecutorResponse, ctx: WorkflowContext[Any, str]) -> None:
            got.append(said)

    a, last = ScriptedAgent("a", ["one"]), Last("last")
    await WorkflowBuilder(start_executor=a).add_edge(a, last).build().run("hi")
    [said] = got
    assert (said.executor_id, said.agent_response.text) == ("a", "one")
    assert [one.text for one in said.full_conversation] == ["hi", "one"]
    other = said.with_text("uno")
    assert (other.agent_response.text, [one.text for one in other.full_conversation]) == ("uno", ["hi", "uno"])
    assert other.full_conversation[-1].author_name == "a"
    assert said.agent_response.text == "one"


# ---------------------------------------------------------------- sessions and threads


async def test_each_thread_has_its_own_copy_of_the_session() -> None:
    heard, storage = Hearing(), InMemoryCheckpointStorage()
    session = AgentSession(messages=[Message("user", "before")], state={"seen": []})
    agent = heard.agent("a", ["one", "two"], sees_session=True)
    host = AgentExecutor(agent, session=session)
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=storage).build()
    assert outputs(await workflow.run("hi", thread_id="x")) == ["one"]
    assert outputs(await workflow.run("hi", thread_id="y")) == ["one"]
    assert outputs(await workflow.run("more", thread_id="x")) == ["two"]
    assert heard.told["a"] == [["before", "hi"], ["before", "hi"], ["before", "hi", "one", "more"]]
    assert heard.session_ids == ["x/a", "y/a", "x/a"]
    assert session.version == 1


async def test_sub_workflows_of_one_thread_have_sessions_of_their_own() -> None:
    heard = Hearing()
    inner = WorkflowBuilder(name="inner", start_executor=heard.agent("a", ["one", "two"], sees_session=True)).build()

    class Both(Executor):
        @handler
        async def send(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message("first")
            await ctx.send_message("second")

    both = Both("both")
    await WorkflowBuilder(start_executor=both).add_edge(both, inner).build().run("go", thread_id="t")
    assert len(set(heard.session_ids)) == 2
    assert sorted(heard.told["a"]) == [["first"], ["second"]]


async def test_arguments_of_the_run_reach_the_agent_that_they_are_for() -> None:
    heard = Hearing()
    a, b = heard.agent("a", ["one"]), heard.agent("b", ["two"])
    workflow = WorkflowBuilder(start_executor=a).add_edge(a, b).build()
    await workflow.run("hi", function_invocation_kwargs={"user": "ann"}, client_kwargs={"b": {"seed": 1}})
    assert heard.arguments["a"] == [{"function_invocation_kwargs": {"user": "ann"}}]
    assert heard.arguments["b"] == [{"function_invocation_kwargs": {"user": "ann"}, "client_kwargs": {"seed": 1}}]


# ---------------------------------------------------------------- values


@dataclass
class Price:
    amount: int


async def test_what_a_tool_gives_may_be_of_a_type_that_no_handler_names() -> None:
    def price() -> Price:
        return Price(3)

    agent = ScriptedAgent("a", [Call("price"), "three"], tools=[Tool(price)])
    workflow = WorkflowBuilder(start_executor=agent, checkpoint_storage=InMemoryCheckpointStorage()).build()
    [response] = (await workflow.run("hi", thread_id="t")).get_outputs()
    assert isinstance(response, AgentResponse)
    again = (await workflow.run(thread_id="t")).get_outputs()[0]
    assert again.messages[1].contents[0].result == Price(3)
