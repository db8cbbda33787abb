"""Who owns which thread: claims, proofs and leases."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import CheckpointInfo, Lease
from perdure.stores.process_identity import LEASE_SECONDS, from_json, is_gone, this_process, to_json

# ---------------------------------------------------------------- rows


T = TypeVar("T")


class ThreadRow(NamedTuple):
    """A thread's row, as far as moving it goes."""

    thread: int
    fence: int
    number: int
    head: int | None
    status: str
    last_seq: int


class Payload(NamedTuple):
    """Where the payload of a commit is: in its row, or in the thread's file."""

    number: int
    seal: bytes | None
    """None where the line in the thread's file has a checksum of its own."""
    body: bytes | None
    place: int | None
    size: int | None


class PackedRow(NamedTuple):
    seq: int
    thread: int
    number: int
    parent: int | None
    checkpoint_id: Any
    body: bytes
    place: int | None
    size: int | None
    seal: bytes


class RawRow(NamedTuple):
    """A commit as it is stored."""

    info: CheckpointInfo | None
    parent: int | None
    status: str
    run_id: str
    timestamp: str
    events: tuple[int | None, int | None]
    """The first one, and how many."""
    payload: Payload


class Rows:
    """Over one connection. Nothing here begins or ends a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._workflows: dict[str, int] = {}
        self._blocks: dict[int, int] = {}
        self._process: tuple[str, int] | None = None
        self.without_journal: set[str] = set()
        """Threads that are owned here and have no entries: nobody else can add one without taking them over."""

    def forget(self) -> None:
        """What is remembered of rows."""
        self._workflows.clear()
        self._blocks.clear()
        self._process = None
        self.without_journal.clear()

    def attempt(self, work: Callable[[], T]) -> T:
        """All of the work inside of a transaction, or none: what it raises undoes it, and nothing that came before."""
        self._db.execute("SAVEPOINT one")
        try:
            result = work()
        except BaseException:
            self.forget()  # what is remembered may have been undone
            self._db.execute("ROLLBACK TO one")
            self._db.execute("RELEASE one")
            raise
        self._db.execute("RELEASE one")
        return result

    def find_thread(self, thread_id: str) -> int | None:
        found = self._db.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if found is None else int(found[0])


class OwnerRows(Rows):
    def claim(self, thread_id: str, owner: str, *, takeover: bool) -> ThreadRow:
        """Raises ThreadBusy."""
        thread = self.thread(thread_id)
        fence, held_by, process, number, head, status, last_seq = self._db.execute(
            "SELECT fence, owner, process, number, head, status, last_seq FROM threads WHERE thread = ?",
            (thread,),
        ).fetchone()
        if held_by is not None and not takeover and not self.is_gone(process):
            raise ThreadBusy(thread_id, held_by, is_here=process == self._own_process())
        self._db.execute(
            "UPDATE threads SET fence = ?, owner = ?, process = ? WHERE thread = ?",
            (fence + 1, owner, self._own_process(), thread),
        )
        return ThreadRow(thread, fence + 1, number, head, status, last_seq)

    def thread(self, thread_id: str) -> int:
        """Made if there is none."""
        found = self.find_thread(thread_id)
        if found is None:
            self._db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,))
            found = self.find_thread(thread_id)
        assert found is not None  # noqa: S101  # it was just made
        return found

    def _own_process(self) -> int:
        identity = to_json(this_process())
        if self._process is None or self._process[0] != identity:
            self._forget_the_dead()
            self.renew()
            (process,) = self._db.execute("SELECT process FROM processes WHERE identity = ?", (identity,)).fetchone()
            self._process = identity, process
        return self._process[1]

    def _forget_the_dead(self) -> None:
        """Processes that are gone and own nothing."""
        rows = self._db.execute(
            "SELECT process FROM processes WHERE process NOT IN (SELECT process FROM threads WHERE owner IS NOT NULL)"
        ).fetchall()
        gone = [row for row in rows if self.is_gone(row[0])]
        self._db.executemany("DELETE FROM processes WHERE process = ?", gone)

    def renew(self) -> None:
        """Say that this process lives."""
        self._db.execute(
            "INSERT INTO processes (identity, leased_until) VALUES (?, ?)"
            " ON CONFLICT (identity) DO UPDATE SET leased_until = excluded.leased_until",
            (to_json(this_process()), time.time() + LEASE_SECONDS),
        )

    def shorten_leases(self) -> None:
        """Those that end later than any lease can: the clock was set back since, and whoever lives renews them."""
        until = time.time() + LEASE_SECONDS
        self._db.execute("UPDATE processes SET leased_until = ? WHERE leased_until > ?", (until, until + 1))

    def is_gone(self, process: int | None) -> bool:
        found = self._db.execute(
            "SELECT identity, leased_until FROM processes WHERE process = ?", (process,)
        ).fetchone()
        if found is None:
            return True
        try:
            return is_gone(from_json(found[0]), found[1])
        except (msgspec.DecodeError, TypeError):  # who it was cannot be read: only its lease is left
            return not isinstance(found[1], float) or found[1] < time.time()

    def prove(self, lease: Lease) -> ThreadRow:
        """Raises ThreadConflict if the lease was taken over."""
        row = self._db.execute(
            "SELECT thread, fence, number, head, status, last_seq, owner FROM threads WHERE thread_id = ?",
            (lease.thread_id,),
        ).fetchone()
        if row is None or row[1] != lease.fence or row[6] != lease.owner:
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {row[1] if row else 0}")
        return ThreadRow(*row[:6])

    def release(self, lease: Lease) -> None:
        self.without_journal.discard(lease.thread_id)
        self._db.execute(
            "UPDATE threads SET owner = NULL, process = NULL WHERE thread_id = ? AND fence = ? AND owner = ?",
            (lease.thread_id, lease.fence, lease.owner),
        )

    def owner_of(self, thread_id: str) -> str | None:
        """The run that holds the thread, if it still does."""
        row = self._db.execute("SELECT owner, process FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if row is None or row[0] is None or self.is_gone(row[1]) else str(row[0])
