"""Chunks from Valkey: large checkpoints are read in one go, and whatever lies there, what is read is what was saved."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest
import redis
from tests.valkey.acts import talk
from tests.valkey.others import Others
from tests.valkey.places import Place

from perdure import CheckpointNotFound, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.stores.valkey.store import AcceleratedStore, Valkey

ITEMS = 30
SQLITE = pytest.mark.parametrize("truth", ["sqlite"], indirect=True)
"""For what does not depend on the store."""


class Watched:
    """A storage over a store with Valkey, and how often the store itself was asked for chunks."""

    def __init__(self, truth: Place, url: str) -> None:
        self.plain = truth.storage()
        """The same without Valkey."""
        self.storage = truth.beside(url).storage()
        assert isinstance(self.storage.store, AcceleratedStore)
        self.store = self.storage.store
        self.reads = 0
        read_chunks = self.store.inner.read_chunks

        async def counted(thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
            self.reads += 1
            return await read_chunks(thread_id, numbers)

        self.store.inner.read_chunks = counted  # type: ignore[method-assign]  # a tap on the real method

    async def load(self, thread_id: str = "t") -> tuple[WorkflowCheckpoint | None, int]:
        """The newest checkpoint, and how often the store was asked for it."""
        self.reads = 0
        loaded = await self.storage.get_latest(thread_id=thread_id)
        await self.store._valkey.close()  # what waits to be sent is
        return loaded, self.reads


@pytest.fixture
async def watched(truth: Place, valkey_url: str) -> AsyncIterator[Watched]:
    made = Watched(truth, valkey_url)
    yield made
    await made.storage.close()
    await made.plain.close()


@pytest.fixture
def client(valkey_url: str) -> Any:
    with redis.Redis.from_url(valkey_url) as made:
        yield made


async def grow(storage: StoreCheckpointStorage, count: int, thread_id: str = "t", seed: int = 1) -> list[str]:
    """A thread whose list grows by one item a checkpoint; the ids of the checkpoints."""
    chance, items, ids = random.Random(seed), list[str](), list[str]()
    for number in range(count):
        items.append(chance.randbytes(400).hex())
        previous = ids[-1] if ids else None
        saved = WorkflowCheckpoint(
            "w", "hash", state={"items": items}, thread_id=thread_id, previous_checkpoint_id=previous,
            checkpoint_id=f"{thread_id}-{seed}-{number}",
        )  # fmt: skip
        ids.append(await storage.save(saved))
    return ids


async def only_key(client: Any) -> bytes:
    [key] = client.keys("perdure:*")
    assert isinstance(key, bytes)
    return key


async def test_a_large_checkpoint_is_read_from_valkey_after_it_was_read_once(watched: Watched, client: Any) -> None:
    await grow(watched.plain, ITEMS)
    saved, reads = await watched.load()
    assert reads >= 3 and saved is not None and len(saved.state["items"]) == ITEMS
    assert await watched.load() == (saved, 0)
    assert 0 < client.ttl(await only_key(client)) <= 300
    client.flushall()
    assert await watched.load() == (saved, reads)


async def test_only_new_chunks_are_read_from_the_store_after_a_commit(watched: Watched) -> None:
    ids = await grow(watched.plain, ITEMS)
    before, all_reads = await watched.load()
    assert before is not None
    items = [*before.state["items"], "one more"]
    await watched.plain.save(
        WorkflowCheckpoint("w", "hash", state={"items": items}, thread_id="t", previous_checkpoint_id=ids[-1])
    )
    after, reads = await watched.load()
    assert after is not None and after.state["items"] == items and 0 < reads < all_reads


def truncated(value: bytes) -> bytes:
    return value[: len(value) // 2]


def one_byte_changed(value: bytes) -> bytes:
    return value[:-20] + bytes([value[-20] ^ 1]) + value[-19:]


def with_other_chunks(value: bytes) -> bytes:
    packs = msgspec.msgpack.decode(value[19:], type=dict[int, dict[str, bytes]])
    data = msgspec.msgpack.encode({number: dict.fromkeys(pack, b'"forged"') for number, pack in packs.items()})
    return value[:19] + data


def with_nothing_in_it(value: bytes) -> bytes:
    packs = msgspec.msgpack.decode(value[19:], type=dict[int, dict[str, bytes]])
    data = msgspec.msgpack.encode({number: {} for number in packs})
    return value[:19] + data


def random_bytes(value: bytes) -> bytes:
    return os.urandom(1000)


def empty(value: bytes) -> bytes:
    return b""


def of_no_version(value: bytes) -> bytes:
    return b"9" * 19 + value[19:-1]


@SQLITE
@pytest.mark.parametrize(
    "wrong",
    [
        truncated,
        one_byte_changed,
        with_other_chunks,
        with_nothing_in_it,
        random_bytes,
        empty,
        of_no_version,
    ],
)
async def test_wrong_entry_in_valkey_never_changes_the_loaded_checkpoint(
    wrong: Callable[[bytes], bytes], watched: Watched, client: Any
) -> None:
    await grow(watched.plain, ITEMS)
    saved, all_reads = await watched.load()
    key = await only_key(client)
    client.set(key, wrong(client.get(key)))
    loaded, reads = await watched.load()
    assert loaded == saved
    assert reads == all_reads
    await watched.load()
    assert await watched.load() == (saved, 0), "what was wrong is not replaced"


@SQLITE
async def test_a_key_of_another_type_is_not_read_and_is_replaced(watched: Watched, client: Any) -> None:
    await grow(watched.plain, ITEMS)
    saved, all_reads = await watched.load()
    key = await only_key(client)
    client.delete(key)
    client.rpush(key, "a list")
    assert await watched.load() == (saved, all_reads)
    assert await watched.load() == (saved, 0)


@SQLITE
async def test_cached_chunks_of_another_thread_are_not_used(watched: Watched, client: Any) -> None:
    await grow(watched.plain, ITEMS, "t")
    await watched.load("t")
    stolen = client.get(await only_key(client))
    await grow(watched.plain, ITEMS, "u", seed=2)
    saved, all_reads = await watched.load("u")
    [key] = [other_key for other_key in client.keys("perdure:*") if client.get(other_key) != stolen]
    client.set(key, stolen)
    assert await watched.load("u") == (saved, all_reads)


@SQLITE
async def test_old_entry_that_returns_does_not_show_an_older_version(watched: Watched, client: Any) -> None:
    versions = []
    old: dict[bytes, bytes] = {}
    for turn in range(4):
        await grow(watched.plain, 12, seed=turn)
        for key, value in old.items():
            client.set(key, value)  # a replica that lags, a restore of a backup
        loaded, _ = await watched.load()
        assert loaded is not None
        versions.append((loaded.number, loaded.checkpoint_id))
        old = old or {key: client.get(key) for key in client.keys("perdure:*")}
    assert versions == [(12 * turn + 12, f"t-{turn}-11") for turn in range(4)]


async def test_reader_never_goes_back_when_old_entries_return_to_valkey(
    watched: Watched, truth: Place, valkey_url: str, client: Any, others: Others
) -> None:
    stops, old, seen = (40, 30, 20, 10), dict[bytes, bytes](), [0]
    run = others.start(talk, truth.beside(valkey_url), "t", 60, stops)
    run.send("go on")
    for stop in stops:
        await run.wait_for("at", stop)
        await watched.load()
        old = old or {key: client.get(key) for key in client.keys("perdure:*")}
        for is_moving in (False, True):
            client.mset(old)
            [committed] = await watched.plain.list_threads()
            if is_moving:
                run.send("go on")
            loaded, _ = await watched.load()
            assert loaded is not None and loaded.state["said"] == list(range(60, 60 - len(loaded.state["said"]), -1))
            assert len(loaded.state["large"]) == len(loaded.state["said"]) >= 60 - stop
            assert loaded.number >= max(committed.number, seen[-1])
            seen.append(loaded.number)
    await run.wait_for("ended")
    assert len(set(seen)) > len(stops) and old


async def test_deleted_or_pruned_checkpoints_do_not_return_from_valkey(watched: Watched) -> None:
    ids = await grow(watched.plain, ITEMS)
    await watched.load()
    await watched.store.prune("t", [ids[-1]])
    with pytest.raises(CheckpointNotFound):
        await watched.storage.load(ids[-1])
    loaded, _ = await watched.load()
    assert loaded is not None and loaded.checkpoint_id == ids[-2]
    last = max(await watched.store.read_chunks("t", range(1, ITEMS + 1)))
    assert last < ITEMS, "the chunks of a commit that is gone"
    await watched.storage.delete_thread("t")
    assert await watched.load() == (None, 0)
    await grow(watched.plain, ITEMS, seed=3)
    again, _ = await watched.load()
    assert again is not None and again.checkpoint_id == f"t-3-{ITEMS - 1}" and len(again.state["items"]) == ITEMS


async def test_an_entry_is_never_replaced_by_one_of_an_older_version(valkey_url: str, client: Any) -> None:
    valkey, kept = Valkey(valkey_url), []
    for version, value in ((5, b"five"), (4, b"four"), (5, b"five again"), (10, b"ten"), (9, b"nine")):
        valkey.set(b"k", version, value, 60)
        await valkey.close()
        kept.append(client.get("k")[19:])
    assert kept == [b"five", b"five", b"five again", b"ten", b"ten"]
    client.set("k", b"rubbish")
    valkey.set(b"k", 1, b"one", 60)
    await valkey.close()
    assert client.get("k")[19:] == b"one"
