"""A thread that goes from each store to the next is the same in all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import STORES
from tests.conformance.whole_threads import a_full_thread, all_of, read_out, renamed

from perdure.store import Store
from perdure.testing.conformance.threads import own, read_as_owner

RING = ("memory", "sqlite", "file", "postgres")


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[list[Store]]:
    stores = []
    for kind in RING:
        folder = tmp_path / kind
        folder.mkdir()
        stores.append(STORES[kind](folder))
    yield stores
    for store in stores:
        await store.close()


def test_the_ring_has_every_store() -> None:
    assert set(RING) == set(STORES), "let the new one run the conformance suite, too"


async def test_a_thread_transferred_through_every_store_is_the_same(ring: list[Store]) -> None:
    await a_full_thread(ring[0])
    before = await all_of(ring[0])
    for source, target in zip(ring, [*ring[1:], ring[0]], strict=True):
        if target is ring[0]:
            await target.delete_thread("t")
        await target.add_thread(*await read_out(source))
        assert await all_of(target) == before
    opened = [await read_as_owner(store, "t") for store in ring]
    assert opened == opened[:1] * len(ring)


async def test_a_transferred_thread_continues_alike_in_every_store(ring: list[Store]) -> None:
    await a_full_thread(ring[0])
    for target in ring[1:]:
        await target.add_thread(*await read_out(ring[0]))
    for store in ring:
        owner = await own(store, owner="run-3")
        await owner.save(
            chunks={"gg": b"9"}, dropped=["ff.7"], events=1, unsettled=[6], consumed=["waits"], requests=[]
        )
        await owner.save("t-6", prunes=[8], events=1)  # in place of another
        await owner.release()
        await store.post("t", "waits", "message", b'"again"')
        await store.unpin("t-4")
        await store.prune("t", ["t-2"])
    states = [await all_of(store) for store in ring]
    assert states == states[:1] * len(ring)
    for store in ring:
        await store.prune("t", [info.checkpoint_id for info in await store.infos()][:-1], events_before=10)
    states = [await all_of(store) for store in ring]
    assert states == states[:1] * len(ring)


@pytest.mark.parametrize("index", range(len(RING)), ids=RING)
async def test_a_thread_can_be_added_under_another_name(ring: list[Store], index: int) -> None:
    store = ring[index]
    await a_full_thread(store)
    before = await all_of(store)
    await store.add_thread(*renamed(*await read_out(store), "new"))
    assert await all_of(store) == before
    assert [info.number for info in await store.infos(thread_id="new") if info.is_pinned] == [4]
    await store.delete_thread("t")
    assert (await read_as_owner(store, "new"))["number"] == 8
    assert list(await store.check()) == []
