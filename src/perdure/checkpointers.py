"""The storages under the names that users of AgentFlow know. Usable wherever a storage is."""

from __future__ import annotations

from typing import Any

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.storages import InMemoryCheckpointStorage, PostgresCheckpointStorage


async def _asetup(self: StoreCheckpointStorage) -> None:
    """Connect and create the tables now, rather than on first use."""
    await self.store.thread_ids(limit=1)


async def _arelease(self: StoreCheckpointStorage) -> None:
    """The same as `close`."""
    await self.close()


class InMemoryCheckpointer(InMemoryCheckpointStorage):
    """An `InMemoryCheckpointStorage`."""

    asetup = _asetup
    arelease = _arelease


class PgCheckpointer(PostgresCheckpointStorage):
    """A `PostgresCheckpointStorage`. Redis is optional; the first use creates the tables.

    Accepts all options of a `PostgresCheckpointStorage`.
    """

    def __init__(self, postgres_dsn: str, redis_url: str | None = None, **options: Any) -> None:
        super().__init__(postgres_dsn, redis_url=redis_url, **options)

    asetup = _asetup
    arelease = _arelease
