"""Nothing in a drawing is in the way of anything else: over the gallery, and over graphs of any form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.unit.graph.drawing.gallery import GALLERY
from tests.unit.graph.drawing.geometry import of_drawing, of_svg, problems
from tests.unit.graph.drawing.random_graphs import graphs

from perdure.graph.drawing.layout import lay_out
from perdure.graph.drawing.picture import picture_of
from perdure.graph.drawing.svg import to_svg
from perdure.graph.graph import Graph

each_of_the_gallery = pytest.mark.parametrize("build", GALLERY.values(), ids=GALLERY)


@each_of_the_gallery
def test_no_box_overlaps_and_no_line_runs_through_a_box_or_label(build: Callable[[], Graph]) -> None:
    assert problems(of_drawing(lay_out(picture_of(build(), with_hubs=True)))) == []


@each_of_the_gallery
def test_finished_svg_has_no_overlaps_and_no_crossed_boxes_or_labels(build: Callable[[], Graph]) -> None:
    drawn, laid_out = of_svg(to_svg(build())), lay_out(picture_of(build(), with_hubs=True))
    assert len(drawn.boxes) == sum(not box.shape.is_hub for box in laid_out.boxes)
    assert (len(drawn.lines), len(drawn.tags)) == (len(laid_out.strokes), len(laid_out.tags))
    assert problems(drawn) == []


@given(graphs())
def test_graphs_of_any_form_are_drawn_cleanly(graph: Graph) -> None:
    assert problems(of_drawing(lay_out(picture_of(graph, with_hubs=True)))) == []
