"""A store in PostgreSQL, for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio

from perdure.records import Commit, Lease
from perdure.stores.notify import Listening, hall_of
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rewriting import Checking
from perdure.stores.postgres.urls import place_of


class PostgresStore(Checking, Listening):
    """Implements `perdure.store.Store`. A commit is one statement and one round trip."""

    first_look_seconds = 0.1
    last_look_seconds = 1.0

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
        self.hall = hall_of(("postgres", self.place))

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if self.hall.ears:
            self.hall.tell(commit.lease.thread_id, None)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await super().post(thread_id, item_id, kind, body)
        if self.hall.ears:
            self.hall.tell(thread_id, None)

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        if self.hall.ears:
            self.hall.tell(lease.thread_id, None)

    async def close(self) -> None:
        if self._heartbeat.is_beating:
            await asyncio.to_thread(self._heartbeat.stop)
        await self.db.close()
