"""Lists of the threads of a PostgreSQL store and of what they ask: which there are, and where they stand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from perdure.errors import ThreadNotFound
from perdure.records import PendingRequest, ThreadInfo
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rows import id_in, is_text, key_of
from perdure.stores.prefixes import first_after

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
