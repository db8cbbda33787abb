"""A server that is slow, silent, busy or strict: what can be done again is done again, all else is a clear error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.databases.proxy import Instant, Proxy

from perdure.errors import PoolExhausted, StoreUnavailable, ThreadConflict
from perdure.records import Commit
from perdure.stores.postgres import database as postgres_database
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.conformance.threads import own, read_everything, save_full_thread, save_thread

MakeStore = Callable[..., PostgresStore]


@pytest.fixture
def proxy(postgres_dsn: str) -> Iterator[Proxy]:
    with Proxy(postgres_dsn) as proxy:
        yield proxy


@pytest.fixture
async def make_store(postgres_dsn: str) -> AsyncIterator[MakeStore]:
    made = []

    def make(dsn: str = postgres_dsn, **options: Any) -> PostgresStore:
        made.append(PostgresStore(dsn, **options))
        return made[-1]

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def connection(postgres_dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_dsn)
    yield connection
    await connection.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is not waited for."""
    monkeypatch.setattr(postgres_database, "RECONNECT_SECONDS", 0.3)


# ---------------------------------------------------------------- silent


@pytest.mark.usefixtures("impatient")
async def test_server_that_does_not_answer_raises_an_error_within_the_timeout(
    proxy: Proxy, make_store: MakeStore
) -> None:
    store = make_store(proxy.url, statement_seconds=0.4)
    owner = await own(store)
    await owner.save()
    proxy.stall()
    with pytest.raises(StoreUnavailable) as caught:
        await owner.save()
    address = urlsplit(proxy.url)
    assert f"{address.hostname}:{address.port}" in str(caught.value)
    assert not address.password or address.password not in str(caught.value)
    proxy.flow()
    again = await own(store, owner="another", takeover=True)
    await again.save()
    with pytest.raises(ThreadConflict):
        await owner.save()


async def test_a_pool_without_a_free_connection_is_a_clear_error_after_the_limit(
    proxy: Proxy, make_store: MakeStore
) -> None:
    store = make_store(proxy.url, pool_size=2, acquire_seconds=0.3)
    await save_thread(store, "t")
    proxy.stall()
    slow = [asyncio.create_task(store.head("t")) for _ in range(2)]
    await asyncio.sleep(0)
    began = time.monotonic()
    with pytest.raises(PoolExhausted, match=r"all 2 connections were in use for 0\.3 s.*raise pool_size"):
        await store.head("t")
    assert time.monotonic() - began >= 0.3
    proxy.flow()
    assert [head and head.info.number for head in await asyncio.gather(*slow)] == [1, 1]
    assert await store.head("t")


async def test_waiting_calls_get_a_connection_when_it_is_free(make_store: MakeStore) -> None:
    store = make_store(pool_size=2)
    owners = [await own(store, f"t{number}") for number in range(8)]

    async def move(number: int) -> None:
        for _ in range(10):
            await owners[number].save(events=1)

    await asyncio.gather(*(move(number) for number in range(8)))
    assert [owner.number for owner in owners] == [10] * 8


async def test_client_that_vanishes_in_a_transaction_does_not_block_others(proxy: Proxy, make_store: MakeStore) -> None:
    vanishing, other = make_store(proxy.url, statement_seconds=1), make_store(statement_seconds=1)
    await save_thread(vanishing, "t", 2)
    owner = await own(vanishing)
    proxy.cut(Instant.LATE, "COMMIT;")  # the server keeps its side of the connection, and its locks
    acting = asyncio.create_task(owner.save(parent=1))
    while not proxy.cuts:  # noqa: ASYNC110  # no event reports this
        await asyncio.sleep(0.01)
    proxy.stall()
    taken = await asyncio.wait_for(own(other, owner="another", takeover=True), 6)
    await taken.save()
    proxy.flow()
    with pytest.raises(ThreadConflict):
        await acting
    await asyncio.to_thread(proxy.deliver)
    assert [info.number for info in await other.infos(thread_id="t")] == [1, 2, 3]


# ---------------------------------------------------------------- restarted


async def test_connections_ended_by_the_server_between_calls_go_unnoticed(
    make_store: MakeStore, connection: Any
) -> None:
    store = make_store()
    owner = await own(store)
    for _ in range(3):
        await owner.save(events=1)
        await connection.execute(ENDING)
    await owner.release()
    assert [info.number for info in await store.infos()] == [1, 2, 3]


async def test_connections_ended_repeatedly_by_the_server_lose_no_writes(
    make_store: MakeStore, connection: Any
) -> None:
    store = make_store()
    owners = [await own(store, f"t{number}") for number in range(4)]

    async def move(number: int) -> None:
        for turn in range(10):
            await store.post(f"t{number}", f"item {turn}", "message", b"1")
            await owners[number].save(brings=[f"chunk {turn}"], events=1)

    moving = asyncio.gather(*(move(number) for number in range(4)))
    while not moving.done():
        await connection.execute(ENDING)
        await asyncio.sleep(0.05)
    await moving
    for thread in await store.threads():
        standing = await store.thread_header(thread.thread_id)
        assert standing is not None
        assert (standing.number, standing.last_seq, len(standing.inbox)) == (10, 10, 10)
    assert not await store.check()


ENDING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


# ---------------------------------------------------------------- strict


async def test_transaction_that_idles_too_long_is_rolled_back_with_an_error(
    make_store: MakeStore, connection: Any
) -> None:
    store = make_store(statement_seconds=1)
    await save_full_thread(store, "t")
    standing, commits = await store.thread_header("t"), await store.commits("t")
    assert standing is not None
    await store.delete_thread("t")
    before = await read_everything(store, "t")
    await connection.execute(
        f"ALTER DATABASE {connection._params.database} SET idle_in_transaction_session_timeout = 100"
    )
    await connection.execute(ENDING)

    def slowly() -> Iterator[Commit]:
        yield commits[0]
        time.sleep(1.2)
        yield from commits[1:]

    with pytest.raises(StoreUnavailable, match="connection was lost"):
        await store.add_thread(standing, slowly())
    assert await read_everything(store, "t") == before
    await store.add_thread(standing, commits)
    assert await store.commits("t") == commits


async def test_commit_that_the_server_rolls_back_for_a_deadlock_is_retried(
    proxy: Proxy, make_store: MakeStore, connection: Any, postgres_dsn: str
) -> None:
    # A session looks for a deadlock once, so long after its wait begins: the other session waits too by then.
    await connection.execute(f"ALTER DATABASE {name_of(connection)} SET deadlock_timeout = '2s'")
    store = make_store(proxy.url)
    owner = await own(store, "ours")
    await owner.save()
    await connection.execute("SET deadlock_timeout = '1min'")  # PostgreSQL does not undo this one
    watching = await asyncpg.connect(postgres_dsn)
    await save_thread(store, "theirs")
    with proxy.counted() as counts:
        async with connection.transaction():
            # The store takes rows of commits before that of their thread.
            await connection.execute("UPDATE perdure.threads SET status = status WHERE thread_id = 'theirs'")
            saving = asyncio.create_task(owner.save("theirs-1", brings=["new"]))  # takes the place of theirs
            while not await watching.fetch(WAITING):  # noqa: ASYNC110  # no event reports this
                await asyncio.sleep(0.005)
            await connection.execute(
                "UPDATE perdure.commits c SET status = c.status FROM perdure.threads t"
                " WHERE t.thread = c.thread AND t.thread_id = 'theirs'"
            )
        await saving
        checkpoint = await store.find_checkpoint("theirs-1")
        assert checkpoint is not None and checkpoint.info.thread_id == "ours"
    assert counts.statements.count("ROLLBACK;") == 1
    assert (await store.commits("ours"))[-1].number == 2
    await watching.close()


WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def name_of(connection: Any) -> str:
    """Of its database, as SQL."""
    return f'"{connection._params.database}"'
