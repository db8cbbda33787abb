"""A commit's payload as one piece of JSON, and the seal that binds it to its place."""

from __future__ import annotations

import msgspec
import pytest
from tests.property.changing_trees import PROSE

from perdure.checkpoints.delta.chunks import Chunker
from perdure.names import digest_of
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents
from perdure.stores.packing import NOTHING, pack_body, seal, unpack_body, unpack_chunks, with_body

LEASE = Lease("t", "owner", 1)
INFO = CheckpointInfo("c", "t", "w", 1, 1, None, "2026-01-01T00:00:00+00:00")


def full_commit() -> Commit:
    chunker = Chunker()
    packed = chunker.pack(1, {"state": {"text": PROSE[:9_000], "items": [1, True, 1.0, -0.0, "é", None]}})
    packed_events = chunker.pack_events(
        [["output", "a", {"data": PROSE[9_000:12_000]}], ["output", "b", PROSE[:9_000]]]
    )
    events = LoggedEvents(1, 2, *packed_events)
    return Commit(LEASE, 1, INFO, packed.root, events, chunks=packed.chunks, dropped=["abc.1", "d/+.2"])


def test_a_payload_comes_back_to_the_byte() -> None:
    commit = full_commit()
    body = unpack_body(pack_body(commit))
    assert bytes(body.root) == commit.root
    chunks = unpack_chunks(pack_body(commit))
    assert chunks == commit.chunks
    assert all(digest_of(chunk) == digest for digest, chunk in chunks.items())
    assert list(body.dropped) == list(commit.dropped)
    assert with_body(commit, body).events == commit.events


def test_packing_again_gives_the_same_bytes() -> None:
    packed = pack_body(full_commit())
    assert msgspec.json.encode(unpack_body(packed)) == packed


@pytest.mark.parametrize("commit", [Commit(LEASE, 1), Commit(LEASE, 1, status="FAILED", run_id="run-1")])
def test_a_commit_with_nothing_to_keep_takes_two_bytes(commit: Commit) -> None:
    assert pack_body(commit) == b"{}"
    body = unpack_body(b"{}")
    assert body.root is NOTHING
    assert body.chunks == {}
    assert with_body(commit, body).events is None


def test_commit_with_events_only_differs_from_a_commit_without_events() -> None:
    commit = Commit(LEASE, 1, events=LoggedEvents(5, 1, b'[["status"]]'))
    body = unpack_body(pack_body(commit))
    assert with_body(commit, body).events == commit.events
    assert body.root is NOTHING


def test_the_payload_is_json_that_any_tool_can_read() -> None:
    commit = full_commit()
    tree = msgspec.json.decode(pack_body(commit))
    assert commit.root is not None
    assert tree["root"] == msgspec.json.decode(commit.root)
    assert set(tree["chunks"]) == set(commit.chunks)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b'{"chunks":1}', b'{"chunks":{"a":1}', b'{"own":[1]}', b"\xff"]
)
def test_bytes_that_are_not_a_payload_raise_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack_body(data)


def test_seal_depends_on_thread_number_and_payload() -> None:
    body = pack_body(full_commit())
    places = [("t", 1, body), ("u", 1, body), ("t", 2, body), ("t", 1, body[:-1]), ("t", 11, body[1:]), ("t1", 1, body)]
    seals = [seal(*place) for place in places]
    assert len(set(seals)) == len(places)
    assert seal("t", 1, body) == seals[0]
    assert {len(each) for each in seals} == {16}


def test_flipped_bit_changes_the_seal() -> None:
    body = b'{"root":{"state":{"a":1}}}'
    for index in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[index // 8] ^= 1 << index % 8
        assert seal("t", 1, bytes(flipped)) != seal("t", 1, body)
