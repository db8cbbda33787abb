"""Promise 10 for generated values: any nesting of everything that can be stored."""

from __future__ import annotations

import datetime
import math
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import PurePosixPath
from typing import Any

from hypothesis import given, strategies as st
from tests.unit.codecs.samples import (
    Bag,
    Blob,
    Box,
    Broken,
    Coin,
    Colour,
    Couple,
    DeepPurse,
    Level,
    Line,
    Mood,
    Name,
    Page,
    Pair,
    Place,
    Point,
    Report,
    Right,
    Sheet,
    Size,
    User,
    Weight,
    same,
)
from tests.unit.codecs.values import DECLARED, STRICT, a_row, again, with_attributes

from perdure.codecs import JsonCodec, from_bytes, to_bytes

TEXT = st.text(st.characters(codec=None, exclude_categories=())) | st.text(max_size=5)
HALF_A_DAY = datetime.timedelta(hours=12)
ZONES: Any = st.one_of(
    st.none(),
    st.timezones(),
    st.builds(datetime.timezone, st.timedeltas(-HALF_A_DAY, HALF_A_DAY), st.text(max_size=3)),
)
MOMENTS = st.datetimes(
    datetime.datetime(2, 1, 1),  # noqa: DTZ001 - bounds have no zone
    datetime.datetime(9998, 1, 1),  # noqa: DTZ001 - bounds have no zone
    timezones=ZONES,
)
ATOMS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(2**80), 2**80), st.floats(), TEXT, st.binary()),
    *(st.decimals(), st.fractions(), st.complex_numbers(), st.uuids(), st.dates(), st.timedeltas()),
    *(MOMENTS, st.builds(lambda moment, fold: moment.replace(fold=fold), MOMENTS, st.integers(0, 1))),
    st.builds(lambda moment: moment.timetz(), MOMENTS),
    *(st.sampled_from(Colour), st.sampled_from(Level), st.sampled_from(Mood), st.integers(0, 7).map(Right)),
    *(st.builds(PurePosixPath, TEXT), st.builds(range, st.integers(), st.integers(), st.integers(1))),
    *(TEXT.map(Name), st.integers().map(Size), st.floats().map(Weight), st.binary().map(Blob)),
    *(st.builds(Coin, st.integers(), TEXT), st.binary().map(bytearray)),
)


def is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


HASHABLE = st.recursive(
    ATOMS.filter(is_hashable),
    lambda part: st.one_of(
        st.tuples(part, part), st.frozensets(part, max_size=3), st.builds(Point, part), st.builds(Place, part, part)
    ),
    max_leaves=3,
)


def containers(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(part, max_size=4)
    dicts = st.dictionaries(TEXT | HASHABLE, part, max_size=4)
    return st.one_of(
        *(lists, lists.map(tuple), dicts, st.dictionaries(TEXT, part, max_size=4), st.sets(HASHABLE, max_size=4)),
        *(dicts.map(OrderedDict), dicts.map(lambda items: defaultdict(list, items)), dicts.map(Sheet)),
        *(st.builds(deque, lists), st.builds(Line, lists, st.none() | st.integers(4, 9)), lists.map(Couple)),
        *(st.lists(HASHABLE, max_size=4).map(Counter), st.sets(HASHABLE, max_size=4).map(Bag)),
        *(
            st.builds(Point, part, part),
            st.builds(Box, part),
            st.builds(Place, part, part),
            st.builds(Pair, part, part),
        ),
        *(st.builds(lambda x: with_attributes(DeepPurse(pocket="p", owner=x), extra=x), part),),
        *(st.builds(lambda x: with_attributes(Report("t"), extra=x), part),),
        *(st.builds(lambda x, items: with_attributes(a_row(*items), note=x), part, lists),),
        *(st.builds(lambda x: User.model_construct(name="n", born=x), part), lists.map(lambda x: Page[Any](items=x))),
        *(st.builds(lambda x: with_attributes(Broken(1, "d"), more=x), part), st.builds(ValueError, part, part)),
    )


VALUES = st.recursive(ATOMS, containers, max_leaves=12)


@given(VALUES)
def test_every_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert same(again(value), value)


@given(VALUES)
def test_encoding_a_decoded_value_gives_the_same_bytes(value: Any) -> None:
    assert to_bytes(STRICT.encode(again(value), "v")) == to_bytes(STRICT.encode(value, "v"))


@given(VALUES)
def test_a_tool_that_knows_no_types_saves_back_the_same_bytes(value: Any) -> None:
    stored = to_bytes(STRICT.encode(value, "v"))
    lenient = JsonCodec(lenient=True)
    assert to_bytes(lenient.encode(lenient.decode(from_bytes(stored, "v"), "v"), "v")) == stored


@given(VALUES)
def test_second_codec_of_the_same_types_reads_stored_values(value: Any) -> None:
    assert same(JsonCodec(DECLARED).decode(STRICT.encode(value, "v"), "v"), value)


@given(st.lists(st.integers() | st.floats() | TEXT | st.none() | st.booleans(), min_size=20, max_size=60))
def test_long_lists_of_plain_values_come_back_exactly(value: list[Any]) -> None:
    assert same(again(value), value)


@given(st.floats())
def test_every_float_comes_back_bit_for_bit(value: float) -> None:
    back = again([value])[0]
    assert math.isnan(value) == math.isnan(back)
    assert math.isnan(value) or value.hex() == back.hex()
