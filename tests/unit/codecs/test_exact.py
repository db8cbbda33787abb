"""Promise 10: a loaded value is equal and of the same type."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from functools import cached_property
from typing import Any

import msgspec
import pytest
from tests.unit.codecs.samples import Author, Box, Broken, LongReport, Page, Report, Right, User, made, same
from tests.unit.codecs.values import (
    CLASSES,
    CONTAINERS,
    ERRORS,
    EVERYTHING,
    PLAIN,
    STRICT,
    TIMES,
    TYPES_AS_VALUES,
    again,
)

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec


@pytest.mark.parametrize("value", [*PLAIN, *TIMES, *CONTAINERS, *CLASSES], ids=lambda value: type(value).__name__)
def test_a_value_comes_back_equal_and_of_the_same_type(value: object) -> None:
    assert same(again(value), value)


@pytest.mark.parametrize("value", TYPES_AS_VALUES, ids=str)
def test_a_type_comes_back_as_the_same_type(value: object) -> None:
    back = again(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_with_its_arguments_and_attributes(error: BaseException) -> None:
    back = again(error)
    assert same(back, error)
    assert vars(back).keys() == vars(error).keys()


def test_attributes_of_an_exception_outside_its_arguments_come_back() -> None:
    assert again(OSError(2, "no", "file")).filename == "file"
    assert again(StopIteration(3)).value == 3
    assert again(SystemExit(4)).code == 4
    assert again(ImportError("x", name="n", path="p")).path == "p"
    assert again(UnicodeDecodeError("utf8", b"xy", 1, 2, "why")).start == 1
    broken = Broken(1, "d")
    broken.add_note("seen")
    assert (again(broken).code, again(broken).__notes__) == (1, ["seen"])


def test_tree_and_value_share_nothing() -> None:
    for value in EVERYTHING:
        tree = STRICT.encode(value, "v")
        before = copy.deepcopy(tree)
        back = STRICT.decode(tree, "v")
        for part in (value, back):
            if isinstance(part, (list, bytearray)):
                part.append(7)
                part.pop()
        if isinstance(back, list):
            back.append("changed")
        if isinstance(back, dict):
            back["changed"] = 1
        assert tree == before


def test_no_constructor_and_no_hook_runs_on_decoding() -> None:
    trees = [STRICT.encode(value, "v") for value in CLASSES + ERRORS]
    made.clear()
    for tree in trees:
        STRICT.decode(tree, "v")
    assert made == []


def test_a_field_that_was_never_set_is_still_not_set() -> None:
    back = again(LongReport("x"))
    assert not hasattr(back, "late")
    assert back.pages == 1


def test_a_pydantic_model_keeps_which_fields_were_set() -> None:
    assert again(User(name="x")).model_fields_set == {"name"}
    assert again(User(name="x", born=None)).model_fields_set == {"name", "born"}
    assert type(again(Page[int](items=[1]))) is Page[int]


def test_a_cached_property_is_computed_again_and_not_stored() -> None:
    class Circle(make_dataclass("Circle", [("radius", float)])):  # type: ignore[misc]  # a base made by a call
        @cached_property
        def area(self) -> object:
            return object()

    codec = JsonCodec(DeclaredTypes(types=frozenset({Circle})))
    circle = Circle(1.0)
    assert circle.area
    assert "area" not in vars(codec.decode(codec.encode(circle, "c"), "c"))


def test_unsavable_type_hint_does_not_prevent_saving_the_object() -> None:
    class Undeclared:
        pass

    box: Box[Any] = Box[Undeclared](1)  # type: ignore[arg-type]  # what is being shown
    assert vars(again(box)) == {"item": 1}


def test_equal_sets_have_equal_trees_in_any_order() -> None:
    first, second = {0, 8}, set((8, 0))  # noqa: C405 - they collide, so the first comes first
    assert list(first) != list(second)
    assert STRICT.encode(first, "s") == STRICT.encode(second, "s")


def test_shared_value_without_a_cycle_is_stored_twice() -> None:
    author = Author("x")
    back = again([author, author, {"a": author}])
    assert back == [author, author, {"a": author}]
    assert back[0] is not back[1]


def test_a_plain_value_is_its_own_tree() -> None:
    value = {"a": [1, 2.5, "x", None, True], "b": {"c": "é"}}
    assert STRICT.encode(value, "v") == value
    assert msgspec.json.encode(STRICT.encode(value, "v")) == msgspec.json.encode(value)


def test_stored_names_and_tags_are_as_documented() -> None:
    """Stored data lives longer than this code: these trees must be readable for ever."""
    name = "tests.unit.codecs.samples"
    assert STRICT.encode((1,), "v") == {"$type": "tuple", "items": [1]}
    assert STRICT.encode({1: 2}, "v") == {"$type": "dict", "items": [[1, 2]]}
    assert STRICT.encode(b"x", "v") == {"$type": "bytes", "base64": "eA=="}
    assert STRICT.encode(Author("x"), "v") == {"$type": f"{name}:Author", "name": "x", "age": 0}
    assert STRICT.encode(Right.READ, "v") == {"$type": f"{name}:Right", "name": "READ"}
    assert STRICT.encode(ValueError("x"), "v") == {"$type": "ValueError", "args": ["x"]}
    assert STRICT.encode(list[Report], "v") == {
        "$type": "alias",
        "origin": {"$type": "type", "name": "list"},
        "args": [{"$type": "type", "name": f"{name}:Report"}],
    }


def count_calls(work: Callable[[], object]) -> int:
    """How many Python functions it enters, itself included."""
    calls = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_walk_enters_one_function_for_each_plain_container() -> None:
    """A string, number, bool or None inside of them costs no call, however many there are."""
    dicts = {str(number): {"text": "x", "count": 1, "share": 0.5, "flag": True, "none": None} for number in range(50)}
    assert count_calls(lambda: STRICT.encode(dicts, "value")) == 2 + 1 + 50
    assert count_calls(lambda: STRICT.decode(dicts, "value")) == 3 + 1 + 50
    lists = [["x", 1, 0.5, True, None] for _ in range(20)]
    assert count_calls(lambda: STRICT.encode(lists, "value")) == 2 + 1 + 20
