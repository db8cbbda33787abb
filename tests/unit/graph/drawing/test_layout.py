"""Properties of a readable layout that can be measured."""

from __future__ import annotations

from tests.unit.graph.drawing.gallery import (
    Sketch,
    chain,
    fan_out_and_in,
    long_edges,
    named,
    nested_once,
    several_loops,
    wide_fan,
)

from perdure.graph.drawing.layout import lay_out
from perdure.graph.drawing.picture import Box, Drawing, Stroke, picture_of
from perdure.graph.graph import Graph


def drawing(graph: Graph) -> Drawing:
    return lay_out(picture_of(graph, with_hubs=True))


def boxes(drawn: Drawing) -> dict[str, Box]:
    return {box.shape.path: box for box in drawn.boxes if not box.shape.is_hub}


def middle(box: Box) -> float:
    return round(box.area.x + box.area.width / 2, 1)


def stroke(drawn: Drawing, source: str, target: str) -> Stroke:
    return next(line for line in drawn.strokes if (line.source.path, line.target.path) == (source, target))


def test_a_chain_is_one_straight_line_from_top_to_bottom() -> None:
    drawn = drawing(chain())
    assert len({middle(box) for box in drawn.boxes}) == 1
    assert [box.area.y for box in drawn.boxes] == sorted(box.area.y for box in drawn.boxes)
    assert all([name for name, _ in line.steps] == ["M", "L"] for line in drawn.strokes)


def test_a_chain_stays_straight_beside_links_that_pass_it() -> None:
    assert len({middle(box) for box in drawing(long_edges()).boxes}) == 1


def test_fan_out_targets_are_in_declaration_order_around_their_source() -> None:
    placed = boxes(drawing(wide_fan()))
    workers = [middle(placed[f"worker-{number}"]) for number in range(1, 13)]
    assert workers == sorted(workers)
    assert abs(middle(placed["spread"]) - (workers[5] + workers[6]) / 2) < 2


def test_a_fan_in_has_a_join_right_above_its_target() -> None:
    drawn = drawing(fan_out_and_in())
    (join,) = (box for box in drawn.boxes if box.shape.kind == "join")
    target = boxes(drawn)["merge"]
    assert middle(join) == middle(target)
    assert 0 < target.area.y - join.area.bottom < 40
    assert [line.tip is None for line in drawn.strokes if line.target is join.shape] == [True] * 3


def test_links_that_lead_back_are_nested_around_the_side() -> None:
    drawn = drawing(several_loops())
    column = max(box.area.right for box in drawn.boxes)
    reach = {name: max(x for _, points in stroke(drawn, *name).steps for x, _ in points)
             for name in (("test", "write"), ("release", "plan"))}  # fmt: skip
    assert column < reach["test", "write"] < reach["release", "plan"]


def test_a_link_upwards_ends_with_an_arrow_at_its_target() -> None:
    drawn = drawing(Sketch("a").chain("a", "b", "c").edge("c", "a", named("again")).graph())
    tip, area = stroke(drawn, "c", "a").tip, boxes(drawn)["a"].area
    assert tip is not None
    assert tip == ((area.right, area.y + area.height / 2), (-1, 0))


def test_a_sub_workflow_is_a_box_around_its_own_layout() -> None:
    placed = boxes(drawing(nested_once()))
    outer = placed["review"].area
    for path in ("review/draft", "review/critic", "review/polish"):
        inner = placed[path].area
        assert outer.x < inner.x and inner.right < outer.right and outer.y < inner.y and inner.bottom < outer.bottom
    assert placed["outline"].area.bottom < outer.y and outer.bottom < placed["print"].area.y


def test_a_chain_longer_than_the_stack_of_python_is_drawn() -> None:
    names = [str(number) for number in range(1200)]
    assert len(drawing(Sketch(names[0]).chain(*names).graph()).boxes) == 1200
