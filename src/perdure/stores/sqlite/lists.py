"""Lists of threads and of what they ask, by workflow, by id, by the beginning of the id, and by status."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from perdure.errors import ThreadNotFound
from perdure.records import PendingRequest, ThreadInfo
from perdure.stores.packing import first_after, from_time, is_writable, to_id, to_time, to_timestamp
from perdure.stores.sqlite.history import HistoryRows
from perdure.stores.sqlite.rewrite import HOLDS_ANYTHING

_THREAD = """
SELECT t.thread_id, w.name, t.number, t.status, t.updated_at,
  (SELECT c.checkpoint_id FROM commits c WHERE c.thread = t.thread AND c.number = t.head), t.due_at, t.owner, t.process
FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow
"""


class ListQuery(NamedTuple):
    """Which threads a list is of: all, but for what is given."""

    workflow_name: str | None = None
    thread_id: str | None = None
    prefix: str | None = None
    statuses: Collection[str] | None = None

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """Of threads `t` with workflows `w`, to stand behind another one; and what is given to it."""
        query, given = "", list[Any]()
        if self.workflow_name is not None:
            query, given = " AND w.name = ?", [self.workflow_name]
        if self.thread_id is not None:
            query, given = f"{query} AND t.thread_id = ?", [*given, self.thread_id]
        if self.statuses is not None:
            marks = ",".join("?" * len(self.statuses))
            query, given = f"{query} AND t.status IN ({marks})", [*given, *self.statuses]
        begins, beginning = _begins_with(self.prefix)
        return query + begins, [*given, *beginning]


def _begins_with(prefix: str | None) -> tuple[str, list[str]]:
    """As a range, which the index of ids finds: LIKE would take some characters for others, and both cases for one."""
    if not prefix:
        return "", []
    if not is_writable(prefix):
        return " AND 0", []
    end = first_after(prefix)
    if end is None:
        return " AND t.thread_id >= ?", [prefix]
    return " AND t.thread_id >= ? AND t.thread_id < ?", [prefix, end]


class ThreadRows(HistoryRows):
    def threads(self, wanted: ListQuery, limit: int | None = None, before: str | None = None) -> list[ThreadInfo]:
        """Raises ThreadNotFound."""
        condition, given = wanted.condition
        if before is not None:
            row = self._db.execute("SELECT moved FROM threads WHERE thread_id = ?", (before,)).fetchone()
            if row is None:
                raise ThreadNotFound(before)
            condition += " AND t.moved < ?"
            given.append(row[0])
        # First which, then what is told of them: the sort must not look up the head of each.
        newest = "SELECT t.thread FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow"
        newest += f" WHERE t.number > 0{condition} ORDER BY t.moved DESC LIMIT ?"
        rows = self._db.execute(
            f"{_THREAD} WHERE t.thread IN ({newest}) ORDER BY t.moved", (*given, -1 if limit is None else limit)
        )
        return [self._thread_info(row) for row in rows.fetchall()]

    def thread_ids(self, prefix: str | None, after: str | None, limit: int | None) -> list[str]:
        condition, given = _begins_with(prefix)
        if after is not None:
            condition += " AND t.thread_id > ?"
            given.append(after)
        rows = self._db.execute(
            f"SELECT thread_id FROM threads t WHERE {HOLDS_ANYTHING}{condition} ORDER BY thread_id LIMIT ?",
            (*given, -1 if limit is None else limit),
        )
        return [thread_id for (thread_id,) in rows]

    def requests(self, wanted: ListQuery, limit: int | None = None) -> list[PendingRequest]:
        condition, given = wanted.condition
        # In the order of a CROSS JOIN: those of some threads are found by these, not among those of all.
        tables = "requests r JOIN threads t" if not wanted.prefix else "threads t CROSS JOIN requests r"
        rows = self._db.execute(
            "SELECT t.thread_id, r.request_id, r.executor_id, r.asked_at, r.deadline, r.assignee, w.name"
            f" FROM {tables} ON t.thread = r.thread LEFT JOIN workflows w ON w.workflow = t.workflow"
            f" WHERE 1{condition} ORDER BY r.asked_at, t.thread_id, r.request_id LIMIT ?",
            (*given, -1 if limit is None else limit),
        )
        return [
            PendingRequest(
                found[0],
                found[1],
                found[2],
                to_time(found[3]),
                None if found[4] is None else to_time(found[4]),
                found[5],
                found[6] or "",
            )
            for found in rows
        ]

    def due(self, now: datetime, limit: int | None) -> list[ThreadInfo]:
        rows = self._db.execute(f"{_THREAD} WHERE t.due_at <= ? ORDER BY t.due_at, t.thread_id", (from_time(now),))
        free = (info for row in rows if (info := self._thread_info(row)).run_id is None)
        return list(islice(free, limit))

    def last_seq(self, thread_id: str) -> int:
        """Of its events; 0 if there is none."""
        row = self._db.execute("SELECT last_seq FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return 0 if row is None else int(row[0])

    def _thread_info(self, row: Any) -> ThreadInfo:
        thread_id, name, number, status, updated_at, checkpoint_id, due_at, owner, process = row
        return ThreadInfo(
            thread_id,
            name or "",
            number,
            status,
            to_timestamp(updated_at),
            to_id(checkpoint_id),
            None if due_at is None else to_time(due_at),
            None if owner is None or self.is_gone(process) else owner,
        )
