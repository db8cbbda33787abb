"""What one commit does to the tables: check it, insert its row, update its thread, settle what it consumed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.errors import DamagedCheckpoint, ThreadConflict
from perdure.records import Commit, PendingRequest
from perdure.stores.packing import RUN, column_sum, consumed_seal, from_id, from_time, from_timestamp
from perdure.stores.sqlite.owners import ThreadRow, prove_lease
from perdure.stores.sqlite.schema import SqliteDatabase

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
        row = db.execute(
            "SELECT 1 FROM commits WHERE thread = ? AND number = ? AND checkpoint_id IS NOT NULL",
            (thread.thread, commit.parent),
        ).fetchone()
        if row is None:
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
    return thread


class CommitColumns(NamedTuple):
    """The values of `COLUMNS`."""

    thread: int
    number: int
    checkpoint_id: bytes | str | None
    workflow: int | None
    iteration: int | None
    parent: int | None
    previous: str | None
    timestamp: int | str
    run_id: bytes | str | None
    status: str
    first_seq: int | None
    events: int | None


def to_columns(db: SqliteDatabase, thread: int, commit: Commit) -> CommitColumns:
    info, events = commit.info, commit.events
    return CommitColumns(
        thread,
        commit.number,
        None if info is None else from_id(info.checkpoint_id),
        None if info is None else workflow_row(db, info.workflow_name),
        None if info is None else info.iteration_count,
        commit.parent,
        None if info is None or commit.parent is not None else info.previous_checkpoint_id,
        from_timestamp(commit.timestamp),
        from_id(commit.run_id, RUN),
        commit.status,
        None if events is None else events.first_seq,
        None if events is None else events.count,
    )


def insert_commit(db: SqliteDatabase, commit: Commit, columns: CommitColumns, seal: bytes, body: bytes) -> int:
    """Insert the row, with its payload; its seq. A checkpoint takes its id from an older one that has it."""
    return insert_row(db, commit, columns, "seal, body", (seal + column_sum(tuple(columns)), body))


def insert_row(
    db: SqliteDatabase, commit: Commit, columns: CommitColumns, names: str, payload: tuple[object, object]
) -> int:
    """`names`: the two columns of the payload."""
    query = f"INSERT INTO commits ({COLUMNS}, {names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    row = (*columns, *payload)
    try:
        return db.execute(query, row).lastrowid or 0
    except sqlite3.IntegrityError:
        if commit.info is None or not _release_id(db, commit.info.checkpoint_id, columns.thread):
            raise
    return db.execute(query, row).lastrowid or 0


def update_thread(db: SqliteDatabase, thread: ThreadRow, commit: Commit, columns: CommitColumns, seq: int) -> None:
    """Move the thread to its new commit, and to its new head if the commit has a checkpoint."""
    events, workflow = commit.events, columns.workflow
    last_seq = thread.last_seq if events is None else max(thread.last_seq, events.first_seq + events.count - 1)
    if workflow is None:
        db.execute(
            "UPDATE threads SET number = ?, moved = ?, status = ?, updated_at = ?, last_seq = ? WHERE thread = ?",
            (commit.number, seq, commit.status, columns.timestamp, last_seq, thread.thread),
        )
        return
    due_at = None if commit.due_at is None else from_time(commit.due_at)
    db.execute(
        "UPDATE threads SET number = ?, head = ?, moved = ?, status = ?, updated_at = ?, last_seq = ?,"
        " workflow = ?, due_at = ? WHERE thread = ?",
        (
            commit.number,
            commit.number,
            seq,
            commit.status,
            columns.timestamp,
            last_seq,
            workflow,
            due_at,
            thread.thread,
        ),
    )
    block = seq // BLOCK
    if db.blocks.get(workflow) != block:
        db.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?)", (workflow, block))
        db.blocks[workflow] = block


def settle(db: SqliteDatabase, thread: int, commit: Commit) -> None:
    """Delete the journal of settled deliveries, mark inbox items as consumed, and replace the pending requests."""
    if commit.info is not None and commit.lease.thread_id not in db.without_journal:
        unsettled = ",".join([str(int(delivery_id)) for delivery_id in commit.unsettled])
        db.execute(f"DELETE FROM journal WHERE thread = ? AND delivery_id NOT IN ({unsettled})", (thread,))
    for item_id in commit.consumed:
        sealed = consumed_seal(commit.lease.thread_id, item_id)
        db.execute("UPDATE inbox SET body = NULL, seal = ? WHERE thread = ? AND item_id = ?", (sealed, thread, item_id))
    if commit.requests is not None:
        replace_requests(db, thread, commit.requests)


def replace_requests(db: SqliteDatabase, thread: int, requests: Sequence[PendingRequest]) -> None:
    pending = {request.request_id for request in requests}
    rows = db.execute("SELECT request_id FROM requests WHERE thread = ?", (thread,)).fetchall()
    answered = [(thread, request_id) for (request_id,) in rows if request_id not in pending]
    db.executemany("DELETE FROM requests WHERE thread = ? AND request_id = ?", answered)
    db.executemany(
        "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                thread,
                request.request_id,
                request.executor_id,
                from_time(request.asked_at),
                None if request.deadline is None else from_time(request.deadline),
                request.assignee,
            )
            for request in requests
        ],
    )


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
    is_head = db.execute("SELECT 1 FROM threads WHERE thread = ? AND head = ?", (thread, number)).fetchone()
    if is_head is None:
        return
    db.execute(
        "UPDATE threads SET due_at = NULL, head = (SELECT MAX(number) FROM commits"
        " WHERE thread = ? AND checkpoint_id IS NOT NULL) WHERE thread = ?",
        (thread, thread),
    )
    db.execute("DELETE FROM journal WHERE thread = ?", (thread,))
    db.execute("DELETE FROM requests WHERE thread = ?", (thread,))


def newest_checkpoint(db: SqliteDatabase, thread: int) -> int | None:
    """The number of the newest checkpoint, from the commits rather than from the thread's row."""
    row = db.execute(
        "SELECT number FROM commits WHERE thread = ? AND checkpoint_id IS NOT NULL ORDER BY number DESC LIMIT 1",
        (thread,),
    ).fetchone()
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


def replace_commit(
    db: SqliteDatabase, seq: int, checkpoint_id: Any, parent: int | None, seal: bytes, body: bytes, *, has_events: bool
) -> None:
    """Put in place of a commit what pruning left of it."""
    db.execute("UPDATE commits SET checkpoint_id = ?, parent = ? WHERE seq = ?", (checkpoint_id, parent, seq))
    if not has_events:
        db.execute("UPDATE commits SET first_seq = NULL, events = NULL WHERE seq = ?", (seq,))
    reseal_commit(db, seq, seal, body)


def reseal_commit(db: SqliteDatabase, seq: int, seal: bytes, body: bytes) -> None:
    """Replace the payload; the sum of the columns is made from the row."""
    sealed = seal + column_sum(db.execute(f"SELECT {COLUMNS} FROM commits WHERE seq = ?", (seq,)).fetchone())
    db.execute("UPDATE commits SET seal = ?, body = ? WHERE seq = ?", (sealed, body, seq))


def delete_commit(db: SqliteDatabase, seq: int) -> None:
    newest = newest_seq(db)
    db.execute("DELETE FROM commits WHERE seq = ?", (seq,))
    reserve_seq(db, newest)


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
