"""One of every kind of data type, and a comparison that sees what `==` forgives."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic

T = TypeVar("T")
made: list[str] = []
"""The constructors and hooks that ran."""


@dataclass
class Author:
    name: str
    age: int = 0


@dataclass
class Report:
    title: str
    author: Author | None = None
    tags: list[str] = field(default_factory=list)
    count: ClassVar[int] = 0

    def __post_init__(self) -> None:
        made.append("Report")


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = None


@dataclass
class LongReport(Report):
    pages: int = 1
    checked: bool = field(init=False, default=False)
    late: Any = field(init=False)


@dataclass
class Box(Generic[T]):
    item: T


class Coin(msgspec.Struct, frozen=True, tag="coin"):
    value: int
    name: str = "cent"


class Purse(msgspec.Struct):
    coins: list[Coin] = msgspec.field(default_factory=list)
    owner: Any = None

    def __post_init__(self) -> None:
        made.append("Purse")


class DeepPurse(Purse, kw_only=True, dict=True):
    pocket: str


class Pair(msgspec.Struct, Generic[T]):
    left: T
    right: Any = None


class User(pydantic.BaseModel):
    name: str
    born: Any = None
    _seen: int = pydantic.PrivateAttr(default=0)

    def model_post_init(self, context: object) -> None:
        made.append("User")


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: T | None = None


class Names(pydantic.RootModel[list[str]]):
    pass


class Place(NamedTuple):
    lat: float
    lon: Any = 0.0


class Colour(enum.Enum):
    RED = "r"
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Name(str):
    note: Any


class Slotted(str):
    __slots__ = ("mark",)
    mark: Any

    def __str__(self) -> str:
        return "not what it is"


class Size(int):
    pass


class Weight(float):
    pass


class Blob(bytes):
    pass


class Row(list[Any]):
    note: Any

    def __init__(self) -> None:
        made.append("Row")


class Sheet(dict[Any, Any]):
    def items(self) -> Any:
        raise AssertionError("not to be called")


class Ordered(OrderedDict[Any, Any]):
    pass


class Filling(defaultdict[Any, Any]):
    pass


class Tally(Counter[Any]):
    pass


class Bag(set[Any]):
    pass


class Ice(frozenset[Any]):
    pass


class Couple(tuple[Any, ...]):
    pass


class Line(deque[Any]):
    pass


class Broken(Exception):
    def __init__(self, code: int, detail: str) -> None:
        made.append("Broken")
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Options(TypedDict):
    author: Author


class Plain:
    """Not a data type."""


TYPES: tuple[type, ...] = (
    *(Author, Report, Point, LongReport, Box, Coin, Purse, DeepPurse, Pair, User, Loose, Page, Names, Place),
    *(Colour, Level, Mood, Right, Name, Slotted, Size, Weight, Blob, Row, Sheet, Ordered, Filling, Tally, Bag),
    *(Ice, Couple, Line, Broken, Options),
)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same type, and so in every part; a NaN is the same as a NaN, 0.0 is not -0.0."""
    cls = type(left)
    if cls is not type(right):
        return False
    if isinstance(left, type):
        return left is right
    if not same_attributes(left, right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and repr(left) == repr(right))
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, (datetime, time)):
        return left.replace(tzinfo=None) == right.replace(tzinfo=None) and same_zone(left, right)
    if isinstance(left, BaseException):
        return same(list(left.args), list(right.args))
    return same_content(left, right)


def same_content(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return same(list(dict.items(left)), list(dict.items(right))) and factory_of(left) is factory_of(right)
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)
    if isinstance(left, (list, tuple, deque)):
        bound = getattr(left, "maxlen", None) == getattr(right, "maxlen", None)
        return bound and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, enum.Enum):
        return left is right
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    holds_only_attributes = is_dataclass(left) or isinstance(left, (msgspec.Struct, pydantic.BaseModel))
    return holds_only_attributes or bool(left == right)


def factory_of(value: object) -> object:
    return getattr(value, "default_factory", None)


def same_zone(left: Any, right: Any) -> bool:
    kinds = type(left.tzinfo) is type(right.tzinfo) and str(left.tzinfo) == str(right.tzinfo)
    return kinds and left.utcoffset() == right.utcoffset() and left.fold == right.fold


def same_attributes(left: Any, right: Any) -> bool:
    return isinstance(left, enum.Enum) or same_all(attributes(left), attributes(right))


def same_all(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(same(item, right[name]) for name, item in left.items())


def attributes(value: Any) -> dict[str, Any]:
    """Everything that an instance of one of these classes holds by name."""
    if not type(value).__module__.endswith("samples"):
        return {}
    names = {name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())}
    names |= {field.name for field in fields(value)} if is_dataclass(value) else set()
    names -= {"__dict__", "__weakref__"}
    values = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return values | getattr(value, "__dict__", {})
