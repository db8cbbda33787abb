"""A store in the memory of this process. It keeps bytes like any other, so nothing live is ever shared with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice

from holdfast.errors import CheckpointNotFound, ThreadBusy, ThreadConflict
from holdfast.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    OpenedThread,
    StoredCheckpoint,
)


class _Thread:
    """One thread's row: who may move it, where it stands, what it logged."""

    __slots__ = ("events", "fence", "head", "inbox", "journal", "last_seq", "number", "owner", "status")

    def __init__(self) -> None:
        self.owner: str | None = None
        self.fence = 0
        self.number = 0
        self.head: StoredCheckpoint | None = None
        self.status = ""
        self.last_seq = 0
        self.events: list[LoggedEvents] = []
        self.journal: list[JournalEntry] = []
        self.inbox: dict[str, InboxItem] = {}


class MemoryStore:
    """Implements `holdfast.store.Store`. Each method runs without awaiting anything, which makes it atomic."""

    never_waits = True

    def __init__(self) -> None:
        self._threads: dict[str, _Thread] = {}
        self._checkpoints: dict[str, StoredCheckpoint] = {}
        # The same ids in commit order, so that a page of the newest costs no more with 10,000 stored than with 10.
        self._by_workflow: dict[str, dict[str, None]] = {}
        self._by_thread: dict[str, dict[str, None]] = {}

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        thread = self._threads.setdefault(thread_id, _Thread())
        if thread.owner is not None and not takeover:
            raise ThreadBusy(thread_id, thread.owner)
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

    async def release(self, lease: Lease) -> None:
        thread = self._threads.get(lease.thread_id)
        if thread is not None and thread.fence == lease.fence:
            thread.owner = None

    async def commit(self, commit: Commit) -> None:
        thread = self._proved(commit.lease)
        if commit.number != thread.number + 1:
            raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", f"commit {thread.number}")
        thread.number = commit.number
        thread.status = commit.status
        if commit.info is not None and commit.root is not None:
            thread.head = StoredCheckpoint(commit.info, commit.root)
            self._keep(thread.head)
        if thread.journal:
            keeps_all = commit.info is None
            thread.journal = [
                JournalEntry(commit.number, one.delivery_id, one.body)  # still due; only the number moved on
                for one in thread.journal
                if keeps_all or one.delivery_id in commit.unsettled
            ]
        if commit.events is not None:
            thread.events.append(commit.events)
            thread.last_seq = commit.events.first_seq + commit.events.count - 1
        for item_id in commit.consumed:
            thread.inbox.pop(item_id, None)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self._proved(lease).journal.append(entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        inbox = self._threads.setdefault(thread_id, _Thread()).inbox
        inbox.setdefault(item_id, InboxItem(item_id, kind, body))

    def _proved(self, lease: Lease) -> _Thread:
        thread = self._threads.get(lease.thread_id)
        if thread is None or thread.fence != lease.fence:
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {thread.fence if thread else 0}")
        return thread

    # ------------------------------------------------------------ checkpoints

    def _keep(self, stored: StoredCheckpoint) -> None:
        info = stored.info
        self._checkpoints[info.checkpoint_id] = stored
        self._by_workflow.setdefault(info.workflow_name, {})[info.checkpoint_id] = None
        self._by_thread.setdefault(info.thread_id, {})[info.checkpoint_id] = None

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return self._checkpoints.get(checkpoint_id)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        thread = self._threads.get(thread_id)
        return thread.head if thread else None

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        newest_first: Iterable[CheckpointInfo] = (
            self._checkpoints[one].info for one in self._newest_first(workflow_name, thread_id)
        )
        if workflow_name is not None:
            newest_first = (info for info in newest_first if info.workflow_name == workflow_name)
        if before is not None:
            newest_first = _older_than(before, newest_first)
        return list(islice(newest_first, limit))[::-1]

    def _newest_first(self, workflow_name: str | None, thread_id: str | None) -> Iterable[str]:
        if thread_id is not None:
            return reversed(self._by_thread.get(thread_id, {}))
        if workflow_name is not None:
            return reversed(self._by_workflow.get(workflow_name, {}))
        return reversed(self._checkpoints)

    async def put_checkpoint(self, stored: StoredCheckpoint) -> None:
        info = stored.info
        thread = self._threads.setdefault(info.thread_id, _Thread())
        if thread.owner is not None:
            raise ThreadBusy(info.thread_id, thread.owner)
        is_head = thread.head is not None and thread.head.info.checkpoint_id == info.checkpoint_id
        is_new = info.checkpoint_id not in self._checkpoints
        self._keep(stored)
        if is_new or is_head:
            thread.number += 1
            thread.head = stored
            thread.journal.clear()

    async def delete_checkpoint(self, checkpoint_id: str) -> bool:
        stored = self._checkpoints.pop(checkpoint_id, None)
        if stored is None:
            return False
        info = stored.info
        self._by_workflow[info.workflow_name].pop(checkpoint_id, None)
        kept = self._by_thread[info.thread_id]
        kept.pop(checkpoint_id, None)
        thread = self._threads.get(info.thread_id)
        if thread is not None and thread.head is stored:
            newest = next(reversed(kept), None)
            thread.head = self._checkpoints[newest] if newest is not None else None
            thread.journal.clear()
        return True

    async def events_after(self, thread_id: str, seq: int) -> Sequence[LoggedEvents]:
        thread = self._threads.get(thread_id)
        if thread is None:
            return []
        start = bisect_right(thread.events, seq, key=lambda one: one.first_seq + one.count - 1)
        return thread.events[start:]


def _older_than(checkpoint_id: str, newest_first: Iterable[CheckpointInfo]) -> Iterable[CheckpointInfo]:
    found = False
    for info in newest_first:
        if found:
            yield info
        found = found or info.checkpoint_id == checkpoint_id
    if not found:
        raise CheckpointNotFound(checkpoint_id)
