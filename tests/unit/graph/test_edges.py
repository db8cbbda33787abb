"""Edges and edge groups as data."""

from __future__ import annotations

import pytest

from perdure import Edge, FanInEdgeGroup, FanOutEdgeGroup


def is_even(number: int) -> bool:
    return number % 2 == 0


async def is_odd(number: int) -> bool:
    return number % 2 == 1


def test_an_edge_is_named_by_its_ends_and_its_condition() -> None:
    edge = Edge("a", "b", is_even)
    assert (edge.id, edge.has_condition, edge.condition_name) == ("a->b", True, "is_even")
    assert edge.to_dict() == {"source_id": "a", "target_id": "b", "condition_name": "is_even"}
    assert Edge("a", "b", lambda _: True).condition_name == "<lambda>"
    assert Edge("a", "b", is_even, condition_name="even").condition_name == "even"


async def test_edge_evaluates_its_condition_sync_or_async() -> None:
    assert await Edge("a", "b").should_route(1) is True
    assert await Edge("a", "b", is_even).should_route(1) is False
    assert await Edge("a", "b", is_odd).should_route(1) is True


@pytest.mark.parametrize(("source", "target"), [("", "b"), ("a", "")])
def test_an_edge_needs_two_ends(source: str, target: str) -> None:
    with pytest.raises(ValueError, match="An edge needs a source and a target"):
        Edge(source, target)


def test_a_group_knows_its_ends_in_order_and_once() -> None:
    fan_out = FanOutEdgeGroup((Edge("a", "c"), Edge("a", "b")))
    assert (fan_out.source_executor_ids, fan_out.target_executor_ids) == (["a"], ["c", "b"])
    fan_in = FanInEdgeGroup((Edge("b", "d"), Edge("c", "d")))
    assert (fan_in.source_executor_ids, fan_in.target_executor_ids) == (["b", "c"], ["d"])
    assert fan_in.to_dict() == {
        "id": "FanInEdgeGroup/b,c->d",
        "type": "FanInEdgeGroup",
        "edges": [edge.to_dict() for edge in fan_in.edges],
    }
