"""Who owns which thread: claims, renewals and releases, and the processes behind them.

A process holds one lease for all its threads, and a heartbeat renews it. The server's clock decides about leases, so
the clocks of the machines need not agree.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from perdure.errors import DamagedCheckpoint, PerdureError, ThreadBusy, UnsupportedId
from perdure.log import get_logger
from perdure.names import RESERVED_THREAD
from perdure.records import InboxItem, JournalEntry, Lease, OpenedThread
from perdure.stores import process_identity
from perdure.stores.postgres.checkpoints import AND_HEAD, PARENT_ID, check_thread_row, find_previous
from perdure.stores.postgres.database import Batcher, Database, OutcomeUnknown
from perdure.stores.postgres.rows import UNCOMMITTED, check_id, read_info, read_root, read_uncommitted, thread_key
from perdure.stores.process_identity import LEASE_SECONDS, RENEW_SECONDS

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

OWNER_COLUMNS = "t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased"
AND_PROCESS = "LEFT JOIN {s}.processes p ON p.process = t.process"
OWNER = f"SELECT {OWNER_COLUMNS} FROM {{s}}.threads t {AND_PROCESS} WHERE t.thread = $1"


def own_process() -> tuple[UUID, str]:
    identity = process_identity.own_identity(os.getpid())
    return thread_key(identity), identity


def is_dead(row: Any) -> bool:
    """Whether the owner's process is dead, or its lease has expired. For a row with the columns of OWNER."""
    return row["process"] is None or process_identity.is_owner_dead(row["identity"], bool(row["is_leased"]))


def live_owner(row: Any) -> str | None:
    """The run that owns the thread; None if there is none or it is dead. For a row with the columns of OWNER."""
    return None if row is None or row["owner"] is None or is_dead(row) else str(row["owner"])


_CLAIM = """
WITH mine AS (
  INSERT INTO {s}.threads AS t (thread, thread_id, fence, owner, process) VALUES ($1, $2, 1, $3, $4)
  ON CONFLICT (thread) DO UPDATE SET fence = t.fence + 1, owner = excluded.owner, process = excluded.process
  WHERE t.owner IS NULL OR t.fence = $5 OR $6 OR ($7 AND t.owner = $3 AND t.process = $4)
  RETURNING t.fence, t.number, t.head, t.journal_writes
)
"""


def _load_thread(columns: str, source: str) -> str:
    """A query of a thread's row, with its head, its journal and its inbox."""
    return f"""
SELECT {columns}, t.fence, t.number, t.head, t.journal_writes, t.status, t.last_seq, {OWNER_COLUMNS},
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1) AS last, c.number AS newest,
  EXISTS (SELECT 1 FROM {{s}}.threads WHERE thread = '{thread_key(RESERVED_THREAD)}') AS is_encrypted,
  c.parent, c.made_at, c.checkpoint_id, c.workflow, c.iteration, c.previous, c.timestamp, c.run_id,
  c.status AS checkpoint_status, c.seal, c.root, c.is_pinned, {PARENT_ID},
  j.deliveries, j.bodies, j.seals, i.item_ids, i.kinds, i.items, i.item_seals
FROM {source}
{AND_PROCESS} {AND_HEAD} {UNCOMMITTED}"""


_OPEN = _CLAIM + _load_thread(
    "mine.fence AS new_fence, mine.number AS new_number, mine.head AS new_head, mine.journal_writes AS new_writes",
    "(SELECT 1) single LEFT JOIN mine ON true LEFT JOIN {s}.threads t ON t.thread = $1",
)
_RELOAD = _load_thread("1", "{s}.threads t") + "WHERE t.thread = $1"


@dataclass(slots=True)
class HeldThread:
    """The facts that this process knows of a thread that it owns."""

    has_journal: bool
    """Whether the journal may have entries. Another process cannot add one without taking the thread over."""
    journal: Batcher[tuple[UUID, JournalEntry], None] | None = None
    """Set at the first entry."""


class Leases:
    """The threads that this process owns."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._process: UUID | None = None
        """The key under which this process is registered."""
        self.heartbeat = Heartbeat(self)
        self.held: dict[Lease, HeldThread] = {}
        self.unreleased: dict[tuple[str, str], tuple[int | None, float]] = {}
        """Claims, by thread and owner, that may exist in the database although no lease was returned for them. With
        the fence, if it is known, and the time until which an abandoned statement may still claim the thread."""

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        check_id("thread id", thread_id, None)
        check_id("owner", owner)
        state = self.unreleased.pop((thread_id, owner), None)
        try:
            return await self._open(thread_id, owner, takeover, state is not None)
        except ThreadBusy:
            if state is not None:
                self._release_later((thread_id, owner), state[0])
            raise
        except UnsupportedId:
            raise
        except BaseException:  # the claim may have succeeded
            self._release_later((thread_id, owner), None)
            raise

    def _release_later(self, claim: tuple[str, str], fence: int | None) -> None:
        """Leave the release to the heartbeat."""
        self.unreleased[claim] = fence, time.monotonic() + self.db.statement_seconds + LEASE_SECONDS
        self.heartbeat.start()

    async def _open(self, thread_id: str, owner: str, takeover: bool, is_retry: bool) -> OpenedThread:
        process = await self._register_process()
        dead_fence = -1

        async def claim() -> Any:
            nonlocal is_retry
            values = (thread_key(thread_id), thread_id, owner, process, dead_fence, takeover, is_retry)
            try:
                return await self.db.once("fetchrow", _OPEN, values)
            except OutcomeUnknown:
                is_retry = True  # this process may own the thread already
                raise

        while (row := await self.db.retry(claim))["new_fence"] is None:
            if row["fence"] is None or row["owner"] is None:  # created, or released, in the meantime
                continue
            if not is_dead(row):
                raise ThreadBusy(thread_id, row["owner"], is_here=row["process"] == process)
            dead_fence = row["fence"]
        lease = Lease(thread_id, owner, row["new_fence"])
        if not _is_current(row):
            row = await self.db.row(_RELOAD, thread_key(thread_id))
        opened = await self._read(thread_id, lease, row)
        self.held[lease] = HeldThread(has_journal=bool(opened.journal) or opened.damage is not None)
        self.heartbeat.start()
        return opened

    async def _read(self, thread_id: str, lease: Lease, row: Any) -> OpenedThread:
        root, info, damage = None, None, None
        journal: list[JournalEntry] = []
        inbox: list[InboxItem] = []
        head = {**row, "thread": thread_key(thread_id), "number": row["newest"], "status": row["checkpoint_status"]}
        try:
            if row["newest"] is not None:
                (previous,) = await find_previous(self.db, [head])
                info = read_info(thread_id, head, previous)
            check_thread_row(thread_id, row)
            root = None if info is None else read_root(thread_id, head)
            journal, inbox = read_uncommitted(thread_id, row)
        except DamagedCheckpoint as error:
            root, damage = None, error.reason
        position = (row["number"] or 0, info, root, row["last_seq"] or 0)
        return OpenedThread(lease, *position, journal, inbox, row["status"] or "", damage, row["is_encrypted"])

    async def renew(self, lease: Lease) -> None:
        row = await self.db.row("SELECT fence, owner FROM {s}.threads WHERE thread = $1", thread_key(lease.thread_id))
        if row is None or (row["fence"], row["owner"]) != (lease.fence, lease.owner):
            raise process_identity.fence_conflict(lease, None if row is None else row["fence"])
        await self.db.value(RENEW, *own_process())

    async def release(self, lease: Lease) -> bool:
        """Returns whether the thread may have garbage to collect."""
        self.held.pop(lease, None)
        is_certain = True

        async def attempt() -> Any:
            nonlocal is_certain
            try:
                return await self.db.once("fetchval", RELEASE, (thread_key(lease.thread_id), lease.owner, lease.fence))
            except OutcomeUnknown:
                is_certain = False
                raise

        try:
            return bool(await self.db.retry(attempt)) or not is_certain
        except BaseException:
            self._release_later((lease.thread_id, lease.owner), lease.fence)
            raise

    async def _register_process(self) -> UUID:
        process, identity = own_process()
        if self._process != process:  # the first use, or a forked process
            await self.db.value(REGISTER, process, identity)
            self._process = process
        elif not self.heartbeat.is_beating:  # it owned nothing: its lease may have expired, and its row may be deleted
            await self.db.value(RENEW, process, identity)
        return process


def _is_current(row: Any) -> bool:
    """Whether the rows read with the claim are current. A claim that waited for a lock reads the state before it."""
    claimed = (row["new_fence"], row["new_number"], row["new_head"], row["new_writes"])
    if row["fence"] is None:
        return claimed == (1, 0, None, 0)
    return bool(claimed == (row["fence"] + 1, row["number"], row["head"], row["journal_writes"]))


class Heartbeat:
    """Renews the lease of this process every few seconds while it owns threads.

    It runs in an OS thread with its own connection: an event loop that is blocked for long does not lose its threads.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = weakref.ref(leases)
        self._location = (leases.db.dsn, leases.db.schema)
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
        """Blocks for a moment: call it in an OS thread."""
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
        leases = self._leases()
        with self._lock:
            if self._thread is threading.current_thread():
                if leases is not None and (leases.held or leases.unreleased):
                    return True
                self._thread = None
            return False

    async def _beat(self, database: Database) -> None:
        await database.value(RENEW, *own_process())
        leases = self._leases()
        unreleased = {} if leases is None else leases.unreleased
        for claim, state in [*unreleased.items()]:
            key, owner, (fence, deadline) = thread_key(claim[0]), claim[1], state
            if fence is None:
                find = "SELECT fence FROM {s}.threads WHERE thread = $1 AND owner = $2"
                fence = await database.value(find, key, owner)
            if fence is None and time.monotonic() <= deadline:
                continue  # its outcome is still unknown
            if fence is not None and unreleased.get(claim) is state:  # else this process claimed the thread again
                await database.value(RELEASE, key, owner, fence)
            if unreleased.get(claim) is state:
                del unreleased[claim]
