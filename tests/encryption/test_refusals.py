"""A store with a key, without it, or with another one: refused at the first use, before anything is written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.encryption.places import NEW, OLD, OTHER, Place, closed
from tests.encryption.planted import asking

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import copy_store
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import DamagedStore, MissingKey, PlaintextRefused, UnsupportedId
from perdure.stores.encrypted.store import EncryptedStore
from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import own, read_everything, save_full_thread, save_thread

Use = Callable[[StoreCheckpointStorage], Awaitable[Any]]


async def _saved(storage: StoreCheckpointStorage) -> None:
    made = StoreCheckpointStorage(MemoryStore())
    await asking(made).run("hello", thread_id="t")
    latest = await made.get_latest(thread_id="t")
    assert latest is not None
    await storage.save(latest)


USES: dict[str, Use] = {
    "run": lambda storage: asking(storage).run("hello", thread_id="new"),
    "resume": lambda storage: asking(storage).run(thread_id="t"),
    "load": lambda storage: storage.load("t-1"),
    "save": _saved,
    "list checkpoints": lambda storage: storage.list_checkpoints(),
    "list threads": lambda storage: storage.list_threads(),
    "requests": lambda storage: storage.pending_requests(),
    "latest": lambda storage: storage.get_latest(thread_id="t"),
    "delete": lambda storage: storage.delete("t-1"),
    "delete a thread": lambda storage: storage.delete_thread("t"),
    "pin": lambda storage: storage.pin("t-1"),
    "prune": lambda storage: storage.prune(keep_last=1),
    "export": lambda storage: storage.export_thread("t", os.devnull + "-not-written"),
    "verify": lambda storage: storage.verify(),
    "rekey": lambda storage: storage.rekey(),
    "copy": lambda storage: copy_store(storage, StoreCheckpointStorage(MemoryStore())),
}


@pytest.mark.parametrize("use", [use for use in USES if use != "rekey"])
@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_encrypted_store_without_its_key_refuses_every_use(place: Place, use: str) -> None:
    store = place.store(AesGcm(OLD))
    await save_full_thread(store)
    before = await read_everything(store)
    await closed(store)
    kept = await place.raw()
    storage = place.storage()
    with pytest.raises(MissingKey, match=r"is encrypted, and that key is missing\. Pass encryption=AesGcm\(key\)"):
        await USES[use](storage)
    await closed(storage)
    assert _payloads(await place.raw()) == _payloads(kept), "something was written"
    assert await read_everything(store) == before
    await closed(store)


def _payloads(raw: bytes) -> int:
    return raw.count(b"$aes-gcm:")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_another_key_is_refused_with_the_id_of_the_needed_key(place: Place, use: str) -> None:
    store = place.store(AesGcm(OLD))
    await save_full_thread(store)
    before = await read_everything(store)
    storage = place.storage(AesGcm(OTHER))
    needed = AesGcm(OLD).current_key_id
    with pytest.raises(MissingKey, match=rf"is encrypted with key '{needed}', and that key is missing") as caught:
        await USES[use](storage)
    assert caught.value.key_id == needed
    assert await read_everything(store) == before
    await closed(storage, store)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ["sqlite", "file"], indirect=True)
async def test_plain_store_opened_with_a_key_is_refused_with_the_remedy(place: Place, use: str) -> None:
    store = place.store()
    await save_full_thread(store)
    before = await read_everything(store)
    storage = place.storage(AesGcm(OLD))
    with pytest.raises(PlaintextRefused, match=r"not encrypted, although this storage uses a key.*`perdure transfer`"):
        await USES[use](storage)
    assert await read_everything(store) == before
    await closed(storage, store)


async def test_every_store_refuses_plain_payloads_missing_keys_and_other_keys(place: Place) -> None:
    plain = place.store()
    await plain.post("t", "item", "message", b"1")
    encrypted = place.store(AesGcm(OLD))
    with pytest.raises(PlaintextRefused):
        await encrypted.open("t", "run-1")
    await plain.delete_thread("t")
    await save_full_thread(encrypted)
    without, other = place.storage(), place.store(AesGcm(OTHER))
    with pytest.raises(MissingKey, match="Pass encryption"):
        await without.list_threads()
    with pytest.raises(MissingKey, match=AesGcm(OLD).current_key_id):
        await other.open("t", "run-1")
    await closed(plain, encrypted, without, other)


async def test_another_key_under_the_same_id_is_distinguished_from_damage(place: Place) -> None:
    store = place.store(AesGcm({"k": OLD}))
    await save_full_thread(store)
    other = place.store(AesGcm({"k": OTHER}))
    with pytest.raises(MissingKey, match="was not written with the key that was given as 'k', or was changed"):
        await other.threads()
    await closed(store, other)


async def test_reading_an_empty_encrypted_store_writes_nothing(place: Place) -> None:
    store, below = place.store(AesGcm(OLD)), place.store()
    assert (await read_everything(store))["threads"] == [] and await store.thread_ids() == []
    assert await below.thread_ids() == []
    await save_thread(below, "plain")
    with pytest.raises(PlaintextRefused):
        await store.threads()
    await closed(store, below)


async def test_stores_that_start_together_share_one_key_of_names(place: Place) -> None:
    stores = [place.store(AesGcm(OLD)) for _ in range(6)]
    await asyncio.gather(*(save_thread(store, f"t{number}", chunks={}) for number, store in enumerate(stores)))
    owner = await own(stores[0], "shared")
    await owner.save(brings=["a", "b"])
    await owner.release()
    expected = await stores[0].commits("shared")
    assert [await store.commits("shared") for store in stores] == [expected] * 6
    assert sorted(await stores[1].thread_ids()) == ["shared", *(f"t{number}" for number in range(6))]
    await closed(*stores)


async def test_thread_that_holds_the_key_is_reserved(place: Place) -> None:
    store, reserved = place.store(AesGcm(OLD)), "perdure:encryption"
    await save_full_thread(store)
    for refused in (
        store.open(reserved, "run-1"),
        store.post(reserved, "item", "message", b"1"),
        store.copy_thread("t", reserved),
    ):
        with pytest.raises(UnsupportedId, match="keeps its own key under this id"):
            await refused
    assert await store.thread_header(reserved) is None
    assert await store.delete_thread(reserved) is False
    assert await store.rewrite(reserved, lambda kind, name, data: b"1") == 0
    assert await store.thread_ids(limit=1) == ["t"]
    await closed(store)
    again = place.store(AesGcm(OLD))
    assert await again.head("t") is not None
    await closed(again)


async def test_store_without_its_key_of_names_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = EncryptedStore(SqliteStore(path), AesGcm(OLD))
    await save_full_thread(store)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE threads SET thread_id = 'perdure:encryptio_' WHERE thread_id = 'perdure:encryption'")
    again = EncryptedStore(SqliteStore(path), AesGcm(OLD))
    with pytest.raises(DamagedStore, match="it is encrypted, and the key of its chunk names is missing"):
        await again.threads()
    await again.close()


async def test_reader_without_a_key_does_not_take_the_thread_from_its_owner(place: Place) -> None:
    """Half of a store is under a key that one reader lacks: the thread stays with owners that have the key."""
    both = AesGcm({"old": OLD, "new": NEW}, current="new")
    store = place.store(AesGcm({"old": OLD}))
    await save_full_thread(store, "t")
    await closed(store)
    writer = place.store(both)
    await writer.rekey()  # type: ignore[attr-defined]  # an EncryptedStore
    old = place.store(AesGcm({"old": OLD, "new": NEW}, current="old"))
    owner = await own(old, "t")
    await owner.save()
    half = place.store(AesGcm({"new": NEW}))
    with pytest.raises(MissingKey, match="commit 5 in thread 't' is encrypted with key 'old'"):
        await half.open("t", "run-2", takeover=True)
    await owner.save()  # the owner still holds the thread
    await owner.release()
    with pytest.raises(MissingKey):
        await half.open("t", "run-2")
    [thread] = await half.threads(thread_id="t")
    assert thread.run_id is None, "it was given up again"
    await closed(writer, old, half)


async def test_claim_without_a_key_changes_no_thread_of_an_encrypted_store(place: Place) -> None:
    encrypted = place.store(AesGcm(OLD))
    await save_full_thread(encrypted, "free")
    owner = await own(encrypted, "busy")
    await owner.save()
    before = await read_everything(encrypted)
    for thread_id in ("free", "busy", "new"):
        for takeover in (False, True):
            without = place.storage()
            with pytest.raises(MissingKey, match="Pass encryption"):
                await without.claim_thread(thread_id, "run-2", takeover=takeover)
            await closed(without)
    assert await read_everything(encrypted) == before
    assert await encrypted.thread_ids() == ["busy", "free"]
    await owner.save()
    await closed(encrypted)


def test_a_key_in_the_wrong_place_is_refused_at_once() -> None:
    from perdure import InMemoryCheckpointStorage

    wrong: Any = b64encode(OLD)
    with pytest.raises(TypeError, match=r"encryption expects AesGcm\(key\), got a bytes"):
        InMemoryCheckpointStorage(encryption=wrong)
