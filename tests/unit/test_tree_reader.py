"""Plain data is read as Structs: all mistakes are found at once, and the sound parts are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from perdure.tree_reader import INVALID, TreeReader


class Part(msgspec.Struct):
    name: str
    size: Annotated[int, Meta(ge=1, description="a size")] = 1


class Whole(msgspec.Struct):
    part: Part | str | None = None
    parts: dict[str, Part] = {}
    names: tuple[str, ...] = ()
    mode: Literal["fast", "slow"] = "fast"
    anything: Any = None
    key: int = msgspec.field(default=0, name="from")


class Reader(TreeReader):
    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def report(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))

    def at(self, path: str, key: str | int) -> str:
        return f"{path}/{key}"

    def quote_value(self, path: str, value: Any) -> str:
        return repr(value)


def test_sound_tree_is_read_as_its_struct() -> None:
    reader = Reader()
    tree = {"part": {"name": "a", "size": 2}, "parts": {"b": {"name": "b"}}, "names": ["c"], "mode": "slow", "from": 3}
    whole = reader.read_struct(Whole, tree, "")
    assert whole == Whole(Part("a", 2), {"b": Part("b")}, ("c",), "slow", None, 3)
    assert reader.read_struct(Whole, {"part": "a", "anything": [{1: 2}]}, "").part == "a"
    assert reader.problems == []


def test_all_mistakes_are_reported_and_the_sound_parts_are_read() -> None:
    reader = Reader()
    tree = {"part": {"nme": "a", "size": 0}, "parts": {"b": {}, "c": {"name": "c"}}, "names": ["d", 3], "from": 4, 5: 6}
    whole = reader.read_struct(Whole, tree, "")
    assert whole == Whole(parts={"c": Part("c")}, key=4)
    assert reader.problems == [
        ("", "expected a text as key, got 5"),
        ("/part/nme", "unknown key (did you mean 'name'?). Known: name, size"),
        ("/part/name", "missing: expected a text"),
        ("/part/size", "expected a size, got 0"),
        ("/parts/b/name", "missing: expected a text"),
        ("/names/1", "expected a text, got 3"),
    ]


@pytest.mark.parametrize(
    ("tree", "path", "problem"),
    [
        ([], "", "expected an object, got []"),
        ({"part": 3}, "/part", "expected an object, or a text, got 3"),
        ({"parts": [1]}, "/parts", "expected an object, got [1]"),
        ({"names": "a"}, "/names", "expected a list of texts, got 'a'"),
        ({"mode": "fat"}, "/mode", "expected one of 'fast', 'slow', got 'fat' (did you mean 'fast'?)"),
        ({"from": True}, "/from", "expected a whole number, got True"),
        ({"names": ["\ud800"]}, "/names/0", "expected a text that can be written as UTF-8, got '\\ud800'"),
    ],
)
def test_mistake_has_its_path_the_expected_type_and_the_value(tree: Any, path: str, problem: str) -> None:
    reader = Reader()
    whole = reader.read_struct(Whole, tree, "")
    assert reader.problems == [(path, problem)]
    assert whole == (INVALID if path == "" else Whole())
