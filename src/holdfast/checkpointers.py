"""The storages under the names that users of AgentFlow know. Usable wherever a storage is."""

from __future__ import annotations

from typing import Any

from holdfast.storages import InMemoryCheckpointStorage, PostgresCheckpointStorage


class InMemoryCheckpointer(InMemoryCheckpointStorage):
    """An `InMemoryCheckpointStorage`."""


class PgCheckpointer(PostgresCheckpointStorage):
    """A `PostgresCheckpointStorage`. Redis is optional, and the tables are made on first use.

    All that a `PostgresCheckpointStorage` takes can be given too.
    """

    def __init__(self, postgres_dsn: str, redis_url: str | None = None, **options: Any) -> None:
        super().__init__(postgres_dsn, redis_url=redis_url, **options)
