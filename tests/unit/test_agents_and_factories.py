"""Values accepted as executors: agents, factories, registered names."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.flows import Tally, relay, sink, warnings_of

from perdure import (
    DuplicateExecutorId,
    Executor,
    GraphConnectivityError,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)


class Agent:
    """Any object with `async run(messages)` and a name is an agent."""

    def __init__(self, name: str = "writer") -> None:
        self.name = name

    async def run(self, messages: list[Message]) -> str:
        return f"{self.name}({messages[-1].text})"


class NamedById:
    def __init__(self, id: str) -> None:
        self.id = id

    async def run(self, messages: list[Message]) -> str:
        return f"{self.id}({messages[-1].text})"


def edge_ids(workflow: Workflow) -> list[str]:
    """Those between executors: each executor has an internal edge of its own, too."""
    ids = [edge.id for group in workflow.edge_groups for edge in group.edges]
    return [edge_id for edge_id in ids if not edge_id.startswith("internal:")]


# ---------------------------------------------------------------- agents


async def test_agent_can_be_used_as_an_executor() -> None:
    writer, critic = Agent("writer"), Agent("critic")
    workflow = WorkflowBuilder(start_executor=writer).add_edge(writer, critic).build()
    result = await workflow.run("draft")
    assert list(workflow.executors) == ["writer", "critic"]
    assert [response.text for response in result.get_outputs()] == ["writer(draft)", "critic(writer(draft))"]


async def test_response_of_a_terminal_agent_does_not_warn() -> None:
    assert warnings_of(await WorkflowBuilder(start_executor=Agent()).build().run("x")) == []


async def test_an_agent_and_executors_may_be_mixed_in_every_kind_of_edge() -> None:
    start, first, second = relay("start"), Agent("one"), NamedById("two")
    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [first, second])
    result = await builder.add_fan_in_edges([first, second], sink("all", accepts=list)).build().run("m")
    _, joined = result.get_outputs()[-1]
    assert [response.agent_response.text for response in joined] == ["one(m)", "two(m)"]


def test_one_agent_object_is_one_node() -> None:
    agent, end = Agent(), relay("end")
    workflow = WorkflowBuilder(start_executor=agent).add_edge(agent, end).add_edge(end, agent).build()
    assert list(workflow.executors) == ["writer", "end"]


def test_two_agents_of_one_name_are_rejected() -> None:
    with pytest.raises(DuplicateExecutorId, match="ID 'writer' detected in workflow"):
        WorkflowBuilder(start_executor=Agent()).add_edge(Agent(), relay("end"))


@pytest.mark.parametrize("name", ["", None, 5])
def test_agents_without_a_name_are_called_after_their_class(name: Any) -> None:
    workflow = WorkflowBuilder(start_executor=Agent(name)).add_edge("Agent", Agent(name)).build()
    assert list(workflow.executors) == ["Agent", "Agent-2"]


def test_an_agent_may_be_designated_for_output() -> None:
    writer, critic = Agent("writer"), Agent("critic")
    builder = WorkflowBuilder(start_executor=writer, output_from=[critic]).add_edge(writer, critic)
    assert [executor.id for executor in builder.build().get_output_executors()] == ["critic"]


# ---------------------------------------------------------------- factories


async def test_a_factory_makes_an_instance_for_each_thread() -> None:
    made: list[Tally] = []

    def make() -> Tally:
        made.append(Tally())
        return made[-1]

    workflow = WorkflowBuilder(start_executor=make).build()
    counts = [(await workflow.run("x", thread_id=thread_id)).get_outputs() for thread_id in ("a", "b", "a")]
    assert counts == [[1], [1], [2]] and len(made) == 2


async def test_a_class_is_a_factory_if_it_needs_no_arguments() -> None:
    workflow = WorkflowBuilder(start_executor=Tally).build()
    assert list(workflow.executors) == ["tally"] and (await workflow.run("x")).get_outputs() == [1]


async def test_a_factory_may_make_an_agent() -> None:
    workflow = WorkflowBuilder(start_executor=lambda: Agent("made")).build()
    assert [response.text for response in (await workflow.run("x")).get_outputs()] == ["made(x)"]


def test_one_factory_is_one_node() -> None:
    def make() -> Executor:
        return relay("made")

    workflow = WorkflowBuilder(start_executor=make).add_edge(make, make).build()
    assert edge_ids(workflow) == ["made->made"]


def test_a_factory_that_needs_arguments_is_rejected() -> None:
    with pytest.raises(TypeError, match="could not be called without arguments"):
        WorkflowBuilder(start_executor=relay)


def test_factory_that_returns_another_type_is_rejected() -> None:
    with pytest.raises(TypeError, match="returned 'text', expected an Executor or an agent"):
        WorkflowBuilder(start_executor=lambda: "text")


# ---------------------------------------------------------------- registered names


async def test_registered_names_are_accepted_wherever_executors_are() -> None:
    builder = WorkflowBuilder(output_from=["last"])
    builder.register_executor(lambda: relay("r1"), "first").register_agent(lambda: Agent("writer"), "second")
    builder.register_executor(lambda: sink("s1"), "last")
    workflow = builder.set_start_executor("first").add_chain(["first", "second", "last"]).build()
    assert list(workflow.executors) == ["r1", "writer", "s1"]
    [(last, response)] = (await workflow.run("x")).get_outputs()
    assert (last, response.agent_response.text) == ("s1", "writer(x)")


def test_an_executor_already_in_the_graph_may_be_named_by_its_id() -> None:
    a, b = relay("a"), sink("b")
    workflow = WorkflowBuilder(start_executor=a).add_edge("a", b).build()
    assert edge_ids(workflow) == ["a->b"]


def test_unregistered_name_is_rejected_with_the_nearest_name() -> None:
    builder = WorkflowBuilder().register_executor(lambda: relay("a"), "reviewer")
    with pytest.raises(
        GraphConnectivityError, match=r"registered as 'reviewr' \(did you mean 'reviewer'\?\). Register it"
    ):
        builder.set_start_executor("reviewr")


def test_one_name_cannot_be_registered_twice() -> None:
    builder = WorkflowBuilder().register_executor(lambda: relay("a"), "one")
    with pytest.raises(DuplicateExecutorId, match="'one'"):
        builder.register_executor(lambda: relay("b"), "one")


# ---------------------------------------------------------------- other threads


class Keeping(Executor):
    """Keeps its arguments."""

    def __init__(self, id: str, words: list[str], *, client: object = None) -> None:
        super().__init__(id)
        self.words = words
        self.client = client

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.words.append(word)
        await ctx.yield_output((self.words, id(self.client)))


async def test_another_thread_gets_an_instance_with_the_original_arguments() -> None:
    client, words = object(), ["given"]
    workflow = WorkflowBuilder(start_executor=Keeping("k", words, client=client)).build()
    words.append("changed by the caller")
    first = (await workflow.run("a", thread_id="a")).get_outputs()
    second = (await workflow.run("b", thread_id="b")).get_outputs()
    assert first == [(["given", "changed by the caller", "a"], id(client))]
    assert second == [(["given", "b"], id(client))], "containers are copied, other objects shared"
