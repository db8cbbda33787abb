"""What a store does to its tables, in the transaction of whoever calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from perdure.errors import CheckpointNotFound, DamagedCheckpoint
from perdure.records import CheckpointInfo
from perdure.stores.packing import RUN, from_id, to_id, to_timestamp
from perdure.stores.sqlite.commits import BLOCK
from perdure.stores.sqlite.lists import ThreadRows
from perdure.stores.sqlite.rows import Payload, RawRow

_INFO = """
SELECT c.thread, c.number, c.checkpoint_id, t.thread_id, c.workflow, c.iteration, c.parent, c.previous, c.timestamp,
  c.run_id, c.status, EXISTS (SELECT 1 FROM pins p WHERE p.thread = c.thread AND p.number = c.number)
FROM commits c JOIN threads t ON t.thread = c.thread
WHERE c.checkpoint_id IS NOT NULL
"""

AT_ONCE = 500
"""Numbers in one query: SQLite takes 999 parameters, and more only lately."""


class Tables(ThreadRows):
    """All of them; here is what reads lists of checkpoints."""

    def infos(
        self, workflow_name: str | None, thread_id: str | None, limit: int | None, before: str | None
    ) -> list[CheckpointInfo]:
        condition = ""
        given: list[Any] = []
        if thread_id is not None:
            condition += " AND c.thread = (SELECT thread FROM threads WHERE thread_id = ?)"
            given.append(thread_id)
        if before is not None:
            condition += " AND c.seq < ?"
            given.append(self._seq_of(before))
        if workflow_name is None or thread_id is not None:
            if workflow_name is not None:
                condition += " AND c.workflow = (SELECT workflow FROM workflows WHERE name = ?)"
                given.append(workflow_name)
            # Of one thread the numbers are in the order of commits too, and there is an index of them.
            order = "c.number" if thread_id is not None else "c.seq"
            query = f"{_INFO} {condition} ORDER BY {order} DESC LIMIT ?"
            rows = self._db.execute(query, (*given, -1 if limit is None else limit)).fetchall()
        else:
            rows = self._rows_of(workflow_name, condition, given, limit)
        return self._infos(rows)[::-1]

    def _rows_of(self, workflow_name: str, condition: str, given: list[Any], limit: int | None) -> list[Any]:
        """The newest first, from the blocks that hold some; blocks that follow each other are read in one go."""
        found = self._db.execute("SELECT workflow FROM workflows WHERE name = ?", (workflow_name,)).fetchone()
        if found is None:
            return []
        blocks = self._db.execute("SELECT block FROM blocks WHERE workflow = ? ORDER BY block DESC", found)
        query = f"{_INFO} {condition} AND c.workflow = ? AND c.seq BETWEEN ? AND ? ORDER BY c.seq DESC LIMIT ?"
        rows: list[Any] = []
        for first, last in _stretches(blocks, at_most=2 if limit is None else limit // BLOCK + 2):
            left = -1 if limit is None else limit - len(rows)
            places = (*found, first * BLOCK, last * BLOCK + BLOCK - 1)
            rows += self._db.execute(query, (*given, *places, left)).fetchall()
            if left >= 0 and len(rows) >= (limit or 0):
                break
        return rows

    def _infos(self, rows: list[Any]) -> list[CheckpointInfo]:
        """With the ids of their parents: most of these are among them. What rows have in common is read once."""
        ids = {row[:2]: row[2].hex() if type(row[2]) is bytes else row[2] for row in rows}
        names: dict[int | None, str] = {}
        runs: dict[Any, str | None] = {}
        found = []
        for thread, number, _, thread_id, workflow, iteration, parent, previous, time, run, status, pinned in rows:
            if parent is not None:
                place = (thread, parent)
                if place not in ids:
                    ids[place] = to_id(self._nearest_id(thread, parent))
                previous = ids[place] or previous
            if run not in runs:
                runs[run] = to_id(run, RUN) or None
            if workflow not in names:
                names[workflow] = self._name_of(workflow)
            of_place = (ids[thread, number], thread_id, names[workflow], number, iteration, previous)
            found.append(CheckpointInfo(*of_place, to_timestamp(time), runs[run], status, pinned == 1))
        return found

    def _nearest_id(self, thread: int, number: int | None) -> Any:
        """Of the checkpoint there, or of the nearest before it that is left."""
        while number is not None:
            row = self._db.execute(
                "SELECT checkpoint_id, parent FROM commits WHERE thread = ? AND number = ?", (thread, number)
            ).fetchone()
            if row is None:
                return None
            if row[0] is not None:
                return row[0]
            number = row[1]
        return None

    def _name_of(self, workflow: int | None) -> str:
        row = self._db.execute("SELECT name FROM workflows WHERE workflow = ?", (workflow,)).fetchone()
        return "" if row is None else str(row[0])

    def _seq_of(self, checkpoint_id: str) -> Any:
        row = self._db.execute("SELECT seq FROM commits WHERE checkpoint_id = ?", (from_id(checkpoint_id),)).fetchone()
        if row is None:
            raise CheckpointNotFound(checkpoint_id)
        return row[0]

    def find(self, checkpoint_id: str) -> tuple[CheckpointInfo, Payload] | None:
        found = self._one(self._db.execute(f"{_INFO} AND c.checkpoint_id = ?", (from_id(checkpoint_id),)).fetchone())
        if found is not None and found[0].checkpoint_id != checkpoint_id:
            raise DamagedCheckpoint(checkpoint_id, f"its index leads to {found[0].checkpoint_id!r}", found[0].thread_id)
        return found

    def at(self, thread: int, number: int | None) -> tuple[CheckpointInfo, Payload] | None:
        return self._one(self._db.execute(f"{_INFO} AND c.thread = ? AND c.number = ?", (thread, number)).fetchone())

    def head_of(self, thread_id: str) -> tuple[CheckpointInfo, Payload] | None:
        """Raises DamagedCheckpoint if the thread has one that is not there."""
        row = self._db.execute("SELECT thread, head FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        if row is None:
            return None
        newest = self.newest_checkpoint(row[0])
        found = None if newest is None else self.at(*row)
        if newest != row[1] or (newest is not None and found is None):
            reason = f"its head is to be commit {row[1]}, and its newest checkpoint is that of commit {newest}"
            raise DamagedCheckpoint("of its head", reason, thread_id)
        return found

    def _one(self, row: Any) -> tuple[CheckpointInfo, Payload] | None:
        if row is None:
            return None
        query = "SELECT checkpoint_id, number, seal, body, place, size FROM commits WHERE thread = ? AND number = ?"
        found = self._db.execute(query, (row[0], row[1])).fetchone()
        if found is None or found[:2] != (row[2], row[1]):  # an index leads elsewhere
            raise DamagedCheckpoint(str(to_id(row[2])), f"commit {row[1]} is not where it should be", row[3])
        return self._infos([row])[0], Payload(*found[1:])

    def payloads(self, thread_id: str, numbers: Iterable[int]) -> list[tuple[Any, Payload]]:
        """With the column of the checkpoint that each is of."""
        thread = self.find_thread(thread_id)
        found: list[Any] = []
        wanted = sorted(numbers)
        query = "SELECT checkpoint_id, number, seal, body, place, size FROM commits WHERE thread = ? AND number"
        if wanted and wanted[-1] - wanted[0] < 2 * len(wanted):  # most of a row: read in one go, faster than one by one
            rows = self._db.execute(f"{query} BETWEEN ? AND ? ORDER BY number", (thread, wanted[0], wanted[-1]))
            known = set(wanted)
            found = [row for row in rows if row[1] in known]
        else:
            for start in range(0, len(wanted), AT_ONCE):
                part = wanted[start : start + AT_ONCE]
                marks = ",".join("?" * len(part))
                found += self._db.execute(f"{query} IN ({marks}) ORDER BY number", (thread, *part)).fetchall()
        return [(row[0], Payload(*row[1:])) for row in found]

    def raw_commits(self, thread_id: str, after: int, limit: int | None) -> list[RawRow]:
        thread = self.find_thread(thread_id)
        given = (thread, after, -1 if limit is None else limit)
        chosen = "WHERE thread = ? AND number > ? ORDER BY number LIMIT ?"
        infos = self._infos(
            self._db.execute(
                f"{_INFO} AND c.seq IN (SELECT seq FROM commits {chosen}) ORDER BY c.number DESC", given
            ).fetchall()
        )
        by_number = {info.number: info for info in infos}
        rows = self._db.execute(
            "SELECT parent, status, run_id, timestamp, first_seq, events, number, seal, body, place, size FROM commits"
            f" {chosen}",
            given,
        ).fetchall()
        return [
            RawRow(
                by_number.get(row[6]),
                row[0],
                row[1] or "",
                to_id(row[2], RUN) or "",
                to_timestamp(row[3]),
                row[4:6],
                Payload(*row[6:]),
            )
            for row in rows
        ]

    def all_thread_ids(self) -> list[str]:
        return [one for (one,) in self._db.execute("SELECT thread_id FROM threads ORDER BY thread")]

    def events_after(
        self, thread_id: str, after: int | None
    ) -> list[tuple[int, int, str, str, CheckpointInfo | None, Payload]]:
        """First seq, count, run and time of each commit with events, its checkpoint and its payload. Raises
        CursorExpired."""
        seq = self.check_cursor(thread_id, after)
        thread = self.find_thread(thread_id)
        rows = self._db.execute(
            "SELECT first_seq, events, run_id, timestamp, number, seal, body, place, size, checkpoint_id FROM commits"
            " WHERE thread = ? AND first_seq IS NOT NULL AND number >= COALESCE((SELECT MAX(number) FROM commits"
            " WHERE thread = ? AND first_seq <= ?), 0) AND first_seq + events > ? ORDER BY number",
            (thread, thread, seq, seq + 1),
        ).fetchall()
        self._check_end(thread_id, seq, rows)
        found = []
        for first, count, run_id, timestamp, number, *rest in rows:
            at = None if rest[4] is None or thread is None else self.at(thread, number)
            told = (first, count, to_id(run_id, RUN) or "", to_timestamp(timestamp))
            found.append((*told, None if at is None else at[0], Payload(number, *rest[:4])))
        return found

    def _check_end(self, thread_id: str, seq: int, rows: list[Any]) -> None:
        """Raises DamagedCheckpoint if the last of a thread's events are not there."""
        row = self._db.execute("SELECT last_seq, first_seq FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        last = 0 if row is None or row[0] < row[1] else int(row[0])
        end = rows[-1][0] + rows[-1][1] - 1 if rows else seq
        if max(end, 0) < last:
            raise DamagedCheckpoint("of its log", f"its events end at {end}, and {last} were told", thread_id)


def _stretches(blocks: Iterable[tuple[int]], at_most: int) -> Iterator[tuple[int, int]]:
    """Blocks, newest first, as first and last of those that follow each other without a gap."""
    first = last = None
    for (block,) in blocks:
        if first is None or last is None:
            first = last = block
        elif block == first - 1 and last - block < at_most:
            first = block
        else:
            yield first, last
            first = last = block
    if first is not None and last is not None:
        yield first, last
