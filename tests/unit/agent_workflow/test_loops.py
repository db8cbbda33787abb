"""Loops of agents: passes, limits, convergence, and the output of the pass before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted, kept, of_kind, watched

from perdure.agent_workflow import events as event_types
from perdure.agent_workflow.builder.workflow import AgentWorkflow


class Verdict(msgspec.Struct):
    good: bool
    feedback: str


def numbered(word: str) -> RecordingAgent:
    """Says `word 1`, `word 2` and so on."""
    agent: RecordingAgent = RecordingAgent(lambda messages: f"{word} {agent.turns}", name=word)
    return agent


def judge(good_after: int) -> RecordingAgent:
    agent: RecordingAgent = RecordingAgent(
        lambda messages: {"good": agent.turns >= good_after, "feedback": f"feedback {agent.turns}"}, name="judge"
    )
    return agent


def reviewed(write: Any, review: Any, *, limit: int = 10) -> AgentWorkflow:
    """A draft is written and reviewed until it is good, then published."""
    builder = drafted().with_max_iterations(limit)
    builder.add_agent("write", write, lambda node: node.with_input_template("{{input}} ({{review.feedback}})"))
    builder.add_agent("review", review, lambda node: node.with_input_key("answer").structured_output(Verdict))
    builder.add_agent("publish", RecordingAgent(), lambda node: node.with_input_key("write.answer"))
    edges = builder.from_("write").to("review").from_("review").to("write").when_equals("good", False)
    return edges.from_("review").to("publish").when_equals("good", True)


async def test_loop_continues_until_its_exit_is_taken() -> None:
    write, review = numbered("draft"), judge(3)
    result = await reviewed(write, review).build().run("tides")

    assert result.success
    assert result.final_answer == "<draft 3>"
    assert result.outputs["review.feedback"] == "feedback 3"
    assert review.inputs == ["draft 1", "draft 2", "draft 3"]


async def test_each_pass_receives_the_output_of_the_pass_before() -> None:
    write = numbered("draft")
    await reviewed(write, judge(3)).build().run("tides")

    assert write.inputs == ["tides ()", "tides (feedback 1)", "tides (feedback 2)"]


async def test_a_loop_ends_at_its_limit_with_a_warning() -> None:
    write = numbered("draft")
    events, result = await watched(reviewed(write, judge(99), limit=4).build().stream("tides"))

    assert result.state == "completed"
    assert result.success
    assert write.turns == 4
    assert "publish.answer" not in result.outputs
    (warning,) = of_kind(events, event_types.WorkflowDiagnosticEvent)
    assert warning.level == "warning"
    assert "4 passes" in warning.message


@pytest.mark.parametrize(("converges", "turns"), [(True, (2, 1)), (False, (5, 5))])
async def test_unchanged_pass_ends_the_loop_unless_convergence_is_off(converges: bool, turns: tuple[int, int]) -> None:
    first, second = RecordingAgent("same"), RecordingAgent("same too")
    builder = drafted().with_max_iterations(5).with_convergence(converges).add_agent("a", first).add_agent("b", second)
    events, result = await watched(builder.from_("a").to("b").from_("b").to("a").build().stream("i"))

    assert (first.turns, second.turns) == turns
    assert result.success
    assert result.final_answer == "same too"
    (left,) = of_kind(events, event_types.WorkflowDiagnosticEvent)
    assert left.level == ("info" if converges else "warning")


async def test_node_can_lead_back_to_itself() -> None:
    agent = numbered("try")
    builder = drafted().with_max_iterations(9).add_agent("a", agent)
    result = await builder.from_("a").to("a").when(lambda outputs: outputs["answer"] != "try 4").build().run("i")

    assert result.final_answer == "try 4"
    assert agent.turns == 4


async def test_loop_can_contain_a_loop() -> None:
    words = iter(["inner", "inner", "outer", "inner", "done"])
    last = RecordingAgent(lambda messages: next(words))
    first, second = numbered("a"), numbered("b")
    builder = drafted().with_max_iterations(20)
    builder.add_agent("a", first).add_agent("b", second).add_agent("c", last)
    edges = builder.from_("a").to("b").from_("b").to("c")
    edges = edges.from_("c").to("b").when_equals("answer", "inner").from_("c").to("a").when_equals("answer", "outer")
    result = await edges.build().run("i")

    assert result.final_answer == "done"
    assert (first.turns, second.turns, last.turns) == (2, 5, 5)


async def test_a_node_outside_of_the_loop_runs_once() -> None:
    aside = RecordingAgent("aside")
    builder = reviewed(numbered("draft"), judge(3)).add_agent("aside", aside)
    await builder.build().run("i")

    assert aside.turns == 1


async def test_each_run_of_a_node_in_a_loop_emits_events() -> None:
    events, _ = await watched(reviewed(numbered("draft"), judge(2)).build().stream("i"))

    began = [event.agent_id for event in of_kind(events, event_types.WorkflowAgentStartedEvent)]
    assert began == ["write", "review", "write", "review", "publish"]
    edges = [
        (event.from_node_id, event.to_node_id) for event in of_kind(events, event_types.WorkflowEdgeTraversedEvent)
    ]
    assert ("review", "write") in edges
    (ended,) = of_kind(events, event_types.WorkflowCompletedEvent)
    assert (ended.successful_nodes, ended.failed_nodes, ended.skipped_nodes) == (3, 0, 0)


async def test_a_failure_in_a_later_pass_is_resumed_there() -> None:
    write = RecordingAgent("draft 1", ValueError("boom"), "draft 2", name="draft")
    builder = reviewed(write, judge(2)).with_checkpointing().with_in_memory_workflow_store()
    workflow = builder.build()
    result = await workflow.run("tides", "e")
    assert result.state == "failed"
    assert result.outputs == {"review.good": False, "review.feedback": "feedback 1"}

    result = await workflow.resume("e")

    assert result.final_answer == "<draft 2>"
    assert write.inputs == ["tides ()", "tides (feedback 1)", "tides (feedback 1)"]


async def test_an_approval_in_a_loop_is_asked_for_in_each_pass() -> None:
    builder = kept().with_max_iterations(9).add_agent("a", numbered("draft"), lambda node: node.requires_approval("?"))
    builder.add_agent("b", RecordingAgent(), lambda node: node.with_input_key("answer"))
    workflow = builder.from_("a").to("b").from_("b").to("a").when_not_equals("answer", "<draft 3>").build()
    result = await workflow.run("i", "e")
    asked = []
    while result.pending:
        asked.append(result.pending[0].outputs["answer"])
        result = await workflow.approve(result.pending[0].request_id)

    assert asked == ["draft 1", "draft 2", "draft 3"]
    assert result.final_answer == "<draft 3>"


async def test_progress_decreases_when_a_loop_repeats() -> None:
    builder = drafted().with_max_iterations(9).add_agent("a", numbered("draft")).add_agent("b", numbered("review"))
    edges = builder.from_("a").to("b").from_("b").to("a").when_equals("answer", "review 1")
    events, _ = await watched(edges.build().stream("i"))

    progress = [(event.agent_id, event.progress) for event in of_kind(events, event_types.WorkflowAgentCompletedEvent)]
    assert progress == [("a", 0.5), ("b", 1.0), ("a", 0.5), ("b", 1.0)]


async def test_separate_loops_converge_independently() -> None:
    steady, restless = RecordingAgent("same"), numbered("draft")
    builder = drafted().with_max_iterations(6).add_agent("a", steady).add_agent("b", restless)
    await builder.from_("a").to("a").from_("b").to("b").build().run("i")

    assert (steady.turns, restless.turns) == (2, 6)
