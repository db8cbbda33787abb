"""What a store does to its tables, in the transaction of whoever calls."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from os import urandom
from typing import Any, NamedTuple

from holdfast.errors import CheckpointNotFound, ThreadBusy, ThreadConflict, ThreadNotFound
from holdfast.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    PendingRequest,
    ThreadInfo,
)
from holdfast.stores.columns import RUN, from_id, from_time, from_timestamp, to_id, to_time, to_timestamp
from holdfast.stores.owners import LEASE_SECONDS, from_json, is_gone, this_process, to_json

BLOCK = 64
"""Commits in a block of `blocks`."""

_INFO = """
SELECT c.checkpoint_id, t.thread_id, w.name, c.number, c.iteration, c.previous, c.timestamp, c.run_id, c.status,
  c.thread, c.parent
FROM commits c JOIN threads t ON t.thread = c.thread JOIN workflows w ON w.workflow = c.workflow
WHERE c.checkpoint_id IS NOT NULL
"""

_INSERT = """
INSERT INTO commits (thread, number, checkpoint_id, workflow, iteration, parent, previous, timestamp, run_id, status,
  first_seq, events, seal, body, place, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_ALL_BLOCKS = f"""
INSERT OR IGNORE INTO blocks SELECT DISTINCT workflow, seq / {BLOCK} FROM commits WHERE checkpoint_id IS NOT NULL
"""

_THREAD = """
SELECT t.thread_id, w.name, t.number, t.status, t.updated_at,
  (SELECT c.checkpoint_id FROM commits c WHERE c.thread = t.thread AND c.number = t.head), t.due_at, t.owner, t.process
FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow
"""


AT_ONCE = 500
"""Numbers in one query: SQLite takes 999 parameters, and more only lately."""


class Standing(NamedTuple):
    """A thread's row, as far as moving it goes."""

    thread: int
    fence: int
    number: int
    head: int | None
    status: str
    last_seq: int


class Payload(NamedTuple):
    """Where the payload of a commit is: in its row, or in the thread's file."""

    number: int
    seal: bytes | None
    """None where the line in the thread's file has a checksum of its own."""
    body: bytes | None
    place: int | None
    size: int | None


class PackedRow(NamedTuple):
    seq: int
    thread: int
    number: int
    parent: int | None
    checkpoint_id: Any
    body: bytes
    place: int | None
    size: int | None
    seal: bytes


class Tables:
    """Over one connection. Nothing here begins or ends a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._workflows: dict[str, int] = {}
        self._blocks: dict[int, int] = {}
        self._process: tuple[str, int] | None = None

    # ------------------------------------------------------------ owners

    def claim(self, thread_id: str, owner: str, *, takeover: bool) -> Standing:
        """Raises ThreadBusy."""
        thread = self.thread(thread_id)
        fence, held_by, process, number, head, status, last_seq = self._db.execute(
            "SELECT fence, owner, process, number, head, status, last_seq FROM threads WHERE thread = ?",
            (thread,),
        ).fetchone()
        if held_by is not None and not takeover and not self.is_gone(process):
            raise ThreadBusy(thread_id, held_by)
        self._db.execute(
            "UPDATE threads SET fence = ?, owner = ?, process = ? WHERE thread = ?",
            (fence + 1, owner, self._own_process(), thread),
        )
        return Standing(thread, fence + 1, number, head, status, last_seq)

    def thread(self, thread_id: str) -> int:
        """Made if there is none."""
        found = self.find_thread(thread_id)
        if found is None:
            self._db.execute("INSERT INTO threads (thread_id) VALUES (?)", (thread_id,))
            found = self.find_thread(thread_id)
        assert found is not None  # noqa: S101  # it was just made
        return found

    def find_thread(self, thread_id: str) -> int | None:
        found = self._db.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if found is None else int(found[0])

    def _own_process(self) -> int:
        identity = to_json(this_process())
        if self._process is None or self._process[0] != identity:
            self.renew()
            (process,) = self._db.execute("SELECT process FROM processes WHERE identity = ?", (identity,)).fetchone()
            self._process = identity, process
        return self._process[1]

    def renew(self) -> None:
        """Say that this process lives."""
        self._db.execute(
            "INSERT INTO processes (identity, leased_until) VALUES (?, ?)"
            " ON CONFLICT (identity) DO UPDATE SET leased_until = excluded.leased_until",
            (to_json(this_process()), time.time() + LEASE_SECONDS),
        )

    def is_gone(self, process: int | None) -> bool:
        found = self._db.execute(
            "SELECT identity, leased_until FROM processes WHERE process = ?", (process,)
        ).fetchone()
        if found is None:
            return True
        return is_gone(from_json(found[0]), found[1])

    def forget_process(self) -> None:
        """This process owns nothing any more, and ends."""
        self._process = None
        self._db.execute(
            "DELETE FROM processes WHERE identity = ? AND process NOT IN"
            " (SELECT process FROM threads WHERE process IS NOT NULL)",
            (to_json(this_process()),),
        )

    def prove(self, lease: Lease) -> Standing:
        """Raises ThreadConflict if the lease was taken over."""
        row = self._db.execute(
            "SELECT thread, fence, number, head, status, last_seq, owner FROM threads WHERE thread_id = ?",
            (lease.thread_id,),
        ).fetchone()
        if row is None or row[1] != lease.fence or row[6] != lease.owner:
            held = f"fence {lease.fence} of run {lease.owner!r}"
            raise ThreadConflict(lease.thread_id, f"with {held}", f"fence {row[1] if row else 0}")
        return Standing(*row[:6])

    def release(self, lease: Lease) -> None:
        self._db.execute(
            "UPDATE threads SET owner = NULL, process = NULL WHERE thread_id = ? AND fence = ? AND owner = ?",
            (lease.thread_id, lease.fence, lease.owner),
        )

    # ------------------------------------------------------------ commits

    def check(self, commit: Commit) -> Standing:
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

    def append(self, standing: Standing, commit: Commit, payload: Payload) -> None:
        thread, info, events = standing.thread, commit.info, commit.events
        timestamp = from_timestamp(commit.timestamp)
        workflow = None if info is None else self._workflow(info.workflow_name)
        seq = self._insert(thread, commit, payload, workflow, timestamp)
        if workflow is not None:
            self._note_block(workflow, seq)
        last_seq = standing.last_seq if events is None else events.first_seq + events.count - 1
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
        row = (
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
            payload.seal,
            payload.body,
            payload.place,
            payload.size,
        )
        try:
            return self._db.execute(_INSERT, row).lastrowid or 0
        except sqlite3.IntegrityError:
            if info is None or not self._forget_id(info.checkpoint_id):
                raise
        return self._db.execute(_INSERT, row).lastrowid or 0

    def _note_block(self, workflow: int, seq: int) -> None:
        block = seq // BLOCK
        if self._blocks.get(workflow) != block:
            self._db.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?)", (workflow, block))
            self._blocks[workflow] = block

    def _settle(self, thread: int, commit: Commit) -> None:
        if commit.info is not None:
            kept = ",".join([str(int(delivery_id)) for delivery_id in commit.unsettled])
            self._db.execute(f"DELETE FROM journal WHERE thread = ? AND delivery_id NOT IN ({kept})", (thread,))
        for item_id in commit.consumed:
            self._db.execute("UPDATE inbox SET body = NULL WHERE thread = ? AND item_id = ?", (thread, item_id))
        if commit.requests is not None:
            self._put_requests(thread, commit.requests)

    def _put_requests(self, thread: int, requests: Sequence[PendingRequest]) -> None:
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

    def _forget_id(self, checkpoint_id: str) -> bool:
        """Another checkpoint takes the place of the one that has this id."""
        key = from_id(checkpoint_id)
        found = self._db.execute("SELECT thread, number FROM commits WHERE checkpoint_id = ?", (key,)).fetchone()
        if found is not None:
            self._db.execute("UPDATE commits SET checkpoint_id = NULL WHERE checkpoint_id = ?", (key,))
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

    # ------------------------------------------------------------ journal and inbox

    def append_journal(self, thread: int, delivery_id: int, body: bytes) -> None:
        self._db.execute(
            "INSERT INTO journal (thread, delivery_id, body) VALUES (?, ?, ?)", (thread, delivery_id, body)
        )

    def journal(self, thread: int, number: int) -> list[JournalEntry]:
        rows = self._db.execute("SELECT delivery_id, body FROM journal WHERE thread = ? ORDER BY entry", (thread,))
        return [JournalEntry(number, delivery_id, body) for delivery_id, body in rows]

    def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO inbox (thread, item_id, kind, body) VALUES (?, ?, ?, ?)",
            (self.thread(thread_id), item_id, kind, body),
        )

    def has_item(self, thread_id: str, item_id: str) -> bool:
        thread = self.find_thread(thread_id)
        return (
            thread is not None
            and self._db.execute("SELECT 1 FROM inbox WHERE thread = ? AND item_id = ?", (thread, item_id)).fetchone()
            is not None
        )

    def inbox(self, thread: int) -> list[InboxItem]:
        rows = self._db.execute(
            "SELECT item_id, kind, body FROM inbox WHERE thread = ? AND body IS NOT NULL ORDER BY item", (thread,)
        )
        return [InboxItem(*row) for row in rows]

    # ------------------------------------------------------------ of a file store

    def meta(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def sizes(self) -> dict[tuple[str, str], int]:
        """How much is known of each file."""
        rows = self._db.execute("SELECT thread_id, written, size FROM threads WHERE size IS NOT NULL")
        return {(thread_id, written): size for thread_id, written, size in rows}

    def written(self, thread_id: str) -> str:
        row = self._db.execute("SELECT written FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return "" if row is None else str(row[0])

    def set_written(self, thread_id: str, written: str) -> None:
        self._db.execute("UPDATE threads SET written = ? WHERE thread_id = ?", (written, thread_id))

    def size_of(self, thread_id: str) -> tuple[int | None] | None:
        """None for a thread that is not known."""
        row = self._db.execute("SELECT size FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if row is None else (row[0],)

    def set_size(self, thread_id: str, size: int | None) -> None:
        self._db.execute("UPDATE threads SET size = ? WHERE thread_id = ?", (size, thread_id))

    def standing(self, thread: int) -> Standing:
        row = self._db.execute(
            "SELECT thread, fence, number, head, status, last_seq FROM threads WHERE thread = ?", (thread,)
        ).fetchone()
        return Standing(*row)

    def stand_at_least(self, thread_id: str, number: int, fence: int, last_seq: int) -> None:
        self._db.execute(
            "UPDATE threads SET number = MAX(number, ?), fence = MAX(fence, ?), last_seq = MAX(last_seq, ?)"
            " WHERE thread_id = ?",
            (number, fence, last_seq, thread_id),
        )

    def say(self, thread_id: str, number: int, status: str, updated_at: str) -> None:
        """What the last commit said, where its line is not in the thread's file any more."""
        self._db.execute(
            "UPDATE threads SET status = ?, updated_at = ? WHERE thread_id = ? AND NOT EXISTS"
            " (SELECT 1 FROM commits c WHERE c.thread = threads.thread AND c.number >= ?)",
            (status, from_timestamp(updated_at), thread_id, number),
        )

    def clear_thread(self, thread_id: str) -> None:
        """All that its file says; not who owns it."""
        thread = self.find_thread(thread_id)
        for table in ("commits", "journal", "inbox", "requests"):
            self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
        self._db.execute(
            "UPDATE threads SET number = 0, head = NULL, last_seq = 0, due_at = NULL, size = 0 WHERE thread = ?",
            (thread,),
        )

    def consume(self, thread: int, item_ids: Iterable[str]) -> None:
        """Items whose posting is not in the thread's file any more."""
        for item_id in item_ids:
            self._db.execute(
                "INSERT INTO inbox (thread, item_id, kind, body) VALUES (?, ?, '', NULL)"
                " ON CONFLICT (thread, item_id) DO UPDATE SET body = NULL",
                (thread, item_id),
            )

    def consumed(self, thread: int) -> list[str]:
        rows = self._db.execute("SELECT item_id FROM inbox WHERE thread = ? AND body IS NULL ORDER BY item", (thread,))
        return [item_id for (item_id,) in rows]

    def put_in_order(self) -> None:
        """Commits of several threads by their times, where nothing else tells; those of one thread by their numbers."""
        rows = self._db.execute("SELECT seq, thread, timestamp FROM commits ORDER BY thread, number").fetchall()
        latest: dict[int, str] = {}
        keyed = []
        for seq, thread, timestamp in rows:
            latest[thread] = max(latest.get(thread, ""), to_timestamp(timestamp))
            keyed.append((latest[thread], seq))
        order = [(place, seq) for place, (_, seq) in enumerate(sorted(keyed), 1)]
        self._db.executemany("UPDATE commits SET seq = -? WHERE seq = ?", order)
        self._db.execute("UPDATE commits SET seq = -seq")
        self._db.execute("DELETE FROM blocks")
        self._db.execute(_ALL_BLOCKS)
        self._blocks = {}
        moved = "(SELECT MAX(seq) FROM commits c WHERE c.thread = threads.thread)"
        self._db.execute(f"UPDATE threads SET moved = COALESCE({moved}, 0)")

    def owned(self) -> list[tuple[str, int]]:
        """Threads that have an owner, and its process."""
        return self._db.execute("SELECT thread_id, process FROM threads WHERE owner IS NOT NULL").fetchall()

    def release_all(self, processes: Iterable[int]) -> None:
        for process in processes:
            self._db.execute("UPDATE threads SET owner = NULL, process = NULL WHERE process IS ?", (process,))

    # ------------------------------------------------------------ lists

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
                condition += " AND w.name = ?"
                given.append(workflow_name)
            # Of one thread the numbers are in the order of commits too, and there is an index of them.
            order = "c.number" if thread_id is not None else "c.seq"
            query = f"{_INFO} {condition} ORDER BY {order} DESC LIMIT ?"
            rows = self._db.execute(query, (*given, -1 if limit is None else limit)).fetchall()
        else:
            rows = self._rows_of(workflow_name, condition, given, limit)
        return self._infos(rows)[::-1]

    def _rows_of(self, workflow_name: str, condition: str, given: list[Any], limit: int | None) -> list[Any]:
        """Block by block, the newest first."""
        rows: list[Any] = []
        blocks = self._db.execute(
            "SELECT b.workflow, b.block FROM blocks b JOIN workflows w USING (workflow) WHERE w.name = ?"
            " ORDER BY b.block DESC",
            (workflow_name,),
        )
        query = f"{_INFO} {condition} AND c.workflow = ? AND c.seq BETWEEN ? AND ? ORDER BY c.seq DESC"
        for workflow, block in blocks:
            rows += self._db.execute(query, (*given, workflow, block * BLOCK, block * BLOCK + BLOCK - 1)).fetchall()
            if limit is not None and len(rows) >= limit:
                break
        return rows[:limit]

    def _infos(self, rows: list[Any]) -> list[CheckpointInfo]:
        """With the ids of their parents: most of these are among them."""
        ids = {(row[9], row[3]): row[0] for row in rows}
        for row in rows:
            parent = (row[9], row[10])
            if row[10] is not None and parent not in ids:
                found = self._db.execute(
                    "SELECT checkpoint_id FROM commits WHERE thread = ? AND number = ?", parent
                ).fetchone()
                ids[parent] = None if found is None else found[0]
        return [_info(row, ids.get((row[9], row[10]))) for row in rows]

    def _seq_of(self, checkpoint_id: str) -> Any:
        row = self._db.execute("SELECT seq FROM commits WHERE checkpoint_id = ?", (from_id(checkpoint_id),)).fetchone()
        if row is None:
            raise CheckpointNotFound(checkpoint_id)
        return row[0]

    def find(self, checkpoint_id: str) -> tuple[CheckpointInfo, Payload] | None:
        return self._one(self._db.execute(f"{_INFO} AND c.checkpoint_id = ?", (from_id(checkpoint_id),)).fetchone())

    def at(self, thread: int, number: int | None) -> tuple[CheckpointInfo, Payload] | None:
        return self._one(self._db.execute(f"{_INFO} AND c.thread = ? AND c.number = ?", (thread, number)).fetchone())

    def head_of(self, thread_id: str) -> tuple[CheckpointInfo, Payload] | None:
        row = self._db.execute("SELECT thread, head FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if row is None or row[1] is None else self.at(*row)

    def _one(self, row: Any) -> tuple[CheckpointInfo, Payload] | None:
        if row is None:
            return None
        query = "SELECT number, seal, body, place, size FROM commits WHERE thread = ? AND number = ?"
        return self._infos([row])[0], Payload(*self._db.execute(query, (row[9], row[3])).fetchone())

    def payloads(self, thread_id: str, numbers: Iterable[int]) -> list[tuple[str | None, Payload]]:
        """With the checkpoint that each is of."""
        thread = self.find_thread(thread_id)
        found: list[Any] = []
        wanted = list(numbers)
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            found += self._db.execute(
                "SELECT checkpoint_id, number, seal, body, place, size FROM commits WHERE thread = ? AND number IN"
                f" ({','.join('?' * len(part))}) ORDER BY number",
                (thread, *part),
            ).fetchall()
        return [(to_id(row[0]), Payload(*row[1:])) for row in found]

    def events_after(self, thread_id: str, seq: int) -> list[tuple[int, int, str, str, CheckpointInfo | None, Payload]]:
        """First seq, count, run and time of each commit with events, its checkpoint and its payload."""
        thread = self.find_thread(thread_id)
        rows = self._db.execute(
            "SELECT first_seq, events, run_id, timestamp, number, seal, body, place, size, checkpoint_id FROM commits"
            " WHERE thread = ? AND first_seq IS NOT NULL AND number >= COALESCE((SELECT MAX(number) FROM commits"
            " WHERE thread = ? AND first_seq <= ?), 0) AND first_seq + events > ? ORDER BY number",
            (thread, thread, seq, seq + 1),
        ).fetchall()
        found = []
        for first, count, run_id, timestamp, number, *rest in rows:
            at = None if rest[4] is None or thread is None else self.at(thread, number)
            told = (first, count, to_id(run_id, RUN) or "", to_timestamp(timestamp))
            found.append((*told, None if at is None else at[0], Payload(number, *rest[:4])))
        return found

    def threads(
        self, workflow_name: str | None, thread_id: str | None, limit: int | None, before: str | None
    ) -> list[ThreadInfo]:
        query = "WHERE t.number > 0"
        given: list[Any] = []
        if workflow_name is not None:
            query += " AND w.name = ?"
            given.append(workflow_name)
        if thread_id is not None:
            query += " AND t.thread_id = ?"
            given.append(thread_id)
        if before is not None:
            row = self._db.execute("SELECT moved FROM threads WHERE thread_id = ?", (before,)).fetchone()
            if row is None:
                raise ThreadNotFound(before)
            query += " AND t.moved < ?"
            given.append(row[0])
        # First which, then what is told of them: the sort must not look up the head of each.
        newest = f"SELECT t.thread FROM threads t LEFT JOIN workflows w ON w.workflow = t.workflow {query}"
        newest += " ORDER BY t.moved DESC LIMIT ?"
        rows = self._db.execute(
            f"{_THREAD} WHERE t.thread IN ({newest}) ORDER BY t.moved", (*given, -1 if limit is None else limit)
        )
        return [self._thread_info(row) for row in rows.fetchall()]

    def requests(self, workflow_name: str | None, thread_id: str | None, limit: int | None) -> list[PendingRequest]:
        rows = self._db.execute(
            "SELECT t.thread_id, r.request_id, r.executor_id, r.asked_at, r.deadline, r.assignee, w.name"
            " FROM requests r JOIN threads t ON t.thread = r.thread JOIN workflows w ON w.workflow = t.workflow"
            " WHERE (?1 IS NULL OR w.name = ?1) AND (?2 IS NULL OR t.thread_id = ?2)"
            " ORDER BY r.asked_at, t.thread_id, r.request_id LIMIT ?3",
            (workflow_name, thread_id, -1 if limit is None else limit),
        )
        return [
            PendingRequest(
                found[0],
                found[1],
                found[2],
                to_time(found[3]),
                None if found[4] is None else to_time(found[4]),
                found[5],
                found[6],
            )
            for found in rows
        ]

    def due(self, now: datetime, limit: int | None) -> list[ThreadInfo]:
        rows = self._db.execute(f"{_THREAD} WHERE t.due_at <= ? ORDER BY t.due_at, t.thread_id", (from_time(now),))
        free = (info for row in rows if (info := self._thread_info(row)).run_id is None)
        return list(islice(free, limit))

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

    # ------------------------------------------------------------ removing and copying

    def owner_of(self, thread_id: str) -> str | None:
        """The run that holds the thread, if it still does."""
        row = self._db.execute("SELECT owner, process FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if row is None or row[0] is None or self.is_gone(row[1]) else str(row[0])

    def delete_thread(self, thread: int) -> None:
        for table in ("commits", "journal", "inbox", "requests", "threads"):
            self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))  # our own names

    def bodies(self, thread_id: str) -> list[PackedRow]:
        """All commits of a thread, with their payloads."""
        rows = self._db.execute(
            "SELECT seq, thread, number, parent, checkpoint_id, body, place, size, seal FROM commits"
            " WHERE thread = (SELECT thread FROM threads WHERE thread_id = ?) ORDER BY number",
            (thread_id,),
        )
        return [PackedRow(*row) for row in rows]

    def replace_commit(self, seq: int, checkpoint_id: Any, parent: int | None, seal: bytes, body: bytes | None) -> None:
        self._db.execute(
            "UPDATE commits SET checkpoint_id = ?, parent = ?, seal = ?, body = ? WHERE seq = ?",
            (checkpoint_id, parent, seal, body, seq),
        )

    def reseal(self, seq: int, seal: bytes, body: bytes) -> None:
        self._db.execute("UPDATE commits SET seal = ?, body = ? WHERE seq = ?", (seal, body, seq))

    def delete_commit(self, seq: int) -> None:
        newest = self._newest()
        self._db.execute("DELETE FROM commits WHERE seq = ?", (seq,))
        self._hold_place(newest)

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
            "INSERT INTO threads (thread_id, workflow, number, head, moved, status, updated_at, last_seq, due_at)"
            " SELECT ?, workflow, number, head, moved, status, updated_at, last_seq, due_at FROM threads"
            " WHERE thread = ?",
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
        self._db.execute("UPDATE threads SET moved = ? WHERE thread = ?", (self._newest(), made))
        self._db.execute(f"{_ALL_BLOCKS} AND thread = ?", (made,))
        self._db.execute(
            "INSERT INTO requests SELECT ?, request_id, executor_id, asked_at, deadline, assignee FROM requests"
            " WHERE thread = ?",
            (made, thread),
        )
        return made


def _info(row: Any, parent_id: Any) -> CheckpointInfo:
    checkpoint_id, thread_id, name, number, iteration, previous, timestamp, run_id, status = row[:9]
    return CheckpointInfo(
        str(to_id(checkpoint_id)),
        thread_id,
        name,
        number,
        iteration,
        to_id(parent_id) if parent_id is not None else previous,
        to_timestamp(timestamp),
        to_id(run_id, RUN) or None,
        status,
    )
