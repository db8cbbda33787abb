"""Where encrypted threads are kept in these tests: each place can be opened in any way, and looked at byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.codecs.aes_gcm import AesGcm
from perdure.storages import open_store
from perdure.store import Store

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
"""Keys."""


@dataclass(frozen=True)
class Place:
    kind: str
    url: str
    folder: Path
    dsn: str = ""
    schema: str = ""

    def storage(self, encryption: AesGcm | None = None) -> StoreCheckpointStorage:
        return open_store(self.url, encryption=encryption)

    def store(self, encryption: AesGcm | None = None) -> Store:
        """Return an encrypted store with a key, and without a key the store below, as on the disk."""
        return self.storage(encryption).store

    async def raw(self) -> bytes:
        """All that is kept, as it is on the disk or in the rows."""
        if not self.dsn:
            files = [file for file in self.folder.rglob("*") if file.is_file()]
            return b"\n".join([file.name.encode() + b"\n" + file.read_bytes() for file in sorted(files)])
        connection = await asyncpg.connect(self.dsn)
        try:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", self.schema)
            rows = [
                row
                for (table,) in tables
                for row in await connection.fetch(f'SELECT * FROM "{self.schema}"."{table}"')  # our own
            ]
        finally:
            await connection.close()
        return b"\n".join(_bytes_of(value) for row in rows for value in row.values())


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Iterable):
        return b"\n".join(map(_bytes_of, value))
    return str(value).encode()


async def closed(*stores: Store | StoreCheckpointStorage) -> None:
    for store in stores:
        await store.close()


async def ended(process: asyncio.subprocess.Process) -> int:
    """Return the exit code of a process that ends by itself or by a signal."""
    async with asyncio.timeout(60):
        return await process.wait()
