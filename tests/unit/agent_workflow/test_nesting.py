"""A workflow as a node of another: its outputs, requests and events there, and the effect of its failures."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent_workflow.crashing import Log, assert_survives
from tests.unit.agent_workflow.making import (
    RecordingAgent,
    boom,
    drafted,
    echo,
    kept,
    of_kind,
    stub,
    watched,
)

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import FakeClock, ScriptedAgent


def inner(*agents: Any, name: str = "inner") -> AgentWorkflowInstance:
    """Return a chain of agents, each with the answer of the agent before it as input."""
    builder = drafted(name)
    for place, agent in enumerate(agents):
        builder.add_agent(f"x{place}", agent, None if place == 0 else lambda node: node.with_input_key("answer"))
        if place:
            builder.from_(f"x{place - 1}").to(f"x{place}")
    return builder.build()


async def test_a_workflow_as_a_node_gives_its_final_answer_and_its_outputs() -> None:
    builder = drafted().add_agent("a", stub("first"))
    builder.add_workflow("sub", inner(RecordingAgent(), RecordingAgent()), lambda node: node.with_input_key("answer"))
    builder.add_agent(
        "b", RecordingAgent(), lambda node: node.with_input_template("{{sub.answer}} {{sub.outputs.x0.answer}}")
    )
    result = await builder.from_("a").to("sub").from_("sub").to("b").build().run("i")

    assert result.outputs["sub.answer"] == "<<first>>"
    assert result.outputs["sub.outputs"] == {"x0": {"answer": "<first>"}, "x1": {"answer": "<<first>>"}}
    assert result.final_answer == "<<<first>> <first>>"


async def test_an_output_key_names_the_answer_of_a_workflow() -> None:
    builder = drafted().add_workflow("sub", inner(stub("x")), lambda node: node.with_output_key("draft"))

    assert (await builder.build().run("i")).outputs["sub.draft"] == "x"


async def test_workflows_can_nest_three_levels_deep() -> None:
    middle = drafted("middle").add_workflow("deep", inner(RecordingAgent())).build()
    result = await drafted().add_workflow("sub", middle).build().run("i")

    assert result.final_answer == "<i>"


async def test_the_same_workflow_may_be_several_nodes() -> None:
    shared = inner(RecordingAgent())
    builder = drafted().add_workflow("one", shared).add_workflow("two", shared)
    result = await builder.build().run("i")

    assert (result.outputs["one.answer"], result.outputs["two.answer"]) == ("<i>", "<i>")


# ---------------------------------------------------------------- approvals


def asking(*, depth: int = 1) -> AgentWorkflowInstance:
    made = drafted("inner").add_agent("x", stub("x"), lambda node: node.requires_approval("?")).build()
    for level in range(1, depth):
        made = drafted(f"level{level}").add_workflow("sub", made).build()
    return kept().add_workflow("sub", made).build()


@pytest.mark.parametrize("depth", [1, 2])
async def test_an_approval_inside_is_asked_and_answered_outside(depth: int) -> None:
    workflow = asking(depth=depth)
    result = await workflow.run("i", "e")
    (asked,) = result.pending
    assert asked.agent_id == "x"
    assert asked.metadata.agent_chain == (*["sub"] * depth, "x")
    assert asked.metadata.depth == depth

    result = await workflow.approve(asked.request_id, data={"extra": 1})

    assert result.success
    assert result.final_answer == "x"


async def test_denied_inner_approval_leaves_no_answer() -> None:
    workflow = asking()
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    result = await workflow.deny(request_id)

    assert result.state == "completed"
    assert not result.final_answer


# ---------------------------------------------------------------- failures inside


async def test_a_failure_inside_stops_the_whole_and_is_resumed_inside() -> None:
    first, second = RecordingAgent("x"), RecordingAgent(boom, "y")
    workflow = kept().add_workflow("sub", inner(first, second)).build()
    result = await workflow.run("i", "e")
    assert result.state == "failed"
    assert "boom" in str(result.error)

    result = await workflow.resume("e")

    assert result.final_answer == "y"
    assert (first.turns, second.turns) == (1, 2)


def failing(mode: str, *, depth: int = 1) -> AgentWorkflow:
    made = inner(stub(boom()))
    for level in range(1, depth):
        made = drafted(f"level{level}").add_workflow("sub", made).build()
    builder = kept().add_workflow("sub", made, lambda node: getattr(node, f"on_error_{mode}")())
    builder.add_agent("good", stub("good")).add_agent("join", stub("joined"))
    return builder.from_("sub", "good").to("join")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("mode", "ran"), [("skip", {"good"}), ("isolate", {"good", "join"})])
async def test_inner_failure_uses_the_error_mode_of_the_node(mode: str, ran: set[str], depth: int) -> None:
    result = await failing(mode, depth=depth).build().run("i")

    assert (result.state, result.success) == ("completed", False)
    assert {path.partition(".")[0] for path in result.outputs} == ran
    assert "boom" in str(result.error)


async def test_a_fallback_stands_in_for_a_workflow() -> None:
    builder = drafted().add_workflow("sub", inner(stub(boom())), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("spare", stub("spare")).add_agent(
        "b", RecordingAgent(), lambda node: node.with_input_key("answer")
    )
    result = await builder.from_("sub").to("b").build().run("i")

    assert result.success
    assert result.final_answer == "<spare>"


async def test_isolated_failure_inside_makes_the_workflow_unsuccessful() -> None:
    made = drafted("inner").add_agent("bad", stub(boom()), lambda node: node.on_error_isolate()).build()
    result = await kept().add_workflow("sub", made, lambda node: node.on_error_isolate()).build().run("i")

    assert not result.success
    assert "boom" in str(result.error)


async def test_a_workflow_as_a_node_is_tried_again() -> None:
    clock = FakeClock()
    agent = RecordingAgent(boom, boom, "fine")
    builder = kept(clock=clock).add_workflow("sub", inner(agent), lambda node: node.with_retry(3))
    async with clock.skipping():
        result = await builder.build().run("i")

    assert result.final_answer == "fine"
    assert agent.turns == 3
    assert result.duration == 3


# ---------------------------------------------------------------- loops, events, crashes


async def test_workflow_in_a_loop_runs_again_in_each_pass() -> None:
    agent: RecordingAgent = RecordingAgent(lambda messages: f"draft {agent.turns}")
    builder = drafted().with_max_iterations(9).add_workflow("sub", inner(agent))
    builder.add_agent("b", RecordingAgent(), lambda node: node.with_input_key("answer"))
    edges = builder.from_("sub").to("b").from_("b").to("sub").when_not_equals("answer", "<draft 3>")
    result = await edges.build().run("i")

    assert result.final_answer == "<draft 3>"
    assert agent.turns == 3


async def test_inner_events_name_their_origin() -> None:
    middle = drafted("middle").add_workflow("deep", inner(stub("x"))).build()
    events, _ = await watched(kept("outer").add_workflow("sub", middle).build().stream("i", "e"))
    began = {event.metadata.agent_chain: event for event in of_kind(events, event_types.WorkflowAgentStartedEvent)}

    assert set(began) == {("sub",), ("sub", "deep"), ("sub", "deep", "x0")}
    deepest = began["sub", "deep", "x0"]
    assert (deepest.metadata.depth, deepest.metadata.agent_id, deepest.metadata.parent_agent_id) == (2, "x0", "deep")
    assert deepest.workflow_name == "inner"
    assert deepest.execution_id == "e"
    ended = {event.metadata.depth: event for event in of_kind(events, event_types.WorkflowCompletedEvent)}
    assert {depth: event.workflow_name for depth, event in ended.items()} == {0: "outer", 1: "middle", 2: "inner"}


async def test_nodes_inside_do_not_count_outside() -> None:
    builder = drafted().add_workflow("sub", inner(stub("x"), stub("y"), stub("z"))).add_agent("b", stub("b"))
    events, _ = await watched(builder.from_("sub").to("b").build().stream("i"))
    own = [event for event in of_kind(events, event_types.WorkflowAgentCompletedEvent) if event.metadata.depth == 0]

    assert [(event.agent_id, event.progress) for event in own] == [("sub", 0.5), ("b", 1.0)]
    (ended,) = [event for event in of_kind(events, event_types.WorkflowCompletedEvent) if event.metadata.depth == 0]
    assert ended.successful_nodes == 2


async def test_nested_workflow_survives_a_crash_at_any_write() -> None:
    def make(storage: Any, log: Log) -> AgentWorkflowInstance:
        made = drafted("inner").add_agent(
            "x", ScriptedAgent("x", echo, log=log), lambda node: node.requires_approval("?")
        )
        builder = drafted().with_checkpointing().with_workflow_store(storage).add_workflow("sub", made.build())
        builder.add_agent("b", ScriptedAgent("b", echo, log=log), lambda node: node.with_input_key("answer"))
        return builder.from_("sub").to("b").build()

    assert (await assert_survives(make, "i")).final_answer == "<<i>>"
