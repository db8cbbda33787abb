"""The storages users construct: a driver under the one storage class."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from holdfast.checkpoints.storage import StoreCheckpointStorage
from holdfast.codec import Codec
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore


class InMemoryCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints as long as the process lives: for tests, demonstrations and short-lived work."""

    def __init__(
        self,
        *,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] = (),
        allowed_checkpoint_types: Iterable[type | str] = (),
    ) -> None:
        super().__init__(
            MemoryStore(),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
        )


class SqliteCheckpointStorage(StoreCheckpointStorage):
    """Keeps checkpoints in one SQLite file, for any number of processes of one machine.

    `synchronous="FULL"` survives a power cut with everything that was acknowledged. `"NORMAL"` is faster, survives any
    crash of the process, and may lose the last commits to a power cut.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        busy_seconds: float = 30.0,
        serializer: Codec | None = None,
        allowed_types: Iterable[type | str] = (),
        allowed_checkpoint_types: Iterable[type | str] = (),
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise ValueError(f"synchronous expects 'FULL' or 'NORMAL', got {synchronous!r}.")
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("A SqliteCheckpointStorage is a file. For one in memory use InMemoryCheckpointStorage().")
        super().__init__(
            SqliteStore(path, synchronous=synchronous, busy_seconds=busy_seconds),
            serializer=serializer,
            allowed_types=allowed_types,
            allowed_checkpoint_types=allowed_checkpoint_types,
        )
