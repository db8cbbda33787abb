"""The processes that own threads: their leases, the heartbeat that renews them, and whether an owner is alive.

The server's clock decides about leases, so the clocks of the machines need not agree.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from typing import Any, Protocol
from uuid import UUID

import msgspec

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.platform import is_process_alive
from perdure.records import Lease
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rows import thread_key
from perdure.stores.process_identity import LEASE_SECONDS, RENEW_SECONDS, from_json, this_process, to_json

logger = get_logger("stores")

_LEASED = f"clock_timestamp() + interval '{LEASE_SECONDS:g} seconds'"

RENEW = (
    f"INSERT INTO {{s}}.processes (process, identity, leased_until) VALUES ($1, $2, {_LEASED})"
    " ON CONFLICT (process) DO UPDATE SET leased_until = excluded.leased_until"
)

REGISTER = f"""
WITH dead AS (DELETE FROM {{s}}.processes p WHERE leased_until < clock_timestamp() - interval '1 hour' AND process <> $1
  AND NOT EXISTS (SELECT 1 FROM {{s}}.threads t WHERE t.process = p.process AND t.owner IS NOT NULL)) {RENEW}
"""
"""Renews the lease of this process, and deletes processes that are long dead."""

RELEASE = """
UPDATE {s}.threads SET owner = NULL, process = NULL WHERE thread = $1 AND owner = $2
  AND fence = $3
RETURNING cardinality(pruned) > 0 OR events_freed_before < events_dropped_before
"""
"""Returns whether the thread has garbage to collect."""

OWNER = """
SELECT t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased
FROM {s}.threads t LEFT JOIN {s}.processes p ON p.process = t.process WHERE t.thread = $1
"""


def own_process() -> tuple[UUID, str]:
    """The key and the identity of this process."""
    identity = to_json(this_process())
    return thread_key(identity), identity


def is_dead(row: Any) -> bool:
    """Whether the owner's process is dead, or its lease has expired. For a row with the columns of OWNER."""
    process, identity, is_leased = row["process"], row["identity"], row["is_leased"]
    if identity is None or process is None:
        return True
    try:
        owner = from_json(identity)
    except (msgspec.DecodeError, TypeError):  # the identity is not readable: only the lease counts
        return not is_leased
    is_alive = True if owner == this_process() else is_process_alive(owner.identity)
    return not is_leased if is_alive is None else not is_alive


def live_owner(row: Any) -> str | None:
    """The run that owns the thread; None if there is none or it is dead. For a row with the columns of OWNER."""
    return None if row is None or row["owner"] is None or is_dead(row) else str(row["owner"])


class Owner(Protocol):
    """What the heartbeat needs of `Leases`."""

    db: Database
    held: dict[Lease, Any]
    unreleased: dict[tuple[str, str], tuple[int | None, float]]


class Heartbeat:
    """Renews the lease of this process every few seconds while it owns threads.

    It runs in an OS thread with its own connection: an event loop that is blocked for long does not lose its threads.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = weakref.ref(owner)
        self._location = (owner.db.dsn, owner.db.schema)
        self._thread: threading.Thread | None = None
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._lock = threading.Lock()

    @property
    def is_beating(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start unless it is beating. Call it after a thread was claimed."""
        with self._lock:
            if not self.is_beating:  # also in a forked process
                self._task = None
                self._thread = threading.Thread(target=self._run, name="perdure-postgres-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            (thread, self._thread), running = (self._thread, None), self._task
            if running is not None:
                loop, task = running
                try:
                    loop.call_soon_threadsafe(task.cancel)
                except RuntimeError:
                    pass  # its loop has just ended
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        try:
            asyncio.run(self._beat_until_idle())
        except asyncio.CancelledError:
            pass

    async def _beat_until_idle(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio.run makes one
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # stopped before it began
            self._task = asyncio.get_running_loop(), task
        database = Database(*self._location, 1, LEASE_SECONDS, RENEW_SECONDS)
        try:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                if not self._is_needed():
                    return
                try:
                    await self._beat(database)
                except PerdureError as error:
                    logger.warning("renewing the lease of this process failed: %s", error)
        finally:
            await database.close()

    def _is_needed(self) -> bool:
        """False ends the thread: this process owns nothing, or another heartbeat replaced it."""
        owner = self._owner()
        with self._lock:
            if self._thread is threading.current_thread():
                if owner is not None and (owner.held or owner.unreleased):
                    return True
                self._thread = None
            return False

    async def _beat(self, database: Database) -> None:
        await database.value(RENEW, *own_process())
        owner = self._owner()
        if owner is not None:
            for claim, state in [*owner.unreleased.items()]:
                if await self._release(database, owner, claim, state) and owner.unreleased.get(claim) is state:
                    del owner.unreleased[claim]

    async def _release(
        self, database: Database, owner: Owner, claim: tuple[str, str], state: tuple[int | None, float]
    ) -> bool:
        """Release a claim that `Leases` could not; False if its outcome is still unknown."""
        (thread_id, run_id), (fence, deadline) = claim, state
        key = thread_key(thread_id)
        if fence is None:
            fence = await database.value("SELECT fence FROM {s}.threads WHERE thread = $1 AND owner = $2", key, run_id)
        if fence is None:
            return time.monotonic() > deadline
        if owner.unreleased.get(claim) is state:  # else this process claimed the thread again
            await database.value(RELEASE, key, run_id, fence)
        return True
