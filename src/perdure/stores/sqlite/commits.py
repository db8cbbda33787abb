"""Commits: checked, appended, replaced, removed, copied."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from os import urandom
from typing import Any

from perdure.errors import DamagedCheckpoint, ThreadConflict
from perdure.records import Commit, PendingRequest
from perdure.stores.packing import RUN, column_sum, consumed_seal, from_id, from_time, from_timestamp
from perdure.stores.sqlite.rows import OwnerRows, PackedRow, Payload, ThreadRow

BLOCK = 64
"""Commits in a block of `blocks`."""

COLUMNS = (
    "thread, number, checkpoint_id, workflow, iteration, parent, previous, timestamp, run_id, status, first_seq, events"
)
"""What lists say of a commit."""
_INSERT = (
    f"INSERT INTO commits ({COLUMNS}, seal, body, place, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

ALL_BLOCKS = f"""
INSERT OR IGNORE INTO blocks SELECT DISTINCT workflow, seq / {BLOCK} FROM commits WHERE checkpoint_id IS NOT NULL
"""


class CommitRows(OwnerRows):
    def check(self, commit: Commit) -> ThreadRow:
        """Raises ThreadConflict unless the commit is the next one, by the owner, after a checkpoint that is there."""
        standing = self.prove(commit.lease)
        if commit.number != standing.number + 1:
            raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", f"commit {standing.number}")
        if commit.parent is not None and commit.parent != standing.head:
            found = self._db.execute(
                "SELECT 1 FROM commits WHERE thread = ? AND number = ? AND checkpoint_id IS NOT NULL",
                (standing.thread, commit.parent),
            ).fetchone()
            if found is None:
                raise ThreadConflict(
                    commit.lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more"
                )
        return standing

    def newest_checkpoint(self, thread: int) -> int | None:
        """The number of the one that is the head, by what is there rather than by what the thread's row says."""
        row = self._db.execute(
            "SELECT number FROM commits WHERE thread = ? AND checkpoint_id IS NOT NULL ORDER BY number DESC LIMIT 1",
            (thread,),
        ).fetchone()
        return None if row is None else int(row[0])

    def check_standing(self, thread_id: str, standing: ThreadRow, newest: int | None) -> None:
        """Raises DamagedCheckpoint if the thread's row and its commits do not agree."""
        (last,) = self._db.execute("SELECT MAX(number) FROM commits WHERE thread = ?", (standing.thread,)).fetchone()
        if standing.head != newest or standing.number < (last or 0):
            said = f"commit {standing.number} with its head at {standing.head}"
            reason = f"the thread stands at {said}, and what is there ends at {last} with a head at {newest}"
            raise DamagedCheckpoint("of its head", reason, thread_id)

    def append(self, standing: ThreadRow, commit: Commit, payload: Payload) -> None:
        thread, info, events = standing.thread, commit.info, commit.events
        timestamp = from_timestamp(commit.timestamp)
        workflow = None if info is None else self._workflow(info.workflow_name)
        seq = self._insert(thread, commit, payload, workflow, timestamp)
        if workflow is not None:
            self._note_block(workflow, seq)
        last_seq = standing.last_seq if events is None else max(standing.last_seq, events.first_seq + events.count - 1)
        if info is None:
            self._db.execute(
                "UPDATE threads SET number = ?, moved = ?, status = ?, updated_at = ?, last_seq = ? WHERE thread = ?",
                (commit.number, seq, commit.status, timestamp, last_seq, thread),
            )
        else:
            due_at = None if commit.due_at is None else from_time(commit.due_at)
            self._db.execute(
                "UPDATE threads SET number = ?, head = ?, moved = ?, status = ?, updated_at = ?, last_seq = ?,"
                " workflow = ?, due_at = ? WHERE thread = ?",
                (commit.number, commit.number, seq, commit.status, timestamp, last_seq, workflow, due_at, thread),
            )
        self._settle(thread, commit)

    def _insert(self, thread: int, commit: Commit, payload: Payload, workflow: int | None, timestamp: int | str) -> int:
        info, events = commit.info, commit.events
        row: tuple[object, ...] = (
            thread,
            commit.number,
            None if info is None else from_id(info.checkpoint_id),
            workflow,
            None if info is None else info.iteration_count,
            commit.parent,
            None if info is None or commit.parent is not None else info.previous_checkpoint_id,
            timestamp,
            from_id(commit.run_id, RUN),
            commit.status,
            None if events is None else events.first_seq,
            None if events is None else events.count,
        )
        sealed = None if payload.seal is None else payload.seal + column_sum(row)
        row = (*row, sealed, payload.body, payload.place, payload.size)
        try:
            return self._db.execute(_INSERT, row).lastrowid or 0
        except sqlite3.IntegrityError:
            if info is None or not self._forget_id(info.checkpoint_id, thread):
                raise
        return self._db.execute(_INSERT, row).lastrowid or 0

    def _note_block(self, workflow: int, seq: int) -> None:
        block = seq // BLOCK
        if self._blocks.get(workflow) != block:
            self._db.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?)", (workflow, block))
            self._blocks[workflow] = block

    def _settle(self, thread: int, commit: Commit) -> None:
        if commit.info is not None and commit.lease.thread_id not in self.without_journal:
            kept = ",".join([str(int(delivery_id)) for delivery_id in commit.unsettled])
            self._db.execute(f"DELETE FROM journal WHERE thread = ? AND delivery_id NOT IN ({kept})", (thread,))
        for item_id in commit.consumed:
            sealed = consumed_seal(commit.lease.thread_id, item_id)
            self._db.execute(
                "UPDATE inbox SET body = NULL, seal = ? WHERE thread = ? AND item_id = ?", (sealed, thread, item_id)
            )
        if commit.requests is not None:
            self.ask(thread, commit.requests)

    def ask(self, thread: int, requests: Sequence[PendingRequest]) -> None:
        asked = {one.request_id for one in requests}
        known = self._db.execute("SELECT request_id FROM requests WHERE thread = ?", (thread,)).fetchall()
        gone = [(thread, request_id) for (request_id,) in known if request_id not in asked]
        self._db.executemany("DELETE FROM requests WHERE thread = ? AND request_id = ?", gone)
        self._db.executemany(
            "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    thread,
                    one.request_id,
                    one.executor_id,
                    from_time(one.asked_at),
                    None if one.deadline is None else from_time(one.deadline),
                    one.assignee,
                )
                for one in requests
            ],
        )

    def _workflow(self, name: str) -> int:
        known = self._workflows.get(name)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO workflows (name) VALUES (?)", (name,))
            (known,) = self._db.execute("SELECT workflow FROM workflows WHERE name = ?", (name,)).fetchone()
            if len(self._workflows) > 1000:
                self._workflows.clear()
            self._workflows[name] = int(known)
        return int(known)

    def _forget_id(self, checkpoint_id: str, thread: int) -> bool:
        """Another checkpoint, of this thread, takes the place of the one that has this id."""
        key = from_id(checkpoint_id)
        found = self._db.execute("SELECT thread, number FROM commits WHERE checkpoint_id = ?", (key,)).fetchone()
        if found is not None:
            self._db.execute("UPDATE commits SET checkpoint_id = NULL WHERE checkpoint_id = ?", (key,))
            self._db.execute("DELETE FROM pins WHERE thread = ? AND number = ?", found)
            if found[0] != thread:  # in its own thread the commit says what becomes of the rest
                self.move_head(*found)
        return found is not None

    def move_head(self, thread: int, number: int) -> None:
        """Where `number` was the head and is no checkpoint any more, the newest that is left becomes the head."""
        is_head = self._db.execute("SELECT 1 FROM threads WHERE thread = ? AND head = ?", (thread, number)).fetchone()
        if is_head is None:
            return
        self._db.execute(
            "UPDATE threads SET due_at = NULL, head = (SELECT MAX(number) FROM commits"
            " WHERE thread = ? AND checkpoint_id IS NOT NULL) WHERE thread = ?",
            (thread, thread),
        )
        self._db.execute("DELETE FROM journal WHERE thread = ?", (thread,))
        self._db.execute("DELETE FROM requests WHERE thread = ?", (thread,))

    # ------------------------------------------------------------ removing and copying

    def delete_thread(self, thread: int) -> None:
        for table in ("commits", "pins", "journal", "inbox", "requests", "threads"):
            self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))  # our own names

    def bodies(self, thread_id: str) -> list[PackedRow]:
        """All commits of a thread, with their payloads."""
        rows = self._db.execute(
            "SELECT seq, thread, number, parent, checkpoint_id, body, place, size, seal FROM commits"
            " WHERE thread = (SELECT thread FROM threads WHERE thread_id = ?) ORDER BY number",
            (thread_id,),
        )
        return [PackedRow(*row) for row in rows]

    def replace_commit(self, seq: int, checkpoint_id: Any, parent: int | None, seal: bytes, body: bytes) -> None:
        self._db.execute("UPDATE commits SET checkpoint_id = ?, parent = ? WHERE seq = ?", (checkpoint_id, parent, seq))
        self.reseal(seq, seal, body)

    def reseal(self, seq: int, seal: bytes, body: bytes) -> None:
        sealed = seal + column_sum(self._db.execute(f"SELECT {COLUMNS} FROM commits WHERE seq = ?", (seq,)).fetchone())
        self._db.execute("UPDATE commits SET seal = ?, body = ? WHERE seq = ?", (sealed, body, seq))

    def delete_commit(self, seq: int) -> None:
        newest = self._newest()
        self._db.execute("DELETE FROM commits WHERE seq = ?", (seq,))
        self._hold_place(newest)

    def move_to_end(self, thread: int) -> None:
        """As if it had moved last."""
        place = self._newest() + 1
        self._hold_place(place)
        self._db.execute("UPDATE threads SET moved = ? WHERE thread = ?", (place, thread))

    def _newest(self) -> int:
        (seq,) = self._db.execute("SELECT COALESCE(MAX(seq), 0) FROM commits").fetchone()
        return int(seq)

    def _hold_place(self, seq: int) -> None:
        """The place of a newest commit that is gone is not given again: what moved last is told by it."""
        if self._newest() < seq:
            self._db.execute("DELETE FROM commits WHERE thread = 0")
            self._db.execute("INSERT INTO commits (seq, thread, number) VALUES (?, 0, ?)", (seq, seq))

    def copy_thread(self, thread: int, to: str) -> int:
        """The rows of another thread under new checkpoint ids. Their seals are still those of the first."""
        self._db.execute(
            "INSERT INTO threads (thread_id, workflow, number, head, moved, status, updated_at, last_seq, due_at,"
            " first_seq, silent_before, forgotten, forgotten_bytes, swept, swept_bytes) SELECT ?, workflow, number,"
            " head, moved, status, updated_at, last_seq, due_at, first_seq, silent_before, forgotten, forgotten_bytes,"
            " swept, swept_bytes FROM threads WHERE thread = ?",
            (to, thread),
        )
        made = self.find_thread(to)
        assert made is not None  # noqa: S101  # it was just made
        rows = self._db.execute("SELECT seq, checkpoint_id FROM commits WHERE thread = ? ORDER BY seq", (thread,))
        for seq, checkpoint_id in rows.fetchall():
            self._db.execute(
                "INSERT INTO commits (thread, number, checkpoint_id, workflow, iteration, parent, previous, timestamp,"
                " run_id, status, first_seq, events, seal, body, place, size) SELECT ?, number, ?, workflow, iteration,"
                " parent, previous, timestamp, run_id, status, first_seq, events, seal, body, place, size"
                " FROM commits WHERE seq = ?",
                (made, None if checkpoint_id is None else urandom(12), seq),
            )
        self.move_to_end(made)
        self._db.execute(f"{ALL_BLOCKS} AND thread = ?", (made,))
        self._db.execute(
            "INSERT INTO requests SELECT ?, request_id, executor_id, asked_at, deadline, assignee FROM requests"
            " WHERE thread = ?",
            (made, thread),
        )
        return made
