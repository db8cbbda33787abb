"""What a thread keeps: pins, pruned checkpoints and dropped events, and when their space is freed.

A commit that prunes only marks rows. The space is freed by `prune_thread`, which reads all commits of the thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import ThreadBusy
from perdure.records import Commit
from perdure.stores.garbage import PackedCommit, prune_bodies
from perdure.stores.packing import from_id, repack_body, seal, to_id
from perdure.stores.sqlite.commits import delete_commit, move_head, replace_commit
from perdure.stores.sqlite.lists import find_position, read_head
from perdure.stores.sqlite.payloads import Payload, unpack
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.threads import ThreadRow, find_owner, find_thread, is_collection_due

# ---------------------------------------------------------------- pins


def set_pin(db: SqliteDatabase, thread: int, number: int, *, is_pinned: bool) -> None:
    if is_pinned:
        db.execute("INSERT OR IGNORE INTO pins VALUES (?, ?)", (thread, number))
    else:
        db.execute("DELETE FROM pins WHERE thread = ? AND number = ?", (thread, number))


def pin_checkpoint(db: SqliteDatabase, checkpoint_id: str, *, is_pinned: bool) -> None:
    """Raises CheckpointNotFound."""
    thread, _, number = find_position(db, checkpoint_id)
    set_pin(db, thread, number, is_pinned=is_pinned)


def list_pins(db: SqliteDatabase, thread: int) -> set[int]:
    return {number for (number,) in db.execute("SELECT number FROM pins WHERE thread = ?", (thread,))}


# ---------------------------------------------------------------- marking


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
    row = db.execute(
        f"SELECT seq, {db.body_bytes} FROM commits c WHERE thread = ? AND number = ? AND checkpoint_id IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM pins p WHERE p.thread = c.thread AND p.number = c.number)",
        (thread, number),
    ).fetchone()
    if row is not None:
        db.execute("UPDATE commits SET checkpoint_id = NULL WHERE seq = ?", row[:1])
        _add_garbage(db, thread, 1, row[1])


def _add_garbage(db: SqliteDatabase, thread: int, count: int, size: int) -> None:
    db.execute(
        "UPDATE threads SET garbage = garbage + ?, garbage_bytes = garbage_bytes + ? WHERE thread = ?",
        (count, size, thread),
    )


def drop_events(db: SqliteDatabase, thread: int, before: int) -> None:
    """Drop the events of all commits before this number, but never those of a commit to come."""
    (last,) = db.execute("SELECT number FROM threads WHERE thread = ?", (thread,)).fetchone()
    before = min(before, last + 1)
    row = db.execute(
        "SELECT first_seq FROM commits WHERE thread = ? AND number >= ? AND first_seq IS NOT NULL"
        " ORDER BY number LIMIT 1",
        (thread, before),
    ).fetchone()
    first = "last_seq + 1" if row is None else str(int(row[0]))
    count, size = db.execute(
        f"SELECT COUNT(*), COALESCE(SUM({db.body_bytes}), 0) FROM commits c WHERE thread = ? AND number >="
        " (SELECT t.events_dropped_before FROM threads t WHERE t.thread = c.thread) AND number < ?"
        " AND first_seq IS NOT NULL",
        (thread, before),
    ).fetchone()
    db.execute(
        f"UPDATE threads SET first_seq = MAX(first_seq, {first}),"
        " events_dropped_before = MAX(events_dropped_before, ?) WHERE thread = ?",
        (before, thread),
    )
    _add_garbage(db, thread, count, size)


def read_kept_events(db: SqliteDatabase, thread: int) -> tuple[int, int]:
    """The seq of the oldest event that is kept, and the commit before which events are dropped."""
    row = db.execute("SELECT first_seq, events_dropped_before FROM threads WHERE thread = ?", (thread,)).fetchone()
    first_seq, dropped_before = row
    return first_seq, dropped_before


# ---------------------------------------------------------------- freeing


def count_garbage(db: SqliteDatabase, thread: int) -> int:
    """Commits with something that can be freed."""
    (count,) = db.execute("SELECT garbage FROM threads WHERE thread = ?", (thread,)).fetchone()
    return int(count)


def note_collected(db: SqliteDatabase, thread: int) -> None:
    """Record that the thread has no garbage, and how much is live."""
    db.execute(
        "UPDATE threads SET garbage = 0, garbage_bytes = 0, (live, live_bytes) ="
        f" (SELECT COUNT(*), COALESCE(SUM({db.body_bytes}), 0) FROM commits c WHERE c.thread = threads.thread)"
        " WHERE thread = ?",
        (thread,),
    )


def has_to_prune(db: SqliteDatabase, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> bool:
    """Whether `prune_thread` would change anything. Needs no write transaction."""
    thread = find_thread(db, thread_id)
    if thread is None:
        return False
    if count_garbage(db, thread) or events_before > read_kept_events(db, thread)[1]:
        return True
    query = "SELECT 1 FROM commits WHERE thread = ? AND checkpoint_id = ?"
    return any(db.execute(query, (thread, from_id(checkpoint_id))).fetchone() for checkpoint_id in checkpoint_ids)


def choose_pruned(db: SqliteDatabase, thread_id: str, checkpoint_ids: set[str]) -> set[int]:
    """The numbers of these checkpoints, without pinned ones. Raises ThreadBusy for the head of an owned thread."""
    thread = find_thread(db, thread_id)
    rows = db.execute(
        "SELECT number, checkpoint_id FROM commits WHERE thread = ? AND checkpoint_id NOT NULL", (thread,)
    )
    numbers = {number for number, checkpoint_id in rows if to_id(checkpoint_id) in checkpoint_ids}
    numbers -= set() if thread is None else list_pins(db, thread)
    head, owner = read_head(db, thread_id), find_owner(db, thread_id)
    if owner is not None and head is not None and head.number in numbers:
        raise ThreadBusy(thread_id, owner)
    return numbers


def prune_thread(db: SqliteDatabase, thread_id: str, checkpoint_ids: set[str], events_before: int = 0) -> int:
    """Delete these checkpoints, and free the space of all that was pruned before. How many checkpoints were deleted.

    Raises ThreadBusy or DamagedCheckpoint.
    """
    thread = find_thread(db, thread_id)
    if thread is None:
        return 0
    pruned = choose_pruned(db, thread_id, checkpoint_ids)
    if not pruned and not events_before and not count_garbage(db, thread):
        return 0
    if events_before:
        drop_events(db, thread, events_before)
    _free_bodies(db, thread, thread_id, pruned)
    for number in pruned:
        move_head(db, thread, number)
    note_collected(db, thread)
    return len(pruned)


def _free_bodies(db: SqliteDatabase, thread: int, thread_id: str, pruned: set[int]) -> None:
    rows = db.execute(
        "SELECT number, checkpoint_id, seal, body, seq, parent FROM commits WHERE thread = ? ORDER BY number", (thread,)
    ).fetchall()
    commits = [
        PackedCommit(
            number,
            parent,
            key is not None,
            unpack(thread_id, to_id(key), number, Payload(number, key, sealed, body)),
        )
        for number, key, sealed, body, _, parent in rows
    ]
    by_number = {row[0]: row for row in rows}
    for change in prune_bodies(commits, pruned, read_kept_events(db, thread)[1]):
        _, key, _, _, seq, _ = by_number[change.number]
        if change.is_empty:
            delete_commit(db, seq)
            continue
        body = repack_body(change.body)
        replace_commit(
            db,
            seq,
            key if change.has_checkpoint else None,
            change.parent,
            seal(thread_id, change.number, body),
            body,
            has_events=change.has_events,
        )
