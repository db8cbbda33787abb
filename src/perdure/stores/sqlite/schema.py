"""The tables of a SQLite store, and the connection class that remembers some of their rows.

A commit is one row of `commits`: what lists need in columns, the payload packed into one (`packing.py`). A row for each
chunk would take several times the space. The table grows at its end; the one row of a thread is updated in place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from perdure.errors import NewerFormat

PAGE_BYTES = 512
"""Small, since most commits are: a commit writes whole pages to the log, and the rest of its last page is lost."""
VERSION = 1
APPLICATION_ID = 0x50657264
"""`Perd`: distinguishes a store from the database of another program."""

TABLES = """
CREATE TABLE workflows (workflow INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE blocks (       -- where commits of a workflow are, 64 seqs to a block: an index would be written each time
  workflow INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (workflow, block)
) WITHOUT ROWID;

CREATE TABLE processes (process INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, leased_until REAL NOT NULL);

CREATE TABLE threads (
  thread INTEGER PRIMARY KEY,
  thread_id TEXT NOT NULL UNIQUE,
  workflow INTEGER,
  fence INTEGER NOT NULL DEFAULT 0,
  owner TEXT,               -- the run that holds it
  process INTEGER,          -- and where that runs
  number INTEGER NOT NULL DEFAULT 0,
  head INTEGER,             -- number of the newest checkpoint
  moved INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT '',
  updated_at,
  last_seq INTEGER NOT NULL DEFAULT 0,
  due_at INTEGER,           -- microseconds
  first_seq INTEGER NOT NULL DEFAULT 1,     -- the oldest event that is kept
  events_dropped_before INTEGER NOT NULL DEFAULT 0, -- commits before this one have lost their events
  garbage INTEGER NOT NULL DEFAULT 0,       -- commits with something that can be freed
  garbage_bytes INTEGER NOT NULL DEFAULT 0,
  live INTEGER NOT NULL DEFAULT 0,          -- commits that were left when garbage was last collected
  live_bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX threads_due ON threads (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX threads_owned ON threads (process) WHERE owner IS NOT NULL;

CREATE TABLE commits (
  seq INTEGER PRIMARY KEY,  -- the order of commits across threads
  thread INTEGER NOT NULL,
  number INTEGER NOT NULL,
  checkpoint_id,            -- NULL for a commit without one
  workflow INTEGER,
  iteration INTEGER,
  parent INTEGER,           -- number of the commit whose checkpoint it continues from
  previous TEXT,            -- the same as an id, where it belongs to another thread
  timestamp,
  run_id,
  status TEXT,
  first_seq INTEGER,        -- events: the first one, and how many
  events INTEGER,
  seal BLOB,
  body BLOB
);
CREATE UNIQUE INDEX commits_number ON commits (thread, number);
CREATE UNIQUE INDEX commits_checkpoint ON commits (checkpoint_id) WHERE checkpoint_id IS NOT NULL;

CREATE TABLE pins (thread INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (thread, number)) WITHOUT ROWID;

CREATE TABLE journal (
  entry INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  delivery_id INTEGER NOT NULL,
  body BLOB NOT NULL,
  seal BLOB NOT NULL
);
CREATE INDEX journal_thread ON journal (thread);

CREATE TABLE inbox (
  item INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  item_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  body BLOB,                -- NULL once the item was consumed: posting it again does nothing
  seal BLOB NOT NULL
);
CREATE UNIQUE INDEX inbox_item ON inbox (thread, item_id);

CREATE TABLE requests (
  thread INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  executor_id TEXT NOT NULL,
  asked_at INTEGER NOT NULL,
  deadline INTEGER,
  assignee TEXT,
  PRIMARY KEY (thread, request_id)
) WITHOUT ROWID;
"""

T = TypeVar("T")


class SqliteDatabase(sqlite3.Connection):
    """A connection to these tables. Functions that take one never begin or end a transaction."""

    tables: ClassVar[str] = TABLES
    """The statements that create them."""
    payload: ClassVar[str] = "seal, body"
    """The columns of a commit's payload."""
    body_bytes: ClassVar[str] = "COALESCE(LENGTH(c.body), 0)"
    """The size of a commit's payload, as SQL over a row `c` of `commits`."""
    load_body: Callable[[str, int, Any, Any], bytes] | None = None
    """Where the body is not in its row: reads it, from thread id, number and the `payload` columns. It is proved
    already, and empty if it cannot be read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.workflows: dict[str, int] = {}
        """Rows of `workflows`, by name."""
        self.blocks: dict[int, int] = {}
        """The last block that was written for each workflow."""
        self.process: int | None = None
        """The row of `processes` of this process."""
        self.renewed_at = 0.0
        """When the lease in it was renewed, by `time.monotonic`."""
        self.without_journal: set[str] = set()
        """Ids of threads with an owner in this store and an empty journal: only their owner can add an entry."""

    def forget_rows(self) -> None:
        """Clear the caches: after a rollback they may hold rows that do not exist."""
        self.workflows.clear()
        self.blocks.clear()
        self.process = None
        self.without_journal.clear()

    def attempt(self, work: Callable[[SqliteDatabase], T]) -> T:
        """Run the work in a savepoint: an error undoes the work, and nothing else of the transaction."""
        self.execute("SAVEPOINT attempt")
        try:
            result = work(self)
        except BaseException:
            self.forget_rows()
            self.execute("ROLLBACK TO attempt")
            self.execute("RELEASE attempt")
            raise
        self.execute("RELEASE attempt")
        return result


class NotOurs(Exception):
    """The file is a database of another program."""


def set_up(db: SqliteDatabase, path: Path, synchronous: str, log_pages: int) -> None:
    """Prepare a connection that was just opened. `log_pages`: after so many a commit moves the log into the file.

    Raises NotOurs, NewerFormat, or sqlite3.DatabaseError for a file that was cut off.
    """
    was_made = is_made(db, str(path))  # first: the file of another program must not be changed
    _refuse_cut_off(db, path)
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; an existing one keeps its own
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # the same
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA wal_autocheckpoint = {log_pages}")
    if not was_made:
        prepare(db, str(path))


def _refuse_cut_off(db: SqliteDatabase, path: Path) -> None:
    """SQLite reads zeros for the missing rest of a last page."""
    for is_last in (False, True):
        size = path.stat().st_size
        if size % read_pragma(db, "page_size") == 0:
            return
        if is_last:
            raise sqlite3.DatabaseError(f"its size, {size} bytes, is not a multiple of a page: it was cut off")
        # Another process may have created the file since this connection looked at it: a read sees its page size.
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()


def prepare(db: SqliteDatabase, path: str) -> None:
    """Create the tables unless they exist. Many processes may call this at the same time.

    Raises NewerFormat for tables of another version, NotOurs for those of another program.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _has_tables(db, path):  # another process may have created them while this one waited
            for statement in db.tables.split(";\n"):
                if statement.strip():
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def is_made(db: sqlite3.Connection, path: str) -> bool:
    """Whether the tables exist. Raises NewerFormat or NotOurs."""
    db.execute("BEGIN")  # all reads in one transaction: another process may be creating the tables
    try:
        return _has_tables(db, path)
    finally:
        db.execute("ROLLBACK")


def read_pragma(db: sqlite3.Connection, name: str) -> Any:
    ((value,),) = db.execute(f"PRAGMA {name}").fetchall()
    return value


def _has_tables(db: sqlite3.Connection, path: str) -> bool:
    application_id, version = read_pragma(db, "application_id"), read_pragma(db, "user_version")
    if version == 0 and application_id == 0:
        if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise NotOurs(path)
        return False
    if application_id != APPLICATION_ID:
        raise NotOurs(path)
    if version != VERSION:
        raise NewerFormat(path, version, VERSION)
    return True
