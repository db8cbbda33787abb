"""One commit in the tables: check it, insert its row, update its thread, settle what it consumed, and mark
what it prunes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from perdure.errors import DamagedCheckpoint, ThreadConflict
from perdure.records import Commit, PendingRequest
from perdure.stores.packing import RUN, column_sum, consumed_seal, from_id, from_time, from_timestamp, pack_body, seal
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import ThreadRow, is_collection_due, prove_lease

BLOCK = 64
"""Commits in a block of `blocks`."""
MAX_CACHED_WORKFLOWS = 1000

COLUMNS = (
    "thread, number, checkpoint_id, workflow, iteration, parent, previous, timestamp, run_id, status, first_seq, events"
)
"""The columns of a commit that lists show."""

INSERT_BLOCKS = f"""
INSERT OR IGNORE INTO blocks SELECT DISTINCT workflow, seq / {BLOCK} FROM commits WHERE checkpoint_id IS NOT NULL
"""


def check_commit(db: SqliteDatabase, commit: Commit) -> ThreadRow:
    """Raises ThreadConflict unless the owner makes the next commit, after a checkpoint that exists."""
    thread = prove_lease(db, commit.lease)
    if commit.number != thread.number + 1:
        raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", f"commit {thread.number}")
    if commit.parent is not None and commit.parent != thread.head:
        query = "SELECT 1 FROM commits WHERE thread = ? AND number = ? AND checkpoint_id IS NOT NULL"
        if db.execute(query, (thread.thread, commit.parent)).fetchone() is None:
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
    return thread


def insert_commit(
    db: SqliteDatabase, thread: ThreadRow, commit: Commit, payload: tuple[object, object], seq: int | None = None
) -> None:
    """Insert the commit, move its thread to it, settle the deliveries and items that it consumed, and replace the
    pending requests. `payload` and `seq` are those of `insert_row`."""
    row, events, info = thread.thread, commit.events, commit.info
    seq, workflow, timestamp = insert_row(db, row, commit, payload, seq)
    last_seq = thread.last_seq if events is None else max(thread.last_seq, events.first_seq + events.count - 1)
    changes = "number = ?, moved = ?, status = ?, updated_at = ?, last_seq = ?"
    values: tuple[object, ...] = (commit.number, seq, commit.status, timestamp, last_seq)
    if info is not None:
        changes += ", head = ?, workflow = ?, due_at = ?"
        values += (commit.number, workflow, None if commit.due_at is None else from_time(commit.due_at))
        block = seq // BLOCK
        if workflow is not None and db.blocks.get(workflow) != block:
            db.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?)", (workflow, block))
            db.blocks[workflow] = block
        if commit.lease.thread_id not in db.without_journal:
            unsettled = ",".join([str(int(delivery_id)) for delivery_id in commit.unsettled])
            db.execute(f"DELETE FROM journal WHERE thread = ? AND delivery_id NOT IN ({unsettled})", (row,))
    db.execute(f"UPDATE threads SET {changes} WHERE thread = ?", (*values, row))
    for item_id in commit.consumed:
        sealed = consumed_seal(commit.lease.thread_id, item_id)
        db.execute("UPDATE inbox SET body = NULL, seal = ? WHERE thread = ? AND item_id = ?", (sealed, row, item_id))
    if commit.requests is not None:
        replace_requests(db, row, commit.requests)


def insert_row(
    db: SqliteDatabase, thread: int, commit: Commit, payload: tuple[object, object], seq: int | None = None
) -> tuple[int, int | None, int | str]:
    """Insert the commit's row alone; its seq, workflow and timestamp. A checkpoint takes its id from an older one that
    has it.

    `payload`: seal and body, or where the body is in the thread's file. The seal is completed by the columns' sum.
    `seq`: its place in the order of all commits, instead of the last.
    """
    info, events, timestamp, workflow = commit.info, commit.events, from_timestamp(commit.timestamp), None
    if info is not None:
        workflow = db.workflows.get(info.workflow_name) or workflow_row(db, info.workflow_name)
    columns = (
        thread,
        commit.number,
        None if info is None else from_id(info.checkpoint_id),
        workflow,
        None if info is None else info.iteration_count,
        commit.parent,
        None if info is None or commit.parent is not None else info.previous_checkpoint_id,
        timestamp,
        from_id(commit.run_id, RUN),
        commit.status,
        None if events is None else events.first_seq,
        None if events is None else events.count,
    )
    place, body = payload
    row = (seq, *columns, place + column_sum(columns) if isinstance(place, bytes) else place, body)
    query = f"INSERT INTO commits (seq, {COLUMNS}, {db.payload}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    try:
        seq = db.execute(query, row).lastrowid
    except sqlite3.IntegrityError:
        if info is None or not _release_id(db, info.checkpoint_id, thread):
            raise
        seq = db.execute(query, row).lastrowid
    return seq or 0, workflow, timestamp


def replace_requests(db: SqliteDatabase, thread: int, requests: Sequence[PendingRequest]) -> None:
    pending = {request.request_id for request in requests}
    rows = db.execute("SELECT request_id FROM requests WHERE thread = ?", (thread,)).fetchall()
    answered = [(thread, request_id) for (request_id,) in rows if request_id not in pending]
    db.executemany("DELETE FROM requests WHERE thread = ? AND request_id = ?", answered)
    for request in requests:
        times = from_time(request.asked_at), None if request.deadline is None else from_time(request.deadline)
        row = (thread, request.request_id, request.executor_id, *times, request.assignee)
        db.execute("INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?)", row)


def workflow_row(db: SqliteDatabase, name: str) -> int:
    workflow = db.workflows.get(name)
    if workflow is None:
        db.execute("INSERT OR IGNORE INTO workflows (name) VALUES (?)", (name,))
        (row,) = db.execute("SELECT workflow FROM workflows WHERE name = ?", (name,)).fetchone()
        workflow = int(row)
        if len(db.workflows) > MAX_CACHED_WORKFLOWS:
            db.workflows.clear()
        db.workflows[name] = workflow
    return workflow


def _release_id(db: SqliteDatabase, checkpoint_id: str, thread: int) -> bool:
    """Take the id from the checkpoint that has it, for a commit of `thread`. False if no checkpoint has it."""
    key = from_id(checkpoint_id)
    row = db.execute("SELECT thread, number FROM commits WHERE checkpoint_id = ?", (key,)).fetchone()
    if row is None:
        return False
    db.execute("UPDATE commits SET checkpoint_id = NULL WHERE checkpoint_id = ?", (key,))
    db.execute("DELETE FROM pins WHERE thread = ? AND number = ?", row)
    if row[0] != thread:  # in its own thread the new commit becomes the head
        move_head(db, *row)
    return True


def move_head(db: SqliteDatabase, thread: int, number: int) -> None:
    """If `number` was the head and has lost its checkpoint, the newest checkpoint that is left becomes the head."""
    newest = "SELECT MAX(number) FROM commits c WHERE c.thread = threads.thread AND checkpoint_id IS NOT NULL"
    query = f"UPDATE threads SET due_at = NULL, head = ({newest}) WHERE thread = ? AND head = ?"
    if db.execute(query, (thread, number)).rowcount:
        db.execute("DELETE FROM journal WHERE thread = ?", (thread,))
        db.execute("DELETE FROM requests WHERE thread = ?", (thread,))


def newest_checkpoint(db: SqliteDatabase, thread: int) -> int | None:
    """The number of the newest checkpoint, from the commits rather than from the thread's row."""
    query = "SELECT number FROM commits WHERE thread = ? AND checkpoint_id IS NOT NULL ORDER BY number DESC LIMIT 1"
    row = db.execute(query, (thread,)).fetchone()
    return None if row is None else int(row[0])


def check_thread_row(db: SqliteDatabase, thread_id: str, thread: ThreadRow, newest: int | None) -> None:
    """Raises DamagedCheckpoint if the thread's row and its commits disagree."""
    (last,) = db.execute("SELECT MAX(number) FROM commits WHERE thread = ?", (thread.thread,)).fetchone()
    if thread.head != newest or thread.number < (last or 0):
        reason = (
            f"the thread's row names commit {thread.number} with its head at {thread.head}, but its commits end at "
            f"{last} with a head at {newest}"
        )
        raise DamagedCheckpoint("of its head", reason, thread_id)


# ---------------------------------------------------------------- pruned
# A commit that prunes only marks rows. `history.py` frees the space, for which it reads all commits of the thread.


def prune_with_commit(db: SqliteDatabase, thread: ThreadRow, commit: Commit) -> bool:
    """Prune the checkpoints and events that the commit names. Whether garbage is to be collected now.

    Pinned checkpoints stay, and so does the head.
    """
    if not commit.prunes and not commit.prunes_events_before:
        return False
    head = thread.head if commit.info is None else commit.number
    for number in commit.prunes:
        if number != head:
            _prune_checkpoint(db, thread.thread, number)
    if commit.prunes_events_before:
        drop_events(db, thread.thread, commit.prunes_events_before)
    return is_collection_due(db, commit.lease.thread_id)


def _prune_checkpoint(db: SqliteDatabase, thread: int, number: int) -> None:
    pin = "SELECT 1 FROM pins p WHERE p.thread = c.thread AND p.number = c.number"
    query = f"SELECT seq, {db.body_bytes} FROM commits c WHERE thread = ? AND number = ? AND checkpoint_id IS NOT NULL"
    row = db.execute(f"{query} AND NOT EXISTS ({pin})", (thread, number)).fetchone()
    if row is not None:
        seq, size = row
        db.execute("UPDATE commits SET checkpoint_id = NULL WHERE seq = ?", (seq,))
        changes = "garbage = garbage + 1, garbage_bytes = garbage_bytes + ?"
        db.execute(f"UPDATE threads SET {changes} WHERE thread = ?", (size, thread))


def drop_events(db: SqliteDatabase, thread: int, before: int) -> None:
    """Drop the events of all commits before this number, but never those of a commit to come."""
    (last,) = db.execute("SELECT number FROM threads WHERE thread = ?", (thread,)).fetchone()
    before = min(before, last + 1)
    query = "SELECT first_seq FROM commits WHERE thread = ? AND number >= ? AND first_seq IS NOT NULL"
    row = db.execute(f"{query} ORDER BY number LIMIT 1", (thread, before)).fetchone()
    first = "last_seq + 1" if row is None else str(int(row[0]))
    start = "SELECT t.events_dropped_before FROM threads t WHERE t.thread = c.thread"
    query = f"SELECT COUNT(*), COALESCE(SUM({db.body_bytes}), 0) FROM commits c WHERE thread = ? AND number < ?"
    query += f" AND number >= ({start}) AND first_seq IS NOT NULL"
    count, size = db.execute(query, (thread, before)).fetchone()
    changes = f"first_seq = MAX(first_seq, {first}), events_dropped_before = MAX(events_dropped_before, ?)"
    changes += ", garbage = garbage + ?, garbage_bytes = garbage_bytes + ?"
    db.execute(f"UPDATE threads SET {changes} WHERE thread = ?", (before, count, size, thread))


def read_dropped_before(db: SqliteDatabase, thread: int | None) -> int:
    """The commit before which events are dropped; 0 for an unknown thread."""
    row = db.execute("SELECT events_dropped_before FROM threads WHERE thread = ?", (thread,)).fetchone()
    return 0 if row is None else int(row[0])


def replace_commit(db: SqliteDatabase, thread: int, commit: Commit) -> None:
    """Put in place of a commit what pruning left of it."""
    place = (thread, commit.number)
    changes = "parent = ?"
    if commit.info is None:
        changes += ", checkpoint_id = NULL"
    if commit.events is None:
        changes += ", first_seq = NULL, events = NULL"
    db.execute(f"UPDATE commits SET {changes} WHERE thread = ? AND number = ?", (commit.parent, *place))
    columns = db.execute(f"SELECT {COLUMNS} FROM commits WHERE thread = ? AND number = ?", place).fetchone()
    body = pack_body(commit)
    sealed = seal(commit.lease.thread_id, commit.number, body) + column_sum(columns)
    db.execute("UPDATE commits SET seal = ?, body = ? WHERE thread = ? AND number = ?", (sealed, body, *place))


def move_to_end(db: SqliteDatabase, thread: int) -> None:
    """Make the thread the one that moved last."""
    seq = newest_seq(db) + 1
    reserve_seq(db, seq)
    db.execute("UPDATE threads SET moved = ? WHERE thread = ?", (seq, thread))


def newest_seq(db: SqliteDatabase) -> int:
    (seq,) = db.execute("SELECT COALESCE(MAX(seq), 0) FROM commits").fetchone()
    return int(seq)


def reserve_seq(db: SqliteDatabase, seq: int) -> None:
    """Keep a deleted newest seq from being used again: `moved` refers to it. The row of thread 0 holds it."""
    if newest_seq(db) < seq:
        db.execute("DELETE FROM commits WHERE thread = 0")
        db.execute("INSERT INTO commits (seq, thread, number) VALUES (?, 0, ?)", (seq, seq))
