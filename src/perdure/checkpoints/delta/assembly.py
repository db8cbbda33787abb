"""Assembling chunks: from a root to the whole tree, each chunk verified by its digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from perdure.checkpoints.access import storage_errors
from perdure.checkpoints.delta.chunk_types import Chunk, looks_like_chunks
from perdure.checkpoints.delta.chunks import Base
from perdure.codec import Tree
from perdure.codecs.walk import from_bytes
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.names import digest_of
from perdure.records import CheckpointInfo
from perdure.store import Store

Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""

READS_WORTH_CACHING = 3
"""Reads of one checkpoint, level by level, after which the store is asked to cache its chunks."""

_KINDS = ("$ref", "$list", "$dict", "$text")


class _Reference(NamedTuple):
    """Where a tree has a reference, or the pairs of a `$plain` dict, in place of a value."""

    container: Any
    key: Any
    kind: str
    at: Any
    """The reference, or the dict with the pairs."""
    depth: int
    """The height of the hash tree below the reference."""


class Assembly(msgspec.Struct):
    """Assembles checkpoints of one thread, or events of a commit. Reads commits level by level, each once."""

    _read_chunks: Callable[[Iterable[int]], Awaitable[Packs]]
    _recall: Callable[[], Awaitable[Packs]] | None = None
    """Returns chunks from a cache: some of the needed ones, none or all, possibly wrong."""
    _known: Mapping[str, bytes] = {}
    """Chunks that the caller has, by digest. These are not read."""
    reads: int = 0
    """How often it read from the store. Each read fetches the chunks that those of the read before refer to."""
    _packs: dict[int, Mapping[str, bytes]] = {}
    _sizes: dict[str, int] = {}
    _parts: dict[str, tuple[str, int]] = {}
    """References so far, split into digest and commit."""
    _pointers: dict[str, Sequence[tuple[Any, int]]] = {}
    """The references inside each chunk so far, with their depths."""
    _plain: dict[str, Tree] = {}
    """The values of chunks without references."""
    _unfilled: dict[str, tuple[list[Tree], list[_Reference]]] = {}
    """References to other chunks, filled when they are used for the first time."""

    async def tree(self, root: bytes, what: str) -> tuple[Tree, Base | None]:
        """The whole tree, and its chunks if it has any. Raises UnreadableValue, whatever the bytes hold, and for a
        chunk that is missing or does not match its digest."""
        tree = [from_bytes(root, what)]
        if not looks_like_chunks(root):
            return tree[0], None
        try:
            places = find_references(tree)
            wanted = pointers_of(places)
            inside = await self._fetch_all(wanted)
            self._fill(places)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UnreadableValue(what, f"its chunks do not fit together ({error!r})") from error
        return tree[0], partial(_link, [ref for ref, _ in wanted], inside, self._parts, self._sizes)

    @property
    def numbers(self) -> set[int]:
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
            below: list[tuple[Any, int]] = []
            for ref, depth in wanted:
                if ref not in inside:
                    pointers = self._pointers[ref] if ref in self._pointers else self._take(ref, depth)
                    inside[ref] = [child for child, _ in pointers] if pointers else ()
                    below += pointers
            wanted = below
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

    def _take(self, ref: str, depth: int) -> Sequence[tuple[Any, int]]:
        """Decode one chunk; the references inside it, each with its depth in a hash tree (0: a value)."""
        data = self._known.get(self._parts[ref][0]) or self._read_verified(ref)
        self._sizes[ref] = len(data)
        pointers: Sequence[tuple[Any, int]] = ()
        if depth:
            node = from_bytes(data, f"chunk {ref}")
            children = node.get("$of") if isinstance(node, dict) else None
            if not isinstance(children, list):
                raise UnreadableValue(f"chunk {ref}", "it is not a node of a hash tree")
            pointers = [(child, depth - 1) for child in children]
        elif looks_like_chunks(data):
            value = [from_bytes(data, f"chunk {ref}")]
            places = find_references(value)
            self._unfilled[ref] = value, places
            pointers = pointers_of(places)
        else:
            self._plain[ref] = from_bytes(data, f"chunk {ref}")
        self._pointers[ref] = pointers
        return pointers

    def _read_verified(self, ref: str) -> bytes:
        digest, number = self._parts[ref]
        try:
            data = self._packs[number][digest]
        except KeyError:
            raise UnreadableValue(f"chunk {ref}", f"commit {number} does not hold it") from None
        verify_chunk(ref, digest, data)
        return data

    def _fill(self, places: Iterable[_Reference]) -> None:
        """Put values in the places, the inner ones first."""
        for container, key, kind, at, depth in reversed([*places]):
            container[key] = dict(at[kind]) if kind == "$plain" else self._value(kind, at, depth)

    def _value(self, kind: str, ref: str, depth: int) -> Tree:
        if kind == "$ref":
            return self._whole(ref)
        leaves = [ref]
        for _ in range(depth):
            leaves = [child for node in leaves for child, _ in self._pointers[node]]
        if kind == "$text":
            return "".join([self._plain[leaf] for leaf in leaves])
        if kind == "$list":
            return [item for leaf in leaves for item in self._whole(leaf)]
        return {key: item for leaf in leaves for key, item in self._whole(leaf).items()}

    def _whole(self, ref: str) -> Tree:
        if ref in self._plain:
            return self._plain[ref]
        if ref not in self._unfilled:  # it was used before: each use is a value of its own
            self._take(ref, 0)
        value, places = self._unfilled.pop(ref)
        self._fill(places)
        return value[0]


def _link(
    at_root: list[str], inside: dict[str, Sequence[str]], parts: dict[str, tuple[str, int]], sizes: dict[str, int]
) -> tuple[list[Chunk], tuple[Chunk, ...]]:
    """The chunks as a `Chunker` needs them, linked only when another checkpoint follows."""
    chunks = {ref: Chunk(*parts[ref], sizes[ref], ()) for ref in inside}
    for ref, kids in inside.items():
        if kids:
            chunks[ref].kids = tuple([chunks[kid] for kid in kids])
    return list(chunks.values()), tuple([chunks[ref] for ref in at_root])


def verify_chunk(ref: str, digest: str, data: bytes) -> None:
    """Raises UnreadableValue."""
    if digest_of(data) != digest:
        raise UnreadableValue(f"chunk {ref}", "its content does not match its digest: it was changed or damaged")


def _split(ref: Any) -> tuple[str, int]:
    digest, _, number = ref.partition(".") if isinstance(ref, str) else ("", "", "")
    if not number.isdecimal() or len(number) > 18:
        raise UnreadableValue("reference", f"{ref!r} is not a reference to a chunk")
    return digest, int(number)


def find_references(root: list[Tree]) -> list[_Reference]:
    """The places in the tree that `root` holds, outer before inner ones."""
    places = []
    waiting: list[Any] = [root]
    while waiting:
        container = waiting.pop()
        for key, item in container.items() if type(container) is dict else enumerate(container):
            if type(item) is dict:
                kind = next(iter(item), "")
                if kind in _KINDS:
                    places.append(_Reference(container, key, kind, item[kind], item.get("depth", 0)))
                    continue
                if kind == "$plain":
                    places.append(_Reference(container, key, kind, item, 0))
                waiting.append(item)
            elif type(item) is list:
                waiting.append(item)
    return places


def pointers_of(places: Iterable[_Reference]) -> list[tuple[Any, int]]:
    """The references, each with the height of its hash tree."""
    return [(place.at, place.depth) for place in places if place.kind in _KINDS]


def new_assembly(
    store: Store, thread_id: str, *, recalls: bool = False, known: Mapping[str, bytes] | None = None
) -> Assembly:
    """`recalls`: the store's cache comes first, if it has one (`AcceleratedStore`). `known` is that of `Assembly`."""

    async def read_chunks(numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        with storage_errors(store, "read chunks"):
            return await store.read_chunks(thread_id, numbers)

    recall = getattr(store, "recall", None) if recalls else None
    return Assembly(read_chunks, None if recall is None else partial(recall, thread_id), known or {})


async def read_checkpoint_tree(
    store: Store,
    root: bytes,
    info: CheckpointInfo,
    assembly: Assembly | None = None,
    known: Mapping[str, bytes] | None = None,
) -> tuple[Tree, Base | None]:
    """A whole checkpoint, undecoded. Raises DamagedCheckpoint."""
    own = new_assembly(store, info.thread_id, recalls=True, known=known) if assembly is None else assembly
    try:
        tree, base = await own.tree(root, f"checkpoint {info.checkpoint_id!r}")
    except UnreadableValue as error:
        raise DamagedCheckpoint(info.checkpoint_id, str(error), info.thread_id) from error
    except DamagedCheckpoint as error:  # another commit holds one of its chunks
        raise DamagedCheckpoint(info.checkpoint_id, error.reason, info.thread_id) from error
    remember = getattr(store, "remember", None)
    if remember is not None and own is not assembly and own.reads >= READS_WORTH_CACHING:
        remember(info.thread_id, info.number, own.numbers)
    return tree, base
