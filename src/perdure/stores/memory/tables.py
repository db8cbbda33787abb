"""The data of a memory store: all threads and checkpoints, with the operations that change both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os import urandom

import msgspec

from perdure.errors import CheckpointNotFound, ThreadBusy, ThreadExists, ThreadNotFound
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
)
from perdure.store import Rewrite
from perdure.stores.garbage import Lineage
from perdure.stores.memory.thread import (
    CheckpointIndex,
    MemoryThread,
    Note,
    as_lineage,
    change,
    collect,
    drop_events,
    find_events,
    is_collection_due,
    rename_info,
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


def copy_thread(
    source: MemoryThread, to: str, stored: Iterable[StoredCheckpoint]
) -> tuple[MemoryThread, list[StoredCheckpoint]]:
    """The copy has new checkpoint ids, and no journal, inbox, owner or pins."""
    copy = MemoryThread()
    for name in (
        "number",
        "status",
        "updated_at",
        "due_at",
        "last_seq",
        "first_seq",
        "workflow_name",
        "kept",
        "kept_bytes",
    ):
        setattr(copy, name, getattr(source, name))
    copy.chunks = {number: dict(chunks) for number, chunks in source.chunks.items()}
    copy.lineages = dict(source.lineages)
    copy.notes = dict(source.notes)
    copy.requests = {key: msgspec.structs.replace(request, thread_id=to) for key, request in source.requests.items()}
    checkpoints = list(stored)
    ids = {checkpoint.info.checkpoint_id: urandom(12).hex() for checkpoint in checkpoints}
    copies = {
        checkpoint.info.number: StoredCheckpoint(rename_info(checkpoint.info, to, ids), checkpoint.root)
        for checkpoint in checkpoints
    }
    copy.events = [
        msgspec.structs.replace(events, info=copies[events.number].info if events.number in copies else None)
        for events in source.events
    ]
    copy.head = None if source.head is None else copies[source.head.info.number]
    return copy, list(copies.values())


def pending_requests_of(thread_id: str, thread: MemoryThread) -> list[PendingRequest]:
    changes = {"thread_id": thread_id, "workflow_name": thread.workflow_name}
    requests = [msgspec.structs.replace(request, **changes) for request in thread.requests.values()]
    return sorted(requests, key=lambda request: (request.asked_at, request.request_id))


def make_header(thread_id: str, thread: MemoryThread, pins: Sequence[int]) -> ThreadHeader:
    return ThreadHeader(
        thread_id,
        thread.workflow_name,
        thread.number,
        thread.fence,
        thread.status,
        thread.updated_at,
        thread.last_seq,
        thread.first_seq,
        None if thread.head is None else thread.head.info.number,
        thread.due_at,
        tuple(pending_requests_of(thread_id, thread)),
        tuple(entry for entry in thread.journal if entry.number == thread.number),
        tuple(thread.inbox.values()),
        tuple(sorted(thread.consumed)),
        tuple(pins),
    )


def iterate_commits(thread_id: str, thread: MemoryThread, checkpoints: CheckpointIndex, after: int) -> Iterator[Commit]:
    """The commits of a thread without garbage."""
    lease = Lease(thread_id, "", 0)
    for number in range(max(after, 0) + 1, thread.number + 1):
        stored = checkpoints.at(thread_id, number)
        note = thread.notes.get(number)
        if stored is None and note is None:
            continue
        info = None if stored is None else stored.info
        status, run_id, timestamp = note or ("", "", "")
        if info is not None:
            status, run_id, timestamp = info.status, info.run_id or "", info.timestamp
        events = find_events(thread, number)
        if events is not None:
            events = LoggedEvents(events.first_seq, events.count, events.body, events.refers, tuple(events.own))
        lineage = as_lineage(number, thread.lineages[number]) if number in thread.lineages else None
        yield Commit(
            lease,
            number,
            info,
            None if stored is None else stored.root,
            events,
            status=status,
            run_id=run_id,
            timestamp=timestamp,
            parent=None if lineage is None else lineage.parent,
            chunks=dict(thread.chunks.get(number, {})),
            dropped=() if lineage is None else tuple(sorted(lineage.dropped)),
            carried=() if lineage is None else tuple(sorted(lineage.carried)),
        )


def import_thread(header: ThreadHeader, commits: Iterable[Commit]) -> tuple[MemoryThread, list[StoredCheckpoint]]:
    thread = MemoryThread()
    for name in ("fence", "number", "status", "updated_at", "due_at", "last_seq", "first_seq", "workflow_name"):
        setattr(thread, name, getattr(header, name))
    thread.requests = {request.request_id: request for request in header.requests}
    thread.journal = list(header.journal)
    thread.inbox = {item.item_id: item for item in header.inbox}
    thread.consumed = set(header.consumed)
    pins = frozenset(header.pins)
    checkpoints = {}
    for commit in commits:
        stored = _import_commit(thread, header.thread_id, commit, is_pinned=commit.number in pins)
        if stored is not None:
            checkpoints[commit.number] = stored
    thread.head = None if header.head is None else checkpoints.get(header.head)
    thread.kept = len(thread.lineages) + len(thread.notes)
    return thread, list(checkpoints.values())


def _import_commit(thread: MemoryThread, thread_id: str, commit: Commit, *, is_pinned: bool) -> StoredCheckpoint | None:
    stored, events, number = None, commit.events, commit.number
    if commit.info is not None and commit.root is not None:
        info = msgspec.structs.replace(commit.info, thread_id=thread_id, is_pinned=is_pinned)
        stored = StoredCheckpoint(info, commit.root)
    else:
        thread.notes[number] = Note(commit.status, commit.run_id, commit.timestamp)
    if commit.chunks:
        thread.chunks[number] = dict(commit.chunks)
    if events is not None:
        of_commit = (number, commit.run_id, commit.timestamp, None if stored is None else stored.info)
        thread.events.append(
            LoggedEvents(events.first_seq, events.count, events.body, events.refers, tuple(events.own), *of_commit)
        )
    refers = events is not None and events.refers
    if stored is not None and not (commit.chunks or commit.dropped or commit.carried):
        thread.lineages[number] = commit.parent or 0
    elif stored is not None or refers or commit.parent is not None or commit.chunks or commit.dropped or commit.carried:
        # A commit without a checkpoint may still link later commits to chunks of earlier ones.
        lineage = as_lineage(number, commit)
        thread.lineages[number] = Lineage(
            number,
            lineage.parent,
            stored is not None or refers,
            lineage.added,
            lineage.dropped,
            lineage.carried,
            stored is not None,
        )
        thread.pruned += stored is None and not refers
    return stored


def rewrite(thread: MemoryThread, checkpoints: CheckpointIndex, thread_id: str, change: Rewrite) -> int:
    """Replace every payload by what `change` returns; returns how many differ. Computes all before it replaces one."""
    count = 0

    def apply(kind: str, name: str, data: bytes) -> bytes:
        nonlocal count
        after = change(kind, name, data)
        count += after != data
        return after

    stored = [
        StoredCheckpoint(checkpoint.info, apply("root", str(checkpoint.info.number), checkpoint.root))
        for checkpoint in checkpoints.of_thread(thread_id)
    ]
    chunks = {
        number: {digest: apply("chunk", digest, data) for digest, data in pack.items()}
        for number, pack in thread.chunks.items()
    }
    events = [
        msgspec.structs.replace(logged, body=apply("events", str(logged.number), logged.body))
        for logged in thread.events
    ]
    journal = [
        JournalEntry(entry.number, entry.delivery_id, apply("journal", str(entry.delivery_id), entry.body))
        for entry in thread.journal
    ]
    inbox = {key: InboxItem(key, item.kind, apply("inbox", key, item.body)) for key, item in thread.inbox.items()}
    if count:
        for checkpoint in stored:
            checkpoints.replace(checkpoint)
            if thread.head is not None and thread.head.info.number == checkpoint.info.number:
                thread.head = checkpoint
        thread.chunks, thread.events, thread.journal, thread.inbox = chunks, events, journal, inbox
        # A commit that is kept for its references would keep its old payloads, too.
        thread.lineages = {
            number: line if isinstance(line, int) else as_lineage(number, line)
            for number, line in thread.lineages.items()
        }
    return count


def measure_size(thread: MemoryThread) -> int:
    """Bytes of a thread, without the roots of its checkpoints."""
    return (
        sum(len(data) for chunks in thread.chunks.values() for data in chunks.values())
        + sum(len(events.body) for events in thread.events)
        + sum(len(entry.body) for entry in thread.journal)
        + sum(len(item.body) for item in thread.inbox.values())
    )
