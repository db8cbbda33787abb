"""Assembly: it joins chunks with few reads, and names missing or damaged chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.property.changing_trees import PROSE
from tests.property.packed_threads import PackedThread, at_once, exact

from perdure import UnreadableValue
from perdure.checkpoints.delta.assembly import Assembly
from perdure.checkpoints.delta.chunks import Chunker
from perdure.names import digest_of

STATE = {
    "text": PROSE[:20_000],
    "items": [f"item {index}" for index in range(900)],
    "map": {f"key {index}": PROSE[index : index + 90] for index in range(200)},
    "nested": [{"inside": PROSE[500:2_500]}],
}


class Reads:
    """Stored packs, and which of them were read."""

    def __init__(self, packs: Mapping[int, Mapping[str, bytes]]) -> None:
        self.packs = packs
        self.calls: list[list[int]] = []

    async def __call__(self, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        self.calls.append(list(numbers))
        return {number: self.packs[number] for number in self.calls[-1] if number in self.packs}


def one_commit() -> tuple[bytes, dict[str, bytes]]:
    packed = Chunker().pack(1, {"state": STATE})
    assert packed.root is not None
    return packed.root, packed.chunks


def read(root: bytes, packs: Mapping[int, Mapping[str, bytes]]) -> Any:
    return at_once(Assembly(Reads(packs)).tree(root, "the checkpoint"))[0]


def test_chunks_of_one_commit_are_read_in_one_call() -> None:
    root, chunks = one_commit()
    reads = Reads({1: chunks})
    tree, _ = at_once(Assembly(reads).tree(root, "the checkpoint"))
    assert tree["state"] == STATE
    assert reads.calls == [[1]]


def test_a_tree_without_references_reads_nothing() -> None:
    reads = Reads({})
    tree, base = at_once(Assembly(reads).tree(b'{"state":{"a":"{\\"$ref\\":1}"}}', "the checkpoint"))
    assert (tree, base, reads.calls) == ({"state": {"a": '{"$ref":1}'}}, None, [])


def test_each_commit_is_read_once_for_all_its_chunks() -> None:
    thread, items = PackedThread(), [PROSE[index * 10 : index * 10 + 700] for index in range(60)]
    roots = [thread.pack({"state": {"items": items[:count]}}).root or b"" for count in range(1, 60)]
    reads = Reads(thread.packs)
    at_once(Assembly(reads).tree(roots[-1], "the checkpoint"))
    numbers = [number for call in reads.calls for number in call]
    assert len(numbers) == len(set(numbers))
    assert len(reads.calls) <= 6


def test_part_used_in_two_places_becomes_two_values() -> None:
    packed = Chunker().pack(1, {"state": {"a": STATE["items"], "b": STATE["items"], "c": [STATE["nested"]] * 2}})
    assert packed.root is not None
    state = read(packed.root, {1: packed.chunks})["state"]
    state["a"].append("changed")
    state["c"][0][0]["inside"] = "changed"
    assert state["b"] == STATE["items"]
    assert state["c"][1] == STATE["nested"]


def test_missing_chunk_is_named() -> None:
    root, chunks = one_commit()
    for digest in [*chunks][::9]:
        packs = {1: {key: chunk for key, chunk in chunks.items() if key != digest}}
        with pytest.raises(UnreadableValue, match=rf"chunk {digest}\.1: commit 1 does not hold it".replace("+", r"\+")):
            read(root, packs)
    with pytest.raises(UnreadableValue, match="commit 1 does not hold it"):
        read(root, {})


def test_changed_chunk_is_named() -> None:
    root, chunks = one_commit()
    for digest, chunk in [*chunks.items()][::9]:
        for damaged in (chunk[:-1] + b" ", chunk + b" ", chunk[:-1], b""):
            with pytest.raises(UnreadableValue, match="does not match its digest: it was changed or damaged"):
                read(root, {1: {**chunks, digest: damaged}})


def test_swapped_chunks_are_detected() -> None:
    root, chunks = one_commit()
    first, second, *_ = chunks
    with pytest.raises(UnreadableValue, match="does not match its digest"):
        read(root, {1: {**chunks, first: chunks[second], second: chunks[first]}})


def with_chunk(data: bytes) -> tuple[str, dict[int, dict[str, bytes]]]:
    return f"{digest_of(data)}.1", {1: {digest_of(data): data}}


@pytest.mark.parametrize("ref", ["1", "abc", "abc.", ".", "abc.-1", "abc.x", "abc.1.5", "abc.²", 7, None, ["a.1"], {}])
def test_invalid_reference_raises(ref: object) -> None:
    with pytest.raises(UnreadableValue):
        read(exact({"state": {"$ref": ref}}), {})


@pytest.mark.parametrize("data", [b"[1]", b'"x"', b"1", b"null", b'{"a":1}', b'{"$of":1}', b'{"$of":{}}', b"{}"])
def test_chunk_that_is_not_a_node_raises_where_a_node_belongs(data: bytes) -> None:
    ref, packs = with_chunk(data)
    with pytest.raises(UnreadableValue, match="it is not a node of a hash tree"):
        read(exact({"state": {"$list": ref, "depth": 1}}), packs)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1,", b"1" * 5_000])
def test_chunk_or_root_that_is_not_json_raises(data: bytes) -> None:
    ref, packs = with_chunk(data)
    with pytest.raises(UnreadableValue, match=r"chunk .* is not valid JSON"):
        read(exact({"state": {"$ref": ref}}), packs)
    with pytest.raises(UnreadableValue, match="the checkpoint: it is not valid JSON"):
        read(data, {})


def test_chunker_continues_from_the_chunks_that_were_read() -> None:
    root, chunks = one_commit()
    _, base = at_once(Assembly(Reads({1: chunks})).tree(root, "the checkpoint"))
    assert base is not None
    assert {chunk.digest for chunk in base()[0]} == set(chunks)
    assert all(chunk.size == len(chunks[chunk.digest]) for chunk in base()[0])
    again = Chunker(base).pack(2, {"state": STATE})
    assert (again.root, again.chunks, again.dropped) == (root, {}, ())
