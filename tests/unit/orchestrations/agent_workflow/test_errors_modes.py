"""What becomes of a failure: stop, skip, isolate, fallback; with joins, and beside nodes that went well."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.making import Overheard, boom, drafted, kept, of_kind, says, watched

from perdure.agent_workflow import events as told
from perdure.agent_workflow.builder.workflow import AgentWorkflow


def with_join(mode: str, bad: Any = None, good: Any = None, join: Any = None) -> AgentWorkflow:
    """`bad` and `good` both lead to `join`."""
    builder = kept().add_agent("bad", bad or says(boom()), lambda node: getattr(node, f"on_error_{mode}")())
    builder.add_agent("good", good or says("fine")).add_agent("join", join or says("joined"))
    return builder.from_("bad", "good").to("join")


async def test_stop_ends_the_run_with_the_error_of_the_node() -> None:
    result = await with_join("stop").build().run("i", "e")

    assert result.state == "failed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert isinstance(result.exception, ValueError)
    assert result.final_answer is None


async def test_stop_keeps_what_went_well_beside_the_failure() -> None:
    events, result = await watched(with_join("stop").build().stream("i", "e"))

    assert result.outputs == {"good.answer": "fine"}
    (ended,) = of_kind(events, told.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.success) == (1, 1, False)


async def test_a_resume_tries_what_stopped_again_and_nothing_else() -> None:
    bad, good, join = Overheard(boom, boom, "better"), Overheard("fine"), Overheard("joined")
    workflow = with_join("stop", bad, good, join).build()
    await workflow.run("i", "e")
    assert (await workflow.run("i", "e")).state == "failed"

    result = await workflow.resume("e")

    assert result.success
    assert result.final_answer == "joined"
    assert (bad.turns, good.turns, join.turns) == (3, 1, 1)


async def test_two_nodes_that_stop_at_once_are_both_counted_and_both_tried_again() -> None:
    one, other = Overheard(boom, "a"), Overheard(ValueError("bang"), "b")
    workflow = kept().add_agent("one", one).add_agent("other", other).build()
    events, result = await watched(workflow.stream("i", "e"))
    assert result.state == "failed"
    assert of_kind(events, told.WorkflowCompletedEvent)[0].failed_nodes == 2

    assert (await workflow.resume("e")).outputs == {"one.answer": "a", "other.answer": "b"}


async def test_skip_skips_all_that_depends_on_the_node() -> None:
    builder = with_join("skip").add_agent("after", says("after")).add_agent("apart", says("apart"))
    events, result = await watched(builder.from_("join").to("after").from_("good").to("apart").build().stream("i"))

    assert result.state == "completed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert result.outputs == {"good.answer": "fine", "apart.answer": "apart"}
    skipped = {one.agent_id: one.reason for one in of_kind(events, told.WorkflowAgentSkippedEvent)}
    assert set(skipped) == {"join", "after"}
    assert skipped["join"] == "'bad', which it depends on, failed"


async def test_isolate_goes_on_along_other_edges() -> None:
    builder = with_join("isolate").add_agent("only", says("never")).from_("bad").to("only")
    result = await builder.build().run("i")

    assert result.state == "completed"
    assert not result.success
    assert result.error == "bad: ValueError: boom"
    assert result.outputs == {"good.answer": "fine", "join.answer": "joined"}
    assert result.final_answer == "joined"


@pytest.mark.parametrize("mode", ["skip", "isolate"])
async def test_an_execution_that_ended_with_a_failure_is_not_tried_again(mode: str) -> None:
    bad = Overheard(boom, "better")
    workflow = with_join(mode, bad).build()
    first = await workflow.run("i", "e")

    assert (await workflow.run("i", "e")).outputs == first.outputs
    assert bad.turns == 1


@pytest.mark.parametrize("mode", ["stop", "skip", "isolate"])
async def test_a_node_that_goes_well_is_as_any_other(mode: str) -> None:
    result = await with_join(mode, says("good too")).build().run("i")

    assert result.success
    assert result.outputs == {"bad.answer": "good too", "good.answer": "fine", "join.answer": "joined"}


# ---------------------------------------------------------------- fallbacks


def with_fallback(*, bad: Any = None, spare: Any = None, join: Any = None) -> AgentWorkflow:
    """`bad` leads to `next`, and `spare` stands in for it."""
    builder = drafted().add_agent("bad", bad or says(boom()), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("next", join or Overheard(), lambda node: node.with_input_key("answer"))
    builder.add_agent("spare", spare or says("spare"))
    return builder.from_("bad").to("next")


async def test_a_fallback_stands_in_and_the_execution_is_a_success() -> None:
    events, result = await watched(with_fallback().build().stream("i"))

    assert result.success
    assert result.error is None
    assert result.outputs == {"spare.answer": "spare", "next.answer": "<spare>"}
    assert result.final_answer == "<spare>"
    (ended,) = of_kind(events, told.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.skipped_nodes) == (2, 0, 0)


async def test_a_fallback_that_is_not_needed_is_skipped() -> None:
    events, result = await watched(with_fallback(bad=says("fine")).build().stream("i"))

    assert result.outputs == {"bad.answer": "fine", "next.answer": "<fine>"}
    (skipped,) = of_kind(events, told.WorkflowAgentSkippedEvent)
    assert skipped.reason == "'bad' did not fail, so its fallback is not needed"


async def test_conditions_ask_what_the_fallback_gave() -> None:
    builder = drafted().add_agent("bad", says(boom()), lambda node: node.on_error_fallback("spare"))
    builder.add_agent("spare", says("yes")).add_agent("a", says("a")).add_agent("b", says("b"))
    edges = builder.from_("bad").to("a").when_equals("answer", "yes").from_("bad").to("b").as_default()

    assert set((await edges.build().run("i")).outputs) == {"spare.answer", "a.answer"}


async def test_a_fallback_with_edges_of_its_own_goes_along_these() -> None:
    builder = with_fallback().add_agent("other", says("other")).from_("spare").to("other")
    result = await builder.build().run("i")

    assert result.outputs == {"spare.answer": "spare", "other.answer": "other"}


async def test_what_a_fallback_gives_is_found_under_the_name_of_the_node_that_failed() -> None:
    listener = Overheard()
    builder = drafted().add_agent(
        "bad", says(boom()), lambda node: node.with_output_key("draft").on_error_fallback("spare")
    )
    builder.add_agent("spare", says("spare"), lambda node: node.with_output_key("draft"))
    builder.add_agent("next", listener, lambda node: node.with_input_key("bad.draft"))
    result = await builder.from_("bad").to("next").build().run("i")

    assert result.success, result.error
    assert listener.inputs == ["spare"]


async def test_a_fallback_at_a_join_is_one_of_those_that_are_joined() -> None:
    listener = Overheard("joined")
    builder = with_fallback(join=listener).add_agent("good", says("fine")).from_("good").to("next")
    result = await builder.build().run("i")

    assert result.outputs == {"spare.answer": "spare", "good.answer": "fine", "next.answer": "joined"}
    assert listener.turns == 1


async def test_a_fallback_that_fails_stops_as_its_own_mode_says() -> None:
    result = await with_fallback(spare=says(ValueError("too"))).build().run("i")

    assert result.state == "failed"
    assert result.error == "spare: ValueError: too"


async def test_one_fallback_may_stand_in_for_several() -> None:
    spare = Overheard("spare")
    builder = drafted().add_agent("spare", spare)
    for name in ("one", "two"):
        builder.add_agent(name, says(boom()), lambda node: node.on_error_fallback("spare"))
        builder.add_agent(f"{name}-next", Overheard(), lambda node: node.with_input_key("answer"))
        builder.from_(name).to(f"{name}-next")
    result = await builder.build().run("i")

    assert result.success, result.error
    assert result.outputs == {"spare.answer": "spare", "one-next.answer": "<spare>", "two-next.answer": "<spare>"}
    assert spare.turns == 1
