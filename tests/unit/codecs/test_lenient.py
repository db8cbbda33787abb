"""Storage used without a workflow loads everything, and saves it back unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.codecs.samples import Author, Colour, Page, Point, Right
from tests.unit.codecs.values import EVERYTHING, STRICT, TYPES_AS_VALUES, a_defaultdict

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec, Opaque, remember, remembered, to_bytes
from perdure.codecs.types import Declarations
from perdure.errors import UnreadableValue, UnsavableValue

LENIENT = JsonCodec(lenient=True)


@pytest.mark.parametrize("value", [*EVERYTHING, *TYPES_AS_VALUES], ids=lambda value: type(value).__name__)
def test_values_load_without_the_workflow_and_save_back_byte_for_byte(value: object) -> None:
    tree = STRICT.encode(value, "v")
    assert to_bytes(LENIENT.encode(LENIENT.decode(tree, "v"), "v")) == to_bytes(tree)


def test_an_undeclared_type_comes_back_opaque_and_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    # Workflows of other tests, built in this process, may have declared the whole package.
    monkeypatch.setattr("perdure.codecs.types._remembered", Declarations({}))
    back = JsonCodec(lenient=True).decode(STRICT.encode({"who": Author("x", 3)}, "v"), "v")
    assert back == {"who": Opaque("tests.unit.codecs.samples:Author", {"name": "x", "age": 3})}
    assert repr(back["who"]) == "Opaque(type='tests.unit.codecs.samples:Author', data={'name': 'x', 'age': 3})"


@pytest.mark.parametrize(
    "value",
    [{Colour.RED}, {Right.READ: 1}, frozenset({Point(1)}), a_defaultdict(Author), Page[Author](items=[]), list[Author]],
    ids=lambda value: type(value).__name__,
)
def test_undeclared_types_inside_of_others_can_be_loaded(value: object) -> None:
    tree = STRICT.encode(value, "v")
    assert LENIENT.encode(LENIENT.decode(tree, "v"), "v") == tree


def test_opaque_values_are_equal_by_their_stored_data() -> None:
    assert Opaque("a:B", {"x": [1]}) == Opaque("a:B", {"x": [1]})
    assert hash(Opaque("a:B", {"x": [1]})) == hash(Opaque("a:B", {"x": [1]}))
    assert Opaque("a:B", {"x": 1}) != Opaque("a:B", {"x": 2})
    assert Opaque("a:B", {"x": 1}) != Opaque("a:C", {"x": 1})


def test_an_opaque_value_is_not_an_alias_of_the_tree() -> None:
    tree = {"$type": "a:B", "x": [1]}
    back = LENIENT.decode(tree, "v")
    back.data["x"].append(2)
    assert tree == {"$type": "a:B", "x": [1]}
    stored = LENIENT.encode(back, "v")
    back.data["x"].append(3)
    assert stored == {"$type": "a:B", "x": [1, 2]}


def test_lenient_codec_saves_undeclared_data_types() -> None:
    @dataclass
    class Local:
        a: int

    assert LENIENT.encode(Local(1), "v")["a"] == 1
    with pytest.raises(UnsavableValue, match="not a data type"):
        LENIENT.encode(object(), "v")


def test_a_damaged_value_is_not_opaque_but_unreadable() -> None:
    with pytest.raises(UnreadableValue, match=r"Cannot read v\['x'\]"):
        LENIENT.decode({"x": {"$type": "int", "hex": "what"}}, "v")


def test_a_strict_codec_saves_an_opaque_value_only_if_it_could_load_it() -> None:
    tree = STRICT.encode([Author("x")], "v")
    assert STRICT.encode(LENIENT.decode(tree, "v"), "v") == tree
    with pytest.raises(
        UnsavableValue, match=r"Cannot save v\[0\]: it could not be loaded again.*'a:B' was not declared"
    ):
        STRICT.encode([Opaque("a:B", {})], "v")
    with pytest.raises(UnsavableValue, match="'a:B' was not declared"):
        STRICT.encode(Opaque("tuple", {"items": [{"$type": "a:B"}]}), "v")


@pytest.mark.parametrize(
    "data", [None, [1], {"x": object()}, {1: 2}, {"x": float("nan")}, {"x": 2**70}, {"x": "\ud800"}]
)
def test_an_opaque_value_made_by_hand_must_hold_a_tree(data: Any) -> None:
    with pytest.raises(UnsavableValue):
        LENIENT.encode(Opaque("a:B", data), "v")


def test_types_of_workflows_of_this_process_come_back_as_themselves() -> None:
    @dataclass
    class Built:
        a: int

    tree = LENIENT.encode(Built(1), "v")
    assert isinstance(LENIENT.decode(tree, "v"), Opaque)
    remember(DeclaredTypes(types=frozenset({Built}), names=frozenset({"x.y:Z"}), packages=frozenset({"codec_none"})))
    assert LENIENT.decode(tree, "v") == Built(1)
    assert Built in remembered().types
    assert "x.y:Z" in remembered().names
    assert "codec_none" in remembered().packages
    with pytest.raises(UnreadableValue):
        JsonCodec().decode(tree, "v")
