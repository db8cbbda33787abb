"""Values compared: which paths a difference names, and how it describes them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from perdure import Opaque, UnsavableValue, WorkflowCheckpoint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Note:
    text: str
    author: str = "ann"
    tags: list[str] = field(default_factory=list)


class Place(NamedTuple):
    x: int
    y: int


class Model(BaseModel):
    size: int = 0
    label: str = ""


class Struct(msgspec.Struct):
    a: int
    b: Any = None


class Colour(Enum):
    RED = 1
    BLUE = 2


class Bag(dict[Any, Any]):
    pass


class Notes(list[Any]):
    pass


class Strange:
    """Not a data type: only another serializer can store it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Strange({self.name})"


def holding(state: Any = None, **parts: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint("w", "h", state={} if state is None else {"v": state}, **parts)


def lines(old: Any, new: Any) -> list[str]:
    return str(holding(old).diff(holding(new))).splitlines()


NONE = ["no difference"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1, 2, ["~ state['v']: 1 -> 2"]),
        (1, True, ["~ state['v']: 1 -> True"]),
        (1, 1.0, ["~ state['v']: 1 -> 1.0"]),
        (0.0, -0.0, ["~ state['v']: 0.0 -> -0.0"]),
        (float("nan"), float("nan"), NONE),
        (None, 2, ["+ state['v'] = 2"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, NONE),
        ({"a": 1}, {"a": 2, "b": 3}, ["~ state['v']['a']: 1 -> 2", "+ state['v']['b'] = 3"]),
        ({"it's": 1}, {}, ["""- state['v']["it's"] = 1"""]),
        ({1: "a"}, {1: "b", (2, 3): "c"}, ["~ state['v'][1]: 'a' -> 'b'", "+ state['v'][(2, 3)] = 'c'"]),
        ({"a": 1}, {1: 1}, ["- state['v']['a'] = 1", "+ state['v'][1] = 1"]),
        ([1], (1,), ["~ state['v']: [1] -> (1,)"]),
        ((1, 2), (1, 3), ["~ state['v'][1]: 2 -> 3"]),
        (deque([1]), deque([1, 2]), ["+ state['v'][1] = 2"]),
        ({1, 2}, {2, 3}, ["- state['v']{1} = 1", "+ state['v']{3} = 3"]),
        (b"a", b"b", ["~ state['v']: b'a' -> b'b'"]),
        (Colour.RED, Colour.BLUE, None),
        (Note("x"), Note("y"), ["~ state['v'].text: 'x' -> 'y'"]),
        (Note("x"), Note("x", tags=["t"]), ["+ state['v'].tags[0] = 't'"]),
        (Place(1, 2), Place(1, 3), ["~ state['v'].y: 2 -> 3"]),
        (Struct(1), Struct(1, Note("x")), ["~ state['v'].b: None -> Note(text='x', author='ann', tags=[])"]),
        (Struct(1), Note("x"), ["~ state['v']: Struct(a=1, b=None) -> Note(text='x', author='ann', tags=[])"]),
        (defaultdict(list, a=[1]), defaultdict(list, a=[1, 2]), ["+ state['v']['a'][1] = 2"]),
        (OrderedDict(a=1), OrderedDict(b=1), ["- state['v']['a'] = 1", "+ state['v']['b'] = 1"]),
        (Counter("aab"), Counter("ab"), ["~ state['v']['a']: 2 -> 1"]),
        (ValueError("a"), ValueError("b"), ["~ state['v']: ValueError('a') -> ValueError('b')"]),
        (Strange("a"), Strange("a"), NONE),
        (NOON, NOON.replace(year=2027), None),
    ],
    ids=repr,
)
def test_difference_names_each_value_by_its_path(old: Any, new: Any, expected: list[str] | None) -> None:
    output = lines(old, new)
    if expected is None:
        assert len(output) == 1 and output[0].startswith("~ state['v']: ")
    else:
        assert output == expected
    assert lines(old, old) == lines(new, new) == NONE


def test_difference_of_a_model_names_the_changed_field() -> None:
    assert "~ state['v'].size: 1 -> 2" in lines(Model(size=1), Model(size=2))
    assert lines(Model(size=1), Model(size=1)) == NONE


def test_values_that_only_pickle_can_store_are_compared_by_repr() -> None:
    [change] = holding([Strange("a")]).diff(holding([Strange("b")])).changed
    assert change.path == "state['v'][0]" and "Strange(b)" in str(change)


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("abc", "abcd", ["+ state['v'][3] = 'd'"]),
        ("abc", "zabc", ["+ state['v'][0] = 'z'"]),
        ("abc", "zabcd", ["+ state['v'][0] = 'z'", "+ state['v'][4] = 'd'"]),
        ("abc", "bc", ["- state['v'][0] = 'a'"]),
        ("abcd", "ad", ["- state['v'][1] = 'b'", "- state['v'][2] = 'c'"]),
        ("abc", "axc", ["~ state['v'][1]: 'b' -> 'x'"]),
        ("abc", "axyc", ["~ state['v'][1]: 'b' -> 'x'", "+ state['v'][2] = 'y'"]),
        ("abcd", "bcda", ["- state['v'][0] = 'a'", "+ state['v'][3] = 'a'"]),
        ("", "a", ["+ state['v'][0] = 'a'"]),
        ("aaa", "aa", ["- state['v'][2] = 'a'"]),
    ],
)
def test_inserted_item_moves_the_others_and_changes_none(old: str, new: str, expected: list[str]) -> None:
    assert lines([*old], [*new]) == expected


def test_difference_inside_a_moved_item_names_only_the_change() -> None:
    before = [Note("a"), Note("b"), Note("c")]
    after = [Note("new"), Note("a"), replace(before[1], author="bob"), Note("c")]
    assert lines(before, after) == [
        "+ state['v'][0] = Note(text='new', author='ann', tags=[])",
        "~ state['v'][2].author: 'ann' -> 'bob'",
    ]


def test_long_lists_are_compared_in_reasonable_time() -> None:
    before = [*range(20_000)]
    after = [*range(-1, 9_000), "x", *range(9_001, 20_001)]
    difference = holding(before).diff(holding(after))
    assert difference.added and not difference.is_empty
    assert lines(before, [*before[:9_000], "x", *before[9_001:]]) == ["~ state['v'][9000]: 9000 -> 'x'"]


# ---------------------------------------------------------------- undeclared types


def test_undeclared_types_are_compared_field_by_field() -> None:
    old = Opaque("gone:Note", {"author": "ann", "tags": ["a"]})
    new = Opaque("gone:Note", {"author": "bob", "tags": ["a", "b"]})
    assert lines(old, new) == ["~ state['v'].author: 'ann' -> 'bob'", "+ state['v'].tags[1] = 'b'"]
    [change] = holding([]).diff(holding([new])).changes
    assert change.new == new and str(change) == "+ state['v'][0] = Note(author='bob', tags=['a', 'b'])"


def test_values_of_a_change_are_of_their_own_types() -> None:
    difference = holding({"a": 1}).diff(holding({"a": {2}, "b": (1, NOON)}))
    assert [(change.path, change.kind, change.old, change.new) for change in difference] == [
        ("state['v']['a']", "changed", 1, {2}),
        ("state['v']['b']", "added", None, (1, NOON)),
    ]
    assert (
        len(difference) == 2
        and difference.added == difference.changes[1:]
        and difference.changed == difference.changes[:1]
    )
    assert difference.removed == () and not difference.is_empty


def test_subclasses_of_known_classes_are_compared_item_by_item() -> None:
    from perdure.codec import DeclaredTypes
    from perdure.codecs.types import remember

    remember(DeclaredTypes(frozenset({Bag, Notes})))
    assert lines(Bag(a=1), Bag(a=2)) == ["~ state['v']['a']: 1 -> 2"]
    assert lines(Notes([1]), Notes([1, 2])) == ["+ state['v'][1] = 2"]
    unknown = [Opaque("gone:Bag", {"$items": [["a", number]]}) for number in (1, 2)]
    assert lines(*unknown)[0].startswith("~ state['v']: Bag(")


# ---------------------------------------------------------------- values that make trouble


class Shy:
    """Cannot show itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_value_whose_repr_raises_does_not_hide_other_changes() -> None:
    assert lines({"a": Shy(), "b": 1}, {"a": Shy(), "b": 2}) == ["~ state['v']['b']: 1 -> 2"]
    assert lines([], [Shy()]) == ["+ state['v'][0] = Shy($value='<Shy>')"]


def test_value_that_contains_itself_is_rejected_with_its_path() -> None:
    cyclic: list[Any] = []
    cyclic.append({"again": cyclic})
    with pytest.raises(UnsavableValue, match=r"Cannot save state\['v'\]\[0\]\['again'\]"):
        lines(cyclic, [])
