"""A thread's checkpoints as chunks, kept in a dict, with all that must hold of each proved when it is packed."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import msgspec

from perdure.checkpoints.delta.assembly import Assembly
from perdure.checkpoints.delta.chunk_types import Chunk
from perdure.checkpoints.delta.chunks import SMALL_ROOT, Base, Chunker, Packed
from perdure.codec import Tree
from perdure.names import SHORT

GRAPH = b'{"graph_signature_hash":"h"}'
exact = msgspec.json.encode  # distinguishes 1, 1.0 and True, 0.0 and -0.0, and orders of a dict


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


class PackedThread:
    """Packs trees as commits 1, 2, 3, ... and proves each."""

    def __init__(self) -> None:
        self.chunker = Chunker()
        self.packs: dict[int, dict[str, bytes]] = {}
        self.reaches: list[set[str]] = [set()]
        """References that each checkpoint has, by number."""
        self._root = b"{}"

    def pack(self, tree: dict[str, Tree], constant: bytes = GRAPH) -> Packed:
        number = len(self.packs) + 1
        as_after_a_restart = self._chunker_of_the_last().pack(number, tree, constant)
        packed = self.chunker.pack(number, tree, constant)
        assert packed.root is not None
        # What was large is still looked through when it has become small: then two forms are equal.
        if len(exact(tree)) > SMALL_ROOT and b'"$' not in exact(tree):
            assert (packed.root, packed.chunks) == (as_after_a_restart.root, as_after_a_restart.chunks)
            assert sorted(packed.dropped) == sorted(as_after_a_restart.dropped)

        self.packs[number] = packed.chunks
        self._root = packed.root
        stored, base = self.read(packed.root)
        chunks = chunks_of(base)
        assert exact(stored.pop("graph")) == constant
        assert exact(stored) == exact(tree)
        before, now = self.reaches[-1], {ref_of(chunk) for chunk in chunks}
        assert {f"{digest}.{number}" for digest in packed.chunks} == now - before
        assert sorted(packed.dropped) == sorted(map(shortened, before - now))
        assert {_digest(ref) for ref in before}.isdisjoint(packed.chunks), "stored though the parent has it"
        assert self.chunker.size == sum(chunk.size for chunk in chunks)
        self.reaches.append(now)
        return packed

    def pack_events(self, events: list[Tree]) -> bytes:
        """With the commit that was packed last."""
        number = len(self.packs)
        of_checkpoint, size = set(self.packs[number]), self.chunker.size
        body, refers, of_events = self.chunker.pack_events(events)
        tree, base = self.read(body)
        held = {ref_of(chunk) for chunk in chunks_of(base)}
        assert exact(tree) == exact(events)
        own = {f"{digest}.{number}" for digest in of_events}
        others = held - own
        assert set(of_events) == set(self.packs[number]) - of_checkpoint
        assert own <= held
        assert others <= self.reaches[-1]
        assert refers == bool(others)
        assert self.chunker.size == size
        return body

    def restart(self) -> None:
        """A new process continues from what is stored."""
        self.chunker = self._chunker_of_the_last()

    def _chunker_of_the_last(self) -> Chunker:
        _, base = self.read(self._root)
        return Chunker(base)

    def read(self, data: bytes) -> tuple[Tree, Base | None]:
        async def read_chunks(numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
            return {number: self.packs[number] for number in numbers if number in self.packs}

        tree, base = at_once(Assembly(read_chunks).tree(data, "what is tested"))
        return tree, base


def chunks_of(base: Base | None) -> list[Chunk]:
    return [] if base is None else [*base()[0]]


def ref_of(chunk: Chunk) -> str:
    return f"{chunk.digest}.{chunk.number}"


def _digest(ref: str) -> str:
    return ref.partition(".")[0]


def shortened(ref: str) -> str:
    """As it is listed among the dropped."""
    digest, _, number = ref.partition(".")
    return f"{digest[:SHORT]}.{number}"
