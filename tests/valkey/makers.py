"""Makes the stores that the contract is tried on, in this process and in others."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.store import Store
from holdfast.stores.accelerated import AcceleratedStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.valkey import Valkey

URL = "HOLDFAST_TRIED_VALKEY_URL"
"""In the environment, for the other processes."""


def with_valkey(folder: Path) -> Store:
    return AcceleratedStore(SqliteStore(folder / "threads.db", synchronous="OFF"), Valkey(os.environ[URL]), str(folder))
