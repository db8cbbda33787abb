"""Makes the stores that the contract is tried on, in this process and in others."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.store import Store
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.valkey.connection import Valkey
from perdure.stores.valkey.store import AcceleratedStore

URL = "PERDURE_TRIED_VALKEY_URL"
"""In the environment, for the other processes."""


def with_valkey(folder: Path) -> Store:
    return AcceleratedStore(SqliteStore(folder / "threads.db", synchronous="OFF"), Valkey(os.environ[URL]), str(folder))
