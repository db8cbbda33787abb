"""A store in the memory of this process. It keeps bytes, so it never shares an object with its caller."""

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
from perdure.names import RESERVED_THREAD
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
from perdure.stores.memory.tables import MemoryTables, pending_requests_of
from perdure.stores.memory.thread import MemoryThread, Note
from perdure.stores.notify import LocalBus, PollInterval


class ThreadQuery(NamedTuple):
    """Which threads a list contains: those that match all fields that are not None."""

    workflow_name: str | None = None
    thread_id: str | None = None
    prefix: str | None = None
    statuses: Collection[str] | None = None

    def matches(self, thread_id: str, thread: MemoryThread) -> bool:
        return (
            thread_id.startswith(self.prefix or "")
            and self.thread_id in (None, thread_id)
            and self.workflow_name in (None, thread.workflow_name)
            and (self.statuses is None or thread.status in self.statuses)
        )


def list_threads(
    threads: Mapping[str, MemoryThread], query: ThreadQuery, limit: int | None, before: str | None
) -> list[ThreadInfo]:
    """Raises ThreadNotFound."""
    if before is not None and before not in threads:
        raise ThreadNotFound(before)
    matches = [(thread.moved, key) for key, thread in threads.items() if thread.number and query.matches(key, thread)]
    if before is not None:
        matches = [(moved, key) for moved, key in matches if moved < threads[before].moved]
    newest = sorted(matches)[0 if limit is None else max(0, len(matches) - limit) :]
    return [make_thread_info(key, threads[key]) for _, key in newest]


def list_requests(threads: Mapping[str, MemoryThread], query: ThreadQuery, limit: int | None) -> list[PendingRequest]:
    requests = [
        request
        for key, thread in threads.items()
        if thread.requests and query.matches(key, thread)
        for request in pending_requests_of(key, thread)
    ]
    return sorted(requests, key=lambda request: (request.asked_at, request.thread_id, request.request_id))[:limit]


def list_due(threads: Mapping[str, MemoryThread], now: datetime, limit: int | None) -> list[ThreadInfo]:
    due = [
        (thread.due_at, key)
        for key, thread in threads.items()
        if thread.due_at is not None and thread.due_at <= now and thread.owner is None
    ]
    return [make_thread_info(key, threads[key]) for _, key in sorted(due)[:limit]]


def make_thread_info(thread_id: str, thread: MemoryThread) -> ThreadInfo:
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
    """Implements `perdure.store.Store`. No method awaits, so each is atomic."""

    poll_interval = PollInterval(inf, inf)  # no other process changes it

    def __init__(self) -> None:
        self.bus = LocalBus()
        self.has_subscribers = self.bus.has_subscribers
        self._tables = MemoryTables()
        self._threads = self._tables.threads

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)

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
            is_encrypted=RESERVED_THREAD in self._threads,
        )

    async def renew(self, lease: Lease) -> None:
        self._prove(lease)  # the owner's process lives as long as this store

    async def release(self, lease: Lease) -> None:
        thread = self._threads.get(lease.thread_id)
        if thread is not None and (thread.fence, thread.owner) == (lease.fence, lease.owner):
            thread.owner = None
            self._tables.collect_if_due(lease.thread_id, thread, at_rest=True)
            self.bus.notify(lease.thread_id)

    def _prove(self, lease: Lease) -> MemoryThread:
        thread = self._threads.get(lease.thread_id)
        if thread is None or (thread.fence, thread.owner) != (lease.fence, lease.owner):
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {thread.fence if thread else 0}")
        return thread

    async def commit(self, commit: Commit) -> None:
        thread = self._prove(commit.lease)
        if commit.number != thread.number + 1:
            raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", f"commit {thread.number}")
        is_next = thread.head is not None and thread.head.info.number == commit.parent
        if not is_next and commit.parent is not None and self._at(commit.lease.thread_id, commit.parent) is None:
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
        thread.number = commit.number
        thread.status = commit.status
        thread.updated_at = commit.timestamp
        thread.moved = self._tables.next_position()
        if commit.info is not None and commit.root is not None:
            self._tables.add_checkpoint(thread, commit, StoredCheckpoint(commit.info, commit.root), thread.moved)
        else:
            thread.notes[commit.number] = Note(commit.status, commit.run_id, commit.timestamp)
        if commit.requests is not None:
            requests = {request.request_id: request for request in commit.requests}
            thread.requests = {key: thread.requests.get(key, request) for key, request in requests.items()}
        if commit.chunks:
            thread.chunks[commit.number] = dict(commit.chunks)
        if thread.journal:
            keeps_all = commit.info is None
            thread.journal = [
                JournalEntry(commit.number, entry.delivery_id, entry.body)  # still due, after this commit
                for entry in thread.journal
                if keeps_all or entry.delivery_id in commit.unsettled
            ]
        events = commit.events
        if events is not None:
            if events.refers:
                thread.lineages[commit.number] = commit
            if events.number != commit.number:
                of_commit = (commit.number, commit.run_id, commit.timestamp, commit.info)
                events = LoggedEvents(
                    events.first_seq, events.count, events.body, events.refers, events.own, *of_commit
                )
            thread.events.append(events)
            thread.last_seq = events.first_seq + events.count - 1
        for item_id in commit.consumed:
            if thread.inbox.pop(item_id, None) is not None:
                thread.consumed.add(item_id)
        if commit.prunes or commit.prunes_events_before:
            self._tables.prune_with(commit, thread)
        self.bus.notify(commit.lease.thread_id)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._prove(lease).journal.append(entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self._threads.setdefault(thread_id, MemoryThread())
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, InboxItem(item_id, kind, body))
        self.bus.notify(thread_id)

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        stored = self._tables.checkpoints.find(checkpoint_id)
        return None if stored is None else self._tables.current(stored)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        thread = self._threads.get(thread_id)
        return None if thread is None else self._tables.head(thread)

    def _at(self, thread_id: str, number: int) -> StoredCheckpoint | None:
        stored = self._tables.checkpoints.at(thread_id, number)
        return None if stored is None else self._tables.current(stored)

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
        return list_threads(self._threads, ThreadQuery(workflow_name, thread_id, prefix, statuses), limit, before)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        if seq is not None and max(seq, 0) + 1 < thread.first_seq:
            raise CursorExpired(thread_id, seq, thread.first_seq)
        start = 0 if seq is None else bisect_right(thread.events, seq, key=_last_seq)
        return [self._refresh_info(thread_id, events) for events in thread.events[start:]]

    def _refresh_info(self, thread_id: str, events: LoggedEvents) -> LoggedEvents:
        """The events with the current info of their checkpoint; None if it was pruned."""
        if events.info is None:
            return events
        stored = self._at(thread_id, events.number)
        info = None if stored is None else stored.info
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
        return list_requests(self._threads, ThreadQuery(workflow_name, thread_id, prefix), limit)

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return list_due(self._threads, now, limit)

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        used = (
            key
            for key, thread in self._threads.items()
            if key.startswith(prefix or "") and (after is None or key > after) and thread.is_used
        )
        return sorted(used)[:limit]

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

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        return self._tables.thread_header(thread_id)

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return self._tables.commits(thread_id, after, limit)

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        self._tables.add_thread(header, commits)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return self._tables.rewrite(thread_id, change)

    async def check(self) -> Sequence[Damage]:
        return []  # memory has no seals to check

    async def size(self) -> int:
        return self._tables.size()

    async def close(self) -> None:
        """Has no files or connections."""


def _last_seq(events: LoggedEvents) -> int:
    return events.first_seq + events.count - 1
