"""Whatever is stored, decoding gives a value or UnreadableValue, soon and without filling the memory."""

from __future__ import annotations

import copy
import random
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.chance import draw_seed
from tests.unit.codecs.samples import TYPES
from tests.unit.codecs.values import EVERYTHING, STRICT, TYPES_AS_VALUES

from perdure.codec import Tree
from perdure.codecs import JsonCodec, StoredFieldIgnored, from_bytes, to_bytes
from perdure.codecs.types import BUILTINS, OTHER_TAGS
from perdure.errors import UnreadableValue, UnsavableValue
from perdure.names import stable_name

LENIENT = JsonCodec(lenient=True)
VALID = [STRICT.encode(value, "v") for value in (*EVERYTHING, *TYPES_AS_VALUES)]
TAGS = sorted({*BUILTINS, *OTHER_TAGS, *map(stable_name, TYPES)})
TYPE_INT = {"$type": "type", "name": "int"}
JUNK: list[Tree] = [
    *(None, True, 0, -1, 2**62, 1.5, 1e308, "", "x", "-", "1e999999999", "é", "0x", "9" * 5000, "../../etc/passwd"),
    *([], [None], [[]], [[1]], [[1, 2]], [[1, 2, 3]], ["a", 1], [[[], 1]], [{}], {}, {"a": 1}, {"$type": None}),
    *(
        {"$type": []},
        {"$type": "int"},
        {"$type": "nothing"},
        {"$type": "os:system"},
        {"$other": 1},
        TYPE_INT,
        [TYPE_INT],
    ),
    *({"$type": "list", "items": []}, {"$type": "set", "items": [1]}, {"$type": "ValueError", "args": []}),
    *({"$type": "datetime", "iso": "2024-01-01"}, {"$type": "type", "name": "tests.unit.codecs.samples:Author"}),
]


@pytest.fixture
def rng() -> random.Random:
    return random.Random(draw_seed())


def check(tree: Tree) -> None:
    """A value, which can be walked through again, or UnreadableValue; any other exception fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoredFieldIgnored)
        for codec in (STRICT, LENIENT):
            try:
                value = codec.decode(tree, "v")
                codec.encode(value, "v")
            except (UnreadableValue, UnsavableValue):
                pass


def check_bytes(data: bytes) -> None:
    try:
        tree = from_bytes(data, "v")
    except UnreadableValue:
        return
    check(tree)


# ---------------------------------------------------------------- damage to what was valid


def damaged(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        to = min(len(out), at + rng.choice([0, 1, 1, 2, 8]))
        chunk = rng.choice([b"", bytes([rng.randrange(256)]), bytes(out[to : to + 8]), b'"', b"9", b"-", b"[", b"null"])
        out[at:to] = chunk
    return bytes(out)


def test_damaged_bytes_are_a_value_or_unreadable(rng: random.Random) -> None:
    stored = [to_bytes(tree) for tree in VALID if len(to_bytes(tree)) < 2_000]
    for _ in range(6_000):
        check_bytes(damaged(rng.choice(stored), rng))


def places(tree: Tree) -> Iterator[tuple[Any, Any]]:
    """Every container in the tree with each of its keys."""
    for key, item in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(item, (dict, list)):
            yield from places(item)


def test_damaged_trees_are_a_value_or_unreadable(rng: random.Random) -> None:
    stored = [tree for tree in VALID if isinstance(tree, dict) and len(to_bytes(tree)) < 2_000]
    for _ in range(4_000):
        tree = copy.deepcopy(rng.choice(stored))
        for _ in range(rng.randint(1, 3)):
            container, key = rng.choice(list(places(tree)) or [(tree, "$type")])
            if rng.random() < 0.2 and key in container:
                del container[key]
            elif isinstance(container, dict) or key < len(container):
                container[key] = copy.deepcopy(rng.choice([*JUNK, *TAGS] if rng.random() < 0.7 else stored))
        check(tree)


# ---------------------------------------------------------------- every tag, every wrong payload


FIELDS = [
    "hex",
    "value",
    "base64",
    "iso",
    "tz",
    "items",
    "args",
    "name",
    "key",
    "maxlen",
    "factory",
    "$items",
    "$value",
]


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_with_any_wrong_payload_is_a_value_or_unreadable(tag: str) -> None:
    check({"$type": tag})
    shapes = [tree for tree in VALID if isinstance(tree, dict) and tree.get("$type") == tag][:2]
    for junk in JUNK:
        check({"$type": tag, **dict.fromkeys(FIELDS, junk)})
        for shape in shapes:
            for field in shape:
                check({**shape, field: junk})
            for extra in ("$attributes", "$unset", "$set", "$private", "$extra", "$args", "$factory", "$maxlen"):
                check({**shape, extra: junk})


def tagged(tag: str, fields: dict[str, Tree]) -> Tree:
    return {"$type": tag, **fields}


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda part: st.one_of(
        st.lists(part, max_size=4),
        st.dictionaries(st.text(max_size=4) | st.sampled_from(FIELDS), part, max_size=4),
        st.builds(tagged, st.sampled_from(TAGS), st.dictionaries(st.sampled_from(FIELDS), part)),
    ),
    max_leaves=20,
)


@given(TREES)
def test_any_tree_is_a_value_or_unreadable(tree: Tree) -> None:
    check(tree)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_unreadable(data: bytes) -> None:
    check_bytes(data)


# ---------------------------------------------------------------- bombs


def deep(wrap: Callable[[Tree], Tree], levels: int = 5_000) -> Tree:
    tree: Tree = 1
    for _ in range(levels):
        tree = wrap(tree)
    return tree


HEX = "0x" + "f" * 1_000_000
BIG = {"$type": "int", "hex": HEX}
ODD = {"$type": "int", "hex": hex(random.Random(1).getrandbits(4_000_000))}
LITERALS = [
    {"$type": "alias", "origin": {"$type": "type", "name": "list"}, "args": [{"$type": "literal", "values": [number]}]}
    for number in range(3_000)
]
BOMBS: dict[str, Tree] = {
    "int": BIG,
    "range": {"$type": "range", "start": 0, "stop": BIG, "step": 1},
    "fraction": {"$type": "fraction", "numerator": BIG, "denominator": ODD},
    "fraction text": {"$type": "fraction", "numerator": "1e999999999", "denominator": 1},
    "decimal": {"$type": "decimal", "value": "1e999999999999999999"},
    "decimals": {"$type": "set", "items": [{"$type": "decimal", "value": f"{n}e999999999"} for n in range(100)]},
    "deque": {"$type": "deque", "items": [], "maxlen": 2**62},
    "longer deque": {"$type": "deque", "items": [1], "maxlen": BIG},
    "timedelta": {"$type": "timedelta", "days": 10**18, "seconds": 0, "microseconds": 0},
    "flag": {"$type": stable_name(TYPES[17]), "value": BIG},
    "zone": {"$type": "zoneinfo", "key": "../../etc/passwd"},
    "zone with dots": {"$type": "zoneinfo", "key": "Europe/../../../etc/passwd"},
    "absolute zone": {"$type": "zoneinfo", "key": "/etc/passwd"},
    "folder zone": {"$type": "zoneinfo", "key": "Europe"},
    "union": {"$type": "union", "args": LITERALS},
    "typing union": {"$type": "alias", "typing": "Union", "args": LITERALS},
    "model of models": deep(
        lambda arg: {
            "$type": "alias",
            "origin": {"$type": "type", "name": "tests.unit.codecs.samples:Page"},
            "args": [arg if arg != 1 else TYPE_INT],
        },
        40,
    ),
    "lists": deep(lambda tree: [tree]),
    "dicts": deep(lambda tree: {"a": tree}),
    "tuples": deep(lambda tree: {"$type": "tuple", "items": [tree]}),
    "keys": deep(lambda tree: {"$type": "dict", "items": [[tree, 1]]}),
    "zones": deep(lambda tree: {"$type": "datetime", "iso": "2024-01-01", "tz": tree}),
    "numbers": deep(lambda tree: {"$type": "fraction", "numerator": tree, "denominator": 1}),
    "aliases": deep(lambda tree: {"$type": "alias", "origin": tree, "args": [tree]}, 90),
    "errors": deep(lambda tree: {"$type": "ValueError", "args": [tree]}),
    "attributes": deep(lambda tree: {"$type": stable_name(TYPES[0]), "name": "", "$attributes": {"a": tree}}),
    "unknown": deep(lambda tree: {"$type": "a:B", "x": tree}),
}


@pytest.mark.parametrize("tree", BOMBS.values(), ids=BOMBS.keys())
def test_decoding_a_bomb_takes_little_memory(tree: Tree) -> None:
    tracemalloc.start()
    try:
        check(tree)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000
