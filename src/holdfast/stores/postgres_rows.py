"""Rows of PostgreSQL tables, made from commits and read back."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID

from holdfast.errors import DamagedCheckpoint, UnsupportedId
from holdfast.records import CheckpointInfo, Commit, InboxItem, JournalEntry, Lease, LoggedEvents
from holdfast.stores.packing import SEAL_BYTES, seal

LONGEST_ID = 2000
"""Bytes of an id that is in an index. That of a thread may have any length: it is known by its hash."""


LAST = 2**62
"""Behind every number and seq that there can be."""


@lru_cache(maxsize=4096)
def key_of(thread_id: str) -> UUID:
    """The thread's key in all tables."""
    return UUID(bytes=sha256(thread_id.encode("utf-8", "surrogatepass")).digest()[:16])


def is_text(value: str) -> bool:
    """Whether PostgreSQL can keep it: otherwise nothing is known by it."""
    if "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_id(name: str, value: str | None, longest: int | None = LONGEST_ID) -> None:
    """Raises UnsupportedId."""
    if value is None or (len(value) < LONGEST_ID and value.isascii() and "\0" not in value):
        return
    if not is_text(value):
        raise UnsupportedId(name, value[:100], "PostgreSQL keeps only text, without a NUL in it")
    if longest is not None and len(value.encode()) > longest:
        raise UnsupportedId(name, value[:100] + "...", f"it has more than {longest} bytes")


# ---------------------------------------------------------------- seals


def root_seal(thread_id: str, number: int, told: tuple[Any, ...], root: bytes) -> bytes:
    """Binds a root to its place, and to what lists say of its checkpoint."""
    return sha256(b"%b\0%d\0%b\0%b" % (thread_id.encode(), number, repr(told).encode(), root)).digest()[:SEAL_BYTES]


def events_seal(thread_id: str, number: int, first_seq: int, count: int, events: bytes) -> bytes:
    return seal(f"{thread_id}\0events {first_seq} {count}", number, events)


def item_seal(thread_id: str, item_id: str, kind: str, body: bytes) -> bytes:
    return seal(f"{thread_id}\0{item_id}\0{kind}", 0, body)


# ---------------------------------------------------------------- commits

COLUMNS = (
    "number, fence, parent, first_seq, iteration, event_count, refers, checkpoint_id, workflow, previous, timestamp,"
    " run_id, status, names, dropped, carried, own, root_seal, events_seal, root, events, chunks"
)
"""Of a commit; before them come the thread and the place in the order of all."""
TYPES = (
    *("bigint", "bigint", "bigint", "bigint", "int", "int", "boolean"),
    *("text", "text", "text", "text", "text", "text"),
    *("text[]", "text[]", "text[]", "text[]"),
    *("bytea", "bytea", "bytea", "bytea", "bytea[]"),
)


def row_of(commit: Commit) -> tuple[Any, ...]:
    """Its values for COLUMNS."""
    info, events, thread_id = commit.info, commit.events, commit.lease.thread_id
    told = told_by(commit)
    root, chunks = commit.root, commit.chunks
    return (
        commit.number,
        commit.lease.fence,
        commit.parent,
        None if events is None else events.first_seq,
        None if info is None else info.iteration_count,
        None if events is None else events.count,
        events is not None and events.refers,
        None if info is None else info.checkpoint_id,
        None if info is None else info.workflow_name,
        None if info is None or commit.parent is not None else info.previous_checkpoint_id,
        commit.timestamp,
        commit.run_id,
        commit.status,
        [*chunks] or None,
        [*commit.dropped] or None,
        [*commit.carried] or None,
        None if events is None else [*events.own] or None,
        None if root is None else root_seal(thread_id, commit.number, told, root),
        None if events is None else events_seal(thread_id, commit.number, events.first_seq, events.count, events.body),
        root,
        None if events is None else events.body,
        [*chunks.values()] or None,
    )


def told_by(commit: Commit) -> tuple[Any, ...]:
    """What lists say of a commit's checkpoint, but for what it continues from: that may change."""
    info = commit.info
    of_checkpoint = (
        (None, None, None) if info is None else (info.checkpoint_id, info.workflow_name, info.iteration_count)
    )
    return (*of_checkpoint, commit.timestamp, commit.run_id, commit.status)


def told_by_row(row: Any) -> tuple[Any, ...]:
    said = (row["checkpoint_id"], row["workflow"], row["iteration"])
    return (*said, row["timestamp"], row["run_id"], row["status"])


def info_of(thread_id: str, row: Any, previous: str | None) -> CheckpointInfo:
    return CheckpointInfo(
        row["checkpoint_id"],
        thread_id,
        row["workflow"] or "",
        row["number"],
        row["iteration"] or 0,
        previous,
        row["timestamp"],
        row["run_id"] or None,
        row["status"],
        row["is_pinned"],
    )


def root_of(thread_id: str, row: Any) -> bytes:
    """Raises DamagedCheckpoint for one that was changed, or stands where another belongs."""
    root, number = row["root"], row["number"]
    if root is None:
        raise DamagedCheckpoint(row["checkpoint_id"], f"commit {number} holds no checkpoint", thread_id)
    if root_seal(thread_id, number, told_by_row(row), root) != row["root_seal"]:
        reason = f"commit {number} was changed or damaged in its store"
        raise DamagedCheckpoint(row["checkpoint_id"] or f"of commit {number}", reason, thread_id)
    return bytes(root)


def events_of(thread_id: str, row: Any) -> LoggedEvents | None:
    """Raises DamagedCheckpoint."""
    number, first, body = row["number"], row["first_seq"], row["events"]
    if first is None:
        return None
    if body is None or events_seal(thread_id, number, first, row["event_count"], body) != row["events_seal"]:
        name = row["checkpoint_id"] or f"of commit {number}"
        raise DamagedCheckpoint(name, f"the events of commit {number} were changed in its store", thread_id)
    return LoggedEvents(first, row["event_count"], bytes(body), row["refers"], row["own"] or ())


def chunks_of(thread_id: str, row: Any) -> dict[str, bytes]:
    """Raises DamagedCheckpoint. What is in them is proved by their digests."""
    names, chunks = row["names"] or (), row["chunks"] or ()
    if len(names) != len(chunks):
        number = row["number"]
        raise DamagedCheckpoint(f"of commit {number}", f"chunks of commit {number} are not there", thread_id)
    return dict(zip(names, chunks, strict=True))


def commit_of(thread_id: str, row: Any, info: CheckpointInfo | None, silent_before: int) -> Commit:
    """As it was committed, or as pruning left it. Raises DamagedCheckpoint."""
    events, chunks = events_of(thread_id, row), chunks_of(thread_id, row)
    if events is not None and row["number"] < silent_before:  # forgotten, though still there
        own = set(events.own)
        events, chunks = None, {name: chunk for name, chunk in chunks.items() if name not in own}
    return Commit(
        Lease(thread_id, "", 0),
        row["number"],
        info,
        None if info is None else root_of(thread_id, row),
        events,
        status=row["status"],
        run_id=row["run_id"],
        timestamp=row["timestamp"],
        parent=row["parent"],
        chunks=chunks,
        dropped=row["dropped"] or (),
        carried=row["carried"] or (),
    )


# ---------------------------------------------------------------- journal and inbox


def journal_of(thread_id: str, number: int, entries: Any) -> list[JournalEntry]:
    """Raises DamagedCheckpoint."""
    found = []
    for delivery_id, body, sealed in entries:
        if seal(thread_id, delivery_id, body) != sealed:
            raise DamagedCheckpoint("of its head", f"the journal of delivery {delivery_id} was changed", thread_id)
        found.append(JournalEntry(number, delivery_id, body))
    return found


def inbox_of(thread_id: str, items: Any) -> list[InboxItem]:
    """Raises DamagedCheckpoint."""
    found = []
    for item_id, kind, body, sealed in items:
        if item_seal(thread_id, item_id, kind, body) != sealed:
            raise DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)
        found.append(InboxItem(item_id, kind, body))
    return found
