"""Promises 8 and 9: a value that could not be loaded is rejected on save, and the error names its path."""

from __future__ import annotations

import sys
import threading
import types
import typing
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import pytest
from tests.shown import shown
from tests.unit.codecs.samples import Author, Box, Couple, Page, Plain, Point, Report, Sheet
from tests.unit.codecs.values import LAST, STRICT, SUMMER, a_row, with_attributes

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec, from_bytes, to_bytes
from perdure.codecs.walk import MAX_DEPTH
from perdure.errors import UnreadableValue, UnsavableValue

NOWHERE = object()


def path_of(value: object, root: str = "state") -> str:
    with pytest.raises(UnsavableValue) as refused:
        STRICT.encode(value, root)
    assert str(refused.value).startswith(f"Cannot save {refused.value.path}: ")
    return refused.value.path


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (NOWHERE, "state"),
        ([1, NOWHERE], "state[1]"),
        ({"a": [0, {"b": NOWHERE}]}, "state['a'][1]['b']"),
        ({"a": 1, 2: (3, NOWHERE)}, "state[2][1]"),
        ({NOWHERE: 1}, f"state[{NOWHERE!r}]"),
        (Report("x", author=Author("a", age=NOWHERE)), "state.author.age"),  # type: ignore[arg-type]  # on purpose
        (Report("x", tags=["a", NOWHERE]), "state.tags[1]"),  # type: ignore[list-item]  # on purpose
        (Couple((1, Point(NOWHERE))), "state[1].x"),
        (Sheet({"k": NOWHERE}), "state['k']"),
        (with_attributes(Report("x"), extra=NOWHERE), "state.extra"),
        (with_attributes(a_row(), note=NOWHERE), "state.note"),
        (ValueError("x", NOWHERE), "state.args[1]"),
        (Page[Any].model_construct(items=[NOWHERE]), "state.items[0]"),
        (defaultdict(lambda: 1), "state.default_factory"),
        (list[Plain], "state[0]"),
        ({"x" * 500: NOWHERE}, f"state['{'x' * 96}...]"),
    ],
    ids=shown,
)
def test_the_error_names_the_path_of_the_part_that_cannot_be_saved(value: object, path: str) -> None:
    assert path_of(value) == path


def test_a_time_zone_of_an_unknown_class_is_named() -> None:
    class Mars(tzinfo):
        def utcoffset(self, moment: datetime | None) -> None: ...
        def tzname(self, moment: datetime | None) -> None: ...
        def dst(self, moment: datetime | None) -> None: ...

    assert path_of([datetime(2024, 1, 1, tzinfo=Mars())]) == "state[0].tzinfo"


@pytest.mark.parametrize(
    "value",
    [object(), Plain(), threading.Lock(), print, lambda: 1, Plain, type("X", (), {}), slice(1), iter([])],
    ids=lambda value: type(value).__name__,
)
def test_value_that_is_not_data_is_rejected_with_advice(value: object) -> None:
    with pytest.raises(UnsavableValue, match="register_type"):
        STRICT.encode({"x": value}, "state")


@pytest.mark.parametrize(
    "annotation",
    [
        typing.Literal[1.5],
        list["Author"],
        typing.Callable[[int], str],
        typing.Annotated[int, "x"],
        typing.TypeVar("T"),
        list[Plain],
        types.GenericAlias(tuple, tuple(types.GenericAlias(list, (number,)) for number in range(200))),
    ],
    ids=shown,
)
def test_annotation_that_cannot_be_rebuilt_is_rejected(annotation: object) -> None:
    with pytest.raises(UnsavableValue):
        STRICT.encode(annotation, "response_type")


def test_undeclared_data_type_is_rejected_with_advice() -> None:
    @dataclass
    class Here:
        a: int

    with pytest.raises(UnsavableValue, match=r"Here was not declared.*Nothing was written.*allowed_types=\[.*Here\]"):
        STRICT.encode(Here(1), "state")


def test_another_class_of_a_declared_name_is_rejected() -> None:
    def make() -> type:
        @dataclass
        class Twin:
            a: int

        return Twin

    first, second = make(), make()
    codec = JsonCodec(DeclaredTypes(types=frozenset({first})))
    assert codec.decode(codec.encode(first(1), "v"), "v") == first(1)
    with pytest.raises(UnsavableValue, match="was not declared"):
        codec.encode(second(1), "v")


def test_an_error_of_the_value_itself_is_reported_as_unsavable() -> None:
    class Odd(dict[Any, Any]):
        @property
        def __dict__(self) -> Any:
            raise RuntimeError("not today")

        @__dict__.setter
        def __dict__(self, value: Any) -> None: ...

    codec = JsonCodec(DeclaredTypes(types=frozenset({Odd})))
    with pytest.raises(UnsavableValue, match="not today"):
        codec.encode(Odd(), "state")


# ---------------------------------------------------------------- cycles and depth


def test_a_cycle_is_rejected_with_the_path_where_it_closes() -> None:
    ring: list[Any] = [1]
    ring.append({"back": ring})
    with pytest.raises(
        UnsavableValue, match=r"Cannot save state\['r'\]\[1\]\['back'\]: it contains itself.*state\['r'\]\."
    ):
        STRICT.encode({"r": ring}, "state")


def cycles() -> dict[str, Any]:
    listed: list[Any] = []
    listed.append(listed)
    mapped: dict[Any, Any] = {}
    mapped["a"] = mapped
    keyed: dict[Any, Any] = {}
    keyed[1] = keyed
    report = Report("x")
    report.author = report  # type: ignore[assignment]  # the only way to a cycle here
    row = a_row()
    row.append((row,))
    box = Box[Any](None)
    box.item = {"b": [box]}
    noted = with_attributes(a_row(), note=None)
    noted.note = noted
    model = Page[Any](items=[])
    model.items.append(model)
    error = ValueError()
    error.args = (error,)
    return locals()


@pytest.mark.parametrize(("name", "value"), cycles().items(), ids=cycles().keys())
def test_every_kind_of_cycle_is_detected(name: str, value: object) -> None:
    with pytest.raises(UnsavableValue, match="it contains itself"):
        STRICT.encode(value, name)


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "dict": lambda value: {"a": value},
    "pairs": lambda value: {1: value},
    "dataclass": Point,
    "model": lambda value: Page[Any].model_construct(items=value),
    "subclass": lambda value: Sheet({"a": value}),
    "attribute": lambda value: with_attributes(a_row(), note=value),
    "error": ValueError,
}


def nested(wrap: Callable[[Any], Any], levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("inmost", [LAST.replace(tzinfo=SUMMER), ["x"] * 100, [["x"] * 100], {1: b""}], ids=shown)
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_deepest_value_that_can_be_saved_can_be_loaded(wrap: Callable[[Any], Any], inmost: object) -> None:
    deepest = 0
    for levels in range(MAX_DEPTH // 3, MAX_DEPTH + 8):
        value = nested(wrap, levels, inmost)
        try:
            tree = STRICT.encode(value, "v")
        except UnsavableValue:
            break
        STRICT.decode(from_bytes(to_bytes(tree), "v"), "v")
        deepest = levels
    assert MAX_DEPTH // 3 < deepest <= MAX_DEPTH + 1


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_ten_thousand_levels_raise_unsavable_value_not_recursion_error(wrap: Callable[[Any], Any]) -> None:
    value = nested(wrap, 10_000, 1)
    with pytest.raises(UnsavableValue, match="nested more than"):
        STRICT.encode(value, "state")


def test_a_tree_that_is_too_deep_is_unreadable() -> None:
    for wrap in (lambda tree: [tree], lambda tree: {"a": tree}, lambda tree: {"$type": "tuple", "items": [tree]}):
        with pytest.raises(UnreadableValue, match="nested more than"):
            STRICT.decode(nested(wrap, 10_000, 1), "state")


def test_nearly_full_stack_raises_unsavable_value_not_recursion_error() -> None:
    def deeper(levels: int) -> Any:
        return deeper(levels - 1) if levels else STRICT.encode(value, "state")

    value = nested(WRAPPERS["tuple"], 90, 1)  # lists are encoded in fewer frames from Python 3.12 on

    def until_it_is_full() -> None:
        for levels in range(0, sys.getrecursionlimit(), 20):
            deeper(levels)

    with pytest.raises((UnsavableValue, RecursionError)) as refused:
        until_it_is_full()
    assert refused.type is UnsavableValue
