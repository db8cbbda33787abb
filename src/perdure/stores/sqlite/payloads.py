"""Commits with their payloads: where these are kept, how they are proved, and what is unpacked from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from perdure.errors import CursorExpired, DamagedCheckpoint
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents, StoredCheckpoint
from perdure.stores.garbage import without_events
from perdure.stores.packing import (
    NOTHING,
    RUN,
    SEAL_BYTES,
    Body,
    logged_events,
    seal,
    to_id,
    to_timestamp,
    unpack_body,
    unpack_chunks,
)
from perdure.stores.sqlite.lists import SELECT_INFO, as_limit, read_info, to_infos
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import find_thread

MAX_PARAMETERS = 500
"""Numbers in one query: older versions of SQLite take at most 999 parameters."""


class Payload(NamedTuple):
    """The packed payload of a commit, not yet proved."""

    number: int
    checkpoint_id: Any
    """As its column has it."""
    seal: bytes | None
    """None for a line of a thread's file, which has a checksum of its own."""
    body: bytes
    """Empty if it cannot be read."""


def read_payloads(db: SqliteDatabase, thread_id: str, numbers: Collection[int]) -> Mapping[int, Payload]:
    """By number. Commits that do not exist are left out."""
    rows = _select_payloads(db, thread_id, numbers)
    return {row[0]: Payload(row[0], row[1], *db.load_payload(thread_id, row[0], *row[2:])) for row in rows}


def _select_payloads(db: SqliteDatabase, thread_id: str, numbers: Collection[int]) -> list[Any]:
    """Number, checkpoint and payload of some commits of a thread, in order."""
    query = f"SELECT number, checkpoint_id, {db.payload} FROM commits"
    query += " WHERE thread = (SELECT thread FROM threads WHERE thread_id = ?) AND number"
    if len(numbers) == 1:
        return db.execute(f"{query} = ?", (thread_id, *numbers)).fetchall()
    wanted = sorted(numbers)
    if wanted and wanted[-1] - wanted[0] < 2 * len(wanted):  # dense: reading a range is faster than reading by number
        stretch = db.execute(f"{query} BETWEEN ? AND ? ORDER BY number", (thread_id, wanted[0], wanted[-1]))
        chosen = set(wanted)
        return [row for row in stretch if row[0] in chosen]
    rows: list[Any] = []
    for start in range(0, len(wanted), MAX_PARAMETERS):
        part = wanted[start : start + MAX_PARAMETERS]
        marks = ",".join("?" * len(part))
        rows += db.execute(f"{query} IN ({marks}) ORDER BY number", (thread_id, *part)).fetchall()
    return rows


class CommitRow(NamedTuple):
    """A commit without its payload."""

    number: int
    parent: int | None
    status: str
    run_id: str
    timestamp: str
    first_seq: int | None
    """Of its events; None if it has none."""
    events: int | None
    info: CheckpointInfo | None

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.info is None else self.info.checkpoint_id


_COMMIT = "SELECT number, parent, status, run_id, timestamp, first_seq, events FROM commits"


def read_commit_rows(db: SqliteDatabase, thread_id: str, after: int, limit: int | None) -> list[CommitRow]:
    """Those after a number, in order."""
    values = (find_thread(db, thread_id), after, as_limit(limit))
    chosen = "WHERE thread = ? AND number > ? ORDER BY number LIMIT ?"
    rows = db.execute(
        f"{SELECT_INFO} AND c.seq IN (SELECT seq FROM commits {chosen}) ORDER BY c.number DESC", values
    ).fetchall()
    infos = {info.number: info for info in to_infos(db, rows)}
    return [_commit_row(row, infos.get(row[0])) for row in db.execute(f"{_COMMIT} {chosen}", values).fetchall()]


def read_event_rows(db: SqliteDatabase, thread_id: str, after: int | None) -> list[CommitRow]:
    """The commits with events after this seq. Raises CursorExpired, or DamagedCheckpoint if the last is missing."""
    row = db.execute("SELECT thread, last_seq, first_seq FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    thread, last_seq, first_seq = (None, 0, 1) if row is None else row
    if after is not None and max(after, 0) + 1 < first_seq:
        raise CursorExpired(thread_id, after, first_seq)
    seq = first_seq - 1 if after is None else after
    rows = db.execute(
        f"{_COMMIT} WHERE thread = ? AND first_seq IS NOT NULL AND number >= COALESCE((SELECT MAX(number) FROM commits"
        " WHERE thread = ? AND first_seq <= ?), 0) AND first_seq + events > ? ORDER BY number",
        (thread, thread, seq, seq + 1),
    ).fetchall()
    end = rows[-1][5] + rows[-1][6] - 1 if rows else seq
    if max(end, 0) < last_seq and last_seq >= first_seq:
        reason = f"the event log ends at event {end}, but {last_seq} were committed"
        raise DamagedCheckpoint("of its log", reason, thread_id)
    return [_commit_row(row, read_info(db, thread, row[0])) for row in rows]


def _commit_row(row: Any, info: CheckpointInfo | None) -> CommitRow:
    number, parent, status, run_id, timestamp, first_seq, events = row
    return CommitRow(
        number,
        parent,
        status or "",
        to_id(run_id, RUN) or "",
        to_timestamp(timestamp),
        first_seq,
        events,
        info,
    )


# ---------------------------------------------------------------- unpacked


def unpack(thread_id: str, checkpoint_id: str | None, number: int, payload: Payload | None) -> Body:
    """Raises DamagedCheckpoint for a payload that was changed, or lies where another one belongs."""
    name = checkpoint_id or f"of commit {number}"
    if payload is None:
        raise DamagedCheckpoint(name, f"commit {number} is not where it should be", thread_id)
    body = payload.body
    is_sealed = payload.seal is None or (
        type(body) is bytes and seal(thread_id, number, body) == payload.seal[:SEAL_BYTES]
    )
    if not body or type(body) is not bytes or not is_sealed:
        raise DamagedCheckpoint(name, f"commit {number} was changed or damaged in its store", thread_id)
    try:
        return unpack_body(body)
    except msgspec.DecodeError as error:
        raise DamagedCheckpoint(name, f"commit {number} is not what was written: {error}", thread_id) from error


def read_root(db: SqliteDatabase, info: CheckpointInfo) -> bytes:
    """Raises DamagedCheckpoint."""
    payload = read_payloads(db, info.thread_id, [info.number]).get(info.number)
    if payload is not None and to_id(payload.checkpoint_id) != info.checkpoint_id:  # an index leads elsewhere
        payload = None
    root = unpack(info.thread_id, info.checkpoint_id, info.number, payload).root
    if root is NOTHING:
        raise DamagedCheckpoint(info.checkpoint_id, f"commit {info.number} holds no checkpoint", info.thread_id)
    return bytes(root)


def read_stored(db: SqliteDatabase, info: CheckpointInfo | None) -> StoredCheckpoint | None:
    return None if info is None else StoredCheckpoint(info, read_root(db, info))


def read_chunks(db: SqliteDatabase, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
    """The chunks of each commit, by digest. Raises DamagedCheckpoint."""
    chunks = {}
    for number, payload in read_payloads(db, thread_id, [*numbers]).items():
        try:  # the digest of each chunk proves it: the seal of the whole would prove nothing more
            chunks[number] = unpack_chunks(payload.body)
        except msgspec.DecodeError as error:
            name = to_id(payload.checkpoint_id) or f"of commit {number}"
            raise DamagedCheckpoint(name, f"commit {number} is damaged: {error}", thread_id) from error
    return chunks


def read_events(db: SqliteDatabase, thread_id: str, after: int | None) -> list[LoggedEvents]:
    """Raises CursorExpired or DamagedCheckpoint."""
    rows = read_event_rows(db, thread_id, after)
    payloads = read_payloads(db, thread_id, [row.number for row in rows])
    log = []
    for row in rows:
        body = unpack(thread_id, row.checkpoint_id, row.number, payloads.get(row.number))
        events = logged_events(body, row.first_seq or 0, row.events or 0)
        if events is not None:
            fields = {"number": row.number, "run_id": row.run_id, "timestamp": row.timestamp, "info": row.info}
            log.append(msgspec.structs.replace(events, **fields))
    return log


def read_commits(
    db: SqliteDatabase, thread_id: str, after: int = 0, limit: int | None = None, *, with_garbage: bool = False
) -> list[Commit]:
    """As they were committed, or as pruning left them; `with_garbage`: with what is not freed yet. Raises
    DamagedCheckpoint."""
    row = db.execute("SELECT events_dropped_before FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    dropped_before = 0 if row is None else int(row[0])
    rows = read_commit_rows(db, thread_id, after, limit)
    payloads = read_payloads(db, thread_id, [row.number for row in rows])
    commits = []
    for commit in rows:
        body = unpack(thread_id, commit.checkpoint_id, commit.number, payloads.get(commit.number))
        if not with_garbage:
            body = without_events(body) if commit.number < dropped_before else body
            body.root = NOTHING if commit.info is None else body.root
        commits.append(_to_commit(thread_id, commit, body))
    return commits


def _to_commit(thread_id: str, row: CommitRow, body: Body) -> Commit:
    return Commit(
        Lease(thread_id, "", 0),
        row.number,
        row.info,
        None if body.root is NOTHING else bytes(body.root),
        None if row.first_seq is None else logged_events(body, row.first_seq, row.events or 0),
        status=row.status,
        run_id=row.run_id,
        timestamp=row.timestamp,
        parent=row.parent,
        chunks={digest: bytes(chunk) for digest, chunk in body.chunks.items()},
        dropped=body.dropped,
        carried=body.carried,
    )
