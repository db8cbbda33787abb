"""Rows of threads, and who owns them: claims, proofs and leases."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import Lease
from perdure.stores.process_identity import LEASE_SECONDS, RENEW_SECONDS, from_json, is_dead, this_process, to_json
from perdure.stores.sqlite.schema import SqliteDatabase


class ThreadRow(NamedTuple):
    """The columns of a thread that a commit checks and moves."""

    thread: int
    fence: int
    number: int
    head: int | None
    status: str
    last_seq: int


def find_thread(db: SqliteDatabase, thread_id: str) -> int | None:
    row = db.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None else int(row[0])


def ensure_thread(db: SqliteDatabase, thread_id: str) -> int:
    """The thread's row, inserted if it is new."""
    thread = find_thread(db, thread_id)
    if thread is None:
        db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,))
        thread = find_thread(db, thread_id)
    assert thread is not None  # noqa: S101  # it was just inserted
    return thread


def read_thread(db: SqliteDatabase, thread: int) -> ThreadRow:
    row = db.execute(
        "SELECT thread, fence, number, head, status, last_seq FROM threads WHERE thread = ?", (thread,)
    ).fetchone()
    return ThreadRow(*row)


def claim_thread(db: SqliteDatabase, thread_id: str, owner: str, *, takeover: bool) -> ThreadRow:
    """Make `owner` the owner, under the next fence. Raises ThreadBusy while another one is alive."""
    query = f"SELECT {', '.join(ThreadRow._fields)}, owner, process FROM threads WHERE thread_id = ?"
    row = db.execute(query, (thread_id,)).fetchone()
    if row is None:
        db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,))
        row = db.execute(query, (thread_id,)).fetchone()
    *columns, holder, process = row
    thread, own = ThreadRow(*columns), _own_process(db)
    if holder is not None and not takeover and not is_process_dead(db, process):
        raise ThreadBusy(thread_id, holder, is_here=process == own)
    fence = thread.fence + 1
    db.execute(
        "UPDATE threads SET fence = ?, owner = ?, process = ? WHERE thread = ?", (fence, owner, own, thread.thread)
    )
    return thread._replace(fence=fence)


def prove_lease(db: SqliteDatabase, lease: Lease) -> ThreadRow:
    """The thread's row. Raises ThreadConflict if another owner took the thread over."""
    row = db.execute(
        "SELECT thread, fence, number, head, status, last_seq, owner FROM threads WHERE thread_id = ?",
        (lease.thread_id,),
    ).fetchone()
    if row is None or row[1] != lease.fence or row[6] != lease.owner:
        held = f"fence {lease.fence} of run {lease.owner!r}"
        raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {row[1] if row else 0}")
    return ThreadRow(*row[:6])


def release_lease(db: SqliteDatabase, lease: Lease) -> None:
    """Idempotent. Ignores a lease that another owner took over."""
    db.without_journal.discard(lease.thread_id)
    db.execute(
        "UPDATE threads SET owner = NULL, process = NULL WHERE thread_id = ? AND fence = ? AND owner = ?",
        (lease.thread_id, lease.fence, lease.owner),
    )


def find_owner(db: SqliteDatabase, thread_id: str) -> str | None:
    """The run that owns the thread; None if its process is dead."""
    row = db.execute("SELECT owner, process FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None or row[0] is None or is_process_dead(db, row[1]) else str(row[0])


def renew_process(db: SqliteDatabase) -> int:
    """Extend the lease of this process; its row."""
    identity = to_json(this_process())
    db.execute(
        "INSERT INTO processes (identity, leased_until) VALUES (?, ?)"
        " ON CONFLICT (identity) DO UPDATE SET leased_until = excluded.leased_until",
        (identity, time.time() + LEASE_SECONDS),
    )
    (process,) = db.execute("SELECT process FROM processes WHERE identity = ?", (identity,)).fetchone()
    db.process, db.renewed_at = int(process), time.monotonic()
    return db.process


def shorten_leases(db: SqliteDatabase) -> None:
    """Correct leases that end later than any lease can: the clock was set back, and a living process renews its own."""
    until = time.time() + LEASE_SECONDS
    db.execute("UPDATE processes SET leased_until = ? WHERE leased_until > ?", (until, until + 1))


def is_process_dead(db: SqliteDatabase, process: int | None) -> bool:
    row = db.execute("SELECT identity, leased_until FROM processes WHERE process = ?", (process,)).fetchone()
    if row is None:
        return True
    try:
        return is_dead(from_json(row[0]), row[1])
    except (msgspec.DecodeError, TypeError):  # an unreadable identity: only the lease counts
        return not isinstance(row[1], float) or row[1] < time.time()


def _own_process(db: SqliteDatabase) -> int:
    """The row of this process, whose lease lasts until the next heartbeat: without threads it has none."""
    if db.process is None:
        _delete_dead_processes(db)
    elif time.monotonic() < db.renewed_at + RENEW_SECONDS:
        return db.process
    return renew_process(db)


def _delete_dead_processes(db: SqliteDatabase) -> None:
    """Those that own no thread."""
    rows = db.execute(
        "SELECT process FROM processes WHERE process NOT IN (SELECT process FROM threads WHERE owner IS NOT NULL)"
    ).fetchall()
    dead = [row for row in rows if is_process_dead(db, row[0])]
    db.executemany("DELETE FROM processes WHERE process = ?", dead)
