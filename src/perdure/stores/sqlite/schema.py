"""The tables of a SQLite store, and of the index of a file store.

A commit is one row of `commits`: what lists need in columns, the payload packed into one (`packing.py`). A row for each
chunk would take several times the space. The table grows at its end; the one row of a thread is updated in place.
"""

from __future__ import annotations

import sqlite3

from perdure.errors import NewerFormat

VERSION = 2
APPLICATION_ID = 0x50657264
"""`Perd`: marks a file of ours among other databases."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

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
  size INTEGER DEFAULT 0,   -- file store: bytes of the thread's file that are known here; NULL: read it anew
  written TEXT DEFAULT '',  -- file store: which file that is, since it may have been written anew
  first_seq INTEGER NOT NULL DEFAULT 1,     -- the oldest event that is kept
  silent_before INTEGER NOT NULL DEFAULT 0, -- events of commits before this one are forgotten
  forgotten INTEGER NOT NULL DEFAULT 0,     -- commits of which something is still to be freed
  forgotten_bytes INTEGER NOT NULL DEFAULT 0,
  swept INTEGER NOT NULL DEFAULT 0,         -- commits that were left when it was freed last
  swept_bytes INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL DEFAULT 2        -- file store: the format that the thread's file says it has
);
CREATE INDEX threads_due ON threads (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX threads_unread ON threads (thread) WHERE size IS NULL;
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
  body BLOB,                -- NULL in the index of a file store
  place INTEGER,            -- there: where in the thread's file the commit is
  size INTEGER
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
  body BLOB,                -- NULL once it was consumed: posting it again does nothing
  seal BLOB
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

UPGRADES = {
    1: """
ALTER TABLE threads ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 1;
ALTER TABLE threads ADD COLUMN silent_before INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN forgotten_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN swept_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE TABLE pins (thread INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (thread, number)) WITHOUT ROWID;
""",
}
"""From each version to the next: what an older perdure wrote is opened, and written on."""


class NotOurs(Exception):
    """The file is a database of something else."""


def prepare(db: sqlite3.Connection, path: str) -> None:
    """Make the tables if the file is new, and change those of an older version; safe from many processes at once.

    Raises NewerFormat or NotOurs.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db, path)
        if version != VERSION:  # nobody made them while this one waited
            needed = [TABLES] if version == 0 else [UPGRADES[one] for one in range(version, VERSION)]
            for statement in ";\n".join(needed).split(";\n"):
                if statement.strip():
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def is_made(db: sqlite3.Connection, path: str) -> bool:
    """Whether the tables are there. Raises NewerFormat or NotOurs."""
    db.execute("BEGIN")  # one look: another process may be making the tables
    try:
        return _version(db, path) == VERSION
    finally:
        db.execute("ROLLBACK")


def _version(db: sqlite3.Connection, path: str) -> int:
    ((application_id,),) = db.execute("PRAGMA application_id").fetchall()
    ((version,),) = db.execute("PRAGMA user_version").fetchall()
    if version == 0 and application_id == 0:
        if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise NotOurs(path)
        return 0
    if application_id != APPLICATION_ID:
        raise NotOurs(path)
    if version > VERSION:
        raise NewerFormat(path, version, VERSION)
    return int(version)
