"""The lines of a thread's file as rows of the index.

A rewritten file begins with the thread's position and the commits that were left then: these are inserted as a thread
from another store is. Each line after them is one write, and is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure.errors import DamagedStore
from perdure.records import Commit
from perdure.stores.file import lines
from perdure.stores.file.folder import LockedFile
from perdure.stores.packing import RUN, from_id, to_id, to_timestamp
from perdure.stores.sqlite import commits
from perdure.stores.sqlite.history import note_collected, restore_header
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import ThreadRow, append_journal, ensure_thread, post_item, read_thread, set_pin

PlacedLine: TypeAlias = tuple[int, int, lines.Line]
"""Place and size of a line in its file, and the line."""
NO_SEQS: Mapping[int, int] = {}


def replay_lines(db: SqliteDatabase, file: LockedFile, placed: Sequence[PlacedLine], *, from_start: bool) -> None:
    """Insert the rows of these lines, which end the file. `from_start`: they are all of it, and replace the rows that
    the thread has, except its owner. Raises DamagedStore if the first of them does not name the thread."""
    thread, seqs, newest = ensure_thread(db, file.thread_id), dict[int, int](), commits.newest_seq(db)
    if from_start:
        # The thread's commits keep their places in the order of all commits.
        seqs = dict(db.execute("SELECT number, seq FROM commits WHERE thread = ?", (thread,)).fetchall())
        for table in ("commits", "pins", "journal", "inbox", "requests"):
            db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
        placed = _restore_thread(db, thread, file, placed, seqs)
    for line in placed:
        index_line(db, file.thread_id, line, seqs)
    commits.reserve_seq(db, newest)
    db.execute("UPDATE threads SET size = ? WHERE thread = ?", (file.size, thread))


def _restore_thread(
    db: SqliteDatabase, thread: int, file: LockedFile, placed: Sequence[PlacedLine], seqs: Mapping[int, int]
) -> Sequence[PlacedLine]:
    """Insert the thread as it was when its file was last rewritten. The lines of the writes since."""
    first = placed[0][2] if placed else lines.FileThreadLine(file.thread_id, lines.VERSION)
    if not isinstance(first, lines.FileThreadLine):
        raise DamagedStore(str(file.path), "its first line does not name its thread")
    head, due_at, count = None, None, 1
    for place, size, line in placed[1:]:
        if not isinstance(line, lines.FileCommitLine) or line.number > first.number:
            break
        commit = _without_taken_id(db, lines.to_commit(file.thread_id, line, lines.LineContext()))
        commits.insert_row(db, thread, commit, (place, size), seqs.get(commit.number))
        if commit.info is not None:
            head, due_at = commit.number, commit.due_at
        count += 1
    restore_header(db, thread, lines.thread_header(first, head, due_at))
    query = "UPDATE threads SET generation = ?, events_dropped_before = ? WHERE thread = ?"
    db.execute(query, (first.generation, first.events_dropped_before, thread))
    if not first.garbage:
        note_collected(db, thread)
    return placed[count:]


def index_line(db: SqliteDatabase, thread_id: str, placed: PlacedLine, seqs: Mapping[int, int] = NO_SEQS) -> None:
    """Repeat the write of a line. `seqs`: those that commits had before, by number."""
    place, size, line = placed
    thread, fence = ensure_thread(db, thread_id), 0
    if isinstance(line, lines.FileCommitLine):
        commit, fence = _without_taken_id(db, lines.to_commit(thread_id, line, read_context(db, thread))), line.fence
        index_commit(db, read_thread(db, thread), commit, place, size, seqs.get(commit.number))
    elif isinstance(line, lines.JournalLine):
        for delivery_id, body in line.entries:
            append_journal(db, thread, thread_id, delivery_id, bytes(body))
        fence = line.fence
    elif isinstance(line, lines.PostLine):
        post_item(db, thread_id, line.item_id, line.kind, bytes(line.body))
    elif isinstance(line, lines.PinLine):
        set_pin(db, thread, line.number, is_pinned=line.is_pinned)
    db.execute("UPDATE threads SET fence = MAX(fence, ?), size = ? WHERE thread = ?", (fence, place + size, thread))


def index_commit(
    db: SqliteDatabase, thread: ThreadRow, commit: Commit, place: int, size: int, seq: int | None = None
) -> bool:
    """Insert a commit whose line is in the thread's file, and prune. Whether garbage is to be collected now."""
    commits.insert_commit(db, thread, commit, (place, size), seq)
    db.execute("UPDATE threads SET size = ? WHERE thread = ?", (place + size, thread.thread))
    return commits.prune_with_commit(db, thread, commit)


def read_context(db: SqliteDatabase, thread: int) -> lines.LineContext:
    """The names that the next line of the thread need not repeat."""
    query = "SELECT w.name, c.run_id, t.last_seq FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow"
    query += " LEFT JOIN commits c ON c.thread = t.thread AND c.number = t.number WHERE t.thread = ?"
    row = db.execute(query, (thread,)).fetchone()
    return lines.LineContext(row[0], to_id(row[1], RUN), row[2])


def _without_taken_id(db: SqliteDatabase, commit: Commit) -> Commit:
    """Without its checkpoint, if a later checkpoint of another thread took its id: files are read one after the
    other."""
    if commit.info is None:
        return commit
    query = "SELECT thread_id, timestamp FROM commits JOIN threads USING (thread) WHERE checkpoint_id = ?"
    row = db.execute(query, (from_id(commit.info.checkpoint_id),)).fetchone()
    if row is None or row[0] == commit.info.thread_id or to_timestamp(row[1]) <= commit.info.timestamp:
        return commit
    return msgspec.structs.replace(commit, info=None)


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
    db.execute(commits.INSERT_BLOCKS)
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
