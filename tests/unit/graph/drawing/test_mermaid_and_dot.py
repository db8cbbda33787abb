"""Graphs as text for other programs to draw: what is in it, and that no id can break it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from tests.unit.graph.drawing.gallery import (
    GALLERY,
    Sketch,
    child,
    choose_channels,
    fan_out_and_in,
    named,
    nested_twice,
    review_loop,
)

from perdure.graph.drawing.viz import to_dot, to_mermaid
from perdure.graph.graph import Graph

MERMAID_LINE = re.compile(
    r"""flowchart\ TD
    | \ +subgraph\ \w+\["[^"]*"\] | \ +end
    | \ +\w+ (?: \["[^"]*"\]; | \(\([^()"]*\)\) | \(\["[^"]*"\]\); )
    | \ \ \w+\ (?: --> | -\.->(?:\|"[^"]*"\|)? | -\.\ conditional\ \.-> )\ \w+;
    | \ \ (?: classDef\ start\ .* | class\ [\w,]+\ start | linkStyle\ [\d,]+\ stroke-dasharray:2\ 4 )""",
    re.VERBOSE,
)
DOT_STRING = r'"(?:[^"\\]|\\["\\n])*"'
DOT_LINE = re.compile(
    rf"""digraph\ Workflow\ \{{ | \ *\}} | \ +(?:rankdir|compound)=\w+; | \ +(?:node|edge)\ \[.*\];
    | \ +subgraph\ cluster_\d+\ \{{ | \ +label={DOT_STRING}; | \ +style="rounded";.*
    | \ +{DOT_STRING}(?:\ ->\ {DOT_STRING})?(?:\ \[(?:\w+=(?:\w+|{DOT_STRING})(?:,\ )?)+\])?;""",
    re.VERBOSE,
)


def test_mermaid_marks_the_start_and_labels_conditions() -> None:
    sketch = Sketch("start").edge("start", "middle", named("is_long")).switch("middle", ("is_a", "a"), default="b")
    lines = to_mermaid(sketch.select("a", choose_channels, "x", "y").graph()).splitlines()
    assert lines[:2] == ["flowchart TD", '  start["start (Start)"];']
    assert lines[7:12] == [
        '  start -.->|"is_long"| middle;',
        '  middle -.->|"is_a"| a;',
        '  middle -.->|"default"| b;',
        '  a -.->|"choose_channels"| x;',
        '  a -.->|"choose_channels"| y;',
    ]


def test_mermaid_shows_a_fan_in_as_a_node_of_its_own() -> None:
    lines = [line.strip() for line in to_mermaid(fan_out_and_in()).splitlines()]
    assert "fan_in__merge((fan-in))" in lines
    assert {"news --> fan_in__merge;", "papers --> fan_in__merge;", "fan_in__merge --> merge;"} <= set(lines)


def test_mermaid_nests_sub_workflows_as_subgraphs() -> None:
    lines = to_mermaid(nested_twice()).splitlines()
    start = lines.index('    subgraph chapter__review["review"]')
    assert lines[start - 2] == '  subgraph chapter["chapter"]'
    assert lines[start + 1] == '      chapter__review__draft["draft (Start)"];'
    assert lines[start + 4] == "    end"
    assert "  chapter__split --> chapter__review;" in lines


def test_dot_nests_sub_workflows_as_clusters_that_edges_end_at() -> None:
    text = to_dot(nested_twice())
    assert '"outline" -> "chapter/split" [lhead=cluster_1];' in text
    assert '"chapter/bind" -> "print" [ltail=cluster_1];' in text
    assert (
        text.index("subgraph cluster_1 {") < text.index("subgraph cluster_2 {") < text.index('"chapter/review/draft"')
    )


def test_dot_marks_the_start_the_fan_in_and_conditions() -> None:
    text = to_dot(fan_out_and_in())
    assert '"plan" [fillcolor=lightgreen, label="plan\\n(Start)"];' in text
    assert '"fan_in::merge" [shape=ellipse, fillcolor=lightgoldenrod, label="fan-in"];' in text
    assert '"critic" -> "draft" [style=dashed, label="needs_work"];' in to_dot(review_loop())


@pytest.mark.parametrize("draw", [to_mermaid, to_dot])
def test_the_entry_point_is_shown_on_demand(draw: Callable[..., str]) -> None:
    assert "internal" not in draw(review_loop())
    lines = [line.strip(" ;") for line in draw(review_loop(), include_internal_executors=True).splitlines()]
    assert {"internal_draft --> draft", '"internal:draft" -> "draft"'} & set(lines)


def test_link_to_a_fallback_executor_is_dotted() -> None:
    graph = Sketch("charge").chain("charge", "ship").fallback("charge", "apologise").graph()
    assert '"charge" -> "apologise" [style=dotted, label="on error"];' in to_dot(graph)
    mermaid = to_mermaid(graph).splitlines()
    assert '  charge -.->|"on error"| apologise;' in mermaid
    assert "  linkStyle 1 stroke-dasharray:2 4" in mermaid


def test_ids_that_look_alike_stay_apart() -> None:
    inner = child("a", Sketch("b").graph())
    graph = Sketch("start").chain("start", inner, "a__b", "a b", "a  b", "a-b").graph()
    nodes = [
        line.split("[")[0].strip() for line in to_mermaid(graph).splitlines() if '["' in line and "sub" not in line
    ]
    assert nodes == ["start", "a__b_3", "a__b", "a_b", "a__b_2", "a_b_2"]
    assert '"a b" -> "a b_2"' in to_dot(graph)


def test_words_of_mermaid_are_not_taken_for_ids() -> None:
    lines = to_mermaid(Sketch("End").chain("End", "graph", "1st", "ending").graph()).splitlines()
    assert lines[5:8] == ["  n_End --> n_graph;", "  n_graph --> n_1st;", "  n_1st --> ending;"]


@pytest.mark.parametrize("build", GALLERY.values(), ids=GALLERY)
def test_the_whole_gallery_is_well_formed(build: Callable[[], Graph]) -> None:
    check_form(build())


@given(st.lists(st.text(min_size=1, max_size=12), min_size=3, max_size=3, unique=True))
def test_no_id_or_condition_can_break_the_text(names: list[str]) -> None:
    sketch = Sketch(names[0], "any").chain(names[0], child(names[1], Sketch(names[2]).graph()))
    check_form(sketch.edge(names[0], names[2], named(names[1])).graph())


def check_form(graph: Graph) -> None:
    for line in to_mermaid(graph).splitlines():
        assert MERMAID_LINE.fullmatch(line), line
    for line in to_dot(graph).splitlines():
        assert DOT_LINE.fullmatch(line), line
    to_mermaid(graph).encode()
    to_dot(graph).encode()
