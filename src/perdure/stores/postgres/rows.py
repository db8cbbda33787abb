"""Rows of the PostgreSQL tables: from a commit to its row, and back."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID
from zlib import crc32

from perdure.errors import DamagedCheckpoint, UnsupportedId
from perdure.names import is_utf8
from perdure.records import CheckpointInfo, Commit, InboxItem, JournalEntry, Lease, LoggedEvents
from perdure.stores.garbage import without_events
from perdure.stores.packing import RUN, from_timestamp, seal, to_time, unseal_entry, unseal_item

MAX_ID_BYTES = 2000
"""Of an id that is in an index. A thread id may have any length: its key is a hash."""

MAX_NUMBER = 2**62
"""Higher than every number and seq."""


@lru_cache(maxsize=4096)
def thread_key(thread_id: str) -> UUID:
    """The thread's key in all tables."""
    return UUID(bytes=sha256(thread_id.encode("utf-8", "surrogatepass")).digest()[:16])


def is_text(value: str) -> bool:
    """Whether PostgreSQL can store it. If not, no row has this id."""
    return "\0" not in value and is_utf8(value)


def check_id(name: str, value: str | None, max_bytes: int | None = MAX_ID_BYTES) -> None:
    """Raises UnsupportedId."""
    if value is None or (len(value) < MAX_ID_BYTES and value.isascii() and "\0" not in value):
        return
    if not is_text(value):
        raise UnsupportedId(name, value[:100], "PostgreSQL stores only text without NUL characters")
    if max_bytes is not None and len(value.encode()) > max_bytes:
        raise UnsupportedId(name, value[:100] + "...", f"it has more than {max_bytes} bytes")


def check_ids(commit: Commit) -> None:
    """Raises UnsupportedId."""
    if commit.info is not None:
        check_id("checkpoint id", commit.info.checkpoint_id)
        check_id("workflow name", commit.info.workflow_name)
    for request in commit.requests or ():
        check_id("request id", request.request_id)
        check_id("executor id", request.executor_id)
        check_id("assignee", request.assignee)


def pack_id(text: str, prefix: str = "") -> bytes:
    """Hexadecimal digits as bytes, half as long; any other text unchanged, after a zero byte."""
    digits = text.removeprefix(prefix)
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        packed = b""
    if packed and packed[0] and prefix + packed.hex() == text:
        return packed
    return b"\0" + text.encode() if text else b""


def unpack_id(packed: bytes | None, prefix: str = "") -> str | None:
    if not packed:
        return None if packed is None else ""
    return packed[1:].decode() if packed[0] == 0 else prefix + packed.hex()


def unpack_run_id(row: Any) -> str:
    return unpack_id(row["run_id"], RUN) or ""


def split_words(text: str | None) -> list[str]:
    """A list of names or references, as a column holds it."""
    if not text:
        return []
    parts = text.split(" ")
    return parts if "%" not in text else [part.replace("%20", " ").replace("%25", "%") for part in parts]


def join_words(names: Collection[str]) -> str | None:
    if not names:
        return None
    text = " ".join(names)
    if "%" in text or text.count(" ") >= len(names):  # names from perdure have neither
        text = " ".join(name.replace("%", "%25").replace(" ", "%20") for name in names)
    return text or None


_SEAL_BYTES = 8


def root_seal(thread_id: str, number: int, fields: tuple[Any, ...], root: bytes | None) -> bytes:
    """Binds a root to its thread and number, and to the fields that lists show of its checkpoint."""
    if root is None:
        return bytes(_SEAL_BYTES)
    return sha256(b"%b\0%d\0%b\0%b" % (thread_id.encode(), number, repr(fields).encode(), root)).digest()[:_SEAL_BYTES]


def events_seal(thread_id: str, number: int, first_seq: int | None, count: int | None, events: bytes | None) -> bytes:
    if events is None:
        return bytes(_SEAL_BYTES)
    return seal(f"{thread_id}\0events {first_seq} {count}", number, events)[:_SEAL_BYTES]


def links_checksum(parent: int | None, previous: str | None, dropped: str | None, carried: str | None) -> bytes:
    """Detects changes of the references of a commit to others. Pruning writes a new one."""
    return crc32(repr((parent, previous, dropped, carried)).encode()).to_bytes(4)


_COLUMNS = """
number bigint, parent bigint, first_seq bigint, made_at timestamptz, iteration int, event_count int, refers boolean,
checkpoint_id bytea, workflow text, previous text, timestamp text, run_id bytea, status text,
names text, dropped text, carried text, own text, seal bytea, root bytea, events bytea, chunks bytea
"""
"""Of a commit, after its thread and its position in the order of all commits."""
_NAMES, TYPES = zip(*(column.split() for column in _COLUMNS.split(",")), strict=True)
COLUMNS, SEAL = ", ".join(_NAMES), _NAMES.index("seal")


def commit_row(commit: Commit) -> tuple[Any, ...]:
    """The values of a commit for COLUMNS."""
    info, events, chunks, parent = commit.info, commit.events, commit.chunks, commit.parent
    dropped, carried = join_words(commit.dropped), join_words(commit.carried)
    names = join_words([f"{name}:{len(chunk)}" for name, chunk in chunks.items()]) if chunks else None
    checkpoint_id = workflow = iteration = previous = None
    if info is not None:
        checkpoint_id, workflow, iteration = pack_id(info.checkpoint_id), info.workflow_name, info.iteration_count
        previous = info.previous_checkpoint_id if parent is None else None
    first_seq = count = own = body = None
    if events is not None:
        first_seq, count, own, body = events.first_seq, events.count, join_words(events.own), events.body
    thread_id, number = commit.lease.thread_id, commit.number
    shown = (None if info is None else info.checkpoint_id, workflow, iteration)
    of_root = root_seal(thread_id, number, (*shown, commit.timestamp, commit.run_id, commit.status), commit.root)
    of_events = events_seal(thread_id, number, first_seq, count, body)
    time = from_timestamp(commit.timestamp)
    made_at = to_time(time) if isinstance(time, int) else None  # None if it cannot restore the text exactly
    return (
        *(number, parent, first_seq, made_at, iteration, count, events is not None and events.refers),
        *(checkpoint_id, workflow, previous, commit.timestamp if made_at is None else None),
        *(pack_id(commit.run_id, RUN), commit.status, names, dropped, carried, own),
        *(of_root + of_events + links_checksum(parent, previous, dropped, carried), commit.root, body),
        b"".join(chunks.values()) or None,
    )


def sealed_fields_of_row(row: Any) -> tuple[Any, ...]:
    """A commit's checkpoint in lists, without its parent, which pruning may change. As in `commit_row`."""
    of_checkpoint = (unpack_id(row["checkpoint_id"]), row["workflow"], row["iteration"])
    return (*of_checkpoint, read_timestamp(row), unpack_run_id(row), row["status"])


def read_timestamp(row: Any) -> str:
    made_at = row["made_at"]
    return row["timestamp"] or "" if made_at is None else str(made_at.isoformat())


def read_info(thread_id: str, row: Any, previous: str | None) -> CheckpointInfo:
    checkpoint_id, workflow, run_id = unpack_id(row["checkpoint_id"]) or "", row["workflow"] or "", unpack_run_id(row)
    position = (row["number"], row["iteration"] or 0, previous, read_timestamp(row))
    return CheckpointInfo(
        checkpoint_id, thread_id, workflow, *position, run_id or None, row["status"], row["is_pinned"]
    )


def commit_label(row: Any) -> str:
    return unpack_id(row["checkpoint_id"]) or f"of commit {row['number']}"


def read_root(thread_id: str, row: Any) -> bytes:
    """Raises DamagedCheckpoint if the root was changed, or belongs to another commit."""
    root, number = row["root"], row["number"]
    if root is None:
        raise DamagedCheckpoint(commit_label(row), f"commit {number} holds no checkpoint", thread_id)
    if root_seal(thread_id, number, sealed_fields_of_row(row), root) != row["seal"][:_SEAL_BYTES]:
        reason = f"commit {number} was changed or damaged in its store"
        raise DamagedCheckpoint(commit_label(row), reason, thread_id)
    return bytes(root)


def read_events(thread_id: str, row: Any) -> LoggedEvents | None:
    """Raises DamagedCheckpoint."""
    number, first, body = row["number"], row["first_seq"], row["events"]
    if first is None:
        return None
    proof = row["seal"][_SEAL_BYTES : 2 * _SEAL_BYTES]
    if body is None or events_seal(thread_id, number, first, row["event_count"], body) != proof:
        reason = f"the events of commit {number} were changed in its store"
        raise DamagedCheckpoint(commit_label(row), reason, thread_id)
    return LoggedEvents(first, row["event_count"], bytes(body), row["refers"], split_words(row["own"]))


def unpack_chunks(thread_id: str, row: Any) -> dict[str, bytes]:
    """Raises DamagedCheckpoint. Their digests prove their contents."""
    packed, chunks, start = row["chunks"] or b"", {}, 0
    try:
        for word in split_words(row["names"]):
            name, _, length = word.rpartition(":")
            chunks[name] = packed[start : start + int(length)]
            start += int(length)
    except ValueError:
        start = -1
    if start != len(packed):
        number = row["number"]
        raise DamagedCheckpoint(f"of commit {number}", f"chunks of commit {number} are missing", thread_id)
    return chunks


HAS_CONTENT = """
(t.number > 0 OR EXISTS (SELECT 1 FROM {s}.inbox i WHERE i.thread = t.thread)
  OR EXISTS (SELECT 1 FROM {s}.journal j WHERE j.thread = t.thread))
"""
"""Of a thread `t`: a claim alone creates an empty one."""

UNCOMMITTED = """
LEFT JOIN LATERAL (SELECT array_agg(delivery_id ORDER BY entry) AS deliveries,
  array_agg(body ORDER BY entry) AS bodies, array_agg(seal ORDER BY entry) AS seals
  FROM {s}.journal WHERE thread = $1) j ON true
LEFT JOIN LATERAL (SELECT array_agg(item_id ORDER BY item) AS item_ids, array_agg(kind ORDER BY item) AS kinds,
  array_agg(body ORDER BY item) AS items, array_agg(seal ORDER BY item) AS item_seals
  FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL) i ON true
"""
"""Adds the journal `j` and the inbox `i` to the row of a thread."""


def read_uncommitted(thread_id: str, row: Any) -> tuple[list[JournalEntry], list[InboxItem]]:
    """Raises DamagedCheckpoint."""
    entries = zip(*(row[column] or () for column in ("deliveries", "bodies", "seals")), strict=True)
    items = zip(*(row[column] or () for column in ("item_ids", "kinds", "items", "item_seals")), strict=True)
    number = row["number"] or 0
    journal = [unseal_entry(thread_id, *entry, number=number) for entry in entries]
    return journal, [unseal_item(thread_id, *item) for item in items]


def read_commit(thread_id: str, row: Any, info: CheckpointInfo | None, events_dropped_before: int) -> Commit:
    """The commit as it was written, or as pruning left it. Raises DamagedCheckpoint."""
    root, events = None if info is None else read_root(thread_id, row), read_events(thread_id, row)
    chunks, dropped, carried = unpack_chunks(thread_id, row), split_words(row["dropped"]), split_words(row["carried"])
    of_run = (row["status"], unpack_run_id(row), read_timestamp(row), row["parent"], chunks, dropped)
    commit = Commit(Lease(thread_id, "", 0), row["number"], info, root, events, (), (), *of_run, carried=carried)
    return without_events(commit) if commit.number < events_dropped_before else commit  # dropped, but not freed yet
