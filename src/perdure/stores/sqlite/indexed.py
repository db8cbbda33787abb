"""What stores with SQLite tables have in common: reading, owning, and payloads that are proved by their seals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import TypeVar
from weakref import finalize

import msgspec

from perdure.errors import DamagedCheckpoint, PerdureError, ThreadBusy
from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    Lease,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Subscription
from perdure.stores.garbage import silenced
from perdure.stores.notify import PollInterval, bus_for
from perdure.stores.packing import NOTHING, SEAL_BYTES, Body, logged_events, seal, to_id, unpack_body, unpack_chunks
from perdure.stores.process_identity import RENEW_SECONDS
from perdure.stores.sqlite.batching import GroupedWrites
from perdure.stores.sqlite.connection import Connection
from perdure.stores.sqlite.lists import ListQuery
from perdure.stores.sqlite.rows import Payload, RawRow
from perdure.stores.sqlite.tables import Tables
from perdure.stores.sqlite.worker_thread import OwnThread

T = TypeVar("T")


class IndexedStore:
    """All of `perdure.store.Store` that does not write payloads. Everything is done in one own thread."""

    finishes_commits = True
    poll_interval = PollInterval()

    def __init__(self, name: str, connection: Connection) -> None:
        self.bus = bus_for(connection.path)
        self._connection = connection
        self._thread = OwnThread(name, connection.renew, RENEW_SECONDS)
        self._grouped: GroupedWrites | None = None
        """Where writes that wait at the same time are made in one transaction."""
        self._end = finalize(self, connection.close)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

    def has_subscribers(self, thread_id: str) -> bool:
        return self.bus.has_subscribers(thread_id)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)

    def _payload(self, thread_id: str, payload: Payload) -> bytes:
        """The packed body of a commit."""
        raise NotImplementedError

    async def _do(self, work: Callable[[Tables], T], *, writes: bool = True, syncs: bool = True) -> T:
        if writes and self._grouped is not None:
            return await self._grouped.do(work, syncs=syncs)
        return await self._thread.do(lambda: self._connection.transact(work, writes=writes, syncs=syncs))

    async def _list(self, work: Callable[[Tables], T]) -> T:
        """Reading across threads."""
        return await self._do(work, writes=False)

    async def close(self) -> None:
        if self._connection.unreleased:
            await self._thread.do(self._connection.renew)  # the last chance to give up what could not be given up
        await self._thread.do(self._connection.close)
        self._thread.stop()

    # ------------------------------------------------------------ owning a thread

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        try:  # a claim that a power cut undoes is of no process that lives: it need not be synced
            return await self._do(lambda tables: self._opened(tables, thread_id, owner, takeover), syncs=False)
        except ThreadBusy:
            await self._do(lambda tables: tables.shorten_leases(), syncs=False)
            raise

    def _opened(self, tables: Tables, thread_id: str, owner: str, takeover: bool) -> OpenedThread:
        standing = tables.claim(thread_id, owner, takeover=takeover)
        newest = tables.newest_checkpoint(standing.thread)
        found = None if newest is None else tables.at(standing.thread, newest)
        root, damage, journal, inbox = None, None, [], []
        try:
            tables.check_standing(thread_id, standing, newest)
            if newest is not None and found is None:
                raise DamagedCheckpoint("of its head", f"commit {newest} is not where it should be", thread_id)
            root = None if found is None else root_of(*found, self._payload(thread_id, found[1]))
            journal, inbox = tables.journal(thread_id, standing.number), tables.inbox(thread_id)
            tables.without_journal.discard(thread_id)
            if not journal:
                tables.without_journal.add(thread_id)
        except DamagedCheckpoint as error:
            root, damage = None, error.reason
        opened = OpenedThread(
            lease=Lease(thread_id, owner, standing.fence),
            number=standing.number,
            info=None if found is None else found[0],
            root=root,
            last_seq=standing.last_seq,
            journal=journal,
            inbox=inbox,
            status=standing.status,
            damage=damage,
        )
        self._connection.held.add(opened.lease)
        return opened

    async def renew(self, lease: Lease) -> None:
        def work(tables: Tables) -> None:
            tables.prove(lease)
            tables.renew()

        await self._do(work, syncs=False)

    async def release(self, lease: Lease) -> None:
        def work(tables: Tables) -> bool:
            thread = tables.find_thread(lease.thread_id)
            tables.release(lease)
            return thread is not None and tables.is_sweep_due(thread, at_rest=True)

        self._connection.held.discard(lease)
        try:
            is_sweep_due = await self._do(work, syncs=False)
        except PerdureError:
            self._connection.unreleased.append(lease)  # tried again with the next heartbeat
            raise
        self.bus.notify(lease.thread_id)
        if is_sweep_due:
            await self._thread.do_to_the_end(partial(self._sweep, lease.thread_id))

    def _sweep(self, thread_id: str) -> None:
        """Free what was forgotten. Never raises: it is done again later."""

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await self._list(lambda tables: self._stored(tables.find(checkpoint_id)))

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        return await self._list(lambda tables: self._stored(tables.head_of(thread_id)))

    def _stored(self, found: tuple[CheckpointInfo, Payload] | None) -> StoredCheckpoint | None:
        if found is None:
            return None
        info, payload = found
        return StoredCheckpoint(info, root_of(info, payload, self._payload(info.thread_id, payload)))

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        def work(tables: Tables) -> Mapping[int, Mapping[str, bytes]]:
            found = {}
            for key, payload in tables.payloads(thread_id, numbers):
                body = self._payload(thread_id, payload)
                try:  # each chunk is proved by its digest: the seal of the whole would prove nothing more
                    found[payload.number] = unpack_chunks(body)
                except msgspec.DecodeError as error:
                    name = to_id(key) or f"of commit {payload.number}"
                    raise DamagedCheckpoint(name, f"commit {payload.number} is damaged: {error}", thread_id) from error
            return found

        return await self._do(work, writes=False)

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        return await self._list(lambda tables: tables.infos(workflow_name, thread_id, limit, before))

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        wanted = ListQuery(workflow_name, thread_id, prefix, statuses)
        return await self._list(lambda tables: tables.threads(wanted, limit, before))

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        def work(tables: Tables) -> list[LoggedEvents]:
            found = []
            for first, count, run_id, timestamp, info, payload in tables.events_after(thread_id, seq):
                checkpoint_id = None if info is None else info.checkpoint_id
                body = unpacked(thread_id, checkpoint_id, payload, self._payload(thread_id, payload))
                events = logged_events(body, first, count)
                said = {"run_id": run_id, "timestamp": timestamp, "info": info}
                if events is not None:
                    found.append(msgspec.structs.replace(events, number=payload.number, **said))
            return found

        return await self._list(work)

    async def last_seq(self, thread_id: str) -> int:
        return await self._list(lambda tables: tables.last_seq(thread_id))

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        return await self._list(lambda tables: tables.requests(ListQuery(workflow_name, thread_id, prefix), limit))

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return await self._list(lambda tables: tables.due(now, limit))

    async def standing(self, thread_id: str) -> ThreadHeader | None:
        wanted = ListQuery(thread_id=thread_id)
        return await self._list(lambda tables: tables.whole_standing(thread_id, tables.requests(wanted)))

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        def work(tables: Tables) -> list[Commit]:
            found = []
            thread = tables.find_thread(thread_id)
            silent_before = 0 if thread is None else tables.silent_before(thread)
            for row in tables.raw_commits(thread_id, after, limit):
                payload = self._payload(thread_id, row.payload)
                checkpoint_id = None if row.info is None else row.info.checkpoint_id
                body = unpacked(thread_id, checkpoint_id, row.payload, payload)
                is_silent = row.payload.number < silent_before  # forgotten, though it may still be there
                found.append(raw_commit(thread_id, row, silenced(body) if is_silent else body))
            return found

        return await self._list(work)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        return await self._list(lambda tables: tables.thread_ids(prefix, after, limit))

    # ------------------------------------------------------------ as a whole

    async def _give_back(self) -> None:
        """The pages that are free, to the system. Step by step, so that others get their turn."""
        while await self._thread.do(self._connection.give_back_some):
            pass
        await self._thread.do(self._connection.move_log)

    async def check(self) -> Sequence[Damage]:
        found = list(await self._check_files())
        for thread_id in await self._list(lambda tables: tables.all_thread_ids()):
            try:
                found += await self._list(partial(self._check_thread, thread_id=thread_id))
            except (PerdureError, TypeError, ValueError) as error:  # rows that are not what they should be
                found.append(Damage(f"it cannot be looked at: {error}", thread_id))
        return found

    async def _check_files(self) -> Sequence[Damage]:
        """What can be told without looking at single threads."""
        found = await self._thread.do(self._connection.integrity)
        found += await self._list(lambda tables: tables.changed_schema())
        return [Damage(reason) for reason in [*found, *await self._list(lambda tables: tables.orphans())]]

    def _check_thread(self, tables: Tables, thread_id: str) -> list[Damage]:
        found = []

        def attempt(work: Callable[[], object]) -> None:
            try:
                work()
            except DamagedCheckpoint as error:
                named = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
                found.append(Damage(error.reason, thread_id, named))

        thread = tables.thread(thread_id)
        standing = tables.standing(thread)
        attempt(lambda: tables.check_standing(thread_id, standing, tables.newest_checkpoint(thread)))
        attempt(lambda: tables.journal(thread_id, standing.number))
        attempt(lambda: tables.inbox(thread_id))
        attempt(lambda: tables.check_consumed(thread_id))
        for number, checkpoint_id in tables.changed_columns(thread):
            found.append(Damage(f"what the lists say of commit {number} was changed", thread_id, checkpoint_id))
        numbers = set()
        for row in tables.raw_commits(thread_id, 0, None):
            numbers.add(row.payload.number)
            checkpoint_id = None if row.info is None else row.info.checkpoint_id
            body = self._payload(thread_id, row.payload)
            attempt(partial(unpacked, thread_id, checkpoint_id, row.payload, body))
            if row.parent is not None and row.parent not in numbers:
                reason = f"commit {row.payload.number} continues from commit {row.parent}, which is not there"
                found.append(Damage(reason, thread_id, checkpoint_id))
        return found


# ---------------------------------------------------------------- payloads


def unpacked(thread_id: str, checkpoint_id: str | None, payload: Payload, body: bytes) -> Body:
    """Raises DamagedCheckpoint for a payload that was changed, or stands where another belongs."""
    name = checkpoint_id or f"of commit {payload.number}"
    if (
        not body
        or type(body) is not bytes
        or (payload.seal is not None and seal(thread_id, payload.number, body) != payload.seal[:SEAL_BYTES])
    ):
        raise DamagedCheckpoint(name, f"commit {payload.number} was changed or damaged in its store", thread_id)
    try:
        return unpack_body(body)
    except msgspec.DecodeError as error:
        raise DamagedCheckpoint(name, f"commit {payload.number} is not what was written: {error}", thread_id) from error


def root_of(info: CheckpointInfo, payload: Payload, body: bytes) -> bytes:
    root = unpacked(info.thread_id, info.checkpoint_id, payload, body).root
    if root is NOTHING:
        raise DamagedCheckpoint(info.checkpoint_id, f"commit {payload.number} holds no checkpoint", info.thread_id)
    return bytes(root)


def raw_commit(thread_id: str, row: RawRow, body: Body) -> Commit:
    """As it was committed, or as pruning left it."""
    info, has_root = row.info, row.info is not None and body.root is not NOTHING
    first_seq, count = row.events
    return Commit(
        Lease(thread_id, "", 0),
        row.payload.number,
        info,
        bytes(body.root) if has_root else None,
        None if first_seq is None else logged_events(body, first_seq, count or 0),
        status=row.status,
        run_id=row.run_id,
        timestamp=row.timestamp,
        parent=row.parent,
        chunks={digest: bytes(chunk) for digest, chunk in body.chunks.items()},
        dropped=body.dropped,
        carried=body.carried,
    )


def delete_rows(tables: Tables, thread_id: str, if_unmoved_since: int | None) -> bool:
    owner = tables.owner_of(thread_id)
    if owner is not None:
        raise ThreadBusy(thread_id, owner)
    thread = tables.find_thread(thread_id)
    if thread is None:
        return False
    if if_unmoved_since is not None:
        is_needed = tables.pins(thread) or tables.inbox(thread_id)
        if is_needed or tables.standing(thread).number != if_unmoved_since:
            return False
    tables.delete_thread(thread)
    return True
