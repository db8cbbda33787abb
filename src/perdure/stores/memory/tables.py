"""All that a store keeps in memory: its threads and their checkpoints, what is forgotten of them, and whole ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from perdure.errors import CheckpointNotFound, ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import CheckpointInfo, Commit, StoredCheckpoint, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.memory.copies import commits_of, copy_of, rewrite, size_of, standing_of, taken_in
from perdure.stores.memory.thread import (
    CheckpointsInOrder,
    MemoryThread,
    change,
    collect,
    forget_events,
    is_collection_due,
    unlink,
    up_to_date,
)


class MemoryTables:
    def __init__(self) -> None:
        self.threads: dict[str, MemoryThread] = {}
        self.checkpoints = CheckpointsInOrder()
        self._places = 0

    def next_place(self) -> int:
        """In the order of all commits."""
        self._places += 1
        return self._places

    def current(self, stored: StoredCheckpoint) -> StoredCheckpoint:
        """With the checkpoint before it that is still there."""
        if stored.info.previous_checkpoint_id is None or self.checkpoints.is_complete:
            return stored
        return up_to_date(self.threads[stored.info.thread_id], stored, self.checkpoints)

    def head(self, thread: MemoryThread) -> StoredCheckpoint | None:
        return None if thread.head is None else self.current(thread.head)

    # ------------------------------------------------------------ keeping and forgetting

    def keep(self, thread: MemoryThread, commit: Commit, stored: StoredCheckpoint, place: int) -> None:
        """The checkpoint of a commit, in place of the one that had its id."""
        info = stored.info
        replaced = self.checkpoints.find(info.checkpoint_id)
        if replaced is not None:
            self.forget(replaced.info, moves_head=replaced.info.thread_id != info.thread_id)
        thread.head = stored
        thread.workflow_name = info.workflow_name
        self.checkpoints.add(stored, place)
        thread.lines[commit.number] = commit if commit.chunks or commit.dropped else commit.parent or 0
        thread.due_at = commit.due_at
        if info.is_pinned:
            self.set_pin(info.checkpoint_id, is_pinned=False)  # only `pin` does that

    def set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        found = self.checkpoints.find(checkpoint_id)
        if found is None:
            raise CheckpointNotFound(checkpoint_id)
        if found.info.is_pinned is not is_pinned:
            change(self.threads[found.info.thread_id], found, self.checkpoints, is_pinned=is_pinned)

    def forget(self, info: CheckpointInfo, *, moves_head: bool = True) -> None:
        """The checkpoint, but not yet its chunks. The newest of those that are left becomes the head."""
        self.checkpoints.remove(info.checkpoint_id)
        thread = self.threads[info.thread_id]
        unlink(thread, info)
        if moves_head and thread.head is not None and thread.head.info.number == info.number:
            thread.head = next(self.checkpoints.newest_first(None, info.thread_id, None), None)
            thread.journal.clear()
            thread.requests.clear()
            thread.due_at = None

    def forget_with(self, commit: Commit, thread: MemoryThread) -> None:
        """What the commit says. The head stays in any case: it is what the commit made of it."""
        thread_id = commit.lease.thread_id
        for number in commit.prunes:
            found = self.checkpoints.at(thread_id, number)
            if found is not None and found is not thread.head and not found.info.is_pinned:
                self.forget(found.info)
        forget_events(thread, commit.prunes_events_before)
        self.collect_if_due(thread_id, thread)

    def collect_if_due(self, thread_id: str, thread: MemoryThread, *, at_rest: bool = False) -> None:
        if is_collection_due(thread, at_rest=at_rest):
            collect(thread, thread_id, self.checkpoints)

    def prune(self, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> int:
        thread = self.threads.get(thread_id)
        if thread is None:
            return 0
        found = [self.checkpoints.find(one) for one in dict.fromkeys(checkpoint_ids)]
        doomed = [one for one in found if one and one.info.thread_id == thread_id and not one.info.is_pinned]
        if thread.owner is not None and any(one is thread.head for one in doomed):
            raise ThreadBusy(thread_id, thread.owner)
        for one in doomed:
            self.forget(one.info)
        forget_events(thread, events_before)
        self._collect(thread_id, thread)
        return len(doomed)

    def _collect(self, thread_id: str, thread: MemoryThread) -> None:
        if thread.forgotten:
            collect(thread, thread_id, self.checkpoints)

    def delete(self, thread_id: str, last: int | None) -> bool:
        """`last`: only if that is the number of its last commit, nothing waits in its inbox and nothing is pinned."""
        thread = self.threads.get(thread_id)
        if thread is None:
            return False
        if thread.owner is not None:
            raise ThreadBusy(thread_id, thread.owner)
        if last is not None and (last != thread.number or thread.inbox or self._pins(thread_id)):
            return False
        self.checkpoints.remove_thread(thread_id)
        del self.threads[thread_id]
        return True

    def _pins(self, thread_id: str) -> list[int]:
        return [one.info.number for one in self.checkpoints.of_thread(thread_id) if one.info.is_pinned]

    # ------------------------------------------------------------ whole threads

    def copy(self, thread_id: str, to: str) -> None:
        source = self.threads.get(thread_id)
        if source is None:
            raise ThreadNotFound(thread_id)
        if to in self.threads:
            raise ThreadBusy(to, self.threads[to].owner)
        self._collect(thread_id, source)
        self._add(to, *copy_of(source, to, self.checkpoints.of_thread(thread_id)))

    def standing(self, thread_id: str) -> ThreadHeader | None:
        thread = self.threads.get(thread_id)
        if thread is None or thread.is_empty:
            return None
        return standing_of(thread_id, thread, self._pins(thread_id))

    def commits(self, thread_id: str, after: int, limit: int | None) -> list[Commit]:
        thread = self.threads.get(thread_id)
        if thread is None:
            return []
        self._collect(thread_id, thread)  # so that what is told is told of what is there
        return list(islice(commits_of(thread_id, thread, self.checkpoints, after), limit))

    def take_in(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        thread_id = standing.thread_id
        thread, stored = taken_in(standing, commits)
        known = self.threads.get(thread_id)
        if known is not None:
            if not known.is_empty:
                raise ThreadExists(thread_id)
            thread.fence = max(thread.fence, known.fence)
        for one in stored:
            other = self.checkpoints.find(one.info.checkpoint_id)
            if other is not None:
                reason = f"its checkpoint {one.info.checkpoint_id!r} is one of thread {other.info.thread_id!r} here"
                raise ThreadExists(thread_id, reason)
        self._add(thread_id, thread, stored)
        self._collect(thread_id, thread)

    def _add(self, thread_id: str, thread: MemoryThread, stored: Iterable[StoredCheckpoint]) -> None:
        self.threads[thread_id] = thread
        thread.moved = self.next_place()
        for one in stored:
            thread.moved = self.next_place()
            self.checkpoints.add(one, thread.moved)

    def rewrite(self, thread_id: str, change: Rewrite) -> int:
        thread = self.threads.get(thread_id)
        return 0 if thread is None else rewrite(thread, self.checkpoints, thread_id, change)

    def size(self) -> int:
        roots = sum(len(one.root) for one in self.checkpoints.newest_first(None, None, None))
        return roots + sum(map(size_of, self.threads.values()))
