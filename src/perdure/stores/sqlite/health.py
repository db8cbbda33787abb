"""What `perdure doctor` reads of a SQLite store, and of the index of a file store: facts, without a judgement.

It changes nothing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.names import RESERVED_THREAD
from perdure.stores.health import StoreContents, is_owner_dead
from perdure.stores.sqlite.schema import APPLICATION_ID, VERSION
from perdure.stores.sqlite.store import file_size

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
    pages: int = 0
    free_pages: int = 0
    is_locked: bool = False
    """Whether another process held the write lock during the whole look."""
    contents: StoreContents | None = None


def look(path: Path) -> SqliteReport:
    """Report on an existing file. Raises OSError."""
    report = SqliteReport(
        str(path),
        VERSION,
        path.stat().st_size,
        file_size(Path(f"{path}-wal")),
        shutil.disk_usage(path.parent).free,
        os.access(path, os.W_OK) and os.access(path.parent, os.W_OK),
    )
    try:
        with closing(connect(path)) as db:
            return _read(db, report)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return replace(report, damage=str(error))


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file, with its log. Never creates one."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, isolation_level=None)


def _read(db: sqlite3.Connection, report: SqliteReport) -> SqliteReport:
    numbers = {
        name: _pragma(db, name)
        for name in ("application_id", "user_version", "page_size", "page_count", "freelist_count", "journal_mode")
    }
    version, is_ours = int(numbers["user_version"]), int(numbers["application_id"]) == APPLICATION_ID
    is_empty = not is_ours and db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    report = replace(
        report,
        version=version if is_ours else 0,
        foreign=not is_ours and not is_empty,
        journal_mode=str(numbers["journal_mode"]),
        page_bytes=int(numbers["page_size"]),
        pages=int(numbers["page_count"]),
        free_pages=int(numbers["freelist_count"]),
    )
    if report.file_bytes % report.page_bytes:
        return replace(report, damage="its size is not a multiple of a page: it was cut off")
    if not is_ours or version != VERSION:
        return report
    return replace(report, is_locked=_is_locked(db), contents=_contents(db))


def _pragma(db: sqlite3.Connection, name: str) -> str:
    ((value,),) = db.execute(f"PRAGMA {name}").fetchall()
    return str(value)


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
