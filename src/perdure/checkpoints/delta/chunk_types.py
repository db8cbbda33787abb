"""Chunks, the memo of what did not change, and the escaping of users' dicts that look like references."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from perdure.checkpoints.delta.cutting import Layers, Same
from perdure.codec import Tree

TEXTS_AND_INTS = frozenset({str, int})


class Chunk:
    """A stored piece, and how many others refer to it."""

    __slots__ = ("digest", "kids", "number", "quoted", "size", "text", "uses")

    def __init__(self, digest: str, number: int, size: int, kids: tuple[Chunk, ...]) -> None:
        self.digest = digest
        self.size = size
        self.number = number
        """The commit that holds it."""
        self.kids = kids
        """The chunks that it refers to."""
        self.uses = 0
        self.quoted = f'"{digest}.{number}"'.encode()
        self.text: str | None = None
        """Its text, if the chunker looks it up by that."""

    @property
    def ref(self) -> str:
        return f"{self.digest}.{self.number}"


Piece = tuple[bytes, tuple[Chunk, ...]]
"""JSON of a value, and the chunks it refers to."""


def use(chunks: tuple[Chunk, ...]) -> None:
    for chunk in chunks:
        chunk.uses += 1


def same_ends(before: Sequence[Any], now: Sequence[Any]) -> Same:
    """How many items are equal at the beginning, and how many of the rest at the end."""
    if before == now:
        return len(now), 0
    shorter = min(len(before), len(now))
    first = next((index for index in range(shorter) if before[index] != now[index]), shorter)
    left = shorter - first
    last = next((index for index in range(left) if before[-1 - index] != now[-1 - index]), left)
    return first, last


def comparable(items: list[Tree]) -> list[Any]:
    """The items in a form whose equality is that of their JSON: 1 == True == 1.0, but their JSON differs."""
    return items if TEXTS_AND_INTS.issuperset(map(type, items)) else [*map(msgspec.json.encode, items)]


def walk_chunks(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
    for chunk in chunks:
        yield chunk
        yield from walk_chunks(chunk.kids)


def all_kids(pieces: list[Piece]) -> tuple[Chunk, ...]:
    return tuple([kid for _, kids in pieces if kids for kid in kids])


_NOTHING = object()


class Memo:
    """The pieces of the value at one path of the tree, so that the chunker does not make unchanged ones again.

    All its chunks are in use by the last checkpoint. A value that a checkpoint lacks is forgotten, since the checkpoint
    drops its chunks.
    """

    __slots__ = ("inside", "is_large", "items", "kind", "layers", "piece", "pieces", "raws", "value")

    def __init__(self) -> None:
        self.is_large = False
        """Whether it was large last time: then the chunker does not try the small form."""
        self.forget(None)

    def forget(self, kind: type | None) -> None:
        self.kind = kind
        self.value: Any = _NOTHING
        self.piece: Piece = (b"", ())
        self.inside: dict[str, Memo] = {}
        self.items: list[Any] = []
        """The items of a list. Trees never change, so the same object is the same value."""
        self.raws: list[Any] = []
        """The items in comparable form."""
        self.pieces: list[Piece] = []
        self.layers: Layers[Chunk] | None = None

    def at(self, key: str) -> Memo:
        memo = self.inside.get(key)
        if memo is None:
            memo = self.inside[key] = Memo()
        return memo

    def keep(self, keys: Collection[str]) -> None:
        if len(self.inside) > len(keys):
            self.inside = {key: memo for key, memo in self.inside.items() if key in keys}


RESERVED = frozenset({"$ref", "$list", "$dict", "$text", "$plain"})
"""First keys of references. A user's dict with such a key is stored as `$plain`."""
_RESERVED = re.compile(rb'\{"\$(?:ref|list|dict|text|plain)":')


def looks_like_chunks(data: bytes) -> bool:
    """Whether the JSON has an object that looks like a reference."""
    return b'{"$' in data and _RESERVED.search(data) is not None


def escape(tree: Tree) -> Tree:
    """A copy without objects that look like references."""
    if type(tree) is list:
        return [escape(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if next(iter(tree), "") in RESERVED:
        return {"$plain": [[key, escape(item)] for key, item in tree.items()]}
    return {key: escape(item) for key, item in tree.items()}
