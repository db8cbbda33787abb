"""What the builder promises, one test each: ids, error modes, limits, approvals, counts, retries, templates."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.unit.agent_workflow.interrupted import Calls, Place, stored
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, stub, watched

from perdure import AgentWorkflow
from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.errors import InvalidDefinition
from perdure.storages import InMemoryCheckpointStorage
from perdure.testing import FakeClock, ScriptedAgent

# ---------------------------------------------------------------- no resume, no execution id


async def test_every_execution_has_an_id_for_resuming_in_another_object(place: Place) -> None:
    calls = Calls()

    def make(draft: Any) -> AgentWorkflowInstance:
        return (
            stored(place.open())
            .add_agent("draft", calls.agent("draft", ["a draft"]))
            .add_agent("review", calls.agent("review", draft))
            .from_("draft")
            .to("review")
            .build()
        )

    first = await make([ConnectionError("down")]).run("tides")
    assert (first.state, first.success) == ("failed", False)
    assert first.execution_id

    resumed = await make(["seen"]).resume(first.execution_id)

    assert (resumed.state, resumed.success, resumed.final_answer) == ("completed", True, "seen")
    assert calls.counts == Counter(draft=1, review=2)
    assert await make([]).run("tides", first.execution_id) == resumed


async def test_execution_without_an_id_gets_a_generated_id() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = stored(storage).add_agent("one", stub("done")).build()
    ids = {(await workflow.run("x")).execution_id for _ in range(3)}
    assert ids == {thread.thread_id for thread in await storage.list_threads()}
    assert len(ids) == 3


# ---------------------------------------------------------------- error modes without effect


def failing(mode: str) -> AgentWorkflow:
    """`bad` fails; `join` comes after it and after `good`, `after` only after `bad`."""
    workflow = drafted().add_agent("bad", stub(ValueError("boom")), lambda node: getattr(node, mode)())
    workflow.add_agent("good", stub("fine")).add_agent("join", stub("joined")).add_agent("after", stub("later"))
    return workflow.from_("bad", "good").to("join").from_("bad").to("after")


async def test_on_error_stop_stops_the_execution() -> None:
    result = await failing("on_error_stop").build().run("x")
    assert (result.state, result.success) == ("failed", False)
    assert isinstance(result.exception, ValueError)
    assert not {"join.answer", "after.answer"} & set(result.outputs)


async def test_on_error_skip_skips_the_dependents_of_the_node() -> None:
    events, result = await watched(failing("on_error_skip").build().stream("x"))
    assert (result.state, result.success) == ("completed", False)
    assert result.outputs == {"good.answer": "fine"}
    assert {event.agent_id for event in of_kind(events, event_types.WorkflowAgentSkippedEvent)} == {"join", "after"}


async def test_on_error_isolate_keeps_the_failure_to_the_node() -> None:
    events, result = await watched(failing("on_error_isolate").build().stream("x"))
    assert (result.state, result.success) == ("completed", False)
    assert result.outputs == {"good.answer": "fine", "join.answer": "joined"}
    assert {event.agent_id for event in of_kind(events, event_types.WorkflowAgentSkippedEvent)} == {"after"}


async def test_on_error_fallback_puts_another_node_in_its_place() -> None:
    join = RecordingAgent(name="join")
    workflow = (
        drafted()
        .add_agent("bad", stub(ValueError("boom")), lambda node: node.on_error_fallback("spare"))
        .add_agent("spare", stub("instead"), lambda node: node.with_output_key("message"))
        .add_agent("join", join)
        .from_("bad")
        .to("join")
        .build()
    )
    result = await workflow.run("x")
    assert (result.success, result.error, join.inputs) == (True, None, ["instead"])


def bad_agent() -> ScriptedAgent:
    return stub(ValueError("boom"), name="bad")


def good_agent() -> ScriptedAgent:
    return stub("fine", name="good")


async def test_error_modes_of_a_document_take_effect() -> None:
    here = f"{__name__}:"
    document = {
        "name": "imported",
        "agents": {
            "bad": {"agent": f"{here}bad_agent", "on_error": {"mode": "isolate"}},
            "good": {"agent": f"{here}good_agent"},
        },
    }
    result = await AgentWorkflow.from_config(document).build().run("x")
    assert (result.state, result.outputs) == ("completed", {"good.answer": "fine"})


# ---------------------------------------------------------------- limits that were ignored


async def test_the_timeout_of_a_workflow_ends_it() -> None:
    clock = FakeClock()
    workflow = (
        kept(clock=clock)
        .with_timeout(100)
        .add_agent("first", stub("one"))
        .add_agent("second", stub("two"))
        .from_("first")
        .to("second")
        .with_delay(1000)
        .build()
    )
    async with clock.skipping():
        result = await workflow.run("x", "e")
    assert (result.success, result.duration) == (False, 100.0)
    assert result.error is not None and "time" in result.error
    assert "second.answer" not in result.outputs


async def test_the_timeout_of_a_node_ends_its_turn() -> None:
    clock = FakeClock()

    class Slow(ScriptedAgent):
        async def turn(self, *arguments: Any, **options: Any) -> Any:
            await clock.sleep(60)
            return await super().turn(*arguments, **options)

    workflow = kept(clock=clock).add_agent("slow", Slow("slow", ["late"]), lambda node: node.with_timeout(5)).build()
    async with clock.skipping():
        result = await workflow.run("x", "e")
    assert (result.state, result.duration) == ("failed", 5.0)


async def test_max_iterations_limits_the_passes_and_emits_a_warning() -> None:
    counting = RecordingAgent("1", "2", "3", "4", name="counting")
    workflow = drafted().with_max_iterations(3).add_agent("count", counting).from_("count").to("count").build()
    events, result = await watched(workflow.stream("x"))
    assert (result.state, result.final_answer, counting.turns) == ("completed", "3", 3)
    [warning] = of_kind(events, event_types.WorkflowDiagnosticEvent)
    assert (warning.level, "max_iterations" in warning.message) == ("warning", True)


# ---------------------------------------------------------------- approvals that the stream did not show


async def test_an_approval_is_seen_in_the_stream_and_can_be_answered_from_there() -> None:
    workflow = (
        kept()
        .add_agent("draft", stub("a draft"), lambda node: node.requires_approval("Publish?"))
        .add_agent("print", stub("printed"))
        .from_("draft")
        .to("print")
        .build()
    )
    events, first = await watched(workflow.stream("x", "e"))
    [asked] = of_kind(events, event_types.WorkflowApprovalRequestedEvent)
    assert (asked.agent_id, asked.message, asked.outputs) == ("draft", "Publish?", {"answer": "a draft"})
    assert [request.request_id for request in first.pending] == [asked.request_id]

    result = await workflow.approve(asked.request_id)
    assert (result.state, result.final_answer) == ("completed", "printed")


async def test_subscriber_answers_during_the_run() -> None:
    workflow = kept().add_agent("draft", stub("a draft"), lambda node: node.requires_approval("Publish?")).build()

    async def approve(event: event_types.WorkflowApprovalRequestedEvent) -> None:
        await workflow.approve(event.request_id)

    workflow.subscribe(event_types.WorkflowApprovalRequestedEvent, approve)
    assert (await workflow.run("x", "e")).state == "completed"


# ---------------------------------------------------------------- counts that were made up


async def test_successful_failed_and_skipped_nodes_are_counted_correctly() -> None:
    workflow = (
        drafted()
        .add_agent("first", stub("one"))
        .add_agent("bad", stub(ValueError("boom")), lambda node: node.on_error_isolate())
        .add_agent("saved", stub(ValueError("boom")), lambda node: node.on_error_fallback("spare"))
        .add_agent("spare", stub("instead"))
        .add_agent("after", stub("never"))
        .add_agent("unwanted", stub("never"))
        .from_("first")
        .to("bad", "saved")
        .from_("bad")
        .to("after")
        .from_("first")
        .to("unwanted")
        .when_equals("answer", "two")
        .build()
    )
    events, result = await watched(workflow.stream("x"))
    [ended] = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.skipped_nodes) == (2, 1, 2)
    assert (ended.success, result.success) == (False, False)


async def test_stop_counts_nodes_that_ended_beside_the_failed_node() -> None:
    workflow = (
        drafted()
        .add_agent("first", stub("one"))
        .add_agent("bad", stub(ValueError("boom")))
        .add_agent("good", stub("fine"))
        .from_("first")
        .to("bad", "good")
        .build()
    )
    events, result = await watched(workflow.stream("x"))
    [ended] = of_kind(events, event_types.WorkflowCompletedEvent)
    completed = of_kind(events, event_types.WorkflowAgentCompletedEvent)
    assert ended.successful_nodes == sum(event.success for event in completed)
    assert (ended.failed_nodes, ended.success) == (1, False)
    assert set(result.outputs) == {f"{event.agent_id}.answer" for event in completed if event.success}


# ---------------------------------------------------------------- retries that did not happen


async def test_with_retry_tries_again_after_any_failure_of_a_model() -> None:
    clock = FakeClock()
    flaky = RecordingAgent(RuntimeError("the provider said 400"), ValueError("no JSON"), "at last", name="flaky")
    workflow = drafted(clock=clock).add_agent("flaky", flaky, lambda node: node.with_retry(3)).build()
    async with clock.skipping():
        events, result = await watched(workflow.stream("x"))
    assert (result.final_answer, flaky.turns) == ("at last", 3)
    retries = [event for event in of_kind(events, event_types.WorkflowDiagnosticEvent) if event.source == "retry"]
    assert ["400" in retries[0].message, "no JSON" in retries[1].message] == [True, True]


async def test_with_retry_transient_retries_only_transient_errors() -> None:
    clock = FakeClock()
    busy = RecordingAgent(ConnectionError("reset"), "at last", name="busy")
    wrong = RecordingAgent(ValueError("a bad request"), "never", name="wrong")
    for agent, calls in ((busy, 2), (wrong, 1)):
        workflow = drafted(clock=clock).add_agent("one", agent, lambda node: node.with_retry_transient(3)).build()
        async with clock.skipping():
            result = await workflow.run("x")
        assert (agent.turns, result.success) == (calls, calls == 2)


# ---------------------------------------------------------------- prompts that were not committed


async def test_pending_requests_are_committed_and_found_by_other_objects(place: Place) -> None:
    def make() -> AgentWorkflowInstance:
        return (
            stored(place.open())
            .add_agent("draft", stub("a draft"), lambda node: node.requires_approval("Publish?"))
            .build()
        )

    for number in range(3):
        assert (await make().run("x", f"e-{number}")).state == "waiting"

    asked = await make().pending()

    assert [(request.execution_id, request.message, request.outputs) for request in asked] == [
        (f"e-{number}", "Publish?", {"answer": "a draft"}) for number in range(3)
    ]
    assert (await make().approve(asked[1].request_id)).state == "completed"
    assert [request.execution_id for request in await make().pending()] == ["e-0", "e-2"]


# ---------------------------------------------------------------- templates that were called more than they are


async def test_a_template_puts_values_in_place_of_keys_and_does_nothing_else() -> None:
    first = stub("{{input}} and {{first.answer}}")
    second = RecordingAgent(name="second")
    workflow = (
        drafted()
        .add_agent("first", first)
        .add_agent("second", second, lambda node: node.with_input_template("{{ first.answer }}: {{input}} {{input}}"))
        .from_("first")
        .to("second")
        .build()
    )
    await workflow.run("tides")
    assert second.inputs == ["{{input}} and {{first.answer}}: tides tides"]


def test_build_rejects_a_key_that_no_node_gives() -> None:
    workflow = (
        drafted()
        .add_agent("first", stub("one"), lambda node: node.with_output_key("draft"))
        .add_agent("second", stub("two"), lambda node: node.with_input_template("Review {{drft}}"))
    )
    with pytest.raises(InvalidDefinition, match=r"agents\.second\.input_template.*'drft'.*did you mean 'draft'"):
        workflow.from_("first").to("second").build()
