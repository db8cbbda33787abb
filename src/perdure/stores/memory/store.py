"""A store in the memory of this process. It keeps bytes like any other, so nothing live is ever shared with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import islice
from math import inf
from typing import NamedTuple

import msgspec

from perdure.errors import CursorExpired, ThreadBusy, ThreadConflict, ThreadNotFound
from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Rewrite, Subscription
from perdure.stores.memory.copies import requests_of
from perdure.stores.memory.tables import MemoryTables
from perdure.stores.memory.thread import MemoryThread, Note
from perdure.stores.notify import LocalBus, PollInterval

# ---------------------------------------------------------------- memory lists


class MemoryListQuery(NamedTuple):
    """Which threads a list is of: all, but for what is given."""

    workflow_name: str | None = None
    thread_id: str | None = None
    prefix: str | None = None
    statuses: Collection[str] | None = None

    def has(self, thread_id: str, thread: MemoryThread) -> bool:
        return (
            thread_id.startswith(self.prefix or "")
            and self.thread_id in (None, thread_id)
            and self.workflow_name in (None, thread.workflow_name)
            and (self.statuses is None or thread.status in self.statuses)
        )


def listed_threads(
    threads: Mapping[str, MemoryThread], wanted: MemoryListQuery, limit: int | None, before: str | None
) -> list[ThreadInfo]:
    """Raises ThreadNotFound."""
    if before is not None and before not in threads:
        raise ThreadNotFound(before)
    found = [(one.moved, key) for key, one in threads.items() if one.number and wanted.has(key, one)]
    if before is not None:
        found = [(moved, key) for moved, key in found if moved < threads[before].moved]
    newest = sorted(found)[0 if limit is None else max(0, len(found) - limit) :]
    return [thread_info(key, threads[key]) for _, key in newest]


def listed_requests(
    threads: Mapping[str, MemoryThread], wanted: MemoryListQuery, limit: int | None
) -> list[PendingRequest]:
    found = [
        one
        for key, thread in threads.items()
        if thread.requests and wanted.has(key, thread)
        for one in requests_of(key, thread)
    ]
    return sorted(found, key=lambda one: (one.asked_at, one.thread_id, one.request_id))[:limit]


def listed_due(threads: Mapping[str, MemoryThread], now: datetime, limit: int | None) -> list[ThreadInfo]:
    due = [
        (thread.due_at, key)
        for key, thread in threads.items()
        if thread.due_at is not None and thread.due_at <= now and thread.owner is None
    ]
    return [thread_info(key, threads[key]) for _, key in sorted(due)[:limit]]


def thread_info(thread_id: str, thread: MemoryThread) -> ThreadInfo:
    info = None if thread.head is None else thread.head.info
    return ThreadInfo(
        thread_id,
        thread.workflow_name,
        thread.number,
        thread.status,
        thread.updated_at,
        None if info is None else info.checkpoint_id,
        thread.due_at,
        thread.owner,
    )


class MemoryStore:
    """Implements `perdure.store.Store`. Each method runs without awaiting anything, which makes it atomic."""

    finishes_commits = True
    poll_interval = PollInterval(inf, inf)  # no other process has it

    def __init__(self) -> None:
        self.bus = LocalBus()
        self._tables = MemoryTables()
        self._threads = self._tables.threads

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

    def has_subscribers(self, thread_id: str) -> bool:
        return self.bus.has_subscribers(thread_id)

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return self.bus.subscribe(thread_id, self.poll_interval.after)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        thread = self._threads.setdefault(thread_id, MemoryThread())
        if thread.owner is not None and not takeover:
            raise ThreadBusy(thread_id, thread.owner, is_here=True)
        thread.owner = owner
        thread.fence += 1
        head = self._tables.head(thread)
        return OpenedThread(
            lease=Lease(thread_id, owner, thread.fence),
            number=thread.number,
            info=None if head is None else head.info,
            root=None if head is None else head.root,
            last_seq=thread.last_seq,
            journal=[entry for entry in thread.journal if entry.number == thread.number],
            inbox=list(thread.inbox.values()),
            status=thread.status,
        )

    async def renew(self, lease: Lease) -> None:
        self._proved(lease)  # a process outlives all that it keeps in memory

    async def release(self, lease: Lease) -> None:
        thread = self._threads.get(lease.thread_id)
        if thread is not None and (thread.fence, thread.owner) == (lease.fence, lease.owner):
            thread.owner = None
            self._tables.collect_if_due(lease.thread_id, thread, at_rest=True)
            self.bus.notify(lease.thread_id)

    def _proved(self, lease: Lease) -> MemoryThread:
        thread = self._threads.get(lease.thread_id)
        if thread is None or (thread.fence, thread.owner) != (lease.fence, lease.owner):
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {thread.fence if thread else 0}")
        return thread

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        thread = self._proved(commit.lease)
        if commit.number != thread.number + 1:
            raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", f"commit {thread.number}")
        is_next = thread.head is not None and thread.head.info.number == commit.parent
        if not is_next and commit.parent is not None and self._at(commit.lease.thread_id, commit.parent) is None:
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
        thread.number = commit.number
        thread.status = commit.status
        thread.updated_at = commit.timestamp
        thread.moved = self._tables.next_place()
        if commit.info is not None and commit.root is not None:
            self._tables.keep(thread, commit, StoredCheckpoint(commit.info, commit.root), thread.moved)
        else:
            thread.notes[commit.number] = Note(commit.status, commit.run_id, commit.timestamp)
        if commit.requests is not None:
            asked = {one.request_id: one for one in commit.requests}
            thread.requests = {key: thread.requests.get(key, one) for key, one in asked.items()}
        if commit.chunks:
            thread.chunks[commit.number] = dict(commit.chunks)
        if thread.journal:
            keeps_all = commit.info is None
            thread.journal = [
                JournalEntry(commit.number, one.delivery_id, one.body)  # still due; only the number moved on
                for one in thread.journal
                if keeps_all or one.delivery_id in commit.unsettled
            ]
        events = commit.events
        if events is not None:
            if events.refers:
                thread.lines[commit.number] = commit
            if events.number != commit.number:
                told = (commit.number, commit.run_id, commit.timestamp, commit.info)
                events = LoggedEvents(events.first_seq, events.count, events.body, events.refers, events.own, *told)
            thread.events.append(events)
            thread.last_seq = events.first_seq + events.count - 1
        for item_id in commit.consumed:
            if thread.inbox.pop(item_id, None) is not None:
                thread.consumed.add(item_id)
        if commit.prunes or commit.prunes_events_before:
            self._tables.forget_with(commit, thread)
        self.bus.notify(commit.lease.thread_id)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._proved(lease).journal.append(entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self._threads.setdefault(thread_id, MemoryThread())
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, InboxItem(item_id, kind, body))
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found = self._tables.checkpoints.find(checkpoint_id)
        return None if found is None else self._tables.current(found)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        thread = self._threads.get(thread_id)
        return None if thread is None else self._tables.head(thread)

    def _at(self, thread_id: str, number: int) -> StoredCheckpoint | None:
        found = self._tables.checkpoints.at(thread_id, number)
        return None if found is None else self._tables.current(found)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        chunks = self._threads[thread_id].chunks if thread_id in self._threads else {}
        return {number: chunks[number] for number in numbers if number in chunks}

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        newest_first = self._tables.checkpoints.newest_first(workflow_name, thread_id, before)
        if self._tables.checkpoints.is_complete:
            return [stored.info for stored in islice(newest_first, limit)][::-1]
        return [self._tables.current(stored).info for stored in islice(newest_first, limit)][::-1]

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
        wanted = MemoryListQuery(workflow_name, thread_id, prefix, statuses)
        return listed_threads(self._threads, wanted, limit, before)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        if seq is not None and max(seq, 0) + 1 < thread.first_seq:
            raise CursorExpired(thread_id, seq, thread.first_seq)
        start = 0 if seq is None else bisect_right(thread.events, seq, key=lambda one: one.first_seq + one.count - 1)
        return [self._told(thread_id, one) for one in thread.events[start:]]

    def _told(self, thread_id: str, events: LoggedEvents) -> LoggedEvents:
        """With what their checkpoint says now; none if it is gone."""
        if events.info is None:
            return events
        found = self._at(thread_id, events.number)
        info = None if found is None else found.info
        return events if info is events.info else msgspec.structs.replace(events, info=info)

    async def last_seq(self, thread_id: str) -> int:
        thread = self._threads.get(thread_id)
        return 0 if thread is None else thread.last_seq

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        return listed_requests(self._threads, MemoryListQuery(workflow_name, thread_id, prefix), limit)

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return listed_due(self._threads, now, limit)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        kept = (
            key
            for key, thread in self._threads.items()
            if key.startswith(prefix or "") and (after is None or key > after) and thread.holds_anything
        )
        return sorted(kept)[:limit]

    # ------------------------------------------------------------ keeping, removing and copying

    async def pin(self, checkpoint_id: str) -> None:
        self._tables.set_pin(checkpoint_id, is_pinned=True)

    async def unpin(self, checkpoint_id: str) -> None:
        self._tables.set_pin(checkpoint_id, is_pinned=False)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        return self._tables.prune(thread_id, checkpoint_ids, events_before)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        return self._tables.delete(thread_id, if_unmoved_since)

    async def copy_thread(self, thread_id: str, to: str) -> None:
        self._tables.copy(thread_id, to)

    async def standing(self, thread_id: str) -> ThreadHeader | None:
        return self._tables.standing(thread_id)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return self._tables.commits(thread_id, after, limit)

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        self._tables.take_in(standing, commits)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return self._tables.rewrite(thread_id, change)

    # ------------------------------------------------------------ as a whole

    async def check(self) -> Sequence[Damage]:
        return []  # there is nothing that it was written to

    async def size(self) -> int:
        return self._tables.size()

    async def close(self) -> None:
        """There is nothing to give back."""
