"""Retries of a node: how often, how far apart, after which errors, and their events."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, boom, drafted, kept, of_kind, watched

from perdure import InMemoryCheckpointStorage, InvalidDefinition, RetryPolicy
from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.builder.workflow import Configure
from perdure.agent_workflow.definition import RetryConfig, RetryStrategy
from perdure.agent_workflow.execution.execution import WorkflowResult
from perdure.agent_workflow.execution.turn import is_transient, retry_policy_of
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.testing import FakeClock


class Busy(Exception):
    status_code = 503


async def tried(agent: RecordingAgent, configure: Configure) -> tuple[list[Any], WorkflowResult]:
    clock = FakeClock()
    workflow = kept(clock=clock).add_agent("a", agent, configure).build()
    async with clock.skipping():
        return await watched(workflow.stream("i"))


async def test_a_node_without_retries_is_tried_once() -> None:
    agent = RecordingAgent(boom, "fine")
    _, result = await tried(agent, lambda node: node)

    assert result.state == "failed"
    assert agent.turns == 1


async def test_node_is_retried_until_it_succeeds() -> None:
    agent = RecordingAgent(boom, boom, "fine")
    events, result = await tried(agent, lambda node: node.with_retry(3))

    assert result.final_answer == "fine"
    assert agent.turns == 3
    assert result.duration == 3  # 1 s, then 2 s
    messages = [event.message for event in of_kind(events, event_types.WorkflowDiagnosticEvent)]
    assert [text.split(" ")[1] for text in messages] == ["1", "2"]
    assert all("ValueError: boom" in text for text in messages)
    assert len(of_kind(events, event_types.WorkflowAgentStartedEvent)) == 1
    assert len(of_kind(events, event_types.WorkflowAgentCompletedEvent)) == 1


async def test_error_of_the_last_attempt_is_reported() -> None:
    agent = RecordingAgent(boom, boom, ValueError("third"), "fine")
    _, result = await tried(agent, lambda node: node.with_retry(3))

    assert result.error == "a: ValueError: third"
    assert agent.turns == 3


@pytest.mark.parametrize(("strategy", "duration"), [("constant", 30), ("linear", 60), ("exponential", 70)], ids=str)
async def test_attempts_are_spaced_by_the_retry_strategy(strategy: RetryStrategy, duration: float) -> None:
    agent = RecordingAgent(boom, boom, boom, "fine")
    delay = timedelta(seconds=10)
    _, result = await tried(agent, lambda node: node.with_retry(4, strategy, initial_delay=delay))

    assert result.duration == duration


async def test_delays_are_limited_by_max_delay() -> None:
    agent = RecordingAgent(boom, boom, boom, "fine")
    _, result = await tried(agent, lambda node: node.with_retry(4, initial_delay=10, max_delay=15))

    assert result.duration == 40


def test_jittered_delays_are_between_half_and_all_of_the_exponential_ones() -> None:
    policy = retry_policy_of(RetryConfig(strategy="jittered", initial_delay=10))
    assert policy is not None
    second = {policy.delay_after(2) for _ in range(50)}

    assert all(10 <= delay <= 20 for delay in second)
    assert len(second) > 1


async def test_with_retry_transient_retries_only_transient_errors() -> None:
    wrong = RecordingAgent(boom, "fine")
    _, failed = await tried(wrong, lambda node: node.with_retry_transient(3))
    assert failed.state == "failed"
    assert wrong.turns == 1

    for error in (TimeoutError("slow"), ConnectionResetError("gone"), Busy("busy")):
        agent = RecordingAgent(error, "fine")
        _, result = await tried(agent, lambda node: node.with_retry_transient(3))
        assert result.final_answer == "fine"


def test_error_is_transient_by_its_type_or_by_its_cause() -> None:
    def caused(by: Exception) -> Exception:
        error = RuntimeError("the model failed")
        error.__cause__ = by
        return error

    class RateLimitError(Exception):
        """As clients of models call it."""

    assert is_transient(caused(Busy("busy")))
    assert is_transient(RateLimitError("slow down"))
    assert not is_transient(caused(ValueError("wrong")))
    assert not is_transient(None)


async def test_with_retry_accepts_a_retry_policy() -> None:
    agent = RecordingAgent(boom, boom, "fine")
    _, result = await tried(agent, lambda node: node.with_retry(RetryPolicy(3, initial_delay=5, backoff=1)))

    assert result.duration == 10


@pytest.mark.parametrize("policy", [RetryPolicy(2, retry_on=RuntimeError), RetryPolicy(2, backoff=3)])
async def test_retry_policy_beyond_the_document_format_works_but_is_not_exported(policy: RetryPolicy) -> None:
    agent = RecordingAgent(RuntimeError("boom"), "fine")
    _, result = await tried(agent, lambda node: node.with_retry(policy))

    assert (result.final_answer, agent.turns) == ("fine", 2)
    with pytest.raises(InvalidDefinition) as refused:
        kept().add_agent("a", agent, lambda node: node.with_retry(policy)).build().to_config()
    assert "agents.a.retry" in {place for place, _ in refused.value.problems}


async def test_error_outside_of_retry_on_is_not_retried() -> None:
    agent = RecordingAgent(KeyError("boom"), "fine")
    _, result = await tried(agent, lambda node: node.with_retry(RetryPolicy(2, retry_on=RuntimeError)))

    assert (result.state, agent.turns) == ("failed", 1)


async def test_node_fails_by_its_error_mode_after_its_retries() -> None:
    agent = RecordingAgent(boom)
    _, result = await tried(agent, lambda node: node.with_retry(2).on_error_isolate())

    assert result.state == "completed"
    assert result.error == "a: ValueError: boom"
    assert agent.turns == 2


async def test_attempts_are_counted_across_restarts() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    agent = RecordingAgent(boom, boom, boom, "fine")

    def opened() -> AgentWorkflowInstance:
        builder = drafted(clock=clock).with_checkpointing().with_workflow_store(storage)
        return builder.add_agent("a", agent, lambda node: node.with_retry(3, "constant", initial_delay=100)).build()

    running = asyncio.ensure_future(opened().run("i", "e"))
    await clock.wait_for_sleepers()
    running.cancel()
    await asyncio.wait([running])
    assert agent.turns == 1
    async with clock.skipping():
        result = await opened().run("i", "e")

    assert result.state == "failed"
    assert agent.turns == 3
    assert result.duration == 200
