"""Assembling chunks: from a root to the whole tree, each chunk verified by its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.delta.chunk_types import Chunk
from perdure.checkpoints.delta.chunks import Base, no_chunks
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.names import digest_of
from perdure.records import CheckpointInfo
from perdure.store import Store

Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""
ReadChunks = Callable[[Iterable[int]], Awaitable[Packs]]
Recall = Callable[[], Awaitable[Packs]]
"""Chunks from a cache: some of the needed ones, none or all, possibly wrong."""

READS_WORTH_CACHING = 3
"""Reads of one checkpoint, level by level, after which the store is asked to cache its chunks."""

_KINDS = ("$ref", "$list", "$dict", "$text")
_MARK = b'{"$'
_MARKS = tuple(f'{{"{kind}":'.encode() for kind in (*_KINDS, "$plain"))


class Assembly:
    """Assembles checkpoints of one thread, or events of a commit. Reads commits level by level, each once."""

    def __init__(
        self, read_chunks: ReadChunks, recall: Recall | None = None, known: Mapping[str, bytes] | None = None
    ) -> None:
        """`known`: chunks that the caller has, by digest. These are not read."""
        self._read_chunks = read_chunks
        self._known = known or {}
        self._recall = recall
        self.reads = 0
        """How often it read from the store. Each read fetches the chunks that those of the read before refer to."""
        self._packs: dict[int, Mapping[str, bytes]] = {}
        self._trees: dict[str, Tree] = {}
        """Chunks so far, by reference, with references inside."""
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, tuple[str, int]] = {}
        """References so far, split into digest and commit."""
        self._pointers: dict[str, Sequence[tuple[str, int]]] = {}
        self._plain: set[str] = set()
        """Chunks without references, which need no filling."""

    async def tree(self, root: bytes, what: str) -> tuple[Tree, Base]:
        """The whole tree, and its chunks. Raises UnreadableValue for a chunk that is missing or does not match its
        digest."""
        tree = from_bytes(root, what)
        if not _has_marks(root):
            return tree, no_chunks
        wanted = [*_references(tree)]
        inside = await self._fetch_all(wanted)
        at_root = [ref for ref, _ in wanted]
        return self._fill(tree), partial(_link, at_root, inside, self._parts, self._sizes)

    @property
    def numbers(self) -> set[int]:
        """The commits that hold the assembled chunks."""
        return {number for _, number in self._parts.values()}

    async def _fetch_all(self, at_root: Sequence[tuple[Any, int]]) -> dict[str, Sequence[str]]:
        """The references inside each chunk below a root, which it fetches level by level."""
        recalled: Packs = {}
        if self._recall is not None and any(depth for _, depth in at_root):  # else one or two reads are enough
            recall, self._recall = self._recall, None
            recalled = await recall()
            self._packs = {**recalled, **self._packs}
        try:
            return await self._fetch_below(at_root)
        except UnreadableValue:
            if not recalled:
                raise
            # Only the store decides what is damaged, not the cache.
            self._packs = {}
            return await self._fetch_below(at_root)

    async def _fetch_below(self, wanted: Sequence[tuple[Any, int]]) -> dict[str, Sequence[str]]:
        inside: dict[str, Sequence[str]] = {}
        while wanted:
            await self._fetch(wanted)
            wanted = [
                pointer for ref, depth in wanted if ref not in inside for pointer in self._take(ref, depth, inside)
            ]
        return inside

    async def _fetch(self, wanted: Iterable[tuple[Any, int]]) -> None:
        parts, packs = self._parts, self._packs
        numbers = set()
        for ref, _ in wanted:
            part = parts.get(ref) if type(ref) is str else None
            if part is None:
                part = parts[ref] = _split(ref)
            if part[1] not in packs and part[0] not in self._known:
                numbers.add(part[1])
        if numbers:
            self.reads += 1
            packs.update(await self._read_chunks(sorted(numbers)))

    def _take(self, ref: str, depth: int, inside: dict[str, Sequence[str]]) -> Iterable[tuple[str, int]]:
        """The references inside one chunk, each with its depth in a hash tree (0: a value)."""
        if ref in self._pointers:  # for another checkpoint
            inside[ref] = [child for child, _ in self._pointers[ref]]
            return self._pointers[ref]
        data = self._known.get(self._parts[ref][0]) or self._read_verified(ref)
        tree = self._trees[ref] = from_bytes(data, f"chunk {ref}")
        self._sizes[ref] = len(data)
        if depth:
            pointers = [(child, depth - 1) for child in _children(tree, ref)]
        elif _has_marks(data):
            pointers = [*_references(tree)]
        else:
            self._plain.add(ref)
            self._pointers[ref] = inside[ref] = ()
            return ()
        inside[ref] = [child for child, _ in pointers]
        self._pointers[ref] = pointers
        return pointers

    def _read_verified(self, ref: str) -> bytes:
        digest, number = self._parts[ref]
        try:
            data = self._packs[number][digest]
        except KeyError:
            raise UnreadableValue(f"chunk {ref}", f"commit {number} does not hold it") from None
        if digest_of(data) != digest:
            raise UnreadableValue(f"chunk {ref}", "its content does not match its digest: it was changed or damaged")
        return data

    def _fill(self, tree: Tree) -> Tree:
        if type(tree) is list:
            return [item if type(item) not in (list, dict) else self._fill(item) for item in tree]
        if type(tree) is not dict:
            return tree
        kind = next(iter(tree), "")
        if kind in _KINDS:
            return self._value(kind, tree[kind], tree.get("depth", 0))
        if kind == "$plain":
            return dict(self._fill(tree[kind]))
        return {key: item if type(item) not in (list, dict) else self._fill(item) for key, item in tree.items()}

    def _value(self, kind: str, ref: str, depth: int) -> Tree:
        if kind == "$ref":
            return self._whole(ref)
        leaves = [ref]
        for _ in range(depth):
            leaves = [child for node in leaves for child in self._trees[node]["$of"]]
        if kind == "$text":
            return "".join([self._trees[leaf] for leaf in leaves])
        if kind == "$list":
            return [item for leaf in leaves for item in self._whole(leaf)]
        return {key: item for leaf in leaves for key, item in self._part(leaf).items()}

    def _whole(self, ref: str) -> Tree:
        tree = self._trees[ref]
        return tree if ref in self._plain else self._fill(tree)

    def _part(self, ref: str) -> dict[str, Tree]:
        """A part of a dict: its first key is the user's, even if it looks like a reference."""
        tree = self._trees[ref]
        return tree if ref in self._plain else {key: self._fill(item) for key, item in tree.items()}


def _link(
    at_root: list[str], inside: dict[str, Sequence[str]], parts: dict[str, tuple[str, int]], sizes: dict[str, int]
) -> tuple[list[Chunk], tuple[Chunk, ...]]:
    """The chunks as a `Chunker` needs them, linked only when another checkpoint follows."""
    chunks = {ref: Chunk(*parts[ref], sizes[ref], ()) for ref in inside}
    for ref, kids in inside.items():
        if kids:
            chunks[ref].kids = tuple([chunks[kid] for kid in kids])
    return list(chunks.values()), tuple([chunks[ref] for ref in at_root])


def _has_marks(data: bytes) -> bool:
    return _MARK in data and any(mark in data for mark in _MARKS)


def _children(tree: Tree, ref: str) -> list[Any]:
    children = tree.get("$of") if isinstance(tree, dict) else None
    if not isinstance(children, list):
        raise UnreadableValue(f"chunk {ref}", "it is not a node of a hash tree")
    return children


def _split(ref: Any) -> tuple[str, int]:
    digest, _, number = ref.partition(".") if isinstance(ref, str) else ("", "", "")
    if not number.isdecimal() or len(number) > 18:
        raise UnreadableValue("reference", f"{ref!r} is not a reference to a chunk")
    return digest, int(number)


def _references(tree: Tree) -> Iterable[tuple[str, int]]:
    """The references in a tree, each with the height of the hash tree below it."""
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


def new_assembly(
    store: Store, thread_id: str, *, recalls: bool = False, known: Mapping[str, bytes] | None = None
) -> Assembly:
    """`recalls`: the store's cache comes first, if it has one (`AcceleratedStore`). `known` is that of `Assembly`."""

    async def read_chunks(numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        with storage_errors(store, "read chunks"):
            return await store.read_chunks(thread_id, numbers)

    recall = getattr(store, "recall", None) if recalls else None
    return Assembly(read_chunks, None if recall is None else partial(recall, thread_id), known)


async def read_whole_tree(
    store: Store, thread_id: str, data: bytes, what: str, assembly: Assembly | None = None
) -> tuple[Tree, Base]:
    """Raises UnreadableValue, whatever the bytes hold. `assembly` has the chunks of the thread read so far."""
    assembly = new_assembly(store, thread_id) if assembly is None else assembly
    try:
        tree, base = await assembly.tree(data, what)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableValue(what, f"its chunks do not fit together ({error!r})") from error
    return tree, base


async def read_checkpoint_tree(
    store: Store,
    root: bytes,
    info: CheckpointInfo,
    assembly: Assembly | None = None,
    known: Mapping[str, bytes] | None = None,
) -> tuple[Tree, Base]:
    """A whole checkpoint, undecoded. Raises DamagedCheckpoint."""
    own = new_assembly(store, info.thread_id, recalls=True, known=known) if assembly is None else assembly
    try:
        tree, base = await read_whole_tree(store, info.thread_id, root, f"checkpoint {info.checkpoint_id!r}", own)
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error
    except DamagedCheckpoint as error:  # another commit holds one of its chunks
        raise DamagedCheckpoint(info.checkpoint_id, error.reason, info.thread_id) from error
    remember = getattr(store, "remember", None)
    if remember is not None and own is not assembly and own.reads >= READS_WORTH_CACHING:
        remember(info.thread_id, info.number, own.numbers)
    return tree, base
