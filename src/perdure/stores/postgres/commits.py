"""Writing to a PostgreSQL store. A commit is one statement, and one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from perdure.cancelling import await_uncancelled
from perdure.errors import ThreadConflict
from perdure.records import Commit, JournalEntry, Lease
from perdure.stores.packing import RUN, consumed_seal, seal
from perdure.stores.postgres.database import PgSession, Unknown
from perdure.stores.postgres.lists import IS_THERE
from perdure.stores.postgres.owners import Held, Owning, taken_over
from perdure.stores.postgres.pool import IdTaken
from perdure.stores.postgres.rows import COLUMNS, LAST, TYPES, check_id, item_seal, key_of, packed_id, row_of, seal_of

_NONE_ADDED = "INSERT 0 0"


class Parts(NamedTuple):
    """What a commit does beyond adding a row: its statement has only that, so that a plain one stays cheap."""

    has_checkpoint: bool
    has_parent: bool
    """Which is to be the head."""
    settles: bool
    consumes: bool
    asks: bool
    prunes: bool
    silences: bool
    is_checked: bool = False
    """Whether its parent was looked at already."""

    @property
    def may_sweep(self) -> bool:
        return self.prunes or self.silences

    @property
    def method(self) -> str:
        """Of a connection. Without a sweep nothing is returned: how many rows were added says all."""
        return "fetchrow" if self.may_sweep else "execute"


_OWN_PARAMETERS = ("$1", "$2", "$3", "$4", "$5")
"""Thread, owner, fence, last seq, timestamp; then comes the row."""
_FENCE, _LAST_SEQ, _TIMESTAMP = _OWN_PARAMETERS[2:]
_FIRST_FREE = len(_OWN_PARAMETERS) + len(TYPES) + 1
_NUMBER, _PARENT, _FIRST_SEQ, _WORKFLOW, _STATUS = "$6", "$7", "$8", "$14", "$18"


@lru_cache(maxsize=256)
def commit_statement(parts: Parts) -> str:
    """The parameters after the row come in the order in which they are named here; see `_given`."""
    free = iter(range(_FIRST_FREE, 100))
    changes = [f"number = {_NUMBER}", "moved = nextval('{s}.moves')", f"status = {_STATUS}"]
    changes += [f"updated_at = {_TIMESTAMP}", f"last_seq = GREATEST(t.last_seq, {_LAST_SEQ})"]
    only_if = [f"t.thread = $1 AND t.fence = {_FENCE} AND t.owner = $2 AND t.number = {_NUMBER} - 1"]
    more = ""
    if parts.has_checkpoint:
        changes += [f"head = {_NUMBER}", f"workflow = {_WORKFLOW}", f"due_at = ${next(free)}::timestamptz"]
    if parts.has_parent and not parts.is_checked:
        only_if.append(f"t.head = {_PARENT}")
    if parts.settles:
        more += (
            ", settled AS (DELETE FROM {s}.journal WHERE thread = $1 AND EXISTS (SELECT 1 FROM moved)"
            f" AND delivery_id <> ALL (${next(free)}::bigint[]))"
        )
    if parts.consumes:
        more += (
            ", consumed AS (UPDATE {s}.inbox i SET body = NULL, seal = g.seal FROM moved,"
            f" unnest(${next(free)}::text[], ${next(free)}::bytea[]) g (item_id, seal)"
            " WHERE i.thread = $1 AND i.item_id = g.item_id)"
        )
    if parts.asks:
        ids, rest = f"${next(free)}::text[]", [f"${next(free)}::{kind}[]" for kind in _ASKED]
        more += (
            f", withdrawn AS (DELETE FROM {{s}}.requests WHERE thread = $1 AND request_id <> ALL ({ids})"
            " AND EXISTS (SELECT 1 FROM moved)), asked AS (INSERT INTO {s}.requests SELECT $1, r.* FROM"
            f" unnest({', '.join([ids, *rest])}) r, moved ON CONFLICT DO NOTHING)"
        )
    if parts.prunes:
        changes.append(
            "forgotten = t.forgotten || ARRAY(SELECT c.number FROM {s}.commits c WHERE c.thread = $1"
            f" AND c.number = ANY (${next(free)}::bigint[]) AND c.number <> ALL (t.forgotten)"
            f" AND c.checkpoint_id IS NOT NULL AND c.number <> {_NUMBER if parts.has_checkpoint else 't.head'}"
            " AND NOT c.is_pinned)"
        )
    if parts.silences:
        before = f"LEAST(${next(free)}::bigint, {_NUMBER} + 1)"
        changes.append(f"silent_before = GREATEST(t.silent_before, {before})")
        changes.append(
            "first_seq = GREATEST(t.first_seq, COALESCE((SELECT c.first_seq FROM {s}.commits c WHERE c.thread = $1"
            f" AND c.number >= {before} AND c.first_seq IS NOT NULL ORDER BY c.number LIMIT 1),"
            f" CASE WHEN {before} <= {_NUMBER} THEN {_FIRST_SEQ}::bigint END, GREATEST(t.last_seq, {_LAST_SEQ}) + 1))"
        )
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(TYPES, len(_OWN_PARAMETERS) + 1))
    if not parts.may_sweep:
        return (
            f"WITH moved AS (UPDATE {{s}}.threads t SET {', '.join(changes)} WHERE {' AND '.join(only_if)}"
            f" RETURNING moved){more} INSERT INTO {{s}}.commits (thread, seq, {COLUMNS})"
            f" SELECT $1, moved, {values} FROM moved"
        )
    return (
        f"WITH moved AS (UPDATE {{s}}.threads t SET {', '.join(changes)} WHERE {' AND '.join(only_if)}"
        " RETURNING moved, cardinality(forgotten) >= sweep_at OR silent_before - silent_swept >= 16 AS is_sweep_due),"
        f" stored AS (INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) SELECT $1, moved, {values} FROM moved)"
        f"{more} SELECT is_sweep_due FROM moved"
    )


_ASKED = ("text", "timestamptz", "timestamptz", "text")
"""Executor, when, deadline and assignee of a request."""


class Writing(Owning):
    """Commits, journal and inbox."""

    finishes_commits = True

    async def commit(self, commit: Commit) -> None:
        lease, info = commit.lease, commit.info
        _check_ids(commit)
        held = self.held.get(lease)
        parts = Parts(
            info is not None,
            commit.parent is not None,
            info is not None and (held is None or held.has_journal),
            bool(commit.consumed),
            commit.requests is not None,
            bool(commit.prunes),
            bool(commit.prunes_events_before),
        )
        try:
            is_sweep_due = await self._send(commit, parts, is_sure=True)
        except asyncio.CancelledError:  # it may have been made: found out in a task of its own, which plain ones spare
            is_sweep_due, _ = await await_uncancelled(self._send(commit, parts, is_sure=False))
        if parts.settles and held is not None:
            held.has_journal = bool(commit.unsettled)
        if is_sweep_due:
            await await_uncancelled(self.sweep_quietly(lease.thread_id))

    async def _send(self, commit: Commit, parts: Parts, *, is_sure: bool) -> bool:
        """Raises ThreadConflict, and sends it again if and only if it did not happen. Not `is_sure`: it may have been
        made before."""

        async def attempt() -> bool:
            nonlocal is_sure
            try:
                done = await self._try(commit, parts)
                if done is not None:
                    return parts.may_sweep and bool(done["is_sweep_due"])
                if not is_sure and await self._is_made(commit):
                    return False
                return await self._send_by_another_way(commit, parts)
            except Unknown:
                is_sure = False
                raise
            except ThreadConflict:  # said with the thread's row locked: an attempt that came late has come by now
                if is_sure or not await self._is_made(commit):
                    raise
                return False

        return await self.db.again(attempt)

    async def _try(self, commit: Commit, parts: Parts) -> Any:
        """None if it was refused: it is not the next, or its checkpoint has the id of another."""
        try:
            done = await self.db.once(parts.method, commit_statement(parts), tuple(_given(commit, parts)))
        except IdTaken:
            return None
        return None if done == _NONE_ADDED else done

    async def _is_made(self, commit: Commit) -> bool:
        """What has its number, its run and its seal is it: nobody else could have made the same in its place."""
        found = await self.db.value(
            "SELECT 1 FROM {s}.commits WHERE thread = $1 AND number = $2 AND run_id = $3 AND seal = $4",
            key_of(commit.lease.thread_id),
            commit.number,
            packed_id(commit.run_id, RUN),
            seal_of(commit),
        )
        return found is not None

    async def _send_by_another_way(self, commit: Commit, parts: Parts) -> bool:
        """Its parent is not the head, or its checkpoint takes the place of another. Raises ThreadConflict."""
        lease, info, key = commit.lease, commit.info, key_of(commit.lease.thread_id)
        async with self.db.transaction() as session:
            # Rows of commits first, then that of the thread, as whoever prunes takes them.
            is_there = commit.parent is None or await session.value(_PARENT_IS_THERE, key, commit.parent)
            if info is not None:
                await displace(session, info.checkpoint_id, key)
            row = await session.row(
                "SELECT fence, owner, number, head FROM {s}.threads WHERE thread = $1 FOR UPDATE", key
            )
            if row is None or (row["fence"], row["owner"]) != (lease.fence, lease.owner):
                raise taken_over(lease, row)
            if commit.number != row["number"] + 1:
                raise ThreadConflict(lease.thread_id, f"commit {commit.number}", f"commit {row['number']}")
            if not is_there and commit.parent != row["head"]:
                raise ThreadConflict(lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
            parts = parts._replace(is_checked=True)
            done = await session.row(commit_statement(parts), *_given(commit, parts))
            return parts.may_sweep and bool(done["is_sweep_due"])

    # ------------------------------------------------------------ journal

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        held = self.held.get(lease) or Held(has_journal=True)  # given up, or opened by another object
        held.has_journal = True
        # To its end: what is on its way is recorded, although a sibling that failed ends the superstep meanwhile.
        adding = held.journal.add((uuid4(), entry), lambda batch: self._write_journal(lease, batch))
        _, cancelled = await await_uncancelled(adding)
        if cancelled is not None:
            raise cancelled

    async def _write_journal(self, lease: Lease, batch: Sequence[tuple[UUID, JournalEntry]]) -> None:
        thread_id, key = lease.thread_id, key_of(lease.thread_id)
        found = await self.db.value(
            _APPEND,
            key,
            lease.fence,
            lease.owner,
            [mark for mark, _ in batch],
            [entry.delivery_id for _, entry in batch],
            [entry.body for _, entry in batch],
            [seal(thread_id, entry.delivery_id, entry.body) for _, entry in batch],
        )
        if found is None:
            raise taken_over(lease, await self.db.row("SELECT fence FROM {s}.threads WHERE thread = $1", key))

    # ------------------------------------------------------------ inbox

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        check_id("thread id", thread_id, None)
        check_id("item id", item_id)
        check_id("kind", kind)
        given = (key_of(thread_id), thread_id, item_id, kind, body, item_seal(thread_id, item_id, kind, body))
        while not await self.db.value(_POST, *given):
            pass  # the thread was made or deleted by somebody else at this moment


_POST = """
WITH made AS (INSERT INTO {s}.threads (thread, thread_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1),
found AS (SELECT 1 FROM {s}.threads WHERE thread = $1 FOR KEY SHARE),
posted AS (INSERT INTO {s}.inbox (thread, item_id, kind, body, seal) SELECT $1, $3::text, $4::text, $5::bytea, $6::bytea
  WHERE EXISTS (SELECT 1 FROM made) OR EXISTS (SELECT 1 FROM found) ON CONFLICT DO NOTHING)
SELECT EXISTS (SELECT 1 FROM made) OR EXISTS (SELECT 1 FROM found)
"""
"""The lock keeps the thread from being deleted under it, and does not wait for commits."""


def _check_ids(commit: Commit) -> None:
    """Raises UnsupportedId."""
    info = commit.info
    if info is not None:
        check_id("checkpoint id", info.checkpoint_id)
        check_id("workflow name", info.workflow_name)
    for one in commit.requests or ():
        check_id("request id", one.request_id)
        check_id("executor id", one.executor_id)
        check_id("assignee", one.assignee)


_PARENT_IS_THERE = """
SELECT 1 FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread WHERE c.thread = $1 AND c.number = $2
  AND {is_there} FOR SHARE OF c
""".replace("{is_there}", IS_THERE)
"""Locked, so that nobody prunes it before the commit."""

_APPEND = """
WITH mine AS (UPDATE {s}.threads SET noted = noted + 1 WHERE thread = $1 AND fence = $2 AND owner = $3 RETURNING 1),
written AS (INSERT INTO {s}.journal (thread, mark, delivery_id, body, seal)
  SELECT $1, e.mark, e.delivery_id, e.body, e.seal FROM mine, unnest($4::uuid[], $5::bigint[], $6::bytea[], $7::bytea[])
    WITH ORDINALITY e (mark, delivery_id, body, seal, place) ORDER BY e.place ON CONFLICT DO NOTHING)
SELECT 1 FROM mine
"""
"""The thread's row is updated so that whoever takes it over waits for this, and sees it."""


def _given(commit: Commit, parts: Parts) -> list[Any]:
    """What its statement is given."""
    events = commit.events
    last_seq = 0 if events is None else events.first_seq + events.count - 1
    lease = commit.lease
    given = [key_of(lease.thread_id), lease.owner, lease.fence, last_seq, commit.timestamp, *row_of(commit)]
    if parts.has_checkpoint:
        given.append(commit.due_at)
    if parts.settles:
        given.append(list(commit.unsettled))
    if parts.consumes:
        given += [list(commit.consumed), [consumed_seal(lease.thread_id, one) for one in commit.consumed]]
    if parts.asks:
        asked = commit.requests or ()
        given += [[one.request_id for one in asked], [one.executor_id for one in asked]]
        given += [[one.asked_at for one in asked], [one.deadline for one in asked], [one.assignee for one in asked]]
    if parts.prunes:
        given.append(list(commit.prunes))
    if parts.silences:
        given.append(min(commit.prunes_events_before, LAST))
    return given


async def lock_against_sweeps(session: PgSession, thread: UUID) -> None:
    """Of whoever frees what a thread forgot there is one at a time. Ends with the transaction."""
    await session.value("SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", session.lock_name(thread))


async def displace(session: PgSession, checkpoint_id: str, by: UUID) -> None:
    """Another checkpoint, of thread `by`, takes the place of those that have this id."""
    packed = packed_id(checkpoint_id)
    for row in await session.rows("SELECT thread FROM {s}.commits WHERE checkpoint_id = $1", packed):
        await lock_against_sweeps(session, row["thread"])
    for row in await session.rows(
        "UPDATE {s}.commits SET checkpoint_id = NULL, is_pinned = false WHERE checkpoint_id = $1"
        " RETURNING thread, number",
        packed,
    ):
        place = (row["thread"], row["number"])
        await session.rows(
            "UPDATE {s}.threads SET forgotten = forgotten || $2::bigint WHERE thread = $1 AND $2 <> ALL (forgotten)",
            *place,
        )
        if row["thread"] != by:  # in its own thread the commit says what becomes of the rest
            await move_head(session, *place)


async def move_head(session: PgSession, thread: UUID, number: int) -> None:
    """Where `number` was the head and is no checkpoint any more, the newest that is left becomes the head."""
    moved = await session.value(
        "UPDATE {s}.threads t SET due_at = NULL, head = (SELECT max(c.number) FROM {s}.commits c WHERE c.thread = $1"
        f" AND c.number <> $2 AND {IS_THERE}) WHERE t.thread = $1 AND t.head = $2 RETURNING 1",
        thread,
        number,
    )
    if moved is not None:
        await session.rows("DELETE FROM {s}.journal WHERE thread = $1", thread)
        await session.rows("DELETE FROM {s}.requests WHERE thread = $1", thread)
