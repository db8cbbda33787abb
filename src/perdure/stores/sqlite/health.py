"""Damage that the tables show by themselves, and what `perdure doctor` reads of them: facts, without a judgement.

Also of the index of a file store. Nothing here changes a file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perdure.names import RESERVED_THREAD
from perdure.records import Damage, StoreContents
from perdure.stores.packing import SEAL_BYTES, column_sum, find_damage, to_id
from perdure.stores.process_identity import is_owner_dead
from perdure.stores.sqlite.commits import COLUMNS, check_thread_row, newest_checkpoint
from perdure.stores.sqlite.payloads import read_commit_rows, read_payloads, unpack
from perdure.stores.sqlite.schema import APPLICATION_ID, VERSION, SqliteDatabase, prepare, read_pragma
from perdure.stores.sqlite.threads import check_consumed, find_thread, read_inbox, read_journal, read_thread

LOCK_SECONDS = 0.5
"""A lock is held for one write: a process that holds it for longer is stopped, or hangs."""

_COUNTS = {
    "threads": "SELECT count(*) FROM threads WHERE thread_id <> :reserved",
    "overdue": "SELECT count(*) FROM threads WHERE owner IS NULL AND due_at < :now - 60000000",
    "commits": "SELECT count(*) FROM commits",
    "checkpoints": "SELECT count(checkpoint_id) FROM commits",
    "requests": "SELECT count(*) FROM requests",
    "late_requests": "SELECT count(*) FROM requests WHERE deadline < :now",
    "inbox": "SELECT count(*) FROM inbox WHERE body IS NOT NULL AND thread NOT IN"
    " (SELECT thread FROM threads WHERE thread_id = :reserved)",
    "is_encrypted": "SELECT count(*) > 0 FROM threads WHERE thread_id = :reserved",
}
_OWNERS = """
SELECT p.identity, p.leased_until, count(*) FROM threads t LEFT JOIN processes p ON p.process = t.process
WHERE t.owner IS NOT NULL GROUP BY t.process
"""


@dataclass(frozen=True)
class SqliteReport:
    path: str
    known_version: int
    """The version that this perdure writes."""
    file_bytes: int
    log_bytes: int
    """The size of the log: commits that are not in the file yet."""
    free_disk_bytes: int
    is_writable: bool
    version: int = 0
    """0: the file is empty."""
    foreign: bool = False
    """Whether it is a database of another program."""
    damage: str = ""
    journal_mode: str = ""
    page_bytes: int = 0
    free_pages: int = 0
    is_locked: bool = False
    """Whether another process held the write lock during the whole look."""
    contents: StoreContents | None = None


def file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def look(path: Path) -> SqliteReport:
    """Report on an existing file. Raises OSError."""
    sizes = path.stat().st_size, file_size(Path(f"{path}-wal")), shutil.disk_usage(path.parent).free
    is_writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    report = SqliteReport(str(path), VERSION, *sizes, is_writable)
    try:
        with closing(connect(path)) as db:
            return _read(db, report)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return replace(report, damage=str(error))


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file, with its log. Never creates one."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, isolation_level=None)


def _read(db: sqlite3.Connection, report: SqliteReport) -> SqliteReport:
    version, is_ours = read_pragma(db, "user_version"), read_pragma(db, "application_id") == APPLICATION_ID
    is_empty = not is_ours and db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    report = replace(
        report,
        version=version if is_ours else 0,
        foreign=not is_ours and not is_empty,
        journal_mode=read_pragma(db, "journal_mode"),
        page_bytes=read_pragma(db, "page_size"),
        free_pages=read_pragma(db, "freelist_count"),
    )
    if report.file_bytes % report.page_bytes:
        return replace(report, damage="its size is not a multiple of a page: it was cut off")
    if not is_ours or version != VERSION:
        return report
    return replace(report, is_locked=_is_locked(db), contents=_contents(db))


def _is_locked(db: sqlite3.Connection) -> bool:
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return "readonly" not in str(error)  # the report shows by itself whether it may be written
    return False


def _contents(db: sqlite3.Connection) -> StoreContents:
    db.execute("BEGIN")
    try:
        values = {"now": time.time_ns() // 1000, "reserved": RESERVED_THREAD}
        counts: dict[str, Any] = {name: db.execute(query, values).fetchone()[0] for name, query in _COUNTS.items()}
        counts["is_encrypted"] = bool(counts["is_encrypted"])
        owned = left_behind = 0
        for identity, leased_until, threads in db.execute(_OWNERS):
            if is_owner_dead(identity, leased_until is not None and leased_until > time.time()):
                left_behind += threads
            else:
                owned += threads
        processes = db.execute("SELECT identity, leased_until FROM processes").fetchall()
        living = sum(not is_owner_dead(identity, until > time.time()) for identity, until in processes)
        return StoreContents(**counts, owned=owned, left_behind=left_behind, processes=living)
    finally:
        db.execute("ROLLBACK")


# ---------------------------------------------------------------- damage


def check_schema(db: SqliteDatabase) -> list[str]:
    """Tables and indexes that differ from those that this version creates."""
    with closing(type(db)(":memory:", isolation_level=None)) as fresh:
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
        query = f"SELECT COUNT(*) FROM {table} WHERE thread <> 0 AND thread NOT IN (SELECT thread FROM threads)"
        (count,) = db.execute(query).fetchone()
        if count:
            orphans.append(f"{count} rows of {table} are of a thread that is not there")
    return orphans


def list_all_thread_ids(db: SqliteDatabase) -> list[str]:
    return [thread_id for (thread_id,) in db.execute("SELECT thread_id FROM threads ORDER BY thread")]


def check_thread(db: SqliteDatabase, thread_id: str) -> list[Damage]:
    """All damage of one thread: its row, journal, inbox, the columns and payloads of its commits, and their links."""
    damage: list[Damage] = []
    attempt = partial(find_damage, thread_id)
    row = find_thread(db, thread_id)
    if row is None:  # deleted meanwhile
        return damage
    thread = read_thread(db, row)
    damage += attempt(check_thread_row, db, thread_id, thread, newest_checkpoint(db, row))
    damage += attempt(read_journal, db, row, thread_id, thread.number)
    damage += attempt(read_inbox, db, row, thread_id)
    damage += attempt(check_consumed, db, row, thread_id)
    for number, checkpoint_id in _find_changed_columns(db, thread.thread):
        damage.append(Damage(f"the columns of commit {number} were changed", thread_id, checkpoint_id))
    numbers = set()
    for commit in read_commit_rows(db, thread_id):
        numbers.add(commit.number)
        checkpoint_id = None if commit.info is None else commit.info.checkpoint_id
        payload = read_payloads(db, thread_id, [commit.number]).get(commit.number)  # all of them may be large
        damage += attempt(unpack, thread_id, checkpoint_id, commit.number, payload)
        if commit.parent is not None and commit.parent not in numbers:
            reason = f"commit {commit.number} continues from commit {commit.parent}, which is not there"
            damage.append(Damage(reason, thread_id, checkpoint_id))
    return damage


def _find_changed_columns(db: SqliteDatabase, thread: int) -> list[tuple[int, str | None]]:
    """Number and checkpoint of commits whose columns were changed.

    A pruned commit whose space is not freed yet has lost its id, but still has a root: it is not looked at.
    """
    has_columns = "checkpoint_id IS NOT NULL OR SUBSTR(body, 1, 8) <> CAST(? AS BLOB)"
    query = (
        f"SELECT {COLUMNS}, seal FROM commits WHERE thread = ? AND body IS NOT NULL AND ({has_columns}) ORDER BY number"
    )
    return [
        (row[1], to_id(row[2]))
        for row in db.execute(query, (thread, '{"root":'))
        if not isinstance(row[-1], bytes) or row[-1][SEAL_BYTES:] != column_sum(row[:-1])
    ]
