"""Threads as a whole: taken in from another store, read out, pruned, rewritten and deleted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.errors import CheckpointNotFound, DamagedCheckpoint, ThreadBusy, ThreadExists
from perdure.records import CheckpointInfo, Commit, ThreadHeader
from perdure.store import Rewrite
from perdure.stores import packing
from perdure.stores.garbage import prune_commits
from perdure.stores.sqlite import threads
from perdure.stores.sqlite.commits import (
    INSERT_BLOCKS,
    drop_events,
    insert_row,
    move_head,
    move_to_end,
    newest_seq,
    read_dropped_before,
    replace_commit,
    replace_requests,
    reserve_seq,
    workflow_row,
)
from perdure.stores.sqlite.lists import HAS_CONTENT, find_position, list_requests, read_head
from perdure.stores.sqlite.payloads import read_commits, read_payloads, unpack
from perdure.stores.sqlite.schema import SqliteDatabase

PAGE_BYTES = 1 << 18
PAGE_ROWS = 64
"""About as many commits are rewritten in one transaction: other writers wait for it."""

# ---------------------------------------------------------------- in and out


def add_thread(db: SqliteDatabase, header: ThreadHeader, commits: Iterable[Commit]) -> None:
    """Insert a thread as another store had it. Raises ThreadExists."""
    thread = reserve_thread(db, header)
    for commit in commits:
        if commit.info is not None:
            refuse_known_checkpoint(db, commit.info)
        body = packing.pack_body(commit)
        insert_row(db, thread, commit, (packing.seal(header.thread_id, commit.number, body), body))
    restore_header(db, thread, header)
    move_to_end(db, thread)


def reserve_thread(db: SqliteDatabase, standing: ThreadHeader) -> int:
    """A row for a new thread. Raises ThreadExists."""
    if has_thread(db, standing.thread_id):
        raise ThreadExists(standing.thread_id)
    return threads.ensure_thread(db, standing.thread_id)


def has_thread(db: SqliteDatabase, thread_id: str) -> bool:
    """Whether the thread has an owner, or anything was ever put into it."""
    query = f"SELECT 1 FROM threads t WHERE thread_id = ? AND (owner IS NOT NULL OR {HAS_CONTENT})"
    return db.execute(query, (thread_id,)).fetchone() is not None


def refuse_known_checkpoint(db: SqliteDatabase, info: CheckpointInfo) -> None:
    """Raises ThreadExists if another thread has a checkpoint with this id."""
    try:
        _, thread_id, _ = find_position(db, info.checkpoint_id)
    except CheckpointNotFound:
        return
    reason = f"its checkpoint {info.checkpoint_id!r} is in thread {thread_id!r} here"
    raise ThreadExists(info.thread_id, reason)


def restore_header(db: SqliteDatabase, thread: int, standing: ThreadHeader) -> None:
    """Set all of a thread except its commits, which were inserted before."""
    workflow = workflow_row(db, standing.workflow_name) if standing.workflow_name else None
    position = (standing.fence, standing.number, standing.head, standing.status)
    updated_at = packing.from_timestamp(standing.updated_at)
    due_at = None if standing.due_at is None else packing.from_time(standing.due_at)
    db.execute(
        "UPDATE threads SET workflow = ?, fence = MAX(fence, ?), number = ?, head = ?, status = ?, updated_at = ?,"
        " last_seq = ?, first_seq = ?, due_at = ?, (moved, garbage) ="
        " (SELECT MAX(threads.moved, COALESCE(MAX(seq), 0)), COUNT(*) - COUNT(checkpoint_id)"
        " FROM commits c WHERE c.thread = threads.thread) WHERE thread = ?",
        (workflow, *position, updated_at, standing.last_seq, standing.first_seq, due_at, thread),
    )
    for number in standing.pins:
        threads.set_pin(db, thread, number, is_pinned=True)
    replace_requests(db, thread, standing.requests)
    threads.consume_items(db, standing.thread_id, standing.consumed)
    for item in standing.inbox:
        threads.post_item(db, standing.thread_id, item.item_id, item.kind, item.body)
    for entry in standing.journal:
        threads.append_journal(db, thread, standing.thread_id, entry.delivery_id, entry.body)
    db.execute(f"{INSERT_BLOCKS} AND thread = ?", (thread,))


def read_standing(db: SqliteDatabase, thread_id: str) -> ThreadHeader | None:
    """All of a thread but its commits. Raises DamagedCheckpoint."""
    columns = "t.thread, w.name, t.number, t.fence, t.status, t.updated_at, t.last_seq, t.first_seq, t.head, t.due_at"
    source = f"threads t LEFT JOIN workflows w USING (workflow) WHERE t.thread_id = ? AND {HAS_CONTENT}"
    row = db.execute(f"SELECT {columns} FROM {source}", (thread_id,)).fetchone()
    if row is None:
        return None
    thread, name, number, fence, status, updated_at, last_seq, first_seq, head, due_at = row
    consumed = "SELECT item_id FROM inbox WHERE thread = ? AND body IS NULL ORDER BY item"
    position = (number, fence, status, packing.to_timestamp(updated_at), last_seq, first_seq, head)
    return ThreadHeader(
        thread_id,
        name or "",
        *position,
        None if due_at is None else packing.to_time(due_at),
        tuple(list_requests(db, thread_id=thread_id)),
        threads.read_journal(db, thread, thread_id, number),
        threads.read_inbox(db, thread, thread_id),
        [item_id for (item_id,) in db.execute(consumed, (thread,))],
        sorted(threads.list_pins(db, thread)),
    )


def delete_thread(db: SqliteDatabase, thread_id: str, if_unmoved_since: int | None) -> bool:
    """False if there is no such thread, or it does not meet `if_unmoved_since`. Raises ThreadBusy."""
    owner = threads.find_owner(db, thread_id)
    if owner is not None:
        raise ThreadBusy(thread_id, owner)
    thread = threads.find_thread(db, thread_id)
    if thread is None:
        return False
    if if_unmoved_since is not None:
        is_needed = threads.list_pins(db, thread) or threads.read_inbox(db, thread, thread_id)
        if is_needed or threads.read_thread(db, thread).number != if_unmoved_since:
            return False
    for table in ("commits", "pins", "journal", "inbox", "requests", "threads"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
    return True


# ---------------------------------------------------------------- pinned and pruned


def set_pin(db: SqliteDatabase, checkpoint_id: str, *, is_pinned: bool) -> None:
    """Raises CheckpointNotFound."""
    thread, _, number = find_position(db, checkpoint_id)
    threads.set_pin(db, thread, number, is_pinned=is_pinned)


def note_collected(db: SqliteDatabase, thread: int) -> None:
    """Record that the thread has no garbage, and how much is live."""
    live = f"SELECT COUNT(*), COALESCE(SUM({db.body_bytes}), 0) FROM commits c WHERE c.thread = threads.thread"
    changes = f"garbage = 0, garbage_bytes = 0, (live, live_bytes) = ({live})"
    db.execute(f"UPDATE threads SET {changes} WHERE thread = ?", (thread,))


def has_to_prune(db: SqliteDatabase, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> bool:
    """Whether `prune_thread` would change anything. Needs no write transaction."""
    thread = threads.find_thread(db, thread_id)
    if thread is None:
        return False
    if _count_garbage(db, thread) or events_before > read_dropped_before(db, thread):
        return True
    query = "SELECT 1 FROM commits WHERE thread = ? AND checkpoint_id = ?"
    return any(db.execute(query, (thread, key)).fetchone() for key in map(packing.from_id, checkpoint_ids))


def _count_garbage(db: SqliteDatabase, thread: int) -> int:
    (count,) = db.execute("SELECT garbage FROM threads WHERE thread = ?", (thread,)).fetchone()
    return int(count)


def choose_pruned(db: SqliteDatabase, thread_id: str, checkpoint_ids: set[str], events_before: int) -> set[int] | None:
    """Drop these events, and return the numbers of these checkpoints, without pinned ones; None if nothing is to be
    freed. Raises ThreadBusy for the head of an owned thread."""
    thread = threads.find_thread(db, thread_id)
    if thread is None:
        return None
    query = "SELECT number, checkpoint_id FROM commits WHERE thread = ? AND checkpoint_id NOT NULL"
    numbers = {number for number, key in db.execute(query, (thread,)) if packing.to_id(key) in checkpoint_ids}
    numbers -= threads.list_pins(db, thread)
    head, owner = read_head(db, thread_id), threads.find_owner(db, thread_id)
    if owner is not None and head is not None and head.number in numbers:
        raise ThreadBusy(thread_id, owner)
    if events_before:
        drop_events(db, thread, events_before)
    return numbers if numbers or events_before or _count_garbage(db, thread) else None


def prune_thread(db: SqliteDatabase, thread_id: str, checkpoint_ids: set[str], events_before: int = 0) -> int:
    """Delete these checkpoints, and free the space of all that was pruned before. How many checkpoints were deleted.

    Raises ThreadBusy or DamagedCheckpoint.
    """
    pruned = choose_pruned(db, thread_id, checkpoint_ids, events_before)
    if pruned is None:
        return 0
    thread = threads.ensure_thread(db, thread_id)
    commits, newest = read_commits(db, thread_id, with_garbage=True), newest_seq(db)
    for number, left in prune_commits(commits, pruned, read_dropped_before(db, thread)):
        if left is None:
            db.execute("DELETE FROM commits WHERE thread = ? AND number = ?", (thread, number))
        else:
            replace_commit(db, thread, left)
    reserve_seq(db, newest)
    for number in pruned:
        move_head(db, thread, number)
    note_collected(db, thread)
    return len(pruned)


# ---------------------------------------------------------------- rewritten
# A damaged payload is left as it is: a new seal would prove it. The caller raises the damage of the changes.


def rewrite_page(db: SqliteDatabase, thread_id: str, after: int, change: Rewrite) -> tuple[int | None, packing.Changes]:
    """Rewrite about a page of the commits after this number. The number of the last of them, if there are any."""
    changes, size, number = packing.Changes(change), 0, None
    query = "SELECT number FROM commits WHERE thread = ? AND number > ? ORDER BY number LIMIT ?"
    for (number,) in db.execute(query, (threads.find_thread(db, thread_id), after, PAGE_ROWS)).fetchall():
        payload = read_payloads(db, thread_id, [number])[number]
        try:
            before = unpack(thread_id, None, number, payload)
        except DamagedCheckpoint as error:
            changes.damage.append(error)
            continue
        size += len(payload.body)
        body = changes.body(number, before)
        if body is not before:
            data = msgspec.json.encode(body)
            # The columns stay as they are, and so does their sum, which stands behind the seal.
            sealed = packing.seal(thread_id, number, data) + (payload.seal or b"")[packing.SEAL_BYTES :]
            query = "UPDATE commits SET seal = ?, body = ? WHERE thread = ? AND number = ?"
            db.execute(query, (sealed, data, threads.find_thread(db, thread_id), number))
        if size >= PAGE_BYTES:
            break
    return number, changes


def rewrite_pending(db: SqliteDatabase, thread_id: str, change: Rewrite) -> packing.Changes:
    changes, thread = packing.Changes(change), threads.find_thread(db, thread_id)
    for table, key, columns in (("journal", "entry", "delivery_id"), ("inbox", "item", "item_id, kind")):
        query = f"SELECT {key}, {columns}, body, seal FROM {table} WHERE thread = ? AND body IS NOT NULL"
        for row, *sealed in db.execute(query, (thread,)).fetchall():
            resealed = changes.reseal(table, thread_id, *sealed)
            if resealed is not None:
                db.execute(f"UPDATE {table} SET body = ?, seal = ? WHERE {key} = ?", (*resealed, row))
    return changes
