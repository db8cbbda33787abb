"""The stores that the contract is tried on, and where each of them keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.schemas import where

from perdure.store import Store
from perdure.stores.file.store import FileStore
from perdure.stores.memory.store import MemoryStore
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.store import SqliteStore

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "threads.db", synchronous="NORMAL"),
    "file": lambda folder: FileStore(folder / "threads", fsync=False),
    "postgres": lambda folder: PostgresStore(where(folder).dsn, schema=where(folder).schema),
}
"""Empty ones, for a folder that is new. Syncing is not what these tests are about, and takes time."""

ON_DISK = [kind for kind in STORES if kind != "memory"]
"""Those of which two objects, in one process or in two, can be the same store."""
