"""The pieces that a checkpoint is cut into, and what they refer to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.checkpoints.cutting import Same
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
