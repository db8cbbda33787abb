"""The storages under the names that users of AgentFlow know. Usable wherever a storage is."""

from __future__ import annotations

from typing import Any

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import InMemoryCheckpointStorage, PostgresCheckpointStorage


class _Checkpointer(StoreCheckpointStorage):
    async def asetup(self) -> None:
        """Connect, and make what is missing, now rather than on first use."""
        await self.store.thread_ids(limit=1)

    async def arelease(self) -> None:
        """The same as `close`."""
        await self.close()


class InMemoryCheckpointer(_Checkpointer, InMemoryCheckpointStorage):
    """An `InMemoryCheckpointStorage`."""


class PgCheckpointer(_Checkpointer, PostgresCheckpointStorage):
    """A `PostgresCheckpointStorage`. Redis is optional, and the tables are made on first use.

    All that a `PostgresCheckpointStorage` takes can be given too.
    """

    def __init__(self, postgres_dsn: str, redis_url: str | None = None, **options: Any) -> None:
        super().__init__(postgres_dsn, redis_url=redis_url, **options)
