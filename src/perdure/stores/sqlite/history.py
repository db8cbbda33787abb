"""What of a thread's history is kept: pins, what was forgotten, and threads taken over from other stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from perdure.errors import CheckpointNotFound, CursorExpired, ThreadExists
from perdure.records import CheckpointInfo, Commit, ThreadHeader
from perdure.stores.packing import (
    SEAL_BYTES,
    column_sum,
    from_id,
    from_time,
    from_timestamp,
    to_id,
    to_time,
    to_timestamp,
)
from perdure.stores.sqlite.commits import ALL_BLOCKS, COLUMNS
from perdure.stores.sqlite.rewrite import HOLDS_ANYTHING, PayloadRows
from perdure.stores.sqlite.rows import Payload, ThreadRow
from perdure.stores.sqlite.schema import prepare

SWEPT_AT_LEAST = 16
SWEPT_BYTES_AT_LEAST = 1_000_000
"""Commits, or bytes of them, of which something is forgotten before their space is freed: all commits of a thread are
looked at for that. So it is done when as much came together as was left the last time; where the thread comes to rest,
a quarter of it is enough."""

_BYTES = "COALESCE(LENGTH(c.body), c.size, 0)"


class HistoryRows(PayloadRows):
    # ------------------------------------------------------------ pins

    def set_pin(self, thread: int, number: int, *, is_pinned: bool) -> None:
        if is_pinned:
            self._db.execute("INSERT OR IGNORE INTO pins VALUES (?, ?)", (thread, number))
        else:
            self._db.execute("DELETE FROM pins WHERE thread = ? AND number = ?", (thread, number))

    def place_of(self, checkpoint_id: str) -> tuple[int, str, int]:
        """The thread that it belongs to, as row and as id, and its number. Raises CheckpointNotFound."""
        row = self._db.execute(
            "SELECT c.thread, t.thread_id, c.number FROM commits c JOIN threads t USING (thread)"
            " WHERE c.checkpoint_id = ?",
            (from_id(checkpoint_id),),
        ).fetchone()
        if row is None:
            raise CheckpointNotFound(checkpoint_id)
        thread, thread_id, number = row
        return thread, thread_id, number

    def pins(self, thread: int) -> set[int]:
        return {number for (number,) in self._db.execute("SELECT number FROM pins WHERE thread = ?", (thread,))}

    # ------------------------------------------------------------ forgetting

    def append(self, standing: ThreadRow, commit: Commit, payload: Payload) -> None:
        super().append(standing, commit, payload)
        if commit.prunes:
            head = standing.head if commit.info is None else commit.number
            self.forget_checkpoints(standing.thread, [number for number in commit.prunes if number != head])
        if commit.prunes_events_before:
            self.forget_events(standing.thread, commit.prunes_events_before)

    def forget_checkpoints(self, thread: int, numbers: Iterable[int]) -> None:
        """These checkpoints, but for pinned ones. Their space is freed later."""
        for number in numbers:
            row = self._db.execute(
                f"SELECT seq, {_BYTES} FROM commits c WHERE thread = ?1 AND number = ?2 AND checkpoint_id IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM pins WHERE thread = ?1 AND number = ?2)",
                (thread, number),
            ).fetchone()
            if row is not None:
                self._db.execute("UPDATE commits SET checkpoint_id = NULL WHERE seq = ?", row[:1])
                self._note_forgotten(thread, 1, row[1])

    def _note_forgotten(self, thread: int, count: int, size: int) -> None:
        self._db.execute(
            "UPDATE threads SET forgotten = forgotten + ?, forgotten_bytes = forgotten_bytes + ? WHERE thread = ?",
            (count, size, thread),
        )

    def forget_events(self, thread: int, before: int) -> None:
        """Those of all commits before this number, and of none to come."""
        (last,) = self._db.execute("SELECT number FROM threads WHERE thread = ?", (thread,)).fetchone()
        before = min(before, last + 1)
        row = self._db.execute(
            "SELECT first_seq FROM commits WHERE thread = ? AND number >= ? AND first_seq IS NOT NULL"
            " ORDER BY number LIMIT 1",
            (thread, before),
        ).fetchone()
        first = "last_seq + 1" if row is None else str(int(row[0]))
        count, size = self._db.execute(
            f"SELECT COUNT(*), COALESCE(SUM({_BYTES}), 0) FROM commits c WHERE thread = ?1 AND number >="
            " (SELECT silent_before FROM threads WHERE thread = ?1) AND number < ?2 AND first_seq IS NOT NULL",
            (thread, before),
        ).fetchone()
        self._db.execute(
            f"UPDATE threads SET first_seq = MAX(first_seq, {first}), silent_before = MAX(silent_before, ?)"
            " WHERE thread = ?",
            (before, thread),
        )
        self._note_forgotten(thread, count, size)

    def forgotten(self, thread: int) -> int:
        """Checkpoints whose space is still to be freed."""
        (count,) = self._db.execute("SELECT forgotten FROM threads WHERE thread = ?", (thread,)).fetchone()
        return int(count)

    def is_sweep_due(self, thread: int, *, at_rest: bool = False) -> bool:
        """Whether so much was forgotten that looking at all commits is worth it."""
        count, left, size, left_size = self._db.execute(
            "SELECT forgotten, swept, forgotten_bytes, swept_bytes FROM threads WHERE thread = ?", (thread,)
        ).fetchone()
        if at_rest:
            return bool(count and (4 * count >= left or 4 * size >= left_size))
        return bool(count >= max(SWEPT_AT_LEAST, left) or size >= SWEPT_BYTES_AT_LEAST + left_size)

    def silent_before(self, thread: int) -> int:
        (number,) = self._db.execute("SELECT silent_before FROM threads WHERE thread = ?", (thread,)).fetchone()
        return int(number)

    def note_swept(self, thread: int) -> None:
        self._db.execute(
            "UPDATE threads SET forgotten = 0, forgotten_bytes = 0, (swept, swept_bytes) ="
            f" (SELECT COUNT(*), COALESCE(SUM({_BYTES}), 0) FROM commits c WHERE thread = ?1) WHERE thread = ?1",
            (thread,),
        )

    def silence(self, seq: int) -> None:
        """A commit whose events are gone."""
        self._db.execute("UPDATE commits SET first_seq = NULL, events = NULL WHERE seq = ?", (seq,))

    def first_seq(self, thread: int) -> int:
        (first,) = self._db.execute("SELECT first_seq FROM threads WHERE thread = ?", (thread,)).fetchone()
        return int(first)

    def keep(self, thread: int, first_seq: int, silent_before: int, pins: Iterable[int], forgotten: int) -> None:
        """What the first line of a thread's file says."""
        self._db.execute(
            "UPDATE threads SET first_seq = ?, silent_before = ?, forgotten = forgotten + ? WHERE thread = ?",
            (first_seq, silent_before, forgotten, thread),
        )
        for number in pins:
            self.set_pin(thread, number, is_pinned=True)

    def check_cursor(self, thread_id: str, seq: int | None) -> int:
        """The event after which to read. Raises CursorExpired."""
        thread = self.find_thread(thread_id)
        first = 1 if thread is None else self.first_seq(thread)
        if seq is not None and max(seq, 0) + 1 < first:
            raise CursorExpired(thread_id, seq, first)
        return first - 1 if seq is None else seq

    # ------------------------------------------------------------ what is damaged

    def changed_schema(self) -> list[str]:
        """Tables and indexes that are not those that this version makes."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            prepare(db, "a new store")
            expected = _schema(db)
        found = _schema(self._db)
        return [f"the schema of {name!r} was changed" for name in expected if found.get(name) != expected[name]]

    def orphans(self) -> list[str]:
        """Rows of threads that are not there. (Thread 0 only holds a place.)"""
        found = []
        for table in ("commits", "journal", "inbox", "requests", "pins"):
            (count,) = self._db.execute(
                f"SELECT COUNT(*) FROM {table} WHERE thread <> 0 AND thread NOT IN (SELECT thread FROM threads)"
            ).fetchone()
            if count:
                found.append(f"{count} rows of {table} are of a thread that is not there")
        return found

    def told_of(self, thread_id: str) -> dict[int, tuple[Any, ...]]:
        """What lists say of the commits of a thread, by number; first the checkpoint's id."""
        rows = self._db.execute(
            "SELECT c.number, c.checkpoint_id, w.name, c.iteration, c.parent, c.previous, c.timestamp, c.run_id,"
            " c.status, c.first_seq, c.events, c.place, c.size FROM commits c JOIN threads t USING (thread)"
            " LEFT JOIN workflows w ON w.workflow = c.workflow WHERE t.thread_id = ?",
            (thread_id,),
        )
        return {number: (to_id(checkpoint_id), *told) for number, checkpoint_id, *told in rows}

    def changed_columns(self, thread: int) -> list[tuple[int, str | None]]:
        """Number and checkpoint of commits whose columns are not as they were written. One that was forgotten and not
        yet swept lost its id since, and is not looked at: it still has a root."""
        rows = self._db.execute(
            f"SELECT {COLUMNS}, seal FROM commits WHERE thread = ? AND (checkpoint_id IS NOT NULL"
            " OR SUBSTR(body, 1, 8) <> CAST(? AS BLOB)) ORDER BY number",
            (thread, '{"root":'),
        )
        return [
            (row[1], to_id(row[2]))
            for row in rows
            if isinstance(row[-1], bytes) and row[-1][SEAL_BYTES:] not in (b"", column_sum(row[:-1]))
        ]

    # ------------------------------------------------------------ threads of other stores

    def make_room(self, standing: ThreadHeader) -> int:
        """A row for a thread that is not there. Raises ThreadExists."""
        if self.is_there(standing.thread_id):
            raise ThreadExists(standing.thread_id)
        return self.thread(standing.thread_id)

    def is_there(self, thread_id: str) -> bool:
        """Whether somebody owns it, or something was ever put into it."""
        thread = self.find_thread(thread_id)
        if thread is None:
            return False
        number, owner = self._db.execute("SELECT number, owner FROM threads WHERE thread = ?", (thread,)).fetchone()
        waiting = self._db.execute(
            "SELECT 1 FROM inbox WHERE thread = ?1 UNION ALL SELECT 1 FROM journal WHERE thread = ?1", (thread,)
        ).fetchone()
        return bool(number) or owner is not None or waiting is not None

    def drop_if_empty(self, thread_id: str) -> None:
        """A row that was made for something that did not come to be."""
        if not self.is_there(thread_id):
            self._db.execute("DELETE FROM threads WHERE thread_id = ?", (thread_id,))

    def has_to_prune(self, thread_id: str, checkpoint_ids: Iterable[str], events_before: int) -> bool:
        """Whether there is anything to do. Needs no transaction that writes."""
        thread = self.find_thread(thread_id)
        if thread is None:
            return False
        if self.forgotten(thread) or events_before > self.silent_before(thread):
            return True
        query = "SELECT 1 FROM commits WHERE thread = ? AND checkpoint_id = ?"
        return any(self._db.execute(query, (thread, from_id(one))).fetchone() for one in checkpoint_ids)

    def add_commit(self, thread: int, commit: Commit, payload: Payload) -> None:
        """As another store had it. Raises ThreadExists if its checkpoint is one of a thread that is there."""
        info = commit.info
        if info is not None:
            self.refuse_known(info)
        workflow = None if info is None else self._workflow(info.workflow_name)
        self._insert(thread, commit, payload, workflow, from_timestamp(commit.timestamp))

    def refuse_known(self, info: CheckpointInfo) -> None:
        """Raises ThreadExists."""
        try:
            _, other, _ = self.place_of(info.checkpoint_id)
        except CheckpointNotFound:
            return
        reason = f"its checkpoint {info.checkpoint_id!r} is one of thread {other!r} here"
        raise ThreadExists(info.thread_id, reason)

    def stand(self, thread: int, standing: ThreadHeader) -> None:
        """Where it stood there. For one whose commits were added."""
        (newest,) = self._db.execute("SELECT MAX(seq) FROM commits WHERE thread = ?", (thread,)).fetchone()
        self._db.execute(
            "UPDATE threads SET workflow = ?, fence = MAX(fence, ?), number = ?, head = ?, status = ?, updated_at = ?,"
            " last_seq = ?, first_seq = ?, due_at = ?, moved = ?, forgotten = (SELECT COUNT(*) FROM commits c"
            " WHERE c.thread = threads.thread AND c.checkpoint_id IS NULL) WHERE thread = ?",
            (
                self._workflow(standing.workflow_name) if standing.workflow_name else None,
                standing.fence,
                standing.number,
                standing.head,
                standing.status,
                from_timestamp(standing.updated_at),
                standing.last_seq,
                standing.first_seq,
                None if standing.due_at is None else from_time(standing.due_at),
                newest or 0,
                thread,
            ),
        )
        if newest is None:
            self.move_to_end(thread)
        for number in standing.pins:
            self.set_pin(thread, number, is_pinned=True)
        self.ask(thread, standing.requests)
        self.consume(standing.thread_id, standing.consumed)
        for item in standing.inbox:
            self.post(standing.thread_id, item.item_id, item.kind, item.body)
        for entry in standing.journal:
            self.append_journal(standing.thread_id, entry.delivery_id, entry.body)
        self._db.execute(f"{ALL_BLOCKS} AND thread = ?", (thread,))

    def whole_standing(self, thread_id: str, requests: Iterable[Any]) -> ThreadHeader | None:
        """Raises DamagedCheckpoint."""
        row = self._db.execute(
            "SELECT t.thread, w.name, t.number, t.fence, t.status, t.updated_at, t.last_seq, t.first_seq, t.head,"
            " t.due_at FROM threads t LEFT JOIN workflows w USING (workflow)"
            f" WHERE t.thread_id = ? AND {HOLDS_ANYTHING}",
            (thread_id,),
        ).fetchone()
        if row is None:
            return None
        thread, name, number, fence, status, updated_at, last_seq, first_seq, head, due_at = row
        return ThreadHeader(
            thread_id,
            name or "",
            number,
            fence,
            status,
            to_timestamp(updated_at),
            last_seq,
            first_seq,
            head,
            None if due_at is None else to_time(due_at),
            tuple(requests),
            self.journal(thread_id, number),
            self.inbox(thread_id),
            self.consumed(thread),
            sorted(self.pins(thread)),
        )


def _schema(db: sqlite3.Connection) -> dict[str, list[Any]]:
    """What each table and index is made of; a table that was changed for a newer version says it in another text."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")]
    return {
        name: [
            *sorted((*row[1:4], row[5]) for row in db.execute(f"PRAGMA table_xinfo({name})")),  # not the defaults
            *(row[1:] for row in db.execute(f"PRAGMA index_xinfo({name})")),
        ]
        for name in names
    }
