"""Cutting by content: the same content is cut at the same places, wherever it stands and whatever is around it.

So an edit in the middle of something long changes the pieces it touches and the nodes above them, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
    codes = (*range(0xD800), *range(0x1F000, 0x1FC00))  # those in common use, emoji among them
    first = "".join([re.escape(chr(code)) for code in codes if code % 7 == 3])
    second = "".join([re.escape(chr(code)) for code in codes if code % 11 == 5])
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


class Layers(Generic[N]):
    """The hash tree over the elements of one list, dict or text: nodes of elements, nodes of those, up to one."""

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: list[_Layer[N]] = []

    def update(
        self, elements: Elements[N], same: int, form: bytes, make: Callable[[bytes, tuple[N, ...]], N]
    ) -> tuple[N, int]:
        """The top node and its height, now that the elements are these. The first `same` are as they were.

        `make` stores a node's JSON, which is `form` around its elements.
        """
        height = 0
        while True:
            if height == len(self._layers):
                self._layers.append(_Layer())
                same = 0
            layer = self._layers[height]
            same = layer.update(elements, same, form, make)
            if len(layer.nodes) == 1:
                del self._layers[height + 1 :]
                return layer.nodes[0], height
            elements = layer.as_elements
            form = REFERENCES
            height += 1


class _Layer(Generic[N]):
    __slots__ = ("as_elements", "ends", "nodes")

    def __init__(self) -> None:
        self.nodes: list[N] = []
        self.ends: list[int] = []
        """Index after the last element of each node."""
        self.as_elements: Elements[N] = []

    def update(self, elements: Elements[N], same: int, form: bytes, make: Callable[[bytes, tuple[N, ...]], N]) -> int:
        """How many nodes are as they were."""
        nodes, ends = self.nodes, self.ends
        kept = len(ends)
        # The last node was ended by the end of the list, not by what is in it.
        while kept and (ends[kept - 1] > same or kept == len(ends)):
            kept -= 1
        del nodes[kept:], ends[kept:], self.as_elements[kept:]
        start = ends[-1] if ends else 0
        for end in cuts(elements, start):
            part = elements[start:end]
            kids = tuple([kid for _, held in part if held for kid in held])
            node = make(form % b",".join([inline for inline, _ in part]), kids)
            nodes.append(node)
            ends.append(end)
            self.as_elements.append((node.quoted, (node,)))
            start = end
        return kept


def cuts(elements: Elements[N], start: int) -> list[int]:
    """Where nodes end. An element is the last of its node with a chance in proportion to its size."""
    found = []
    size = 0
    for index in range(start, len(elements)):
        inline = elements[index][0]
        length = len(inline) + 1
        size += length
        node = NODE if elements[index][1] else WIDE
        if size >= LEAST and (size >= MOST or crc32(inline) * node < length << 32):
            found.append(index + 1)
            size = 0
    if size or not found:
        found.append(len(elements))
    return found
