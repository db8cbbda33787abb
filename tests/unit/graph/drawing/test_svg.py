"""SVG drawings: well formed for any names, readable by people and machines, and marked with outcomes."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from tests.unit.graph.drawing.gallery import Sketch, named, nested_once, odd_names, self_loop, switch
from tests.unit.graph.drawing.geometry import SVG, of_svg

from perdure.graph.drawing.picture import OUTCOMES
from perdure.graph.drawing.svg import to_svg


def texts(source: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(source).iter(f"{SVG}text")]


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True), st.text(min_size=1))
def test_any_id_gives_well_formed_xml(ids: list[str], condition: str) -> None:
    graph = Sketch(ids[0], "any").edge(ids[0], ids[1], named(condition)).graph()
    root = ElementTree.fromstring(to_svg(graph).encode())
    assert len([element for element in root.iter(f"{SVG}g") if element.get("data-path")]) == 2


def test_names_that_can_be_written_are_kept_exactly() -> None:
    paths = [box.path for box in of_svg(to_svg(odd_names())).boxes]
    assert paths == list(odd_names().executors)


def test_a_long_name_is_broken_and_cut_but_whole_in_its_tooltip() -> None:
    name = "summarise_" * 20
    source = to_svg(Sketch(name).graph())
    assert texts(source) == ["summarise_summarise_", "summarise_summarise_", "summarise_summarise_…"]
    assert f"<title>{name}</title>" in source


def test_svg_has_a_title_and_a_description_for_screen_readers() -> None:
    root = ElementTree.fromstring(to_svg(nested_once(), outcomes={"review/draft": "failed", "outline": "completed"}))
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title" and root[0].text == "book"
    description = "A workflow of 6 executors. It starts at outline. Completed: outline. Failed: review/draft."
    assert root[1].tag == f"{SVG}desc" and root[1].text == description


def test_svg_is_self_contained_and_follows_the_readers_color_scheme() -> None:
    source = to_svg(switch())
    assert "prefers-color-scheme:dark" in source
    without_namespace = source.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not [word for word in ("http", "url(", "href", "@import", "<script") if word in without_namespace]


def test_conditions_are_dashed_and_labelled_with_their_names() -> None:
    root = ElementTree.fromstring(to_svg(switch()))
    dashed = [
        element.get("data-target") for element in root.iter(f"{SVG}g") if element.get("class") == "pd-conditional"
    ]
    assert dashed == ["quarantine", "ask_support", "accounting", "archive"]
    assert {"is_spam", "needs_person", "is_invoice", "default"} <= set(texts(to_svg(switch())))
    assert "not_ready" in texts(to_svg(self_loop()))


def test_link_to_a_fallback_executor_is_dotted() -> None:
    source = to_svg(Sketch("charge").fallback("charge", "apologise").graph())
    assert '<g class="pd-fallback" data-source="charge" data-target="apologise">' in source
    assert "on error" in texts(source)


def test_the_entry_point_is_shown_on_demand() -> None:
    assert "internal:classify" in texts(to_svg(switch(), include_internal_executors=True))
    assert "internal:classify" not in texts(to_svg(switch()))


# ---------------------------------------------------------------- what happened


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_has_a_class_a_mark_and_an_entry_in_the_legend(outcome: str) -> None:
    root = ElementTree.fromstring(to_svg(nested_once(), outcomes={"review/critic": outcome}))
    shown = [element for element in root.iter(f"{SVG}g") if f"pd-{outcome}" in element.get("class", "").split()]
    assert [element.get("data-path") for element in shown] == ["review/critic", None]
    assert all(element.find(f"{SVG}path[@class='pd-mark']") is not None for element in shown)
    assert [element.text for element in shown[1].iter(f"{SVG}text")] == [outcome]


def test_legend_has_only_outcomes_that_occur() -> None:
    source = to_svg(nested_once(), outcomes={"outline": "completed", "review": "waiting", "of another graph": "failed"})
    assert [text for text in texts(source) if text in OUTCOMES] == ["completed", "waiting"]
    assert not set(texts(to_svg(nested_once()))) & set(OUTCOMES)


def test_the_legend_of_a_narrow_drawing_has_several_lines() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    graph = Sketch("a").chain(*names).graph()
    root = ElementTree.fromstring(to_svg(graph, outcomes=dict(zip(names, OUTCOMES, strict=True))))
    heights = [float(element.get("y", 0)) for element in root.iter(f"{SVG}text") if element.text in OUTCOMES]
    assert len(set(heights)) > 1 and max(heights) < float(root.get("height", 0))
    assert float(root.get("width", 0)) < 260


def test_every_outcome_looks_different_without_its_colour() -> None:
    marks = set()
    for outcome in OUTCOMES:
        root = ElementTree.fromstring(to_svg(Sketch("only").graph(), outcomes={"only": outcome}))
        marks |= {element.get("d") for element in root.iter(f"{SVG}path") if element.get("class") == "pd-mark"}
    assert len(marks) == len(OUTCOMES)


def test_unknown_outcome_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"outcome of 'outline': expected one of completed, .*, got 'done'"):
        to_svg(nested_once(), outcomes={"outline": "done"})
