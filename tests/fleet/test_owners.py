"""Owners that are stopped, dead or busy, here and on another machine: their threads change hands, and nothing more."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.crash.zygote import Zygote
from tests.fleet.stopping import Stop, let_time_pass
from tests.servers.fixtures import Place

from holdfast.errors import ThreadConflict
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.conformance.acts import inside, own

HERE, ELSEWHERE = pytest.param(False, id="here"), pytest.param(True, id="elsewhere")


@pytest.mark.parametrize(("how", "is_elsewhere"), [("takeover", False), ("takeover", True), ("lease", True)])
def test_a_stopped_owner_that_goes_on_after_another_took_over_leaves_no_trace(
    harbour: Zygote, postgres_place: Place, how: str, is_elsewhere: bool
) -> None:
    order = Stop(dsn=postgres_place.dsn, schema=postgres_place.schema, is_elsewhere=is_elsewhere, how=how)
    harbour.life("tests.fleet.stopping:stopped", order)


@pytest.mark.parametrize("is_elsewhere", [HERE, ELSEWHERE])
def test_a_dead_owner_is_noticed_at_once_here_and_after_its_lease_elsewhere(
    harbour: Zygote, postgres_place: Place, is_elsewhere: bool
) -> None:
    order = Stop(dsn=postgres_place.dsn, schema=postgres_place.schema, is_elsewhere=is_elsewhere, how="lease")
    harbour.life("tests.fleet.stopping:killed", order)


def test_an_owner_whose_event_loop_stands_still_keeps_its_thread(harbour: Zygote, postgres_place: Place) -> None:
    order = Stop(dsn=postgres_place.dsn, schema=postgres_place.schema, is_elsewhere=True, how="lease")
    harbour.life("tests.fleet.stopping:blocked", order)


async def test_a_claim_that_waits_for_a_commit_finds_the_thread_as_that_left_it(postgres_dsn: str) -> None:
    store = PostgresStore(postgres_dsn)
    first = await own(store, "t")
    await first.save(brings=["one"], events=1)
    other = await asyncpg.connect(postgres_dsn)
    async with other.transaction():
        await other.execute("SELECT 1 FROM holdfast.threads FOR UPDATE")
        saving = asyncio.create_task(first.save(brings=["two"], events=1))
        await _are_waiting(other, 1)
        claiming = asyncio.create_task(own(store, "t", owner="second", takeover=True))
        await _are_waiting(other, 2)
    await saving
    second = await claiming
    assert (second.number, second.last_seq, second.head and second.head.number) == (2, 2, 2)
    await second.save()
    with pytest.raises(ThreadConflict):
        await first.save()
    await other.close()
    await store.close()


async def _are_waiting(connection: asyncpg.Connection, number: int) -> None:
    """So many statements in this database wait for locks."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while len(await connection.fetch(waiting)) < number:  # noqa: ASYNC110  # no event tells
        await asyncio.sleep(0.005)


async def test_an_owner_that_released_is_not_waited_for_though_its_process_is_dead_elsewhere(
    postgres_place: Place,
) -> None:
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    first = await own(store, "t")
    await first.save()
    await first.release()
    await let_time_pass(store)
    second = await own(store, "t", owner="second")
    await second.save()
    assert (await inside(store))["number"] == 2
    await store.close()
