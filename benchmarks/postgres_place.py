"""PostgreSQL as a child finds it: by the files that the program left in the folder of a measurement."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

DATABASE, VALKEY = "postgres.url", "valkey.url"
CONNECTIONS = 16
"""Of each pool: ours, and those of the peers."""

SIZE = """
SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'S')
"""
"""Tables with their indexes and what is toasted, rows that are dead included; and sequences."""
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"


def url_of(folder: Path, name: str = DATABASE) -> str:
    """Written for the folder, or for the one that it is in."""
    place = folder / name
    return (place if place.exists() else folder.parent / name).read_text(encoding="utf-8")


def schema_of(folder: Path) -> str:
    """What is kept in one folder elsewhere is kept in one schema here."""
    return folder.name.replace("-", "_").lower()


def open_storage(engine: Any, subject: str, folder: Path) -> Any:
    """`postgres`; `-encrypted`, `-valkey`; `-relaxed` does not wait for the disk: to fill, and where nothing is
    written."""
    given: dict[str, Any] = {"schema": schema_of(folder), "pool_size": CONNECTIONS}
    url = url_of(folder)
    if subject == "postgres-relaxed":
        url += "?synchronous_commit=off"
    elif subject == "postgres-encrypted":
        given["encryption"] = engine.AesGcm(engine.AesGcm.generate_key())
    elif subject == "postgres-valkey":
        given["redis_url"] = url_of(folder, VALKEY)
    return engine.PostgresCheckpointStorage(url, **given)


async def connect(folder: Path) -> Any:
    return await import_module("asyncpg").connect(url_of(folder))


async def bytes_of(folder: Path) -> int:
    connection = await connect(folder)
    try:
        return int(await connection.fetchval(SIZE.format(schema=schema_of(folder))))
    finally:
        await connection.close()


async def keep_dead_rows(folder: Path, storage: Any) -> None:
    """Nothing is vacuumed until it is measured."""
    await storage.list_threads(limit=1)  # makes the tables
    connection = await connect(folder)
    tables = await connection.fetch(TABLES.format(schema=schema_of(folder)))
    for statement in without_vacuum(schema_of(folder), (row["tablename"] for row in tables)):
        await connection.execute(statement)
    await connection.close()


def without_vacuum(schema: str, tables: Iterator[str]) -> list[str]:
    return [f'ALTER TABLE "{schema}"."{table}" SET (autovacuum_enabled = off)' for table in tables]
