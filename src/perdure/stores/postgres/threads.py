"""Lists of threads and of their pending requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

from perdure.errors import ThreadNotFound
from perdure.records import PendingRequest, ThreadInfo
from perdure.stores.packing import first_after
from perdure.stores.postgres.database import Queries
from perdure.stores.postgres.processes import live_owner
from perdure.stores.postgres.rows import is_text, thread_key, unpack_id

_COLUMNS = """
SELECT t.thread_id, t.workflow, t.number, t.status, t.updated_at, t.due_at, t.owner, t.process, p.identity,
  p.leased_until > clock_timestamp() AS is_leased, t.moved,
  (SELECT c.checkpoint_id FROM {s}.commits c WHERE c.thread = t.thread AND c.number = t.head) AS checkpoint_id
"""
_AND_PROCESS = "LEFT JOIN {s}.processes p ON p.process = t.process"

INDEXED_CHARACTERS = 200
"""Characters of a thread id that an index covers."""
_START = f'left(t.thread_id, {INDEXED_CHARACTERS}) COLLATE "C"'
"""Ordered by code points."""

_IS_IN_USE = """
(t.number > 0 OR EXISTS (SELECT 1 FROM {s}.inbox i WHERE i.thread = t.thread)
  OR EXISTS (SELECT 1 FROM {s}.journal j WHERE j.thread = t.thread))
"""


class ThreadFilter(NamedTuple):
    """The arguments of `Store.threads` and `Store.pending_requests`."""

    workflow_name: str | None = None
    thread_id: str | None = None
    prefix: str | None = None
    statuses: Collection[str] | None = None
    limit: int | None = None
    before: str | None = None


async def list_threads(db: Queries, selected: ThreadFilter) -> Sequence[ThreadInfo]:
    where, before, statuses = _where(selected), selected.before, selected.statuses
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
    rows = await db.rows(
        f"{_COLUMNS} FROM (SELECT t.* FROM {{s}}.threads t WHERE t.number > 0{where.text}"
        f" ORDER BY t.moved DESC LIMIT {where.bind(selected.limit)}) t {_AND_PROCESS} ORDER BY t.moved",
        *where.values,
    )
    return [_thread_info(row) for row in rows]


def _thread_info(row: Any) -> ThreadInfo:
    fields = (row["thread_id"], row["workflow"], row["number"], row["status"], row["updated_at"])
    return ThreadInfo(*fields, unpack_id(row["checkpoint_id"]), row["due_at"], live_owner(row))


async def has_thread(db: Queries, thread_id: str) -> bool:
    """Whether the thread was ever written to."""
    return await db.value("SELECT 1 FROM {s}.threads WHERE thread = $1", thread_key(thread_id)) is not None


async def list_thread_ids(db: Queries, prefix: str | None, after: str | None, limit: int | None) -> list[str]:
    where = _where(ThreadFilter(prefix=prefix))
    if where.is_empty:
        return []
    if after is not None and is_text(after):
        where.add(f"{_START} >= left($, {INDEXED_CHARACTERS})", after)
        where.add('t.thread_id COLLATE "C" > $', after)
    rows = await db.rows(
        f"SELECT t.thread_id FROM {{s}}.threads t WHERE {_IS_IN_USE}{where.text}"
        f' ORDER BY {_START}, t.thread_id COLLATE "C" LIMIT {where.bind(limit)}',
        *where.values,
    )
    return [row["thread_id"] for row in rows]


async def load_last_seq(db: Queries, thread_id: str) -> int:
    return int(await db.value("SELECT last_seq FROM {s}.threads WHERE thread = $1", thread_key(thread_id)) or 0)


async def list_pending_requests(db: Queries, selected: ThreadFilter) -> Sequence[PendingRequest]:
    where = _where(selected)
    if where.is_empty:
        return []
    source = "{s}.requests r JOIN {s}.threads t ON t.thread = r.thread"
    if selected.prefix:  # start with the threads of the prefix, not with the requests of all threads
        source = "{s}.threads t JOIN LATERAL (SELECT * FROM {s}.requests r WHERE r.thread = t.thread OFFSET 0) r"
        source += " ON true"
    rows = await db.rows(
        "SELECT t.thread_id, r.request_id, r.executor_id, r.asked_at, r.deadline, r.assignee, t.workflow"
        f" FROM {source} WHERE true{where.text}"
        f' ORDER BY r.asked_at, t.thread_id COLLATE "C", r.request_id COLLATE "C" LIMIT {where.bind(selected.limit)}',
        *where.values,
    )
    return [PendingRequest(*row) for row in rows]


async def list_due(db: Queries, now: datetime, limit: int | None) -> Sequence[ThreadInfo]:
    due: dict[str, ThreadInfo] = {}
    page_size = 1000 if limit is None else 2 * limit + 10
    for page in count():  # few of them have an owner
        rows = await db.rows(
            f"{_COLUMNS} FROM {{s}}.threads t {_AND_PROCESS} WHERE t.due_at <= $1"
            ' ORDER BY t.due_at, t.thread_id COLLATE "C" LIMIT $2 OFFSET $3',
            now,
            page_size,
            page * page_size,
        )
        free = (info for row in rows if (info := _thread_info(row)).run_id is None)
        due |= {info.thread_id: info for info in free}  # a thread that moved between two pages comes again
        if len(rows) < page_size or (limit is not None and len(due) >= limit):
            break
    return [*due.values()][:limit]


class _Where:
    """The conditions on threads `t`: only those that are asked for, so that PostgreSQL chooses the right index."""

    def __init__(self) -> None:
        self.text = ""
        self.values: list[Any] = []
        self.is_empty = False
        """Whether no thread can match: PostgreSQL cannot store the text that is asked for."""

    def add_prefix(self, prefix: str) -> None:
        """As a range, which an index supports also in a generic plan."""
        self.add(f"{_START} >= $", prefix[:INDEXED_CHARACTERS])
        end = first_after(prefix[:INDEXED_CHARACTERS])
        if end is not None:
            self.add(f"{_START} < $", end)
        if len(prefix) > INDEXED_CHARACTERS:
            self.add("starts_with(t.thread_id, $)", prefix)

    def add(self, condition: str, value: Any) -> None:
        self.text += f" AND {condition.replace('$', self.bind(value))}"

    def bind(self, value: Any) -> str:
        """Add a parameter; returns its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"


def _where(selected: ThreadFilter) -> _Where:
    where = _Where()
    texts = (selected.workflow_name, selected.prefix)
    where.is_empty = any(text is not None and not is_text(text) for text in texts)
    if selected.workflow_name is not None:
        where.add("t.workflow = $", selected.workflow_name)
    if selected.thread_id is not None:
        where.add("t.thread = $", thread_key(selected.thread_id))
    if selected.prefix:
        where.add_prefix(selected.prefix)
    return where
