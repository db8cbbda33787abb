"""Values of promise 10, one of each kind and the edges of each."""

from __future__ import annotations

import typing
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from tests.unit.codecs.samples import (
    TYPES,
    Author,
    Bag,
    Blob,
    Box,
    Broken,
    Coin,
    Colour,
    Couple,
    DeepPurse,
    Filling,
    Ice,
    Level,
    Line,
    LongReport,
    Loose,
    Mood,
    Name,
    Names,
    Options,
    Ordered,
    Page,
    Pair,
    Place,
    Point,
    Purse,
    Report,
    Right,
    Row,
    Sheet,
    Size,
    Slotted,
    Tally,
    User,
    Weight,
)

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec, from_bytes, to_bytes

DECLARED = DeclaredTypes(types=frozenset(TYPES))
STRICT = JsonCodec(DECLARED)


def again(value: Any, codec: JsonCodec = STRICT) -> Any:
    """The value as it comes back from storage, through bytes."""
    tree = codec.encode(value, "value")
    stored = from_bytes(to_bytes(tree), "value")
    assert stored == tree
    return codec.decode(stored, "value")


def with_attributes(value: Any, **attributes: object) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def a_defaultdict(factory: Any) -> defaultdict[Any, Any]:
    return defaultdict(factory)


def a_row(*items: object) -> Row:
    row = Row()
    row.extend(items)
    return row


WHEN = datetime(2024, 10, 27, 2, 30, 0, 123456)  # noqa: DTZ001 - without a zone on purpose
FIRST, LAST = datetime.min, datetime.max
BERLIN = ZoneInfo("Europe/Berlin")
SUMMER = timezone(timedelta(hours=2), "summer")

PLAIN: list[Any] = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 10**5000, -(10**40)),
    *(0.0, -0.0, 1.0, 1e16, 5e-324, 1.7976931348623157e308, float("nan"), float("inf"), float("-inf")),
    *("", "plain", "é中😀", '\x00\n"\\', "\ud800", "a\udfffb", "\ud83d\ude00", "$type"),
    *(b"", b"\x00\xff", bytearray(b""), bytearray(b"abc")),
    *(complex(1, 2), complex(-0.0, float("nan")), Fraction(-1, 3), Fraction(10**30, 7), range(3), range(9, 2**70, -2)),
    *(Decimal("0.10"), Decimal("-0E+9"), Decimal("NaN"), Decimal("sNaN12"), Decimal("-Infinity"), Decimal("1E+999999")),
    *(UUID(int=7), PurePosixPath("a/../b"), PurePosixPath("//net/x"), PureWindowsPath("c:/x y"), Path("/tmp/\udcff")),
]
TIMES: list[Any] = [
    *(WHEN, WHEN.replace(fold=1), WHEN.replace(tzinfo=UTC), WHEN.replace(tzinfo=SUMMER)),
    *(WHEN.replace(tzinfo=BERLIN), WHEN.replace(tzinfo=BERLIN, fold=1), FIRST, LAST),
    WHEN.replace(tzinfo=timezone(timedelta(hours=-5, minutes=-30, seconds=-1, microseconds=-1))),
    WHEN.replace(tzinfo=timezone(timedelta(0), "UTC")),
    *(time(1, 2, 3, 4), time(1, tzinfo=UTC, fold=1), time(2, tzinfo=BERLIN), date.min, date(2024, 2, 29)),
    *(timedelta.min, timedelta.max, timedelta(microseconds=-1), UTC, SUMMER, BERLIN, ZoneInfo("UTC")),
]
CONTAINERS: list[Any] = [
    *([], [1, "a", None], [["x"]], ["text"] * 100, list(range(100)), [1.5] * 100, ["é"] * 100, ["\ud800"] * 100),
    *([2**70] * 100, [-(2**70)] * 100),
    *([float("nan")] * 100, [1, True] * 50, (), (1,), (1, (2, [3])), set(), {1, "a", (2, 3)}, frozenset({frozenset()})),
    *({}, {"a": 1, "b": {"c": []}}, {1: 2}, {"$a": 1}, {"$type": "int", "hex": "1"}, {"\ud800": 1}, {"é": 1}),
    *({(1, 2): {3: 4}}, {None: 0, True: 1, 2.5: 2, b"x": 3, "s": 4}, {"z": 1, "a": 2}, {Mood.GOOD: 1}, {Level.LOW: 1}),
    *(OrderedDict([("z", 1), ("a", 2)]), Counter("abca"), deque([1, 2], 5), deque([1]), deque(maxlen=0)),
    *(defaultdict(list, {1: [2]}), defaultdict(None, {1: 2}), a_defaultdict(Author), with_attributes(Counter(), x=1)),
]
CLASSES: list[Any] = [
    *(
        Report("a", Author("b", 3), ["c"]),
        Point(1, [2]),
        Box({"a": (1,)}),
        Box[int](3),
        Coin(5),
        Purse([Coin(1)], {1: 2}),
    ),
    with_attributes(LongReport("x"), late=(1,), extra=[1]),
    *(with_attributes(DeepPurse(pocket="left"), extra={1}), Pair((1,)), Place(1.5), Place(0.0, {1: 2})),
    *(User(name="x"), User(name="x", born=None), with_attributes(User(name="y"), _seen=5), Loose(a=1), Names(["a"])),
    *(
        Loose.model_validate({"a": 1, "$b": 2}),
        Page[int](items=[1]),
        Page[Author](items=[Author("x")]),
        Page(items=["a"]),
    ),
    *(User.model_construct(born=3), Page[Page[int]](items=[Page[int](items=[])]), Page[None](items=[None])),
    *(Colour.RED, Colour.BLUE, Level.HIGH, Mood.GOOD, Right.READ, Right.READ | Right.RUN, Right(0)),
    *(
        with_attributes(Name("é"), note=[1]),
        with_attributes(Slotted("abc"), mark=(2,)),
        Slotted(),
        Size(2**70),
        Weight("nan"),
    ),
    *(
        Blob(b"x"),
        with_attributes(a_row(1, (2,)), note="n"),
        Sheet({1: 2}),
        Ordered([("b", 1), ("a", 2)]),
        Tally("aab"),
    ),
    *(Filling(dict, {1: {}}), Bag({1, (2,)}), Ice({3}), Couple((1, [2])), Line([1, 2], 5)),
]
TYPES_AS_VALUES: list[Any] = [
    *(
        int,
        str,
        type(None),
        object,
        type,
        dict,
        datetime,
        Decimal,
        ValueError,
        Author,
        Coin,
        User,
        Colour,
        Options,
        Any,
    ),
    *(list[int], dict[str, list[Author]], tuple[int, ...], str | None, Author | None | int, Box[int], Page[int]),
    *(typing.Literal["a", 1, None], typing.Literal[Colour.RED], typing.Optional[int], typing.Union[int, str]),
    *(typing.List[Author], typing.Dict[str, Any], typing.Sequence[int], type[Author], list[typing.Literal["x"] | None]),
    *(Page[Author] | None, Pair[int], list[None], Page[None], typing.Tuple[int, ...]),
]
ERRORS: list[BaseException] = [
    *(ValueError("x", 1), KeyError("k"), Exception(), StopIteration(3), KeyboardInterrupt(), OSError(2, "no", "file")),
    *(UnicodeDecodeError("utf8", b"x", 0, 1, "why"), ExceptionGroup("g", [ValueError(1), TypeError()]), OSError("one")),
    *(Broken(3, "detail"), ValueError([Author("x")])),
]
EVERYTHING: list[Any] = [*PLAIN, *TIMES, *CONTAINERS, *CLASSES, *ERRORS]
