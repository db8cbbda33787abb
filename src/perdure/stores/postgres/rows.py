"""Rows of PostgreSQL tables, made from commits and read back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID
from zlib import crc32

from perdure.errors import DamagedCheckpoint, UnsupportedId
from perdure.records import CheckpointInfo, Commit, InboxItem, JournalEntry, Lease, LoggedEvents
from perdure.stores.packing import RUN, from_time, from_timestamp, seal, to_time, to_timestamp

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


def packed_id(text: str, prefix: str = "") -> bytes:
    """Hexadecimal digits as bytes, half as long; anything else as it is, behind a zero."""
    digits = text.removeprefix(prefix)
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        packed = b""
    if packed and packed[0] and prefix + packed.hex() == text:
        return packed
    return b"\0" + text.encode() if text else b""


def id_in(packed: bytes | None, prefix: str = "") -> str | None:
    if not packed:
        return None if packed is None else ""
    return packed[1:].decode() if packed[0] == 0 else prefix + packed.hex()


def run_in(row: Any) -> str:
    return id_in(row["run_id"], RUN) or ""


def words(text: str | None) -> list[str]:
    """A list of names or references, as a column holds it."""
    if not text:
        return []
    found = text.split(" ")
    return found if "%" not in text else [one.replace("%20", " ").replace("%25", "%") for one in found]


def as_words(names: Collection[str]) -> str | None:
    if not names:
        return None
    text = " ".join(names)
    if "%" in text or text.count(" ") >= len(names):  # names that perdure makes have neither
        text = " ".join(one.replace("%", "%25").replace(" ", "%20") for one in names)
    return text or None


# ---------------------------------------------------------------- seals

_SEAL_BYTES = 8


def root_seal(thread_id: str, number: int, told: tuple[Any, ...], root: bytes | None) -> bytes:
    """Binds a root to its place, and to what lists say of its checkpoint."""
    if root is None:
        return bytes(_SEAL_BYTES)
    return sha256(b"%b\0%d\0%b\0%b" % (thread_id.encode(), number, repr(told).encode(), root)).digest()[:_SEAL_BYTES]


def events_seal(thread_id: str, number: int, first_seq: int | None, count: int | None, events: bytes | None) -> bytes:
    if events is None:
        return bytes(_SEAL_BYTES)
    return seal(f"{thread_id}\0events {first_seq} {count}", number, events)[:_SEAL_BYTES]


def links_sum(parent: int | None, previous: str | None, dropped: str | None, carried: str | None) -> bytes:
    """Tells whether what a commit says of others was changed. Pruning writes it anew."""
    return crc32(repr((parent, previous, dropped, carried)).encode()).to_bytes(4)


def are_links_sound(row: Any) -> bool:
    said = links_sum(row["parent"], row["previous"], row["dropped"], row["carried"])
    return bool(row["seal"][2 * _SEAL_BYTES :] == said)


def item_seal(thread_id: str, item_id: str, kind: str, body: bytes) -> bytes:
    return seal(f"{thread_id}\0{item_id}\0{kind}", 0, body)


# ---------------------------------------------------------------- commits

COLUMNS = (
    "number, parent, first_seq, made_at, iteration, event_count, refers, checkpoint_id, workflow, previous, timestamp,"
    " run_id, status, names, dropped, carried, own, seal, root, events, chunks"
)
"""Of a commit; before them come the thread and the place in the order of all."""
TYPES = (
    *("bigint", "bigint", "bigint", "timestamptz", "int", "int", "boolean"),
    *("bytea", "text", "text", "text", "bytea", "text"),
    *("text", "text", "text", "text"),
    *("bytea", "bytea", "bytea", "bytea"),
)


def row_of(commit: Commit) -> tuple[Any, ...]:
    """Its values for COLUMNS."""
    info, events, chunks, parent = commit.info, commit.events, commit.chunks, commit.parent
    dropped, carried = as_words(commit.dropped), as_words(commit.carried)
    names = as_words([f"{name}:{len(chunk)}" for name, chunk in chunks.items()]) if chunks else None
    checkpoint_id = workflow = iteration = previous = None
    if info is not None:
        checkpoint_id, workflow, iteration = packed_id(info.checkpoint_id), info.workflow_name, info.iteration_count
        previous = info.previous_checkpoint_id if parent is None else None
    first_seq = count = own = body = None
    if events is not None:
        first_seq, count, own, body = events.first_seq, events.count, as_words(events.own), events.body
    made_at = _moment(commit.timestamp)
    return (
        *(commit.number, parent, first_seq, made_at, iteration, count, events is not None and events.refers),
        *(checkpoint_id, workflow, previous, commit.timestamp if made_at is None else None),
        *(packed_id(commit.run_id, RUN), commit.status, names, dropped, carried, own),
        *(_seal(commit, links_sum(parent, previous, dropped, carried)), commit.root, body),
        b"".join(chunks.values()) or None,
    )


def _moment(timestamp: str) -> datetime | None:
    """None where the text cannot be made from it again, to the letter."""
    if len(timestamp) == 32 and timestamp[26:] == "+00:00" and timestamp[10] == "T":  # as perdure writes it
        try:
            time = datetime.fromisoformat(timestamp)
        except ValueError:
            return None
        if time.microsecond and time.isoformat() == timestamp:
            return time
    number = from_timestamp(timestamp)
    return to_time(number) if isinstance(number, int) else None


def seal_of(commit: Commit) -> bytes:
    previous = None if commit.info is None or commit.parent is not None else commit.info.previous_checkpoint_id
    return _seal(commit, links_sum(commit.parent, previous, as_words(commit.dropped), as_words(commit.carried)))


def _seal(commit: Commit, links: bytes) -> bytes:
    thread_id, number, events = commit.lease.thread_id, commit.number, commit.events
    of_root = root_seal(thread_id, number, told_by(commit), commit.root)
    if events is None:
        return of_root + bytes(_SEAL_BYTES) + links
    return of_root + events_seal(thread_id, number, events.first_seq, events.count, events.body) + links


def told_by(commit: Commit) -> tuple[Any, ...]:
    """What lists say of a commit's checkpoint, but for what it continues from: that may change."""
    info = commit.info
    of_checkpoint = (
        (None, None, None) if info is None else (info.checkpoint_id, info.workflow_name, info.iteration_count)
    )
    return (*of_checkpoint, commit.timestamp, commit.run_id, commit.status)


def told_by_row(row: Any) -> tuple[Any, ...]:
    said = (id_in(row["checkpoint_id"]), row["workflow"], row["iteration"])
    return (*said, timestamp_of(row), run_in(row), row["status"])


def timestamp_of(row: Any) -> str:
    made_at = row["made_at"]
    return row["timestamp"] or "" if made_at is None else to_timestamp(from_time(made_at))


def info_of(thread_id: str, row: Any, previous: str | None) -> CheckpointInfo:
    return CheckpointInfo(
        id_in(row["checkpoint_id"]) or "",
        thread_id,
        row["workflow"] or "",
        row["number"],
        row["iteration"] or 0,
        previous,
        timestamp_of(row),
        run_in(row) or None,
        row["status"],
        row["is_pinned"],
    )


def name_in(row: Any) -> str:
    """What an error calls a commit."""
    return id_in(row["checkpoint_id"]) or f"of commit {row['number']}"


def root_of(thread_id: str, row: Any) -> bytes:
    """Raises DamagedCheckpoint for one that was changed, or stands where another belongs."""
    root, number = row["root"], row["number"]
    if root is None:
        raise DamagedCheckpoint(name_in(row), f"commit {number} holds no checkpoint", thread_id)
    if root_seal(thread_id, number, told_by_row(row), root) != row["seal"][:_SEAL_BYTES]:
        reason = f"commit {number} was changed or damaged in its store"
        raise DamagedCheckpoint(name_in(row), reason, thread_id)
    return bytes(root)


def events_of(thread_id: str, row: Any) -> LoggedEvents | None:
    """Raises DamagedCheckpoint."""
    number, first, body = row["number"], row["first_seq"], row["events"]
    if first is None:
        return None
    proof = row["seal"][_SEAL_BYTES : 2 * _SEAL_BYTES]
    if body is None or events_seal(thread_id, number, first, row["event_count"], body) != proof:
        raise DamagedCheckpoint(name_in(row), f"the events of commit {number} were changed in its store", thread_id)
    return LoggedEvents(first, row["event_count"], bytes(body), row["refers"], words(row["own"]))


def chunks_of(thread_id: str, row: Any) -> dict[str, bytes]:
    """Raises DamagedCheckpoint. What is in them is proved by their digests."""
    packed, found, start = row["chunks"] or b"", {}, 0
    try:
        for word in words(row["names"]):
            name, _, length = word.rpartition(":")
            found[name] = packed[start : start + int(length)]
            start += int(length)
    except ValueError:
        start = -1
    if start != len(packed):
        number = row["number"]
        raise DamagedCheckpoint(f"of commit {number}", f"chunks of commit {number} are not there", thread_id)
    return found


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
        run_id=run_in(row),
        timestamp=timestamp_of(row),
        parent=row["parent"],
        chunks=chunks,
        dropped=words(row["dropped"]),
        carried=words(row["carried"]),
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
