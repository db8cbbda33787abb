"""Edges and edge groups as data."""

from __future__ import annotations

import pytest

from perdure import (
    Edge,
    EdgeGroup,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    SingleEdgeGroup,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupCase,
    SwitchCaseEdgeGroupDefault,
)


def is_even(number: int) -> bool:
    return number % 2 == 0


def first(message: object, targets: list[str]) -> list[str]:
    return targets[:1]


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
    with pytest.raises(ValueError, match=r"Edge (source|target)_id must be a non-empty string"):
        Edge(source, target)


def test_a_group_knows_its_ends_in_order_and_once() -> None:
    fan_out = FanOutEdgeGroup("a", ["c", "b"])
    assert (fan_out.source_executor_ids, fan_out.target_executor_ids) == (["a"], ["c", "b"])
    fan_in = FanInEdgeGroup(["b", "c"], "d")
    assert (fan_in.source_executor_ids, fan_in.target_executor_ids) == (["b", "c"], ["d"])
    assert fan_in.to_dict() == {
        "id": "FanInEdgeGroup/b,c->d",
        "type": "FanInEdgeGroup",
        "edges": [edge.to_dict() for edge in fan_in.edges],
    }


GROUPS = [
    SingleEdgeGroup("a", "b", is_even),
    FanOutEdgeGroup("a", ["b", "c"]),
    FanOutEdgeGroup("a", ["b", "c"], first, id="chosen"),
    FanInEdgeGroup(["a", "b"], "c"),
    SwitchCaseEdgeGroup("a", [SwitchCaseEdgeGroupCase(is_even, "b"), SwitchCaseEdgeGroupDefault("c")]),
]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_a_group_from_its_dict_has_the_same_dict(group: EdgeGroup) -> None:
    read = EdgeGroup.from_dict(group.to_dict())
    assert (type(read), read.id, read.to_dict()) == (type(group), group.id, group.to_dict())


def test_a_function_that_was_read_from_a_dict_cannot_be_called() -> None:
    read = EdgeGroup.from_dict(GROUPS[2].to_dict())
    assert isinstance(read, FanOutEdgeGroup) and read.selection_func is not None
    with pytest.raises(RuntimeError, match=r"Callable 'first' is unavailable after serialization"):
        read.selection_func("message", ["b", "c"])
    switch = EdgeGroup.from_dict(GROUPS[4].to_dict())
    assert isinstance(switch, SwitchCaseEdgeGroup) and isinstance(switch.cases[0], SwitchCaseEdgeGroupCase)
    with pytest.raises(RuntimeError, match=r"Callable 'is_even' is unavailable"):
        switch.cases[0].condition(1)


def test_a_group_with_too_few_ends_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least two targets"):
        FanOutEdgeGroup("a", ["b"])
    with pytest.raises(ValueError, match="at least two sources"):
        FanInEdgeGroup(["a"], "b")
    with pytest.raises(ValueError, match="exactly one default case"):
        SwitchCaseEdgeGroup("a", [SwitchCaseEdgeGroupDefault("b"), SwitchCaseEdgeGroupDefault("c")])


def test_parts_of_a_graph_survive_the_way_through_json() -> None:
    def is_long(message: str) -> bool:
        return len(message) > 3

    case, default = SwitchCaseEdgeGroupCase(is_long, "b"), SwitchCaseEdgeGroupDefault("c")
    edge, group = Edge("a", "b", is_long), SwitchCaseEdgeGroup("a", [case, default])
    for part in (case, default, edge, group):
        assert type(part).from_json(part.to_json()).to_dict() == part.to_dict()
