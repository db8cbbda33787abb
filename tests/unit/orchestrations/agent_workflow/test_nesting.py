"""A workflow as a node of another: what it gives, asks and tells there, and what its failures do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.crashing import Log, assert_survives
from tests.unit.orchestrations.agent_workflow.making import Overheard, boom, drafted, echo, kept, of_kind, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import FakeClock, ScriptedAgent


def inner(*agents: Any, name: str = "inner") -> AgentWorkflowInstance:
    """One agent after the other, each told what the one before said."""
    builder = drafted(name)
    for place, agent in enumerate(agents):
        builder.add_agent(f"x{place}", agent, None if place == 0 else lambda node: node.with_input_key("answer"))
        if place:
            builder.from_(f"x{place - 1}").to(f"x{place}")
    return builder.build()


async def test_a_workflow_as_a_node_gives_its_final_answer_and_its_outputs() -> None:
    builder = drafted().add_agent("a", says("first"))
    builder.add_workflow("sub", inner(Overheard(), Overheard()), lambda node: node.with_input_key("answer"))
    builder.add_agent(
        "b", Overheard(), lambda node: node.with_input_template("{{sub.answer}} {{sub.outputs.x0.answer}}")
    )
    result = await builder.from_("a").to("sub").from_("sub").to("b").build().run("i")

    assert result.outputs["sub.answer"] == "<<first>>"
    assert result.outputs["sub.outputs"] == {"x0": {"answer": "<first>"}, "x1": {"answer": "<<first>>"}}
    assert result.final_answer == "<<<first>> <first>>"


async def test_an_output_key_names_the_answer_of_a_workflow() -> None:
    builder = drafted().add_workflow("sub", inner(says("x")), lambda node: node.with_output_key("draft"))

    assert (await builder.build().run("i")).outputs["sub.draft"] == "x"


async def test_workflows_in_workflows_in_workflows() -> None:
    middle = drafted("middle").add_workflow("deep", inner(Overheard())).build()
    result = await drafted().add_workflow("sub", middle).build().run("i")

    assert result.final_answer == "<i>"


async def test_the_same_workflow_may_be_several_nodes() -> None:
    shared = inner(Overheard())
    builder = drafted().add_workflow("one", shared).add_workflow("two", shared)
    result = await builder.build().run("i")

    assert (result.outputs["one.answer"], result.outputs["two.answer"]) == ("<i>", "<i>")


# ---------------------------------------------------------------- approvals


def asking(*, depth: int = 1) -> AgentWorkflowInstance:
    made = drafted("inner").add_agent("x", says("x"), lambda node: node.requires_approval("?")).build()
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


async def test_an_approval_inside_that_is_denied_leaves_no_answer() -> None:
    workflow = asking()
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    result = await workflow.deny(request_id)

    assert result.state == "completed"
    assert not result.final_answer


# ---------------------------------------------------------------- failures inside


async def test_a_failure_inside_stops_the_whole_and_is_resumed_inside() -> None:
    first, second = Overheard("x"), Overheard(boom, "y")
    workflow = kept().add_workflow("sub", inner(first, second)).build()
    result = await workflow.run("i", "e")
    assert result.state == "failed"
    assert "boom" in str(result.error)

    result = await workflow.resume("e")

    assert result.final_answer == "y"
    assert (first.turns, second.turns) == (1, 2)


def failing(mode: str, *, depth: int = 1) -> AgentWorkflow:
    made = inner(says(boom()))
    for level in range(1, depth):
        made = drafted(f"level{level}").add_workflow("sub", made).build()
    builder = kept().add_workflow("sub", made, lambda node: getattr(node, f"on_error_{mode}")())
    builder.add_agent("good", says("good")).add_agent("join", says("joined"))
    return builder.from_("sub", "good").to("join")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("mode", "ran"), [("skip", {"good"}), ("isolate", {"good", "join"})])
async def test_a_failure_inside_is_met_as_the_node_says(mode: str, ran: set[str], depth: int) -> None:
    result = await failing(mode, depth=depth).build().run("i")

    assert (result.state, result.success) == ("completed", False)
    assert {path.partition(".")[0] for path in result.outputs} == ran
    assert "boom" in str(result.error)


async def test_a_fallback_stands_in_for_a_workflow() -> None:
    builder = drafted().add_workflow("sub", inner(says(boom())), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("spare", says("spare")).add_agent("b", Overheard(), lambda node: node.with_input_key("answer"))
    result = await builder.from_("sub").to("b").build().run("i")

    assert result.success
    assert result.final_answer == "<spare>"


async def test_a_node_inside_that_isolates_its_failure_makes_the_workflow_no_success() -> None:
    made = drafted("inner").add_agent("bad", says(boom()), lambda node: node.on_error_isolate()).build()
    result = await kept().add_workflow("sub", made, lambda node: node.on_error_isolate()).build().run("i")

    assert not result.success
    assert "boom" in str(result.error)


async def test_a_workflow_as_a_node_is_tried_again() -> None:
    clock = FakeClock()
    agent = Overheard(boom, boom, "fine")
    builder = kept(clock=clock).add_workflow("sub", inner(agent), lambda node: node.with_retry(3))
    async with clock.skipping():
        result = await builder.build().run("i")

    assert result.final_answer == "fine"
    assert agent.turns == 3
    assert result.duration == 3


# ---------------------------------------------------------------- loops, events, crashes


async def test_a_workflow_in_a_loop_runs_anew_in_each_pass() -> None:
    agent: Overheard = Overheard(lambda messages: f"draft {agent.turns}")
    builder = drafted().with_max_iterations(9).add_workflow("sub", inner(agent))
    builder.add_agent("b", Overheard(), lambda node: node.with_input_key("answer"))
    edges = builder.from_("sub").to("b").from_("b").to("sub").when_not_equals("answer", "<draft 3>")
    result = await edges.build().run("i")

    assert result.final_answer == "<draft 3>"
    assert agent.turns == 3


async def test_events_inside_say_where_they_come_from() -> None:
    middle = drafted("middle").add_workflow("deep", inner(says("x"))).build()
    events, _ = await watched(kept("outer").add_workflow("sub", middle).build().stream("i", "e"))
    began = {one.metadata.agent_chain: one for one in of_kind(events, told.WorkflowAgentStartedEvent)}

    assert set(began) == {("sub",), ("sub", "deep"), ("sub", "deep", "x0")}
    deepest = began["sub", "deep", "x0"]
    assert (deepest.metadata.depth, deepest.metadata.agent_id, deepest.metadata.parent_agent_id) == (2, "x0", "deep")
    assert deepest.workflow_name == "inner"
    assert deepest.execution_id == "e"
    ended = {one.metadata.depth: one for one in of_kind(events, told.WorkflowCompletedEvent)}
    assert {depth: one.workflow_name for depth, one in ended.items()} == {0: "outer", 1: "middle", 2: "inner"}


async def test_nodes_inside_do_not_count_outside() -> None:
    builder = drafted().add_workflow("sub", inner(says("x"), says("y"), says("z"))).add_agent("b", says("b"))
    events, _ = await watched(builder.from_("sub").to("b").build().stream("i"))
    own = [one for one in of_kind(events, told.WorkflowAgentCompletedEvent) if one.metadata.depth == 0]

    assert [(one.agent_id, one.progress) for one in own] == [("sub", 0.5), ("b", 1.0)]
    (ended,) = [one for one in of_kind(events, told.WorkflowCompletedEvent) if one.metadata.depth == 0]
    assert ended.successful_nodes == 2


async def test_a_workflow_in_another_that_is_cut_off_anywhere_ends_as_if_it_had_not_been() -> None:
    def make(storage: Any, log: Log) -> AgentWorkflowInstance:
        made = drafted("inner").add_agent(
            "x", ScriptedAgent("x", echo, log=log), lambda node: node.requires_approval("?")
        )
        builder = drafted().with_checkpointing().with_workflow_store(storage).add_workflow("sub", made.build())
        builder.add_agent("b", ScriptedAgent("b", echo, log=log), lambda node: node.with_input_key("answer"))
        return builder.from_("sub").to("b").build()

    assert (await assert_survives(make, "i")).final_answer == "<<i>>"
