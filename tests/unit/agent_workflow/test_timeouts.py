"""Timeouts of one attempt of a node and of a whole execution, also while no process runs it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, stub, watched

from perdure import InMemoryCheckpointStorage
from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import tool
from perdure.testing import Call, FakeClock


class Slow:
    """An agent that takes some seconds for each turn, turn by turn."""

    description = None

    def __init__(self, clock: FakeClock, *seconds: float, name: str = "slow") -> None:
        self.name = self.id = name
        self._clock = clock
        self._seconds = seconds
        self.turns = 0
        self.cancelled = 0

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        self.turns += 1
        before = self._clock.now()
        try:
            await self._clock.sleep(self._seconds[min(self.turns, len(self._seconds)) - 1])
        finally:
            wanted = self._seconds[min(self.turns, len(self._seconds)) - 1]
            self.cancelled += (self._clock.now() - before).total_seconds() < wanted
        return AgentResponse(messages=(Message("assistant", "slowly"),))


async def test_turn_is_cancelled_at_its_timeout() -> None:
    clock = FakeClock()
    agent = Slow(clock, 100)
    workflow = kept(clock=clock).add_agent("a", agent, lambda node: node.with_timeout(10)).build()
    async with clock.skipping():
        result = await workflow.run("i", "e")

    assert result.state == "failed"
    assert "did not end within 10 s" in str(result.error)
    assert isinstance(result.exception, TimeoutError)
    assert result.duration == 10
    assert agent.cancelled == 1


async def test_each_attempt_has_the_whole_time() -> None:
    clock = FakeClock()
    agent = Slow(clock, 100, 100, 9)
    builder = kept(clock=clock).add_agent("a", agent, lambda node: node.with_timeout(10).with_retry_transient(3))
    async with clock.skipping():
        result = await builder.build().run("i")

    assert result.final_answer == "slowly"
    assert result.duration == 10 + 1 + 10 + 2 + 9


async def test_turn_within_its_timeout_is_not_cancelled() -> None:
    clock = FakeClock()
    workflow = kept(clock=clock).add_agent("a", Slow(clock, 9), lambda node: node.with_timeout(10)).build()
    async with clock.skipping():
        assert (await workflow.run("i")).final_answer == "slowly"


# ---------------------------------------------------------------- the whole execution


@pytest.mark.parametrize("mode", ["stop", "skip", "isolate"])
async def test_execution_timeout_applies_in_every_error_mode(mode: str) -> None:
    clock = FakeClock()
    after = RecordingAgent("b")
    builder = (
        kept(clock=clock)
        .with_timeout(60)
        .add_agent("a", Slow(clock, 100), lambda node: getattr(node, f"on_error_{mode}")())
    )
    builder.add_agent("quick", stub("quick")).add_agent("b", after)
    workflow = builder.from_("a", "quick").to("b").build()
    async with clock.skipping():
        events, result = await watched(workflow.stream("i", "e"))

    assert (result.state, result.success) == ("completed", False)
    assert result.error == "timed out after 60 s"
    assert result.outputs == {"quick.answer": "quick"}
    assert result.duration == 60
    assert after.turns == 0
    (ended,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.skipped_nodes) == (1, 1, 1)


async def test_fallback_does_not_start_after_the_execution_timeout() -> None:
    clock = FakeClock()
    spare = RecordingAgent("spare")
    builder = kept(clock=clock).with_timeout(60)
    builder.add_agent("a", Slow(clock, 100), lambda node: node.on_error_fallback("spare")).add_agent("spare", spare)
    async with clock.skipping():
        result = await builder.build().run("i")

    assert result.error == "timed out after 60 s"
    assert spare.turns == 0


async def test_the_time_is_counted_from_the_start_over_all_nodes() -> None:
    clock = FakeClock()
    builder = kept(clock=clock).with_timeout(60)
    for name in "abc":
        builder.add_agent(name, Slow(clock, 25, name=name))
    workflow = builder.from_("a").to("b").from_("b").to("c").build()
    async with clock.skipping():
        result = await workflow.run("i")

    assert result.outputs == {"a.answer": "slowly", "b.answer": "slowly"}
    assert result.duration == 60


async def test_retries_stop_at_the_execution_timeout() -> None:
    clock = FakeClock()
    agent = RecordingAgent(ValueError("boom"))
    builder = kept(clock=clock).with_timeout(50)
    builder.add_agent("a", agent, lambda node: node.with_retry(9, "constant", initial_delay=40))
    async with clock.skipping():
        result = await builder.build().run("i")

    assert not result.success
    assert result.duration <= 50
    assert agent.turns == 2


async def test_delay_stops_at_the_execution_timeout() -> None:
    clock = FakeClock()
    after = RecordingAgent("b")
    builder = kept(clock=clock).with_timeout(60).add_agent("a", stub("a")).add_agent("b", after)
    async with clock.skipping():
        result = await builder.from_("a").to("b").with_delay(3600).build().run("i")

    assert result.error == "timed out after 60 s"
    assert result.duration == 60
    assert after.turns == 0


async def test_execution_timeout_counts_while_no_process_runs_it() -> None:
    clock = FakeClock()
    agent, after = RecordingAgent(ValueError("boom"), "fine"), RecordingAgent("b")
    builder = kept(clock=clock).with_timeout(60).add_agent("a", agent).add_agent("b", after)
    workflow = builder.from_("a").to("b").build()
    assert (await workflow.run("i", "e")).state == "failed"
    clock.advance(61)

    result = await workflow.resume("e")

    assert result.error == "timed out after 60 s"
    assert (agent.turns, after.turns) == (1, 0)


async def test_approval_deadline_is_limited_by_the_execution_timeout() -> None:
    clock = FakeClock()
    builder = kept(clock=clock).with_timeout(60)
    workflow = builder.add_agent("a", stub("a"), lambda node: node.requires_approval("?", timeout=600)).build()
    asked = (await workflow.run("i", "e")).pending[0]
    assert asked.deadline is not None
    assert (asked.deadline - clock.now()).total_seconds() == 60
    clock.advance(61)

    assert (await workflow.resume("e")).error == "timed out after 60 s"


async def test_tool_approval_is_limited_by_the_execution_timeout() -> None:
    @tool(approval=True)
    def pay() -> str:
        raise AssertionError("the call was not approved")

    clock = FakeClock()
    builder = kept(clock=clock).with_timeout(60)
    workflow = builder.add_agent("a", stub(Call("pay"), "done", tools=[pay])).build()
    assert (await workflow.run("i", "e")).state == "waiting"
    clock.advance(61)

    assert (await workflow.resume("e")).error == "timed out after 60 s"


def nested(clock: FakeClock, inner: AgentWorkflowInstance) -> AgentWorkflowInstance:
    return kept(clock=clock).with_timeout(60).add_workflow("sub", inner).build()


async def test_inner_workflow_is_limited_by_the_timeout_of_the_outer_one() -> None:
    clock = FakeClock()
    inner = drafted("inner").add_agent("x", stub("x"), lambda node: node.requires_approval("?")).build()
    workflow = nested(clock, inner)
    assert (await workflow.run("i", "e")).state == "waiting"
    clock.advance(61)
    result = await workflow.resume("e")
    assert (result.state, result.success) == ("completed", False)
    assert "timed out" in str(result.error)

    slow = drafted("inner").add_agent("x", Slow(clock, 100)).build()
    async with clock.skipping():
        result = await nested(clock, slow).run("i")
    assert not result.success
    assert result.duration == 60


@pytest.mark.parametrize(
    ("mode", "ran"), [("stop", set()), ("skip", set()), ("isolate", {"join"})], ids=["stop", "skip", "isolate"]
)
async def test_inner_workflow_timeout_uses_the_error_mode_of_its_node(mode: str, ran: set[str]) -> None:
    clock = FakeClock()
    inner = drafted("inner").add_agent("x", Slow(clock, 100)).build()
    builder = kept(clock=clock).add_workflow(
        "sub", inner, lambda node: getattr(node.with_timeout(10), f"on_error_{mode}")()
    )
    builder.add_agent("good", stub("g")).add_agent("join", stub("j")).from_("sub", "good").to("join")
    async with clock.skipping():
        result = await builder.build().run("i")

    assert not result.success
    assert result.duration == 10
    assert "10 s" in str(result.error)
    assert set(result.outputs) == {"good.answer", *(f"{name}.answer" for name in ran)}


async def test_delay_counts_while_no_process_runs_it() -> None:
    clock = FakeClock()
    storage = InMemoryCheckpointStorage()

    def opened() -> AgentWorkflowInstance:
        builder = drafted(clock=clock).with_checkpointing().with_workflow_store(storage)
        builder.add_agent("a", stub("a")).add_agent("b", stub("b"))
        return builder.from_("a").to("b").with_delay(3600).build()

    running = asyncio.ensure_future(opened().run("i", "e"))
    await clock.wait_for_sleepers()
    running.cancel()
    await asyncio.wait([running])
    clock.advance(3000)
    running = asyncio.ensure_future(opened().run("i", "e"))
    await clock.wait_for_sleepers()
    clock.advance(600)

    assert (await running).duration == 3600
