"""Reading a PostgreSQL store: checkpoints, lists of them, events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, count
from typing import Any
from uuid import UUID

from perdure.errors import CheckpointNotFound, CursorExpired, DamagedCheckpoint, ThreadNotFound
from perdure.records import CheckpointInfo, LoggedEvents, PendingRequest, StoredCheckpoint, ThreadInfo
from perdure.stores.packing import first_after
from perdure.stores.postgres.database import Database, PgSession
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

# ---------------------------------------------------------------- thread lists


_TOLD = """
SELECT t.thread_id, t.workflow, t.number, t.status, t.updated_at, t.due_at, t.owner, t.process, p.identity,
  p.leased_until > clock_timestamp() AS is_leased, t.moved,
  (SELECT c.checkpoint_id FROM {s}.commits c WHERE c.thread = t.thread AND c.number = t.head) AS checkpoint_id
"""
_AND_PROCESS = "LEFT JOIN {s}.processes p ON p.process = t.process"

INDEXED = 200
"""Characters of a thread's id that are in an index."""
_START = f'left(t.thread_id, {INDEXED}) COLLATE "C"'
"""In this order, which is that of code points."""

_HOLDS_ANYTHING = """
(t.number > 0 OR EXISTS (SELECT 1 FROM {s}.inbox i WHERE i.thread = t.thread)
  OR EXISTS (SELECT 1 FROM {s}.journal j WHERE j.thread = t.thread))
"""


class ThreadLists:
    def __init__(self, database: Database) -> None:
        self.db = database

    def owner_in(self, row: Any) -> str | None:
        """The run that holds a thread, if it still does: who owns is told by `Owning`, which is made of this."""
        raise NotImplementedError

    async def threads(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        statuses: Collection[str] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Sequence[ThreadInfo]:
        where = _Where(workflow_name, thread_id, prefix)
        if before is not None:
            moved = await self.db.value("SELECT moved FROM {s}.threads WHERE thread = $1", key_of(before))
            if moved is None:
                raise ThreadNotFound(before)
            where.add("t.moved < $", moved)
        if statuses is not None:
            where.add("t.status = ANY ($)", [one for one in statuses if is_text(one)])
        if where.is_of_none:
            return []
        # First which, then what is told of them: only of these it is looked up.
        rows = await self.db.rows(
            f"{_TOLD} FROM (SELECT t.* FROM {{s}}.threads t WHERE t.number > 0{where.text}"
            f" ORDER BY t.moved DESC LIMIT {where.given(limit)}) t {_AND_PROCESS} ORDER BY t.moved",
            *where.values,
        )
        return [self._thread_info(row) for row in rows]

    def _thread_info(self, row: Any) -> ThreadInfo:
        said = (row["thread_id"], row["workflow"], row["number"], row["status"], row["updated_at"])
        return ThreadInfo(*said, id_in(row["checkpoint_id"]), row["due_at"], self.owner_in(row))

    async def has_thread(self, thread_id: str) -> bool:
        """Whether anything was ever written of it."""
        found = await self.db.value("SELECT 1 FROM {s}.threads WHERE thread = $1", key_of(thread_id))
        return found is not None

    async def thread_ids(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Sequence[str]:
        where = _Where(prefix=prefix)
        if where.is_of_none:
            return []
        if after is not None and is_text(after):
            where.add(f"{_START} >= left($, {INDEXED})", after)
            where.add('t.thread_id COLLATE "C" > $', after)
        rows = await self.db.rows(
            f"SELECT t.thread_id FROM {{s}}.threads t WHERE {_HOLDS_ANYTHING}{where.text}"
            f' ORDER BY {_START}, t.thread_id COLLATE "C" LIMIT {where.given(limit)}',
            *where.values,
        )
        return [row["thread_id"] for row in rows]

    async def last_seq(self, thread_id: str) -> int:
        return int(await self.db.value("SELECT last_seq FROM {s}.threads WHERE thread = $1", key_of(thread_id)) or 0)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Sequence[PendingRequest]:
        where = _Where(workflow_name, thread_id, prefix)
        if where.is_of_none:
            return []
        found = "{s}.requests r JOIN {s}.threads t ON t.thread = r.thread"
        if prefix:  # those of some threads are found by these, not among those of all
            found = "{s}.threads t JOIN LATERAL (SELECT * FROM {s}.requests r WHERE r.thread = t.thread OFFSET 0) r"
            found += " ON true"
        rows = await self.db.rows(
            "SELECT t.thread_id, r.request_id, r.executor_id, r.asked_at, r.deadline, r.assignee, t.workflow"
            f" FROM {found} WHERE true{where.text}"
            f' ORDER BY r.asked_at, t.thread_id COLLATE "C", r.request_id COLLATE "C" LIMIT {where.given(limit)}',
            *where.values,
        )
        return [PendingRequest(*row) for row in rows]

    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        found: dict[str, ThreadInfo] = {}
        at_once = 1000 if limit is None else 2 * limit + 10
        for page in count():  # most of them have no owner
            rows = await self.db.rows(
                f"{_TOLD} FROM {{s}}.threads t {_AND_PROCESS} WHERE t.due_at <= $1"
                ' ORDER BY t.due_at, t.thread_id COLLATE "C" LIMIT $2 OFFSET $3',
                now,
                at_once,
                page * at_once,
            )
            free = (info for row in rows if (info := self._thread_info(row)).run_id is None)
            found |= {info.thread_id: info for info in free}  # one that was due later since the last look comes again
            if len(rows) < at_once or (limit is not None and len(found) >= limit):
                break
        return [*found.values()][:limit]


class _Where:
    """Which threads `t` a list is of. Only what is given is in its text: one for all would be planned for none."""

    def __init__(
        self, workflow_name: str | None = None, thread_id: str | None = None, prefix: str | None = None
    ) -> None:
        self.text = ""
        self.values: list[Any] = []
        self.is_of_none = any(one is not None and not is_text(one) for one in (workflow_name, prefix))
        """What PostgreSQL cannot keep is no workflow, and begins no id."""
        if workflow_name is not None:
            self.add("t.workflow = $", workflow_name)
        if thread_id is not None:
            self.add("t.thread = $", key_of(thread_id))
        if prefix:
            self._begin_with(prefix)

    def _begin_with(self, prefix: str) -> None:
        """As a range, which an index finds also where the plan was made for any text."""
        self.add(f"{_START} >= $", prefix[:INDEXED])
        end = first_after(prefix[:INDEXED])
        if end is not None:
            self.add(f"{_START} < $", end)
        if len(prefix) > INDEXED:
            self.add("starts_with(t.thread_id, $)", prefix)

    def add(self, condition: str, value: Any) -> None:
        self.text += f" AND {condition.replace('$', self.given(value))}"

    def given(self, value: Any) -> str:
        """How a value is referred to."""
        self.values.append(value)
        return f"${len(self.values)}"


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

    async def previous_of(self, rows: Sequence[tuple[UUID, Any]], session: PgSession | None = None) -> list[str | None]:
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
