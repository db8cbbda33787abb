"""Whole threads in memory: copied, handed out as they are stored, taken in as another store had them, rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import urandom

import msgspec

from perdure.records import (
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
from perdure.stores.memory.thread import CheckpointsInOrder, MemoryThread, Note, events_of, lineage_of, renamed_info


def copy_of(
    source: MemoryThread, to: str, stored: Iterable[StoredCheckpoint]
) -> tuple[MemoryThread, list[StoredCheckpoint]]:
    """Under new checkpoint ids; without journal, inbox, owner and pins."""
    made = MemoryThread()
    for name in (
        "number",
        "status",
        "updated_at",
        "due_at",
        "last_seq",
        "first_seq",
        "workflow_name",
        "left",
        "left_bytes",
    ):
        setattr(made, name, getattr(source, name))
    made.chunks = {number: dict(chunks) for number, chunks in source.chunks.items()}
    made.lines = dict(source.lines)
    made.notes = dict(source.notes)
    made.requests = {key: msgspec.structs.replace(one, thread_id=to) for key, one in source.requests.items()}
    stored = list(stored)
    renamed = {one.info.checkpoint_id: urandom(12).hex() for one in stored}
    copies = {one.info.number: StoredCheckpoint(renamed_info(one.info, to, renamed), one.root) for one in stored}
    made.events = [
        msgspec.structs.replace(one, info=copies[one.number].info if one.number in copies else None)
        for one in source.events
    ]
    made.head = None if source.head is None else copies[source.head.info.number]
    return made, list(copies.values())


# ---------------------------------------------------------------- as they are stored


def requests_of(thread_id: str, thread: MemoryThread) -> list[PendingRequest]:
    named = {"thread_id": thread_id, "workflow_name": thread.workflow_name}
    found = [msgspec.structs.replace(one, **named) for one in thread.requests.values()]
    return sorted(found, key=lambda one: (one.asked_at, one.request_id))


def standing_of(thread_id: str, thread: MemoryThread, pins: Sequence[int]) -> ThreadHeader:
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
        tuple(requests_of(thread_id, thread)),
        tuple(one for one in thread.journal if one.number == thread.number),
        tuple(thread.inbox.values()),
        tuple(sorted(thread.consumed)),
        tuple(pins),
    )


def commits_of(thread_id: str, thread: MemoryThread, checkpoints: CheckpointsInOrder, after: int) -> Iterator[Commit]:
    """Of a thread in which nothing waits to be collected."""
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
        events = events_of(thread, number)
        if events is not None:
            events = LoggedEvents(events.first_seq, events.count, events.body, events.refers, tuple(events.own))
        lineage = lineage_of(number, thread.lines[number]) if number in thread.lines else None
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


def taken_in(standing: ThreadHeader, commits: Iterable[Commit]) -> tuple[MemoryThread, list[StoredCheckpoint]]:
    made = MemoryThread()
    for name in ("fence", "number", "status", "updated_at", "due_at", "last_seq", "first_seq", "workflow_name"):
        setattr(made, name, getattr(standing, name))
    made.requests = {one.request_id: one for one in standing.requests}
    made.journal = list(standing.journal)
    made.inbox = {one.item_id: one for one in standing.inbox}
    made.consumed = set(standing.consumed)
    pins = frozenset(standing.pins)
    stored = {}
    for commit in commits:
        one = _take(made, standing.thread_id, commit, is_pinned=commit.number in pins)
        if one is not None:
            stored[commit.number] = one
    made.head = None if standing.head is None else stored.get(standing.head)
    made.left = len(made.lines) + len(made.notes)
    return made, list(stored.values())


def _take(thread: MemoryThread, thread_id: str, commit: Commit, *, is_pinned: bool) -> StoredCheckpoint | None:
    stored, events, number = None, commit.events, commit.number
    if commit.info is not None and commit.root is not None:
        info = msgspec.structs.replace(commit.info, thread_id=thread_id, is_pinned=is_pinned)
        stored = StoredCheckpoint(info, commit.root)
    else:
        thread.notes[number] = Note(commit.status, commit.run_id, commit.timestamp)
    if commit.chunks:
        thread.chunks[number] = dict(commit.chunks)
    if events is not None:
        told = (number, commit.run_id, commit.timestamp, None if stored is None else stored.info)
        thread.events.append(
            LoggedEvents(events.first_seq, events.count, events.body, events.refers, tuple(events.own), *told)
        )
    refers = events is not None and events.refers
    if stored is not None and not (commit.chunks or commit.dropped or commit.carried):
        thread.lines[number] = commit.parent or 0
    elif stored is not None or refers or commit.parent is not None or commit.chunks or commit.dropped or commit.carried:
        # One that holds a checkpoint no longer may still say what those after it have from those before.
        one = lineage_of(number, commit)
        thread.lines[number] = Lineage(
            number, one.parent, stored is not None or refers, one.added, one.dropped, one.carried, stored is not None
        )
        thread.forgotten += stored is None and not refers
    return stored


def rewrite(thread: MemoryThread, checkpoints: CheckpointsInOrder, thread_id: str, change: Rewrite) -> int:
    """Every payload through the change; how many came back different. All are asked for before one is put in place."""
    count = 0

    def changed(kind: str, name: str, data: bytes) -> bytes:
        nonlocal count
        after = change(kind, name, data)
        count += after != data
        return after

    stored = [
        StoredCheckpoint(one.info, changed("root", str(one.info.number), one.root))
        for one in checkpoints.of_thread(thread_id)
    ]
    chunks = {
        number: {digest: changed("chunk", digest, data) for digest, data in held.items()}
        for number, held in thread.chunks.items()
    }
    events = [msgspec.structs.replace(one, body=changed("events", str(one.number), one.body)) for one in thread.events]
    journal = [
        JournalEntry(one.number, one.delivery_id, changed("journal", str(one.delivery_id), one.body))
        for one in thread.journal
    ]
    inbox = {key: InboxItem(key, one.kind, changed("inbox", key, one.body)) for key, one in thread.inbox.items()}
    if count:
        for one in stored:
            checkpoints.replace(one)
            if thread.head is not None and thread.head.info.number == one.info.number:
                thread.head = one
        thread.chunks, thread.events, thread.journal, thread.inbox = chunks, events, journal, inbox
        # A commit that is kept for what it says about chunks would keep its payload, too.
        thread.lines = {
            number: line if isinstance(line, int) else lineage_of(number, line) for number, line in thread.lines.items()
        }
    return count


def size_of(thread: MemoryThread) -> int:
    """Bytes of all that is kept but for the checkpoints' roots."""
    return (
        sum(len(data) for chunks in thread.chunks.values() for data in chunks.values())
        + sum(len(one.body) for one in thread.events)
        + sum(len(one.body) for one in thread.journal)
        + sum(len(one.body) for one in thread.inbox.values())
    )
