from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from tests.shown import shown

from perdure.graph.coercion import coerce

UTC = datetime.UTC
Seconds = NewType("Seconds", float)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 1


@dataclass
class Person:
    name: str
    age: int = 0


@dataclass
class SpecialPerson(Person):
    pass


@dataclass
class Group:
    people: list[Person]
    lead: Person | None = None
    tags: set[str] = field(default_factory=set)
    colour: Colour = Colour.RED
    at: datetime.datetime | None = None


@dataclass
class Approve:
    note: str


@dataclass
class Reject:
    note: str
    reason: str


@dataclass
class Decision:
    verdict: Approve | Reject
    others: list[Approve | Reject] = field(default_factory=list)
    at: datetime.date | None = None


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("number must be positive")


@dataclass
class PositiveDecision:
    """A union msgspec does not know, so that all is converted by hand."""

    verdict: Approve | Reject
    number: int = 1

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("number must be positive")


class Size(msgspec.Struct):
    width: int
    height: float = 1.0


class Renamed(msgspec.Struct, rename="camel"):
    verdict_given: Approve | Reject
    how_many: int = 1


class Model(pydantic.BaseModel):
    number: int
    when: datetime.date | None = None


class OtherModel(pydantic.BaseModel):
    text: str


@dataclass
class HasModel:
    models: list[Model]


class Point(TypedDict):
    x: float
    who: Person


class Pair(NamedTuple):
    first: int
    second: Person


class Speaks(Protocol):
    def speak(self) -> None: ...


CONVERTED: list[tuple[object, object, object]] = [
    (1, float, 1.0),
    (1, float | None, 1.0),
    (1, Seconds, 1.0),
    (1, Annotated[float, "seconds"], 1.0),
    ([1, 2.5], list[float], [1.0, 2.5]),
    ({"a": 1}, dict[str, float], {"a": 1.0}),
    ({"a": 1}, Mapping[str, float], {"a": 1.0}),
    ("red", Colour, Colour.RED),
    ("red", Colour | None, Colour.RED),
    (1, Level, Level.LOW),
    ("text", Mixed, Mixed.TEXT),
    (1, Mixed, Mixed.NUMBER),
    (["text"], list[Mixed], [Mixed.TEXT]),
    ("2024-02-03T04:05:06Z", datetime.datetime, datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ("2024-02-03", datetime.date, datetime.date(2024, 2, 3)),
    ("04:05:06", datetime.time, datetime.time(4, 5, 6)),
    ("PT5S", datetime.timedelta, datetime.timedelta(seconds=5)),
    ("00000000-0000-0000-0000-000000000001", UUID, UUID(int=1)),
    ("1.50", Decimal, Decimal("1.50")),
    (1, Decimal, Decimal(1)),
    ("aGk=", bytes, b"hi"),
    ([1, 2], tuple[int, int], (1, 2)),
    ([1, 2], tuple[float, ...], (1.0, 2.0)),
    ([1, 1], set[int], {1}),
    ([1], frozenset[int], frozenset({1})),
    ((1, 2), list[int], [1, 2]),
    ([{"name": "Ann"}], Sequence[Person], [Person("Ann")]),
    ({"name": "Ann"}, Person, Person("Ann")),
    ({"name": "Ann", "unknown": 1}, Person, Person("Ann")),
    ({"name": "Ann"}, Person | None, Person("Ann")),
    ({"people": [{"name": "Ann", "age": 3}], "lead": {"name": "Bo"}}, Group, Group([Person("Ann", 3)], Person("Bo"))),
    ({"people": [], "tags": ["a"], "colour": "blue"}, Group, Group([], None, {"a"}, Colour.BLUE)),
    ({"people": [], "at": "2024-02-03T00:00:00Z"}, Group, Group([], at=datetime.datetime(2024, 2, 3, tzinfo=UTC))),
    ({"width": 1, "height": 2}, Size, Size(1, 2.0)),
    ({"x": 1, "who": {"name": "Ann"}}, Point, {"x": 1.0, "who": Person("Ann")}),
    ([1, {"name": "Ann"}], Pair, Pair(1, Person("Ann"))),
    ({"number": 1, "when": "2024-02-03"}, Model, Model(number=1, when=datetime.date(2024, 2, 3))),
    ({"models": [{"number": 1}]}, HasModel, HasModel([Model(number=1)])),
    ([{"number": 1}], list[Model], [Model(number=1)]),
    ({"note": "n"}, Approve | Reject, Approve("n")),
    ({"note": "n", "reason": "r"}, Approve | Reject, Reject("n", "r")),
    ({"note": "n", "reason": "r"}, Approve | Reject | None, Reject("n", "r")),
    ([{"note": "n"}], list[Approve | Reject], [Approve("n")]),
    ([{"note": "n"}], tuple[Approve | Reject, ...], (Approve("n"),)),
    ([{"note": "n"}, 1], tuple[Approve | Reject, float], (Approve("n"), 1.0)),
    ({"a": {"note": "n"}}, dict[str, Approve | Reject], {"a": Approve("n")}),
    ({"verdict": {"note": "n"}, "at": "2024-02-03"}, Decision, Decision(Approve("n"), at=datetime.date(2024, 2, 3))),
    ({"verdict": Approve("n"), "others": [{"note": "n"}]}, Decision, Decision(Approve("n"), [Approve("n")])),
    ({"verdictGiven": {"note": "n"}, "howMany": 2}, Renamed, Renamed(Approve("n"), 2)),
    ({"number": 1}, Model | OtherModel, Model(number=1)),
    ({"text": "a"}, Model | OtherModel, OtherModel(text="a")),
    ({"text": "a"}, Person | OtherModel | Size, OtherModel(text="a")),
]


@pytest.mark.parametrize(("value", "annotation", "wanted"), CONVERTED, ids=shown)
def test_json_form_is_converted_to_the_annotated_type(value: object, annotation: object, wanted: object) -> None:
    made = coerce(value, annotation)
    assert made == wanted
    assert type(made) is type(wanted)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int),
        (True, int),
        ("x", str),
        (None, None),
        (1, Any),
        ([1], list[int]),
        (Person("Ann"), Person),
        (SpecialPerson("Ann"), Person),
        (Size(1), Size),
        (Model(number=1), Model),
        ("2024-02-03", str | datetime.date),
        (Colour.RED, Colour),
        ({"name": "Ann"}, dict[str, str] | Person),
    ],
    ids=shown,
)
def test_value_that_fits_is_returned_itself(value: object, annotation: object) -> None:
    assert coerce(value, annotation) is value


def test_inner_value_that_fits_is_kept_unchanged() -> None:
    ann = Person("Ann")

    group = coerce({"people": [ann], "lead": {"name": "Bo"}}, Group)

    assert isinstance(group, Group)
    assert group.people[0] is ann


def test_conversion_leaves_the_input_value_unchanged() -> None:
    value = {"people": [{"name": "Ann"}]}
    coerce(value, Group)
    assert value == {"people": [{"name": "Ann"}]}


REFUSED: list[tuple[object, object, str]] = [
    ("5", int, "Expected `int`, got `str`"),
    ("5", float, "Expected `float`, got `str`"),
    ("5", int | None, "Expected `int | null`, got `str`"),
    (1, bool, "Expected `bool`, got `int`"),
    ("true", bool, "Expected `bool`, got `str`"),
    (1.0, int, "Expected `int`, got `float`"),
    (5, str, "Expected `str`, got `int`"),
    (UUID(int=1), str, "Expected `str`, got `uuid`"),
    (Colour.RED, str, "Expected `str`, got `Colour`"),
    (None, str, "Expected `str`, got `null`"),
    (b"x", str, "Expected `str`, got `bytes`"),
    ("abc", list[str], "Expected `array`, got `str`"),
    ("green", Colour, "Invalid enum value 'green'"),
    ("RED", Colour, "Invalid enum value 'RED'"),
    (True, Mixed, "Invalid enum value True"),
    ("a", Literal["b"], "Invalid enum value 'a'"),
    ("yesterday", datetime.datetime, "Invalid RFC3339 encoded datetime"),
    (5, datetime.datetime, "Expected `datetime`, got `int`"),
    ({"1": 1}, dict[int, int], "Expected `int`, got `str`"),
    ([1, "2"], list[int], "Expected `int`, got `str` - at `$[1]`"),
    ([1], tuple[int, int], "Expected `array` of length 2, got 1"),
    ({"age": 1}, Person, "Object missing required field `name`"),
    ({"people": [{"name": "Ann", "age": "3"}]}, Group, "Expected `int`, got `str` - at `$.people[0].age`"),
    (Size(1), Person, "got `Size`"),
    ({"number": -1}, Positive, "number must be positive"),
    ({"number": "x"}, Model, "number: Input should be a valid integer"),
    ({"models": [{}]}, HasModel, "number: Field required - at `$.models[0]`"),
    (5, Model, "Expected `Model`, got `int`"),
    (5, Speaks, "Expected `Speaks`, got `int`"),
    (5, Approve | Reject, "Expected `Approve | Reject`, got `int`"),
    ({"note": 1}, Approve | Reject, "Approve: Expected `str`, got `int` - at `$.note`"),
    ({}, Approve | Reject, "Object missing required field `note`"),
    ([{"note": "n"}, 5], list[Approve | Reject], "- at `$[1]`"),
    ([], tuple[Approve | Reject, int], "Expected `array` of length 2, got 0"),
    ({1: {"note": "n"}}, dict[str, Approve | Reject], "Expected `str`, got `int` - at `$.1`"),
    ({}, Decision, "Object missing required field `verdict`"),
    ({"verdict": 5}, Decision, "Expected `Approve | Reject`, got `int`"),
    ({"verdict": {"note": "n"}, "others": [5]}, Decision, "- at `$.others[0]`"),
    ({"verdict": {"note": "n"}, "number": -1}, PositiveDecision, "number must be positive"),
]


@pytest.mark.parametrize(("value", "annotation", "reason"), REFUSED, ids=shown)
def test_other_values_are_rejected_with_the_reason_and_the_path(value: object, annotation: object, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        coerce(value, annotation)


def test_dataclass_with_unresolvable_field_types_is_rejected() -> None:
    class Hidden:
        pass

    @dataclass
    class Local:
        hidden: Hidden

    with pytest.raises(ValueError, match="A field type of `Local` cannot be resolved: name 'Hidden' is not defined"):
        coerce({"hidden": {}}, Local)
