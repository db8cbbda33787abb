"""Subscribers: which events they get, how they stop, and that they harm nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, kept, own, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance


def small() -> AgentWorkflowInstance:
    return kept().add_agent("a", stub("x")).add_agent("b", stub("y")).from_("a").to("b").build()


async def test_a_subscriber_gets_the_events_of_its_type() -> None:
    workflow = small()
    seen: list[str] = []
    workflow.subscribe(event_types.WorkflowAgentCompletedEvent, lambda event: seen.append(event.agent_id))
    await workflow.run("i")

    assert seen == ["a", "b"]


async def test_subscriber_to_the_base_type_gets_all_events() -> None:
    workflow = small()
    seen: list[Any] = []
    workflow.subscribe(event_types.AgentWorkflowEvent, seen.append)
    events, _ = await watched(workflow.stream("i"))

    assert seen == own(events)


async def test_subscribe_any_gets_all_events_of_the_stream() -> None:
    workflow = small()
    seen: list[Any] = []
    workflow.subscribe_any(seen.append)
    events, _ = await watched(workflow.stream("i"))

    assert seen == events


async def test_ended_subscription_gets_no_events() -> None:
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

    def callback(event: event_types.WorkflowStartedEvent) -> None:
        seen.append(event)

    first = workflow.subscribe(event_types.WorkflowStartedEvent, callback)
    workflow.subscribe(event_types.WorkflowStartedEvent, callback)
    first()
    first()
    await workflow.run("i")

    assert len(seen) == 1


async def test_a_subscriber_may_end_its_own_subscription() -> None:
    workflow = small()
    seen: list[str] = []

    def once(event: event_types.WorkflowAgentStartedEvent) -> None:
        seen.append(event.agent_id)
        end()

    end = workflow.subscribe(event_types.WorkflowAgentStartedEvent, once)
    await workflow.run("i")

    assert seen == ["a"]


async def test_failing_subscriber_does_not_affect_others_or_the_run(caplog: pytest.LogCaptureFixture) -> None:
    workflow = small()
    seen: list[Any] = []

    def wrong(event: Any) -> None:
        raise RuntimeError("of the subscriber")

    async def later(event: Any) -> None:
        raise RuntimeError("of the async one")

    workflow.subscribe_any(wrong)
    workflow.subscribe(event_types.WorkflowStartedEvent, later)
    workflow.subscribe(event_types.WorkflowCompletedEvent, seen.append)
    with caplog.at_level(logging.WARNING, logger="perdure"):
        result = await workflow.run("i")

    assert result.success
    assert len(seen) == 1
    assert "of the subscriber" in caplog.text
    assert "of the async one" in caplog.text


async def test_an_async_subscriber_runs_beside_the_execution() -> None:
    workflow = small()
    has_continued = asyncio.Event()
    seen: list[str] = []

    async def first(event: event_types.WorkflowAgentStartedEvent) -> None:
        if event.agent_id == "a":
            await has_continued.wait()
        seen.append(event.agent_id)
        has_continued.set()

    workflow.subscribe(event_types.WorkflowAgentStartedEvent, first)
    await workflow.run("i")

    assert seen == ["b", "a"]


async def test_a_run_ends_when_its_subscribers_are_done() -> None:
    workflow = small()
    done: list[str] = []

    async def slowly(event: event_types.WorkflowCompletedEvent) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("done")

    workflow.subscribe(event_types.WorkflowCompletedEvent, slowly)
    await workflow.run("i")

    assert done == ["done"]


async def test_events_name_their_execution_when_several_run_at_once() -> None:
    workflow = kept().add_agent("a", RecordingAgent()).build()
    seen: list[tuple[str, str]] = []
    workflow.subscribe(
        event_types.WorkflowAgentCompletedEvent,
        lambda event: seen.append((event.execution_id, event.outputs["answer"])),
    )
    await asyncio.gather(*(workflow.run(f"i{number}", f"e{number}") for number in range(3)))

    assert sorted(seen) == [("e0", "<i0>"), ("e1", "<i1>"), ("e2", "<i2>")]


def test_subscribe_rejects_a_wrong_type_or_callback() -> None:
    workflow: Any = small()

    with pytest.raises(TypeError, match="a type of event"):
        workflow.subscribe("WorkflowStartedEvent", print)
    with pytest.raises(TypeError, match="a function of the event"):
        workflow.subscribe(event_types.WorkflowStartedEvent, None)
