"""What happens at the same time in a PostgreSQL store, forced: rows that stay locked, transactions that do not end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from perdure.stores.postgres.store import PostgresStore

PATIENCE_SECONDS = 60.0
_GATE = 4711
"""The lock that transactions wait for at their end, while they are held up."""


class Forced:
    """One schema, any number of stores over it, and another client that gets in their way."""

    def __init__(self, dsn: str, schema: str) -> None:
        parts = urlsplit(dsn)
        query = urlencode({**dict(parse_qsl(parts.query)), "application_name": schema})
        self.dsn = urlunsplit(parts._replace(query=query))
        """With a name by which its connections are known from those of other tests."""
        self.schema = schema
        self._plain_dsn = dsn
        self._stores: list[PostgresStore] = []
        self._connections: list[asyncpg.Connection[Any]] = []
        self._watcher: asyncpg.Connection[Any] | None = None

    async def __aenter__(self) -> Self:
        self._watcher = await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:  # first: a store may wait for one of them
            await connection.close()
        for store in self._stores:
            await store.close()

    def store(self, dsn: str | None = None, **options: Any) -> PostgresStore:
        """One more object that is the same store, as another process has it."""
        self._stores.append(PostgresStore(dsn or self.dsn, schema=self.schema, **options))
        return self._stores[-1]

    async def connect(self) -> asyncpg.Connection[Any]:
        """Open a connection of another client."""
        self._connections.append(await asyncpg.connect(self._plain_dsn))
        return self._connections[-1]

    async def execute(self, statement: str, *arguments: object) -> None:
        assert self._watcher is not None
        await self._watcher.execute(self._named(statement), *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        assert self._watcher is not None
        return await self._watcher.fetchval(self._named(query), *arguments)

    def _named(self, statement: str) -> str:
        return statement.replace("{s}", f'"{self.schema}"')

    @asynccontextmanager
    async def locked(self, rows: str, how: str = "FOR UPDATE") -> AsyncIterator[None]:
        """Hold a lock on these rows from another connection: `{s}.commits WHERE number = 2`."""
        connection = await self.connect()
        async with connection.transaction():
            await connection.execute(self._named(f"SELECT 1 FROM {rows} {how}"))
            yield

    @asynccontextmanager
    async def under_way(self, table: str, act: str) -> AsyncIterator[None]:
        """Transactions that do this to a table are done with all but their end, and keep what they have locked."""
        await self.execute(
            f"CREATE FUNCTION {{s}}.wait() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM pg_advisory_xact_lock_shared({_GATE}, hashtext('{self.schema}')); RETURN NULL; END $$"
        )
        await self.execute(
            f"CREATE CONSTRAINT TRIGGER wait AFTER {act} ON {{s}}.{table} DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION {s}.wait()"
        )
        connection = await self.connect()
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_GATE}, hashtext('{self.schema}'))")
            yield

    async def until_waiting(self, count: int = 1) -> None:
        """So many of the stores' statements wait for a lock."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.waiting() != count:  # noqa: ASYNC110  # no event reports this
                await asyncio.sleep(0.005)

    async def waiting(self) -> int:
        return int(await self.value(f"SELECT count(*) {_THEIRS} AND wait_event_type = 'Lock'", self.schema))

    async def connections(self) -> int:
        return int(await self.value(f"SELECT count(*) {_THEIRS}", self.schema))

    async def until_connections(self, count: int) -> None:
        """Of stores to the server."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.connections() != count:  # noqa: ASYNC110  # no event reports this
                await asyncio.sleep(0.005)


_THEIRS = "FROM pg_stat_activity WHERE application_name = $1 AND backend_type = 'client backend'"
