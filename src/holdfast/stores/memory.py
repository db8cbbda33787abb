"""A store in the memory of this process. It keeps bytes like any other, so nothing live is ever shared with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from os import urandom

import msgspec

from holdfast.errors import ThreadBusy, ThreadConflict, ThreadNotFound
from holdfast.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadInfo,
)
from holdfast.stores.in_order import CheckpointsInOrder
from holdfast.stores.memory_thread import MemoryThread, collect, has_checkpoint, lineage_of, renamed_info


class MemoryStore:
    """Implements `holdfast.store.Store`. Each method runs without awaiting anything, which makes it atomic."""

    finishes_commits = True

    def __init__(self) -> None:
        self._threads: dict[str, MemoryThread] = {}
        self._checkpoints = CheckpointsInOrder()
        self._commits = 0
        """How many there were."""

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        thread = self._threads.setdefault(thread_id, MemoryThread())
        if thread.owner is not None and not takeover:
            raise ThreadBusy(thread_id, thread.owner, is_here=True)
        thread.owner = owner
        thread.fence += 1
        return OpenedThread(
            lease=Lease(thread_id, owner, thread.fence),
            number=thread.number,
            info=None if thread.head is None else thread.head.info,
            root=None if thread.head is None else thread.head.root,
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

    async def close(self) -> None:
        """There is nothing to give back."""

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
        if not is_next and commit.parent is not None and not has_checkpoint(thread, commit.parent):
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
        thread.number = commit.number
        thread.status = commit.status
        thread.updated_at = commit.timestamp
        self._commits += 1
        thread.moved = self._commits
        if commit.info is not None and commit.root is not None:
            self._keep_checkpoint(thread, commit, StoredCheckpoint(commit.info, commit.root))
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

    def _keep_checkpoint(self, thread: MemoryThread, commit: Commit, stored: StoredCheckpoint) -> None:
        info = stored.info
        replaced = self._checkpoints.find(info.checkpoint_id)
        if replaced is not None:
            self._forget(replaced.info, moves_head=replaced.info.thread_id != info.thread_id)
        thread.head = stored
        thread.workflow_name = info.workflow_name
        self._checkpoints.add(stored, self._commits)
        thread.lines[commit.number] = commit if commit.chunks or commit.dropped else commit.parent or 0
        thread.due_at = commit.due_at

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._proved(lease).journal.append(entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self._threads.setdefault(thread_id, MemoryThread())
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, InboxItem(item_id, kind, body))

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return self._checkpoints.find(checkpoint_id)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        thread = self._threads.get(thread_id)
        return thread.head if thread else None

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
        newest_first = self._checkpoints.newest_first(workflow_name, thread_id, before)
        return [stored.info for stored in islice(newest_first, limit)][::-1]

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        found = [self._thread_info(key, one) for key, one in self._threads.items() if one.number]
        found = [
            one for one in found if workflow_name in (None, one.workflow_name) and thread_id in (None, one.thread_id)
        ]
        found.sort(key=lambda one: self._threads[one.thread_id].moved)
        if before is not None:
            if before not in self._threads:
                raise ThreadNotFound(before)
            found = [one for one in found if self._threads[one.thread_id].moved < self._threads[before].moved]
        return found if limit is None else found[max(0, len(found) - limit) :]

    def _thread_info(self, thread_id: str, thread: MemoryThread) -> ThreadInfo:
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

    async def events_after(self, thread_id: str, seq: int) -> Sequence[LoggedEvents]:
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        start = bisect_right(thread.events, seq, key=lambda one: one.first_seq + one.count - 1)
        return [
            one if one.info is None or self._is_stored(one.info) else msgspec.structs.replace(one, info=None)
            for one in thread.events[start:]
        ]

    def _is_stored(self, info: CheckpointInfo) -> bool:
        found = self._checkpoints.find(info.checkpoint_id)
        return found is not None and found.info.number == info.number

    async def pending_requests(
        self, *, workflow_name: str | None = None, thread_id: str | None = None, limit: int | None = None
    ) -> Sequence[PendingRequest]:
        found = [
            msgspec.structs.replace(one, workflow_name=thread.workflow_name)
            for key, thread in self._threads.items()
            if thread_id in (None, key)
            for one in thread.requests.values()
        ]
        found = [one for one in found if workflow_name in (None, one.workflow_name)]
        return sorted(found, key=lambda one: (one.asked_at, one.thread_id, one.request_id))[:limit]

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        due = [
            (thread.due_at, key)
            for key, thread in self._threads.items()
            if thread.due_at is not None and thread.due_at <= now and thread.owner is None
        ]
        return [self._thread_info(key, self._threads[key]) for _, key in sorted(due)[:limit]]

    # ------------------------------------------------------------ removing and copying

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str]) -> int:
        thread = self._threads.get(thread_id)
        known = {stored.info.checkpoint_id for stored in self._checkpoints.of_thread(thread_id)}
        doomed = [one for one in dict.fromkeys(checkpoint_ids) if one in known]
        if thread is None or not doomed:
            return 0
        if thread.owner is not None and thread.head is not None and thread.head.info.checkpoint_id in doomed:
            raise ThreadBusy(thread_id, thread.owner)
        for checkpoint_id in doomed:
            found = self._checkpoints.find(checkpoint_id)
            if found is not None:
                self._forget(found.info)
        collect(thread, thread_id, self._checkpoints)
        return len(doomed)

    def _forget(self, info: CheckpointInfo, *, moves_head: bool = True) -> None:
        """The checkpoint, but not yet its chunks. The newest of those that are left becomes the head."""
        self._checkpoints.remove(info.checkpoint_id)
        thread = self._threads[info.thread_id]
        stays = any(one.refers for one in thread.events if one.number == info.number)
        lineage = lineage_of(info.number, thread.lines[info.number])
        thread.lines[info.number] = replace(lineage, is_kept=stays, is_checkpoint=False)
        if moves_head and thread.head is not None and thread.head.info == info:
            thread.head = next(self._checkpoints.newest_first(None, info.thread_id, None), None)
            thread.journal.clear()
            thread.requests.clear()
            thread.due_at = None

    async def delete_thread(self, thread_id: str) -> bool:
        thread = self._threads.get(thread_id)
        if thread is None:
            return False
        if thread.owner is not None:
            raise ThreadBusy(thread_id, thread.owner)
        for stored in self._checkpoints.of_thread(thread_id):
            self._checkpoints.remove(stored.info.checkpoint_id)
        del self._threads[thread_id]
        return True

    async def copy_thread(self, thread_id: str, to: str) -> None:
        source = self._threads.get(thread_id)
        if source is None:
            raise ThreadNotFound(thread_id)
        if to in self._threads:
            raise ThreadBusy(to, self._threads[to].owner)
        target = self._threads[to] = MemoryThread()
        for name in ("number", "status", "updated_at", "due_at", "last_seq", "workflow_name"):
            setattr(target, name, getattr(source, name))
        self._commits += 1
        target.moved = self._commits
        target.chunks = {number: dict(chunks) for number, chunks in source.chunks.items()}
        target.lines = dict(source.lines)
        target.requests = {key: msgspec.structs.replace(one, thread_id=to) for key, one in source.requests.items()}
        stored = self._checkpoints.of_thread(thread_id)
        renamed = {one.info.checkpoint_id: urandom(12).hex() for one in stored}
        copies = {one.info.checkpoint_id: renamed_info(one.info, to, renamed) for one in stored}
        target.events = [
            msgspec.structs.replace(
                one, info=None if one.info is None else copies.get(one.info.checkpoint_id, one.info)
            )
            for one in source.events
        ]
        for one in stored:
            self._commits += 1
            target.moved = self._commits
            copy = StoredCheckpoint(copies[one.info.checkpoint_id], one.root)
            self._checkpoints.add(copy, self._commits)
            if source.head is one:
                target.head = copy
