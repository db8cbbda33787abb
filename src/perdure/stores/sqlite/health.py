"""What `perdure doctor` reads of a SQLite store, and of the index of a file store: facts, without a judgement.

Nothing is made or changed: not even an older file is brought up to date.
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
"""Locks are held for one write: whoever holds one for longer was stopped, or hangs."""

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
    """What this perdure writes."""
    file_bytes: int
    log_bytes: int
    """Of what was committed and is not in the file yet."""
    free_disk_bytes: int
    is_writable: bool
    version: int = 0
    """0: nothing was written yet."""
    foreign: bool = False
    """A database of something else."""
    damage: str = ""
    journal_mode: str = ""
    page_bytes: int = 0
    pages: int = 0
    free_pages: int = 0
    is_locked: bool = False
    """Whether somebody held the lock for writing all the time that one looked."""
    contents: StoreContents | None = None


def look(path: Path) -> SqliteReport:
    """Of a file that is there. Raises OSError."""
    found = SqliteReport(
        str(path),
        VERSION,
        path.stat().st_size,
        file_size(Path(f"{path}-wal")),
        shutil.disk_usage(path.parent).free,
        os.access(path, os.W_OK) and os.access(path.parent, os.W_OK),
    )
    try:
        with closing(opened(path)) as db:
            return _read(db, found)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return replace(found, damage=str(error))


def opened(path: Path) -> sqlite3.Connection:
    """As whoever uses the store opens it, but never made: a log that is there is read too."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, isolation_level=None)


def _read(db: sqlite3.Connection, found: SqliteReport) -> SqliteReport:
    numbers = {
        name: _pragma(db, name)
        for name in ("application_id", "user_version", "page_size", "page_count", "freelist_count", "journal_mode")
    }
    version, is_ours = int(numbers["user_version"]), int(numbers["application_id"]) == APPLICATION_ID
    is_empty = not is_ours and db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    found = replace(
        found,
        version=version if is_ours else 0,
        foreign=not is_ours and not is_empty,
        journal_mode=str(numbers["journal_mode"]),
        page_bytes=int(numbers["page_size"]),
        pages=int(numbers["page_count"]),
        free_pages=int(numbers["freelist_count"]),
    )
    if found.file_bytes % found.page_bytes:
        return replace(found, damage="its size is no multiple of a page: it was cut off")
    if not is_ours or version > VERSION:
        return found
    return replace(found, is_locked=_is_locked(db), contents=_contents(db))


def _pragma(db: sqlite3.Connection, name: str) -> str:
    ((value,),) = db.execute(f"PRAGMA {name}").fetchall()
    return str(value)


def _is_locked(db: sqlite3.Connection) -> bool:
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return "readonly" not in str(error)  # whether it may be written is told by itself
    return False


def _contents(db: sqlite3.Connection) -> StoreContents:
    db.execute("BEGIN")
    try:
        given = {"now": time.time_ns() // 1000, "reserved": RESERVED_THREAD}
        counts: dict[str, Any] = {name: db.execute(query, given).fetchone()[0] for name, query in _COUNTS.items()}
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
