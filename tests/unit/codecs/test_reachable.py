from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest
from tests.shown import shown
from tests.unit.codecs.samples import Author, Box, Coin, Colour, Options, Page, Place, Plain, Point, Purse, Report

from perdure.codec import DeclaredTypes
from perdure.codecs import declared_types, reachable_types


@dataclass
class Leaf:
    a: int


class Twig(msgspec.Struct):
    leaf: Leaf


class Branch(pydantic.BaseModel, arbitrary_types_allowed=True):
    twigs: list[Twig]


class Stem(NamedTuple):
    branch: Branch


class Tree(TypedDict):
    stem: Stem | None
    parent: Tree


@dataclass
class Half:
    good: Leaf
    bad: Missing  # type: ignore[name-defined]  # noqa: F821


Id = NewType("Id", Leaf)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, set()),
        (int, set()),
        (Any, set()),
        (Plain, set()),
        (dict[str, list[int]] | None, set()),
        (Leaf, {Leaf}),
        (list[Leaf] | None, {Leaf}),
        (typing.Optional[typing.Dict[str, Leaf]], {Leaf}),
        (Tree, {Tree, Stem, Branch, Twig, Leaf}),
        (Half, {Half, Leaf}),
        (typing.Annotated[Leaf, "x"], {Leaf}),
        (typing.Literal[Colour.RED], {Colour}),
        (Id, {Leaf}),
        (Box[Leaf], {Box, Leaf}),
        (typing.Callable[[Leaf], Coin], {Leaf, Coin}),
        (Report, {Report, Author}),
        (Purse, {Purse, Coin}),
        (Page[Leaf], {Page, Page[Leaf], Leaf}),
        (ValueError | Leaf, {Leaf}),
        ("Leaf", set()),
    ],
    ids=shown,
)
def test_every_data_type_an_annotation_is_made_of_is_reached(annotation: object, expected: set[type]) -> None:
    assert reachable_types(annotation) == expected


def test_workflow_declares_its_annotations_packages_and_added_types() -> None:
    declared = declared_types([list[Twig], str], [Plain, Leaf], [Point, Report, "a.b:C"])
    assert declared == DeclaredTypes(
        types=frozenset({Twig, Leaf, Point, Report, Author}), names=frozenset({"a.b:C"}), packages=frozenset({"tests"})
    )


def test_stdlib_and_perdure_packages_are_not_declared_by_executors() -> None:
    import threading

    from perdure.codecs import JsonCodec

    assert declared_types([], [threading.Thread, object, JsonCodec], []).packages == frozenset()
    assert declared_types([Options, Place], [], []).types == {Options, Place, Author}
