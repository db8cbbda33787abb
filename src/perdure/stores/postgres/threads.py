"""The threads of a store: lists of them and of their pending requests, deletion, damage and size."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, Unpack

from perdure.errors import PerdureError, ThreadBusy, ThreadNotFound
from perdure.records import Damage, PendingRequest, ThreadInfo
from perdure.stores import packing
from perdure.stores.postgres.checkpoints import COMMITS, HAS_CHECKPOINT, THREAD_ROW, check_thread_row
from perdure.stores.postgres.copies import BATCH_SIZE
from perdure.stores.postgres.database import Database, HasDatabase, PgSession
from perdure.stores.postgres.leases import AND_PROCESS, OWNER_COLUMNS, live_owner
from perdure.stores.postgres.rows import (
    HAS_CONTENT,
    is_text,
    links_checksum,
    read_events,
    read_root,
    thread_key,
    unpack_chunks,
    unpack_id,
)

_COLUMNS = f"""
SELECT t.thread_id, t.workflow, t.number, t.status, t.updated_at, t.due_at, {OWNER_COLUMNS}, t.moved,
  (SELECT c.checkpoint_id FROM {{s}}.commits c WHERE c.thread = t.thread AND c.number = t.head) AS checkpoint_id
"""

INDEXED_CHARACTERS = 200
"""Characters of a thread id that an index covers."""
_START = f'left(t.thread_id, {INDEXED_CHARACTERS}) COLLATE "C"'
"""Ordered by code points."""

_TABLES = ("commits", "journal", "inbox", "requests", "threads")

_PAYLOADS = ("root", "events", "chunks", "names", "dropped", "carried", "checkpoint_id", "run_id")
_ROW_BYTES = 120
"""The bytes of a row beside its payloads, in its table and in indexes."""
_COMMIT_BYTES = " + ".join(f"COALESCE(pg_column_size({column}), 0)" for column in _PAYLOADS)
_SIZE = f"""
SELECT COALESCE((SELECT sum({_ROW_BYTES} + {_COMMIT_BYTES})
    FROM {{s}}.commits), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + pg_column_size(body)) FROM {{s}}.journal), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + COALESCE(pg_column_size(body), 0)) FROM {{s}}.inbox), 0)
  + (SELECT count(*) * {_ROW_BYTES} FROM {{s}}.threads)
"""


async def list_threads(
    store: HasDatabase,
    *,
    statuses: Collection[str] | None = None,
    limit: int | None = None,
    before: str | None = None,
    **match: Unpack[packing.ThreadMatch],
) -> Sequence[ThreadInfo]:
    db, where = store.db, _Where(**match)
    if before is not None:
        moved = await db.value("SELECT moved FROM {s}.threads WHERE thread = $1", thread_key(before))
        if moved is None:
            raise ThreadNotFound(before)
        where.add("t.moved < $", moved)
    if statuses is not None:
        where.add("t.status = ANY ($)", [status for status in statuses if is_text(status)])
    if where.is_empty:
        return []
    # The inner query selects, the outer one looks up the columns of the selected threads only.
    page = f"WHERE t.number > 0{where.text} ORDER BY t.moved DESC LIMIT {where.bind(limit)}"
    newest = f"SELECT t.* FROM {{s}}.threads t {page}"
    rows = await db.rows(f"{_COLUMNS} FROM ({newest}) t {AND_PROCESS} ORDER BY t.moved", *where.values)
    return [_thread_info(row) for row in rows]


def _thread_info(row: Any) -> ThreadInfo:
    fields = (row["thread_id"], row["workflow"], row["number"], row["status"], row["updated_at"])
    return ThreadInfo(*fields, unpack_id(row["checkpoint_id"]), row["due_at"], live_owner(row))


async def list_thread_ids(
    store: HasDatabase, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
) -> list[str]:
    where = _Where(prefix=prefix)
    if where.is_empty:
        return []
    if after is not None and is_text(after):
        where.add(f"{_START} >= left($, {INDEXED_CHARACTERS})", after)
        where.add('t.thread_id COLLATE "C" > $', after)
    page = f'{where.text} ORDER BY {_START}, t.thread_id COLLATE "C" LIMIT {where.bind(limit)}'
    query = f"SELECT t.thread_id FROM {{s}}.threads t WHERE {HAS_CONTENT}{page}"
    return [row["thread_id"] for row in await store.db.rows(query, *where.values)]


async def load_last_seq(store: HasDatabase, thread_id: str) -> int:
    return int(await store.db.value("SELECT last_seq FROM {s}.threads WHERE thread = $1", thread_key(thread_id)) or 0)


async def list_pending_requests(
    store: HasDatabase, *, limit: int | None = None, **match: Unpack[packing.ThreadMatch]
) -> Sequence[PendingRequest]:
    where = _Where(**match)
    if where.is_empty:
        return []
    source = "{s}.requests r JOIN {s}.threads t ON t.thread = r.thread"
    if match.get("prefix"):  # start with the threads of the prefix, not with the requests of all threads
        source = "{s}.threads t JOIN LATERAL (SELECT * FROM {s}.requests r WHERE r.thread = t.thread OFFSET 0) r"
        source += " ON true"
    order = 'r.asked_at, t.thread_id COLLATE "C", r.request_id COLLATE "C"'
    query = "SELECT t.thread_id, r.request_id, r.executor_id, r.asked_at, r.deadline, r.assignee, t.workflow"
    query += f" FROM {source} WHERE true{where.text} ORDER BY {order} LIMIT {where.bind(limit)}"
    return [PendingRequest(*row) for row in await store.db.rows(query, *where.values)]


async def list_due(store: HasDatabase, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
    due: dict[str, ThreadInfo] = {}
    page_size = 1000 if limit is None else 2 * limit + 10
    query = f"{_COLUMNS} FROM {{s}}.threads t {AND_PROCESS} WHERE t.due_at <= $1"
    query += ' ORDER BY t.due_at, t.thread_id COLLATE "C" LIMIT $2 OFFSET $3'
    for page in count():  # few of them have an owner
        rows = await store.db.rows(query, now, page_size, page * page_size)
        free = (info for row in rows if (info := _thread_info(row)).run_id is None)
        due |= {info.thread_id: info for info in free}  # a thread that moved between two pages comes again
        if len(rows) < page_size or (limit is not None and len(due) >= limit):
            break
    return [*due.values()][:limit]


async def delete_thread(store: HasDatabase, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
    is_retry = False

    async def attempt() -> bool:
        nonlocal is_retry
        async with store.db.transaction() as session:
            row = await _lock_unowned(session, thread_id)
            if row is None:
                return is_retry  # an earlier attempt with an unknown outcome deleted it
            if if_unmoved_since is not None and (row["is_needed"] or row["number"] != if_unmoved_since):
                return False
            is_retry = True
            for table in _TABLES:
                await session.rows(f"DELETE FROM {{s}}.{table} WHERE thread = $1", thread_key(thread_id))
        return True

    return await store.db.retry(attempt)


async def _lock_unowned(session: PgSession, thread_id: str) -> Any:
    """Raises ThreadBusy."""
    key = thread_key(thread_id)
    await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR UPDATE", key)
    # Read after the lock, which may have waited: from now on no process can claim, post or pin.
    row = await session.row(
        f"SELECT t.number, {OWNER_COLUMNS}, EXISTS (SELECT 1 FROM {{s}}.commits WHERE thread = $1 AND is_pinned)"
        " OR EXISTS (SELECT 1 FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL) AS is_needed"
        f" FROM {{s}}.threads t {AND_PROCESS} WHERE t.thread = $1",
        key,
    )
    owner = live_owner(row)
    if owner is not None:
        raise ThreadBusy(thread_id, owner)
    return row


async def find_damage(store: HasDatabase) -> Sequence[Damage]:
    damage: list[Damage] = []
    for table in ("commits", "journal", "inbox", "requests"):
        orphans = f"{{s}}.{table} o WHERE NOT EXISTS (SELECT 1 FROM {{s}}.threads t WHERE t.thread = o.thread)"
        if count := await store.db.value(f"SELECT count(*) FROM {orphans}"):
            damage.append(Damage(f"{count} rows of {table} belong to a thread that does not exist"))
    after: str | None = None
    while ids := await list_thread_ids(store, after=after, limit=BATCH_SIZE):
        after = ids[-1]
        for thread_id in ids:
            try:
                damage += await _check_thread(store.db, thread_id)
            except (PerdureError, TypeError, ValueError) as error:  # rows with impossible values
                damage.append(Damage(f"it cannot be checked: {error}", thread_id))
    return damage


async def _check_thread(db: Database, thread_id: str) -> list[Damage]:
    damage: list[Damage] = []
    key = thread_key(thread_id)

    def report(reason: str, checkpoint_id: str | None = None) -> None:
        damage.append(Damage(reason, thread_id, checkpoint_id))

    attempt = partial(packing.find_damage, thread_id)
    row = await db.row(THREAD_ROW, key)
    damage += attempt(check_thread_row, thread_id, row)
    # The thread's row names the workflow of the newest checkpoint, also if that was pruned.
    if row["is_newest_ever"] and row["newest_workflow"] not in (None, row["workflow"]):
        workflows = f"{row['workflow']!r}, and its head belongs to {row['newest_workflow']!r}"
        report(f"the thread's row names workflow {workflows}")
    for item_id, sealed in await db.rows("SELECT item_id, seal FROM {s}.inbox WHERE thread = $1 AND body IS NULL", key):
        if sealed != packing.consumed_seal(thread_id, item_id):
            report(packing.changed_item(thread_id, item_id).reason)
    for entry in await db.rows("SELECT delivery_id, body, seal FROM {s}.journal WHERE thread = $1", key):
        damage += attempt(packing.unseal_entry, thread_id, *entry)
    inbox = "SELECT item_id, kind, body, seal FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL"
    for item in await db.rows(inbox, key):
        damage += attempt(packing.unseal_item, thread_id, *item)
    numbers, after = set[int](), 0
    query = f"SELECT c.*, ({HAS_CHECKPOINT}) AS has_checkpoint, c.number = ANY (t.pruned) AS is_pruned FROM {COMMITS}"
    query += " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
    while rows := await db.rows(query, key, after, BATCH_SIZE):
        for row in rows:
            numbers.add(row["number"])
            if row["has_checkpoint"]:
                damage += attempt(read_root, thread_id, row)
            damage += attempt(read_events, thread_id, row)
            damage += attempt(unpack_chunks, thread_id, row)
            checkpoint_id, commit = unpack_id(row["checkpoint_id"]), f"commit {row['number']}"
            links = links_checksum(row["parent"], row["previous"], row["dropped"], row["carried"])
            if row["has_checkpoint"] and row["seal"][16:] != links:
                report(f"the references of {commit} to earlier commits were changed", checkpoint_id)
            if row["root"] is not None and checkpoint_id is None and not row["is_pruned"]:
                report(f"the checkpoint of {commit} has lost its id")
            if row["parent"] is not None and row["parent"] not in numbers:
                report(f"{commit} continues from commit {row['parent']}, which does not exist", checkpoint_id)
        after = rows[-1]["number"]
    return damage


async def measure_size(store: HasDatabase) -> int:
    """Bytes of all rows. PostgreSQL reuses the space of deleted rows, and its vacuum frees it."""
    return int(await store.db.value(_SIZE))


class _Where:
    """The conditions on threads `t`: only those that are asked for, so that PostgreSQL chooses the right index."""

    def __init__(
        self, workflow_name: str | None = None, thread_id: str | None = None, prefix: str | None = None
    ) -> None:
        self.text = ""
        self.values: list[Any] = []
        self.is_empty = not all(text is None or is_text(text) for text in (workflow_name, prefix))
        """Whether no thread can match: PostgreSQL cannot store the text that is asked for."""
        if workflow_name is not None:
            self.add("t.workflow = $", workflow_name)
        if thread_id is not None:
            self.add("t.thread = $", thread_key(thread_id))
        if prefix:  # as a range, which an index supports also in a generic plan
            start = prefix[:INDEXED_CHARACTERS]
            self.add(f"{_START} >= $", start)
            end = packing.first_after(start)
            if end is not None:
                self.add(f"{_START} < $", end)
            if start != prefix:
                self.add("starts_with(t.thread_id, $)", prefix)

    def add(self, condition: str, value: Any) -> None:
        self.text += f" AND {condition.replace('$', self.bind(value))}"

    def bind(self, value: Any) -> str:
        """Add a parameter; returns its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"
