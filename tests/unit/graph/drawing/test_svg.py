"""SVG drawings: well formed whatever the names, readable by people and machines, and showing what happened."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from tests.unit.graph.drawing.gallery import Sketch, named, nested_once, odd_names, self_loop, switch
from tests.unit.graph.drawing.geometry import SVG, of_svg

from perdure.graph.drawing.outcomes import OUTCOMES
from perdure.graph.drawing.svg import to_svg


def texts(source: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(source).iter(f"{SVG}text")]


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True), st.text(min_size=1))
def test_any_id_gives_well_formed_xml(ids: list[str], condition: str) -> None:
    graph = Sketch(ids[0], "any").edge(ids[0], ids[1], named(condition)).graph()
    root = ElementTree.fromstring(to_svg(graph).encode())
    assert len([one for one in root.iter(f"{SVG}g") if one.get("data-path")]) == 2


def test_names_that_can_be_written_are_kept_exactly() -> None:
    paths = [box.path for box in of_svg(to_svg(odd_names())).boxes]
    assert paths == list(odd_names().executors)


def test_a_long_name_is_broken_and_cut_but_whole_in_its_tooltip() -> None:
    name = "summarise_" * 20
    source = to_svg(Sketch(name).graph())
    assert texts(source) == ["summarise_summarise_", "summarise_summarise_", "summarise_summarise_…"]
    assert f"<title>{name}</title>" in source


def test_it_says_what_it_is_to_those_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(to_svg(nested_once(), outcomes={"review/draft": "failed", "outline": "completed"}))
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title" and root[0].text == "book"
    said = "A workflow of 6 executors. It starts at outline. Completed: outline. Failed: review/draft."
    assert root[1].tag == f"{SVG}desc" and root[1].text == said


def test_it_needs_nothing_from_outside_and_follows_the_readers_colours() -> None:
    source = to_svg(switch())
    assert "prefers-color-scheme:dark" in source
    without_namespace = source.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not [one for one in ("http", "url(", "href", "@import", "<script") if one in without_namespace]


def test_conditions_are_dashed_and_labelled_with_their_names() -> None:
    root = ElementTree.fromstring(to_svg(switch()))
    dashed = [one.get("data-target") for one in root.iter(f"{SVG}g") if one.get("class") == "pd-conditional"]
    assert dashed == ["quarantine", "ask_support", "accounting", "archive"]
    assert {"is_spam", "needs_person", "is_invoice", "default"} <= set(texts(to_svg(switch())))
    assert "not_ready" in texts(to_svg(self_loop()))


def test_an_executor_that_does_the_work_of_a_failed_one_is_dotted_to() -> None:
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
    shown = [one for one in root.iter(f"{SVG}g") if f"pd-{outcome}" in one.get("class", "").split()]
    assert [one.get("data-path") for one in shown] == ["review/critic", None]
    assert all(one.find(f"{SVG}path[@class='pd-mark']") is not None for one in shown)
    assert [one.text for one in shown[1].iter(f"{SVG}text")] == [outcome]


def test_the_legend_has_only_what_occurs() -> None:
    source = to_svg(nested_once(), outcomes={"outline": "completed", "review": "waiting", "of another graph": "failed"})
    assert [one for one in texts(source) if one in OUTCOMES] == ["completed", "waiting"]
    assert not set(texts(to_svg(nested_once()))) & set(OUTCOMES)


def test_the_legend_of_a_narrow_drawing_has_several_lines() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    graph = Sketch("a").chain(*names).graph()
    root = ElementTree.fromstring(to_svg(graph, outcomes=dict(zip(names, OUTCOMES, strict=True))))
    heights = [float(one.get("y", 0)) for one in root.iter(f"{SVG}text") if one.text in OUTCOMES]
    assert len(set(heights)) > 1 and max(heights) < float(root.get("height", 0))
    assert float(root.get("width", 0)) < 260


def test_every_outcome_looks_different_without_its_colour() -> None:
    marks = set()
    for outcome in OUTCOMES:
        root = ElementTree.fromstring(to_svg(Sketch("only").graph(), outcomes={"only": outcome}))
        marks |= {one.get("d") for one in root.iter(f"{SVG}path") if one.get("class") == "pd-mark"}
    assert len(marks) == len(OUTCOMES)


def test_an_outcome_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outcome of 'outline': expected one of completed, .*, got 'done'"):
        to_svg(nested_once(), outcomes={"outline": "done"})
