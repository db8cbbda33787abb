"""What becomes of a failure: stop, skip, isolate, fallback; with joins, and beside nodes that went well."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, boom, drafted, kept, of_kind, stub, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.builder.workflow import AgentWorkflow


def with_join(mode: str, bad: Any = None, good: Any = None, join: Any = None) -> AgentWorkflow:
    """`bad` and `good` both lead to `join`."""
    builder = kept().add_agent("bad", bad or stub(boom()), lambda node: getattr(node, f"on_error_{mode}")())
    builder.add_agent("good", good or stub("fine")).add_agent("join", join or stub("joined"))
    return builder.from_("bad", "good").to("join")


async def test_stop_ends_the_run_with_the_error_of_the_node() -> None:
    result = await with_join("stop").build().run("i", "e")

    assert result.state == "failed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert isinstance(result.exception, ValueError)
    assert result.final_answer is None


async def test_stop_keeps_outputs_of_nodes_that_succeeded() -> None:
    events, result = await watched(with_join("stop").build().stream("i", "e"))

    assert result.outputs == {"good.answer": "fine"}
    (ended,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.success) == (1, 1, False)


async def test_resume_retries_only_the_node_that_stopped() -> None:
    bad, good, join = RecordingAgent(boom, boom, "better"), RecordingAgent("fine"), RecordingAgent("joined")
    workflow = with_join("stop", bad, good, join).build()
    await workflow.run("i", "e")
    assert (await workflow.run("i", "e")).state == "failed"

    result = await workflow.resume("e")

    assert result.success
    assert result.final_answer == "joined"
    assert (bad.turns, good.turns, join.turns) == (3, 1, 1)


async def test_two_nodes_that_stop_at_once_are_both_counted_and_both_tried_again() -> None:
    first, second = RecordingAgent(boom, "a"), RecordingAgent(ValueError("bang"), "b")
    workflow = kept().add_agent("one", first).add_agent("other", second).build()
    events, result = await watched(workflow.stream("i", "e"))
    assert result.state == "failed"
    assert of_kind(events, event_types.WorkflowCompletedEvent)[0].failed_nodes == 2

    assert (await workflow.resume("e")).outputs == {"one.answer": "a", "other.answer": "b"}


async def test_skip_skips_all_dependents_of_the_node() -> None:
    builder = with_join("skip").add_agent("after", stub("after")).add_agent("apart", stub("apart"))
    events, result = await watched(builder.from_("join").to("after").from_("good").to("apart").build().stream("i"))

    assert result.state == "completed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert result.outputs == {"good.answer": "fine", "apart.answer": "apart"}
    skipped = {event.agent_id: event.reason for event in of_kind(events, event_types.WorkflowAgentSkippedEvent)}
    assert set(skipped) == {"join", "after"}
    assert skipped["join"] == "'bad', which it depends on, failed"


async def test_isolate_continues_along_other_edges() -> None:
    builder = with_join("isolate").add_agent("only", stub("never")).from_("bad").to("only")
    result = await builder.build().run("i")

    assert result.state == "completed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert result.outputs == {"good.answer": "fine", "join.answer": "joined"}
    assert result.final_answer == "joined"


@pytest.mark.parametrize("mode", ["skip", "isolate"])
async def test_an_execution_that_ended_with_a_failure_is_not_tried_again(mode: str) -> None:
    bad = RecordingAgent(boom, "better")
    workflow = with_join(mode, bad).build()
    first = await workflow.run("i", "e")

    assert (await workflow.run("i", "e")).outputs == first.outputs
    assert bad.turns == 1


@pytest.mark.parametrize("mode", ["stop", "skip", "isolate"])
async def test_error_mode_does_not_affect_a_node_that_succeeds(mode: str) -> None:
    result = await with_join(mode, stub("good too")).build().run("i")

    assert result.success
    assert result.outputs == {"bad.answer": "good too", "good.answer": "fine", "join.answer": "joined"}


# ---------------------------------------------------------------- fallbacks


def with_fallback(*, bad: Any = None, spare: Any = None, join: Any = None) -> AgentWorkflow:
    """`bad` leads to `next`, and `spare` stands in for it."""
    builder = drafted().add_agent("bad", bad or stub(boom()), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("next", join or RecordingAgent(), lambda node: node.with_input_key("answer"))
    builder.add_agent("spare", spare or stub("spare"))
    return builder.from_("bad").to("next")


async def test_a_fallback_stands_in_and_the_execution_is_a_success() -> None:
    events, result = await watched(with_fallback().build().stream("i"))

    assert result.success
    assert result.error is None
    assert result.outputs == {"spare.answer": "spare", "next.answer": "<spare>"}
    assert result.final_answer == "<spare>"
    (ended,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.skipped_nodes) == (2, 0, 0)


async def test_a_fallback_that_is_not_needed_is_skipped() -> None:
    events, result = await watched(with_fallback(bad=stub("fine")).build().stream("i"))

    assert result.outputs == {"bad.answer": "fine", "next.answer": "<fine>"}
    (skipped,) = of_kind(events, event_types.WorkflowAgentSkippedEvent)
    assert skipped.reason == "'bad' did not fail, so its fallback is not needed"


async def test_conditions_evaluate_the_outputs_of_the_fallback() -> None:
    builder = drafted().add_agent("bad", stub(boom()), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("spare", stub("yes")).add_agent("a", stub("a")).add_agent("b", stub("b"))
    edges = builder.from_("bad").to("a").when_equals("answer", "yes").from_("bad").to("b").as_default()

    assert set((await edges.build().run("i")).outputs) == {"spare.answer", "a.answer"}


async def test_fallback_with_own_edges_follows_them() -> None:
    builder = with_fallback().add_agent("other", stub("other")).from_("spare").to("other")
    result = await builder.build().run("i")

    assert result.outputs == {"spare.answer": "spare", "other.answer": "other"}


async def test_output_of_a_fallback_is_available_under_the_failed_nodes_name() -> None:
    listener = RecordingAgent()
    builder = drafted().add_agent(
        "bad", stub(boom()), lambda node: node.with_output_key("draft").on_error_fallback("spare")
    )
    builder.add_agent("spare", stub("spare"), lambda node: node.with_output_key("draft"))
    builder.add_agent("next", listener, lambda node: node.with_input_key("bad.draft"))
    result = await builder.from_("bad").to("next").build().run("i")

    assert result.success, result.error
    assert listener.inputs == ["spare"]


async def test_fallback_counts_as_an_input_of_a_join() -> None:
    listener = RecordingAgent("joined")
    builder = with_fallback(join=listener).add_agent("good", stub("fine")).from_("good").to("next")
    result = await builder.build().run("i")

    assert result.outputs == {"spare.answer": "spare", "good.answer": "fine", "next.answer": "joined"}
    assert listener.turns == 1


async def test_failing_fallback_fails_the_execution_with_its_error() -> None:
    result = await with_fallback(spare=stub(ValueError("too"))).build().run("i")

    assert result.state == "failed"
    assert result.error == "spare: ValueError: too"


async def test_one_fallback_may_stand_in_for_several() -> None:
    spare = RecordingAgent("spare")
    builder = drafted().add_agent("spare", spare)
    for name in ("one", "two"):
        builder.add_agent(name, stub(boom()), lambda node: node.on_error_fallback("spare"))
        builder.add_agent(f"{name}-next", RecordingAgent(), lambda node: node.with_input_key("answer"))
        builder.from_(name).to(f"{name}-next")
    result = await builder.build().run("i")

    assert result.success, result.error
    assert result.outputs == {"spare.answer": "spare", "one-next.answer": "<spare>", "two-next.answer": "<spare>"}
    assert spare.turns == 1
