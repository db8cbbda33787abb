"""The PostgreSQL of a child: the program writes its address into the folder of a measurement."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

DATABASE, VALKEY = "postgres.url", "valkey.url"
CONNECTIONS = 16
"""Connections of each pool, for perdure and the peers."""

SIZE = """
SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'S')
"""
"""The size of sequences, and of tables with indexes, TOAST data and dead rows."""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"


def url_of(folder: Path, name: str = DATABASE) -> str:
    """The address in the folder, or in its parent."""
    place = folder / name
    return (place if place.exists() else folder.parent / name).read_text(encoding="utf-8")


def schema_of(folder: Path) -> str:
    """The schema for a folder. Other stores keep this data in the folder itself."""
    return folder.name.replace("-", "_").lower()


def open_storage(engine: Any, subject: str, folder: Path) -> Any:
    """Open `postgres`, or its variants `-encrypted`, `-valkey` and `-relaxed`.

    `-relaxed` does not wait for the disk. It is for filling a store, and for measurements that write nothing.
    """
    parameters: dict[str, Any] = {"schema": schema_of(folder), "pool_size": CONNECTIONS}
    url = url_of(folder)
    if subject == "postgres-relaxed":
        url += "?synchronous_commit=off"
    elif subject == "postgres-encrypted":
        parameters["encryption"] = engine.AesGcm(engine.AesGcm.generate_key())
    elif subject == "postgres-valkey":
        parameters["redis_url"] = url_of(folder, VALKEY)
    return engine.PostgresCheckpointStorage(url, **parameters)


async def connect(folder: Path) -> Any:
    return await import_module("asyncpg").connect(url_of(folder))


async def bytes_of(folder: Path) -> int:
    connection = await connect(folder)
    try:
        return int(await connection.fetchval(SIZE.format(schema=schema_of(folder))))
    finally:
        await connection.close()


async def keep_dead_rows(folder: Path, storage: Any) -> None:
    """Turn off autovacuum, so that dead rows stay until the measurement."""
    await storage.list_threads(limit=1)  # creates the tables
    connection = await connect(folder)
    tables = await connection.fetch(TABLES.format(schema=schema_of(folder)))
    for statement in without_vacuum(schema_of(folder), (row["tablename"] for row in tables)):
        await connection.execute(statement)
    await connection.close()


def without_vacuum(schema: str, tables: Iterator[str]) -> list[str]:
    return [f'ALTER TABLE "{schema}"."{table}" SET (autovacuum_enabled = off)' for table in tables]
