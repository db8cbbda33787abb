"""Approvals in time and out of it, of tools in the middle of a turn, and from wherever the answer comes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.execution.execution import Execution
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse
from perdure.agents.tools import tool
from perdure.errors import AlreadyAnswered
from perdure.testing import Call, FakeClock

# ---------------------------------------------------------------- no answer


def timed(clock: FakeClock, configure: Configure, after: Any = None) -> AgentWorkflowInstance:
    builder = kept(clock=clock).add_agent("a", stub("said"), configure).add_agent("b", after or stub("went on"))
    return builder.from_("a").to("b").build()


async def test_approval_timeout_fails_the_node_permanently() -> None:
    clock = FakeClock()
    workflow = timed(clock, lambda node: node.requires_approval("?", timeout=60))
    asked = (await workflow.run("i", "e")).pending[0]
    assert asked.deadline is not None
    assert (asked.deadline - clock.now()).total_seconds() == 60

    clock.advance(61)
    events, result = await watched(workflow.stream_resumed("e"))

    assert (result.state, result.success) == ("completed", False)
    assert "The output of 'a' was not approved within 60 s" in str(result.error)
    (resolved,) = of_kind(events, event_types.WorkflowApprovalResolvedEvent)
    assert (resolved.approved, resolved.timed_out) == (False, True)
    assert not of_kind(events, event_types.WorkflowDiagnosticEvent)
    with pytest.raises(AlreadyAnswered):
        await workflow.approve(asked.request_id)
    assert (await workflow.resume("e")).error == result.error


async def test_an_approval_in_time_counts() -> None:
    clock = FakeClock()
    workflow = timed(clock, lambda node: node.requires_approval("?", timeout=60))
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    clock.advance(59)

    assert (await workflow.approve(request_id)).final_answer == "went on"


async def test_approval_timeout_uses_the_error_mode_of_the_node() -> None:
    clock = FakeClock()
    builder = kept(clock=clock).add_agent(
        "a", stub("said"), lambda node: node.requires_approval("?", timeout=60).on_error_fallback("spare")
    )
    workflow = builder.add_agent("spare", stub("spare")).build()
    await workflow.run("i", "e")
    clock.advance(61)
    result = await workflow.resume("e")

    assert result.success
    assert result.final_answer == "spare"


async def test_auto_approve_continues_after_the_timeout() -> None:
    clock = FakeClock()
    workflow = timed(clock, lambda node: node.requires_approval("?", timeout=60, timeout_behavior="auto_approve"))
    await workflow.run("i", "e")
    assert (await workflow.resume("e")).state == "waiting"
    clock.advance(61)
    events, result = await watched(workflow.stream_resumed("e"))

    assert result.outputs == {"a.answer": "said", "b.answer": "went on"}
    (resolved,) = of_kind(events, event_types.WorkflowApprovalResolvedEvent)
    assert (resolved.approved, resolved.timed_out) == (True, True)


@pytest.mark.parametrize("timeout", [None, 0, 60])
async def test_approval_with_suspend_behavior_never_expires(timeout: float | None) -> None:
    clock = FakeClock()
    workflow = timed(clock, lambda node: node.requires_approval("?", timeout, timeout_behavior="suspend"))
    asked = (await workflow.run("i", "e")).pending[0]
    assert asked.deadline is None
    clock.advance(10_000_000)
    assert (await workflow.resume("e")).state == "waiting"

    assert (await workflow.approve(asked.request_id)).final_answer == "went on"


# ---------------------------------------------------------------- tools


class Till:
    """A tool that moves money, and needs approval for it."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool = pay

    def workflow(self) -> AgentWorkflowInstance:
        agent = stub(Call("pay", {"amount": 3}), "done", name="payer", tools=[self.tool])
        return kept().add_agent("a", agent).build()


async def test_a_tool_is_called_when_its_call_is_approved() -> None:
    till = Till()
    workflow = till.workflow()
    result = await workflow.run("i", "e")
    (asked,) = result.pending
    assert asked.agent_id == "a"
    assert asked.message == "May it call pay?"
    assert asked.outputs == {"tool": "pay", "arguments": {"amount": 3}}
    assert till.paid == []

    assert (await workflow.approve(asked.request_id)).final_answer == "done"
    assert till.paid == [3]


async def test_approved_tool_is_called_with_the_arguments_of_the_approval() -> None:
    till = Till()
    workflow = till.workflow()
    request_id = (await workflow.run("i", "e")).pending[0].request_id
    await workflow.approve(request_id, data={"amount": 2})

    assert till.paid == [2]


async def test_denied_tool_is_not_called_and_the_turn_continues() -> None:
    till = Till()
    workflow = till.workflow()
    request_id = (await workflow.run("i", "e")).pending[0].request_id

    assert (await workflow.deny(request_id, reason="too much")).final_answer == "done"
    assert till.paid == []


# ---------------------------------------------------------------- where the answer comes from


@pytest.mark.parametrize("approved", [True, False])
async def test_a_subscriber_answers_while_the_run_is_awaited(approved: bool) -> None:
    workflow = drafted().add_agent("a", stub("said"), lambda node: node.requires_approval("?")).build()
    states: list[str] = []

    async def answer(event: event_types.WorkflowApprovalRequestedEvent) -> None:
        await asyncio.sleep(0)
        decide = workflow.approve if approved else workflow.deny
        states.append((await decide(event.request_id)).state)

    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, answer)
    result = await workflow.run("i")

    assert states == ["running"]
    assert result.outputs == ({"a.answer": "said"} if approved else {})


async def test_consecutive_approvals_are_all_answered_in_one_run() -> None:
    builder = drafted()
    for name in "abc":
        builder.add_agent(name, stub(name), lambda node: node.requires_approval("?"))
    workflow = builder.from_("a").to("b").from_("b").to("c").build()

    async def answer(event: event_types.WorkflowApprovalRequestedEvent) -> None:
        await workflow.approve(event.request_id, data={"by": event.agent_id})

    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, answer)
    result = await workflow.run("i")

    assert result.final_answer == "c"
    assert [result.outputs[f"{name}.by"] for name in "abc"] == ["a", "b", "c"]


async def test_second_answer_during_a_run_is_rejected() -> None:
    builder = drafted().add_agent("a", stub("a"), lambda node: node.requires_approval("?"))
    builder.add_agent("b", stub("b"), lambda node: node.requires_approval("?"))
    workflow = builder.from_("a").to("b").build()
    asked: list[str] = []
    refused: list[str] = []

    async def answer(event: event_types.WorkflowApprovalRequestedEvent) -> None:
        asked.append(event.request_id)
        await workflow.approve(event.request_id)
        try:
            await workflow.deny(asked[0])
        except AlreadyAnswered as error:
            refused.append(error.request_id)

    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, answer)

    assert (await workflow.run("i")).final_answer == "b"
    assert refused == [asked[0], asked[0]]


async def test_second_of_two_simultaneous_answers_is_rejected() -> None:
    workflow = drafted().add_agent("a", stub("a"), lambda node: node.requires_approval("?")).build()
    came: list[Any] = []

    async def answer(event: event_types.WorkflowApprovalRequestedEvent) -> None:
        both = (workflow.approve(event.request_id), workflow.deny(event.request_id))
        came.extend(await asyncio.gather(*both, return_exceptions=True))

    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, answer)

    assert (await workflow.run("i")).final_answer == "a"
    assert came[0].state == "running"
    assert isinstance(came[1], AlreadyAnswered)


async def test_another_object_on_the_same_file_answers(tmp_path: Path) -> None:
    first, after = RecordingAgent("said"), RecordingAgent("went on")

    def opened() -> AgentWorkflowInstance:
        builder = drafted().with_checkpointing().with_sqlite_workflow_store(tmp_path / "w.db")
        builder.add_agent("a", first, lambda node: node.requires_approval("?")).add_agent("b", after)
        return builder.from_("a").to("b").build()

    await opened().run("i", "e")
    (asked,) = await opened().pending()
    result = await opened().approve(asked.request_id, data={"extra": 1})

    assert result.outputs == {"a.answer": "said", "a.extra": 1, "b.answer": "went on"}
    assert (first.turns, after.turns) == (1, 1)
    assert (await opened().run("i", "e")).outputs == result.outputs
    assert await opened().pending() == []


class Slow:
    """Answers when the test lets it."""

    name = id = "slow"
    description = None

    def __init__(self, gate: asyncio.Event) -> None:
        self._gate = gate

    async def run(self, messages: list[Message], *, session: Any = None) -> AgentResponse:
        await self._gate.wait()
        return AgentResponse(messages=(Message("assistant", "slow"),))


async def test_answer_may_come_from_a_thread_with_its_own_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, answer = asyncio.Event(), Execution.answer

    async def answered_while_it_runs(self: Execution, request_id: str, decision: Any) -> bool:
        gate.set()
        return await answer(self, request_id, decision)

    monkeypatch.setattr(Execution, "answer", answered_while_it_runs)

    builder = drafted().add_agent("a", stub("a"), lambda node: node.requires_approval("?"))
    workflow = builder.add_agent("slow", Slow(gate)).build()
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, lambda event: asked.set_result(event.request_id))
    running = asyncio.ensure_future(workflow.run("i"))
    request_id = await asked

    answered = await asyncio.to_thread(lambda: asyncio.run(workflow.approve(request_id)))

    assert answered.state == "running"
    assert (await running).outputs == {"a.answer": "a", "slow.answer": "slow"}
