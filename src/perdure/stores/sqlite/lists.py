"""Lists of threads, requests and checkpoints, and finding one of them. No payload is read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from itertools import islice
from typing import Any, Unpack

from perdure.errors import CheckpointNotFound, DamagedCheckpoint, ThreadNotFound
from perdure.names import is_utf8
from perdure.records import CheckpointInfo, PendingRequest, ThreadInfo
from perdure.stores import packing
from perdure.stores.packing import RUN, first_after, from_id, from_time, to_id, to_time, to_timestamp
from perdure.stores.sqlite.commits import BLOCK, newest_checkpoint
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import is_process_dead

HAS_CONTENT = """
(t.number > 0 OR EXISTS (SELECT 1 FROM inbox i WHERE i.thread = t.thread)
  OR EXISTS (SELECT 1 FROM journal j WHERE j.thread = t.thread))
"""
"""Of a row `t` of `threads`: a claim alone inserts an empty one."""

_THREAD = """
SELECT t.thread_id, w.name, t.number, t.status, t.updated_at,
  (SELECT c.checkpoint_id FROM commits c WHERE c.thread = t.thread AND c.number = t.head), t.due_at, t.owner, t.process
FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow
"""

SELECT_INFO = """
SELECT c.thread, c.number, c.checkpoint_id, t.thread_id, c.workflow, c.iteration, c.parent, c.previous, c.timestamp,
  c.run_id, c.status, EXISTS (SELECT 1 FROM pins p WHERE p.thread = c.thread AND p.number = c.number)
FROM commits c JOIN threads t ON t.thread = c.thread
WHERE c.checkpoint_id IS NOT NULL
"""
_INFO_FROM_BLOCKS = SELECT_INFO.replace(
    "FROM commits c",
    f"FROM blocks b CROSS JOIN commits c ON c.seq BETWEEN {BLOCK} * b.block AND {BLOCK} * b.block + {BLOCK - 1}",
)
"""The rows of one workflow, from the blocks that hold some. CROSS JOIN fixes the order: SQLite need not sort."""
_WORKFLOW = "(SELECT workflow FROM workflows WHERE name = ?)"
LAST_SEQ = 2**62
"""Higher than every seq."""


def _match_threads(
    statuses: Collection[str] | None = None, **match: Unpack[packing.ThreadMatch]
) -> tuple[str, list[Any]]:
    """For a WHERE clause over threads `t` with workflows `w`: what to append, and its parameters."""
    query, values = _match_prefix(match.get("prefix"))
    for column, value in (("w.name", match.get("workflow_name")), ("t.thread_id", match.get("thread_id"))):
        if value is not None:
            query, values = f"{query} AND {column} = ?", [*values, value]
    if statuses is not None:
        marks = ",".join("?" * len(statuses))
        query, values = f"{query} AND t.status IN ({marks})", [*values, *statuses]
    return query, values


def _match_prefix(prefix: str | None) -> tuple[str, list[str]]:
    """As a range, which the index of ids answers. LIKE would treat % and _ as wildcards, and ignore case."""
    if not prefix:
        return "", []
    if not is_utf8(prefix):  # no stored text begins with it
        return " AND 0", []
    end = first_after(prefix)
    if end is None:
        return " AND t.thread_id >= ?", [prefix]
    return " AND t.thread_id >= ? AND t.thread_id < ?", [prefix, end]


# ---------------------------------------------------------------- threads and requests


def list_threads(
    db: SqliteDatabase,
    *,
    statuses: Collection[str] | None = None,
    limit: int | None = None,
    before: str | None = None,
    **match: Unpack[packing.ThreadMatch],
) -> list[ThreadInfo]:
    """Raises ThreadNotFound for an unknown `before`."""
    condition, values = _match_threads(statuses, **match)
    if before is not None:
        row = db.execute("SELECT moved FROM threads WHERE thread_id = ?", (before,)).fetchone()
        if row is None:
            raise ThreadNotFound(before)
        condition += " AND t.moved < ?"
        values.append(row[0])
    # The inner query sorts row numbers only: the heads of all threads need not be looked up for that.
    newest = "SELECT t.thread FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow"
    newest += f" WHERE t.number > 0{condition} ORDER BY t.moved DESC LIMIT COALESCE(?, -1)"
    rows = db.execute(f"{_THREAD} WHERE t.thread IN ({newest}) ORDER BY t.moved", (*values, limit))
    return [_thread_info(db, row) for row in rows.fetchall()]


def list_due_threads(db: SqliteDatabase, now: datetime, limit: int | None = None) -> list[ThreadInfo]:
    """Due threads without a living owner, the most overdue first."""
    rows = db.execute(f"{_THREAD} WHERE t.due_at <= ? ORDER BY t.due_at, t.thread_id", (from_time(now),))
    free = (info for row in rows if (info := _thread_info(db, row)).run_id is None)
    return list(islice(free, limit))


def list_thread_ids(
    db: SqliteDatabase, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
) -> list[str]:
    condition, values = _match_prefix(prefix)
    if after is not None:
        condition += " AND t.thread_id > ?"
        values.append(after)
    query = f"SELECT thread_id FROM threads t WHERE {HAS_CONTENT}{condition} ORDER BY thread_id LIMIT COALESCE(?, -1)"
    return [thread_id for (thread_id,) in db.execute(query, (*values, limit))]


def list_requests(
    db: SqliteDatabase, *, limit: int | None = None, **match: Unpack[packing.ThreadMatch]
) -> list[PendingRequest]:
    condition, values = _match_threads(**match)
    # CROSS JOIN fixes the order: with a prefix, first the threads, then their requests.
    tables = "requests r JOIN threads t" if not match.get("prefix") else "threads t CROSS JOIN requests r"
    source = f"{tables} ON t.thread = r.thread LEFT JOIN workflows w ON w.workflow = t.workflow WHERE 1{condition}"
    query = f"SELECT t.thread_id, request_id, executor_id, asked_at, deadline, assignee, w.name FROM {source}"
    query += " ORDER BY r.asked_at, t.thread_id, r.request_id LIMIT COALESCE(?, -1)"
    rows = db.execute(query, (*values, limit))
    requests = []
    for thread_id, request_id, executor_id, asked_at, deadline, assignee, name in rows:
        times = to_time(asked_at), None if deadline is None else to_time(deadline)
        requests.append(PendingRequest(thread_id, request_id, executor_id, *times, assignee, name or ""))
    return requests


def read_last_seq(db: SqliteDatabase, thread_id: str) -> int:
    """Of the thread's events; 0 if it has none."""
    row = db.execute("SELECT last_seq FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return 0 if row is None else int(row[0])


def _thread_info(db: SqliteDatabase, row: Any) -> ThreadInfo:
    thread_id, name, number, status, updated_at, checkpoint_id, due_at, owner, process = row
    position = (thread_id, name or "", number, status, to_timestamp(updated_at), to_id(checkpoint_id))
    due = None if due_at is None else to_time(due_at)
    return ThreadInfo(*position, due, None if owner is None or is_process_dead(db, process) else owner)


# ---------------------------------------------------------------- checkpoints


def list_checkpoints(
    db: SqliteDatabase,
    *,
    workflow_name: str | None = None,
    thread_id: str | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> list[CheckpointInfo]:
    """Oldest first. Raises CheckpointNotFound for an unknown `before`."""
    query, order, condition, values = SELECT_INFO, "c.seq DESC", "", list[Any]()
    last = LAST_SEQ
    if thread_id is not None:
        condition += " AND c.thread = (SELECT thread FROM threads WHERE thread_id = ?)"
        values.append(thread_id)
        order = "c.number DESC"  # numbers have the order of seqs, and an index
    if before is not None:
        row = db.execute("SELECT seq FROM commits WHERE checkpoint_id = ?", (from_id(before),)).fetchone()
        if row is None:
            raise CheckpointNotFound(before)
        last = row[0]
        condition += " AND c.seq < ?"
        values.append(last)
    if workflow_name is not None:
        condition += f" AND c.workflow = {_WORKFLOW}"
        values.append(workflow_name)
    if workflow_name is not None and thread_id is None:
        query, order = _INFO_FROM_BLOCKS, "b.block DESC, c.seq DESC"
        condition += f" AND b.workflow = {_WORKFLOW} AND b.block <= ?"
        values += [workflow_name, last // BLOCK]
    rows = db.execute(f"{query} {condition} ORDER BY {order} LIMIT COALESCE(?, -1)", (*values, limit))
    return to_infos(db, rows.fetchall())[::-1]


def to_infos(db: SqliteDatabase, rows: list[Any]) -> list[CheckpointInfo]:
    """Each with the id of its parent, which is mostly among the rows. Shared values are converted once."""
    ids = {row[:2]: row[2].hex() if type(row[2]) is bytes else row[2] for row in rows}
    names: dict[int | None, str] = {}
    runs: dict[Any, str | None] = {}
    infos = []
    for thread, number, _, thread_id, workflow, iteration, parent, previous, time, run, status, pinned in rows:
        if parent is not None:
            place = (thread, parent)
            if place not in ids:
                ids[place] = to_id(_nearest_id(db, thread, parent))
            previous = ids[place] or previous
        if run not in runs:
            runs[run] = to_id(run, RUN) or None
        if workflow not in names:
            row = db.execute("SELECT name FROM workflows WHERE workflow = ?", (workflow,)).fetchone()
            names[workflow] = "" if row is None else row[0]
        position = (ids[thread, number], thread_id, names[workflow], number, iteration, previous)
        infos.append(CheckpointInfo(*position, to_timestamp(time), runs[run], status, pinned == 1))
    return infos


def _nearest_id(db: SqliteDatabase, thread: int, number: int | None) -> Any:
    """The id of that checkpoint, or of its nearest ancestor that is left."""
    while number is not None:
        query = "SELECT checkpoint_id, parent FROM commits WHERE thread = ? AND number = ?"
        row = db.execute(query, (thread, number)).fetchone()
        if row is None or row[0] is not None:
            return row and row[0]
        number = row[1]
    return None


def find_info(db: SqliteDatabase, checkpoint_id: str) -> CheckpointInfo | None:
    """Raises DamagedCheckpoint."""
    row = db.execute(f"{SELECT_INFO} AND c.checkpoint_id = ?", (from_id(checkpoint_id),)).fetchone()
    if row is None:
        return None
    (info,) = to_infos(db, [row])
    if info.checkpoint_id != checkpoint_id:
        raise DamagedCheckpoint(checkpoint_id, f"its index leads to {info.checkpoint_id!r}", info.thread_id)
    return info


def read_info(db: SqliteDatabase, thread: int | None, number: int | None) -> CheckpointInfo | None:
    row = db.execute(f"{SELECT_INFO} AND c.thread = ? AND c.number = ?", (thread, number)).fetchone()
    return None if row is None else to_infos(db, [row])[0]


def read_head(db: SqliteDatabase, thread_id: str) -> CheckpointInfo | None:
    """Raises DamagedCheckpoint if the thread's row names another head than its commits."""
    row = db.execute("SELECT thread, head FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    if row is None:
        return None
    newest = newest_checkpoint(db, row[0])
    info = None if newest is None else read_info(db, *row)
    if newest != row[1] or (newest is not None and info is None):
        reason = f"its row names commit {row[1]} as its head, but its newest checkpoint is that of commit {newest}"
        raise DamagedCheckpoint("of its head", reason, thread_id)
    return info


def find_position(db: SqliteDatabase, checkpoint_id: str) -> tuple[int, str, int]:
    """Row and id of the checkpoint's thread, and its number. Raises CheckpointNotFound."""
    query = "SELECT c.thread, thread_id, c.number FROM commits c JOIN threads USING (thread) WHERE checkpoint_id = ?"
    row: tuple[int, str, int] | None = db.execute(query, (from_id(checkpoint_id),)).fetchone()
    if row is None:
        raise CheckpointNotFound(checkpoint_id)
    return row
