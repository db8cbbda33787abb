"""Maps: one agent over a list, no more than so many at a time, and what one item that fails does to the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.crashing import Log, assert_survives
from tests.unit.agent_workflow.making import RecordingAgent, drafted, echo, kept, stub

from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.definition import MapErrors
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import tool
from perdure.testing import Call, FakeClock, ScriptedAgent


class Crowd:
    """Counts how many turns it is in at a time; each ends when the test opens the gate."""

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


async def test_map_runs_once_per_item_and_returns_a_list_in_order() -> None:
    agent = RecordingAgent()
    result = await mapped(agent).run({"items": ["a", 2, {"c": [3]}]})

    assert result.outputs == {"m.answer": ["<a>", "<2>", '<{"c":[3]}>']}
    assert result.final_answer == '<a>\n\n<2>\n\n<{"c":[3]}>'
    assert agent.turns == 3


async def test_map_iterates_over_the_list_of_another_node() -> None:
    class Plan(msgspec.Struct):
        steps: list[str]

    builder = drafted().add_agent("plan", stub({"steps": ["x", "y"]}), lambda node: node.structured_output(Plan))
    builder.add_agent("do", RecordingAgent(), lambda node: node.map_over("steps").with_output_key("done"))
    builder.add_agent("sum", RecordingAgent(), lambda node: node.with_input_key("done"))
    result = await builder.from_("plan").to("do").from_("do").to("sum").build().run("i")

    assert result.outputs["do.done"] == ["<x>", "<y>"]
    assert result.final_answer == '<["<x>","<y>"]>'


async def test_map_template_receives_the_item_its_index_and_all_other_keys() -> None:
    agent = RecordingAgent()
    template = "{{index}}: {{item.name}} of {{input.topic}}"
    workflow = mapped(agent, lambda node: node.with_input_template(template))
    await workflow.run({"items": [{"name": "a"}, {"name": "b"}], "topic": "t"})

    assert sorted(agent.inputs) == ["0: a of t", "1: b of t"]


@pytest.mark.parametrize("most", [1, 3])
async def test_max_parallel_limits_concurrent_items(most: int) -> None:
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


def fails_at(bad: str) -> RecordingAgent:
    return RecordingAgent(lambda messages: ValueError("boom") if messages[-1].text == bad else f"<{messages[-1].text}>")


@pytest.mark.parametrize(
    ("on_error", "expected"), [("null", ["<1>", None, "<3>"]), ("omit", ["<1>", "<3>"])], ids=["null", "omit"]
)
async def test_failed_item_is_null_or_omitted(on_error: MapErrors, expected: list[Any]) -> None:
    result = await mapped(fails_at("2"), on_error=on_error).run({"items": [1, 2, 3]})

    assert result.success
    assert result.outputs["m.answer"] == expected


async def test_failed_item_fails_the_node_and_other_items_do_not_run_again() -> None:
    agent: RecordingAgent = RecordingAgent(
        lambda messages: ValueError("boom") if agent.turns <= 3 and messages[-1].text == "2" else messages[-1].text
    )
    workflow = mapped(agent)
    result = await workflow.run({"items": [1, 2, 3]}, "e")
    assert result.state == "failed"
    assert result.error == "m: ValueError: boom"

    result = await workflow.resume("e")

    assert result.outputs["m.answer"] == ["1", "2", "3"]
    assert sorted(agent.inputs) == ["1", "2", "2", "3"]


async def test_each_item_is_retried_by_itself() -> None:
    clock = FakeClock()
    failed: set[str] = set()

    def reply(messages: list[Message]) -> Any:
        text = messages[-1].text
        if text in failed:
            return text
        failed.add(text)
        return ValueError("first")

    builder = kept(clock=clock).add_agent(
        "m", RecordingAgent(reply), lambda node: node.map_over("input.items").with_retry(2)
    )
    async with clock.skipping():
        result = await builder.build().run({"items": ["a", "b"]})

    assert result.outputs["m.answer"] == ["a", "b"]


async def test_empty_list_returns_an_empty_list_without_a_turn() -> None:
    agent = RecordingAgent()
    result = await mapped(agent).run({"items": []})

    assert result.success
    assert result.outputs == {"m.answer": []}
    assert agent.turns == 0


@pytest.mark.parametrize("items", ["abc", None, {"a": 1}, 3])
async def test_value_that_is_not_a_list_fails_the_node_with_its_place(items: Any) -> None:
    result = await mapped(RecordingAgent()).run({"items": items})

    assert result.state == "failed"
    assert "agents.m.map.over: expected a list" in str(result.error)


async def test_structured_items_are_whole() -> None:
    class Rating(msgspec.Struct):
        name: str
        score: int

    workflow = mapped(stub({"name": "n", "score": 1}), lambda node: node.structured_output(Rating))
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

    workflow = mapped(RecordingAgent(reply, tools=[pay]))
    result = await workflow.run({"items": [1, 2, 3]}, "e")
    assert len(result.pending) == 3
    for request in reversed(result.pending):
        result = await workflow.approve(request.request_id)

    assert result.outputs["m.answer"] == ["done"] * 3
    assert sorted(paid) == [1, 2, 3]


async def test_approval_of_a_map_covers_all_its_outputs() -> None:
    workflow = mapped(RecordingAgent(), lambda node: node.requires_approval("All of these?"))
    result = await workflow.run({"items": [1, 2]}, "e")

    assert [request.outputs for request in result.pending] == [{"answer": ["<1>", "<2>"]}]


async def test_interrupted_map_does_not_repeat_finished_items() -> None:
    def make(storage: Any, log: Log) -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_workflow_store(storage)
        agent = ScriptedAgent("m", echo, log=log)
        return builder.add_agent("m", agent, lambda node: node.map_over("input.items", max_parallel=1)).build()

    await assert_survives(make, {"items": [1, 2, 3]})
