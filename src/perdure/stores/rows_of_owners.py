"""Who owns which thread: claims, proofs and leases."""

from __future__ import annotations

import time

import msgspec

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import Lease
from perdure.stores.owners import LEASE_SECONDS, from_json, is_gone, this_process, to_json
from perdure.stores.rows import Rows, Standing


class OwnerRows(Rows):
    def claim(self, thread_id: str, owner: str, *, takeover: bool) -> Standing:
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
        return Standing(thread, fence + 1, number, head, status, last_seq)

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

    def prove(self, lease: Lease) -> Standing:
        """Raises ThreadConflict if the lease was taken over."""
        row = self._db.execute(
            "SELECT thread, fence, number, head, status, last_seq, owner FROM threads WHERE thread_id = ?",
            (lease.thread_id,),
        ).fetchone()
        if row is None or row[1] != lease.fence or row[6] != lease.owner:
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {row[1] if row else 0}")
        return Standing(*row[:6])

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
