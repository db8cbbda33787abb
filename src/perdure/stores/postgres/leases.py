"""Who owns which thread: claims, renewals and releases."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from perdure.errors import DamagedCheckpoint, ThreadBusy, UnsupportedId
from perdure.records import Lease, OpenedThread
from perdure.stores.postgres.checkpoints import HAS_CHECKPOINT, PARENT_ID, check_thread_row, find_previous
from perdure.stores.postgres.database import Database, OutcomeUnknown
from perdure.stores.postgres.journal import HeldThread
from perdure.stores.postgres.processes import REGISTER, RELEASE, RENEW, Heartbeat, is_dead, own_process
from perdure.stores.postgres.pruning import collect_garbage
from perdure.stores.postgres.rows import (
    check_id,
    fence_conflict,
    read_inbox,
    read_info,
    read_journal,
    read_root,
    thread_key,
)
from perdure.stores.process_identity import LEASE_SECONDS, this_process, to_json

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
SELECT {columns}, t.fence, t.number, t.head, t.journal_writes, t.status, t.last_seq, t.owner, t.process, p.identity,
  p.leased_until > clock_timestamp() AS is_leased,
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1) AS last, c.number AS newest,
  c.parent, c.made_at, c.checkpoint_id, c.workflow, c.iteration, c.previous, c.timestamp, c.run_id,
  c.status AS checkpoint_status, c.seal, c.root, c.is_pinned, {PARENT_ID},
  j.deliveries, j.bodies, j.seals, i.item_ids, i.kinds, i.items, i.item_seals
FROM {source}
LEFT JOIN {{s}}.processes p ON p.process = t.process
LEFT JOIN LATERAL (SELECT c.* FROM {{s}}.commits c WHERE c.thread = $1 AND {HAS_CHECKPOINT}
  ORDER BY c.number DESC LIMIT 1) c ON true
LEFT JOIN LATERAL (SELECT array_agg(delivery_id ORDER BY entry) AS deliveries,
  array_agg(body ORDER BY entry) AS bodies, array_agg(seal ORDER BY entry) AS seals
  FROM {{s}}.journal WHERE thread = $1) j ON true
LEFT JOIN LATERAL (SELECT array_agg(item_id ORDER BY item) AS item_ids, array_agg(kind ORDER BY item) AS kinds,
  array_agg(body ORDER BY item) AS items, array_agg(seal ORDER BY item) AS item_seals
  FROM {{s}}.inbox WHERE thread = $1 AND body IS NOT NULL) i ON true
"""


_OPEN = _CLAIM + _load_thread(
    "mine.fence AS new_fence, mine.number AS new_number, mine.head AS new_head, mine.journal_writes AS new_writes",
    "(SELECT 1) one LEFT JOIN mine ON true LEFT JOIN {s}.threads t ON t.thread = $1",
)
_RELOAD = _load_thread("1", "{s}.threads t") + "WHERE t.thread = $1"


class Leases:
    """The threads that this process owns."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._process: UUID | None = None
        """The key under which this process is registered."""
        self._heartbeat = Heartbeat(self)
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
        self._heartbeat.start()

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

        while True:
            row = await self.db.retry(claim)
            if row["new_fence"] is not None:
                break
            if row["fence"] is None or row["owner"] is None:  # created, or released, in the meantime
                continue
            if not is_dead(row):
                raise ThreadBusy(thread_id, row["owner"], is_here=row["process"] == process)
            dead_fence = row["fence"]
        lease = Lease(thread_id, owner, row["new_fence"])
        if not _is_current(row):
            row = await self.db.row(_RELOAD, thread_key(thread_id))
        opened = await self._read(thread_id, lease, row)
        self.held[lease] = HeldThread(bool(opened.journal) or opened.damage is not None)
        self._heartbeat.start()
        return opened

    async def _read(self, thread_id: str, lease: Lease, row: Any) -> OpenedThread:
        root, info, damage, journal, inbox = None, None, None, [], []
        number = row["number"] or 0
        head = {**row, "number": row["newest"], "status": row["checkpoint_status"]}
        try:
            if row["newest"] is not None:
                (previous,) = await find_previous(self.db, [(thread_key(thread_id), head)])
                info = read_info(thread_id, head, previous)
            check_thread_row(thread_id, row)
            root = None if info is None else read_root(thread_id, head)
            entries = zip(row["deliveries"] or (), row["bodies"] or (), row["seals"] or (), strict=True)
            journal = read_journal(thread_id, number, entries)
            columns = (row["item_ids"], row["kinds"], row["items"], row["item_seals"])
            inbox = read_inbox(thread_id, zip(*(column or () for column in columns), strict=True))
        except DamagedCheckpoint as error:
            root, damage = None, error.reason
        return OpenedThread(
            lease=lease,
            number=number,
            info=info,
            root=root,
            last_seq=row["last_seq"] or 0,
            journal=journal,
            inbox=inbox,
            status=row["status"] or "",
            damage=damage,
        )

    async def renew(self, lease: Lease) -> None:
        row = await self.db.row("SELECT fence, owner FROM {s}.threads WHERE thread = $1", thread_key(lease.thread_id))
        if row is None or (row["fence"], row["owner"]) != (lease.fence, lease.owner):
            raise fence_conflict(lease, row)
        await self.db.value(RENEW, *own_process())

    async def release(self, lease: Lease) -> None:
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
            has_garbage = await self.db.retry(attempt) or not is_certain
        except BaseException:
            self._release_later((lease.thread_id, lease.owner), lease.fence)
            raise
        if has_garbage:
            await collect_garbage(self.db, lease.thread_id)

    async def _register_process(self) -> UUID:
        process = thread_key(to_json(this_process()))
        if self._process != process:  # the first use, or a forked process
            await self.db.value(REGISTER, *own_process())
            self._process = process
        elif not self._heartbeat.is_beating:  # it owned nothing: its lease may have expired, and its row may be deleted
            await self.db.value(RENEW, *own_process())
        return process

    def stop_heartbeat(self) -> None:
        """Blocks for a moment: call it in an OS thread."""
        self._heartbeat.stop()

    @property
    def has_heartbeat(self) -> bool:
        return self._heartbeat.is_beating


def _is_current(row: Any) -> bool:
    """Whether the rows read with the claim are current. A claim that waited for a lock reads the state before it."""
    claimed = (row["new_fence"], row["new_number"], row["new_head"], row["new_writes"])
    if row["fence"] is None:
        return claimed == (1, 0, None, 0)
    return bool(claimed == (row["fence"] + 1, row["number"], row["head"], row["journal_writes"]))
