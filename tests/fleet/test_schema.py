"""The first process creates the tables, however many start at once. Tables of another version are rejected."""

from __future__ import annotations

import pytest
from tests.chance import SOAK
from tests.crash.zygote import Zygote
from tests.databases.fixtures import Place
from tests.databases.postgres import Databases
from tests.fleet.preparing import Prepare

from perdure.errors import NewerFormat, StorageFailed
from perdure.stores.postgres.schema import VERSION
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own, save_thread, thread_ids

PROCESSES = 8


def prepare(place: Place) -> Prepare:
    return Prepare(dsn=place.dsn, schema=place.schema, processes=PROCESSES)


def fetch(databases: Databases, place: Place, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in databases.fetch(query.replace("{s}", f'"{place.schema}"'))]


@pytest.mark.parametrize("round_", range(10 if SOAK else 1))
async def test_many_processes_that_make_the_tables_at_once_make_them_once(
    harbour: Zygote, postgres_server: Databases, postgres_place: Place, round_: int
) -> None:
    harbour.life("tests.fleet.preparing:live", prepare(postgres_place))
    versions = fetch(postgres_server, postgres_place, "SELECT version FROM {s}.meta")
    assert versions == [(VERSION,)]
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    assert sorted(await thread_ids(store)) == [f"thread {number}" for number in range(PROCESSES)]
    await store.close()


async def test_tables_of_a_newer_version_are_refused_and_left_alone(
    postgres_server: Databases, postgres_place: Place
) -> None:
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    await save_thread(store, "old")
    await store.close()
    fetch(postgres_server, postgres_place, "UPDATE {s}.meta SET version = 99")
    old = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    for attempt in (own(old, "old"), old.threads(), old.post("old", "item", "message", b"1")):
        with pytest.raises(NewerFormat, match="99"):
            await attempt
    await old.close()
    assert fetch(postgres_server, postgres_place, "SELECT count(*) FROM {s}.inbox") == [(0,)]


async def test_schema_of_another_program_is_refused_and_left_alone(
    postgres_server: Databases, postgres_place: Place
) -> None:
    postgres_server.execute(f'CREATE SCHEMA "{postgres_place.schema}"')
    postgres_server.execute(f'CREATE TABLE "{postgres_place.schema}".invoices (number int)')
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    with pytest.raises(StorageFailed, match="invoices"):
        await store.threads()
    await store.close()


async def test_store_uses_an_empty_schema_that_already_exists(
    postgres_server: Databases, postgres_place: Place
) -> None:
    postgres_server.execute(f'CREATE SCHEMA "{postgres_place.schema}"')
    store = PostgresStore(postgres_place.dsn, schema=postgres_place.schema)
    await save_thread(store, "t")
    await store.close()
