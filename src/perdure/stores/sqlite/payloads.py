"""Commits with their payloads: where these are kept, how they are proved, and what is unpacked from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from perdure.errors import CursorExpired, DamagedCheckpoint
from perdure.records import CheckpointInfo, Commit, Lease, LoggedEvents, StoredCheckpoint
from perdure.stores import packing
from perdure.stores.garbage import without_events
from perdure.stores.sqlite.commits import read_dropped_before
from perdure.stores.sqlite.lists import SELECT_INFO, read_info, to_infos
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import find_thread

MAX_PARAMETERS = 500
"""Numbers in one query: older versions of SQLite take at most 999 parameters."""


class Payload(NamedTuple):
    """The packed payload of a commit, not yet proved."""

    checkpoint_id: Any
    """As its column has it."""
    seal: bytes | None
    """None for a line of a thread's file, which has a checksum of its own."""
    body: bytes
    """Empty if it cannot be read."""


def read_payloads(db: SqliteDatabase, thread_id: str, numbers: Collection[int]) -> Mapping[int, Payload]:
    """By number. Commits that do not exist are left out."""
    rows = _select_payloads(db, thread_id, numbers)
    load = db.load_body
    if load is None:
        return {row[0]: Payload(row[1], row[2] or b"", row[3] or b"") for row in rows}
    return {row[0]: Payload(row[1], None, load(thread_id, row[0], row[2], row[3])) for row in rows}


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


_COMMIT = "SELECT number, parent, status, run_id, timestamp, first_seq, events FROM commits"


def read_commit_rows(db: SqliteDatabase, thread_id: str, after: int = 0, limit: int | None = None) -> list[Commit]:
    """The commits after a number, in order, without their payloads."""
    values = (find_thread(db, thread_id), after, limit)
    chosen = "WHERE thread = ? AND number > ? ORDER BY number LIMIT COALESCE(?, -1)"
    query = f"{SELECT_INFO} AND c.seq IN (SELECT seq FROM commits {chosen}) ORDER BY c.number DESC"
    infos = {info.number: info for info in to_infos(db, db.execute(query, values).fetchall())}
    rows = db.execute(f"{_COMMIT} {chosen}", values).fetchall()
    return [_commit_of_row(thread_id, row, infos.get(row[0])) for row in rows]


def read_event_rows(db: SqliteDatabase, thread_id: str, after: int | None) -> list[Commit]:
    """The commits with events after this seq. Raises CursorExpired, or DamagedCheckpoint if the last is missing."""
    row = db.execute("SELECT thread, last_seq, first_seq FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    thread, last_seq, first_seq = (None, 0, 1) if row is None else row
    if after is not None and max(after, 0) + 1 < first_seq:
        raise CursorExpired(thread_id, after, first_seq)
    seq = first_seq - 1 if after is None else after
    start = "SELECT MAX(number) FROM commits WHERE thread = ? AND first_seq <= ?"
    query = f"{_COMMIT} WHERE thread = ? AND first_seq IS NOT NULL AND number >= COALESCE(({start}), 0)"
    rows = db.execute(f"{query} AND first_seq + events > ? ORDER BY number", (thread, thread, seq, seq + 1)).fetchall()
    end = rows[-1][5] + rows[-1][6] - 1 if rows else seq
    if max(end, 0) < last_seq and last_seq >= first_seq:
        reason = f"the event log ends at event {end}, but {last_seq} were committed"
        raise DamagedCheckpoint("of its log", reason, thread_id)
    return [_commit_of_row(thread_id, row, read_info(db, thread, row[0])) for row in rows]


def _commit_of_row(thread_id: str, row: Any, info: CheckpointInfo | None) -> Commit:
    number, parent, status, run_id, timestamp, first_seq, events = row
    log = None if first_seq is None else LoggedEvents(first_seq, events or 0, b"")
    of_run = (status or "", packing.to_id(run_id, packing.RUN) or "", packing.to_timestamp(timestamp))
    return Commit(Lease(thread_id, "", 0), number, info, None, log, (), (), *of_run, parent)


# ---------------------------------------------------------------- unpacked


def unpack(thread_id: str, checkpoint_id: str | None, number: int, payload: Payload | None) -> packing.Body:
    """Raises DamagedCheckpoint for a payload that was changed, or lies where another one belongs."""
    name = checkpoint_id or f"of commit {number}"
    if payload is None:
        raise DamagedCheckpoint(name, f"commit {number} is not where it should be", thread_id)
    body = payload.body
    is_whole = type(body) is bytes and bool(body)
    if not is_whole or (
        payload.seal is not None and packing.seal(thread_id, number, body) != payload.seal[: packing.SEAL_BYTES]
    ):
        raise DamagedCheckpoint(name, f"commit {number} was changed or damaged in its store", thread_id)
    try:
        return packing.unpack_body(body)
    except msgspec.DecodeError as error:
        raise DamagedCheckpoint(name, f"commit {number} is not what was written: {error}", thread_id) from error


def read_root(db: SqliteDatabase, info: CheckpointInfo) -> bytes:
    """Raises DamagedCheckpoint."""
    payload = read_payloads(db, info.thread_id, [info.number]).get(info.number)
    if payload is not None and packing.to_id(payload.checkpoint_id) != info.checkpoint_id:  # an index leads elsewhere
        payload = None
    root = unpack(info.thread_id, info.checkpoint_id, info.number, payload).root
    if root is packing.NOTHING:
        raise DamagedCheckpoint(info.checkpoint_id, f"commit {info.number} holds no checkpoint", info.thread_id)
    return bytes(root)


def read_stored(db: SqliteDatabase, info: CheckpointInfo | None) -> StoredCheckpoint | None:
    return None if info is None else StoredCheckpoint(info, read_root(db, info))


def read_chunks(db: SqliteDatabase, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
    """The chunks of each commit, by digest. Raises DamagedCheckpoint."""
    chunks = {}
    for number, payload in read_payloads(db, thread_id, [*numbers]).items():
        try:  # the digest of each chunk proves it: the seal of the whole would prove nothing more
            chunks[number] = packing.unpack_chunks(payload.body)
        except msgspec.DecodeError as error:
            name = packing.to_id(payload.checkpoint_id) or f"of commit {number}"
            raise DamagedCheckpoint(name, f"commit {number} is damaged: {error}", thread_id) from error
    return chunks


def read_events(db: SqliteDatabase, thread_id: str, seq: int | None) -> list[LoggedEvents]:
    """Raises CursorExpired or DamagedCheckpoint."""
    log = []
    for commit, body in _read_bodies(db, thread_id, read_event_rows(db, thread_id, seq)):
        events = packing.with_body(commit, body).events
        if events is not None:
            fields = {name: getattr(commit, name) for name in ("number", "run_id", "timestamp", "info")}
            log.append(msgspec.structs.replace(events, **fields))
    return log


def read_commits(
    db: SqliteDatabase, thread_id: str, *, after: int = 0, limit: int | None = None, with_garbage: bool = False
) -> list[Commit]:
    """As they were committed, or as pruning left them; `with_garbage`: with what is not freed yet. Raises
    DamagedCheckpoint."""
    dropped_before, commits = read_dropped_before(db, find_thread(db, thread_id)), []
    for row, body in _read_bodies(db, thread_id, read_commit_rows(db, thread_id, after, limit)):
        commit = packing.with_body(row, body)
        if not with_garbage:
            commit = without_events(commit) if commit.number < dropped_before else commit
            commit = msgspec.structs.replace(commit, root=None) if commit.info is None else commit
        commits.append(commit)
    return commits


def _read_bodies(db: SqliteDatabase, thread_id: str, commits: list[Commit]) -> Iterator[tuple[Commit, packing.Body]]:
    """Each commit with its body. Raises DamagedCheckpoint."""
    payloads = read_payloads(db, thread_id, [commit.number for commit in commits])
    for commit in commits:
        checkpoint_id = None if commit.info is None else commit.info.checkpoint_id
        yield commit, unpack(thread_id, checkpoint_id, commit.number, payloads.get(commit.number))
