"""The proxy and the pooler that other tests stand on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
import redis
from tests.databases.pooler import Pooler
from tests.databases.proxy import Instant, Proxy
from tests.databases.valkey import ValkeyServer

CUT = (asyncpg.ConnectionDoesNotExistError, ConnectionError)


@pytest.fixture
def proxy(postgres_dsn: str) -> Iterator[Proxy]:
    with Proxy(postgres_dsn) as proxy:
        yield proxy


@pytest.fixture
async def connection(postgres_dsn: str, proxy: Proxy) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(proxy.url)
    await connection.execute("CREATE TABLE kept (number int)")
    yield connection
    connection.terminate()


async def numbers(dsn: str) -> list[int]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row["number"] for row in await connection.fetch("SELECT number FROM kept ORDER BY number")]
    finally:
        await connection.close()


async def test_round_trips_and_statements_are_counted(proxy: Proxy, connection: Any) -> None:
    with proxy.counted() as first:
        await connection.execute("INSERT INTO kept VALUES ($1)", 1)
    with proxy.counted() as again:
        await connection.execute("INSERT INTO kept VALUES ($1)", 2)
    with proxy.counted() as transaction:
        async with connection.transaction():
            await connection.execute("INSERT INTO kept VALUES ($1)", 3)
    assert (first.round_trips, first.statements) == (2, ["INSERT INTO kept VALUES ($1)"])
    assert (again.round_trips, again.statements) == (1, ["INSERT INTO kept VALUES ($1)"])
    assert transaction.round_trips == 3 and transaction.statements[0] == "BEGIN;"


@pytest.mark.parametrize(
    ("instant", "is_there"),
    [(Instant.BEFORE, False), (Instant.ANSWERED, True), (Instant.IN_ANSWER, True), (Instant.AFTER, True)],
    ids=lambda value: value.name if isinstance(value, Instant) else None,
)
async def test_a_connection_is_cut_at_one_instant_of_a_statement(
    postgres_dsn: str, proxy: Proxy, connection: Any, instant: Instant, is_there: bool
) -> None:
    proxy.cut(instant, "INSERT")
    assert await connection.fetchval("SELECT 1") == 1
    with pytest.raises(CUT):
        await connection.execute("INSERT INTO kept VALUES ($1)", 1)
    assert proxy.cuts == 1
    if instant is Instant.AFTER:  # the server does it in its own time
        await asyncio.to_thread(proxy.deliver)
    assert await numbers(proxy.url) == [1][: int(is_there)]


async def test_a_statement_that_was_cut_off_may_arrive_late(postgres_dsn: str, proxy: Proxy, connection: Any) -> None:
    proxy.cut(Instant.LATE, "INSERT")
    with pytest.raises(CUT):
        await connection.execute("INSERT INTO kept VALUES ($1)", 1)
    assert await numbers(postgres_dsn) == []
    await asyncio.to_thread(proxy.deliver)
    assert await numbers(postgres_dsn) == [1]


async def test_a_stalled_proxy_answers_when_it_flows_again(proxy: Proxy, connection: Any) -> None:
    proxy.stall()
    answer = asyncio.create_task(connection.fetchval("SELECT 7"))
    assert not (await asyncio.wait([answer], timeout=0.1))[0]
    proxy.flow()
    assert await answer == 7


async def test_proxy_that_refuses_cuts_all_connections_and_accepts_none(proxy: Proxy, connection: Any) -> None:
    proxy.refuse()
    with pytest.raises(CUT):
        await connection.fetchval("SELECT 1")
    with pytest.raises(OSError, match="Connect"):
        await asyncpg.connect(proxy.url)
    proxy.admit()
    assert await numbers(proxy.url) == []


def test_a_valkey_behind_a_proxy_is_cut_off_too(valkey_server: ValkeyServer) -> None:
    with Proxy(valkey_server.url) as proxy, redis.Redis.from_url(proxy.url, retry=None) as client:
        client.set("key", "value")
        proxy.cut(Instant.ANSWERED, "INCR")
        with pytest.raises(redis.ConnectionError):
            client.incr("count")
        assert client.get("count") == b"1"


async def test_a_pooler_gives_each_transaction_another_connection(postgres_dsn: str) -> None:
    with Pooler(postgres_dsn, size=2) as pooler:
        connection = await asyncpg.connect(pooler.dsn)
        pids = [await connection.fetchval("SELECT pg_backend_pid()") for _ in range(4)]
        assert len(set(pids)) == 2 and pids[0] != pids[1]
        async with connection.transaction():
            inside = {await connection.fetchval("SELECT pg_backend_pid()") for _ in range(3)}
        assert len(inside) == 1
        await connection.close()


async def test_more_clients_than_server_connections_share_these(postgres_dsn: str) -> None:
    async def ask(number: int) -> set[int]:
        connection = await asyncpg.connect(pooler.dsn)
        answers = [await connection.fetchrow("SELECT $1::int, pg_backend_pid()", number) for _ in range(20)]
        await connection.close()
        assert {answer[0] for answer in answers} == {number}
        return {answer[1] for answer in answers}

    with Pooler(postgres_dsn, size=2) as pooler:
        assert len(set.union(*await asyncio.gather(*(ask(number) for number in range(6))))) == 2

        first, second = await asyncpg.connect(pooler.dsn), await asyncpg.connect(pooler.dsn)
        async with first.transaction():
            held = await first.fetchval("SELECT pg_backend_pid()")
            other = await second.fetchval("SELECT pg_backend_pid()")
        before = pooler.switches
        assert await first.fetchval("SELECT pg_backend_pid()") == other != held
        assert pooler.switches == before + 1
        await first.close()
        await second.close()


async def test_prepared_statements_are_lost_between_connections_of_old_poolers(postgres_dsn: str) -> None:
    with Pooler(postgres_dsn, size=2, knows_statements=False) as pooler:
        connection = await asyncpg.connect(pooler.dsn)
        assert await connection.fetchval("SELECT $1::int", 1) == 1
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await connection.fetchval("SELECT $1::int", 1)
        connection.terminate()
        connection = await asyncpg.connect(pooler.dsn, statement_cache_size=0)
        assert [await connection.fetchval("SELECT $1::int", number) for number in range(5)] == list(range(5))
        await connection.close()


async def test_a_pooler_refuses_settings_and_forgets_those_of_a_session(postgres_dsn: str) -> None:
    with Pooler(postgres_dsn, size=2) as pooler:
        with pytest.raises(asyncpg.ProtocolViolationError, match="unsupported startup parameter: statement_timeout"):
            await asyncpg.connect(pooler.dsn, server_settings={"statement_timeout": "1000"})
        connection = await asyncpg.connect(pooler.dsn)
        await connection.execute("SET work_mem = '77MB'")
        assert {await connection.fetchval("SHOW work_mem") for _ in range(2)} == {"77MB", "4MB"}
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetchval("SELECT pg_sleep(60)", timeout=0.1)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
