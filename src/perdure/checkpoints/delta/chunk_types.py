"""The pieces that a checkpoint is cut into, and what they refer to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from perdure.checkpoints.delta.cutting import Layers, Same
from perdure.codec import Tree

TEXTS_AND_INTS = frozenset({str, int})


class Chunk:
    """A piece that is stored, and how many others refer to it."""

    __slots__ = ("digest", "kids", "number", "quoted", "size", "text", "uses")

    def __init__(self, digest: str, number: int, size: int, kids: tuple[Chunk, ...]) -> None:
        self.digest = digest
        self.size = size
        self.number = number
        """The commit that holds it."""
        self.kids = kids
        """What it refers to."""
        self.uses = 0
        self.quoted = f'"{digest}.{number}"'.encode()
        self.text: str | None = None
        """Set if it is known by its text."""

    @property
    def ref(self) -> str:
        return f"{self.digest}.{self.number}"


Piece = tuple[bytes, tuple[Chunk, ...]]
"""JSON of a value, and the chunks it refers to."""


def use(chunks: tuple[Chunk, ...]) -> None:
    for chunk in chunks:
        chunk.uses += 1


def same_ends(before: Sequence[Any], now: Sequence[Any]) -> Same:
    """How many at the beginning, and how many of the rest at the end, are equal."""
    if before == now:
        return len(now), 0
    shorter = min(len(before), len(now))
    first = next((index for index in range(shorter) if before[index] != now[index]), shorter)
    left = shorter - first
    last = next((index for index in range(left) if before[-1 - index] != now[-1 - index]), left)
    return first, last


def comparable(items: list[Tree]) -> list[Any]:
    """Texts and ints as they are, and nothing else: 1 == True == 1.0, and these are stored differently."""
    return items if TEXTS_AND_INTS.issuperset(map(type, items)) else [*map(msgspec.json.encode, items)]


def reached(chunks: Iterable[Chunk]) -> Iterable[Chunk]:
    for chunk in chunks:
        yield chunk
        yield from reached(chunk.kids)


def all_kids(pieces: list[Piece]) -> tuple[Chunk, ...]:
    return tuple([kid for _, kids in pieces if kids for kid in kids])


# ---------------------------------------------------------------- memo


_NOTHING = object()


class Memo:
    """What was made of the value at one place of the tree, so that what did not change is not made again.

    It is in step with the last checkpoint: all chunks that it names are in use. Whatever is not seen in a checkpoint is
    forgotten, since its chunks are dropped with it.
    """

    __slots__ = ("inside", "is_large", "items", "kind", "layers", "piece", "pieces", "raws", "value")

    def __init__(self) -> None:
        self.is_large = False
        """Whether it was when last seen: then there is no use in trying whether it is small."""
        self.forget(None)

    def forget(self, kind: type | None) -> None:
        self.kind = kind
        self.value: Any = _NOTHING
        self.piece: Piece = (b"", ())
        self.inside: dict[str, Memo] = {}
        self.items: list[Any] = []
        """Of a list. Trees are never changed, so the same object is the same value."""
        self.raws: list[Any] = []
        """The same, in a form that can be compared."""
        self.pieces: list[Piece] = []
        self.layers: Layers[Chunk] | None = None

    def at(self, key: str) -> Memo:
        found = self.inside.get(key)
        if found is None:
            found = self.inside[key] = Memo()
        return found

    def keep(self, keys: Collection[str]) -> None:
        if len(self.inside) > len(keys):
            self.inside = {key: one for key, one in self.inside.items() if key in keys}


# ---------------------------------------------------------------- escaping


RESERVED = frozenset({"$ref", "$list", "$dict", "$text", "$plain"})
"""First keys of objects that are not a user's. One of a user's own that has such a key is stored as `$plain`."""
_RESERVED = re.compile(rb'\{"\$(?:ref|list|dict|text|plain)":')


def looks_like_chunks(data: bytes) -> bool:
    """Whether there is an object in the JSON that would be taken for a reference."""
    return b'{"$' in data and _RESERVED.search(data) is not None


def escaped(tree: Tree) -> Tree:
    """The same, in which nothing looks like a reference."""
    if type(tree) is list:
        return [escaped(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if next(iter(tree), "") in RESERVED:
        return {"$plain": [[key, escaped(item)] for key, item in tree.items()]}
    return {key: escaped(item) for key, item in tree.items()}
