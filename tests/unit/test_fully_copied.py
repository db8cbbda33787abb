"""is_fully_copied: a handler cannot change the copy of a value through anything that it holds."""

from __future__ import annotations

import collections
import functools
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from tests.shown import shown
from tests.unit.test_isolation import (
    UNCHANGEABLE,
    DerivedFromFrozen,
    Frozen,
    FrozenSlots,
    FrozenStruct,
    Model,
    Open,
    OpenSlots,
    OpenStruct,
    Pair,
    Plain,
    StructWithDict,
    Stubborn,
    TaggedList,
)

from perdure.isolation import is_fully_copied, is_immutable, isolate


class SharesItself:
    """A deep copy returns the same object."""

    def __init__(self, content: Any = None) -> None:
        self.content = content

    def __deepcopy__(self, memo: dict[int, Any]) -> SharesItself:
        return self


@dataclass
class DataThatSharesItself:
    content: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> DataThatSharesItself:
        return self


@dataclass(frozen=True)
class WithOwnState:
    content: Any = None

    def __getstate__(self) -> Any:
        return self.content

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "content", state)


SURELY_COPIED: list[Any] = [
    *([], [1, [2]], {}, {"a": [1], (1,): {"b": 2}}, {1, 2}, ([],), Pair([1], {}), [{"role": "user", "parts": [1]}]),
    *(Open([1], "x", Open([2])), OpenSlots([1]), Frozen([1]), Frozen((1, Frozen([]))), FrozenSlots([1])),
    *(OpenStruct([1]), FrozenStruct([1]), {"a": OpenStruct({"b": Open()})}, frozenset({Frozen(1)})),
]
HOLDERS: list[Callable[[Any], Any]] = [
    *(
        lambda value: value,
        lambda value: [value],
        lambda value: {"a": value},
        lambda value: (1, (value,)),
        lambda value: Pair(1, value),
    ),
    *(Frozen, FrozenSlots, OpenSlots, OpenStruct, FrozenStruct, lambda value: Open(other=[{"a": value}])),
]
PERHAPS_SHARED: list[Callable[[], Any]] = [
    *(SharesItself, DataThatSharesItself, WithOwnState, Stubborn, Plain, threading.Lock, lambda: iter([])),
    *(lambda: Model(items=[]), TaggedList, lambda: StructWithDict(1), lambda: DerivedFromFrozen(1)),
    *(bytearray, lambda: MappingProxyType({}), collections.deque, collections.OrderedDict, lambda: io),
    *(lambda: collections.defaultdict(list), lambda: functools.partial(len)),
]


@pytest.mark.parametrize("value", UNCHANGEABLE, ids=shown)
def test_immutable_values_count_as_fully_copied(value: Any) -> None:
    assert is_fully_copied(value)


@pytest.mark.parametrize("value", SURELY_COPIED, ids=shown)
def test_fully_copied_value_shares_no_mutable_part(value: Any) -> None:
    assert is_fully_copied(value)
    before = _changeable_ids(value)
    assert before.isdisjoint(_changeable_ids(isolate(value)))


def _changeable_ids(value: Any) -> set[int]:
    """Of the value and of all in it, as far as they can change."""
    own = set() if is_immutable(value) else {id(value)}
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    else:
        names = [*getattr(value, "__slots__", ()), *getattr(value, "__dict__", ())]
        parts = [getattr(value, name) for name in names if hasattr(value, "__dataclass_fields__")]
    return own.union(*map(_changeable_ids, parts))


@pytest.mark.parametrize("make", PERHAPS_SHARED, ids=lambda make: shown(make()))
def test_value_with_custom_copying_is_never_fully_copied(make: Callable[[], Any]) -> None:
    for hold in HOLDERS:
        assert not is_fully_copied(hold(make()))


def test_one_shared_part_makes_a_value_not_fully_copied() -> None:
    assert not is_fully_copied([*range(100), {"a": (1, [SharesItself()])}, *range(100)])
    assert not is_fully_copied({SharesItself(): 1})
    assert not is_fully_copied({1, SharesItself()})


def test_attributes_outside_the_fields_are_checked() -> None:
    value: Any = Open()
    value.extra = [1]
    assert is_fully_copied(value)
    value.extra = SharesItself()
    assert not is_fully_copied(value)


def test_cyclic_or_too_deep_value_is_not_fully_copied() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert not is_fully_copied(cycle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert not is_fully_copied(deep)
    while deep:
        deep = deep[0]
