"""What a turn that brings 1 KB leaves on the disk, and sends to it."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest
from tests.budgets.budgets import check_bytes
from tests.budgets.flows import KB, STORAGES, messages, talk

from perdure.storages import PostgresCheckpointStorage

TURNS = 200


async def turns(storage: object) -> None:
    workflow = talk(storage)
    for message in messages(TURNS):
        await workflow.run(message, thread_id="t")


@pytest.mark.parametrize("kind", ["file", "sqlite, NORMAL"])
async def test_bytes_that_a_turn_leaves_in_files_are_within_budget(kind: str, tmp_path: Path) -> None:
    async with STORAGES[kind](tmp_path, "") as storage:
        await turns(storage)
    check_bytes(kind, size_of(tmp_path) / TURNS / KB)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


SIZE = """
SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'S')
"""


async def test_bytes_of_a_turn_in_postgresql_and_its_log_are_within_budget(dsn: str) -> None:
    """Indexes and rows that are no longer needed are included."""
    async with PostgresCheckpointStorage(dsn) as storage:
        await talk(storage).run("x", thread_id="another")
        looking = await asyncpg.connect(dsn)
        before, at = await looking.fetchrow(f"SELECT ({SIZE}), pg_current_wal_insert_lsn()")
        await turns(storage)
        after, sent = await looking.fetchrow(f"SELECT ({SIZE}), pg_current_wal_insert_lsn() - $1::pg_lsn", at)
        await looking.close()
    check_bytes("postgres", float(after - before) / TURNS / KB)
    check_bytes("postgres, in its log", float(sent) / TURNS / KB)
