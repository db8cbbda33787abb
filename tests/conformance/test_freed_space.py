"""Our stores free what commits pruned: while a thread moves, and when it is released. The contract leaves it open."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from tests.conformance.stores import STORES

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.store import Store
from perdure.testing.conformance.threads import checkpoint_ids, chunks, make_events, own

COUNT, MOST = 300, 130
"""Commits, and how many of their chunks may be there at a time."""
BIG = b'"%b"' % b64encode(Random(6).randbytes(15_000))
"""Incompressible."""


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = STORES[request.param](tmp_path)
    yield store
    await store.close()


async def test_chunks_of_pruned_checkpoints_are_freed_while_the_thread_moves(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"old": b'"needed by all"'})
    for number in range(2, COUNT + 1):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 2)
        await owner.save(chunks={f"c{number}": b'"only here"'}, dropped=dropped, prunes=[number - 1])
        if number % 50 == 0:
            stored = await chunks(store, "t", number)
            assert {"old.1", f"c{number}.{number}"} <= stored.keys() and len(stored) < MOST, number
    assert await store.prune("t", []) == 0
    assert set(await chunks(store, "t", COUNT)) == {"old.1", f"c{COUNT}.{COUNT}"}


async def test_chunks_of_pruned_events_are_freed_while_the_thread_moves(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    for number in range(2, COUNT + 1):
        events = make_events(owner.last_seq + 1, own=(f"e{number}",))
        await owner.note(chunks={f"e{number}": b'"event"'}, events=events, prunes_events_before=number)
    stored = await chunks(store, "t", COUNT)
    assert {"aa.1", f"e{COUNT}.{COUNT}"} <= stored.keys() and len(stored) < MOST
    assert [batch.first_seq for batch in await store.events_after("t", None)] == [COUNT - 1]


async def test_many_checkpoints_pruned_with_one_commit_are_freed_with_it(store: Store) -> None:
    owner = await own(store)
    for number in range(1, 151):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, events=1)
    await owner.save(prunes=range(1, 151), prunes_events_before=151, chunks={"new": b"1"})
    assert await checkpoint_ids(store) == ["t-151"] and list(await store.events_after("t", None)) == []
    assert set(await chunks(store, "t", 151)) == {"c150.150", "new.151"}


async def test_a_thread_that_keeps_only_its_head_does_not_grow(store: Store) -> None:
    owner, count, sizes = await own(store), 320, []
    for number in range(1, count + 1):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": BIG}, dropped=dropped, prunes=[number - 1])
        sizes.append(await store.size() if number % 20 == 0 else 0)
    assert max(sizes[count // 2 :]) < 1.5 * max(sizes[: count // 2]), sizes[19::20]
    await owner.release()
    await store.close()
    assert await store.size() < count * len(BIG) / 3


async def test_a_thread_that_keeps_a_little_of_each_commit_frees_what_changes(store: Store) -> None:
    """As with a list that grows: the number of commits that hold something is no measure of what can be freed."""
    owner, large = await own(store), b'"%b"' % (b"0123456789" * 6_000)
    for number in range(1, 67):
        dropped = [f"large{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(
            chunks={f"large{number}": large, f"small{number}": b'"1"'}, dropped=dropped, prunes=[number - 1]
        )
    stored = await chunks(store, "t", 66)
    assert {"small1.1", "small66.66", "large66.66"} <= stored.keys()
    assert sum(map(len, stored.values())) < 1_500_000, "of four million that were written"


async def test_a_released_thread_holds_only_what_it_keeps(store: Store) -> None:
    """As conversations do: each turn is a run of two commits."""
    number = 0
    for _ in range(8):
        owner = await own(store)
        for _ in range(2):
            number += 1
            dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
            await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, prunes=[number - 1])
        await owner.release()
        stored = await chunks(store, "t")
        assert f"c{number}.{number}" in stored and len(stored) <= 2
    assert list(await store.check()) == []


async def test_a_prune_without_checkpoints_frees_what_commits_pruned_before(store: Store) -> None:
    owner = await own(store)
    for number in range(1, 7):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, prunes=[number - 1])
    report = await StoreCheckpointStorage(store).prune(keep_last=3)
    assert list(report.threads) == [] and set(await chunks(store, "t")) == {"c6.6"}
    await owner.release()
