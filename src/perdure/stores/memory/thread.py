"""One thread in memory: what it holds, and what is left of it when checkpoints and events go."""

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

# ---------------------------------------------------------------- in order


class CheckpointsInOrder:
    """Each has a place, and each order of them is a list of places. What is gone is taken out of a list later."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[StoredCheckpoint, int]] = {}
        self._at: dict[int, StoredCheckpoint] = {}
        self._all: list[int] = []
        self._by_workflow: dict[str, list[int]] = {}
        self._by_thread: dict[str, list[int]] = {}
        self._numbers: dict[str, list[int]] = {}
        """By thread: of the commits at its places. They grow with them."""
        self._gone = 0
        self.is_complete = True
        """Whether nothing was ever taken out."""

    def add(self, stored: StoredCheckpoint, place: int) -> None:
        info = stored.info
        self._found[info.checkpoint_id] = stored, place
        self._at[place] = stored
        self._all.append(place)
        of_workflow = self._by_workflow.get(info.workflow_name)
        if of_workflow is None:
            self._by_workflow[info.workflow_name] = [place]
        else:
            of_workflow.append(place)
        of_thread = self._by_thread.get(info.thread_id)
        if of_thread is None:
            self._by_thread[info.thread_id] = [place]
            self._numbers[info.thread_id] = [info.number]
        else:
            of_thread.append(place)
            self._numbers[info.thread_id].append(info.number)

    def find(self, checkpoint_id: str) -> StoredCheckpoint | None:
        found = self._found.get(checkpoint_id)
        return None if found is None else found[0]

    def at(self, thread_id: str, number: int) -> StoredCheckpoint | None:
        """The one that this commit of the thread made."""
        numbers = self._numbers.get(thread_id, [])
        index = bisect_left(numbers, number)
        if index == len(numbers) or numbers[index] != number:
            return None
        return self._at.get(self._by_thread[thread_id][index])

    def remove(self, checkpoint_id: str) -> StoredCheckpoint:
        self.is_complete = False
        stored, place = self._found.pop(checkpoint_id)
        del self._at[place]
        self._gone += 1
        if self._gone > len(self._at) + 8:
            self._tidy()
        return stored

    def remove_thread(self, thread_id: str) -> None:
        for stored in self.of_thread(thread_id):
            self.remove(stored.info.checkpoint_id)
        self._by_thread.pop(thread_id, None)  # at once: another thread of that name counts from 1
        self._numbers.pop(thread_id, None)

    def _tidy(self) -> None:
        self._gone = 0
        for key, places in self._by_thread.items():
            pairs = zip(places, self._numbers[key], strict=True)
            self._numbers[key] = [number for place, number in pairs if place in self._at]
        for places in (self._all, *self._by_workflow.values(), *self._by_thread.values()):
            places[:] = [place for place in places if place in self._at]
        for key in [key for key, places in self._by_workflow.items() if not places]:
            del self._by_workflow[key]
        for key in [key for key, places in self._by_thread.items() if not places]:
            del self._by_thread[key], self._numbers[key]

    def replace(self, stored: StoredCheckpoint) -> None:
        """One with the same id, at the same place."""
        _, place = self._found[stored.info.checkpoint_id]
        self._found[stored.info.checkpoint_id] = stored, place
        self._at[place] = stored

    def of_thread(self, thread_id: str) -> list[StoredCheckpoint]:
        return list(self.newest_first(None, thread_id, None))[::-1]

    def newest_first(
        self, workflow_name: str | None, thread_id: str | None, before: str | None
    ) -> Iterator[StoredCheckpoint]:
        """Raises CheckpointNotFound for a `before` that there is not."""
        if before is not None and before not in self._found:
            raise CheckpointNotFound(before)
        places = self._all
        if thread_id is not None:
            places = self._by_thread.get(thread_id, [])
        elif workflow_name is not None:
            places = self._by_workflow.get(workflow_name, [])
        end = len(places) if before is None else bisect_left(places, self._found[before][1])
        found = (self._at.get(places[index]) for index in range(end - 1, -1, -1))
        return (stored for stored in found if stored is not None and workflow_name in (None, stored.info.workflow_name))


COLLECTED_AT_LEAST = 16
COLLECTED_BYTES_AT_LEAST = 1_000_000
"""Forgotten by commits before their chunks are freed: the whole thread is looked at for that."""


class Note(NamedTuple):
    """What a commit without a checkpoint says of itself."""

    status: str
    run_id: str
    timestamp: str


class MemoryThread:
    """One thread's row: who may move it, where it stands, what it holds."""

    __slots__ = (
        "chunks",
        "consumed",
        "due_at",
        "events",
        "fence",
        "first_seq",
        "forgotten",
        "forgotten_bytes",
        "head",
        "inbox",
        "journal",
        "last_seq",
        "left",
        "left_bytes",
        "lines",
        "moved",
        "notes",
        "number",
        "owner",
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
        """The oldest event that is kept."""
        self.events: list[LoggedEvents] = []
        self.journal: list[JournalEntry] = []
        self.inbox: dict[str, InboxItem] = {}
        self.consumed: set[str] = set()
        """Items that were in the inbox: posting them again does nothing."""
        self.moved = 0
        """When its last commit was, in the order of all of them."""
        self.workflow_name = ""
        self.requests: dict[str, PendingRequest] = {}
        self.chunks: dict[int, dict[str, bytes]] = {}
        """By commit and digest."""
        self.lines: dict[int, Commit | Lineage | int] = {}
        """What commits with a checkpoint, or with events that refer to one, say about chunks: the commit itself, until
        one before it is pruned. Of one that has the chunks of its parent, the parent is enough (0: none)."""
        self.notes: dict[int, Note] = {}
        """Commits that have no checkpoint, or none any more."""
        self.forgotten = 0
        """How many checkpoints and logs went since chunks were collected."""
        self.forgotten_bytes = 0
        self.left = 0
        """How many commits were left then."""
        self.left_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether nobody owns it and nothing was ever put into it."""
        return not self.holds_anything and self.owner is None

    @property
    def holds_anything(self) -> bool:
        return bool(self.number or self.journal or self.inbox or self.consumed)


def lineage_of(number: int, line: Commit | Lineage | int) -> Lineage:
    if isinstance(line, Lineage):
        return line
    if isinstance(line, int):
        return Lineage(number, line or None, True, frozenset(), frozenset())
    own = frozenset(line.events.own) if line.events is not None else frozenset()
    added = frozenset(line.chunks) - own
    dropped, carried = frozenset(line.dropped), frozenset(line.carried)
    return Lineage(line.number, line.parent, True, added, dropped, carried, is_checkpoint=line.info is not None)


def parent_of(thread: MemoryThread, number: int) -> int | None:
    line = thread.lines.get(number)
    if line is None or isinstance(line, int):
        return line or None
    return line.parent


def events_of(thread: MemoryThread, number: int) -> LoggedEvents | None:
    index = bisect_left(thread.events, number, key=lambda one: one.number)
    if index == len(thread.events) or thread.events[index].number != number:
        return None
    return thread.events[index]


# ---------------------------------------------------------------- forgetting


def unlink(thread: MemoryThread, info: CheckpointInfo) -> None:
    """Its commit holds a checkpoint no longer. The chunks stay until they are collected."""
    events = events_of(thread, info.number)
    lineage = lineage_of(info.number, thread.lines[info.number])
    stays = events is not None and events.refers
    thread.lines[info.number] = replace(lineage, is_kept=stays, is_checkpoint=False)
    thread.notes[info.number] = Note(info.status, info.run_id or "", info.timestamp)
    _note_forgotten(thread, info.number)


def forget_events(thread: MemoryThread, before: int) -> None:
    """Those of all commits before this number."""
    count = bisect_left(thread.events, before, key=lambda one: one.number)
    if not count:
        return
    gone = thread.events[:count]
    del thread.events[:count]
    thread.first_seq = thread.events[0].first_seq if thread.events else thread.last_seq + 1
    for one in gone:
        line = thread.lines.get(one.number)
        if one.refers and line is not None:
            lineage = lineage_of(one.number, line)
            if not lineage.is_checkpoint:
                thread.lines[one.number] = replace(lineage, is_kept=False)
        if one.refers or one.own or one.number in thread.notes:
            _note_forgotten(thread, one.number)


def _note_forgotten(thread: MemoryThread, number: int) -> None:
    thread.forgotten += 1
    thread.forgotten_bytes += bytes_of(thread.chunks.get(number, {}))


def bytes_of(chunks: Mapping[str, bytes]) -> int:
    return sum([len(data) for data in chunks.values()])


def is_collection_due(thread: MemoryThread, *, at_rest: bool = False) -> bool:
    """Whether so much was forgotten that looking at the whole thread costs little for each of them."""
    if at_rest:
        return thread.forgotten > 0 and 4 * thread.forgotten >= thread.left
    return (
        thread.forgotten >= max(COLLECTED_AT_LEAST, thread.left)
        or thread.forgotten_bytes >= COLLECTED_BYTES_AT_LEAST + thread.left_bytes
    )


def collect(thread: MemoryThread, thread_id: str, checkpoints: CheckpointsInOrder) -> None:
    """Free the chunks that nothing needs any more."""
    lineages = {number: lineage_of(number, line) for number, line in thread.lines.items()}
    plan = plan_pruning(lineages.values())
    lineages.update(plan.relinked)
    told = {(digest, one.number) for one in thread.events for digest in one.own}
    for number, chunks in list(thread.chunks.items()):
        kept = {key: one for key, one in chunks.items() if plan.needs(key, number) or (key, number) in told}
        thread.chunks[number] = kept
        if not kept:
            del thread.chunks[number]
    stored = {one.info.number: one for one in checkpoints.of_thread(thread_id)}
    for number, one in stored.items():
        line = lineages.get(number)
        if line is not None and (line.parent is not None or number in plan.relinked):
            _follow(thread, one, _nearest(line.parent, stored, lineages), checkpoints)
    thread.lines = {key: one for key, one in lineages.items() if one.is_kept}
    holding = thread.chunks.keys() | {one.number for one in thread.events}
    thread.notes = {number: note for number, note in thread.notes.items() if number in holding}
    thread.forgotten = thread.forgotten_bytes = 0
    thread.left = len(thread.lines) + len(thread.notes)
    thread.left_bytes = sum([bytes_of(chunks) for chunks in thread.chunks.values()])


def _nearest(
    parent: int | None, stored: Mapping[int, StoredCheckpoint], lineages: Mapping[int, Lineage]
) -> StoredCheckpoint | None:
    """The checkpoint there, or the nearest before it that is left."""
    while parent is not None and parent not in stored:
        parent = lineages[parent].parent if parent in lineages else None
    return None if parent is None else stored[parent]


def _follow(
    thread: MemoryThread, one: StoredCheckpoint, parent: StoredCheckpoint | None, checkpoints: CheckpointsInOrder
) -> None:
    previous = None if parent is None else parent.info.checkpoint_id
    if previous != one.info.previous_checkpoint_id:
        change(thread, one, checkpoints, previous_checkpoint_id=previous)


def change(
    thread: MemoryThread, one: StoredCheckpoint, checkpoints: CheckpointsInOrder, **changes: str | bool | None
) -> StoredCheckpoint:
    """What is said of a checkpoint, beside its payload."""
    changed = StoredCheckpoint(msgspec.structs.replace(one.info, **changes), one.root)
    checkpoints.replace(changed)
    if thread.head is one:
        thread.head = changed
    return changed


def up_to_date(thread: MemoryThread, one: StoredCheckpoint, checkpoints: CheckpointsInOrder) -> StoredCheckpoint:
    """With the checkpoint before it that is still there. What goes leaves those after it alone, so that a commit that
    prunes one need not look for them."""
    info = one.info
    if info.previous_checkpoint_id is None:
        return one
    previous = checkpoints.find(info.previous_checkpoint_id)
    if previous is not None and previous.info.number < info.number and previous.info.thread_id == info.thread_id:
        return one
    parent = parent_of(thread, info.number)
    if parent is None:
        return one  # it began with another thread's
    found = None
    while parent is not None and found is None:
        found = checkpoints.at(info.thread_id, parent)
        parent = parent_of(thread, parent)
    previous_id = None if found is None else found.info.checkpoint_id
    return change(thread, one, checkpoints, previous_checkpoint_id=previous_id)


def renamed_info(info: CheckpointInfo, thread_id: str, renamed: Mapping[str, str]) -> CheckpointInfo:
    previous = info.previous_checkpoint_id
    return msgspec.structs.replace(
        info,
        checkpoint_id=renamed[info.checkpoint_id],
        thread_id=thread_id,
        previous_checkpoint_id=None if previous is None else renamed.get(previous, previous),
        is_pinned=False,
    )
