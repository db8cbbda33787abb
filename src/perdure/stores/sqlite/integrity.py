"""Damage that the tables show by themselves: changed rows, missing rows and a changed schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from perdure.errors import DamagedCheckpoint
from perdure.records import Damage
from perdure.stores.packing import SEAL_BYTES, column_sum, to_id
from perdure.stores.sqlite.commits import COLUMNS, check_thread_row, newest_checkpoint
from perdure.stores.sqlite.journal import check_consumed, read_inbox, read_journal
from perdure.stores.sqlite.owners import find_thread, read_thread
from perdure.stores.sqlite.payloads import ReadPayloads, read_commit_rows, unpack
from perdure.stores.sqlite.schema import SqliteDatabase, prepare


def check_schema(db: SqliteDatabase) -> list[str]:
    """Tables and indexes that differ from those that this version creates."""
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=type(db))) as fresh:
        prepare(fresh, "a new store")
        expected = _read_schema(fresh)
    actual = _read_schema(db)
    return [f"the schema of {name!r} was changed" for name in expected if actual.get(name) != expected[name]]


def _read_schema(db: SqliteDatabase) -> dict[str, list[Any]]:
    """The columns of each table and index."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")]
    return {
        name: [
            *(row[1:4] for row in db.execute(f"PRAGMA table_xinfo({name})")),
            *(row[1:] for row in db.execute(f"PRAGMA index_xinfo({name})")),
        ]
        for name in names
    }


def find_orphans(db: SqliteDatabase) -> list[str]:
    """Rows of threads that do not exist. (Thread 0 only reserves a seq.)"""
    orphans = []
    for table in ("commits", "journal", "inbox", "requests", "pins"):
        (count,) = db.execute(
            f"SELECT COUNT(*) FROM {table} WHERE thread <> 0 AND thread NOT IN (SELECT thread FROM threads)"
        ).fetchone()
        if count:
            orphans.append(f"{count} rows of {table} are of a thread that is not there")
    return orphans


def list_all_thread_ids(db: SqliteDatabase) -> list[str]:
    return [thread_id for (thread_id,) in db.execute("SELECT thread_id FROM threads ORDER BY thread")]


def check_thread(db: SqliteDatabase, read: ReadPayloads, thread_id: str) -> list[Damage]:
    """All damage of one thread: its row, journal, inbox, the columns and payloads of its commits, and their links."""
    damage: list[Damage] = []

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except DamagedCheckpoint as error:
            checkpoint_id = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
            damage.append(Damage(error.reason, thread_id, checkpoint_id))

    row = find_thread(db, thread_id)
    if row is None:  # deleted meanwhile
        return damage
    thread = read_thread(db, row)
    attempt(lambda: check_thread_row(db, thread_id, thread, newest_checkpoint(db, thread.thread)))
    attempt(lambda: read_journal(db, thread.thread, thread_id, thread.number))
    attempt(lambda: read_inbox(db, thread.thread, thread_id))
    attempt(lambda: check_consumed(db, thread.thread, thread_id))
    for number, checkpoint_id in _find_changed_columns(db, thread.thread):
        damage.append(Damage(f"the columns of commit {number} were changed", thread_id, checkpoint_id))
    numbers = set()
    for commit in read_commit_rows(db, thread_id, 0, None):
        numbers.add(commit.number)
        payload = read(db, thread_id, [commit.number]).get(commit.number)  # one by one: together they may be large
        attempt(partial(unpack, thread_id, commit.checkpoint_id, commit.number, payload))
        if commit.parent is not None and commit.parent not in numbers:
            reason = f"commit {commit.number} continues from commit {commit.parent}, which is not there"
            damage.append(Damage(reason, thread_id, commit.checkpoint_id))
    return damage


def _find_changed_columns(db: SqliteDatabase, thread: int) -> list[tuple[int, str | None]]:
    """Number and checkpoint of commits whose columns were changed.

    A pruned commit whose space is not freed yet has lost its id, but still has a root: it is not looked at.
    """
    rows = db.execute(
        f"SELECT {COLUMNS}, seal FROM commits WHERE thread = ? AND body IS NOT NULL AND (checkpoint_id IS NOT NULL"
        " OR SUBSTR(body, 1, 8) <> CAST(? AS BLOB)) ORDER BY number",
        (thread, '{"root":'),
    )
    return [
        (row[1], to_id(row[2]))
        for row in rows
        if not isinstance(row[-1], bytes) or row[-1][SEAL_BYTES:] != column_sum(row[:-1])
    ]
