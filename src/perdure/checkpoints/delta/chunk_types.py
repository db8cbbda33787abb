"""Chunks, the memo of what did not change, and the escaping of users' dicts that look like references."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any
from zlib import crc32

import msgspec

from perdure.codec import Tree

NODE = 128
"""Average bytes of a node: small, since an append writes one node of each layer again."""
WIDE = 2 * NODE
"""The average if its elements are values: references to smaller nodes would outweigh the values."""
MIN_NODE, MAX_NODE = NODE // 2, NODE * 4

MIN_TEXT, MAX_TEXT = 1024, 8192
REFERENCES = b'{"$of":[%b]}'
"""A node of references. No value has this form: a user's list of such texts stays a list."""


@cache
def _cutting_points() -> re.Pattern[str]:
    """Where a text may be cut: at the end of a line, and about every 80th character of any script. Compiling the
    pattern takes some milliseconds."""
    first = "".join([re.escape(chr(code)) for code in range(3, 0xD800, 7)])
    second = "".join([re.escape(chr(code)) for code in range(5, 0xD800, 11)])
    # Emoji as a few ranges: a class with many single characters beyond 0xFFFF is a hundred times slower.
    first += "".join([f"{chr(code)}-{chr(code + 31)}" for code in range(0x1F320, 0x1FB00, 256)])
    second += "".join([f"{chr(code)}-{chr(code + 31)}" for code in range(0x1F360, 0x1FB00, 256)])
    return re.compile(rf"\n|[{first}][{second}]")


def cut_text(text: str, start: int) -> list[str]:
    """The consecutive parts of the text from `start` on."""
    parts = []
    size = len(text)
    search = _cutting_points().search
    while size - start > MIN_TEXT:
        match = search(text, start + MIN_TEXT, min(start + MAX_TEXT, size))
        end = match.end() if match is not None else min(start + MAX_TEXT, size)
        parts.append(text[start:end])
        start = end
    if start < size or not parts:
        parts.append(text[start:])
    return parts


class Chunk(msgspec.Struct, eq=False, gc=False):
    """A stored piece, and how many others refer to it. `gc=False`: no chunk refers to one that refers to it."""

    digest: str
    number: int
    """The commit that holds it."""
    size: int
    kids: tuple[Chunk, ...]
    """The chunks that it refers to."""
    uses: int = 0
    text: str | None = None
    """Its text, if the chunker looks it up by that."""

    @property
    def reference(self) -> bytes:
        """As JSON."""
        return f'"{self.digest}.{self.number}"'.encode()


Piece = tuple[bytes, tuple[Chunk, ...]]
"""JSON of a value, and the chunks it refers to."""
MakeChunk = Callable[[bytes, tuple[Chunk, ...]], Chunk]
"""Stores the JSON of a node with the chunks it refers to."""
Same = tuple[int, int]
"""How many at the beginning, and how many at the end."""


class Layers(msgspec.Struct):
    """The hash tree over the elements of one list, dict or text: nodes of elements, nodes of those, up to one."""

    _layers: list[_Layer] = []

    def update(self, elements: Sequence[Piece], same: Same, form: bytes, make: MakeChunk) -> tuple[Chunk, int]:
        """The top node and its height for these elements. The JSON of a node is `form` around its elements.

        `same`: how many of them, at both ends, are unchanged.
        """
        height = 0
        while True:
            if height == len(self._layers):
                self._layers.append(_Layer())
                same = (0, 0)
            layer = self._layers[height]
            same = layer.update(elements, same, form, make)
            if len(layer.nodes) == 1:
                del self._layers[height + 1 :]
                return layer.nodes[0][1][0], height
            elements = layer.nodes
            form = REFERENCES
            height += 1


class _Layer(msgspec.Struct):
    nodes: list[Piece] = []
    """The nodes, as elements of the layer above."""
    ends: list[int] = []
    """The index after the last element of each node."""

    def update(self, elements: Sequence[Piece], same: Same, form: bytes, make: MakeChunk) -> Same:
        """How many nodes, at both ends, are unchanged."""
        first, last = same
        nodes, ends = self.nodes, self.ends
        kept = bisect_right(ends, first)
        if kept == len(ends) and kept:
            kept -= 1  # the end of the list cut the last node, not its content
        old_nodes, old_ends = nodes[kept:], ends[kept:]
        from_here: dict[int, int] = {}
        if last:
            shift = len(elements) - ends[-1]
            old_ends = [end + shift for end in old_ends]
            from_here = {end: index for index, end in enumerate(old_ends, 1) if end >= len(elements) - last}
        del nodes[kept:], ends[kept:]
        start = ends[-1] if ends else 0
        for end in find_cuts(elements, start):
            part = elements[start:end]
            kids = tuple([kid for _, held in part if held for kid in held])
            node = make(form % b",".join([inline for inline, _ in part]), kids)
            nodes.append((node.reference, (node,)))
            ends.append(end)
            start = end
            if end in from_here:  # the same cut as before: the rest is unchanged
                index = from_here[end]
                nodes += old_nodes[index:]
                ends += old_ends[index:]
                return kept, len(old_ends) - index
        return kept, 0


def find_cuts(elements: Sequence[Piece], start: int) -> Iterator[int]:
    """The ends of nodes. An element ends its node with a probability in proportion to its size."""
    size = 0
    for index in range(start, len(elements)):
        inline, kids = elements[index]
        length = len(inline) + 1
        size += length
        if size >= MIN_NODE and (size >= MAX_NODE or crc32(inline) * (NODE if kids else WIDE) < length << 32):
            yield index + 1
            size = 0
    if size or not elements:
        yield len(elements)


TEXTS_AND_INTS = frozenset({str, int})


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


def is_shorter(pieces: Sequence[Piece], size: int) -> bool:
    """Whether their JSON has at most this size. Looks only at as many pieces as exceed it."""
    for inline, _ in pieces:
        size -= len(inline)
        if size < 0:
            return False
    return True


def all_kids(pieces: list[Piece]) -> tuple[Chunk, ...]:
    return tuple([kid for _, kids in pieces if kids for kid in kids])


_NOTHING = object()


class Memo(msgspec.Struct):
    """The pieces of the value at one path of the tree, so that the chunker does not make unchanged ones again.

    All its chunks are in use by the last checkpoint. A value that a checkpoint lacks is forgotten, since the checkpoint
    drops its chunks.
    """

    is_large: bool = False
    """Whether it was large last time: then the chunker does not try the small form."""
    kind: type | None = None
    value: Any = _NOTHING
    piece: Piece = (b"", ())
    inside: dict[str, Memo] = {}
    items: list[Any] = []
    """The items of a list. Trees never change, so the same object is the same value."""
    raws: list[Any] = []
    """The items in comparable form."""
    pieces: list[Piece] = []
    layers: Layers | None = None

    def forget(self, kind: type | None) -> None:
        self.kind, self.value, self.piece, self.layers = kind, _NOTHING, (b"", ()), None
        self.inside, self.items, self.raws, self.pieces = {}, [], [], []

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
    return b"$" in data and _RESERVED.search(data) is not None


def escape(tree: Tree) -> Tree:
    """A copy without objects that look like references."""
    if type(tree) is list:
        return [escape(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if next(iter(tree), "") in RESERVED:
        return {"$plain": [[key, escape(item)] for key, item in tree.items()]}
    return {key: escape(item) for key, item in tree.items()}
