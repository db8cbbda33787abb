"""Waiting for people, for time, and inside of workflows that are nodes survives a restart."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from tests.unit.agent_workflow.interrupted import (
    Calls,
    Place,
    cut_off,
    resume_elsewhere,
    stored,
    writes_of,
)
from tests.unit.agent_workflow.making import drafted, echo, of_kind, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing import FakeClock

# ---------------------------------------------------------------- approved, and then without outputs


def publishing(storage: Any, calls: Calls) -> AgentWorkflowInstance:
    return (
        stored(storage)
        .add_agent("draft", calls.agent("draft", ["a draft"]), lambda node: node.requires_approval("Publish?"))
        .add_agent("beside", calls.agent("beside", ["done meanwhile"]))
        .add_agent("print", calls.agent("print", echo), lambda node: node.with_input_template(TEMPLATE))
        .add_agent("burn", calls.agent("burn", ["never"]))
        .from_("draft")
        .to("print")
        .when_equals("copies", 3)
        .from_("draft")
        .to("burn")
        .when_empty("answer")
        .build()
    )


TEMPLATE = "{{draft.answer}}, {{draft.copies}} times"


async def test_approved_output_is_used_in_another_process(place: Place) -> None:
    calls = Calls()
    asked = await publishing(place.open(), calls).run("x", "e")
    assert (asked.state, asked.outputs) == ("waiting", {"beside.answer": "done meanwhile"})

    result = await publishing(place.open(), calls).approve(asked.pending[0].request_id, data={"copies": 3})

    assert result.state == "completed"
    assert result.outputs == {
        "draft.answer": "a draft",
        "draft.copies": 3,
        "beside.answer": "done meanwhile",
        "print.answer": "<a draft, 3 times>",
    }
    assert calls.counts == Counter(draft=1, beside=1, print=1)


async def test_an_approval_survives_a_crash_around_every_write_after_it() -> None:
    counts = await writes_of(partial(publishing, calls=Calls()), "x")
    for nth in range(1, counts["commit"] + 1):
        calls, storage = Calls(), InMemoryCheckpointStorage()
        make = partial(publishing, calls=calls)
        await cut_off(make, storage, "x", "e", ("commit", nth, "after"))
        assert (await resume_elsewhere(make, storage, "e")).state == "waiting"
        [asked] = await make(storage).pending("e")
        result = await make(storage).approve(asked.request_id, data={"copies": 3})
        assert (result.final_answer, calls.counts) == (
            "done meanwhile\n\n<a draft, 3 times>",
            Counter(draft=1, beside=1, print=1),
        ), nth


async def test_denied_node_is_skipped_with_all_its_dependents(place: Place) -> None:
    calls = Calls()
    asked = await publishing(place.open(), calls).run("x", "e")
    result = await publishing(place.open(), calls).deny(asked.pending[0].request_id, reason="too short")
    assert (result.state, result.success, result.final_answer) == ("completed", True, "done meanwhile")
    assert calls.counts == Counter(draft=1, beside=1)


# ---------------------------------------------------------------- delays that restart


def delayed(storage: Any, clock: FakeClock, calls: Calls) -> AgentWorkflowInstance:
    return (
        stored(storage)
        .with_clock(clock)
        .add_agent("first", calls.agent("first", ["one"]))
        .add_agent("second", calls.agent("second", ["two"]))
        .from_("first")
        .to("second")
        .with_delay(3600)
        .build()
    )


async def asleep(workflow: AgentWorkflowInstance, clock: FakeClock) -> asyncio.Task[Any]:
    run = asyncio.create_task(workflow.run("x", "e"))
    await clock.wait_for_sleepers()
    return run


async def test_delay_continues_after_a_restart(place: Place) -> None:
    clock, calls = FakeClock(), Calls()
    for _ in range(3):
        run = await asleep(delayed(place.open(), clock, calls), clock)
        clock.advance(1000)
        run.cancel()
        await asyncio.wait([run])
    assert calls.counts == Counter(first=1)

    run = await asleep(delayed(place.open(), clock, calls), clock)
    clock.advance(599)
    for _ in range(20):
        await asyncio.sleep(0)
    assert calls.counts["second"] == 0
    clock.advance(1)
    result = await run

    assert (result.final_answer, result.duration) == ("two", 3600.0)
    assert calls.counts == Counter(first=1, second=1)


async def test_delay_that_expired_while_no_process_ran_is_over(place: Place) -> None:
    clock, calls = FakeClock(), Calls()
    run = await asleep(delayed(place.open(), clock, calls), clock)
    run.cancel()
    await asyncio.wait([run])
    clock.advance(100_000)

    result = await delayed(place.open(), clock, calls).resume("e")

    assert (result.final_answer, result.duration, clock.sleepers) == ("two", 100_000.0, 0)


async def test_delay_counts_from_its_edge_after_a_crash_at_any_commit() -> None:
    for nth in range(2, 6):
        clock, calls, storage = FakeClock(), Calls(), InMemoryCheckpointStorage()
        make = partial(delayed, clock=clock, calls=calls)
        async with clock.skipping():
            await cut_off(make, storage, "x", "e", ("commit", nth, "after"))
            result = await resume_elsewhere(make, storage, "e")
        assert (result.duration, calls.counts) == (3600.0, Counter(first=1, second=1)), nth


# ---------------------------------------------------------------- workflows as nodes


def nested(storage: Any, calls: Calls, last: Any) -> AgentWorkflowInstance:
    inner = (
        drafted("inner")
        .add_agent("check", calls.agent("check", ["checked"]))
        .add_agent("sign", calls.agent("sign", ["signed"]), lambda node: node.requires_approval("Sign?"))
        .add_agent("seal", calls.agent("seal", last))
        .from_("check")
        .to("sign")
        .from_("sign")
        .to("seal")
        .build()
    )
    return (
        stored(storage)
        .add_agent("before", calls.agent("before", ["ready"]))
        .add_multi_agent("office", inner)
        .add_agent("after", calls.agent("after", ["archived"]))
        .from_("before")
        .to("office")
        .from_("office")
        .to("after")
        .when_contains("answer", "sealed")
        .build()
    )


async def test_agents_of_a_workflow_that_is_a_node_run_and_resume_inside_it(place: Place) -> None:
    calls = Calls()
    events, asked = await watched(nested(place.open(), calls, [ConnectionError("down")]).stream("x", "e"))
    assert asked.pending[0].metadata.agent_chain == ("office", "sign")
    inside = [event for event in of_kind(events, event_types.WorkflowAgentCompletedEvent) if event.metadata.depth == 1]
    assert [(event.agent_id, event.metadata.parent_agent_id) for event in inside] == [("check", "office")]

    failed = await nested(place.open(), calls, [ConnectionError("down")]).approve(asked.pending[0].request_id)
    assert failed.state == "failed"
    result = await nested(place.open(), calls, ["sealed"]).resume("e")

    assert (result.state, result.success, result.final_answer) == ("completed", True, "archived")
    assert result.outputs["office.outputs"]["seal"] == {"answer": "sealed"}
    assert calls.counts == Counter(before=1, check=1, sign=1, seal=2, after=1)


async def test_a_workflow_without_edges_can_be_a_node() -> None:
    inner = drafted("inner").add_agent("one", stub("inside")).build()
    result = await drafted().add_workflow("sub", inner).build().run("x")
    assert (result.final_answer, result.outputs["sub.outputs"]) == ("inside", {"one": {"answer": "inside"}})
