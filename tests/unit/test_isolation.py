from __future__ import annotations

import collections
import copy
import datetime
import enum
import functools
import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from tests.shown import shown

from perdure import Message
from perdure.isolation import is_immutable, isolate, same_structure


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Open:
    items: list[int] = field(default_factory=list)
    name: str = ""
    other: Any = None


@dataclass(frozen=True)
class Frozen:
    content: Any = None


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    content: Any = None


@dataclass(slots=True)
class OpenSlots:
    content: Any = None


@dataclass(frozen=True)
class FrozenWithCache:
    number: int

    @functools.cached_property
    def numbers(self) -> list[int]:
        return [self.number]


class DerivedFromFrozen(Frozen):
    pass


class OpenStruct(msgspec.Struct):
    content: Any = None


class FrozenStruct(msgspec.Struct, frozen=True):
    content: Any = None


class StructWithDict(msgspec.Struct, dict=True):
    content: Any = None


class SparseStruct(msgspec.Struct, repr_omit_defaults=True):
    content: Any = None
    items: list[Any] = msgspec.field(default_factory=list)
    table: dict[str, Any] = msgspec.field(default_factory=dict)
    other: Any = Open([1])
    made: Any = msgspec.field(default_factory=Open)

    def __rich_repr__(self) -> Any:
        return iter(())


class SparseFrozenStruct(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    items: list[Any] = msgspec.field(default_factory=list)
    number: int = 1


class CountingStruct(msgspec.Struct):
    made: list[int]

    def __post_init__(self) -> None:
        self.made.append(1)


class Pair(NamedTuple):
    first: Any
    second: Any = None


class Model(pydantic.BaseModel):
    items: list[int]


class Plain:
    def __init__(self, content: Any = None) -> None:
        self.content = content


class TaggedList(list[int]):
    tag: list[str]


class Stubborn:
    def __deepcopy__(self, memo: dict[int, Any]) -> Stubborn:
        raise RuntimeError("no copies")


UNCHANGEABLE: list[Any] = [
    *(None, True, 1, 1.5, 1j, "x", b"x", ..., NotImplemented, range(3), len, int, Plain, isolate),
    *(
        datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2024, 1, 1),
        datetime.time(1),
        datetime.timedelta(1),
        datetime.UTC,
    ),
    *(UUID(int=1), Decimal(1), Colour.RED, Path("/tmp")),
    *((), (1, ("x", None)), frozenset({1, (2,)}), Pair(1, "x")),
    *(Frozen(1), Frozen((1, Frozen("x"))), FrozenSlots(1), FrozenStruct(1), FrozenStruct((FrozenStruct(),))),
]
CHANGEABLE: list[Any] = [
    *([], {}, set(), bytearray(), Open(), OpenSlots(), OpenStruct(), Plain(), Model(items=[])),
    *(([],), (1, (2, {})), Pair(1, []), frozenset({Plain()}), MappingProxyType({})),
    *(Frozen([]), Frozen((1, Frozen([]))), FrozenSlots([]), FrozenStruct([]), StructWithDict(1), DerivedFromFrozen(1)),
    *(SparseStruct(), SparseFrozenStruct()),
    *(TaggedList(), collections.deque(), collections.OrderedDict(), threading.Lock(), iter([])),
]
COPIED: list[Any] = [
    *([1, [2]], {"a": [1], (1,): {"b": 2}}, {1, 2}, ([],), Pair([1], {}), bytearray(b"x")),
    *(Open([1], "x", Open([2])), OpenSlots([1]), Frozen([1]), Frozen((1, Frozen([]))), FrozenSlots([1])),
    *(SparseStruct([1]), SparseStruct(items=[1]), SparseFrozenStruct(), SparseFrozenStruct([1], 2)),
    *(OpenStruct([1]), FrozenStruct([1]), Model(items=[1]), TaggedList([1])),
    *(collections.deque([[1]]), collections.OrderedDict(a=[1]), collections.defaultdict(list, a=[1])),
]


@pytest.mark.parametrize("value", UNCHANGEABLE, ids=shown)
def test_immutable_values_are_shared(value: Any) -> None:
    assert is_immutable(value)
    assert isolate(value) is value


@pytest.mark.parametrize("value", CHANGEABLE, ids=shown)
def test_mutable_values_are_recognized(value: Any) -> None:
    assert not is_immutable(value)


@pytest.mark.parametrize("value", COPIED, ids=shown)
def test_a_copy_is_equal_and_of_the_same_type_but_not_the_same(value: Any) -> None:
    made = isolate(value)
    assert made is not value
    assert made == value
    assert type(made) is type(value)


def test_a_change_of_the_copy_does_not_reach_the_original_at_any_depth() -> None:
    original = Open([1], "x", {"frozen": Frozen(([1], Pair([1], OpenStruct([1]))))})
    untouched = copy.deepcopy(original)

    made = isolate(original)
    made.items.append(2)
    made.other["frozen"].content[0].append(2)
    made.other["frozen"].content[1].first.append(2)
    made.other["frozen"].content[1].second.content.append(2)
    made.other["more"] = 1

    assert original == untouched


def test_all_references_to_an_object_refer_to_one_copy() -> None:
    shared = [1]
    made: list[Any] = isolate([shared, {"a": shared}, Open(other=shared), Plain(shared), (shared,), OpenStruct(shared)])
    first = made[0]
    assert first is not shared
    assert all(item is first for item in (made[1]["a"], made[2].other, made[3].content, made[4][0], made[5].content))


def test_a_shared_tuple_and_a_shared_frozen_object_stay_shared() -> None:
    pair, frozen = ([1],), Frozen([1])
    made = isolate([pair, pair, frozen, frozen])
    assert made[0] is made[1] is not pair
    assert made[2] is made[3] is not frozen


@pytest.mark.parametrize("make", [list, dict, Open, OpenSlots, OpenStruct, Frozen, FrozenStruct, Plain], ids=shown)
def test_a_cycle_ends_where_it_began(make: Callable[[], Any]) -> None:
    value: Any = make()
    holder: list[Any] = [value]
    if isinstance(value, list):
        value.append(holder)
    elif isinstance(value, dict):
        value["content"] = holder
    elif isinstance(value, msgspec.Struct):
        msgspec.structs.force_setattr(value, "content", holder)
    else:
        object.__setattr__(value, "other" if make is Open else "content", holder)

    made = isolate(holder)
    inside = made[0]
    back = inside[0] if isinstance(inside, list) else None
    back = inside["content"] if isinstance(inside, dict) else back
    back = back or (inside.other if make is Open else inside.content)
    assert back is made is not holder


def test_a_cycle_through_a_tuple_gives_one_tuple() -> None:
    inner: list[Any] = []
    value = (inner,)
    inner.append(value)

    made = isolate(value)
    assert made[0][0] is made is not value


def test_frozen_object_that_contains_itself_is_not_immutable() -> None:
    value = Frozen()
    object.__setattr__(value, "content", value)
    assert not is_immutable(value)
    assert isolate(value).content.content.__class__ is Frozen


def test_the_cached_property_of_a_frozen_object_is_not_shared() -> None:
    value = FrozenWithCache(1)
    assert is_immutable(value)
    assert value.numbers == [1]
    assert not is_immutable(value)
    assert isolate(value).numbers is not value.numbers


def test_attributes_of_a_list_subclass_are_copied() -> None:
    value = TaggedList([1])
    value.tag = ["a"]
    made = isolate(value)
    assert made.tag == ["a"]
    assert made.tag is not value.tag


def test_attributes_outside_the_fields_are_copied() -> None:
    value: Any = Open()
    struct = StructWithDict([1])
    value.extra = [1]
    assert isolate(value).extra == [1]
    assert isolate(value).extra is not value.extra
    assert isolate(struct).content is not struct.content


def test_field_that_is_not_set_stays_unset() -> None:
    value = object.__new__(OpenSlots)
    assert not hasattr(isolate(value), "content")


@pytest.mark.parametrize("value", [SparseStruct(), SparseStruct(Open([1]), [[1]], {"a": [1]}, [1], Open())])
def test_struct_shares_no_mutable_field_that_equals_its_default(value: SparseStruct) -> None:
    copied = isolate(value)
    assert copied == value and same_structure(copied, value)
    for name in ("items", "table", "other", "made"):
        assert getattr(copied, name) is not getattr(value, name)


def test_empty_default_that_occurs_twice_occurs_twice_in_the_copy() -> None:
    value = SparseStruct()
    value.content = value.table
    both: list[Any] = [value, value.items]
    copied, first = isolate(both)
    assert copied.content is copied.table is not value.table
    assert first is copied.items is not value.items


def test_copying_does_not_run_post_init_again() -> None:
    value = CountingStruct([])
    assert isolate(value).made == [1]


def test_a_class_with_its_own_deepcopy_is_copied_by_it() -> None:
    @dataclass
    class Own:
        items: list[int]

        def __deepcopy__(self, memo: dict[int, Any]) -> Own:
            return Own([*self.items, 99])

    assert isolate(Own([1])).items == [1, 99]


def test_a_class_with_its_own_state_is_copied_by_it() -> None:
    @dataclass
    class Own:
        items: list[int]

        def __getstate__(self) -> dict[str, Any]:
            return {"items": []}

    assert isolate(Own([1])).items == []


@pytest.mark.parametrize(
    "make",
    [
        threading.Lock,
        threading.Event,
        lambda: (letter for letter in ""),
        Stubborn,
        lambda: Plain(threading.Lock()),
        lambda: io,
    ],
    ids=["lock", "event", "generator", "deepcopy that fails", "object with a lock", "module"],
)
def test_uncopyable_values_are_returned_unchanged(make: Callable[[], Any]) -> None:
    value = make()
    assert isolate(value) is value


def test_values_beside_an_uncopyable_value_are_isolated() -> None:
    lock = threading.Lock()
    value = Open([1], other={"lock": lock, "items": [1]})
    made = isolate(value)
    assert made.other["lock"] is lock
    assert made.items is not value.items
    assert made.other["items"] is not value.other["items"]


def test_second_reference_to_an_uncopyable_value_is_the_same_value() -> None:
    client: Any = Plain([1])
    client.lock = threading.Lock()
    made: list[Any] = isolate([client, client, {"again": client}])
    assert made[0] is made[1] is made[2]["again"] is client


def test_value_too_deep_for_the_stack_is_returned_without_an_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    frozen: Any = ()
    for _ in range(100_000):
        frozen = (frozen,)
    assert isolate(deep) is deep
    assert is_immutable(frozen) is False
    while deep:  # taken apart by hand: the recursion of a deallocation is not what is tested
        deep = deep[0]


def count_calls(function: Callable[[], object], *, also_in_c: bool = False) -> int:
    """Calls of Python functions. A lost fast path needs more of them, on a fast machine and on a slow one."""
    events = ("call", "c_call") if also_in_c else ("call",)
    calls: list[str] = []
    function()  # what is worked out once for a class is worked out now
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event in events else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(calls) - 1  # without the function itself


def test_the_common_cases_are_cheap() -> None:
    value = Open([1, 2], "x")
    assert count_calls(lambda: is_immutable("x")) == 1
    assert count_calls(lambda: isolate("x")) == 1
    assert count_calls(lambda: isolate(value)) <= 12


def test_text_message_is_copied_without_looking_at_unset_fields() -> None:
    """A content has 46 fields; each of the 500 messages of a conversation is copied twice in a turn."""
    messages = [Message("user", "Hello") for _ in range(100)]
    assert count_calls(lambda: isolate(messages), also_in_c=True) <= 100 * 46


@pytest.mark.parametrize(
    "items",
    [
        [{"a": 1}, {"b": "x"}, {}],
        [{"a": 1}, {"b": ["x"]}],
        [{"a": 1}, {("b", 1): 2}],
        [{"a": 1}, collections.OrderedDict(b=1)],
        [{"a": 1}, ["b"], None],
    ],
)
def test_copy_of_a_list_of_dicts_is_the_same_flat_or_nested(items: list[Any]) -> None:
    """Flat dicts are copied together; the last item makes all of them be copied one by one."""
    for value in (items, [*items, {"c": [1]}]):
        copied = isolate(value)
        assert copied == value and same_structure(copied, value)
        assert not any(copy is item for copy, item in zip(copied, value, strict=True) if item is not None)


def test_item_that_occurs_twice_occurs_twice_in_the_copy() -> None:
    item = {"a": 1}
    twice, [first, [second, other]] = isolate([item, item]), isolate([item, [item, {"b": 2}]])
    assert twice[0] is twice[1] is not item
    assert first is second is not item and other == {"b": 2}
    outer, inner = isolate([[{"a": 1}, item], [item, {"b": 2}]])
    assert outer[1] is inner[0] is not item
