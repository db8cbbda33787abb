"""What runs next: the planner alone, node by node, without agents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.agent_workflow.definition import END, START, ErrorMode
from perdure.agent_workflow.execution.planner import EdgeGraph, NextSteps, NodeEdge, Planner
from perdure.agent_workflow.state import ExecutionState, Status

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def answer_is(word: str) -> Any:
    return lambda outputs: outputs.get("answer") == word


class Play:
    """An execution whose nodes give the answers that the test sets."""

    def __init__(self, nodes: str, *edges: NodeEdge, inputs: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.planner = Planner(graph=EdgeGraph(tuple(nodes), edges), **options)
        self.skipped: list[str] = []
        self.at = self._seen(self.planner.begin(ExecutionState("i", BEGAN), inputs or {"input": "i"}))

    def _seen(self, steps: NextSteps) -> NextSteps:
        self.skipped += steps.skipped
        return steps

    @property
    def ready(self) -> set[str]:
        return set(self.at.ready)

    def end(self, node: str, answer: str = "x", status: Status = "done") -> set[str]:
        """Return the nodes that are ready after this node ends."""
        outputs = {"answer": answer} if status == "done" else {}
        reason = None if status == "done" else f"{node} is {status}"
        settled = self.planner.settle(self.at.state, node, status, outputs, reason)
        self.at = self._seen(self.planner.advance(settled))
        return self.ready

    def status(self, node: str) -> str:
        return self.at.state.nodes[node].status

    @property
    def is_over(self) -> bool:
        return not any(node.status in ("running", "waiting") for node in self.at.state.nodes.values())


def test_nodes_that_no_edge_leads_to_begin_together() -> None:
    play = Play("abc", NodeEdge("a", "c"))

    assert play.ready == {"a", "b"}


def test_a_node_waits_for_all_that_lead_to_it() -> None:
    play = Play("abc", NodeEdge("a", "c"), NodeEdge("b", "c"))

    assert play.end("a") == set()
    assert play.end("b") == {"c"}
    play.end("c")
    assert play.is_over


def test_a_node_runs_if_one_of_its_edges_is_taken() -> None:
    play = Play("abc", NodeEdge("a", "c", answer_is("yes")), NodeEdge("b", "c", answer_is("yes")))
    play.end("a", "no")

    assert play.end("b", "yes") == {"c"}


def test_node_without_a_taken_edge_is_skipped_with_all_nodes_behind_it() -> None:
    play = Play("abc", NodeEdge("a", "b", answer_is("yes")), NodeEdge("b", "c"))
    play.end("a", "no")

    assert play.skipped == ["b", "c"]
    assert play.is_over


def test_default_edge_is_taken_only_if_no_other_edge_is() -> None:
    edges = (
        NodeEdge("a", "b", answer_is("b")),
        NodeEdge("a", "c", answer_is("c")),
        NodeEdge("a", "d", is_default=True),
    )

    assert Play("abcd", *edges).end("a", "b") == {"b"}
    assert Play("abcd", *edges).end("a", "c") == {"c"}
    assert Play("abcd", *edges).end("a", "else") == {"d"}


def test_edge_to_the_end_prevents_the_default_edge() -> None:
    edges = (NodeEdge("a", END, answer_is("stop")), NodeEdge("a", "b", is_default=True))

    assert Play("ab", *edges).end("a", "stop") == set()
    assert Play("ab", *edges).end("a", "on") == {"b"}


def test_input_decides_which_node_begins() -> None:
    edges = (NodeEdge(START, "a", lambda inputs: inputs["input"] == "a"), NodeEdge(START, "b", is_default=True))

    assert Play("ab", *edges, inputs={"input": "a"}).ready == {"a"}
    assert Play("ab", *edges, inputs={"input": "z"}).ready == {"b"}


@pytest.mark.parametrize(("mode", "ready"), [("skip", set()), ("isolate", {"c"})])
def test_failure_at_a_join_skips_or_runs_the_joined_node(mode: ErrorMode, ready: set[str]) -> None:
    play = Play("abc", NodeEdge("a", "c"), NodeEdge("b", "c"), error_modes={"a": mode})
    play.end("a", status="failed")

    assert play.end("b") == ready
    assert play.status("c") == ("running" if ready else "skipped")


def test_denied_node_does_not_block_a_join() -> None:
    play = Play("abc", NodeEdge("a", "c"), NodeEdge("b", "c"))
    play.end("a", status="skipped")

    assert play.end("b") == {"c"}


def test_a_fallback_runs_only_after_a_failure() -> None:
    edges = (NodeEdge("a", "s", kind="fallback"), NodeEdge("a", "b"))
    modes: dict[str, ErrorMode] = {"a": "fallback"}

    assert Play("abs", *edges, error_modes=modes).ready == {"a"}
    well = Play("abs", *edges, error_modes=modes)
    assert well.end("a") == {"b"}
    assert well.skipped == ["s"]
    assert Play("abs", *edges, error_modes=modes).end("a", status="failed") == {"s"}


def test_fallback_without_edges_follows_the_edges_of_the_failed_node() -> None:
    play = Play(
        "abcs",
        NodeEdge("a", "s", kind="fallback"),
        NodeEdge("a", "b", answer_is("b")),
        NodeEdge("a", "c", is_default=True),
        error_modes={"a": "fallback"},
    )
    play.end("a", status="failed")

    assert play.end("s", "b") == {"b"}
    assert play.skipped == ["c"]
    assert not play.planner.graph.is_failed("a", play.at.state.nodes)


def test_fallback_with_own_edges_follows_them() -> None:
    edges = (NodeEdge("a", "s", kind="fallback"), NodeEdge("a", "b"), NodeEdge("s", "c"))
    play = Play("abcs", *edges, error_modes={"a": "fallback"})
    play.end("a", status="failed")

    assert play.end("s") == {"c"}
    assert play.skipped == ["b"]


def test_a_fallback_that_fails_too_leaves_the_failure() -> None:
    edges = (NodeEdge("a", "s", kind="fallback"), NodeEdge("a", "b"))
    play = Play("abs", *edges, error_modes={"a": "fallback", "s": "isolate"})
    play.end("a", status="failed")
    play.end("s", status="failed")

    assert play.is_over
    assert play.skipped == ["b"]
    assert play.planner.graph.is_failed("a", play.at.state.nodes)


def test_planner_returns_the_same_steps_for_the_same_state() -> None:
    play = Play("abcd", NodeEdge("a", "b", answer_is("b")), NodeEdge("a", "c"), NodeEdge("b", "d"), NodeEdge("c", "d"))
    settled = play.planner.settle(play.at.state, "a", "done", {"answer": "b"})

    assert play.planner.advance(settled) == play.planner.advance(settled)


def test_an_execution_ends_at_nodes_behind_which_nothing_ran() -> None:
    play = Play("abc", NodeEdge("a", "b", answer_is("b")), NodeEdge("a", "c", answer_is("c")))
    play.end("a", "neither")

    assert [node for node in "abc" if play.planner.is_final(node, play.at.state)] == ["a"]


def test_one_taken_edge_of_two_between_the_same_nodes_is_enough() -> None:
    edges = (NodeEdge("a", "b", answer_is("one"), "a function"), NodeEdge("a", "b", answer_is("other"), "a function"))

    assert Play("ab", *edges).end("a", "one") == {"b"}
    assert Play("ab", *edges).end("a", "other") == {"b"}
    assert Play("ab", *edges).end("a", "neither") == set()
