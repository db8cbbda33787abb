"""The data of a memory store: all threads and checkpoints, with the operations that change both."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from perdure.errors import CheckpointNotFound, ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import CheckpointInfo, Commit, StoredCheckpoint, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.memory.copies import copy_thread, import_thread, iterate_commits, make_header, measure_size, rewrite
from perdure.stores.memory.thread import (
    CheckpointIndex,
    MemoryThread,
    change,
    collect,
    drop_events,
    is_collection_due,
    unlink,
    update_previous,
)


class MemoryTables:
    def __init__(self) -> None:
        self.threads: dict[str, MemoryThread] = {}
        self.checkpoints = CheckpointIndex()
        self._last_position = 0

    def next_position(self) -> int:
        """The position of a new commit in the order of all commits."""
        self._last_position += 1
        return self._last_position

    def current(self, stored: StoredCheckpoint) -> StoredCheckpoint:
        """The checkpoint with a previous one that still exists."""
        if stored.info.previous_checkpoint_id is None or self.checkpoints.is_complete:
            return stored
        return update_previous(self.threads[stored.info.thread_id], stored, self.checkpoints)

    def head(self, thread: MemoryThread) -> StoredCheckpoint | None:
        return None if thread.head is None else self.current(thread.head)

    def add_checkpoint(self, thread: MemoryThread, commit: Commit, stored: StoredCheckpoint, position: int) -> None:
        """Add the checkpoint of a commit. It replaces a checkpoint with the same id."""
        info = stored.info
        replaced = self.checkpoints.find(info.checkpoint_id)
        if replaced is not None:
            self.remove_checkpoint(replaced.info, moves_head=replaced.info.thread_id != info.thread_id)
        thread.head = stored
        thread.workflow_name = info.workflow_name
        self.checkpoints.add(stored, position)
        thread.lineages[commit.number] = commit if commit.chunks or commit.dropped else commit.parent or 0
        thread.due_at = commit.due_at
        if info.is_pinned:
            self.set_pin(info.checkpoint_id, is_pinned=False)  # only `pin` pins

    def set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        stored = self.checkpoints.find(checkpoint_id)
        if stored is None:
            raise CheckpointNotFound(checkpoint_id)
        if stored.info.is_pinned is not is_pinned:
            change(self.threads[stored.info.thread_id], stored, self.checkpoints, is_pinned=is_pinned)

    def remove_checkpoint(self, info: CheckpointInfo, *, moves_head: bool = True) -> None:
        """Remove a checkpoint; its chunks stay until the next collection. The newest remaining one becomes the head."""
        self.checkpoints.remove(info.checkpoint_id)
        thread = self.threads[info.thread_id]
        unlink(thread, info)
        if moves_head and thread.head is not None and thread.head.info.number == info.number:
            thread.head = next(self.checkpoints.newest_first(None, info.thread_id, None), None)
            thread.journal.clear()
            thread.requests.clear()
            thread.due_at = None

    def prune_with(self, commit: Commit, thread: MemoryThread) -> None:
        """Prune what the commit names, except the head."""
        thread_id = commit.lease.thread_id
        for number in commit.prunes:
            stored = self.checkpoints.at(thread_id, number)
            if stored is not None and stored is not thread.head and not stored.info.is_pinned:
                self.remove_checkpoint(stored.info)
        drop_events(thread, commit.prunes_events_before)
        self.collect_if_due(thread_id, thread)

    def collect_if_due(self, thread_id: str, thread: MemoryThread, *, at_rest: bool = False) -> None:
        if is_collection_due(thread, at_rest=at_rest):
            collect(thread, thread_id, self.checkpoints)

    def prune(self, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> int:
        thread = self.threads.get(thread_id)
        if thread is None:
            return 0
        named = [self.checkpoints.find(checkpoint_id) for checkpoint_id in dict.fromkeys(checkpoint_ids)]
        pruned = [
            stored for stored in named if stored and stored.info.thread_id == thread_id and not stored.info.is_pinned
        ]
        if thread.owner is not None and any(stored is thread.head for stored in pruned):
            raise ThreadBusy(thread_id, thread.owner)
        for stored in pruned:
            self.remove_checkpoint(stored.info)
        drop_events(thread, events_before)
        self._collect(thread_id, thread)
        return len(pruned)

    def _collect(self, thread_id: str, thread: MemoryThread) -> None:
        if thread.pruned:
            collect(thread, thread_id, self.checkpoints)

    def delete(self, thread_id: str, last: int | None) -> bool:
        """`last`: only if that is its last commit, its inbox is empty and no checkpoint is pinned."""
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
        return [stored.info.number for stored in self.checkpoints.of_thread(thread_id) if stored.info.is_pinned]

    def copy(self, thread_id: str, to: str) -> None:
        source = self.threads.get(thread_id)
        if source is None:
            raise ThreadNotFound(thread_id)
        if to in self.threads:
            raise ThreadBusy(to, self.threads[to].owner)
        self._collect(thread_id, source)
        self._add(to, *copy_thread(source, to, self.checkpoints.of_thread(thread_id)))

    def thread_header(self, thread_id: str) -> ThreadHeader | None:
        thread = self.threads.get(thread_id)
        if thread is None or thread.is_empty:
            return None
        return make_header(thread_id, thread, self._pins(thread_id))

    def commits(self, thread_id: str, after: int, limit: int | None) -> list[Commit]:
        thread = self.threads.get(thread_id)
        if thread is None:
            return []
        self._collect(thread_id, thread)  # so that no commit refers to freed chunks
        return list(islice(iterate_commits(thread_id, thread, self.checkpoints, after), limit))

    def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        thread_id = header.thread_id
        thread, checkpoints = import_thread(header, commits)
        existing = self.threads.get(thread_id)
        if existing is not None:
            if not existing.is_empty:
                raise ThreadExists(thread_id)
            thread.fence = max(thread.fence, existing.fence)
        for checkpoint_id in [stored.info.checkpoint_id for stored in checkpoints]:
            duplicate = self.checkpoints.find(checkpoint_id)
            if duplicate is not None:
                reason = f"its checkpoint {checkpoint_id!r} is in thread {duplicate.info.thread_id!r} here"
                raise ThreadExists(thread_id, reason)
        self._add(thread_id, thread, checkpoints)
        self._collect(thread_id, thread)

    def _add(self, thread_id: str, thread: MemoryThread, checkpoints: Iterable[StoredCheckpoint]) -> None:
        self.threads[thread_id] = thread
        thread.moved = self.next_position()
        for stored in checkpoints:
            thread.moved = self.next_position()
            self.checkpoints.add(stored, thread.moved)

    def rewrite(self, thread_id: str, change: Rewrite) -> int:
        thread = self.threads.get(thread_id)
        return 0 if thread is None else rewrite(thread, self.checkpoints, thread_id, change)

    def size(self) -> int:
        roots = sum(len(stored.root) for stored in self.checkpoints.newest_first(None, None, None))
        return roots + sum(map(measure_size, self.threads.values()))
