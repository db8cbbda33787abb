"""Cutting by content: the same content is cut at the same places, wherever it stands and whatever is around it.

So an edit in the middle of something long changes the pieces it touches and the nodes above them, and no others.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from typing import Generic, Protocol, TypeVar
from zlib import crc32

NODE = 128
"""Bytes that a node has on average: small, since an append writes one of each layer anew."""
WIDE = 2 * NODE
"""The same where its elements are values, rather than references: these would weigh more than what they refer to."""
LEAST, MOST = NODE // 2, NODE * 4

TEXT_LEAST, TEXT_MOST = 1024, 8192
REFERENCES = b'{"$of":[%b]}'
"""A node of references. Its form is that of no value: a list of texts that look like references is something else."""


@cache
def _cutting_places() -> re.Pattern[str]:
    """Where a text may be cut: at the end of a line, and about every 80th character of any script. Compiling it takes
    some milliseconds."""
    first = "".join([re.escape(chr(code)) for code in range(3, 0xD800, 7)])
    second = "".join([re.escape(chr(code)) for code in range(5, 0xD800, 11)])
    # Emoji as a few ranges: a class with many single characters beyond 0xFFFF is a hundred times slower.
    first += "".join([f"{chr(code)}-{chr(code + 31)}" for code in range(0x1F320, 0x1FB00, 256)])
    second += "".join([f"{chr(code)}-{chr(code + 31)}" for code in range(0x1F360, 0x1FB00, 256)])
    return re.compile(rf"\n|[{first}][{second}]")


def cut_text(text: str, start: int) -> list[str]:
    """Parts of the text from `start` on, one after the other."""
    parts = []
    size = len(text)
    search = _cutting_places().search
    while size - start > TEXT_LEAST:
        found = search(text, start + TEXT_LEAST, min(start + TEXT_MOST, size))
        end = found.end() if found is not None else min(start + TEXT_MOST, size)
        parts.append(text[start:end])
        start = end
    if start < size or not parts:
        parts.append(text[start:])
    return parts


class _Node(Protocol):
    @property
    def quoted(self) -> bytes: ...


N = TypeVar("N", bound=_Node)
Elements = list[tuple[bytes, tuple[N, ...]]]
"""JSON of each element, and the nodes that it refers to."""
Same = tuple[int, int]
"""How many at the beginning, and how many at the end."""


class Layers(Generic[N]):
    """The hash tree over the elements of one list, dict or text: nodes of elements, nodes of those, up to one."""

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: list[_Layer[N]] = []

    def update(
        self, elements: Elements[N], same: Same, form: bytes, make: Callable[[bytes, tuple[N, ...]], N]
    ) -> tuple[N, int]:
        """The top node and its height, now that the elements are these.

        `same`: how many of them, at both ends, are as they were. `make` stores a node's JSON, which is `form` around
        its elements.
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


class _Layer(Generic[N]):
    __slots__ = ("ends", "nodes")

    def __init__(self) -> None:
        self.nodes: Elements[N] = []
        """As the elements that they are for the layer above."""
        self.ends: list[int] = []
        """Index after the last element of each node."""

    def update(self, elements: Elements[N], same: Same, form: bytes, make: Callable[[bytes, tuple[N, ...]], N]) -> Same:
        """How many nodes, at both ends, are as they were."""
        first, last = same
        kept = bisect_right(self.ends, first)
        if kept == len(self.ends) and kept:
            kept -= 1  # the last node was ended by the end of the list, not by what is in it
        shift = len(elements) - (self.ends[-1] if self.ends else 0)
        from_here = {
            end + shift: index for index, end in enumerate(self.ends, 1) if end + shift >= len(elements) - last
        }
        nodes, ends = self.nodes[:kept], self.ends[:kept]
        start = ends[-1] if ends else 0
        rest = 0
        for end in cuts(elements, start):
            part = elements[start:end]
            kids = tuple([kid for _, held in part if held for kid in held])
            node = make(form % b",".join([inline for inline, _ in part]), kids)
            nodes.append((node.quoted, (node,)))
            ends.append(end)
            start = end
            if end in from_here:  # cut where it was cut before: from here on it is what it was
                index = from_here[end]
                rest = len(self.ends) - index
                nodes += self.nodes[index:]
                ends += [one + shift for one in self.ends[index:]]
                break
        self.nodes, self.ends = nodes, ends
        return kept, rest


def cuts(elements: Elements[N], start: int) -> Iterator[int]:
    """Where nodes end. An element is the last of its node with a chance in proportion to its size."""
    size = 0
    for index in range(start, len(elements)):
        inline, kids = elements[index]
        length = len(inline) + 1
        size += length
        if size >= LEAST and (size >= MOST or crc32(inline) * (NODE if kids else WIDE) < length << 32):
            yield index + 1
            size = 0
    if size or not elements:
        yield len(elements)
