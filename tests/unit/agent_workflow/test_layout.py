"""Which edges lead back, and which nodes may run at the same time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perdure.agent_workflow.execution.planner import cycle_through, lay_out

Edges = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("edges", "layers"),
    [
        ([], [("a", "b", "c", "d")]),
        ([("a", "b"), ("b", "c"), ("c", "d")], [("a",), ("b",), ("c",), ("d",)]),
        ([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], [("a",), ("b", "c"), ("d",)]),
        ([("a", "d"), ("a", "b"), ("b", "d")], [("a", "c"), ("b",), ("d",)]),
        ([("d", "a"), ("c", "a"), ("a", "b")], [("c", "d"), ("a",), ("b",)]),
    ],
    ids=["apart", "chain", "diamond", "a short way and a long one", "against the order they were added in"],
)
def test_a_node_comes_in_the_layer_after_all_that_lead_to_it(edges: Edges, layers: list[tuple[str, ...]]) -> None:
    assert lay_out("abcd", edges) == (layers, set())


@pytest.mark.parametrize(
    ("edges", "back"),
    [
        ([("a", "b"), ("b", "a")], {1}),
        ([("b", "a"), ("a", "b")], {0}),
        ([("a", "a"), ("a", "b")], {0}),
        ([("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "a")], {2, 4}),
        ([("c", "b"), ("b", "c"), ("a", "b")], {0}),
        ([("a", "b"), ("c", "d"), ("d", "c"), ("b", "a")], {2, 3}),
    ],
    ids=["two", "in the other order", "itself", "one in another", "entered from outside", "two loops apart"],
)
def test_an_edge_that_closes_a_cycle_leads_back(edges: Edges, back: set[int]) -> None:
    layers, leading_back = lay_out("abcd", edges)

    assert leading_back == back
    assert sorted(node for layer in layers for node in layer) == list("abcd")


def test_two_edges_between_the_same_nodes_are_both_back_or_both_not() -> None:
    _, back = lay_out("ab", [("a", "b"), ("a", "b"), ("b", "a"), ("b", "a")])

    assert back == {2, 3}


def test_cycle_is_listed_node_by_node() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")]

    assert cycle_through("c", "a", edges) == ["a", "b", "c", "a"]
    assert cycle_through("a", "a", [("a", "a")]) == ["a", "a"]


def test_long_chain_is_laid_out() -> None:
    nodes = [f"n{number}" for number in range(300)]
    layers, _ = lay_out(nodes, list(pairwise(nodes)))

    assert len(layers) == 300
