"""Rows of threads: who owns them, what waits in their journal and inbox, and whether they have garbage.

Each row of a journal or an inbox is proved by a seal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from perdure.errors import ThreadBusy
from perdure.records import InboxItem, JournalEntry, Lease
from perdure.stores import garbage, process_identity
from perdure.stores.packing import changed_item, consumed_seal, item_seal, seal, unseal_entry, unseal_item
from perdure.stores.sqlite.schema import SqliteDatabase


class ThreadRow(NamedTuple):
    """The columns of a thread that a commit checks and moves."""

    thread: int
    fence: int
    number: int
    head: int | None
    status: str
    last_seq: int


_SELECT_ROW = f"SELECT {', '.join(ThreadRow._fields)}, owner, process FROM threads"


def find_thread(db: SqliteDatabase, thread_id: str) -> int | None:
    row = db.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None else int(row[0])


def ensure_thread(db: SqliteDatabase, thread_id: str) -> int:
    """The thread's row, inserted if it is new."""
    thread = find_thread(db, thread_id)
    if thread is None:
        thread = db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,)).lastrowid
    return thread or 0


def read_thread(db: SqliteDatabase, thread: int) -> ThreadRow:
    return ThreadRow(*db.execute(f"{_SELECT_ROW} WHERE thread = ?", (thread,)).fetchone()[:-2])


def claim_thread(db: SqliteDatabase, thread_id: str, owner: str, *, takeover: bool) -> ThreadRow:
    """Make `owner` the owner, under the next fence. Raises ThreadBusy while another one is alive."""
    query = f"{_SELECT_ROW} WHERE thread_id = ?"
    row = db.execute(query, (thread_id,)).fetchone()
    if row is None:
        db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,))
        row = db.execute(query, (thread_id,)).fetchone()
    *columns, holder, process = row
    thread, own = ThreadRow(*columns), _own_process(db)
    if holder is not None and not takeover and not is_process_dead(db, process):
        raise ThreadBusy(thread_id, holder, is_here=process == own)
    fence = thread.fence + 1
    query = "UPDATE threads SET fence = ?, owner = ?, process = ? WHERE thread = ?"
    db.execute(query, (fence, owner, own, thread.thread))
    return thread._replace(fence=fence)


def prove_lease(db: SqliteDatabase, lease: Lease) -> ThreadRow:
    """The thread's row. Raises ThreadConflict if another owner took the thread over."""
    row = db.execute(f"{_SELECT_ROW} WHERE thread_id = ?", (lease.thread_id,)).fetchone()
    if row is None or row[1] != lease.fence or row[-2] != lease.owner:
        raise process_identity.fence_conflict(lease, None if row is None else row[1])
    return ThreadRow(*row[:-2])


def release_lease(db: SqliteDatabase, lease: Lease) -> None:
    """Idempotent. Ignores a lease that another owner took over."""
    db.without_journal.discard(lease.thread_id)
    query = "UPDATE threads SET owner = NULL, process = NULL WHERE thread_id = ? AND fence = ? AND owner = ?"
    db.execute(query, (lease.thread_id, lease.fence, lease.owner))


def find_owner(db: SqliteDatabase, thread_id: str) -> str | None:
    """The run that owns the thread; None if its process is dead."""
    row = db.execute("SELECT owner, process FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None or row[0] is None or is_process_dead(db, row[1]) else str(row[0])


def renew_process(db: SqliteDatabase) -> int:
    """Extend the lease of this process; its row."""
    identity = process_identity.own_identity(os.getpid())
    renew = "ON CONFLICT (identity) DO UPDATE SET leased_until = excluded.leased_until"
    query = f"INSERT INTO processes (identity, leased_until) VALUES (?, ?) {renew}"
    db.execute(query, (identity, time.time() + process_identity.LEASE_SECONDS))
    (process,) = db.execute("SELECT process FROM processes WHERE identity = ?", (identity,)).fetchone()
    db.process, db.renewed_at = int(process), time.monotonic()
    return db.process


def shorten_leases(db: SqliteDatabase) -> None:
    """Correct leases that end later than any lease can: the clock was set back, and a living process renews its own."""
    until = time.time() + process_identity.LEASE_SECONDS
    db.execute("UPDATE processes SET leased_until = ? WHERE leased_until > ?", (until, until + 1))


def is_process_dead(db: SqliteDatabase, process: int | None) -> bool:
    row = db.execute("SELECT identity, leased_until FROM processes WHERE process = ?", (process,)).fetchone()
    identity, leased_until = (None, 0.0) if row is None else row
    return process_identity.is_owner_dead(identity, isinstance(leased_until, float) and leased_until > time.time())


def _own_process(db: SqliteDatabase) -> int:
    """The row of this process, whose lease lasts until the next heartbeat: without threads it has none."""
    if db.process is None:  # delete dead processes that own no thread
        owners = "SELECT process FROM threads WHERE owner IS NOT NULL"
        rows = db.execute(f"SELECT process FROM processes WHERE process NOT IN ({owners})").fetchall()
        dead = [row for row in rows if is_process_dead(db, row[0])]
        db.executemany("DELETE FROM processes WHERE process = ?", dead)
    elif time.monotonic() < db.renewed_at + process_identity.RENEW_SECONDS:
        return db.process
    return renew_process(db)


def is_collection_due(db: SqliteDatabase, thread_id: str, *, at_rest: bool = False) -> bool:
    query = "SELECT garbage, live, garbage_bytes, live_bytes FROM threads WHERE thread_id = ?"
    row = db.execute(query, (thread_id,)).fetchone()
    return row is not None and row[0] > 0 and garbage.is_collection_due(*row, at_rest=at_rest)


# ---------------------------------------------------------------- journal and inbox


def append_journal(db: SqliteDatabase, thread: int, thread_id: str, delivery_id: int, body: bytes) -> None:
    db.without_journal.discard(thread_id)
    query = "INSERT INTO journal (thread, delivery_id, body, seal) VALUES (?, ?, ?, ?)"
    db.execute(query, (thread, delivery_id, body, seal(thread_id, delivery_id, body)))


def read_journal(db: SqliteDatabase, thread: int, thread_id: str, number: int) -> list[JournalEntry]:
    """Entries of the deliveries after commit `number`. Raises DamagedCheckpoint."""
    rows = db.execute("SELECT delivery_id, body, seal FROM journal WHERE thread = ? ORDER BY entry", (thread,))
    return [unseal_entry(thread_id, *row, number=number) for row in rows]


def post_item(db: SqliteDatabase, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
    """Idempotent by `item_id`."""
    item = (ensure_thread(db, thread_id), item_id, kind, body, item_seal(thread_id, item_id, kind, body))
    db.execute("INSERT OR IGNORE INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, ?, ?, ?)", item)


def has_item(db: SqliteDatabase, thread_id: str, item_id: str) -> bool:
    """Whether the item was ever posted, consumed or not."""
    query = "SELECT 1 FROM inbox WHERE thread = ? AND item_id = ?"
    return db.execute(query, (find_thread(db, thread_id), item_id)).fetchone() is not None


def read_inbox(db: SqliteDatabase, thread: int, thread_id: str) -> list[InboxItem]:
    """Raises DamagedCheckpoint."""
    query = "SELECT item_id, kind, body, seal FROM inbox WHERE thread = ? AND body IS NOT NULL ORDER BY item"
    return [unseal_item(thread_id, *row) for row in db.execute(query, (thread,))]


def consume_items(db: SqliteDatabase, thread_id: str, item_ids: Iterable[str]) -> None:
    """Mark items as consumed, also those that were posted in another store."""
    thread = ensure_thread(db, thread_id)
    consume = "ON CONFLICT (thread, item_id) DO UPDATE SET body = NULL, seal = excluded.seal"
    query = f"INSERT INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, '', NULL, ?) {consume}"
    db.executemany(query, [(thread, item_id, consumed_seal(thread_id, item_id)) for item_id in item_ids])


def check_consumed(db: SqliteDatabase, thread: int, thread_id: str) -> None:
    """Raises DamagedCheckpoint for a consumed item that was changed."""
    query = "SELECT item_id, seal FROM inbox WHERE thread = ? AND body IS NULL"
    for item_id, sealed in db.execute(query, (thread,)):
        if sealed != consumed_seal(thread_id, item_id):
            raise changed_item(thread_id, item_id)


# ---------------------------------------------------------------- pins


def set_pin(db: SqliteDatabase, thread: int, number: int, *, is_pinned: bool) -> None:
    if is_pinned:
        db.execute("INSERT OR IGNORE INTO pins VALUES (?, ?)", (thread, number))
    else:
        db.execute("DELETE FROM pins WHERE thread = ? AND number = ?", (thread, number))


def list_pins(db: SqliteDatabase, thread: int) -> set[int]:
    return {number for (number,) in db.execute("SELECT number FROM pins WHERE thread = ?", (thread,))}
