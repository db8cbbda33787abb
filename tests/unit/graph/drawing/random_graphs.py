"""Graphs of any form: every kind of edge group, circles, links of an executor to itself, nested sub-workflows."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.unit.graph.drawing.gallery import Sketch, child, choose_channels, named

from perdure.graph.executor import Executor
from perdure.graph.graph import Graph

CONDITIONS = ["ok", "is_long_enough", "a_condition_whose_name_needs_more_than_one_line"]
KINDS = ["plain", "conditional", "fan_out", "fan_in", "switch", "selection"]


@st.composite
def graphs(draw: st.DrawFn, depth: int = 2, most: int = 10) -> Graph:
    """Connected: every executor but the start has a link from an earlier executor."""
    count = draw(st.integers(1, most))
    names = [f"n{number}" + "m" * draw(st.sampled_from([0, 0, 0, 9, 40])) for number in range(count)]
    sketch = Sketch(names[0], "random")
    taken: set[tuple[str, str]] = set()
    for number in range(1, count):
        source = names[draw(st.integers(0, number - 1))]
        target: str | Executor = names[number]
        if depth and draw(st.integers(0, 5)) == 0:
            target = child(names[number], draw(graphs(depth=depth - 1, most=4)))
        sketch.chain(source, target)
        taken.add((source, names[number]))
    for _ in range(draw(st.integers(0, 6))):
        kind, hub = draw(st.sampled_from(KINDS)), draw(st.sampled_from(names))
        few = 1 if kind in ("plain", "conditional") else 2
        if count < few:
            continue
        others = draw(st.lists(st.sampled_from(names), min_size=few, max_size=5 if few > 1 else 1, unique=True))
        pairs = {(other, hub) if kind == "fan_in" else (hub, other) for other in others}
        if not pairs & taken:
            taken |= pairs
            add_group(draw, sketch, kind, hub, others)
    return sketch.graph()


def add_group(draw: st.DrawFn, sketch: Sketch, kind: str, hub: str, others: list[str]) -> None:
    if kind == "plain":
        sketch.edge(hub, others[0])
    elif kind == "conditional":
        sketch.edge(hub, others[0], named(draw(st.sampled_from(CONDITIONS))))
    elif kind == "fan_in":
        sketch.fan_in(others, hub)
    elif kind == "fan_out":
        sketch.fan_out(hub, *others)
    elif kind == "selection":
        sketch.select(hub, choose_channels, *others)
    else:
        sketch.switch(hub, *((draw(st.sampled_from(CONDITIONS)), other) for other in others[1:]), default=others[0])
