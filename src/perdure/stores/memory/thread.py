"""One thread in memory, and the index of the checkpoints of all threads."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

import msgspec

from perdure.errors import CheckpointNotFound, CursorExpired
from perdure.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Rewrite
from perdure.stores import garbage
from perdure.stores.packing import Changes, count_bytes

_OF_HEADER = ("workflow_name", "number", "fence", "status", "updated_at", "last_seq", "first_seq", "head", "due_at")
"""The fields that a thread and its header have in common."""

_NO_CHUNKS: Mapping[str, bytes] = MappingProxyType({})
_replace = msgspec.structs.replace


@dataclass(slots=True, eq=False)
class MemoryThread:
    thread_id: str
    owner: str | None = None
    fence: int = 0
    number: int = 0
    head: int | None = None
    """The commit of the newest checkpoint."""
    workflow_name: str = ""
    status: str = ""
    updated_at: str = ""
    due_at: datetime | None = None
    moved: int = 0
    """The position of its last commit among those of all threads."""
    last_seq: int = 0
    first_seq: int = 1
    """The oldest kept event."""
    events_dropped_before: int = 0
    """Readers do not see events of earlier commits."""
    commits: dict[int, Commit] = field(default_factory=dict)
    """By number, ascending. One with a root and without an info had a checkpoint that was pruned: readers do not see
    it, and a collection frees it."""
    journal: list[JournalEntry] = field(default_factory=list)
    inbox: dict[str, InboxItem] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    """Items that commits consumed: posting them again has no effect."""
    requests: dict[str, PendingRequest] = field(default_factory=dict)
    pruned: int = 0
    """How many checkpoints and events of commits were pruned since the last collection, and their bytes."""
    pruned_bytes: int = 0
    kept: int = 0
    """How many commits the last collection kept, and their bytes."""
    kept_bytes: int = 0

    @property
    def is_used(self) -> bool:
        return bool(self.number or self.journal or self.inbox or self.consumed)

    # ------------------------------------------------------------ commits

    def append(self, commit: Commit) -> Commit:
        """Store the payloads and links of a commit; returns what is stored. No object of it that can change is kept."""
        events = commit.events
        if events is not None and type(events.own) is not tuple:
            events = _replace(events, own=tuple(events.own))
        info = commit.info
        if info is not None and info.is_pinned:  # only `pin` pins
            info = _replace(info, is_pinned=False)
        of_run = (commit.status, commit.run_id, commit.timestamp)
        chunks = dict(commit.chunks) if commit.chunks else _NO_CHUNKS
        links, carried = (commit.parent, chunks, tuple(commit.dropped)), tuple(commit.carried)
        lease = Lease(self.thread_id, "", 0)
        stored = Commit(lease, commit.number, info, commit.root, events, (), (), *of_run, *links, carried=carried)
        self.commits[commit.number] = stored
        return stored

    def has_checkpoint(self, number: int) -> bool:
        return number in self.commits and self.commits[number].info is not None

    def info(self, number: int) -> CheckpointInfo | None:
        """The info of a checkpoint, with the previous one that still exists."""
        commit = self.commits[number]
        if commit.info is None or commit.parent is None:  # it may continue from a checkpoint of another thread
            return commit.info
        ancestor = self.commits.get(commit.parent)
        while ancestor is not None and ancestor.info is None:
            ancestor = None if ancestor.parent is None else self.commits.get(ancestor.parent)
        previous = None if ancestor is None or ancestor.info is None else ancestor.info.checkpoint_id
        if previous == commit.info.previous_checkpoint_id:
            return commit.info
        return _replace(commit.info, previous_checkpoint_id=previous)

    def checkpoint(self, number: int | None) -> StoredCheckpoint | None:
        info = None if number is None else self.info(number)
        return None if info is None else StoredCheckpoint(info, self.commits[info.number].root or b"")

    def read_commits(self) -> Iterator[Commit]:
        """All commits, without garbage."""
        self.collect_garbage()
        for number, commit in self.commits.items():
            yield _replace(commit, info=self.info(number), chunks=dict(commit.chunks))

    def read_events(self, seq: int | None) -> list[LoggedEvents]:
        """Raises CursorExpired."""
        if seq is not None and max(seq, 0) + 1 < self.first_seq:
            raise CursorExpired(self.thread_id, seq, self.first_seq)
        newest_first = []
        for number, commit in reversed(self.commits.items()):
            events = commit.events
            if events is None:
                continue
            if number < self.events_dropped_before or (seq is not None and events.first_seq + events.count - 1 <= seq):
                break
            of_commit = {"run_id": commit.run_id, "timestamp": commit.timestamp, "info": self.info(number)}
            newest_first.append(_replace(events, number=number, **of_commit))
        return newest_first[::-1]

    def thread_info(self) -> ThreadInfo:
        info = None if self.head is None else self.commits[self.head].info
        position = (self.thread_id, self.workflow_name, self.number, self.status, self.updated_at)
        return ThreadInfo(*position, None if info is None else info.checkpoint_id, self.due_at, self.owner)

    def pending_requests(self) -> list[PendingRequest]:
        """In the order in which they were asked."""
        changes = {"thread_id": self.thread_id, "workflow_name": self.workflow_name}
        requests = [_replace(request, **changes) for request in self.requests.values()]
        return sorted(requests, key=lambda request: (request.asked_at, request.request_id))

    def due_journal(self) -> list[JournalEntry]:
        """The entries since the last commit."""
        return [entry for entry in self.journal if entry.number == self.number]

    def header(self) -> ThreadHeader:
        return ThreadHeader(
            self.thread_id,
            **{name: getattr(self, name) for name in _OF_HEADER},
            requests=tuple(self.pending_requests()),
            journal=self.due_journal(),
            inbox=tuple(self.inbox.values()),
            consumed=tuple(sorted(self.consumed)),
            pins=tuple(self.pins()),
        )

    # ------------------------------------------------------------ retention

    def pins(self) -> list[int]:
        return [number for number, commit in self.commits.items() if commit.info is not None and commit.info.is_pinned]

    def set_pin(self, number: int, *, is_pinned: bool) -> None:
        commit = self.commits[number]
        if commit.info is not None:
            self.commits[number] = _replace(commit, info=_replace(commit.info, is_pinned=is_pinned))

    def prune_checkpoint(self, number: int) -> None:
        """Its root and chunks stay until the next collection."""
        commit = self.commits[number] = _replace(self.commits[number], info=None)
        self.pruned += 1
        self.pruned_bytes += count_bytes(commit)

    def move_head(self) -> None:
        """After the head was pruned: the newest checkpoint that is left becomes the head."""
        self.head = next((number for number in reversed(self.commits) if self.has_checkpoint(number)), None)
        self.journal.clear()
        self.requests.clear()
        self.due_at = None

    def drop_events(self, before: int) -> None:
        """Drop the events of all commits before this number, but never those of a commit to come."""
        before = min(before, self.number + 1)
        for number in range(self.events_dropped_before, before):
            commit = self.commits.get(number)
            if commit is not None and commit.events is not None:
                self.pruned += 1
                self.pruned_bytes += count_bytes(commit)
        if before > self.events_dropped_before:
            self.events_dropped_before = before
            kept = (self.commits[number].events for number in range(before, self.number + 1) if number in self.commits)
            self.first_seq = next((events.first_seq for events in kept if events is not None), self.last_seq + 1)

    def is_collection_due(self, *, at_rest: bool) -> bool:
        """Whether so much was pruned that examining the whole thread costs little for each checkpoint."""
        sizes = (self.pruned, self.kept, self.pruned_bytes, self.kept_bytes)
        return garbage.is_collection_due(*sizes, at_rest=at_rest)

    def collect_garbage(self) -> None:
        """Free what no checkpoint and no event needs."""
        if not self.pruned:
            return
        for number, left in [*garbage.prune_commits(self.commits.values(), (), self.events_dropped_before)]:
            if left is None:
                del self.commits[number]
            else:
                self.commits[number] = left
        self.pruned = self.pruned_bytes = 0
        self.kept = len(self.commits)
        self.kept_bytes = sum(map(count_bytes, self.commits.values()))

    # ------------------------------------------------------------ the thread as a whole

    def restore(self, header: ThreadHeader) -> None:
        """Take over what another store had beside the commits, which are appended before."""
        fence = max(self.fence, header.fence)
        for name in _OF_HEADER:
            setattr(self, name, getattr(header, name))
        self.fence = fence
        self.requests = {request.request_id: request for request in header.requests}
        self.journal = list(header.journal)
        self.inbox = {item.item_id: item for item in header.inbox}
        self.consumed = set(header.consumed)
        for number in header.pins:
            self.set_pin(number, is_pinned=True)
        self.pruned = len(self.commits)  # the other store may have pruned what it had not freed
        self.collect_garbage()

    def rewrite(self, change: Rewrite) -> int:
        """Replace every payload by what `change` returns; returns how many differ. Computes all before it replaces
        one."""
        self.collect_garbage()
        changes = Changes(change)
        commits = {number: changes.commit(commit) for number, commit in self.commits.items()}
        journal, inbox = map(changes.entry, self.journal), {key: changes.item(item) for key, item in self.inbox.items()}
        self.commits, self.journal, self.inbox = commits, [*journal], inbox
        return changes.count

    def size(self) -> int:
        """Bytes of all payloads."""
        bodies = [entry.body for entry in self.journal] + [item.body for item in self.inbox.values()]
        return sum(map(count_bytes, self.commits.values())) + sum(map(len, bodies))


class CheckpointIndex:
    """All checkpoints by id, and in the order of their commits: of all threads, of one, and of one workflow.

    Each checkpoint has a position, and each order is a list of positions.
    """

    def __init__(self, threads: Mapping[str, MemoryThread]) -> None:
        self._threads = threads
        self._positions: dict[str, int] = {}
        self._at: dict[int, CheckpointInfo] = {}
        """As added: it names the thread and the commit at each position."""
        self._orders: defaultdict[tuple[str | None, str | None], list[int]] = defaultdict(list)
        """By workflow and thread: of one of them, or of neither."""

    def add(self, info: CheckpointInfo, position: int) -> None:
        self._positions[info.checkpoint_id] = position
        self._at[position] = info
        orders = self._orders
        orders[None, None].append(position)
        orders[info.workflow_name, None].append(position)
        orders[None, info.thread_id].append(position)

    def find(self, checkpoint_id: str) -> tuple[MemoryThread, CheckpointInfo] | None:
        position = self._positions.get(checkpoint_id)
        return None if position is None else self._read(position)

    def _read(self, position: int) -> tuple[MemoryThread, CheckpointInfo] | None:
        added = self._at[position]
        thread = self._threads[added.thread_id]
        info = thread.info(added.number)
        return None if info is None else (thread, info)

    def remove(self, checkpoint_id: str) -> None:
        position = self._positions.pop(checkpoint_id)
        info = self._at.pop(position)
        for key in ((None, None), (info.workflow_name, None), (None, info.thread_id)):
            order = self._orders[key]
            del order[bisect_left(order, position)]
            if not order:
                del self._orders[key]

    def newest_first(
        self, workflow_name: str | None, thread_id: str | None, before: str | None
    ) -> Iterator[CheckpointInfo]:
        """Raises CheckpointNotFound if no checkpoint has the id `before`."""
        if before is not None and before not in self._positions:
            raise CheckpointNotFound(before)
        positions = self._orders.get((workflow_name, None) if thread_id is None else (None, thread_id), [])
        end = len(positions) if before is None else bisect_left(positions, self._positions[before])
        for index in range(end - 1, -1, -1):
            entry = self._read(positions[index])
            if entry is not None and workflow_name in (None, entry[1].workflow_name):
                yield entry[1]
