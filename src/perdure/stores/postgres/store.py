"""A store in PostgreSQL, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from perdure.records import Commit, Lease
from perdure.store import Subscription
from perdure.stores.notify import PollInterval, bus_for
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rewriting import Checking
from perdure.stores.postgres.urls import place_of


class PostgresStore(Checking):
    """Implements `perdure.store.Store`. A commit is one statement and one round trip."""

    poll_interval = PollInterval(0.1, 1.0)

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "perdure",
        pool_size: int = 10,
        acquire_seconds: float = 30.0,
        statement_seconds: float = 30.0,
    ) -> None:
        super().__init__(Database(dsn, schema, pool_size, acquire_seconds, statement_seconds))

        self.place = place_of(dsn, schema)
        """Which tables these are, whoever uses them."""
        self.bus = bus_for(("postgres", self.place))

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.bus.notify(commit.lease.thread_id)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await super().post(thread_id, item_id, kind, body)
        self.bus.notify(thread_id)

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        self.bus.notify(lease.thread_id)

    async def close(self) -> None:
        if self._heartbeat.is_beating:
            await asyncio.to_thread(self._heartbeat.stop)
        await self.db.close()

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

    def has_subscribers(self, thread_id: str) -> bool:
        return self.bus.has_subscribers(thread_id)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)
