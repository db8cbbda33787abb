"""Maps: one agent over a list, no more than so many at a time, and what one item that fails does to the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.unit.orchestrations.agent_workflow.crashing import Log, assert_survives
from tests.unit.orchestrations.agent_workflow.making import Overheard, drafted, echo, kept, says

from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.definition.config import MapErrors
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import tool
from perdure.testing import Call, FakeClock, ScriptedAgent


class Crowd:
    """Counts how many turns it is in at a time; each ends when the test says so."""

    name = id = "crowd"
    description = None

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.gate = asyncio.Event()
        self.came = asyncio.Semaphore(0)

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.came.release()
        await self.gate.wait()
        self.inside -= 1
        return AgentResponse(messages=(Message("assistant", f"<{messages[-1].text}>"),))


def mapped(agent: Any, configure: Configure | None = None, **options: Any) -> AgentWorkflowInstance:
    def all_of_it(node: Any) -> None:
        node.map_over("input.items", **options)
        if configure is not None:
            configure(node)

    return kept().add_agent("m", agent, all_of_it).build()


async def test_the_agent_runs_once_for_each_item_and_the_output_is_a_list_in_order() -> None:
    agent = Overheard()
    result = await mapped(agent).run({"items": ["a", 2, {"c": [3]}]})

    assert result.outputs == {"m.answer": ["<a>", "<2>", '<{"c":[3]}>']}
    assert result.final_answer == '<a>\n\n<2>\n\n<{"c":[3]}>'
    assert agent.turns == 3


async def test_a_list_that_a_node_gave_is_gone_over() -> None:
    class Plan(msgspec.Struct):
        steps: list[str]

    builder = drafted().add_agent("plan", says({"steps": ["x", "y"]}), lambda node: node.structured_output(Plan))
    builder.add_agent("do", Overheard(), lambda node: node.map_over("steps").with_output_key("done"))
    builder.add_agent("sum", Overheard(), lambda node: node.with_input_key("done"))
    result = await builder.from_("plan").to("do").from_("do").to("sum").build().run("i")

    assert result.outputs["do.done"] == ["<x>", "<y>"]
    assert result.final_answer == '<["<x>","<y>"]>'


async def test_a_template_sees_the_item_its_place_and_all_else() -> None:
    agent = Overheard()
    template = "{{index}}: {{item.name}} of {{input.topic}}"
    workflow = mapped(agent, lambda node: node.with_input_template(template))
    await workflow.run({"items": [{"name": "a"}, {"name": "b"}], "topic": "t"})

    assert sorted(agent.inputs) == ["0: a of t", "1: b of t"]


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_items_are_worked_on_at_a_time_than_the_limit_says(most: int) -> None:
    agent = Crowd()
    workflow = mapped(agent, max_parallel=most)
    running = asyncio.ensure_future(workflow.run({"items": list(range(7))}))
    for _ in range(most):
        await agent.came.acquire()
    assert agent.inside == most
    agent.gate.set()
    result = await running

    assert agent.most == most
    assert result.outputs["m.answer"] == [f"<{number}>" for number in range(7)]


def fails_at(bad: str) -> Overheard:
    return Overheard(lambda messages: ValueError("boom") if messages[-1].text == bad else f"<{messages[-1].text}>")


@pytest.mark.parametrize(
    ("on_error", "expected"), [("null", ["<1>", None, "<3>"]), ("omit", ["<1>", "<3>"])], ids=["null", "omit"]
)
async def test_an_item_that_fails_leaves_a_gap_or_nothing(on_error: MapErrors, expected: list[Any]) -> None:
    result = await mapped(fails_at("2"), on_error=on_error).run({"items": [1, 2, 3]})

    assert result.success
    assert result.outputs["m.answer"] == expected


async def test_an_item_that_fails_fails_the_node_and_the_others_are_not_done_again() -> None:
    agent: Overheard = Overheard(
        lambda messages: ValueError("boom") if agent.turns <= 3 and messages[-1].text == "2" else messages[-1].text
    )
    workflow = mapped(agent)
    result = await workflow.run({"items": [1, 2, 3]}, "e")
    assert result.state == "failed"
    assert result.error == "m: ValueError: boom"

    result = await workflow.resume("e")

    assert result.outputs["m.answer"] == ["1", "2", "3"]
    assert sorted(agent.inputs) == ["1", "2", "2", "3"]


async def test_each_item_is_tried_again_by_itself() -> None:
    clock = FakeClock()
    failed: set[str] = set()

    def reply(messages: list[Message]) -> Any:
        text = messages[-1].text
        if text in failed:
            return text
        failed.add(text)
        return ValueError("first")

    builder = kept(clock=clock).add_agent(
        "m", Overheard(reply), lambda node: node.map_over("input.items").with_retry(2)
    )
    async with clock.skipping():
        result = await builder.build().run({"items": ["a", "b"]})

    assert result.outputs["m.answer"] == ["a", "b"]


async def test_an_empty_list_gives_an_empty_list_and_asks_nobody() -> None:
    agent = Overheard()
    result = await mapped(agent).run({"items": []})

    assert result.success
    assert result.outputs == {"m.answer": []}
    assert agent.turns == 0


@pytest.mark.parametrize("items", ["abc", None, {"a": 1}, 3])
async def test_what_is_no_list_fails_the_node_with_its_place(items: Any) -> None:
    result = await mapped(Overheard()).run({"items": items})

    assert result.state == "failed"
    assert "agents.m.map.over: expected a list" in str(result.error)


async def test_structured_items_are_whole() -> None:
    class Found(msgspec.Struct):
        name: str
        score: int

    workflow = mapped(says({"name": "n", "score": 1}), lambda node: node.structured_output(Found))
    result = await workflow.run({"items": [1, 2]})

    assert result.outputs["m.answer"] == [{"name": "n", "score": 1}] * 2


async def test_each_item_waits_for_the_approval_of_its_own_tool_call() -> None:
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "ok"

    def reply(messages: list[Message]) -> Any:
        return "done" if messages[-1].role == "tool" else Call("pay", {"amount": int(messages[-1].text)})

    workflow = mapped(Overheard(reply, tools=[pay]))
    result = await workflow.run({"items": [1, 2, 3]}, "e")
    assert len(result.pending) == 3
    for one in reversed(result.pending):
        result = await workflow.approve(one.request_id)

    assert result.outputs["m.answer"] == ["done"] * 3
    assert sorted(paid) == [1, 2, 3]


async def test_a_map_whose_outputs_are_approved_is_asked_about_as_a_whole() -> None:
    workflow = mapped(Overheard(), lambda node: node.requires_approval("All of these?"))
    result = await workflow.run({"items": [1, 2]}, "e")

    assert [one.outputs for one in result.pending] == [{"answer": ["<1>", "<2>"]}]


async def test_a_map_that_was_interrupted_is_not_done_again() -> None:
    def make(storage: Any, log: Log) -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_workflow_store(storage)
        agent = ScriptedAgent("m", echo, log=log)
        return builder.add_agent("m", agent, lambda node: node.map_over("input.items", max_parallel=1)).build()

    await assert_survives(make, {"items": [1, 2, 3]})
