"""Owners that are stopped, dead or busy, here and on another machine: their threads change hands, and nothing more."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.crash.zygote import Zygote
from tests.databases.fixtures import Place
from tests.fleet.stopping import Stop, let_time_pass

from perdure.errors import ThreadConflict
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own, read_as_owner


def stop(place: Place, *, is_elsewhere: bool, how: str = "lease", has_moved: bool = False) -> Stop:
    return Stop(dsn=place.dsn, schema=place.schema, is_elsewhere=is_elsewhere, how=how, has_moved=has_moved)


@pytest.mark.parametrize(
    ("how", "is_elsewhere", "has_moved"),
    [("takeover", False, True), ("takeover", False, False), ("lease", True, False)],
)
def test_stopped_owner_that_continues_after_takeover_leaves_no_trace(
    harbour: Zygote, postgres_place: Place, how: str, is_elsewhere: bool, has_moved: bool
) -> None:
    order = stop(postgres_place, is_elsewhere=is_elsewhere, how=how, has_moved=has_moved)
    harbour.life("tests.fleet.stopping:stopped", order)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_dead_owner_is_noticed_at_once_here_and_after_lease_elsewhere(
    harbour: Zygote, postgres_place: Place, is_elsewhere: bool
) -> None:
    harbour.life("tests.fleet.stopping:killed", stop(postgres_place, is_elsewhere=is_elsewhere))


def test_an_owner_whose_event_loop_stands_still_keeps_its_thread(harbour: Zygote, postgres_place: Place) -> None:
    harbour.life("tests.fleet.stopping:blocked", stop(postgres_place, is_elsewhere=True))


async def test_claim_that_waits_for_a_commit_sees_that_commit(postgres_dsn: str) -> None:
    store = PostgresStore(postgres_dsn)
    first = await own(store, "t")
    await first.save(brings=["one"], events=1)
    other, watching = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    async with other.transaction():
        await other.execute("SELECT 1 FROM perdure.threads FOR UPDATE")
        saving = asyncio.create_task(first.save(brings=["two"], events=1))
        await _are_waiting(watching, 1)
        claiming = asyncio.create_task(own(store, "t", owner="second", takeover=True))
        await _are_waiting(watching, 2)
    await saving
    second = await claiming
    assert (second.number, second.last_seq, second.head and second.head.number) == (2, 2, 2)
    await second.save()
    with pytest.raises(ThreadConflict):
        await first.save()
    await other.close()
    await watching.close()
    await store.close()


async def _are_waiting(connection: asyncpg.Connection, number: int) -> None:
    """So many statements in this database wait for locks."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while len(await connection.fetch(waiting)) < number:  # noqa: ASYNC110  # no event reports this
        await asyncio.sleep(0.005)


async def test_owner_that_released_is_not_waited_for_when_dead_elsewhere(
    postgres_place: Place,
) -> None:
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    first = await own(store, "t")
    await first.save()
    await first.release()
    await let_time_pass(store)
    second = await own(store, "t", owner="second")
    await second.save()
    assert (await read_as_owner(store))["number"] == 2
    await store.close()
