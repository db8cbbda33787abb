"""Published messages and cached entries beside a store: encrypted, too, and never trusted without the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.encryption.places import NEW, OLD

from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import UnreadableValue
from perdure.stores.encrypted.store import EncryptedStore
from perdure.stores.memory.store import MemoryStore
from perdure.testing.conformance.threads import own, save_full_thread


async def test_published_messages_reach_only_subscribers_with_the_key() -> None:
    below = MemoryStore()
    ours, theirs = EncryptedStore(below, AesGcm(OLD)), EncryptedStore(below, AesGcm(NEW))
    async with ours.subscribe("t") as us, theirs.subscribe("t") as them, below.subscribe("t") as thief:
        assert ours.has_subscribers("t") and not ours.has_subscribers("u")
        ours.publish("t", b'"a token"')
        assert await us.next(5) == b'"a token"'
        assert await them.next(5) is None
        seen = await thief.next(5)
        assert seen is not None and b"token" not in seen
        below.publish("t", b'"a forged token"')
        assert await us.next(5) is None
        owner = await own(ours, "t")
        await owner.save()
        assert await us.next(5) is None, "that the thread was moved"


class AtHand(MemoryStore):
    """A store that has chunks at hand, as one with Valkey beside it, and may be given wrong ones."""

    def __init__(self) -> None:
        super().__init__()
        self.at_hand: dict[int, Mapping[str, bytes]] = {}
        self.asked: list[tuple[str, int, list[int]]] = []

    async def recall(self, thread_id: str) -> Mapping[int, Mapping[str, bytes]]:
        return self.at_hand

    def remember(self, thread_id: str, number: int, numbers: Iterable[int]) -> None:
        self.asked.append((thread_id, number, list(numbers)))


async def test_cached_chunks_are_decrypted_and_wrong_chunks_are_not_damage() -> None:
    below = AtHand()
    store = EncryptedStore(below, AesGcm(OLD))
    await save_full_thread(store, "t")
    plain = await store.read_chunks("t", [1])
    kept = (await below.read_chunks("t", [1]))[1]
    below.at_hand = {1: dict(kept)}
    assert {number: dict(held) for number, held in (await store.recall("t")).items()} == {1: dict(plain[1])}
    first, second = kept
    below.at_hand = {1: {first: kept[second], second: b'"plain"'}}
    recalled = (await store.recall("t"))[1]
    for digest in plain[1]:
        with pytest.raises(UnreadableValue, match="chunk"):
            recalled[digest]
    below.at_hand = {1: {"no digest": b"1"}}
    assert await store.recall("t") == {}
    store.remember("t", 4, [1, 2])
    assert below.asked == [("t", 4, [1, 2])]


async def test_store_without_a_cache_recalls_nothing(tmp_path: Path) -> None:
    store = EncryptedStore(MemoryStore(), AesGcm(OLD))
    await save_full_thread(store, "t")
    assert await store.recall("t") == {}
    store.remember("t", 1, [1])
