"""The walk over values and trees: one loop for each plain container, and a function for each other type.

Encoders are found by `type(value)`, decoders by the `$type` tag. Plain JSON values pass inside the loops without a
call, because most of a checkpoint consists of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, TypeAlias

import msgspec

from perdure.codec import Tree
from perdure.errors import UnreadableValue
from perdure.errors.wording import short_repr
from perdure.names import is_utf8


def to_bytes(tree: Tree) -> bytes:
    return msgspec.json.encode(tree)


def from_bytes(data: bytes | bytearray | memoryview | str, path: str) -> Tree:
    """Raises UnreadableValue, and no other error, for invalid JSON: truncated, too deep, a huge number."""
    try:
        return msgspec.json.decode(data)
    except Exception as error:
        raise UnreadableValue(path, f"it is not valid JSON: {error}") from error


# A fixed limit, not the interpreter's: the depth of the caller's stack must not decide whether a saved value can be
# read. A value of this depth makes a tree of at most three times the depth.
MAX_DEPTH = 100
# A value at the deepest level may still be a time with a zone with an offset.
READ_DEPTH = MAX_DEPTH + 8


class Refusal(Exception):
    """Why a part cannot be saved or read. Each container on the way out adds the part's path in it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.steps: list[tuple[str, object]] = []

    def inside(self, container: object, step: str) -> None:
        self.steps.append((step, container))

    def path(self, root: str) -> str:
        return root + "".join(step for step, _ in reversed(self.steps))


class TooDeep(Refusal):
    """Nested beyond MAX_DEPTH. A cycle ends here too, so the walk need not detect cycles."""

    def __init__(self) -> None:
        super().__init__(
            f"it is nested more than {MAX_DEPTH} levels deep",
            "Keep the parts in a flat list or dict and refer to them by id.",
        )


class NotDeclared(Refusal):
    """A type that this decoder may not build. A lenient decoder returns it as Opaque."""

    def __init__(self, name: object) -> None:
        super().__init__(
            f"the type {name!r} was not declared, or is not a data type",
            "Declare it with allowed_types=[...], or use register_type. If it was renamed: migrations=[...].",
        )


EncodeFn: TypeAlias = Callable[[Any, "Encoders", int], Tree]
DecodeFn: TypeAlias = Callable[[dict[str, Tree], "Decoders", int], Any]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
LONG_LIST = 24
ATOMS = frozenset({str, int, float, bool, type(None)})


class Encoders(dict[type, EncodeFn]):
    """Encoders by type. `find` is called once for each new type."""

    def __init__(self, known: Mapping[type, EncodeFn], find: Callable[[type], EncodeFn]) -> None:
        super().__init__(known)
        self._find = find

    def __missing__(self, cls: type) -> EncodeFn:
        encode = self[cls] = self._find(cls)
        return encode


class Decoders(dict[str, DecodeFn]):
    """Decoders by tag. If `find` raises NotDeclared, `opaque` decodes the value, if it is set."""

    def __init__(
        self,
        known: Mapping[str, DecodeFn],
        find: Callable[[str], DecodeFn],
        opaque: Callable[[dict[str, Tree]], object] | None = None,
    ) -> None:
        super().__init__(known)
        self._find = find
        self.opaque = opaque

    def __missing__(self, tag: str) -> DecodeFn:
        # Rejected tags are not cached: stored data could fill the memory with names.
        decode = self[tag] = self._find(tag)
        return decode


def encode_list(value: Iterable[Any], walk: Encoders, depth: int, owner: object = None) -> list[Tree]:
    """The items of a list; with `owner`, those of another container, which paths then name."""
    if depth > MAX_DEPTH:
        raise TooDeep
    if type(value) is list and len(value) > LONG_LIST and _all_plain(value):
        return value.copy()
    out: list[Tree] = []
    append = out.append
    try:
        for item in value:
            cls = type(item)
            if (
                (cls is str and (item.isascii() or is_utf8(item)))
                or (cls is int and INT_MIN <= item <= INT_MAX)
                or item is None
                or cls is bool
                or (cls is float and isfinite(item))
            ):
                append(item)
            else:
                append(walk[cls](item, walk, depth + 1))
    except Refusal as refusal:
        refusal.inside(value if owner is None else owner, f"[{len(out)}]")
        raise
    return out


def _all_plain(value: list[Any]) -> bool:
    """Whether a list has one atomic type and can be copied. Runs without a Python loop."""
    kinds = set(map(type, value))
    if kinds == {str}:
        return all(map(str.isascii, value))
    if kinds == {int}:
        return bool(min(value) >= INT_MIN and max(value) <= INT_MAX)
    return kinds == {float} and all(map(isfinite, value))


def encode_dict(value: dict[Any, Any], walk: Encoders, depth: int) -> dict[str, Tree]:
    if depth > MAX_DEPTH:
        raise TooDeep
    out: dict[str, Tree] = {}
    key = None
    try:
        for key, item in value.items():
            if type(key) is not str or "$" <= key < "%" or not (key.isascii() or is_utf8(key)):
                break
            cls = type(item)
            if (
                (cls is str and (item.isascii() or is_utf8(item)))
                or (cls is int and INT_MIN <= item <= INT_MAX)
                or item is None
                or cls is bool
                or (cls is float and isfinite(item))
            ):
                out[key] = item
            else:
                out[key] = walk[cls](item, walk, depth + 1)
        else:
            return out
    except Refusal as refusal:
        refusal.inside(value, f"[{short_repr(key)}]")
        raise
    return {"$type": "dict", "items": encode_pairs(value.items(), value, walk, depth)}


def encode_pairs(pairs: Iterable[tuple[Any, Any]], owner: object, walk: Encoders, depth: int) -> list[Tree]:
    """For dicts whose keys are not JSON keys, or whose order matters."""
    if depth > MAX_DEPTH:
        raise TooDeep
    out: list[Tree] = []
    for key, item in pairs:
        try:
            out.append([walk[type(key)](key, walk, depth + 1), walk[type(item)](item, walk, depth + 1)])
        except Refusal as refusal:
            refusal.inside(owner, f"[{short_repr(key)}]")
            raise
    return out


def encode_fields(
    pairs: Iterable[tuple[str, Any]], out: dict[str, Tree], owner: object, walk: Encoders, depth: int
) -> dict[str, Tree]:
    """Put the fields of an object into `out`. Their names must be plain."""
    if depth > MAX_DEPTH:
        raise TooDeep
    name = ""
    try:
        for name, item in pairs:
            cls = type(item)
            if (
                (cls is str and (item.isascii() or is_utf8(item)))
                or (cls is int and INT_MIN <= item <= INT_MAX)
                or item is None
                or cls is bool
                or (cls is float and isfinite(item))
            ):
                out[name] = item
            else:
                out[name] = walk[cls](item, walk, depth + 1)
    except Refusal as refusal:
        refusal.inside(owner, f".{name}")
        raise
    return out


def decode_any(tree: Tree, walk: Decoders, depth: int) -> Any:
    cls = type(tree)
    if cls in ATOMS:
        return tree
    if cls is dict:
        return decode_dict(tree, walk, depth)
    if cls is list:
        return decode_list(tree, walk, depth)
    raise Refusal(f"{cls.__qualname__} is not part of a JSON tree")


def decode_list(tree: list[Tree], walk: Decoders, depth: int) -> list[Any]:
    if depth > READ_DEPTH:
        raise TooDeep
    if ATOMS.issuperset(map(type, tree)):
        return tree.copy()
    out: list[Any] = []
    append = out.append
    try:
        for item in tree:
            cls = type(item)
            if cls in ATOMS:
                append(item)
            else:
                append(decode_dict(item, walk, depth + 1) if cls is dict else decode_any(item, walk, depth + 1))
    except Refusal as refusal:
        refusal.inside(tree, f"[{len(out)}]")
        raise
    return out


def decode_dict(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    """A plain dict, or the value that its `$type` names."""
    if depth > READ_DEPTH:
        raise TooDeep
    if "$type" in tree:
        return _decode_tagged(tree, walk, depth)
    out: dict[str, Any] = {}
    key = ""
    try:
        for key, item in tree.items():
            if type(key) is not str or "$" <= key < "%":
                raise Refusal(f"the key {short_repr(key)} is not valid in a plain object")
            cls = type(item)
            if cls in ATOMS:
                out[key] = item
            else:
                out[key] = decode_dict(item, walk, depth + 1) if cls is dict else decode_any(item, walk, depth + 1)
    except Refusal as refusal:
        refusal.inside(tree, f"[{short_repr(key)}]")
        raise
    return out


def _decode_tagged(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
    tag = tree["$type"]
    if type(tag) is not str:
        raise Refusal(f"its $type is {short_repr(tag)}, expected a name")
    try:
        return walk[tag](tree, walk, depth)
    except NotDeclared:
        if walk.opaque is None:
            raise
        return walk.opaque(tree)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(f"the stored data is not a valid {tag}: {type(error).__name__}: {error}") from error


def expect(tree: Tree, cls: type) -> Any:
    if type(tree) is not cls:
        raise Refusal(f"expected {cls.__name__}, got {type(tree).__name__}")
    return tree
