"""Hostile stored data must not do more than a value of the declared types can."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from tests.unit.codecs.samples import Author, Report
from tests.unit.codecs.values import STRICT

from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec
from perdure.errors import UnreadableValue
from perdure.names import stable_name

REPORT_TYPE = {"$type": "type", "name": stable_name(Report)}


class Bits(enum.Flag, boundary=enum.EJECT):
    A = 1
    B = 2


def test_an_attribute_cannot_replace_the_class() -> None:
    tree = {"$type": stable_name(Author), "name": "x", "$attributes": {"__class__": REPORT_TYPE}}
    assert type(STRICT.decode(tree, "state")) is Author


def test_a_combined_flag_is_of_its_class_or_unreadable() -> None:
    codec = JsonCodec(DeclaredTypes(types=frozenset({Bits})))
    assert codec.decode({"$type": stable_name(Bits), "value": 3}, "state") is Bits.A | Bits.B
    with pytest.raises(UnreadableValue, match="not a value of Bits"):
        codec.decode({"$type": stable_name(Bits), "value": 8}, "state")


@pytest.mark.parametrize("part", [1, {"$type": "set", "items": [1]}, {"$type": stable_name(Author), "name": "x"}])
def test_a_union_is_made_of_types_only(part: Any) -> None:
    with pytest.raises(UnreadableValue, match="expected a type"):
        STRICT.decode({"$type": "union", "args": [part, part]}, "state")


def test_a_deque_that_would_lose_items_is_unreadable() -> None:
    with pytest.raises(UnreadableValue, match="2 items and a maxlen of 1"):
        STRICT.decode({"$type": "deque", "items": [1, 2], "maxlen": 1}, "state")


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "Europe/../UTC", "", "tzdata.zi", "Europe\\Berlin"])
def test_a_time_zone_is_a_key_and_not_a_path(key: str) -> None:
    with pytest.raises(UnreadableValue, match="is not the key of a time zone"):
        STRICT.decode({"$type": "zoneinfo", "key": key}, "state")


def test_the_tree_of_another_codec_is_unreadable() -> None:
    with pytest.raises(UnreadableValue, match=r"the key '\$pickle' is not valid in a plain object"):
        STRICT.decode({"$pickle": "gASVBQAAAAAAAABdlCgu"}, "state")
