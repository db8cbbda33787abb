"""The heartbeat of a process that owns threads in PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from typing import Any, Protocol
from uuid import UUID

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.records import Lease
from perdure.stores.owners import LEASE_SECONDS, RENEW_SECONDS, this_process, to_json
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rows import key_of

logger = get_logger("stores")

_LEASED = f"clock_timestamp() + interval '{LEASE_SECONDS:g} seconds'"

RENEW = (
    f"INSERT INTO {{s}}.processes (process, identity, leased_until) VALUES ($1, $2, {_LEASED})"
    " ON CONFLICT (process) DO UPDATE SET leased_until = excluded.leased_until"
)

RELEASE = """
UPDATE {s}.threads SET owner = NULL, process = NULL WHERE thread = $1 AND owner = $2
  AND fence = $3
RETURNING cardinality(forgotten) > 0 OR silent_swept < silent_before
"""


class Owner(Protocol):
    """What the heartbeat looks at."""

    db: Database
    held: dict[Lease, Any]
    unreleased: dict[tuple[str, str], tuple[int | None, float]]


def own_process() -> tuple[UUID, str]:
    identity = to_json(this_process())
    return key_of(identity), identity


class Heartbeat:
    """Says every few seconds that this process lives, while it owns threads: from a thread and a connection of its own,
    so that an event loop that is busy for long does not lose what it owns."""

    def __init__(self, owning: Owner) -> None:
        self._owning = weakref.ref(owning)
        self._given = (owning.db.dsn, owning.db.schema)
        self._thread: threading.Thread | None = None
        self._at_work: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._lock = threading.Lock()

    @property
    def is_beating(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """For a thread that is held from now on."""
        with self._lock:
            if not self.is_beating:  # also in a process that was forked off
                self._at_work = None
                self._thread = threading.Thread(target=self._live, name="perdure-postgres-heartbeat", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            (thread, self._thread), at_work = (self._thread, None), self._at_work
            if at_work is not None:
                try:
                    at_work[0].call_soon_threadsafe(at_work[1].cancel)
                except RuntimeError:
                    pass  # it has just ended
        if thread is not None:
            thread.join(timeout=5)

    def _live(self) -> None:
        try:
            asyncio.run(self._beat_on())
        except asyncio.CancelledError:
            pass

    async def _beat_on(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # it is run as one
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # it was stopped before it had begun
            self._at_work = asyncio.get_running_loop(), task
        database = Database(*self._given, 1, LEASE_SECONDS, RENEW_SECONDS)
        try:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                if not self._goes_on():
                    return
                try:
                    await self._beat(database)
                except PerdureError as error:
                    logger.warning("the lease of this process could not be renewed: %s", error)
        finally:
            await database.close()

    def _goes_on(self) -> bool:
        """Ends by itself where nothing is held any more."""
        owning = self._owning()
        with self._lock:
            if self._thread is threading.current_thread():
                if owning is not None and (owning.held or owning.unreleased):
                    return True
                self._thread = None
            return False

    async def _beat(self, database: Database) -> None:
        await database.value(RENEW, *own_process())
        owning = self._owning()
        if owning is not None:
            for claim, left in [*owning.unreleased.items()]:
                if await self._is_given_up(database, owning, claim, left) and owning.unreleased.get(claim) is left:
                    del owning.unreleased[claim]

    async def _is_given_up(
        self, database: Database, owning: Owner, claim: tuple[str, str], left: tuple[int | None, float]
    ) -> bool:
        (thread_id, owner), (fence, until) = claim, left
        key = key_of(thread_id)
        if fence is None:
            fence = await database.value("SELECT fence FROM {s}.threads WHERE thread = $1 AND owner = $2", key, owner)
        if fence is None:
            return time.monotonic() > until
        if owning.unreleased.get(claim) is left:  # else it was opened again
            await database.value(RELEASE, key, owner, fence)
        return True
