"""Who owns which thread: claims, leases and the process's heartbeat.

Leases are told by the server's clock, so those of the machines need not agree.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from perdure.errors import DamagedCheckpoint, ThreadBusy, ThreadConflict, UnsupportedId
from perdure.log import get_logger
from perdure.platform import is_process_alive
from perdure.records import JournalEntry, Lease, OpenedThread
from perdure.stores.postgres.database import RELEASE, RENEW, Database, Heartbeat, Unknown, own_process
from perdure.stores.postgres.lists import IS_THERE, PARENT_ID, Reading
from perdure.stores.postgres.rows import check_id, id_in, inbox_of, info_of, journal_of, key_of, root_of
from perdure.stores.process_identity import LEASE_SECONDS, from_json, this_process, to_json

# ---------------------------------------------------------------- combined


T = TypeVar("T")


class Combined(Generic[T]):
    """One of those who wait writes for all; those who come meanwhile wait for the next turn. For one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[T, asyncio.Future[bool]]] = []
        self._is_writing = False

    async def add(self, item: T, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        """Comes back when the item was written. What is written is written in the order of adding, and may be written
        again if whoever wrote it was cancelled."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._is_writing and await self._is_written(done):
            return
        self._is_writing = True  # it is our turn to write, for all who wait
        batch, self._waiting = self._waiting, []
        try:
            await write([one for one, _ in batch])
        except asyncio.CancelledError:
            self._waiting = [one for one in batch if one[1] is not done and not one[1].done()] + self._waiting
            raise
        except Exception as error:
            for _, other in batch:
                if other is not done and not other.done():
                    other.set_exception(error)
                    other.exception()  # whoever waited for it may be gone
            raise
        else:
            for _, other in batch:
                if not other.done():
                    other.set_result(True)
        finally:
            self._pass_on()

    async def _is_written(self, done: asyncio.Future[bool]) -> bool:
        """False: it is our turn to write."""
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None and not done.result():
                self._waiting = [one for one in self._waiting if one[1] is not done]
                self._pass_on()  # it was our turn
            raise

    def _pass_on(self) -> None:
        """The turn, to the next that waits."""
        self._waiting = [one for one in self._waiting if not one[1].done()]
        self._is_writing = bool(self._waiting)
        if self._waiting:
            self._waiting[0][1].set_result(False)


logger = get_logger("stores")

_BEGIN = f"""
WITH gone AS (DELETE FROM {{s}}.processes p WHERE leased_until < clock_timestamp() - interval '1 hour' AND process <> $1
  AND NOT EXISTS (SELECT 1 FROM {{s}}.threads t WHERE t.process = p.process AND t.owner IS NOT NULL)) {RENEW}
"""
"""Says that this process lives, and forgets those that are long dead."""

_CLAIM = """
WITH mine AS (
  INSERT INTO {s}.threads AS t (thread, thread_id, fence, owner, process) VALUES ($1, $2, 1, $3, $4)
  ON CONFLICT (thread) DO UPDATE SET fence = t.fence + 1, owner = excluded.owner, process = excluded.process
  WHERE t.owner IS NULL OR t.fence = $5 OR $6 OR ($7 AND t.owner = $3 AND t.process = $4)
  RETURNING t.fence, t.number, t.head, t.noted
)
"""


def _standing(also: str, of: str) -> str:
    """Where a thread stands, with its head, its journal and its inbox."""
    return f"""
SELECT {also}, t.fence, t.number, t.head, t.noted, t.status, t.last_seq, t.owner, t.process, p.identity,
  p.leased_until > clock_timestamp() AS is_leased,
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1) AS last, c.number AS newest,
  c.number AS found, c.parent, c.made_at, c.checkpoint_id, c.workflow, c.iteration, c.previous, c.timestamp, c.run_id,
  c.status AS checkpoint_status, c.seal, c.root, c.is_pinned, {PARENT_ID},
  j.deliveries, j.bodies, j.seals, i.item_ids, i.kinds, i.items, i.item_seals
FROM {of}
LEFT JOIN {{s}}.processes p ON p.process = t.process
LEFT JOIN LATERAL (SELECT c.* FROM {{s}}.commits c WHERE c.thread = $1 AND {IS_THERE}
  ORDER BY c.number DESC LIMIT 1) c ON true
LEFT JOIN LATERAL (SELECT array_agg(delivery_id ORDER BY entry) AS deliveries,
  array_agg(body ORDER BY entry) AS bodies, array_agg(seal ORDER BY entry) AS seals
  FROM {{s}}.journal WHERE thread = $1) j ON true
LEFT JOIN LATERAL (SELECT array_agg(item_id ORDER BY item) AS item_ids, array_agg(kind ORDER BY item) AS kinds,
  array_agg(body ORDER BY item) AS items, array_agg(seal ORDER BY item) AS item_seals
  FROM {{s}}.inbox WHERE thread = $1 AND body IS NOT NULL) i ON true
"""


_OPEN = _CLAIM + _standing(
    "mine.fence AS new_fence, mine.number AS new_number, mine.head AS new_head, mine.noted AS new_noted",
    "(SELECT 1) one LEFT JOIN mine ON true LEFT JOIN {s}.threads t ON t.thread = $1",
)
_LOOK = _standing("1", "{s}.threads t") + "WHERE t.thread = $1"


class Owning(Reading):
    """Opens, renews and gives up threads."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._process: UUID | None = None
        """Under which it is known that it lives."""
        self._heartbeat = Heartbeat(self)
        self.held: dict[Lease, Held] = {}
        self.unreleased: dict[tuple[str, str], tuple[int | None, float]] = {}
        """Thread and owner of claims that may be there and that nobody here has; the fence, if it is known; and how
        long a statement that was given up may still come to claim it."""

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        check_id("thread id", thread_id, None)
        check_id("owner", owner)
        left = self.unreleased.pop((thread_id, owner), None)
        try:
            return await self._open(thread_id, owner, takeover, left is not None)
        except ThreadBusy:
            if left is not None:
                self._leave((thread_id, owner), left[0])
            raise
        except UnsupportedId:
            raise
        except BaseException:  # it may have been claimed all the same
            self._leave((thread_id, owner), None)
            raise

    def _leave(self, claim: tuple[str, str], fence: int | None) -> None:
        """To the heartbeat, which gives it up."""
        self.unreleased[claim] = fence, time.monotonic() + self.db.statement_seconds + LEASE_SECONDS
        self._heartbeat.start()

    async def _open(self, thread_id: str, owner: str, takeover: bool, tries_again: bool) -> OpenedThread:
        process = await self._own_process()
        dead_fence = -1

        async def claim() -> Any:
            nonlocal tries_again
            given = (key_of(thread_id), thread_id, owner, process, dead_fence, takeover, tries_again)
            try:
                return await self.db.once("fetchrow", _OPEN, given)
            except Unknown:
                tries_again = True  # it may be ours already
                raise

        while True:
            row = await self.db.again(claim)
            if row["new_fence"] is not None:
                break
            if row["fence"] is None or row["owner"] is None:  # it was made, or given up, in the meantime
                continue
            if not self._is_gone(row["process"], row["identity"], row["is_leased"]):
                raise ThreadBusy(thread_id, row["owner"], is_here=row["process"] == process)
            dead_fence = row["fence"]
        lease = Lease(thread_id, owner, row["new_fence"])
        if not _is_as_claimed(row):  # somebody moved it while we waited for its row
            row = await self.db.row(_LOOK, key_of(thread_id))
        opened = await self._opened(thread_id, lease, row)
        self.held[lease] = Held(bool(opened.journal) or opened.damage is not None)
        self._heartbeat.start()
        return opened

    async def _opened(self, thread_id: str, lease: Lease, row: Any) -> OpenedThread:
        root, info, damage, journal, inbox = None, None, None, [], []
        number = row["number"] or 0
        at = {**row, "number": row["found"], "status": row["checkpoint_status"]}
        try:
            if row["found"] is not None:
                previous = await self.previous_of([(key_of(thread_id), at)])
                info = info_of(thread_id, at, previous[0])
            check_standing(thread_id, row)
            root = None if info is None else root_of(thread_id, at)
            entries = zip(row["deliveries"] or (), row["bodies"] or (), row["seals"] or (), strict=True)
            journal = journal_of(thread_id, number, entries)
            items = zip(
                row["item_ids"] or (), row["kinds"] or (), row["items"] or (), row["item_seals"] or (), strict=True
            )
            inbox = inbox_of(thread_id, items)
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
        row = await self.db.row("SELECT fence, owner FROM {s}.threads WHERE thread = $1", key_of(lease.thread_id))
        if row is None or (row["fence"], row["owner"]) != (lease.fence, lease.owner):
            raise taken_over(lease, row)
        await self.beat()

    async def release(self, lease: Lease) -> None:
        self.held.pop(lease, None)
        is_sure = True

        async def give_up() -> Any:
            nonlocal is_sure
            try:
                return await self.db.once("fetchval", RELEASE, (key_of(lease.thread_id), lease.owner, lease.fence))
            except Unknown:
                is_sure = False
                raise

        try:
            due = await self.db.again(give_up) or not is_sure
        except BaseException:
            self._leave((lease.thread_id, lease.owner), lease.fence)
            raise
        if due:
            await self.sweep_quietly(lease.thread_id)

    async def sweep_quietly(self, thread_id: str) -> None:
        """Free what was forgotten: done by `Forgetting`, which is made of this."""
        raise NotImplementedError

    # ------------------------------------------------------------ processes

    async def _own_process(self) -> UUID:
        process = key_of(to_json(this_process()))
        if self._process != process:  # the first use, or a fork of the process
            await self.db.value(_BEGIN, *own_process())
            self._process = process
        elif not self._heartbeat.is_beating:  # nothing was held: the lease may have run out, and its row may be gone
            await self.beat()
        return process

    async def beat(self) -> None:
        """Say that this process lives."""
        await self.db.value(RENEW, *own_process())

    def _is_gone(self, process: UUID | None, identity: str | None, is_leased: bool | None) -> bool:
        if identity is None or process is None:
            return True
        try:
            who = from_json(identity)
        except (msgspec.DecodeError, TypeError):  # who it was cannot be read: only its lease is left
            return not is_leased
        alive = True if who == this_process() else is_process_alive(who.identity)
        return not is_leased if alive is None else not alive

    def owner_in(self, row: Any) -> str | None:
        """The run that holds the thread, if it still does; from a row with owner, process, identity, is_leased."""
        if row is None or row["owner"] is None:
            return None
        return None if self._is_gone(row["process"], row["identity"], row["is_leased"]) else str(row["owner"])


class Held:
    """What is known of a thread that is owned here."""

    __slots__ = ("has_journal", "journal")

    def __init__(self, has_journal: bool) -> None:
        self.has_journal = has_journal
        """Whether there may be entries. Nobody else can add one without taking the thread over."""
        self.journal: Combined[tuple[UUID, JournalEntry]] = Combined()


def _is_as_claimed(row: Any) -> bool:
    """Whether what was read beside the claim belongs to what was claimed: the claim may have waited for somebody, and
    reads what was before."""
    now = (row["new_fence"], row["new_number"], row["new_head"], row["new_noted"])
    if row["fence"] is None:
        return now == (1, 0, None, 0)
    return bool(now == (row["fence"] + 1, row["number"], row["head"], row["noted"]))


AGREEMENT = f"""
SELECT t.number, t.head, t.workflow, n.workflow AS newest_workflow, n.number AS newest, n.checkpoint_id,
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1) AS last,
  (SELECT count(*) = t.number - t.head AND count(workflow) = 0 FROM {{s}}.commits
    WHERE thread = $1 AND number > t.head) AS is_newest_ever
FROM {{s}}.threads t LEFT JOIN LATERAL (SELECT c.number, c.checkpoint_id, c.workflow FROM {{s}}.commits c
  WHERE c.thread = $1 AND {IS_THERE} ORDER BY c.number DESC LIMIT 1) n ON true WHERE t.thread = $1
"""


def check_standing(thread_id: str, row: Any) -> None:
    """Raises DamagedCheckpoint if the thread's row and its commits do not agree."""
    number, head, last, newest = row["number"] or 0, row["head"], row["last"], row["newest"]
    if head != newest or number < (last or 0):
        said = f"commit {number} with its head at {head}"
        reason = f"the thread stands at {said}, and what is there ends at {last} with a head at {newest}"
        raise DamagedCheckpoint(id_in(row["checkpoint_id"]) or "of its head", reason, thread_id)


def taken_over(lease: Lease, row: Any) -> ThreadConflict:
    held = f"fence {lease.fence} of run {lease.owner!r}"
    return ThreadConflict(lease.thread_id, f"with {held}", f"fence {0 if row is None else row['fence']}")
