"""Where an execution goes: routers that hand off, types that decide, edges of the start and the end, delays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.agent_workflow.making import Overheard, drafted, kept, of_kind, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import Call, FakeClock


class Invoice(msgspec.Struct):
    total: int


@dataclass
class Complaint:
    why: str


def routed(reply: Any, *, default: str | None = None) -> AgentWorkflowInstance:
    builder = drafted().add_router_agent("route", says(reply)).with_handoff("bill", "Money").with_handoff("care")
    if default is not None:
        builder.with_default_handoff(default)
    builder.add_agent("bill", says("paid")).add_agent("care", says("sorry")).add_agent("human", says("well"))
    return builder.build()


async def went(workflow: AgentWorkflowInstance, given: str = "i") -> set[str]:
    """The nodes that ran."""
    result = await workflow.run(given)
    assert result.success, result.error
    return {path.partition(".")[0] for path in result.outputs}


@pytest.mark.parametrize(("reply", "chosen"), [(Call("handoff_to_bill"), "bill"), (Call("handoff_to_care"), "care")])
async def test_a_router_hands_off_by_calling_a_tool(reply: Any, chosen: str) -> None:
    result = await routed(reply, default="human").run("i")

    assert result.outputs["route.handoff"] == chosen
    assert {"bill.answer", "care.answer", "human.answer"} & set(result.outputs) == {f"{chosen}.answer"}


@pytest.mark.parametrize("reply", ["care", " care.\n", '"care"', "`care`"])
async def test_a_router_hands_off_by_naming_a_target(reply: str) -> None:
    assert await went(routed(reply, default="human")) == {"route", "care"}


async def test_the_default_handoff_is_where_nobody_was_chosen() -> None:
    assert await went(routed("I cannot say", default="human")) == {"route", "human"}


async def test_a_router_that_chose_nobody_and_has_no_default_fails() -> None:
    builder = drafted().add_router_agent("route", says("I cannot say")).with_handoff("bill")
    result = await builder.add_agent("bill", says("paid")).build().run("i")

    assert result.state == "failed"
    assert "did not hand off" in str(result.error)
    assert "I cannot say" in str(result.error)


async def test_a_tool_that_hands_off_to_nobody_that_there_is_is_told_to_the_model() -> None:
    agent = Overheard(Call("handoff_to_nobody"), Call("handoff_to_bill"))
    builder = drafted().add_router_agent("route", agent).with_handoff("bill")

    assert await went(builder.add_agent("bill", says("paid")).build()) == {"route", "bill"}
    assert agent.turns == 2


async def test_a_model_is_told_what_each_handoff_is_for() -> None:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from perdure import Agent

    tools: dict[str, str | None] = {}

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools.update({one.name: one.description for one in info.function_tools})
        return ModelResponse(parts=[ToolCallPart("handoff_to_bill", {})])

    builder = drafted().add_router_agent("route", Agent(FunctionModel(model), name="r"))
    builder.with_handoff("bill", "Questions about money").with_handoff("care")
    workflow = builder.add_agent("bill", says("paid")).add_agent("care", says("sorry")).build()

    assert await went(workflow) == {"route", "bill"}
    assert tools["handoff_to_bill"] == "Questions about money"
    assert "care" in str(tools["handoff_to_care"])


async def test_what_a_router_says_beside_its_handoff_is_its_answer() -> None:
    result = await routed("care", default="human").run("i")

    assert result.outputs["route.answer"] == "care"


@pytest.mark.parametrize(
    ("reply", "chosen"), [({"total": 1}, "bill"), ({"why": "late"}, "care"), ({"stars": 1}, "human")]
)
async def test_the_type_of_an_answer_decides(reply: Any, chosen: str) -> None:
    class Praise(msgspec.Struct):
        stars: int

    builder = drafted().add_agent("a", says(reply), lambda node: node.union_output(Invoice, Complaint, Praise))
    for name in ("bill", "care", "human"):
        builder.add_agent(name, says(name))
    edges = builder.from_("a").route_by_type().when(Invoice, "bill").when(Complaint, "care").default("human")

    assert await went(edges.build()) == {"a", chosen}


# ---------------------------------------------------------------- start and end


def by_input() -> AgentWorkflowInstance:
    builder = drafted().add_agent("short", says("s")).add_agent("long", says("l"))
    return (
        builder.from_("START").to("short").when_equals("kind", "short").from_("START").to("long").as_default().build()
    )


async def test_what_was_given_decides_where_it_begins() -> None:
    short = await by_input().run({"kind": "short"})
    long = await by_input().run("anything")

    assert set(short.outputs) == {"short.answer"}
    assert set(long.outputs) == {"long.answer"}


async def test_an_edge_to_the_end_leaves_out_the_default() -> None:
    def workflow() -> AgentWorkflowInstance:
        builder = drafted().add_agent("a", Overheard()).add_agent("b", says("b"))
        return builder.from_("a").to("END").when_contains("answer", "stop").from_("a").to("b").as_default().build()

    assert await went(workflow(), "stop") == {"a"}
    assert await went(workflow(), "go on") == {"a", "b"}


async def test_an_edge_that_is_taken_is_told_with_its_condition() -> None:
    builder = drafted().add_agent("a", says("x")).add_agent("b", says("y")).add_agent("c", says("z"))
    edges = builder.from_("a").to("b").when_equals("answer", "x").from_("a").to("c").when_equals("answer", "y")
    events, _ = await watched(edges.build().stream("i"))

    taken = of_kind(events, told.WorkflowEdgeTraversedEvent)
    assert [(one.from_node_id, one.to_node_id) for one in taken] == [("a", "b")]
    assert taken[0].has_condition
    assert taken[0].condition_description == "answer equals 'x'"


# ---------------------------------------------------------------- delays


async def test_an_edge_with_a_delay_waits_before_its_target_runs() -> None:
    clock = FakeClock()
    second = Overheard("b")
    builder = kept(clock=clock).add_agent("a", says("a")).add_agent("b", second)
    workflow = builder.from_("a").to("b").with_delay(3600).build()
    running = asyncio.ensure_future(workflow.run("i", "e"))

    await clock.wait_for_sleepers()
    clock.advance(3599)
    await clock.wait_for_sleepers()
    assert second.turns == 0
    clock.advance(1)
    result = await running

    assert result.final_answer == "b"
    assert result.duration == 3600


async def test_of_several_delays_the_longest_counts() -> None:
    clock = FakeClock()
    builder = kept(clock=clock).add_agent("a", says("a")).add_agent("b", says("b")).add_agent("c", says("c"))
    edges = builder.from_("a").to("c").with_delay(10).from_("b").to("c").with_delay(30)
    async with clock.skipping():
        result = await edges.build().run("i")

    assert result.duration == 30


async def test_a_router_may_hand_off_to_the_same_node_again_and_again() -> None:
    words = iter(["work", "work", "work", "done"])
    boss = Overheard(lambda messages: next(words))
    work: Overheard = Overheard(lambda messages: f"work {work.turns}")
    builder = drafted().with_max_iterations(9).add_router_agent("boss", boss).with_handoff("work").with_handoff("done")
    builder.add_agent("work", work).add_agent("done", Overheard(), lambda node: node.with_input_key("work.answer"))
    result = await builder.from_("work").to("boss").build().run("i")

    assert result.final_answer == "<work 3>"
    assert (boss.turns, work.turns) == (4, 3)
