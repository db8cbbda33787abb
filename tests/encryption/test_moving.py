"""Threads that move: copied within an encrypted store, and between stores that are encrypted with other keys or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.encryption.places import NEW, OLD, Place, closed
from tests.encryption.planted import asking, secret

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.transfer.copy_store import copy_store
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import MissingKey
from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance.threads import own, save_full_thread


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[StoreCheckpointStorage]:
    """With threads in it: one that waits for an answer, one that was only posted to."""
    storage = StoreCheckpointStorage(SqliteStore(tmp_path / "plain.db"))
    await asking(storage).run(secret("input"), thread_id="asked")
    await storage.store.post("posted", "item", "message", b'"hello"')
    yield storage
    await storage.close()


async def test_a_plain_store_is_copied_to_an_encrypted_one_and_back(
    place: Place, plain: StoreCheckpointStorage
) -> None:
    target, back = place.storage(AesGcm(OLD)), StoreCheckpointStorage(MemoryStore())
    for source, copy in ((plain, target), (target, back)):
        report = await copy_store(source, copy)
        assert report.is_complete and report.copied == ["posted", "asked"]
        assert (await copy_store(source, copy)).already_there == ["posted", "asked"]
        assert await copy.verify() == []
        standing = await copy.store.thread_header("posted")
        assert standing is not None and [item.body for item in standing.inbox] == [b'"hello"']
        answered = await asking(copy).run(thread_id="asked", responses={"q-1": "yes"}, checkpoint_storage=copy)
        assert answered.get_outputs()[-1] == f"{secret('step result')} yes"
        await copy.store.delete_thread("asked")
        await copy_store(source, copy)
    assert secret("input").encode() not in await place.raw()
    await closed(target)


async def test_an_encrypted_store_is_copied_to_one_with_another_key(place: Place, tmp_path: Path) -> None:
    source = place.storage(AesGcm(OLD))
    await asking(source).run(secret("input"), thread_id="t")
    other = Place("sqlite", f"sqlite:///{tmp_path / 'other.db'}", tmp_path)
    target = other.storage(AesGcm(NEW))
    assert (await copy_store(source, target)).copied == ["t"]
    assert await target.store.commits("t") == await source.store.commits("t")
    below = [place.store(), other.store()]
    ours, theirs = [{name for commit in await store.commits("t") for name in commit.chunks} for store in below]
    assert len(ours) > 5 and not ours & theirs, "names of chunks are made with the key of each store"
    await closed(source, target, *below)


async def test_nothing_is_copied_into_an_encrypted_store_without_its_key(
    place: Place, plain: StoreCheckpointStorage
) -> None:
    store = place.store(AesGcm(OLD))
    await save_full_thread(store, "t")
    without = place.storage()
    with pytest.raises(MissingKey):
        await copy_store(plain, without)
    assert await store.thread_ids() == ["t"]
    await closed(store, without)


async def test_item_posted_after_a_copy_makes_the_next_copy_a_conflict(plain: StoreCheckpointStorage) -> None:
    copy = StoreCheckpointStorage(MemoryStore())
    await copy_store(plain, copy)
    await plain.store.post("posted", "second", "message", b'"more"')
    report = await copy_store(plain, copy)
    assert [conflict.thread_id for conflict in report.conflicts] == ["posted"]
    assert "the target has another inbox" in report.conflicts[0].reason


async def test_copy_chooses_threads_by_name_even_with_only_an_inbox(plain: StoreCheckpointStorage) -> None:
    copy = StoreCheckpointStorage(MemoryStore())
    assert (await copy_store(plain, copy, thread_ids=["posted"])).copied == ["posted"]
    assert (await copy_store(plain, copy, workflow_name="asking")).copied == ["asked"]


async def test_a_copy_within_a_store_is_encrypted_for_its_own_thread(place: Place) -> None:
    store, below = place.store(AesGcm(OLD)), place.store()
    await save_full_thread(store, "t")
    await store.pin("t-2")
    await store.copy_thread("t", "copy")
    assert not any(info.is_pinned for info in await store.infos(thread_id="copy")), "as in a plain store"
    first, second = [[(commit.root, commit.chunks) for commit in await store.commits(name)] for name in ("t", "copy")]
    assert first == second
    ours, theirs = [(await below.commits(name))[0] for name in ("t", "copy")]
    assert ours.root != theirs.root and not set(ours.chunks) & set(theirs.chunks)
    await store.delete_thread("t")
    owner = await own(store, "copy")
    await owner.save(brings=["new"])
    assert await store.check() == []
    await closed(store, below)


async def test_an_exported_thread_is_plain_and_is_imported_anywhere(place: Place, tmp_path: Path) -> None:
    storage = place.storage(AesGcm(OLD))
    await asking(storage).run(secret("input"), thread_id="asked")
    await storage.export_thread("asked", tmp_path / "asked.jsonl")
    lines = (tmp_path / "asked.jsonl").read_bytes()
    assert b"$aes-gcm:" not in lines and msgspec.json.encode(secret("request")) in lines
    await storage.import_thread(tmp_path / "asked.jsonl", thread_id="again")
    answered = await asking(storage).run(thread_id="again", responses={"q-1": "yes"})
    assert answered.get_outputs()[-1].endswith("yes")
    assert await storage.verify() == []
    await closed(storage)
