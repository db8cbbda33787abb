"""Loops: passes, limits, and when one has converged; the planner alone."""

from __future__ import annotations

from tests.unit.agent_workflow.test_planner import Play, answer_is

from perdure.agent_workflow.execution.planner import NodeEdge

LOOP = (NodeEdge("a", "b"), NodeEdge("b", "a", answer_is("again")))


def test_an_edge_that_leads_back_begins_another_pass() -> None:
    play = Play("ab", *LOOP, max_passes=5)
    play.end("a", "1")

    assert play.end("b", "again") == {"a"}
    assert play.at.state.passes == 2
    assert play.end("a", "2") == {"b"}
    play.end("b", "enough")
    assert play.is_over


def test_loop_ends_at_its_limit_and_is_marked_limited() -> None:
    play = Play("ab", *LOOP, max_passes=2)
    play.end("a", "1")
    play.end("b", "again")
    play.end("a", "2")

    assert play.end("b", "again") == set()
    assert play.at.is_limited


def test_a_pass_that_changes_nothing_is_the_last() -> None:
    play = Play("ab", *LOOP, max_passes=10)
    play.end("a")
    play.end("b", "again")

    assert play.end("a") == set()
    assert play.is_over
    assert play.at.has_converged
    assert not play.at.is_limited


def test_without_convergence_only_the_limit_ends_the_loop() -> None:
    play = Play("ab", *LOOP, max_passes=3, converges=False)
    for _ in range(3):
        assert play.end("a") == {"b"}
        play.end("b", "again")

    assert play.at.is_limited


def test_a_pass_begins_when_all_else_is_settled() -> None:
    play = Play("abc", *LOOP, max_passes=5)
    play.end("a", "1")

    assert play.end("b", "again") == set()
    assert play.end("c") == {"a"}


def test_a_node_behind_a_loop_waits_for_its_exit() -> None:
    play = Play("abc", *LOOP, NodeEdge("b", "c", answer_is("done")), max_passes=5)
    play.end("a", "1")
    play.end("b", "again")
    assert play.skipped == ["c"]

    play.end("a", "2")
    assert play.end("b", "done") == {"c"}


def test_a_node_may_lead_back_to_itself() -> None:
    play = Play("a", NodeEdge("a", "a", answer_is("again")), max_passes=3)

    assert play.ready == {"a"}
    assert play.end("a", "again") == {"a"}
    play.end("a", "done")
    assert play.is_over


def test_a_node_that_was_left_out_twice_in_the_same_way_has_not_changed() -> None:
    play = Play("abc", NodeEdge("a", "b", answer_is("first")), NodeEdge("a", "c"), NodeEdge("c", "a"), max_passes=10)
    play.end("a", "first")
    play.end("b")
    play.end("c")
    play.end("a", "same")  # b is skipped now: that is a change
    play.end("c")

    assert play.end("a", "same") == set()
    assert play.at.has_converged


def test_a_node_that_fails_twice_in_the_same_way_has_not_changed() -> None:
    play = Play(
        "abc", NodeEdge("a", "b"), NodeEdge("a", "c"), NodeEdge("c", "a"), error_modes={"b": "isolate"}, max_passes=10
    )
    play.end("a")
    play.end("b", status="failed")
    play.end("c")
    assert play.end("a") == {"b"}
    play.end("b", status="failed")

    assert play.at.has_converged


def test_loop_can_contain_a_loop() -> None:
    edges = (
        NodeEdge("a", "b"),
        NodeEdge("b", "c"),
        NodeEdge("c", "b", answer_is("inner")),
        NodeEdge("c", "a", answer_is("outer")),
    )
    play = Play("abc", *edges, max_passes=9)
    play.end("a", "1")
    play.end("b", "1")
    assert play.end("c", "inner") == {"b"}
    play.end("b", "2")
    assert play.end("c", "outer") == {"a"}
    play.end("a", "2")
    play.end("b", "3")
    play.end("c", "done")

    assert play.is_over
    assert play.at.state.passes == 3
    assert {node: play.at.state.nodes[node].runs for node in "abc"} == {"a": 2, "b": 3, "c": 3}
