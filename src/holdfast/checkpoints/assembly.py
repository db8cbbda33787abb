"""Chunks put together again: from a root to the whole tree, each chunk proved by its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from holdfast.checkpoints.chunks import Chunk
from holdfast.codec import Tree
from holdfast.codecs.json_bytes import from_bytes
from holdfast.digests import digest_of
from holdfast.errors import UnreadableValue

Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""
ReadChunks = Callable[[Iterable[int]], Awaitable[Packs]]

_KINDS = ("$ref", "$list", "$dict", "$text")
_MARK = b'{"$'
_MARKS = tuple(f'{{"{kind}":'.encode() for kind in (*_KINDS, "$plain"))


class Assembly:
    """Checkpoints of one thread, or events of a commit, in the reading. Commits are read level by level, each once."""

    def __init__(self, read_chunks: ReadChunks) -> None:
        self._read_chunks = read_chunks
        self._packs: dict[int, Mapping[str, bytes]] = {}
        self._trees: dict[str, Tree] = {}
        """Chunks that were read, by reference, with references inside."""
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, tuple[str, int]] = {}
        """References that were met, taken apart."""
        self._looked_into: dict[str, list[tuple[str, int]]] = {}
        self._plain: set[str] = set()
        """Those of them without references: they are taken as they are."""
        self.chunks: dict[str, Chunk] = {}
        """Those of the tree that was read last, as a `Chunker` knows them."""

    async def tree(self, root: bytes, what: str) -> tuple[Tree, tuple[Chunk, ...]]:
        """The whole tree, and the chunks that the root refers to. Raises UnreadableValue for what is missing or
        does not have its digest."""
        tree = from_bytes(root, what)
        if not _has_marks(root):
            return tree, ()
        wanted = [*_references(tree)]
        at_root = [ref for ref, _ in wanted]
        inside: dict[str, list[str]] = {}
        while wanted:
            await self._fetch(ref for ref, _ in wanted)
            wanted = [one for ref, depth in wanted if ref not in inside for one in self._take(ref, depth, inside)]
        return self._filled(tree), self._linked(at_root, inside)

    async def _fetch(self, refs: Iterable[str]) -> None:
        numbers = {number for ref in refs if (number := self._missing(ref)) is not None}
        if numbers:
            self._packs.update(await self._read_chunks(sorted(numbers)))

    def _missing(self, ref: Any) -> int | None:
        """The commit to read for it."""
        parts = self._parts.get(ref) if isinstance(ref, str) else None
        if parts is None:
            parts = self._parts[ref] = _split(ref)
        number = parts[1]
        return None if number in self._packs else number

    def _take(self, ref: str, depth: int, inside: dict[str, list[str]]) -> Iterable[tuple[str, int]]:
        """Look into one chunk: what it refers to, and at which depth of a hash tree that is (0: a value)."""
        if ref in self._looked_into:  # for another checkpoint
            inside[ref] = [one for one, _ in self._looked_into[ref]]
            return self._looked_into[ref]
        digest, number = self._parts[ref]
        data = self._packs.get(number, {}).get(digest)
        if data is None:
            raise UnreadableValue(f"chunk {ref}", f"commit {number} does not hold it")
        if digest_of(data) != digest:
            raise UnreadableValue(f"chunk {ref}", "its content does not have its digest: it was changed or damaged")
        tree = self._trees[ref] = from_bytes(data, f"chunk {ref}")
        self._sizes[ref] = len(data)
        if depth:
            found = [(one, depth - 1) for one in _listed(tree, ref)]
        elif _has_marks(data):
            found = [*_references(tree)]
        else:
            found = []
            self._plain.add(ref)
        inside[ref] = [one for one, _ in found]
        self._looked_into[ref] = found
        return found

    def _linked(self, at_root: list[str], inside: dict[str, list[str]]) -> tuple[Chunk, ...]:
        self.chunks = {}
        for ref in inside:
            digest, number = self._parts[ref]
            self.chunks[ref] = Chunk(digest, number, self._sizes[ref], ())
        for ref, kids in inside.items():
            self.chunks[ref].kids = tuple([self.chunks[kid] for kid in kids])
        return tuple([self.chunks[ref] for ref in at_root])

    # ------------------------------------------------------------ from references to values

    def _filled(self, tree: Tree) -> Tree:
        if type(tree) is list:
            return [item if type(item) not in (list, dict) else self._filled(item) for item in tree]
        if type(tree) is not dict:
            return tree
        kind = next(iter(tree), "")
        if kind in _KINDS:
            return self._value(kind, tree[kind], tree.get("depth", 0))
        if kind == "$plain":
            return dict(self._filled(tree[kind]))
        return {key: item if type(item) not in (list, dict) else self._filled(item) for key, item in tree.items()}

    def _value(self, kind: str, ref: str, depth: int) -> Tree:
        if kind == "$ref":
            return self._whole(ref)
        leaves = [ref]
        for _ in range(depth):
            leaves = [one for node in leaves for one in self._trees[node]["$of"]]
        if kind == "$text":
            return "".join([self._trees[leaf] for leaf in leaves])
        if kind == "$list":
            return [item for leaf in leaves for item in self._whole(leaf)]
        return {key: item for leaf in leaves for key, item in self._part(leaf).items()}

    def _whole(self, ref: str) -> Tree:
        tree = self._trees[ref]
        return tree if ref in self._plain else self._filled(tree)

    def _part(self, ref: str) -> dict[str, Tree]:
        """Of a dict: its own first key is none of ours, whatever it looks like."""
        tree = self._trees[ref]
        return tree if ref in self._plain else {key: self._filled(item) for key, item in tree.items()}


def _has_marks(data: bytes) -> bool:
    return _MARK in data and any(mark in data for mark in _MARKS)


def _listed(tree: Tree, ref: str) -> list[Any]:
    found = tree.get("$of") if isinstance(tree, dict) else None
    if not isinstance(found, list):
        raise UnreadableValue(f"chunk {ref}", "it is not a node of a hash tree")
    return found


def _split(ref: Any) -> tuple[str, int]:
    digest, _, number = ref.partition(".") if isinstance(ref, str) else ("", "", "")
    if not number.isdecimal() or len(number) > 18:
        raise UnreadableValue("reference", f"{ref!r} is not a reference to a chunk")
    return digest, int(number)


def _references(tree: Tree) -> Iterable[tuple[str, int]]:
    """Those in a tree, with the height of the hash trees that they are the top of."""
    if type(tree) is list:
        for item in tree:
            if type(item) is dict or type(item) is list:
                yield from _references(item)
    elif type(tree) is dict:
        kind = next(iter(tree), "")
        if kind in _KINDS:
            yield tree[kind], tree.get("depth", 0)
        else:
            for item in tree.values():
                if type(item) is dict or type(item) is list:
                    yield from _references(item)
