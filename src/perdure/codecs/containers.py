"""Containers that JSON does not have: tuple, sets, dicts with other keys, deque, defaultdict, and their subclasses."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from perdure.codec import Tree
from perdure.codecs.scalars import Coder
from perdure.codecs.walk import (
    INT_MAX,
    INT_MIN,
    MAX_DEPTH,
    Decoders,
    Encoders,
    NotDeclared,
    Refusal,
    TooDeep,
    decode_any,
    decode_list,
    decode_pairs,
    encode_dict,
    encode_list,
    encode_pairs,
    expect,
    is_utf8,
    short_repr,
)

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
        for key, item in decode_pairs(tree[items_key], walk, depth):
            base.__setitem__(value, key, item)
        return value

    return Coder(encode, decode)


def _encode_factory(value: defaultdict[Any, Any], walk: Encoders, depth: int) -> Tree:
    factory = value.default_factory
    if factory is None:
        return None
    refusal = Refusal("its default_factory is not a type that may be stored", "Use a built-in or a declared type.")
    if isinstance(factory, type):
        try:
            return walk[type(factory)](factory, walk, depth + 1)
        except Refusal as inner:
            refusal = inner
    refusal.inside(value, ".default_factory")
    raise refusal


def _decode_factory(tree: Tree, walk: Decoders, depth: int) -> Any:
    factory = decode_any(tree, walk, depth + 1)
    if isinstance(factory, Opaque):
        raise NotDeclared(factory.type)
    if factory is not None and not isinstance(factory, type):
        raise Refusal("its default_factory is not a type")
    return factory


CONTAINERS: dict[type, tuple[str, Coder]] = {
    list: ("list", Coder(encode_list, items_coder(list, list, "list").decode)),
    dict: ("dict", Coder(encode_dict, pairs_coder(dict, dict, "dict").decode)),
    defaultdict: ("defaultdict", pairs_coder(defaultdict, defaultdict, "defaultdict")),
    **{cls: (cls.__name__, items_coder(cls, cls, cls.__name__)) for cls in (tuple, set, frozenset, deque)},
}
