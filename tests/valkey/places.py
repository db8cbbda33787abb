"""Where threads are kept in the tests with Valkey: a real store, and a real Valkey beside it, for any process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.store import Store
from perdure.stores.notify import PollInterval
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.valkey.store import AcceleratedStore, Valkey

NEVER = 3600.0


@dataclass(frozen=True)
class Place:
    kind: str
    where: str
    """The path or the dsn."""
    schema: str = ""
    valkey: str | None = None
    poll_seconds: float | None = None
    """How often a subscriber polls the store itself, where that is not the default."""

    def beside(self, url: str) -> Place:
        return replace(self, valkey=url)

    def seldom_looked_at(self) -> Place:
        """Return the place with rare polls: what arrives soon was then not found by polling."""
        return replace(self, poll_seconds=NEVER)

    def store(self) -> Store:
        store = self._truth()
        if self.poll_seconds is not None:
            store.poll_interval = PollInterval(self.poll_seconds, self.poll_seconds)
        return store if self.valkey is None else AcceleratedStore(store, Valkey(self.valkey), self.name)

    def _truth(self) -> SqliteStore | PostgresStore:
        if self.kind == "sqlite":
            return SqliteStore(Path(self.where), synchronous="NORMAL")
        return PostgresStore(self.where, schema=self.schema)

    @property
    def name(self) -> str:
        return f"{self.kind} {Path(self.where).name} {self.schema}"

    def storage(self) -> StoreCheckpointStorage:
        return StoreCheckpointStorage(self.store())
