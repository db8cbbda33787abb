"""One thread in memory, the index of all checkpoints, and the pruning of both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import msgspec

from perdure.errors import CheckpointNotFound
from perdure.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    LoggedEvents,
    PendingRequest,
    StoredCheckpoint,
)
from perdure.stores.garbage import Lineage, plan_pruning


class CheckpointIndex:
    """All checkpoints, in the order of their commits, and by id, thread and workflow.

    Each checkpoint has a position, and each order is a list of positions. Removed checkpoints leave the lists later.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[StoredCheckpoint, int]] = {}
        self._at: dict[int, StoredCheckpoint] = {}
        self._all: list[int] = []
        self._by_workflow: dict[str, list[int]] = {}
        self._by_thread: dict[str, list[int]] = {}
        self._numbers: dict[str, list[int]] = {}
        """By thread: the numbers of the commits at its positions, ascending."""
        self._removed = 0
        self.is_complete = True
        """Whether no checkpoint was ever removed."""

    def add(self, stored: StoredCheckpoint, position: int) -> None:
        info = stored.info
        self._by_id[info.checkpoint_id] = stored, position
        self._at[position] = stored
        self._all.append(position)
        of_workflow = self._by_workflow.get(info.workflow_name)
        if of_workflow is None:
            self._by_workflow[info.workflow_name] = [position]
        else:
            of_workflow.append(position)
        of_thread = self._by_thread.get(info.thread_id)
        if of_thread is None:
            self._by_thread[info.thread_id] = [position]
            self._numbers[info.thread_id] = [info.number]
        else:
            of_thread.append(position)
            self._numbers[info.thread_id].append(info.number)

    def find(self, checkpoint_id: str) -> StoredCheckpoint | None:
        entry = self._by_id.get(checkpoint_id)
        return None if entry is None else entry[0]

    def at(self, thread_id: str, number: int) -> StoredCheckpoint | None:
        """The checkpoint of this commit."""
        numbers = self._numbers.get(thread_id, [])
        index = bisect_left(numbers, number)
        if index == len(numbers) or numbers[index] != number:
            return None
        return self._at.get(self._by_thread[thread_id][index])

    def remove(self, checkpoint_id: str) -> StoredCheckpoint:
        self.is_complete = False
        stored, position = self._by_id.pop(checkpoint_id)
        del self._at[position]
        self._removed += 1
        if self._removed > len(self._at) + 8:
            self._tidy()
        return stored

    def remove_thread(self, thread_id: str) -> None:
        for stored in self.of_thread(thread_id):
            self.remove(stored.info.checkpoint_id)
        self._by_thread.pop(thread_id, None)  # now: a new thread with this id counts from 1
        self._numbers.pop(thread_id, None)

    def _tidy(self) -> None:
        self._removed = 0
        for key, positions in self._by_thread.items():
            pairs = zip(positions, self._numbers[key], strict=True)
            self._numbers[key] = [number for position, number in pairs if position in self._at]
        for positions in (self._all, *self._by_workflow.values(), *self._by_thread.values()):
            positions[:] = [position for position in positions if position in self._at]
        for key in [key for key, positions in self._by_workflow.items() if not positions]:
            del self._by_workflow[key]
        for key in [key for key, positions in self._by_thread.items() if not positions]:
            del self._by_thread[key], self._numbers[key]

    def replace(self, stored: StoredCheckpoint) -> None:
        """Replace the checkpoint with the same id, at the same position."""
        _, position = self._by_id[stored.info.checkpoint_id]
        self._by_id[stored.info.checkpoint_id] = stored, position
        self._at[position] = stored

    def of_thread(self, thread_id: str) -> list[StoredCheckpoint]:
        return list(self.newest_first(None, thread_id, None))[::-1]

    def newest_first(
        self, workflow_name: str | None, thread_id: str | None, before: str | None
    ) -> Iterator[StoredCheckpoint]:
        """Raises CheckpointNotFound if no checkpoint has the id `before`."""
        if before is not None and before not in self._by_id:
            raise CheckpointNotFound(before)
        positions = self._all
        if thread_id is not None:
            positions = self._by_thread.get(thread_id, [])
        elif workflow_name is not None:
            positions = self._by_workflow.get(workflow_name, [])
        end = len(positions) if before is None else bisect_left(positions, self._by_id[before][1])
        newest = (self._at.get(positions[index]) for index in range(end - 1, -1, -1))
        return (
            stored for stored in newest if stored is not None and workflow_name in (None, stored.info.workflow_name)
        )


MIN_PRUNED = 16
MIN_PRUNED_BYTES = 1_000_000
"""What commits prune before their chunks are freed: freeing them examines the whole thread."""


class Note(NamedTuple):
    """The status, run and time of a commit without a checkpoint."""

    status: str
    run_id: str
    timestamp: str


class MemoryThread:
    """All of one thread except its checkpoints, which are in the `CheckpointIndex`."""

    __slots__ = (
        "chunks",
        "consumed",
        "due_at",
        "events",
        "fence",
        "first_seq",
        "head",
        "inbox",
        "journal",
        "kept",
        "kept_bytes",
        "last_seq",
        "lineages",
        "moved",
        "notes",
        "number",
        "owner",
        "pruned",
        "pruned_bytes",
        "requests",
        "status",
        "updated_at",
        "workflow_name",
    )

    def __init__(self) -> None:
        self.owner: str | None = None
        self.fence = 0
        self.number = 0
        self.head: StoredCheckpoint | None = None
        self.status = ""
        self.updated_at = ""
        self.due_at: datetime | None = None
        self.last_seq = 0
        self.first_seq = 1
        """The oldest kept event."""
        self.events: list[LoggedEvents] = []
        self.journal: list[JournalEntry] = []
        self.inbox: dict[str, InboxItem] = {}
        self.consumed: set[str] = set()
        """Items that commits consumed: posting them again has no effect."""
        self.moved = 0
        """The position of its last commit among those of all threads."""
        self.workflow_name = ""
        self.requests: dict[str, PendingRequest] = {}
        self.chunks: dict[int, dict[str, bytes]] = {}
        """By commit and digest."""
        self.lineages: dict[int, Commit | Lineage | int] = {}
        """The chunk references of commits with a checkpoint, or with events that refer to one. It is the commit itself
        until an earlier one is pruned. For a commit with the chunks of its parent it is the parent (0: none)."""
        self.notes: dict[int, Note] = {}
        """Commits without a checkpoint, or whose checkpoint was pruned."""
        self.pruned = 0
        """How many checkpoints and logs were pruned since the last collection."""
        self.pruned_bytes = 0
        self.kept = 0
        """How many commits the last collection kept."""
        self.kept_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether the thread has no owner and was never written to."""
        return not self.is_used and self.owner is None

    @property
    def is_used(self) -> bool:
        return bool(self.number or self.journal or self.inbox or self.consumed)


def as_lineage(number: int, line: Commit | Lineage | int) -> Lineage:
    if isinstance(line, Lineage):
        return line
    if isinstance(line, int):
        return Lineage(number, line or None, True, frozenset(), frozenset())
    own = frozenset(line.events.own) if line.events is not None else frozenset()
    added = frozenset(line.chunks) - own
    dropped, carried = frozenset(line.dropped), frozenset(line.carried)
    return Lineage(line.number, line.parent, True, added, dropped, carried, is_checkpoint=line.info is not None)


def find_parent(thread: MemoryThread, number: int) -> int | None:
    line = thread.lineages.get(number)
    if line is None or isinstance(line, int):
        return line or None
    return line.parent


def find_events(thread: MemoryThread, number: int) -> LoggedEvents | None:
    index = bisect_left(thread.events, number, key=lambda events: events.number)
    if index == len(thread.events) or thread.events[index].number != number:
        return None
    return thread.events[index]


def unlink(thread: MemoryThread, info: CheckpointInfo) -> None:
    """Note that a commit has no checkpoint any more. Its chunks stay until the next collection."""
    events = find_events(thread, info.number)
    lineage = as_lineage(info.number, thread.lineages[info.number])
    is_kept = events is not None and events.refers
    thread.lineages[info.number] = replace(lineage, is_kept=is_kept, is_checkpoint=False)
    thread.notes[info.number] = Note(info.status, info.run_id or "", info.timestamp)
    _count_pruned(thread, info.number)


def drop_events(thread: MemoryThread, before: int) -> None:
    """Drop the events of all commits before this number."""
    count = bisect_left(thread.events, before, key=lambda events: events.number)
    if not count:
        return
    dropped = thread.events[:count]
    del thread.events[:count]
    thread.first_seq = thread.events[0].first_seq if thread.events else thread.last_seq + 1
    for events in dropped:
        line = thread.lineages.get(events.number)
        if events.refers and line is not None:
            lineage = as_lineage(events.number, line)
            if not lineage.is_checkpoint:
                thread.lineages[events.number] = replace(lineage, is_kept=False)
        if events.refers or events.own or events.number in thread.notes:
            _count_pruned(thread, events.number)


def _count_pruned(thread: MemoryThread, number: int) -> None:
    thread.pruned += 1
    thread.pruned_bytes += count_bytes(thread.chunks.get(number, {}))


def count_bytes(chunks: Mapping[str, bytes]) -> int:
    return sum([len(data) for data in chunks.values()])


def is_collection_due(thread: MemoryThread, *, at_rest: bool = False) -> bool:
    """Whether so much was pruned that examining the whole thread costs little for each checkpoint."""
    if at_rest:
        return thread.pruned > 0 and 4 * thread.pruned >= thread.kept
    return thread.pruned >= max(MIN_PRUNED, thread.kept) or thread.pruned_bytes >= MIN_PRUNED_BYTES + thread.kept_bytes


def collect(thread: MemoryThread, thread_id: str, checkpoints: CheckpointIndex) -> None:
    """Free the chunks that no checkpoint and no event needs."""
    lineages = {number: as_lineage(number, line) for number, line in thread.lineages.items()}
    plan = plan_pruning(lineages.values())
    lineages.update(plan.relinked)
    of_events = {(digest, events.number) for events in thread.events for digest in events.own}
    for number, chunks in list(thread.chunks.items()):
        kept = {
            digest: data
            for digest, data in chunks.items()
            if plan.needs(digest, number) or (digest, number) in of_events
        }
        thread.chunks[number] = kept
        if not kept:
            del thread.chunks[number]
    by_number = {stored.info.number: stored for stored in checkpoints.of_thread(thread_id)}
    for number, stored in by_number.items():
        lineage = lineages.get(number)
        if lineage is not None and (lineage.parent is not None or number in plan.relinked):
            _set_previous(thread, stored, _find_nearest(lineage.parent, by_number, lineages), checkpoints)
    thread.lineages = {number: lineage for number, lineage in lineages.items() if lineage.is_kept}
    holding = thread.chunks.keys() | {events.number for events in thread.events}
    thread.notes = {number: note for number, note in thread.notes.items() if number in holding}
    thread.pruned = thread.pruned_bytes = 0
    thread.kept = len(thread.lineages) + len(thread.notes)
    thread.kept_bytes = sum([count_bytes(chunks) for chunks in thread.chunks.values()])


def _find_nearest(
    parent: int | None, stored: Mapping[int, StoredCheckpoint], lineages: Mapping[int, Lineage]
) -> StoredCheckpoint | None:
    """The checkpoint of `parent`, or its nearest ancestor that still exists."""
    while parent is not None and parent not in stored:
        parent = lineages[parent].parent if parent in lineages else None
    return None if parent is None else stored[parent]


def _set_previous(
    thread: MemoryThread, stored: StoredCheckpoint, parent: StoredCheckpoint | None, checkpoints: CheckpointIndex
) -> None:
    previous = None if parent is None else parent.info.checkpoint_id
    if previous != stored.info.previous_checkpoint_id:
        change(thread, stored, checkpoints, previous_checkpoint_id=previous)


def change(
    thread: MemoryThread, stored: StoredCheckpoint, checkpoints: CheckpointIndex, **changes: str | bool | None
) -> StoredCheckpoint:
    """Change the info of a checkpoint."""
    changed = StoredCheckpoint(msgspec.structs.replace(stored.info, **changes), stored.root)
    checkpoints.replace(changed)
    if thread.head is stored:
        thread.head = changed
    return changed


def update_previous(thread: MemoryThread, stored: StoredCheckpoint, checkpoints: CheckpointIndex) -> StoredCheckpoint:
    """The checkpoint with a previous one that still exists. Pruning does not update the successors: a commit that
    prunes would have to search for them."""
    info = stored.info
    if info.previous_checkpoint_id is None:
        return stored
    previous = checkpoints.find(info.previous_checkpoint_id)
    if previous is not None and previous.info.number < info.number and previous.info.thread_id == info.thread_id:
        return stored
    parent = find_parent(thread, info.number)
    if parent is None:
        return stored  # it continues from a checkpoint of another thread
    ancestor = None
    while parent is not None and ancestor is None:
        ancestor = checkpoints.at(info.thread_id, parent)
        parent = find_parent(thread, parent)
    previous_id = None if ancestor is None else ancestor.info.checkpoint_id
    return change(thread, stored, checkpoints, previous_checkpoint_id=previous_id)


def rename_info(info: CheckpointInfo, thread_id: str, ids: Mapping[str, str]) -> CheckpointInfo:
    previous = info.previous_checkpoint_id
    return msgspec.structs.replace(
        info,
        checkpoint_id=ids[info.checkpoint_id],
        thread_id=thread_id,
        previous_checkpoint_id=None if previous is None else ids.get(previous, previous),
        is_pinned=False,
    )
