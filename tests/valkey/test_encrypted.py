"""With encryption, Valkey holds nothing readable, and a client without the key cannot send a follower anything."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import redis
from tests.turns import turns
from tests.valkey.acts import talking
from tests.valkey.others import SECONDS
from tests.valkey.places import Place

from perdure import AesGcm, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.stores.encrypted.store import EncryptedStore

SECRET = "the patient's name is Anna"
OLD, NEW = (AesGcm.generate_key() for _ in range(2))


def storage_at(path: Path, url: str, *keys: str) -> StoreCheckpointStorage:
    return StoreCheckpointStorage(EncryptedStore(Place("sqlite", str(path), valkey=url).store(), AesGcm(list(keys))))


async def grow(storage: StoreCheckpointStorage, count: int) -> WorkflowCheckpoint:
    items: list[str] = []
    for number in range(count):
        items.append(f"{SECRET} {os.urandom(200).hex()} {number}")
        previous = f"c{number - 1}" if number else None
        saved = WorkflowCheckpoint("w", "hash", f"c{number}", previous, state={"items": items}, thread_id="t")
        await storage.save(saved)
    return await storage.load(f"c{count - 1}")


def everything_in(client: Any) -> bytes:
    return b"".join(key + client.get(key) for key in client.keys("*"))


async def test_valkey_entries_are_encrypted_and_useful_until_a_rekey(tmp_path: Path, valkey_url: str) -> None:
    storage = storage_at(tmp_path / "threads.db", valkey_url, OLD)
    with redis.Redis.from_url(valkey_url) as client:
        async with asyncio.timeout(SECONDS):
            saved = await grow(storage, 12)
            await storage.close()
            while not client.keys("*"):  # Valkey was not reached in time, and left alone for a while
                saved = await grow(storage, 12)
                await storage.close()
        kept = everything_in(client)
        assert len(kept) > 3000 and b"patient" not in kept and b"items" not in kept
        storage = storage_at(tmp_path / "threads.db", valkey_url, NEW, OLD)
        assert await storage.load(saved.checkpoint_id) == saved
        assert await storage.store.recall("t")  # type: ignore[attr-defined]  # of an EncryptedStore
        old = {key: client.get(key) for key in client.keys("*")}
        await storage.store.rekey()  # type: ignore[attr-defined]
        await storage.close()
        assert not client.keys("*")
        client.mset(old)  # from a backup
        storage = storage_at(tmp_path / "threads.db", valkey_url, NEW)
        assert await storage.load(saved.checkpoint_id) == saved
        await storage.close()


async def test_published_messages_cannot_be_read_or_forged_without_the_key(tmp_path: Path, valkey_url: str) -> None:
    forged = b"\x00" * 8 + b't[0,{"type":"data","thread_id":"t","data":"forged"}]'
    storage = storage_at(tmp_path / "threads.db", valkey_url, OLD)
    with redis.Redis.from_url(valkey_url) as client, client.pubsub() as thief:
        thief.psubscribe("*")
        async with aclosing(storage.follow("t")) as events:  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(events))
            while not (channels := client.pubsub_channels("perdure:*")):
                await turns(10)
            client.publish(channels[0], forged)
            await talking(storage).run(2, thread_id="t")
            seen = [await first]
            async with asyncio.timeout(SECONDS):
                while seen[-1].type != "output":
                    seen.append(await anext(events))
        assert "2.0" in {event.data for event in seen} and "forged" not in {event.data for event in seen}
        await storage.close()
        stolen = [
            message["data"]
            for message in iter(lambda: thief.get_message(timeout=0.1), None)
            if message["type"] == "pmessage"
        ]
    encrypted = [data for data in stolen if data != forged and len(data) > 20]
    assert encrypted and not [data for data in encrypted if b"2.0" in data or b"data" in data]
