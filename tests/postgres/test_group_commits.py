"""Commits of several threads that are stored together, in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.databases.fixtures import Place
from tests.databases.proxy import Instant, Proxy
from tests.postgres.forcing import Forced

from perdure.errors import ThreadConflict
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import ThreadOwner, own

_THREADS = [f"t{number}" for number in range(8)]


@pytest.fixture
async def forced(postgres_place: Place) -> AsyncIterator[Forced]:
    async with Forced(*postgres_place) as schema:
        yield schema


async def own_all(store: PostgresStore) -> list[ThreadOwner]:
    """Owners of threads whose next commit may be part of a group: each has a head and no journal."""
    owners = [await own(store, thread_id) for thread_id in _THREADS]
    for owner in owners:
        await owner.save(events=1)
    return owners


async def numbers(store: PostgresStore) -> dict[str, list[int]]:
    return {
        thread_id: [commit.number for commit in await store.commits(thread_id)]
        for thread_id in await store.thread_ids()
    }


async def test_concurrent_commits_share_a_statement_and_are_read_back_equal(forced: Forced) -> None:
    with Proxy(forced.dsn) as proxy:
        store = forced.store(proxy.url)
        owners = await own_all(store)
        commits = [
            owner.checkpoint(events=2, chunks={"aa": owner.lease.thread_id.encode()}, dropped=["bb.1"])
            for owner in owners
        ]
        with proxy.counted() as counts:
            await asyncio.gather(*map(store.commit, commits))
        # That of the first commit, and that of the others; asyncpg also asks for the types of its parameters.
        assert sum("INSERT INTO" in statement for statement in counts.statements) == 2
        await store.close()
    other = forced.store()
    for commit in commits:
        (stored,) = await other.commits(commit.lease.thread_id, after=1)
        assert (stored.info, stored.root, stored.chunks) == (commit.info, commit.root, commit.chunks)
        assert (stored.dropped, stored.parent, stored.status) == (commit.dropped, 1, commit.status)
        (events,) = await other.events_after(commit.lease.thread_id, 1)
        assert commit.events is not None
        assert (events.first_seq, events.body, events.info) == (2, commit.events.body, commit.info)
    assert await other.check() == []
    assert [info.number for info in await other.threads()] == [2] * len(_THREADS)


async def test_thread_that_is_locked_does_not_delay_the_group(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    async with forced.locked("{s}.threads WHERE thread_id = 't3'"):
        saving = {owner.lease.thread_id: asyncio.create_task(owner.save()) for owner in owners}
        locked = saving.pop("t3")
        async with asyncio.timeout(60):
            await asyncio.gather(*saving.values())
        assert not locked.done()
    await locked
    assert set(map(tuple, (await numbers(store)).values())) == {(1, 2)}


async def test_statement_that_waits_for_a_lock_holds_up_no_other_commit(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    async with forced.locked("{s}.threads WHERE thread_id = 't0'"):
        first = asyncio.create_task(owners[0].save())
        await forced.until_waiting(1)
        async with asyncio.timeout(60):
            await asyncio.gather(*(owner.save() for owner in owners[1:]))
        assert not first.done()
    await first


async def test_commit_of_a_group_that_conflicts_fails_alone(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    await forced.store().open("t2", "another", takeover=True)
    wrong = owners[5].checkpoint()
    owners[5].number = 9
    late = owners[5].checkpoint()
    outcomes = await asyncio.gather(
        *(owner.save() for owner in owners if owner is not owners[5]),
        store.commit(wrong),
        store.commit(late),
        return_exceptions=True,
    )
    failed = [outcome for outcome in outcomes if outcome is not None and isinstance(outcome, Exception)]
    assert [type(error) for error in failed] == [ThreadConflict, ThreadConflict]
    assert await numbers(store) == {thread_id: [1] if thread_id == "t2" else [1, 2] for thread_id in _THREADS}


async def test_two_commits_with_one_number_in_a_group_store_one(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    twice = [owners[1].checkpoint("one"), owners[1].checkpoint("other")]
    outcomes = await asyncio.gather(owners[0].save(), *map(store.commit, twice), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes[1:]) == ["NoneType", "ThreadConflict"]
    assert (await numbers(store))["t1"] == [1, 2]


async def test_checkpoint_id_of_another_thread_is_replaced_also_in_a_group(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    taken = owners[6].head
    assert taken is not None
    others = [owner for owner in owners if owner is not owners[6]]  # whose next commit would race with its displacement
    await asyncio.gather(*(owner.save(taken.checkpoint_id if owner is owners[4] else None) for owner in others))
    stored = await store.find_checkpoint(taken.checkpoint_id)
    assert stored is not None
    assert stored.info.thread_id == "t4"
    assert await store.infos(thread_id="t6") == []
    assert [len(await store.infos(thread_id=owner.lease.thread_id)) for owner in others] == [2] * len(others)


async def test_commit_cancelled_while_it_waits_for_its_group_is_stored_once(forced: Forced) -> None:
    store = forced.store()
    owners = await own_all(store)
    tasks = [asyncio.create_task(owner.save(events=1)) for owner in owners]
    await asyncio.sleep(0)
    for task in tasks[3:]:
        task.cancel()
    await asyncio.gather(*tasks)
    assert set(map(tuple, (await numbers(store)).values())) == {(1, 2)}


@pytest.mark.parametrize("instant", [Instant.BEFORE, Instant.AFTER, Instant.ANSWERED, Instant.IN_ANSWER])
async def test_group_whose_connection_is_cut_is_stored_once(forced: Forced, instant: Instant) -> None:
    with Proxy(forced.dsn) as proxy:
        store = forced.store(proxy.url)
        owners = await own_all(store)
        proxy.cut(instant, "WITH batch")
        await asyncio.gather(*(owner.save(events=1) for owner in owners))
        assert proxy.cuts == 1
        assert set(map(tuple, (await numbers(store)).values())) == {(1, 2)}
        assert await store.check() == []
        await store.close()
