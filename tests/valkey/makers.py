"""Makes the stores that the contract is tried on, in this process and in others."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.valkey.connection import Valkey
from holdfast.stores.valkey.store import AcceleratedStore

URL = "HOLDFAST_TRIED_VALKEY_URL"
"""In the environment, for the other processes."""


def with_valkey(folder: Path) -> Store:
    return AcceleratedStore(SqliteStore(folder / "threads.db", synchronous="OFF"), Valkey(os.environ[URL]), str(folder))
