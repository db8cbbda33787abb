"""Pins, and threads as a whole: copied, transferred to and from other stores, rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from uuid import uuid4

import msgspec

from perdure.errors import (
    CheckpointNotFound,
    DamagedCheckpoint,
    StorageFailed,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
)
from perdure.records import Commit, Lease, PendingRequest, ThreadHeader
from perdure.store import Rewrite, rename_commit
from perdure.stores.layer import header_of_copy
from perdure.stores.packing import Changes, consumed_seal, item_seal, seal
from perdure.stores.postgres.checkpoints import BY_ID, COMMITS, HAS_CHECKPOINT, read_infos
from perdure.stores.postgres.database import Database, HasDatabase, PgSession, Queries
from perdure.stores.postgres.leases import OWNER, live_owner
from perdure.stores.postgres.pool import IdTaken
from perdure.stores.postgres.rows import (
    COLUMNS,
    HAS_CONTENT,
    TYPES,
    UNCOMMITTED,
    check_id,
    check_ids,
    commit_row,
    events_seal,
    is_text,
    join_words,
    pack_id,
    read_commit,
    read_events,
    read_root,
    read_uncommitted,
    root_seal,
    sealed_fields_of_row,
    thread_key,
    unpack_chunks,
    unpack_id,
)

BATCH_SIZE = 200
"""Commits that are read or written together: their payloads are in memory."""

_COMMITS = (
    f"SELECT c.*, t.events_dropped_before, ({HAS_CHECKPOINT}) AS has_checkpoint FROM {COMMITS}"
    " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
)

_INSERT = (
    f"INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) VALUES ($1, nextval('{{s}}.moves'),"
    f" {', '.join(f'${number}' for number, _ in enumerate(TYPES, 2))})"
)

_OF_HEADER = ("number", "fence", "status", "updated_at", "last_seq", "first_seq", "head", "due_at")
"""Fields of a header after its workflow, and the columns of a thread."""
_REQUESTS = 'FROM {s}.requests WHERE thread = $1 ORDER BY asked_at, request_id COLLATE "C"'
_THREAD = f"""
SELECT t.*, j.*, i.*, ARRAY(SELECT number FROM {{s}}.commits WHERE thread = $1 AND is_pinned ORDER BY number) AS pins,
  ARRAY(SELECT item_id FROM {{s}}.inbox WHERE thread = $1 AND body IS NULL ORDER BY item) AS consumed,
  ARRAY(SELECT request_id {_REQUESTS}) AS request_ids, ARRAY(SELECT executor_id {_REQUESTS}) AS executors,
  ARRAY(SELECT asked_at {_REQUESTS}) AS asked, ARRAY(SELECT deadline {_REQUESTS}) AS deadlines,
  ARRAY(SELECT assignee {_REQUESTS}) AS assignees
FROM {{s}}.threads t {UNCOMMITTED} WHERE t.thread = $1
"""
"""All of a thread except its commits, in one snapshot."""


async def set_pin(store: HasDatabase, checkpoint_id: str, *, is_pinned: bool) -> None:
    """Raises CheckpointNotFound. A lock prevents that the thread is deleted meanwhile."""
    query = f"WITH pinned AS (SELECT c.thread, c.number {BY_ID} FOR KEY SHARE OF t)"
    query += " UPDATE {s}.commits c SET is_pinned = $2 FROM pinned WHERE c.thread = pinned.thread"
    query += " AND c.number = pinned.number AND c.checkpoint_id = $1 RETURNING 1"
    if not is_text(checkpoint_id) or not await store.db.rows(query, pack_id(checkpoint_id), is_pinned):
        raise CheckpointNotFound(checkpoint_id)


async def load_commits(db: Queries, thread_id: str, *, after: int = 0, limit: int | None = None) -> list[Commit]:
    """Raises DamagedCheckpoint."""
    rows = await db.rows(_COMMITS, thread_key(thread_id), after, limit)
    infos = await read_infos(db, thread_id, rows)
    return [read_commit(thread_id, row, infos.get(row["number"]), row["events_dropped_before"]) for row in rows]


async def add_thread(store: HasDatabase, header: ThreadHeader, commits: Iterable[Commit]) -> None:
    check_id("thread id", header.thread_id, None)
    remaining = iter(commits)

    async def write() -> None:
        async with store.db.transaction(is_brisk=False) as session:  # the commits may arrive slowly
            await _create_thread(session, header.thread_id)
            while batch := list(islice(remaining, BATCH_SIZE)):
                await _add_commits(session, header, batch)
            await _write_header(session, header)

    try:
        await store.db.retry(write, is_repeatable=False)
    except StorageFailed as error:
        if isinstance(error.__cause__, IdTaken):
            reason = "another thread here has just got a checkpoint with one of its ids"
            raise ThreadExists(header.thread_id, reason) from error
        raise


async def _create_thread(session: PgSession, thread_id: str) -> None:
    """Raises ThreadExists if the thread is in use."""
    key = thread_key(thread_id)
    insert = "INSERT INTO {s}.threads (thread, thread_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1"
    if await session.value(insert, key, thread_id) is None:
        query = f"SELECT t.owner IS NOT NULL OR {HAS_CONTENT} FROM {{s}}.threads t WHERE t.thread = $1 FOR UPDATE"
        if await session.value(query, key) is not False:
            raise ThreadExists(thread_id)


async def _add_commits(session: PgSession, header: ThreadHeader, commits: Sequence[Commit]) -> None:
    for commit in commits:
        check_ids(commit)
    ids = [pack_id(commit.info.checkpoint_id) for commit in commits if commit.info is not None]
    query = f"SELECT c.checkpoint_id, t.thread_id FROM {COMMITS} WHERE c.checkpoint_id = ANY ($1::bytea[]) LIMIT 1"
    duplicate = await session.row(query, ids)
    if duplicate is not None:
        checkpoint_id, other = unpack_id(duplicate["checkpoint_id"]), duplicate["thread_id"]
        reason = f"its checkpoint {checkpoint_id!r} is in thread {other!r} here"
        raise ThreadExists(header.thread_id, reason)
    lease = Lease(header.thread_id, "", 0)
    key = thread_key(header.thread_id)
    rows = [(key, *commit_row(msgspec.structs.replace(commit, lease=lease))) for commit in commits]
    await session.many(_INSERT, rows)
    # What the other store had pruned and not freed is garbage here too.
    garbage = [commit.number for commit in commits if _is_garbage(commit)]
    await session.rows("UPDATE {s}.threads SET pruned = pruned || $2::bigint[] WHERE thread = $1", key, garbage)


async def _write_header(session: PgSession, header: ThreadHeader) -> None:
    thread_id, key = header.thread_id, thread_key(header.thread_id)
    changes = "workflow = $2, number = $3, fence = GREATEST(fence, $4), status = $5, updated_at = $6, last_seq = $7"
    changes += ", first_seq = $8, head = $9, due_at = $10, moved = nextval('{s}.moves')"
    update = f"UPDATE {{s}}.threads SET {changes} WHERE thread = $1"
    await session.rows(update, key, header.workflow_name, *(getattr(header, name) for name in _OF_HEADER))
    pin = "UPDATE {s}.commits SET is_pinned = true WHERE thread = $1 AND number = ANY ($2::bigint[])"
    await session.rows(pin, key, list(header.pins))
    requests = [(key, *msgspec.structs.astuple(request)[1:-1]) for request in header.requests]
    await session.many("INSERT INTO {s}.requests VALUES ($1, $2, $3, $4, $5, $6)", requests)
    inbox = [(key, item_id, "", None, consumed_seal(thread_id, item_id)) for item_id in header.consumed]
    inbox += [(key, *fields, item_seal(thread_id, *fields)) for fields in map(msgspec.structs.astuple, header.inbox)]
    await session.many("INSERT INTO {s}.inbox (thread, item_id, kind, body, seal) VALUES ($1, $2, $3, $4, $5)", inbox)
    entries = [(entry.delivery_id, entry.body) for entry in header.journal]
    journal = [(key, uuid4(), *fields, seal(thread_id, *fields)) for fields in entries]
    insert = "INSERT INTO {s}.journal (thread, mark, delivery_id, body, seal) VALUES ($1, $2, $3, $4, $5)"
    await session.many(insert, journal)


async def copy_thread(store: HasDatabase, thread_id: str, to: str) -> None:
    check_id("thread id", to, None)
    ids: dict[str, str] = {}
    """The new checkpoint ids. A retry recognizes the copy of an earlier attempt by them."""

    async def attempt() -> None:
        async with store.db.transaction("repeatable_read") as session:  # one snapshot of the thread
            is_copied = "SELECT 1 FROM {s}.commits WHERE thread = $1 AND checkpoint_id = ANY ($2::bytea[]) LIMIT 1"
            if not ids or not await session.value(is_copied, thread_key(to), [*map(pack_id, ids.values())]):
                await _copy(session, thread_id, to, ids)

    await store.db.retry(attempt)


async def _copy(session: PgSession, thread_id: str, to: str, ids: dict[str, str]) -> None:
    header = await load_header(session, thread_id)
    if header is None:
        raise ThreadNotFound(thread_id)
    copy = header_of_copy(header, to)
    try:
        await _create_thread(session, to)
    except ThreadExists:
        raise ThreadBusy(to, live_owner(await session.row(OWNER, thread_key(to)))) from None
    after = 0
    while batch := await load_commits(session, thread_id, after=after, limit=BATCH_SIZE):
        await _add_commits(session, copy, [rename_commit(commit, to, ids) for commit in batch])
        after = batch[-1].number
    await _write_header(session, copy)


def _is_garbage(commit: Commit) -> bool:
    """Whether a commit of a pruned checkpoint has chunks or links that may be unneeded."""
    refers = commit.events is not None and commit.events.refers
    return commit.info is None and not refers and bool(commit.chunks or commit.parent is not None or commit.carried)


async def load_header(db: Queries, thread_id: str) -> ThreadHeader | None:
    """Raises DamagedCheckpoint."""
    row = await db.row(_THREAD, thread_key(thread_id))
    if row is None:
        return None
    journal, inbox = read_uncommitted(thread_id, row)
    if not row["number"] and not journal and not inbox and not row["consumed"]:
        return None
    requests = zip(row["request_ids"], row["executors"], row["asked"], row["deadlines"], row["assignees"], strict=True)
    return ThreadHeader(
        thread_id,
        row["workflow"],
        requests=tuple(PendingRequest(thread_id, *request, row["workflow"]) for request in requests),
        journal=journal,
        inbox=inbox,
        **{name: row[name] for name in (*_OF_HEADER, "consumed", "pins")},
    )


async def rewrite(store: HasDatabase, thread_id: str, change: Rewrite) -> int:
    db, key, count, after = store.db, thread_key(thread_id), 0, 0
    damage: list[DamagedCheckpoint] = []
    query = "SELECT number FROM {s}.commits WHERE thread = $1 AND number > $2 ORDER BY number LIMIT $3"
    while rows := await db.rows(query, key, after, BATCH_SIZE):
        for (after,) in rows:
            try:
                count += await _rewrite_commit(db, thread_id, after, change)
            except DamagedCheckpoint as error:
                damage.append(error)
    uncommitted = await _rewrite_uncommitted(db, thread_id, change)
    for first in [*damage, *uncommitted.damage]:  # raised after the rest is rewritten
        raise first
    return count + uncommitted.count


async def _rewrite_commit(db: Database, thread_id: str, number: int, change: Rewrite) -> int:
    key = thread_key(thread_id)

    async def attempt() -> int:
        async with db.transaction() as session:
            query = "SELECT * FROM {s}.commits WHERE thread = $1 AND number = $2 FOR UPDATE"
            row = await session.row(query, key, number)
            if row is None:
                return 0
            root, events, chunks = row["root"], row["events"], unpack_chunks(thread_id, row)
            read_events(thread_id, row)
            if row["checkpoint_id"] is not None:
                read_root(thread_id, row)
            changes = Changes(change)
            new_root = None if root is None else changes.change("root", str(number), root)
            new_events = None if events is None else changes.change("events", str(number), events)
            new_chunks = {name: changes.change("chunk", name, chunk) for name, chunk in chunks.items()}
            if changes.count:
                names = join_words([f"{name}:{len(chunk)}" for name, chunk in new_chunks.items()])
                payload = (new_root, new_events, names, b"".join(new_chunks.values()) or None)
                of_root = root_seal(thread_id, number, sealed_fields_of_row(row), new_root)
                of_events = events_seal(thread_id, number, row["first_seq"], row["event_count"], new_events)
                update = "UPDATE {s}.commits SET root = $3, events = $4, names = $5, chunks = $6, seal = $7"
                sealed = (*payload, of_root + of_events + row["seal"][16:])
                await session.rows(f"{update} WHERE thread = $1 AND number = $2", key, number, *sealed)
            return changes.count

    return await db.retry(attempt)


async def _rewrite_uncommitted(db: Database, thread_id: str, change: Rewrite) -> Changes:
    """The journal and the inbox, each row in its own statement: locks on several rows could deadlock with a commit."""
    key, changes = thread_key(thread_id), Changes(change)
    for table, mark, columns in (("journal", "mark", "delivery_id"), ("inbox", "item_id", "item_id, kind")):
        source = f"{{s}}.{table} WHERE thread = $1 AND body IS NOT NULL"
        for place, *sealed in await db.rows(f"SELECT {mark}, {columns}, body, seal FROM {source}", key):
            resealed = changes.reseal(table, thread_id, *sealed)
            if resealed is not None:
                update = f"UPDATE {{s}}.{table} SET body = $3, seal = $4 WHERE thread = $1 AND body IS NOT NULL"
                await db.rows(f"{update} AND {mark} = $2", key, place, *resealed)
    return changes
