"""One thread in memory: what it holds, and what is left of it when checkpoints go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    LoggedEvents,
    PendingRequest,
    StoredCheckpoint,
)
from holdfast.stores.garbage import Lineage, plan_pruning
from holdfast.stores.in_order import CheckpointsInOrder


class MemoryThread:
    """One thread's row: who may move it, where it stands, what it holds."""

    __slots__ = (
        "chunks",
        "consumed",
        "due_at",
        "events",
        "fence",
        "head",
        "inbox",
        "journal",
        "last_seq",
        "lines",
        "moved",
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


def has_checkpoint(thread: MemoryThread, number: int) -> bool:
    line = thread.lines.get(number)
    if isinstance(line, Commit):
        return line.info is not None
    return line is not None and (isinstance(line, int) or line.is_checkpoint)


def lineage_of(number: int, line: Commit | Lineage | int) -> Lineage:
    if isinstance(line, Lineage):
        return line
    if isinstance(line, int):
        return Lineage(number, line or None, True, frozenset(), frozenset())
    own = frozenset(line.events.own) if line.events is not None else frozenset()
    brought = frozenset(line.chunks) - own
    return Lineage(
        line.number, line.parent, True, brought, frozenset(line.dropped), is_checkpoint=line.info is not None
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
    thread.lines = {key: one for key, one in lineages.items() if one.is_kept}
    stored = {one.info.number: one for one in checkpoints.of_thread(thread_id)}
    for number, one in stored.items():
        line = lineages.get(number)
        if line is not None and (line.parent is not None or number in plan.relinked):
            _follow(thread, one, _nearest(line.parent, stored, lineages), checkpoints)


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
        info = msgspec.structs.replace(one.info, previous_checkpoint_id=previous)
        changed = StoredCheckpoint(info, one.root)
        checkpoints.replace(changed)
        if thread.head is one:
            thread.head = changed


def renamed_info(info: CheckpointInfo, thread_id: str, renamed: Mapping[str, str]) -> CheckpointInfo:
    previous = info.previous_checkpoint_id
    return msgspec.structs.replace(
        info,
        checkpoint_id=renamed[info.checkpoint_id],
        thread_id=thread_id,
        previous_checkpoint_id=None if previous is None else renamed.get(previous, previous),
    )
