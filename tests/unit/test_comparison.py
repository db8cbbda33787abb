"""same_structure: has a copy been changed? Asked of its parts, at any depth."""

from __future__ import annotations

import copy
import math
import random
import threading
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.engine.flows import alone, function

from perdure import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, WorkflowRunState
from perdure.isolation import same_structure


class Plain:
    """Without an `__eq__`: a copy is never equal."""

    def __init__(self) -> None:
        self.url = "x"
        self.tags = ["a"]


class Raising(Plain):
    __hash__ = None  # type: ignore[assignment]  # as Python does for classes with an __eq__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot be compared")


class NotABool(Plain):
    """As an array, whose comparison gives an array."""

    __hash__ = None  # type: ignore[assignment]  # as above

    def __eq__(self, other: object) -> Any:
        return []


class Slotted:
    __slots__ = ("inner", "unset")

    def __init__(self) -> None:
        self.inner = [1]


class SlottedToo(Slotted):
    __slots__ = ("more",)

    def __init__(self) -> None:
        super().__init__()
        self.more = {"k": 1}


class OneSlot:
    __slots__ = "inner"  # noqa: PLC0205  # allowed, so users write it

    def __init__(self) -> None:
        self.inner = [1]


class HiddenSlot:
    __slots__ = ("__inner",)

    def __init__(self) -> None:
        self.__inner = [1]

    def add(self) -> None:
        self.__inner.append(2)


class Tagged(list[int]):
    tags: list[str]


class Mark(int):
    notes: list[str]


class RaisingInASet(Plain):
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot be compared")


def tagged() -> Tagged:
    made = Tagged([1])
    made.tags = ["a"]
    return made


def marked() -> Mark:
    made = Mark(5)
    made.notes = ["a"]
    return made


class Record(msgspec.Struct):
    inner: list[int] = msgspec.field(default_factory=lambda: [1])


class OpenRecord(msgspec.Struct, dict=True):
    inner: list[int] = msgspec.field(default_factory=lambda: [1])


@dataclass
class Sheet:
    cells: dict[str, list[float]] = field(default_factory=lambda: {"a": [1.0, math.nan]})


def a_cycle() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


def a_cycle_of_objects() -> Plain:
    made = Plain()
    made.tags = [made, [made]]  # type: ignore[list-item]  # a user's class may hold anything
    return made


def noted() -> Exception:
    made = ValueError("x", [1])
    made.code = [5]  # type: ignore[attr-defined]  # users' exceptions carry things
    return made


def assign(name: str, value: Any) -> Callable[[Any], None]:
    return lambda target: setattr(target, name, value)


# A value, and something that changes a copy of it in place.
CASES: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "no eq": (Plain(), assign("url", "y")),
    "no eq, deeper": (Plain(), lambda target: target.tags.append("b")),
    "no eq, another attribute": (Plain(), assign("extra", 1)),
    "eq raises": (Raising(), assign("url", "y")),
    "eq gives no bool": (NotABool(), assign("url", "y")),
    "list": ([1, [2]], lambda target: target[1].append(3)),
    "list, shorter": ([1, 2], lambda target: target.pop()),
    "dict": ({"a": {"b": 1}}, lambda target: target["a"].update(b=2)),
    "dict, order": ({"a": 1, "b": 2}, lambda target: target.update(a=target.pop("a"))),
    "dict, key": ({"a": 1}, lambda target: target.update(c=target.pop("a"))),
    "tuple": (([1],), lambda target: target[0].append(2)),
    "set": ({1, 2}, lambda target: target.add(3)),
    "set of texts": ({"a", "b"}, lambda target: target.discard("a")),
    "slots": (Slotted(), lambda target: target.inner.append(2)),
    "slots, one set later": (Slotted(), assign("unset", 1)),
    "slots, inherited": (SlottedToo(), lambda target: target.inner.append(2)),
    "slots of a subclass": (SlottedToo(), lambda target: target.more.clear()),
    "a lone slot": (OneSlot(), lambda target: target.inner.append(2)),
    "a slot of a hidden name": (HiddenSlot(), lambda target: target.add()),
    "deque": (deque([1]), lambda target: target.append(2)),
    "bytearray": (bytearray(b"x"), lambda target: target.append(2)),
    "array": (array("i", [1]), lambda target: target.append(2)),
    "counter": (Counter("ab"), lambda target: target.update("a")),
    "attributes of a list": (tagged(), lambda target: target.tags.append("b")),
    "attributes of a number": ([marked()], lambda target: target[0].notes.append("b")),
    "set of objects": ({Plain()}, lambda target: next(iter(target)).tags.append("b")),
    "set of objects, one more": ({Plain()}, lambda target: target.add(1)),
    "frozenset of objects": ([frozenset({Plain()})], lambda target: next(iter(target[0])).tags.append("b")),
    "set, eq raises": ({RaisingInASet()}, lambda target: target.add(2)),
    "struct": (Record(), lambda target: target.inner.append(2)),
    "struct with a dict": (OpenRecord(), assign("extra", 1)),
    "dataclass with a NaN": (Sheet(), lambda target: target.cells["a"].append(math.nan)),
    "NaN, replaced": ([math.nan], lambda target: target.__setitem__(0, 1.0)),
    "cycle": (a_cycle(), lambda target: target.append(2)),
    "cycle of objects": (a_cycle_of_objects(), assign("url", "y")),
    "exception, its arguments": (noted(), lambda target: target.args[1].append(2)),
    "exception, its attributes": (noted(), lambda target: target.code.append(2)),
    "exception, a note": (noted(), lambda target: target.add_note("seen")),
    "type": ([1], lambda target: target.__setitem__(0, True)),
    "type of a number": ([1], lambda target: target.__setitem__(0, 1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_copy_is_the_same_until_it_is_changed(case: str) -> None:
    value, change = CASES[case]
    copied = copy.deepcopy(value)
    assert same_structure(copied, value) and same_structure(value, copied)
    change(copied)
    assert not same_structure(copied, value) and not same_structure(value, copied)


def built(random_: random.Random, depth: int = 0) -> Any:
    """Containers and objects in each other."""

    def inner() -> Any:
        return built(random_, depth + 1)

    match random_.randrange(6) if depth < 4 else 0:
        case 1:
            return [inner() for _ in range(random_.randrange(4))]
        case 2:
            return {number: inner() for number in range(random_.randrange(4))}
        case 3:
            return deque(inner() for _ in range(random_.randrange(3)))
        case 4:
            return (inner(), inner())
        case 5:
            made = Plain()
            made.tags = inner()
            return made
    return random_.randrange(5)


def changeable(value: Any) -> list[Any]:
    """All parts that can be changed in place."""
    if isinstance(value, int | str):
        return []
    if isinstance(value, dict | Plain):
        parts = list((value if isinstance(value, dict) else vars(value)).values())
    else:
        parts = list(value)
    inside = [item for part in parts for item in changeable(part)]
    return inside + ([value] if isinstance(value, list | deque | Plain) else [])


@settings(max_examples=max(500, settings().max_examples))  # cheap, and what it looks for is rare
@given(seed=st.integers(0, 2**32))
def test_one_change_is_detected_among_many_parts(seed: int) -> None:
    random_ = random.Random(seed)
    value = [built(random_) for _ in range(8)]
    copied = copy.deepcopy(value)
    assert same_structure(copied, value)
    changed = random_.choice(changeable(copied))
    if isinstance(changed, Plain):
        changed.url = "changed"
    else:
        changed.append("changed")
    assert not same_structure(copied, value)


def test_two_classes_of_the_same_parts_are_not_the_same() -> None:
    assert not same_structure(Plain(), Raising())


def test_a_nan_is_the_same_as_another() -> None:
    assert same_structure([float("nan")], [float("nan")])


def test_values_without_parts_count_as_unchanged() -> None:
    assert same_structure(threading.Lock(), threading.Lock()) and same_structure(object(), object())


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["none", "memory"])
@pytest.mark.parametrize("value", [ValueError("x"), Sheet(), [math.nan]], ids=["exception", "NaN inside", "NaN"])
async def test_siblings_that_only_read_a_value_do_not_conflict(value: Any, make_storage: Callable[[], Any]) -> None:
    await read_by_two(value, make_storage())


@pytest.mark.parametrize("value", [Plain(), Raising(), NotABool(), a_cycle()], ids=lambda value: type(value).__name__)
async def test_siblings_without_a_storage_can_read_incomparable_values(value: Any) -> None:
    await read_by_two(value, None)


async def read_by_two(value: Any, storage: Any) -> None:
    async def write(word: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("shared", value)
        await ctx.send_message(word)

    def read(word: str, ctx: WorkflowContext[Any, Any]) -> None:
        assert type(ctx.get_state("shared")) is type(value)

    writer, readers = function("writer", write), [function(name, read) for name in ("left", "right")]
    builder = WorkflowBuilder(start_executor=writer, checkpoint_storage=storage)
    result = await builder.add_fan_out_edges(writer, readers).build().run("x")
    assert result.get_final_state() is WorkflowRunState.IDLE


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["none", "memory"])
async def test_item_added_in_place_to_a_deque_in_the_state_is_kept(make_storage: Callable[[], Any]) -> None:
    async def add(word: str, ctx: WorkflowContext[Any, list[str]]) -> None:
        if "words" not in ctx.state:
            ctx.set_state("words", deque())
        ctx.get_state("words").append(word)
        await ctx.yield_output(list(ctx.get_state("words")))

    workflow = alone(add, checkpoint_storage=make_storage())
    assert [(await workflow.run(word)).get_outputs() for word in "abc"] == [[["a"]], [["a", "b"]], [["a", "b", "c"]]]
