"""The built-in containers that JSON does not have: tuple, sets, dicts with other keys, deque, defaultdict."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from perdure.codec import Tree
from perdure.codecs.values.scalars import Coder
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
    encode_sequence,
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


def encode_tuple(value: tuple[Any, ...], walk: Encoders, depth: int) -> Tree:
    return {"$type": "tuple", "items": encode_sequence(value, value, walk, depth)}


def encode_set(value: set[Any] | frozenset[Any], walk: Encoders, depth: int) -> Tree:
    items = in_order(encode_sequence(value, value, walk, depth))
    return {"$type": "set" if type(value) is set else "frozenset", "items": items}


def in_order(items: list[Tree]) -> list[Tree]:
    """Sorted by stored form: the order of a set differs in each process, and would change its encoding."""
    return sorted(items, key=msgspec.json.encode)


def _items_decoder(build: Callable[[list[Any]], Any]) -> Callable[[dict[str, Tree], Decoders, int], Any]:
    def decode_items(tree: dict[str, Tree], walk: Decoders, depth: int) -> Any:
        return build(decode_list(expect(tree["items"], list), walk, depth))

    return decode_items


def decode_any_dict(tree: dict[str, Tree], walk: Decoders, depth: int) -> dict[Any, Any]:
    return dict(decode_pairs(tree["items"], walk, depth))


def encode_deque(value: deque[Any], walk: Encoders, depth: int) -> Tree:
    return {"$type": "deque", "items": encode_sequence(value, value, walk, depth), "maxlen": value.maxlen}


def decode_deque(tree: dict[str, Tree], walk: Decoders, depth: int) -> deque[Any]:
    items = decode_list(expect(tree["items"], list), walk, depth)
    maxlen = tree["maxlen"]
    if maxlen is not None and expect(maxlen, int) < len(items):
        raise Refusal(f"it has {len(items)} items and a maxlen of {maxlen}")
    return deque(items, maxlen)


def encode_defaultdict(value: defaultdict[Any, Any], walk: Encoders, depth: int) -> Tree:
    return {
        "$type": "defaultdict",
        "factory": encode_factory(value, walk, depth),
        "items": encode_pairs(value.items(), value, walk, depth),
    }


def encode_factory(value: defaultdict[Any, Any], walk: Encoders, depth: int) -> Tree:
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


def decode_factory(tree: Tree, walk: Decoders, depth: int) -> Any:
    factory = decode_any(tree, walk, depth + 1)
    if isinstance(factory, Opaque):
        raise NotDeclared(factory.type)
    if factory is not None and not isinstance(factory, type):
        raise Refusal("its default_factory is not a type")
    return factory


def decode_defaultdict(tree: dict[str, Tree], walk: Decoders, depth: int) -> defaultdict[Any, Any]:
    return defaultdict(decode_factory(tree["factory"], walk, depth), decode_pairs(tree["items"], walk, depth))


CONTAINERS: dict[type, tuple[str, Coder]] = {
    list: ("list", Coder(encode_list, _items_decoder(list))),
    dict: ("dict", Coder(encode_dict, decode_any_dict)),
    tuple: ("tuple", Coder(encode_tuple, _items_decoder(tuple))),
    set: ("set", Coder(encode_set, _items_decoder(set))),
    frozenset: ("frozenset", Coder(encode_set, _items_decoder(frozenset))),
    deque: ("deque", Coder(encode_deque, decode_deque)),
    defaultdict: ("defaultdict", Coder(encode_defaultdict, decode_defaultdict)),
}
