"""What the index of a file store keeps beside the tables of a SQLite store.

For each thread: how much of its file the index has read. For each commit: where in the file its line is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from perdure.records import CheckpointInfo
from perdure.stores.file.lines import FileThreadLine, LineContext
from perdure.stores.packing import RUN, from_id, from_timestamp, to_id, to_timestamp
from perdure.stores.sqlite.commits import INSERT_BLOCKS, newest_seq, reserve_seq, workflow_row
from perdure.stores.sqlite.retention import set_pin
from perdure.stores.sqlite.schema import TABLES, SqliteDatabase
from perdure.stores.sqlite.threads import ensure_thread, find_thread
from perdure.stores.sqlite.transfer import has_thread

ADDED = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- bytes of the thread's file that the index has read; NULL: all of it is to be read again
ALTER TABLE threads ADD COLUMN size INTEGER DEFAULT 0;
-- that of the file's first line: a rewritten file has another one
ALTER TABLE threads ADD COLUMN generation TEXT NOT NULL DEFAULT '';
CREATE INDEX threads_unread ON threads (thread) WHERE size IS NULL;

-- where in the thread's file the commit is; `seal` and `body` stay empty
ALTER TABLE commits ADD COLUMN place INTEGER;
ALTER TABLE commits ADD COLUMN size INTEGER;
"""


class IndexDatabase(SqliteDatabase):
    """A connection to the index of a file store."""

    tables: ClassVar[str] = TABLES + ADDED
    payload: ClassVar[str] = "place, size"
    body_bytes: ClassVar[str] = "COALESCE(c.size, 0)"


def read_meta(db: SqliteDatabase, key: str) -> str | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(db: SqliteDatabase, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


# ---------------------------------------------------------------- files


def list_file_sizes(db: SqliteDatabase) -> dict[tuple[str, str], int]:
    """How many bytes of each file were acknowledged, by thread id and generation."""
    rows = db.execute("SELECT thread_id, generation, size FROM threads WHERE size IS NOT NULL")
    return {(thread_id, generation): size for thread_id, generation, size in rows}


def read_file_size(db: SqliteDatabase, thread_id: str) -> int | None:
    """How much of the thread's file the index has read; None if all of it is to be read again."""
    row = db.execute("SELECT size FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return 0 if row is None else row[0]


def set_file_size(db: SqliteDatabase, thread_id: str, size: int | None) -> None:
    db.execute("UPDATE threads SET size = ? WHERE thread_id = ?", (size, thread_id))


def read_generation(db: SqliteDatabase, thread_id: str) -> str:
    row = db.execute("SELECT generation FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return "" if row is None else str(row[0])


def list_unread(db: SqliteDatabase) -> list[str]:
    """Threads whose process died while it rewrote their files."""
    return [thread_id for (thread_id,) in db.execute("SELECT thread_id FROM threads WHERE size IS NULL")]


# ---------------------------------------------------------------- owners


def list_owned(db: SqliteDatabase) -> list[tuple[str, int]]:
    """Threads that have an owner, with the row of its process."""
    return db.execute("SELECT thread_id, process FROM threads WHERE owner IS NOT NULL").fetchall()


def release_processes(db: SqliteDatabase, processes: Iterable[int]) -> None:
    for process in processes:
        db.execute("UPDATE threads SET owner = NULL, process = NULL WHERE process IS ?", (process,))


def raise_fences(db: SqliteDatabase, by: int) -> None:
    db.execute("UPDATE threads SET fence = fence + ?", (by,))


# ---------------------------------------------------------------- threads, as their files describe them


def read_context(db: SqliteDatabase, thread: int) -> LineContext:
    """What the next line of the thread need not repeat."""
    row = db.execute(
        "SELECT w.name, c.run_id, t.last_seq FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow"
        " LEFT JOIN commits c ON c.thread = t.thread AND c.number = t.number WHERE t.thread = ?",
        (thread,),
    ).fetchone()
    return LineContext() if row is None else LineContext(row[0], to_id(row[1], RUN), row[2])


def set_workflow(db: SqliteDatabase, thread: int, name: str) -> None:
    db.execute("UPDATE threads SET workflow = ? WHERE thread = ?", (workflow_row(db, name), thread))


def raise_thread(db: SqliteDatabase, thread_id: str, *, number: int = 0, fence: int = 0, last_seq: int = 0) -> None:
    """Raise these columns to at least these values."""
    db.execute(
        "UPDATE threads SET number = MAX(number, ?), fence = MAX(fence, ?), last_seq = MAX(last_seq, ?)"
        " WHERE thread_id = ?",
        (number, fence, last_seq, thread_id),
    )


def restore_status(db: SqliteDatabase, thread_id: str, number: int, status: str, updated_at: str) -> None:
    """Set status and time of the last commit, if its line is no longer in the thread's file."""
    db.execute(
        "UPDATE threads SET status = ?, updated_at = ? WHERE thread_id = ? AND NOT EXISTS"
        " (SELECT 1 FROM commits c WHERE c.thread = threads.thread AND c.number >= ?)",
        (status, from_timestamp(updated_at), thread_id, number),
    )


def restore_position(db: SqliteDatabase, thread: int, line: FileThreadLine) -> None:
    """Set the columns that the first line of a thread's file describes. The lines after it count from there."""
    db.execute(
        "UPDATE threads SET generation = ?, first_seq = ?, events_dropped_before = ?, garbage = garbage + ?,"
        " last_seq = MAX(last_seq, ?) WHERE thread = ?",
        (line.generation, line.first_seq, line.events_dropped_before, line.garbage, line.last_seq, thread),
    )
    for number in line.pins:
        set_pin(db, thread, number, is_pinned=True)


def clear_thread(db: SqliteDatabase, thread_id: str) -> dict[int, int]:
    """Delete all rows of the thread that come from its file, but not its owner. The seqs of its commits, by number."""
    thread = find_thread(db, thread_id)
    seqs = dict(db.execute("SELECT number, seq FROM commits WHERE thread = ?", (thread,)).fetchall())
    newest = newest_seq(db)
    for table in ("commits", "pins", "journal", "inbox", "requests"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
    db.execute(
        "UPDATE threads SET number = 0, head = NULL, last_seq = 0, due_at = NULL, size = 0, first_seq = 1,"
        " events_dropped_before = 0, garbage = 0, garbage_bytes = 0, live = 0, live_bytes = 0 WHERE thread = ?",
        (thread,),
    )
    reserve_seq(db, newest)
    return seqs


def restore_seqs(db: SqliteDatabase, thread_id: str, seqs: Mapping[int, int]) -> None:
    """Give commits back the seqs that they had, by number."""
    if not seqs:
        return
    thread, newest = ensure_thread(db, thread_id), newest_seq(db)
    db.execute("DELETE FROM commits WHERE thread = 0")
    db.executemany(
        "UPDATE commits SET seq = -? WHERE thread = ? AND number = ?",
        [(seq, thread, number) for number, seq in seqs.items()],
    )
    db.execute("UPDATE commits SET seq = -seq WHERE seq < 0")
    db.execute("UPDATE threads SET moved = ? WHERE thread = ?", (max(seqs.values()), thread))
    reserve_seq(db, newest)


def delete_if_empty(db: SqliteDatabase, thread_id: str) -> None:
    """Delete the row of a thread that never got anything."""
    if not has_thread(db, thread_id):
        db.execute("DELETE FROM threads WHERE thread_id = ?", (thread_id,))


# ---------------------------------------------------------------- commits of all threads


def is_id_taken(db: SqliteDatabase, info: CheckpointInfo) -> bool:
    """Whether a later checkpoint of another thread has the id: files are read one after the other."""
    row = db.execute(
        "SELECT t.thread_id, c.timestamp FROM commits c JOIN threads t USING (thread) WHERE c.checkpoint_id = ?",
        (from_id(info.checkpoint_id),),
    ).fetchone()
    return row is not None and row[0] != info.thread_id and to_timestamp(row[1]) > info.timestamp


def order_commits(db: SqliteDatabase) -> None:
    """Number all commits by their times; those of one thread by their numbers."""
    rows = db.execute("SELECT seq, thread, timestamp FROM commits ORDER BY thread, number").fetchall()
    latest: dict[int, str] = {}
    keyed = []
    for seq, thread, timestamp in rows:
        latest[thread] = max(latest.get(thread, ""), to_timestamp(timestamp))
        keyed.append((latest[thread], seq))
    order = [(place, seq) for place, (_, seq) in enumerate(sorted(keyed), 1)]
    db.executemany("UPDATE commits SET seq = -? WHERE seq = ?", order)
    db.execute("UPDATE commits SET seq = -seq")
    db.execute("DELETE FROM blocks")
    db.execute(INSERT_BLOCKS)
    db.blocks.clear()
    moved = "(SELECT MAX(seq) FROM commits c WHERE c.thread = threads.thread)"
    db.execute(f"UPDATE threads SET moved = COALESCE({moved}, 0)")


def read_columns(db: SqliteDatabase, thread_id: str) -> dict[int, tuple[Any, ...]]:
    """The columns of each commit of a thread, by number; first the checkpoint's id."""
    rows = db.execute(
        "SELECT c.number, c.checkpoint_id, w.name, c.iteration, c.parent, c.previous, c.timestamp, c.run_id,"
        " c.status, c.first_seq, c.events, c.place, c.size FROM commits c JOIN threads t USING (thread)"
        " LEFT JOIN workflows w ON w.workflow = c.workflow WHERE t.thread_id = ?",
        (thread_id,),
    )
    return {number: (to_id(checkpoint_id), *columns) for number, checkpoint_id, *columns in rows}
