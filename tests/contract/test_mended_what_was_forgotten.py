"""What was forgotten: freed when its thread comes to rest, not handed to other stores, and no hindrance to anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.stores import STORES
from tests.conformance.whole_threads import all_of, read_out

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import CursorExpired, ThreadExists
from perdure.store import Store
from perdure.testing.conformance.threads import (
    ThreadOwner,
    checkpoint_ids,
    chunks,
    make_events,
    make_request,
    own,
    read_as_owner,
)


@pytest.fixture(params=STORES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Another store, of each kind."""
    folder = tmp_path / "target"
    folder.mkdir()
    made = STORES[request.param](folder)
    yield made
    await made.close()


async def a_short_thread(store: Store, count: int = 6, thread_id: str = "t") -> ThreadOwner:
    """Each checkpoint has one chunk, its own, and forgets the one before. Too few to be freed while it goes on."""
    owner = await own(store, thread_id)
    for number in range(1, count + 1):
        dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
        await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, prunes=[number - 1], events=1)
    return owner


# ---------------------------------------------------------------- freed


async def test_what_a_short_thread_forgot_is_freed_when_it_comes_to_rest(store: Store) -> None:
    for thread_id in ("s", "t"):
        await (await a_short_thread(store, thread_id=thread_id)).release()
        assert set(await chunks(store, thread_id)) == {"c6.6"}
    assert await checkpoint_ids(store) == ["s-6", "t-6"] and list(await store.check()) == []


async def test_threads_that_are_taken_up_again_and_again_hold_only_what_they_keep(store: Store) -> None:
    """As conversations are: each turn is a run of its own, of two commits."""
    number = 0
    for _ in range(10):
        owner = await own(store)
        for _ in range(2):
            number += 1
            dropped = [f"c{number - 1}.{number - 1}"] * (number > 1)
            await owner.save(chunks={f"c{number}": b'"1"'}, dropped=dropped, prunes=[number - 1])
        await owner.release()
        assert f"c{number}.{number}" in await chunks(store, "t") and len(await chunks(store, "t")) <= 2


async def test_a_thread_that_keeps_a_little_of_each_commit_does_not_keep_much_of_what_changes(store: Store) -> None:
    """Each commit holds something that stays, as with a list that grows: so their number alone cannot tell when."""
    owner, large = await own(store), b'"%b"' % (b"0123456789" * 6_000)
    for number in range(1, 67):
        dropped = [f"large{number - 1}.{number - 1}"] * (number > 1)
        brought = {f"large{number}": large, f"small{number}": b'"1"'}
        await owner.save(chunks=brought, dropped=dropped, prunes=[number - 1])
    held = await chunks(store, "t", 66)
    assert {"small1.1", "small66.66", "large66.66"} <= held.keys()
    assert sum(map(len, held.values())) < 1_500_000, "of four million that were written"
    await owner.release()


async def test_a_prune_that_finds_nothing_to_prune_frees_what_was_forgotten_before(store: Store) -> None:
    owner = await a_short_thread(store)
    report = await StoreCheckpointStorage(store).prune(keep_last=3)
    assert list(report.threads) == [] and set(await chunks(store, "t")) == {"c6.6"}
    await owner.release()


async def test_events_that_are_forgotten_up_to_a_commit_to_come_are_not_missed_then(store: Store) -> None:
    owner = await own(store)
    for _ in range(5):
        await owner.save(events=1)
    await store.prune("t", [], events_before=9)
    await owner.save(events=1)
    await store.prune("t", ["t-2"], events_before=5)
    assert [(one.number, one.first_seq) for one in await store.events_after("t", None)] == [(6, 6)]
    with pytest.raises(CursorExpired):
        await store.events_after("t", 3)


# ---------------------------------------------------------------- handed over


async def test_a_first_commit_that_is_forgotten_and_not_freed_takes_what_others_need_along(
    store: Store, target: Store
) -> None:
    owner = await own(store)
    await owner.save(chunks={"all": b'"1"', "first": b'"2"'})
    await owner.save(chunks={"c2": b'"3"'}, dropped=["first.1"], prunes=[1])
    await target.add_thread(*await read_out(store))
    assert {"all.1", "c2.2"} <= (await chunks(target, "t")).keys()
    await target.prune("t", [])
    assert set(await chunks(target, "t")) == {"all.1", "c2.2"} and list(await target.check()) == []


async def test_events_that_are_forgotten_and_not_freed_stay_where_they_are(store: Store, target: Store) -> None:
    owner = await own(store)
    for number in range(1, 5):
        own_chunk = make_events(number, own=(f"e{number}",))
        await owner.save(chunks={f"e{number}": b'"told"'}, events=own_chunk, prunes_events_before=number - 1)
    standing, commits = await read_out(store)
    assert [one.number for one in commits if one.events is not None] == [3, 4]
    assert all("told" not in str(one.chunks) for one in commits if one.number < 3)
    await target.add_thread(standing, commits)
    for one in (store, target):
        assert [events.first_seq for events in await one.events_after("t", None)] == [3, 4]
        with pytest.raises(CursorExpired):
            await one.events_after("t", 1)


async def test_a_thread_that_was_handed_over_with_what_it_forgot_goes_on_without_damage(
    store: Store, target: Store
) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b'"1"'})
    for number in range(2, 7):
        await owner.save(chunks={f"c{number}": b'"1"'}, prunes=[number - 1] * (number > 3))
    await target.add_thread(*await read_out(store))
    mover = await own(target)
    for number in range(7, 12):
        await mover.save(chunks={f"c{number}": b'"1"'}, prunes=[number - 2])
        assert list(await target.check()) == []
    await target.prune("t", ["t-1", "t-2"])
    await mover.release()
    assert list(await target.check()) == []
    assert await checkpoint_ids(target) == ["t-10", "t-11"]


async def test_a_forgotten_commit_that_was_handed_over_does_not_miss_the_one_before_it(
    store: Store, target: Store
) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b'"1"'})
    await owner.save(chunks={"bb": b'"2"'}, dropped=["aa.1"])
    await owner.save(chunks={"cc": b'"3"'}, prunes=[2])
    await target.add_thread(*await read_out(store))
    assert await target.prune("t", ["t-1"]) == 1
    assert list(await target.check()) == [] and await checkpoint_ids(target) == ["t-3"]
    assert set(await chunks(target, "t")) == {"bb.2", "cc.3"}


# ---------------------------------------------------------------- that have only a journal


async def test_a_thread_that_only_recorded_something_is_there(store: Store, target: Store) -> None:
    owner = await own(store)
    await owner.record(1)
    standing = await store.thread_header("t")
    assert standing is not None and (standing.number, len(standing.journal)) == (0, 1)
    await owner.release()
    other = await own(target)
    await other.save(requests=[make_request("t", "q", 1)])
    await other.release()
    with pytest.raises(ThreadExists):
        await store.add_thread(*await read_out(target))
    assert [one for one, _ in (await read_as_owner(store, "t"))["journal"]] == [1]
    await target.delete_thread("t")
    await target.add_thread(standing, [])
    assert (await all_of(target))["standing"] == (await all_of(store))["standing"]
