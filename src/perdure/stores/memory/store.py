"""A store in the memory of this process. It keeps bytes, so it never shares an object with its caller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partialmethod
from itertools import count, islice
from math import inf
from typing import Unpack

from perdure.errors import CheckpointNotFound, ThreadBusy, ThreadConflict, ThreadExists, ThreadNotFound
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
from perdure.store import Rewrite
from perdure.stores.layer import copy_thread
from perdure.stores.memory.thread import CheckpointIndex, MemoryThread
from perdure.stores.notify import LocalBus, NotifyingStore, PollInterval
from perdure.stores.packing import ThreadMatch
from perdure.stores.process_identity import fence_conflict


class MemoryStore(NotifyingStore):
    """Implements `perdure.store.Store`. No method awaits, so each is atomic."""

    poll_interval = PollInterval(inf, inf)  # no other process changes it

    def __init__(self) -> None:
        super().__init__(LocalBus())
        self._threads: dict[str, MemoryThread] = {}
        self._checkpoints = CheckpointIndex(self._threads)
        self._positions = count(1)
        """Of commits in the order of all commits."""

    # ------------------------------------------------------------ owning a thread

    def _thread(self, thread_id: str) -> MemoryThread:
        """The thread; an empty one, which is not kept, for an unknown id."""
        return self._threads.get(thread_id) or MemoryThread(thread_id)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        thread = self._threads.setdefault(thread_id, self._thread(thread_id))
        if thread.owner is not None and not takeover:
            raise ThreadBusy(thread_id, thread.owner, is_here=True)
        thread.owner = owner
        thread.fence += 1
        head = thread.checkpoint(thread.head)
        return OpenedThread(
            lease=Lease(thread_id, owner, thread.fence),
            number=thread.number,
            info=None if head is None else head.info,
            root=None if head is None else head.root,
            last_seq=thread.last_seq,
            journal=thread.due_journal(),
            inbox=list(thread.inbox.values()),
            status=thread.status,
            is_encrypted=RESERVED_THREAD in self._threads,
        )

    async def renew(self, lease: Lease) -> None:
        self._prove(lease)  # the owner's process lives as long as this store

    async def release(self, lease: Lease) -> None:
        thread = self._thread(lease.thread_id)
        if (thread.fence, thread.owner) == (lease.fence, lease.owner):
            thread.owner = None
            if thread.is_collection_due(at_rest=True):
                thread.collect_garbage()
            self.bus.notify(lease.thread_id)

    def _prove(self, lease: Lease) -> MemoryThread:
        thread = self._threads.get(lease.thread_id)
        if thread is None or thread.fence != lease.fence or thread.owner != lease.owner:
            raise fence_conflict(lease, 0 if thread is None else thread.fence)
        return thread

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        thread = self._prove(commit.lease)
        thread_id, number = thread.thread_id, commit.number
        if number != thread.number + 1:
            raise ThreadConflict(thread_id, f"commit {number}", f"commit {thread.number}")
        if commit.parent not in (None, thread.head) and not thread.has_checkpoint(commit.parent):
            raise ThreadConflict(thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
        stored = thread.append(commit)
        thread.number = number
        thread.status = commit.status
        thread.updated_at = commit.timestamp
        thread.moved = next(self._positions)
        if stored.info is not None:
            replaced = self._checkpoints.find(stored.info.checkpoint_id)
            if replaced is not None:
                self._prune_checkpoint(*replaced, moves_head=replaced[0] is not thread)
            self._checkpoints.add(stored.info, thread.moved)
            thread.head = number
            thread.workflow_name = stored.info.workflow_name
            thread.due_at = commit.due_at
        if commit.requests is not None:
            thread.requests = {
                request.request_id: thread.requests.get(request.request_id, request) for request in commit.requests
            }
        if thread.journal:
            thread.journal = [
                JournalEntry(number, entry.delivery_id, entry.body)  # still due, after this commit
                for entry in thread.journal
                if commit.info is None or entry.delivery_id in commit.unsettled
            ]
        if commit.events is not None:
            thread.last_seq = commit.events.first_seq + commit.events.count - 1
        for item_id in commit.consumed:
            if thread.inbox.pop(item_id, None) is not None:
                thread.consumed.add(item_id)
        if commit.prunes or commit.prunes_events_before:
            for pruned in filter(None, map(thread.commits.get, commit.prunes)):
                if pruned.info is not None and not pruned.info.is_pinned and pruned.number != thread.head:
                    self._prune_checkpoint(thread, pruned.info)
            thread.drop_events(commit.prunes_events_before)
            if thread.is_collection_due(at_rest=False):
                thread.collect_garbage()
        self.bus.notify(thread_id)

    def _prune_checkpoint(self, thread: MemoryThread, info: CheckpointInfo, *, moves_head: bool = True) -> None:
        self._checkpoints.remove(info.checkpoint_id)
        thread.prune_checkpoint(info.number)
        if moves_head and thread.head == info.number:
            thread.move_head()

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._prove(lease).journal.append(entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        thread = self._threads.setdefault(thread_id, self._thread(thread_id))
        if item_id not in thread.consumed:
            thread.inbox.setdefault(item_id, InboxItem(item_id, kind, body))
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ reading

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        entry = self._checkpoints.find(checkpoint_id)
        return None if entry is None else entry[0].checkpoint(entry[1].number)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        thread = self._thread(thread_id)
        return thread.checkpoint(thread.head)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        commits = self._thread(thread_id).commits
        return {number: dict(commits[number].chunks) for number in numbers if number in commits}

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        return [*islice(self._checkpoints.newest_first(workflow_name, thread_id, before), limit)][::-1]

    async def threads(
        self,
        *,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
        **match: Unpack[ThreadMatch],
    ) -> Sequence[ThreadInfo]:
        if before is not None and before not in self._threads:
            raise ThreadNotFound(before)
        last = inf if before is None else self._threads[before].moved
        matches = [
            thread
            for thread in self._select(**match)
            if thread.number and thread.moved < last and (statuses is None or thread.status in statuses)
        ]
        newest_first = sorted(matches, key=lambda thread: -thread.moved)[:limit]
        return [thread.thread_info() for thread in reversed(newest_first)]

    def _select(
        self, workflow_name: str | None = None, thread_id: str | None = None, prefix: str | None = None
    ) -> Iterator[MemoryThread]:
        for thread in self._threads.values():
            is_named = thread_id in (None, thread.thread_id) and thread.thread_id.startswith(prefix or "")
            if is_named and workflow_name in (None, thread.workflow_name):
                yield thread

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return self._thread(thread_id).read_events(seq)

    async def last_seq(self, thread_id: str) -> int:
        return self._thread(thread_id).last_seq

    async def pending_requests(
        self, *, limit: int | None = None, **match: Unpack[ThreadMatch]
    ) -> Sequence[PendingRequest]:
        threads = (thread for thread in self._select(**match) if thread.requests)
        requests = [request for thread in threads for request in thread.pending_requests()]
        return sorted(requests, key=lambda request: (request.asked_at, request.thread_id, request.request_id))[:limit]

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        due = [
            (thread.due_at, thread.thread_id)
            for thread in self._threads.values()
            if thread.due_at is not None and thread.due_at <= now and thread.owner is None
        ]
        return [self._threads[thread_id].thread_info() for _, thread_id in sorted(due)[:limit]]

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        used = [thread.thread_id for thread in self._select(prefix=prefix) if thread.is_used]
        return sorted(thread_id for thread_id in used if after is None or thread_id > after)[:limit]

    # ------------------------------------------------------------ keeping, removing and copying

    async def _set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        entry = self._checkpoints.find(checkpoint_id)
        if entry is None:
            raise CheckpointNotFound(checkpoint_id)
        entry[0].set_pin(entry[1].number, is_pinned=is_pinned)

    pin = partialmethod(_set_pin, is_pinned=True)
    unpin = partialmethod(_set_pin, is_pinned=False)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        thread = self._thread(thread_id)
        entries = [self._checkpoints.find(checkpoint_id) for checkpoint_id in dict.fromkeys(checkpoint_ids)]
        infos = [entry[1] for entry in entries if entry is not None and entry[0] is thread and not entry[1].is_pinned]
        if thread.owner is not None and any(info.number == thread.head for info in infos):
            raise ThreadBusy(thread_id, thread.owner)
        for info in infos:
            self._prune_checkpoint(thread, info)
        thread.drop_events(events_before)
        thread.collect_garbage()
        return len(infos)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        thread = self._threads.get(thread_id)
        if thread is None:
            return False
        if thread.owner is not None:
            raise ThreadBusy(thread_id, thread.owner)
        if if_unmoved_since is not None and (if_unmoved_since != thread.number or thread.inbox or thread.pins()):
            return False
        for info in [*self._checkpoints.newest_first(None, thread_id, None)]:
            self._checkpoints.remove(info.checkpoint_id)
        del self._threads[thread_id]
        return True

    copy_thread = copy_thread

    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        thread = self._thread(thread_id)
        return thread.header() if thread.is_used or thread.owner else None

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        commits = self._thread(thread_id).read_commits()
        return [*islice((commit for commit in commits if commit.number > after), limit)]

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        thread = MemoryThread(header.thread_id)
        stored = [thread.append(commit) for commit in commits]
        infos = [info for commit in stored if (info := commit.info) is not None]
        existing = self._thread(thread.thread_id)
        if existing.is_used or existing.owner is not None:
            raise ThreadExists(thread.thread_id)
        for info in infos:
            entry = self._checkpoints.find(info.checkpoint_id)
            if entry is not None:
                reason = f"its checkpoint {info.checkpoint_id!r} is in thread {entry[0].thread_id!r} here"
                raise ThreadExists(thread.thread_id, reason)
        thread.fence = existing.fence
        thread.restore(header)
        thread.moved = next(self._positions)
        self._threads[thread.thread_id] = thread
        for info in infos:
            thread.moved = next(self._positions)
            self._checkpoints.add(info, thread.moved)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return self._thread(thread_id).rewrite(change)

    async def check(self) -> Sequence[Damage]:
        return []  # memory has no seals to check

    async def size(self) -> int:
        return sum(thread.size() for thread in self._threads.values())

    async def close(self) -> None:
        """Has no files or connections."""
