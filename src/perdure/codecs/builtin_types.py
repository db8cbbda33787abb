"""The built-in types: values without parts, and containers that JSON does not have, with their subclasses' items."""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import isfinite
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from perdure.codec import Tree
from perdure.codecs.walk import (
    INT_MAX,
    INT_MIN,
    MAX_DEPTH,
    DecodeFn,
    Decoders,
    EncodeFn,
    Encoders,
    NotDeclared,
    Refusal,
    TooDeep,
    decode_any,
    decode_list,
    encode_dict,
    encode_list,
    encode_pairs,
    expect,
)
from perdure.errors.wording import short_repr
from perdure.names import is_utf8

ZONE_KEY = re.compile(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+)*")

MAX_FRACTION_BITS = 2**18


class Coder(NamedTuple):
    """Both directions of one type."""

    encode: EncodeFn
    decode: DecodeFn


def same(value: Any, walk: Encoders, depth: int) -> Tree:
    return value


def encode_int(value: int, walk: Encoders, depth: int) -> Tree:
    # Hexadecimal: decimal digits take quadratic time, and Python rejects more than 4,300 of them.
    return value if INT_MIN <= value <= INT_MAX else {"$type": "int", "hex": hex(value)}


def decode_int(tree: dict[str, Tree], walk: Decoders, depth: int) -> int:
    return int(tree["hex"], 16)


def encode_float(value: float, walk: Encoders, depth: int) -> Tree:
    return value if isfinite(value) else {"$type": "float", "value": repr(value)}


def decode_float(tree: dict[str, Tree], walk: Decoders, depth: int) -> float:
    return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[tree["value"]]


def encode_fraction(value: Fraction, walk: Encoders, depth: int) -> Tree:
    _check_size(value.numerator, value.denominator)
    return _FRACTION.encode(value, walk, depth)


def _fraction(numerator: int, denominator: int) -> Fraction:
    # From two ints: a text such as "1e999999999" would block the process.
    _check_size(numerator, denominator)
    return Fraction(numerator, denominator)


def _check_size(numerator: int, denominator: int) -> None:
    # Reducing a fraction takes time in the square of its length: 20 seconds for two megabytes.
    if max(numerator.bit_length(), denominator.bit_length()) > MAX_FRACTION_BITS:
        raise Refusal(f"a fraction of more than {MAX_FRACTION_BITS} bits would take too long to read")


def _as_parts(tag: str, build: Callable[..., object], names: tuple[str, ...], cls: type) -> Coder:
    """A value made of parts that all have this class."""

    def encode_parts(value: object, walk: Encoders, depth: int) -> Tree:
        return {"$type": tag, **{name: walk[cls](getattr(value, name), walk, depth) for name in names}}

    def decode_parts(tree: dict[str, Tree], walk: Decoders, depth: int) -> object:
        return build(*(_part(tree, name, cls, walk, depth) for name in names))

    return Coder(encode_parts, decode_parts)


_FRACTION = _as_parts("fraction", _fraction, ("numerator", "denominator"), int)


def _part(tree: dict[str, Tree], name: str, cls: type, walk: Decoders, depth: int) -> Any:
    part = decode_any(tree[name], walk, depth + 1)
    if type(part) is not cls:
        raise Refusal(f"its {name} is a {type(part).__name__}, expected {cls.__name__}")
    return part


def encode_str(value: str, walk: Encoders, depth: int) -> Tree:
    if value.isascii() or is_utf8(value):
        return value
    return {"$type": "str", "base64": to_base64(value.encode("utf-8", "surrogatepass"))}


def decode_str(tree: dict[str, Tree], walk: Decoders, depth: int) -> str:
    return from_base64(tree["base64"]).decode("utf-8", "surrogatepass")


def _as_base64(tag: str, build: Callable[[bytes], object]) -> Coder:
    def encode_bytes(value: bytes | bytearray, walk: Encoders, depth: int) -> Tree:
        return {"$type": tag, "base64": to_base64(value)}

    def decode_bytes(tree: dict[str, Tree], walk: Decoders, depth: int) -> object:
        return build(from_base64(tree["base64"]))

    return Coder(encode_bytes, decode_bytes)


def to_base64(value: bytes | bytearray) -> str:
    return b2a_base64(value, newline=False).decode("ascii")


def from_base64(text: str) -> bytes:
    return a2b_base64(text, strict_mode=True)


def encode_moment(value: datetime | time, walk: Encoders, depth: int) -> Tree:
    """ISO text, with the parts that it lacks: a named zone, and the fold."""
    tz = value.tzinfo
    out: dict[str, Tree] = {"$type": "datetime" if type(value) is datetime else "time"}
    if tz is None or (type(tz) is timezone and len(_timezone_args(tz)) == 1):
        out["iso"] = value.isoformat()
    else:
        out["iso"] = value.replace(tzinfo=None).isoformat()
        try:
            out["tz"] = walk[type(tz)](tz, walk, depth + 1)
        except Refusal as refusal:
            refusal.inside(value, ".tzinfo")
            raise
    if value.fold:
        out["fold"] = 1
    return out


def decode_moment(cls: Any, tree: dict[str, Tree], walk: Decoders, depth: int) -> datetime | time:
    value: datetime | time = cls.fromisoformat(tree["iso"])
    if "tz" in tree:
        value = value.replace(tzinfo=decode_any(tree["tz"], walk, depth + 1))
    return value.replace(fold=1) if tree.get("fold") else value


def _timezone_args(tz: timezone) -> tuple[Any, ...]:
    # The only way to distinguish a zone named "UTC+02:00" from one without a name.
    args: tuple[Any, ...] = tz.__getinitargs__()  # type: ignore[attr-defined]  # not in its stubs
    return args


def encode_timezone(value: timezone, walk: Encoders, depth: int) -> Tree:
    offset, *name = _timezone_args(value)
    out: dict[str, Tree] = {"$type": "timezone", "offset": walk[timedelta](offset, walk, depth)}
    if name:
        out["name"] = encode_str(name[0], walk, depth)
    return out


def decode_timezone(tree: dict[str, Tree], walk: Decoders, depth: int) -> timezone:
    offset = _part(tree, "offset", timedelta, walk, depth)
    return timezone(offset, _part(tree, "name", str, walk, depth)) if "name" in tree else timezone(offset)


def encode_zoneinfo(value: ZoneInfo, walk: Encoders, depth: int) -> Tree:
    if not ZONE_KEY.fullmatch(value.key or ""):
        raise Refusal("it is a time zone without a key", "Make it with ZoneInfo('Area/City').")
    return {"$type": "zoneinfo", "key": value.key}


def decode_zoneinfo(tree: dict[str, Tree], walk: Decoders, depth: int) -> ZoneInfo:
    if not ZONE_KEY.fullmatch(tree["key"]):
        raise Refusal(f"{tree['key']!r} is not the key of a time zone")
    return ZoneInfo(tree["key"])


def _as_text(tag: str, build: Callable[[str], object], key: str = "value") -> Coder:
    def encode_text(value: object, walk: Encoders, depth: int) -> Tree:
        return {"$type": tag, key: encode_str(str(value), walk, depth)}

    def decode_text(tree: dict[str, Tree], walk: Decoders, depth: int) -> object:
        return build(_part(tree, key, str, walk, depth))

    return Coder(encode_text, decode_text)


# Containers.

# Trees have up to three levels for each level of a value.
TREE_DEPTH = 3 * MAX_DEPTH + 3


@dataclass(frozen=True, eq=False)
class Opaque:
    """A stored value of an undeclared type. Equal to another with the same stored form."""

    type: str
    data: Tree
    """The tree of the value without its `$type`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self._form() == other._form()

    def __hash__(self) -> int:
        return hash(self._form())

    def _form(self) -> tuple[str, bytes]:
        return self.type, msgspec.json.encode(self.data)


def opaque(tree: dict[str, Tree]) -> Opaque:
    return Opaque(tree["$type"], {key: copy_tree(item) for key, item in tree.items() if key != "$type"})


def opaque_tree(value: Opaque) -> dict[str, Tree]:
    if type(value.type) is not str or type(value.data) is not dict:
        raise Refusal("an Opaque must have the name of a type and a dict")
    return {"$type": value.type, **copy_tree(value.data)}


def copy_tree(tree: Tree, depth: int = 1) -> Tree:
    """A copy that shares nothing. Rejects a value that is not a tree, so that nothing unreadable is stored."""
    if depth > TREE_DEPTH:
        raise TooDeep
    cls = type(tree)
    if cls is dict and all(type(key) is str and is_utf8(key) for key in tree):
        return {key: copy_tree(item, depth + 1) for key, item in tree.items()}
    if cls is list:
        return [copy_tree(item, depth + 1) for item in tree]
    if (
        tree is None
        or cls is bool
        or (cls is str and is_utf8(tree))
        or (cls is int and INT_MIN <= tree <= INT_MAX)
        or (cls is float and isfinite(tree))
    ):
        return tree
    raise Refusal(f"{short_repr(tree)} is not part of a JSON tree")


_FILL: dict[type, Callable[[Any, Any], Any]] = {list: list.extend, set: set.update, deque: deque.extend}


def items_coder(cls: type, base: Any, tag: str, prefix: str = "") -> Coder:
    """Coder of a sequence or set. It calls only methods of `base`, the built-in type that `cls` derives from."""
    items_key, maxlen_key = f"{prefix}items", f"{prefix}maxlen"
    fill = _FILL.get(base)

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        items = encode_list(base.__iter__(value), walk, depth, value)
        if base is set or base is frozenset:
            # Sorted by stored form: the order of a set differs in each process, and would change its encoding.
            items.sort(key=msgspec.json.encode)
        out: dict[str, Tree] = {"$type": tag, items_key: items}
        if base is deque:
            out[maxlen_key] = value.maxlen
        return out

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        items = decode_list(expect(tree[items_key], list), walk, depth)
        if fill is None:
            return base.__new__(cls, items)
        value = base.__new__(cls)
        if base is deque:
            maxlen = tree[maxlen_key]
            if maxlen is not None and expect(maxlen, int) < len(items):
                raise Refusal(f"it has {len(items)} items and a maxlen of {maxlen}")
            deque.__init__(value, (), maxlen)
        fill(value, items)
        return value

    return Coder(encode, decode)


def pairs_coder(cls: type, base: Any, tag: str, prefix: str = "") -> Coder:
    """The same for dicts, as pairs of key and value."""
    items_key, factory_key = f"{prefix}items", f"{prefix}factory"

    def encode(value: Any, walk: Encoders, depth: int) -> Tree:
        out: dict[str, Tree] = {"$type": tag}
        if base is defaultdict:
            out[factory_key] = _encode_factory(value, walk, depth)
        out[items_key] = encode_pairs(base.items(value), value, walk, depth)
        return out

    def decode(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        value = base.__new__(cls)
        if base is defaultdict:
            defaultdict.__init__(value, _decode_factory(tree[factory_key], walk, depth))
        for key, item in expect(tree[items_key], list):
            base.__setitem__(value, decode_any(key, walk, depth + 1), decode_any(item, walk, depth + 1))
        return value

    return Coder(encode, decode)


def _encode_factory(value: defaultdict[Any, Any], walk: Encoders, depth: int) -> Tree:
    factory = value.default_factory
    if factory is None:
        return None
    try:
        if not isinstance(factory, type):
            raise Refusal("its default_factory is not a type that may be stored", "Use a built-in or a declared type.")
        return walk[type(factory)](factory, walk, depth + 1)
    except Refusal as refusal:
        refusal.inside(value, ".default_factory")
        raise


def _decode_factory(tree: Tree, walk: Decoders, depth: int) -> Any:
    factory = decode_any(tree, walk, depth + 1)
    if isinstance(factory, Opaque):
        raise NotDeclared(factory.type)
    if factory is not None and not isinstance(factory, type):
        raise Refusal("its default_factory is not a type")
    return factory


_TEXTS = (Decimal, UUID, PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)

BUILTIN_TYPES: dict[type, tuple[str, Coder]] = {
    int: ("int", Coder(encode_int, decode_int)),
    float: ("float", Coder(encode_float, decode_float)),
    complex: ("complex", _as_parts("complex", complex, ("real", "imag"), float)),
    Fraction: ("fraction", Coder(encode_fraction, _FRACTION.decode)),
    range: ("range", _as_parts("range", range, ("start", "stop", "step"), int)),
    str: ("str", Coder(encode_str, decode_str)),
    bytes: ("bytes", _as_base64("bytes", bytes)),
    bytearray: ("bytearray", _as_base64("bytearray", bytearray)),
    datetime: ("datetime", Coder(encode_moment, partial(decode_moment, datetime))),
    time: ("time", Coder(encode_moment, partial(decode_moment, time))),
    date: ("date", _as_text("date", date.fromisoformat, "iso")),
    timedelta: ("timedelta", _as_parts("timedelta", timedelta, ("days", "seconds", "microseconds"), int)),
    timezone: ("timezone", Coder(encode_timezone, decode_timezone)),
    ZoneInfo: ("zoneinfo", Coder(encode_zoneinfo, decode_zoneinfo)),
    **{cls: (cls.__name__.lower(), _as_text(cls.__name__.lower(), cls)) for cls in _TEXTS},
    list: ("list", Coder(encode_list, items_coder(list, list, "list").decode)),
    dict: ("dict", Coder(encode_dict, pairs_coder(dict, dict, "dict").decode)),
    defaultdict: ("defaultdict", pairs_coder(defaultdict, defaultdict, "defaultdict")),
    **{cls: (cls.__name__, items_coder(cls, cls, cls.__name__)) for cls in (tuple, set, frozenset, deque)},
}
"""The name and the coder of each."""
