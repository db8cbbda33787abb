"""Promise 9: a data type may gain and lose fields between a save and a load."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec, StoredFieldIgnored
from perdure.errors import UnreadableValue
from perdure.names import stable_name


@dataclass
class Data:
    a: int
    b: str = "new"
    c: list[int] = field(default_factory=lambda: [1])


@dataclass(frozen=True, slots=True)
class Slots:
    a: int
    b: str = "new"
    c: list[int] = field(default_factory=lambda: [1])


class Struct(msgspec.Struct, kw_only=True):
    b: str = "new"
    c: list[int] = msgspec.field(default_factory=lambda: [1])
    a: int


class Model(pydantic.BaseModel):
    a: int
    b: str = "new"
    c: list[int] = pydantic.Field(default_factory=lambda: [1])
    _d: list[int] = pydantic.PrivateAttr(default_factory=lambda: [2])


class Tuple(NamedTuple):
    a: int
    b: str = "new"
    c: Any = (1,)


class Colour(enum.Enum):
    GREEN = 1


CHANGED: tuple[type, ...] = (Data, Slots, Struct, Model, Tuple)
CODEC = JsonCodec(DeclaredTypes(types=frozenset({*CHANGED, Colour})))


def stored(cls: type, **fields: Any) -> dict[str, Any]:
    return {"$type": stable_name(cls), **fields}


@pytest.mark.parametrize("cls", CHANGED)
def test_a_field_added_since_gets_its_default(cls: Any) -> None:
    first: Any = CODEC.decode(stored(cls, a=1), "state")
    second: Any = CODEC.decode(stored(cls, a=1), "state")
    assert (first.a, first.b, list(first.c)) == (1, "new", [1])
    assert type(first) is cls
    assert cls is Tuple or first.c is not second.c, "each gets a default of its own"


def test_a_private_attribute_added_since_gets_its_default() -> None:
    assert CODEC.decode(stored(Model, a=1), "state")._d == [2]


@pytest.mark.parametrize("cls", CHANGED)
def test_a_field_added_since_without_a_default_is_named(cls: type) -> None:
    with pytest.raises(
        UnreadableValue, match=rf"Cannot read state\[0\]: the field 'a' of {cls.__name__} is not stored"
    ):
        CODEC.decode([stored(cls, b="x")], "state")


@pytest.mark.parametrize("cls", CHANGED)
def test_a_field_removed_since_is_reported_and_left_out(cls: type) -> None:
    with pytest.warns(StoredFieldIgnored, match=f"A stored {cls.__name__} has the field 'gone'") as warned:
        back = CODEC.decode(stored(cls, a=1, gone=[2]), "state")
    assert back.a == 1
    assert not hasattr(back, "gone")
    assert len(warned) == 1


def test_an_attribute_that_no_longer_has_a_place_is_reported() -> None:
    with pytest.warns(StoredFieldIgnored, match="'extra'"):
        CODEC.decode(stored(Slots, a=1, **{"$attributes": {"extra": 1}}), "state")


@pytest.mark.parametrize("cls", CHANGED)
def test_current_value_loads_without_a_warning(cls: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = cls(a=1)
        assert CODEC.decode(CODEC.encode(value, "v"), "v") == value


def test_removed_member_is_named_with_the_nearest_current_member() -> None:
    with pytest.raises(UnreadableValue, match=r"Colour has no member 'GREN' \(did you mean 'GREEN'\?\)"):
        CODEC.decode(stored(Colour, name="GREN"), "state")
