"""Reading a PostgreSQL store: checkpoints, lists of them, events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import UUID

from perdure.errors import CheckpointNotFound, CursorExpired, DamagedCheckpoint
from perdure.records import CheckpointInfo, LoggedEvents, StoredCheckpoint
from perdure.stores.postgres.database import Session
from perdure.stores.postgres.rows import (
    LAST,
    chunks_of,
    events_of,
    id_in,
    info_of,
    is_text,
    key_of,
    packed_id,
    root_of,
    run_in,
    timestamp_of,
)
from perdure.stores.postgres.thread_lists import ThreadLists

IS_THERE = "c.checkpoint_id IS NOT NULL AND (c.number <> ALL (t.forgotten) OR c.is_pinned)"
"""Whether a commit `c` of thread `t` has a checkpoint."""

PARENT_ID = """
(SELECT p.checkpoint_id FROM {s}.commits p WHERE p.thread = c.thread AND p.number = c.parent
  AND (p.number <> ALL (t.forgotten) OR p.is_pinned)) AS parent_id
"""
"""The checkpoint that `c` continues from; NULL if that is gone, and one before it has to be looked for."""

_INFO = """
c.thread, t.thread_id, c.number, c.seq, c.parent, c.made_at, c.checkpoint_id, c.workflow, c.iteration, c.previous,
  c.timestamp, c.run_id, c.status, c.is_pinned
"""
_FROM = "FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"

_HEAD = f"""
SELECT t.head, {_INFO}, {PARENT_ID}, c.root, c.seal FROM {{s}}.threads t
LEFT JOIN LATERAL (SELECT c.* FROM {{s}}.commits c
  WHERE c.thread = t.thread AND {IS_THERE} ORDER BY c.number DESC LIMIT 1) c ON true WHERE t.thread = $1
"""

_NEAREST = f"""
WITH RECURSIVE up AS (
  SELECT g.place, g.thread, g.number FROM unnest($1::int[], $2::uuid[], $3::bigint[]) g (place, thread, number)
  UNION ALL
  SELECT up.place, up.thread, found.parent FROM up, LATERAL (SELECT c.parent FROM {{s}}.commits c,
    LATERAL (SELECT t.forgotten FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t
    WHERE c.thread = up.thread AND c.number = up.number AND c.parent IS NOT NULL AND NOT ({IS_THERE}) OFFSET 0) found
)
SELECT up.place, found.checkpoint_id FROM up, LATERAL (SELECT c.checkpoint_id FROM {{s}}.commits c,
  LATERAL (SELECT t.forgotten FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t
  WHERE c.thread = up.thread AND c.number = up.number AND {IS_THERE} OFFSET 0) found
"""
"""Row by row from the index, whatever is known of how many there are."""

_ALL_WORKFLOWS = """
WITH RECURSIVE names AS (
  (SELECT workflow FROM {s}.commits WHERE checkpoint_id IS NOT NULL ORDER BY workflow LIMIT 1)
  UNION ALL
  SELECT (SELECT c.workflow FROM {s}.commits c WHERE c.checkpoint_id IS NOT NULL AND c.workflow > names.workflow
    ORDER BY c.workflow LIMIT 1) FROM names WHERE names.workflow IS NOT NULL
) SELECT workflow FROM names WHERE workflow IS NOT NULL
"""
"""Each once, from the index: a list of all is put together from one of each."""

_PAGE = f"""
SELECT {_INFO}, ({IS_THERE}) AS is_there FROM (SELECT * FROM {{s}}.commits WHERE workflow = $1
  AND checkpoint_id IS NOT NULL AND seq < $2 ORDER BY seq DESC LIMIT $3) c
JOIN LATERAL (SELECT * FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t ON true ORDER BY c.seq DESC
"""
"""First which, then what is told of them: so it needs no statistics to be read from the index."""

_PAGE_OF_THREAD = f"""
SELECT {_INFO}, ({IS_THERE}) AS is_there FROM (SELECT * FROM {{s}}.commits WHERE thread = $1
  AND checkpoint_id IS NOT NULL AND number < $2 AND seq < $4 ORDER BY number DESC LIMIT $3) c
JOIN LATERAL (SELECT * FROM {{s}}.threads t WHERE t.thread = c.thread OFFSET 0) t ON true ORDER BY c.number DESC
"""

_EVENTS = f"""
SELECT t.first_seq AS oldest, t.last_seq AS newest, e.* FROM {{s}}.threads t
JOIN LATERAL (SELECT COALESCE(
  (SELECT max(number) FROM {{s}}.commits WHERE thread = $1 AND number > t.number - 64 AND first_seq <= $2),
  (SELECT number FROM {{s}}.commits WHERE thread = $1
    AND first_seq <= COALESCE($2, t.first_seq - 1) ORDER BY number DESC LIMIT 1), 0) AS number OFFSET 0) start ON true
LEFT JOIN LATERAL (
  SELECT {_INFO}, ({IS_THERE}) AS is_there, c.first_seq, c.event_count, c.refers, c.own, c.events, c.seal
  FROM {{s}}.commits c WHERE c.thread = $1 AND c.first_seq IS NOT NULL AND c.number >= t.silent_before
    AND c.number >= start.number AND c.first_seq + c.event_count > COALESCE($2, t.first_seq - 1) + 1 OFFSET 0
) e ON true WHERE t.thread = $1 ORDER BY e.number
"""
"""The log and what is kept of it, as one look at both. Most who ask are near its end, and are not to read all of it."""


class Reading(ThreadLists):
    # ------------------------------------------------------------ checkpoints

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        if not is_text(checkpoint_id):
            return None
        row = await self.db.row(
            f"SELECT {_INFO}, {PARENT_ID}, c.root, c.seal {_FROM} WHERE c.checkpoint_id = $1 AND {IS_THERE}"
            " ORDER BY c.seq DESC LIMIT 1",
            packed_id(checkpoint_id),
        )
        return None if row is None else await self._stored(row)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        row = await self.db.row(_HEAD, key_of(thread_id))
        if row is None or (row["head"] is None and row["number"] is None):
            return None
        if row["head"] != row["number"]:
            found = f"its newest checkpoint is that of commit {row['number']}"
            reason = f"its head is to be commit {row['head']}, and {found}"
            raise DamagedCheckpoint(id_in(row["checkpoint_id"]) or "of its head", reason, thread_id)
        return await self._stored(row)

    async def _stored(self, row: Any) -> StoredCheckpoint:
        (previous,) = await self.previous_of([(row["thread"], row)])
        return StoredCheckpoint(info_of(row["thread_id"], row, previous), root_of(row["thread_id"], row))

    async def previous_of(self, rows: Sequence[tuple[UUID, Any]], session: Session | None = None) -> list[str | None]:
        """The checkpoints that these continue from: most are among them."""
        known = {(thread, row["number"]): id_in(row["checkpoint_id"]) for thread, row in rows}
        found: list[str | None] = []
        missing = []
        for place, (thread, row) in enumerate(rows):
            parent = row["parent"]
            found.append(row["previous"] if parent is None else known.get((thread, parent)))
            if parent is not None and found[-1] is None and "parent_id" in row:
                found[-1] = id_in(row["parent_id"])
            if parent is not None and found[-1] is None:
                missing.append((place, thread, parent))
        if missing:
            for row in await (session or self.db).rows(_NEAREST, *map(list, zip(*missing, strict=True))):
                found[row["place"]] = id_in(row["checkpoint_id"])
        return found

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        rows = await self.db.rows(
            "SELECT c.number, c.names, c.chunks FROM unnest($2::bigint[]) n (number), LATERAL (SELECT number, names,"
            " chunks FROM {s}.commits WHERE thread = $1 AND number = n.number OFFSET 0) c",
            key_of(thread_id),
            list(numbers),
        )
        return {row["number"]: chunks_of(thread_id, row) for row in rows}

    # ------------------------------------------------------------ lists

    async def infos(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[CheckpointInfo]:
        seq, number = LAST, LAST
        if before is not None:
            place = await self._place_of(before)
            seq = place["seq"]
            if thread_id is not None and place["thread"] == key_of(thread_id):
                number = place["number"]  # by which an index is
        if workflow_name is not None and not is_text(workflow_name):
            return []
        if thread_id is not None:
            of = (key_of(thread_id), number, limit, seq)
            rows = await self._newest(_PAGE_OF_THREAD, "number", *of, workflow=workflow_name)
        else:
            names = [workflow_name]
            if workflow_name is None:
                names = [row["workflow"] for row in await self.db.rows(_ALL_WORKFLOWS)]
            found = [await self._newest(_PAGE, "seq", name, seq, limit) for name in names]
            rows = sorted(chain(*found), key=lambda row: -row["seq"])[:limit]
        previous = await self.previous_of([(row["thread"], row) for row in rows])
        infos = [info_of(row["thread_id"], row, one) for row, one in zip(rows, previous, strict=True)]
        return infos[::-1]

    async def _newest(
        self, page: str, by: str, of: Any, before: int, limit: int | None, *more: Any, workflow: str | None = None
    ) -> list[Any]:
        """Checkpoints before a place in an order. Some of what is read may be forgotten: then more is read."""
        found: list[Any] = []
        at_once = limit
        while True:
            rows = await self.db.rows(page, of, before, at_once, *more)
            found += (row for row in rows if row["is_there"] and workflow in (None, row["workflow"]))
            if limit is None or at_once is None or len(rows) < at_once or len(found) >= limit:
                return found[:limit]
            before, at_once = rows[-1][by], 2 * at_once + 10

    async def _place_of(self, checkpoint_id: str) -> Any:
        """Raises CheckpointNotFound."""
        row = None
        if is_text(checkpoint_id):
            row = await self.db.row(
                f"SELECT c.thread, c.number, c.seq {_FROM} WHERE c.checkpoint_id = $1 AND {IS_THERE}"
                " ORDER BY c.seq DESC LIMIT 1",
                packed_id(checkpoint_id),
            )
        if row is None:
            raise CheckpointNotFound(checkpoint_id)
        return row

    # ------------------------------------------------------------ events

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        rows = await self.db.rows(_EVENTS, key_of(thread_id), None if seq is None else min(seq, LAST))
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
            raise DamagedCheckpoint("of its log", f"its events end at {end}, and {newest} were told", thread_id)
        return await self._logged(thread_id, rows)

    async def _logged(self, thread_id: str, rows: Sequence[Any]) -> list[LoggedEvents]:
        there = [row for row in rows if row["is_there"]]
        previous = await self.previous_of([(row["thread"], row) for row in there])
        infos = {row["number"]: info_of(thread_id, row, one) for row, one in zip(there, previous, strict=True)}
        found = []
        for row in rows:
            events = events_of(thread_id, row)
            if events is not None:
                said = (row["number"], run_in(row), timestamp_of(row), infos.get(row["number"]))
                found.append(
                    LoggedEvents(events.first_seq, events.count, events.body, events.refers, events.own, *said)
                )
        return found
