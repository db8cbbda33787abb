"""Where an execution goes: routers that hand off, types that decide, edges of the start and the end, delays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import Call, FakeClock


class Invoice(msgspec.Struct):
    total: int


@dataclass
class Complaint:
    why: str


def routed(reply: Any, *, default: str | None = None) -> AgentWorkflowInstance:
    builder = drafted().add_router_agent("route", stub(reply)).with_handoff("bill", "Money").with_handoff("care")
    if default is not None:
        builder.with_default_handoff(default)
    builder.add_agent("bill", stub("paid")).add_agent("care", stub("sorry")).add_agent("human", stub("well"))
    return builder.build()


async def went(workflow: AgentWorkflowInstance, workflow_input: str = "i") -> set[str]:
    """The nodes that ran."""
    result = await workflow.run(workflow_input)
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


async def test_default_handoff_is_used_if_no_target_is_chosen() -> None:
    assert await went(routed("I cannot say", default="human")) == {"route", "human"}


async def test_router_without_a_choice_and_a_default_fails() -> None:
    builder = drafted().add_router_agent("route", stub("I cannot say")).with_handoff("bill")
    result = await builder.add_agent("bill", stub("paid")).build().run("i")

    assert result.state == "failed"
    assert "did not hand off" in str(result.error)
    assert "I cannot say" in str(result.error)


async def test_handoff_to_an_unknown_target_gives_the_model_another_turn() -> None:
    agent = RecordingAgent(Call("handoff_to_nobody"), Call("handoff_to_bill"))
    builder = drafted().add_router_agent("route", agent).with_handoff("bill")

    assert await went(builder.add_agent("bill", stub("paid")).build()) == {"route", "bill"}
    assert agent.turns == 2


async def test_model_receives_the_description_of_each_handoff() -> None:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from perdure import Agent

    tools: dict[str, str | None] = {}

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools.update({tool.name: tool.description for tool in info.function_tools})
        return ModelResponse(parts=[ToolCallPart("handoff_to_bill", {})])

    builder = drafted().add_router_agent("route", Agent(FunctionModel(model), name="r"))
    builder.with_handoff("bill", "Questions about money").with_handoff("care")
    workflow = builder.add_agent("bill", stub("paid")).add_agent("care", stub("sorry")).build()

    assert await went(workflow) == {"route", "bill"}
    assert tools["handoff_to_bill"] == "Questions about money"
    assert "care" in str(tools["handoff_to_care"])


async def test_text_of_a_router_beside_its_handoff_is_its_answer() -> None:
    result = await routed("care", default="human").run("i")

    assert result.outputs["route.answer"] == "care"


@pytest.mark.parametrize(
    ("reply", "chosen"), [({"total": 1}, "bill"), ({"why": "late"}, "care"), ({"stars": 1}, "human")]
)
async def test_the_type_of_an_answer_decides(reply: Any, chosen: str) -> None:
    class Praise(msgspec.Struct):
        stars: int

    builder = drafted().add_agent("a", stub(reply), lambda node: node.union_output(Invoice, Complaint, Praise))
    for name in ("bill", "care", "human"):
        builder.add_agent(name, stub(name))
    edges = builder.from_("a").route_by_type().when(Invoice, "bill").when(Complaint, "care").default("human")

    assert await went(edges.build()) == {"a", chosen}


# ---------------------------------------------------------------- start and end


def by_input() -> AgentWorkflowInstance:
    builder = drafted().add_agent("short", stub("s")).add_agent("long", stub("l"))
    return (
        builder.from_("START").to("short").when_equals("kind", "short").from_("START").to("long").as_default().build()
    )


async def test_input_decides_which_node_begins() -> None:
    short = await by_input().run({"kind": "short"})
    long = await by_input().run("anything")

    assert set(short.outputs) == {"short.answer"}
    assert set(long.outputs) == {"long.answer"}


async def test_an_edge_to_the_end_leaves_out_the_default() -> None:
    def workflow() -> AgentWorkflowInstance:
        builder = drafted().add_agent("a", RecordingAgent()).add_agent("b", stub("b"))
        return builder.from_("a").to("END").when_contains("answer", "stop").from_("a").to("b").as_default().build()

    assert await went(workflow(), "stop") == {"a"}
    assert await went(workflow(), "go on") == {"a", "b"}


async def test_taken_edge_emits_an_event_with_its_condition() -> None:
    builder = drafted().add_agent("a", stub("x")).add_agent("b", stub("y")).add_agent("c", stub("z"))
    edges = builder.from_("a").to("b").when_equals("answer", "x").from_("a").to("c").when_equals("answer", "y")
    events, _ = await watched(edges.build().stream("i"))

    taken = of_kind(events, event_types.WorkflowEdgeTraversedEvent)
    assert [(event.from_node_id, event.to_node_id) for event in taken] == [("a", "b")]
    assert taken[0].has_condition
    assert taken[0].condition_description == "answer equals 'x'"


# ---------------------------------------------------------------- delays


async def test_an_edge_with_a_delay_waits_before_its_target_runs() -> None:
    clock = FakeClock()
    second = RecordingAgent("b")
    builder = kept(clock=clock).add_agent("a", stub("a")).add_agent("b", second)
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


async def test_longest_of_several_delays_counts() -> None:
    clock = FakeClock()
    builder = kept(clock=clock).add_agent("a", stub("a")).add_agent("b", stub("b")).add_agent("c", stub("c"))
    edges = builder.from_("a").to("c").with_delay(10).from_("b").to("c").with_delay(30)
    async with clock.skipping():
        result = await edges.build().run("i")

    assert result.duration == 30


async def test_a_router_may_hand_off_to_the_same_node_again_and_again() -> None:
    words = iter(["work", "work", "work", "done"])
    boss = RecordingAgent(lambda messages: next(words))
    work: RecordingAgent = RecordingAgent(lambda messages: f"work {work.turns}")
    builder = drafted().with_max_iterations(9).add_router_agent("boss", boss).with_handoff("work").with_handoff("done")
    builder.add_agent("work", work).add_agent("done", RecordingAgent(), lambda node: node.with_input_key("work.answer"))
    result = await builder.from_("work").to("boss").build().run("i")

    assert result.final_answer == "<work 3>"
    assert (boss.turns, work.turns) == (4, 3)
