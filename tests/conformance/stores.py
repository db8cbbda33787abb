"""The stores of perdure that keep the contract, each over a folder.

Other processes make the same ones, and import only what theirs needs: starting a process is most of what a test with
processes takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from perdure.store import Store

KEY = b"k" * 32
VALKEY_URL = "PERDURE_TESTS_VALKEY_URL"
"""The environment variable that names the Valkey server to other processes."""


def make_memory(folder: Path) -> Store:
    from perdure.stores.memory.store import MemoryStore

    return MemoryStore()


def make_sqlite(folder: Path) -> Store:
    from perdure.stores.sqlite.store import SqliteStore

    return SqliteStore(folder / "threads.db", synchronous="NORMAL")


def make_file(folder: Path) -> Store:
    from perdure.stores.file.store import FileStore

    return FileStore(folder / "threads", fsync=False)


def make_postgres(folder: Path) -> Store:
    from tests.schemas import where

    from perdure.stores.postgres.store import PostgresStore

    return PostgresStore(where(folder).dsn, schema=where(folder).schema)


STORES: dict[str, Callable[[Path], Store]] = {
    "memory": make_memory,
    "sqlite": make_sqlite,
    "file": make_file,
    "postgres": make_postgres,
}
"""Empty ones, for a folder that is new. Syncing is not what these tests are about, and takes time."""

ON_DISK = [kind for kind in STORES if kind != "memory"]
"""Those of which two objects, in one process or in two, can be the same store."""


def make_encrypted(folder: Path) -> Store:
    from perdure.codecs.aes_gcm import AesGcm
    from perdure.stores.encrypted.store import EncryptedStore

    return EncryptedStore(make_sqlite(folder), AesGcm(KEY))


def make_with_valkey(folder: Path) -> Store:
    from perdure.stores.valkey.store import AcceleratedStore, Valkey

    return AcceleratedStore(make_sqlite(folder), Valkey(os.environ[VALKEY_URL]), str(folder))
