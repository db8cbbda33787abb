"""Reading checkpoints and events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from perdure.errors import CheckpointNotFound, CursorExpired, DamagedCheckpoint
from perdure.records import CheckpointInfo, LoggedEvents, StoredCheckpoint
from perdure.stores.postgres.database import HasDatabase, Queries
from perdure.stores.postgres.rows import (
    MAX_NUMBER,
    is_text,
    pack_id,
    read_events,
    read_info,
    read_root,
    read_timestamp,
    thread_key,
    unpack_chunks,
    unpack_id,
    unpack_run_id,
)

HAS_CHECKPOINT = "c.checkpoint_id IS NOT NULL AND (c.number <> ALL (t.pruned) OR c.is_pinned)"
"""Whether commit `c` of thread `t` has a checkpoint."""

PARENT_ID = """
(SELECT p.checkpoint_id FROM {s}.commits p WHERE p.thread = c.thread AND p.number = c.parent
  AND (p.number <> ALL (t.pruned) OR p.is_pinned)) AS parent_id
"""
"""The parent of checkpoint `c`; NULL if it was pruned, then `find_previous` looks for an older one."""

_INFO = """
c.thread, t.thread_id, c.number, c.seq, c.parent, c.made_at, c.checkpoint_id, c.workflow, c.iteration, c.previous,
  c.timestamp, c.run_id, c.status, c.is_pinned
"""
COMMITS = "{s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
BY_ID = f"FROM {COMMITS} WHERE c.checkpoint_id = $1 AND {HAS_CHECKPOINT} ORDER BY c.seq DESC LIMIT 1"

AND_HEAD = f"""
LEFT JOIN LATERAL (SELECT * FROM {{s}}.commits c WHERE c.thread = $1 AND {HAS_CHECKPOINT}
  ORDER BY c.number DESC LIMIT 1) c ON true
"""
"""The newest checkpoint of thread `t`, which is its head unless its row was damaged."""

_HEAD = f"SELECT t.head, {_INFO}, {PARENT_ID}, c.root, c.seal FROM {{s}}.threads t {AND_HEAD} WHERE t.thread = $1"

_NEAREST = f"""
WITH RECURSIVE up AS (
  SELECT g.place, g.thread, g.number FROM unnest($1::int[], $2::uuid[], $3::bigint[]) g (place, thread, number)
  UNION ALL
  SELECT up.place, up.thread, ancestor.parent FROM up, LATERAL (SELECT c.parent FROM {{s}}.commits c,
    LATERAL (SELECT t.pruned FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t
    WHERE c.thread = up.thread AND c.number = up.number AND c.parent IS NOT NULL
      AND NOT ({HAS_CHECKPOINT}) OFFSET 0) ancestor
)
SELECT up.place, ancestor.checkpoint_id FROM up, LATERAL (SELECT c.checkpoint_id FROM {{s}}.commits c,
  LATERAL (SELECT t.pruned FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t
  WHERE c.thread = up.thread AND c.number = up.number AND {HAS_CHECKPOINT} OFFSET 0) ancestor
"""
"""OFFSET 0 makes it read row by row from the index, whatever the statistics say."""

_ALL_WORKFLOWS = """
WITH RECURSIVE names AS (
  (SELECT workflow FROM {s}.commits WHERE checkpoint_id IS NOT NULL ORDER BY workflow LIMIT 1)
  UNION ALL
  SELECT (SELECT c.workflow FROM {s}.commits c WHERE c.checkpoint_id IS NOT NULL AND c.workflow > names.workflow
    ORDER BY c.workflow LIMIT 1) FROM names WHERE names.workflow IS NOT NULL
) SELECT workflow FROM names WHERE workflow IS NOT NULL
"""
"""Each name once, from the index. The list of all checkpoints merges one list per workflow."""


def _page(where: str, order: str) -> str:
    """The inner query selects: PostgreSQL then uses the index, whatever the statistics say."""
    return f"""
SELECT {_INFO}, ({HAS_CHECKPOINT}) AS has_checkpoint FROM (SELECT * FROM {{s}}.commits
  WHERE {where} AND checkpoint_id IS NOT NULL ORDER BY {order} DESC LIMIT $3) c
JOIN LATERAL (SELECT * FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t ON true ORDER BY c.{order} DESC
"""


_PAGE = _page("workflow = $1 AND seq < $2", "seq")
_PAGE_OF_THREAD = _page("thread = $1 AND number < $2 AND seq < $4", "number")

_EVENTS = f"""
SELECT t.first_seq AS oldest, t.last_seq AS newest, e.* FROM {{s}}.threads t
JOIN LATERAL (SELECT COALESCE(
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1 AND number > t.number - 64 AND first_seq <= $2),
  (SELECT number FROM {{s}}.commits WHERE thread = $1
    AND first_seq <= COALESCE($2, t.first_seq - 1) ORDER BY number DESC LIMIT 1), 0) AS number OFFSET 0) start ON true
LEFT JOIN LATERAL (
  SELECT {_INFO}, ({HAS_CHECKPOINT}) AS has_checkpoint, c.first_seq, c.event_count, c.refers, c.own, c.events, c.seal
  FROM {{s}}.commits c WHERE c.thread = $1 AND c.first_seq IS NOT NULL AND c.number >= t.events_dropped_before
    AND c.number >= start.number AND c.first_seq + c.event_count > COALESCE($2, t.first_seq - 1) + 1 OFFSET 0
) e ON true WHERE t.thread = $1 ORDER BY e.number
"""
"""The log and its limits in one snapshot. Most readers are near its end: the start is searched in the last 64 commits
first."""

THREAD_ROW = f"""
SELECT t.number, t.head, t.workflow, c.workflow AS newest_workflow, c.number AS newest, c.checkpoint_id,
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1) AS last,
  (SELECT count(*) = t.number - t.head AND count(workflow) = 0 FROM {{s}}.commits
    WHERE thread = $1 AND number > t.head) AS is_newest_ever
FROM {{s}}.threads t {AND_HEAD} WHERE t.thread = $1
"""
"""The thread's row beside what its commits say."""


async def find_checkpoint(store: HasDatabase, checkpoint_id: str) -> StoredCheckpoint | None:
    if not is_text(checkpoint_id):
        return None
    row = await store.db.row(f"SELECT {_INFO}, {PARENT_ID}, c.root, c.seal {BY_ID}", pack_id(checkpoint_id))
    return None if row is None else await _stored_checkpoint(store.db, row)


async def load_head(store: HasDatabase, thread_id: str) -> StoredCheckpoint | None:
    row = await store.db.row(_HEAD, thread_key(thread_id))
    if row is None or (row["head"] is None and row["number"] is None):
        return None
    if row["head"] != row["number"]:
        reason = f"its head is to be commit {row['head']}, and its newest checkpoint is that of commit {row['number']}"
        raise DamagedCheckpoint(unpack_id(row["checkpoint_id"]) or "of its head", reason, thread_id)
    return await _stored_checkpoint(store.db, row)


async def _stored_checkpoint(db: Queries, row: Any) -> StoredCheckpoint:
    (previous,) = await find_previous(db, [row])
    return StoredCheckpoint(read_info(row["thread_id"], row, previous), read_root(row["thread_id"], row))


async def find_previous(db: Queries, rows: Sequence[Any], older: Iterable[Any] = ()) -> list[str | None]:
    """The parent checkpoint of each row, or its nearest ancestor that still exists. Most are among the rows, or among
    the `older` ones: then no query is needed."""
    ids = {(row["thread"], row["number"]): unpack_id(row["checkpoint_id"]) for row in chain(rows, older)}
    previous: list[str | None] = []
    missing = []
    for place, row in enumerate(rows):
        parent, thread = row["parent"], row["thread"]
        previous.append(row["previous"] if parent is None else ids.get((thread, parent)))
        if parent is not None and previous[-1] is None and "parent_id" in row:
            previous[-1] = unpack_id(row["parent_id"])
        if parent is not None and previous[-1] is None:
            missing.append((place, thread, parent))
    if missing:
        for row in await db.rows(_NEAREST, *map(list, zip(*missing, strict=True))):
            previous[row["place"]] = unpack_id(row["checkpoint_id"])
    return previous


async def read_infos(db: Queries, thread_id: str, rows: Iterable[Any]) -> dict[int, CheckpointInfo]:
    """The checkpoints of those rows that have one, by number."""
    present = [row for row in rows if row["has_checkpoint"]]
    previous = await find_previous(db, present)
    return {row["number"]: read_info(thread_id, row, parent) for row, parent in zip(present, previous, strict=True)}


async def read_chunks(store: HasDatabase, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
    commits = "SELECT number, names, chunks FROM {s}.commits WHERE thread = $1 AND number = n.number OFFSET 0"
    query = f"SELECT c.number, c.names, c.chunks FROM unnest($2::bigint[]) n (number), LATERAL ({commits}) c"
    rows = await store.db.rows(query, thread_key(thread_id), list(numbers))
    return {row["number"]: unpack_chunks(thread_id, row) for row in rows}


async def list_infos(
    store: HasDatabase,
    *,
    workflow_name: str | None = None,
    thread_id: str | None = None,
    limit: int | None = None,
    before: str | None = None,
) -> Sequence[CheckpointInfo]:
    db, seq, number = store.db, MAX_NUMBER, MAX_NUMBER
    # One row more has the parent of the last: a page of 100 takes one round trip instead of two.
    page = None if limit is None else min(limit, MAX_NUMBER) + 1
    if before is not None:
        cursor = is_text(before) and await db.row(f"SELECT c.thread, c.number, c.seq {BY_ID}", pack_id(before))
        if not cursor:
            raise CheckpointNotFound(before)
        seq = cursor["seq"]
        if thread_id is not None and cursor["thread"] == thread_key(thread_id):
            number = cursor["number"]  # which an index covers
    if workflow_name is not None and not is_text(workflow_name):
        return []
    if thread_id is not None:
        rows = await _newest(db, _PAGE_OF_THREAD, "number", thread_key(thread_id), number, page, workflow_name, seq)
    else:
        names = [workflow_name]
        if workflow_name is None:
            names = [row["workflow"] for row in await db.rows(_ALL_WORKFLOWS)]
        pages = [await _newest(db, _PAGE, "seq", name, seq, page, None) for name in names]
        rows = sorted(chain(*pages), key=lambda row: -row["seq"])
    shown = rows[:limit]
    previous = await find_previous(db, shown, rows[len(shown) :])
    infos = [read_info(row["thread_id"], row, parent) for row, parent in zip(shown, previous, strict=True)]
    return infos[::-1]


async def _newest(
    db: Queries, page: str, order: str, key: Any, before: int, limit: int | None, workflow: str | None, *more: Any
) -> list[Any]:
    """The newest checkpoints before a position in an order. Reads another page if a page holds pruned ones."""
    newest: list[Any] = []
    page_size = limit
    while True:
        rows = await db.rows(page, key, before, page_size, *more)
        newest += (row for row in rows if row["has_checkpoint"] and workflow in (None, row["workflow"]))
        if limit is None or page_size is None or len(rows) < page_size or len(newest) >= limit:
            return newest[:limit]
        before, page_size = rows[-1][order], 2 * page_size + 10


async def load_events(store: HasDatabase, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
    rows = await store.db.rows(_EVENTS, thread_key(thread_id), None if seq is None else min(seq, MAX_NUMBER))
    if not rows:
        return []
    oldest, newest = rows[0]["oldest"], rows[0]["newest"]
    if seq is not None and max(seq, 0) + 1 < oldest:
        raise CursorExpired(thread_id, seq, oldest)
    rows = [row for row in rows if row["number"] is not None]
    end = oldest - 1 if seq is None else max(seq, 0)
    for row in rows:
        if row["first_seq"] > end + 1:
            break
        end = row["first_seq"] + row["event_count"] - 1
    if end < newest and oldest <= newest:
        raise DamagedCheckpoint("of its log", f"its events end at {end}, and {newest} were committed", thread_id)
    infos = await read_infos(store.db, thread_id, rows)
    log = []
    for row in rows:
        events, number = read_events(thread_id, row), row["number"]
        if events is not None:
            of_commit = {"run_id": unpack_run_id(row), "timestamp": read_timestamp(row)}
            log.append(msgspec.structs.replace(events, number=number, info=infos.get(number), **of_commit))
    return log


def check_thread_row(thread_id: str, row: Any) -> None:
    """Raises DamagedCheckpoint if the thread's row contradicts its commits."""
    number, head, last, newest = row["number"] or 0, row["head"], row["last"], row["newest"]
    if head != newest or number < (last or 0):
        position = f"its row names commit {number} with its head at {head}"
        reason = f"{position}, and its commits end at {last} with a head at {newest}"
        raise DamagedCheckpoint(unpack_id(row["checkpoint_id"]) or "of its head", reason, thread_id)
