"""Values whose type nobody declared here: readable, and stored again as they were."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import msgspec

from perdure.codec import Tree
from perdure.codecs.walk import INT_MAX, INT_MIN, MAX_DEPTH, Refusal, TooDeep, is_utf8, shown

# Trees hold up to three levels for each level of a value.
TREE_DEPTH = 3 * MAX_DEPTH + 3


@dataclass(frozen=True, eq=False)
class Opaque:
    """A stored value of a type that was not declared. Equal to another of the same stored form."""

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
    """A copy that shares nothing; refuses what is not a tree, so that nothing unreadable is stored."""
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
    raise Refusal(f"{shown(tree)} is not part of a JSON tree")
