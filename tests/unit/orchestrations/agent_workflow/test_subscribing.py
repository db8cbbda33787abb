"""Subscribers: which events they get, how they stop, and that they harm nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.making import Overheard, kept, own, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.instance import AgentWorkflowInstance


def small() -> AgentWorkflowInstance:
    return kept().add_agent("a", says("x")).add_agent("b", says("y")).from_("a").to("b").build()


async def test_a_subscriber_gets_the_events_of_its_type() -> None:
    workflow = small()
    seen: list[str] = []
    workflow.subscribe(told.WorkflowAgentCompletedEvent, lambda event: seen.append(event.agent_id))
    await workflow.run("i")

    assert seen == ["a", "b"]


async def test_a_subscriber_to_what_all_have_in_common_gets_all() -> None:
    workflow = small()
    seen: list[Any] = []
    workflow.subscribe(told.AgentWorkflowEvent, seen.append)
    events, _ = await watched(workflow.stream("i"))

    assert seen == own(events)


async def test_one_that_subscribes_to_any_gets_what_the_stream_gives() -> None:
    workflow = small()
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    events, _ = await watched(workflow.stream("i"))

    assert seen == events


async def test_a_subscription_ends_when_it_is_ended() -> None:
    workflow = small()
    seen: list[Any] = []
    end = workflow.subscribe_any(seen.append)
    end()
    end()
    await workflow.run("i")

    assert seen == []


async def test_ending_one_of_two_equal_subscriptions_leaves_the_other() -> None:
    workflow = small()
    seen: list[Any] = []

    def callback(event: told.WorkflowStartedEvent) -> None:
        seen.append(event)

    first = workflow.subscribe(told.WorkflowStartedEvent, callback)
    workflow.subscribe(told.WorkflowStartedEvent, callback)
    first()
    first()
    await workflow.run("i")

    assert len(seen) == 1


async def test_a_subscriber_may_end_its_own_subscription() -> None:
    workflow = small()
    seen: list[str] = []

    def once(event: told.WorkflowAgentStartedEvent) -> None:
        seen.append(event.agent_id)
        end()

    end = workflow.subscribe(told.WorkflowAgentStartedEvent, once)
    await workflow.run("i")

    assert seen == ["a"]


async def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    workflow = small()
    seen: list[Any] = []

    def wrong(event: Any) -> None:
        raise RuntimeError("of the subscriber")

    async def later(event: Any) -> None:
        raise RuntimeError("of the async one")

    workflow.subscribe_any(wrong)
    workflow.subscribe(told.WorkflowStartedEvent, later)
    workflow.subscribe(told.WorkflowCompletedEvent, seen.append)
    with caplog.at_level(logging.WARNING, logger="perdure"):
        result = await workflow.run("i")

    assert result.success
    assert len(seen) == 1
    assert "of the subscriber" in caplog.text
    assert "of the async one" in caplog.text


async def test_an_async_subscriber_runs_beside_the_execution() -> None:
    workflow = small()
    is_going_on = asyncio.Event()
    seen: list[str] = []

    async def first(event: told.WorkflowAgentStartedEvent) -> None:
        if event.agent_id == "a":
            await is_going_on.wait()
        seen.append(event.agent_id)
        is_going_on.set()

    workflow.subscribe(told.WorkflowAgentStartedEvent, first)
    await workflow.run("i")

    assert seen == ["b", "a"]


async def test_a_run_ends_when_its_subscribers_are_done() -> None:
    workflow = small()
    done: list[str] = []

    async def slowly(event: told.WorkflowCompletedEvent) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("done")

    workflow.subscribe(told.WorkflowCompletedEvent, slowly)
    await workflow.run("i")

    assert done == ["done"]


async def test_executions_at_the_same_time_are_told_apart() -> None:
    workflow = kept().add_agent("a", Overheard()).build()
    seen: list[tuple[str, str]] = []
    workflow.subscribe(
        told.WorkflowAgentCompletedEvent, lambda event: seen.append((event.execution_id, event.outputs["answer"]))
    )
    await asyncio.gather(*(workflow.run(f"i{number}", f"e{number}") for number in range(3)))

    assert sorted(seen) == [("e0", "<i0>"), ("e1", "<i1>"), ("e2", "<i2>")]


def test_what_cannot_be_called_or_is_no_type_is_refused() -> None:
    workflow: Any = small()

    with pytest.raises(TypeError, match="a type of event"):
        workflow.subscribe("WorkflowStartedEvent", print)
    with pytest.raises(TypeError, match="a function of the event"):
        workflow.subscribe(told.WorkflowStartedEvent, None)
