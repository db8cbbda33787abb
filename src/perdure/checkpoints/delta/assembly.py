"""Chunks put together again: from a root to the whole tree, each chunk proved by its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from perdure.checkpoints.delta.chunk_types import Chunk
from perdure.checkpoints.delta.chunks import Base, no_chunks
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.digests import digest_of
from perdure.errors import UnreadableValue

Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""
ReadChunks = Callable[[Iterable[int]], Awaitable[Packs]]
Recall = Callable[[], Awaitable[Packs]]
"""What is at hand without asking the store: some of what is needed, all or nothing of it, and maybe wrong."""

_KINDS = ("$ref", "$list", "$dict", "$text")
_MARK = b'{"$'
_MARKS = tuple(f'{{"{kind}":'.encode() for kind in (*_KINDS, "$plain"))


class Assembly:
    """Checkpoints of one thread, or events of a commit, in the reading. Commits are read level by level, each once."""

    def __init__(self, read_chunks: ReadChunks, recall: Recall | None = None) -> None:
        self._read_chunks = read_chunks
        self._recall = recall
        self.reads = 0
        """How often the store was asked, each time for what the chunks of the time before refer to."""
        self._packs: dict[int, Mapping[str, bytes]] = {}
        self._trees: dict[str, Tree] = {}
        """Chunks that were read, by reference, with references inside."""
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, tuple[str, int]] = {}
        """References that were met, taken apart."""
        self._looked_into: dict[str, Sequence[tuple[str, int]]] = {}
        self._plain: set[str] = set()
        """Those of them without references: they are taken as they are."""

    async def tree(self, root: bytes, what: str) -> tuple[Tree, Base]:
        """The whole tree, and the chunks in it. Raises UnreadableValue for what is missing or does not have its
        digest."""
        tree = from_bytes(root, what)
        if not _has_marks(root):
            return tree, no_chunks
        wanted = [*_references(tree)]
        inside = await self._fetch_all(wanted)
        at_root = [ref for ref, _ in wanted]
        return self._filled(tree), partial(_linked, at_root, inside, self._parts, self._sizes)

    @property
    def numbers(self) -> set[int]:
        """The commits that hold what was put together."""
        return {number for _, number in self._parts.values()}

    async def _fetch_all(self, at_root: Sequence[tuple[Any, int]]) -> dict[str, Sequence[str]]:
        """All chunks below a root, level by level: what each of them refers to."""
        recalled: Packs = {}
        if self._recall is not None and any(depth for _, depth in at_root):  # else one read or two do
            recall, self._recall = self._recall, None
            recalled = await recall()
            self._packs = {**recalled, **self._packs}
        try:
            return await self._fetch_below(at_root)
        except UnreadableValue:
            if not recalled:
                raise
            # The store says what is damaged, nobody else.
            self._packs = {}
            return await self._fetch_below(at_root)

    async def _fetch_below(self, wanted: Sequence[tuple[Any, int]]) -> dict[str, Sequence[str]]:
        inside: dict[str, Sequence[str]] = {}
        while wanted:
            await self._fetch(wanted)
            wanted = [one for ref, depth in wanted if ref not in inside for one in self._take(ref, depth, inside)]
        return inside

    async def _fetch(self, wanted: Iterable[tuple[Any, int]]) -> None:
        parts, packs = self._parts, self._packs
        numbers = set()
        for ref, _ in wanted:
            found = parts.get(ref) if type(ref) is str else None
            if found is None:
                found = parts[ref] = _split(ref)
            if found[1] not in packs:
                numbers.add(found[1])
        if numbers:
            self.reads += 1
            packs.update(await self._read_chunks(sorted(numbers)))

    def _take(self, ref: str, depth: int, inside: dict[str, Sequence[str]]) -> Iterable[tuple[str, int]]:
        """Look into one chunk: what it refers to, and at which depth of a hash tree that is (0: a value)."""
        if ref in self._looked_into:  # for another checkpoint
            inside[ref] = [one for one, _ in self._looked_into[ref]]
            return self._looked_into[ref]
        digest, number = self._parts[ref]
        try:
            data = self._packs[number][digest]
        except KeyError:
            raise UnreadableValue(f"chunk {ref}", f"commit {number} does not hold it") from None
        if digest_of(data) != digest:
            raise UnreadableValue(f"chunk {ref}", "its content does not have its digest: it was changed or damaged")
        tree = self._trees[ref] = from_bytes(data, f"chunk {ref}")
        self._sizes[ref] = len(data)
        if depth:
            found = [(one, depth - 1) for one in _listed(tree, ref)]
        elif _has_marks(data):
            found = [*_references(tree)]
        else:
            self._plain.add(ref)
            self._looked_into[ref] = inside[ref] = ()
            return ()
        inside[ref] = [one for one, _ in found]
        self._looked_into[ref] = found
        return found

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


def _linked(
    at_root: list[str], inside: dict[str, Sequence[str]], parts: dict[str, tuple[str, int]], sizes: dict[str, int]
) -> tuple[list[Chunk], tuple[Chunk, ...]]:
    """As a `Chunker` knows them. Needed only where another checkpoint follows, and made then."""
    chunks = {ref: Chunk(*parts[ref], sizes[ref], ()) for ref in inside}
    for ref, kids in inside.items():
        if kids:
            chunks[ref].kids = tuple([chunks[kid] for kid in kids])
    return list(chunks.values()), tuple([chunks[ref] for ref in at_root])


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
