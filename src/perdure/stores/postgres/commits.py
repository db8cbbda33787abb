"""The commit of a thread: one statement and one round trip.

`commit_statement` shows all of it. It proves fence, owner, number and parent in the update of the thread's row, and
inserts the commit. It settles journal entries, consumes inbox items and replaces pending requests. If the proof fails,
no row changes, and `_commit_in_transaction` finds out why.

Commits that arrive while another is under way are stored together, by `_COMMIT_GROUP`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from perdure.clock import await_uncancelled
from perdure.errors import ThreadConflict
from perdure.records import Commit
from perdure.stores.packing import RUN, consumed_seal, count_bytes
from perdure.stores.postgres.checkpoints import HAS_CHECKPOINT
from perdure.stores.postgres.database import Batcher, Database, OutcomeUnknown, PgSession
from perdure.stores.postgres.leases import HeldThread
from perdure.stores.postgres.pool import IdTaken, Refused
from perdure.stores.postgres.pruning import collect_garbage, lock_against_pruning, move_head
from perdure.stores.postgres.rows import COLUMNS, MAX_NUMBER, SEAL, TYPES, check_ids, commit_row, pack_id, thread_key
from perdure.stores.process_identity import fence_conflict

_NO_ROW, _STORED = "INSERT 0 0", "INSERT 0 1"


class Parts(NamedTuple):
    """The work of a commit beyond its row. Its statement has only these parts, so a plain commit stays cheap."""

    has_checkpoint: bool
    has_parent: bool = False
    """Which must be the head, and has not been checked before."""
    settles: bool = False
    consumes: bool = False
    has_requests: bool = False
    prunes: bool = False
    drops_events: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it has a checkpoint, and nothing beside it. Then it may be sent together with others."""
        return self.has_checkpoint and not any(self[2:])

    @property
    def may_collect(self) -> bool:
        """Whether the thread may have enough garbage to collect afterwards."""
        return self.prunes or self.drops_events


_FENCE, _LAST_SEQ, _TIMESTAMP, _FIRST_OF_ROW = "$3", "$4", "$5", 6
"""The parameters after thread and owner; the values of the row follow."""
_FIRST_FREE = _FIRST_OF_ROW + len(TYPES)
_NUMBER, _PARENT, _FIRST_SEQ, _WORKFLOW, _STATUS = "$6", "$7", "$8", "$14", "$18"
_REQUEST_COLUMNS = {
    "request_id": "text",
    "executor_id": "text",
    "asked_at": "timestamptz",
    "deadline": "timestamptz",
    "assignee": "text",
}


@lru_cache(maxsize=256)
def commit_statement(parts: Parts) -> str:
    """The parameters after the row have the order in which they are named here; see `_parameters`."""
    free = iter(range(_FIRST_FREE, 100))
    changes = [f"number = {_NUMBER}", "moved = nextval('{s}.moves')", f"status = {_STATUS}"]
    changes += [f"updated_at = {_TIMESTAMP}", f"last_seq = GREATEST(t.last_seq, {_LAST_SEQ})"]
    proofs = [f"t.thread = $1 AND t.fence = {_FENCE} AND t.owner = $2 AND t.number = {_NUMBER} - 1"]
    more = ""
    if parts.has_checkpoint:
        changes += [f"head = {_NUMBER}", f"workflow = {_WORKFLOW}", f"due_at = ${next(free)}::timestamptz"]
    if parts.has_parent:
        proofs.append(f"t.head = {_PARENT}")
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
    if parts.has_requests:
        columns = [f"${next(free)}::{kind}[]" for kind in _REQUEST_COLUMNS.values()]
        more += (
            f", withdrawn AS (DELETE FROM {{s}}.requests WHERE thread = $1 AND request_id <> ALL ({columns[0]})"
            " AND EXISTS (SELECT 1 FROM moved)), asked AS (INSERT INTO {s}.requests SELECT $1, r.* FROM"
            f" unnest({', '.join(columns)}) r, moved ON CONFLICT DO NOTHING)"
        )
    if parts.prunes:
        changes.append(
            "pruned = t.pruned || ARRAY(SELECT c.number FROM {s}.commits c WHERE c.thread = $1"
            f" AND c.number = ANY (${next(free)}::bigint[]) AND c.number <> ALL (t.pruned)"
            f" AND c.checkpoint_id IS NOT NULL AND c.number <> {_NUMBER if parts.has_checkpoint else 't.head'}"
            " AND NOT c.is_pinned)"
        )
    if parts.drops_events:
        before = f"LEAST(${next(free)}::bigint, {_NUMBER} + 1)"
        changes.append(f"events_dropped_before = GREATEST(t.events_dropped_before, {before})")
        changes.append(
            "first_seq = GREATEST(t.first_seq, COALESCE((SELECT c.first_seq FROM {s}.commits c WHERE c.thread = $1"
            f" AND c.number >= {before} AND c.first_seq IS NOT NULL ORDER BY c.number LIMIT 1),"
            f" CASE WHEN {before} <= {_NUMBER} THEN {_FIRST_SEQ}::bigint END, GREATEST(t.last_seq, {_LAST_SEQ}) + 1))"
        )
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(TYPES, _FIRST_OF_ROW))
    move = f"UPDATE {{s}}.threads t SET {', '.join(changes)} WHERE {' AND '.join(proofs)} RETURNING moved"
    insert = f"INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) SELECT $1, moved, {values} FROM moved"
    if not parts.may_collect:
        return f"WITH moved AS ({move}){more} {insert}"
    move += ", cardinality(pruned) >= collect_at OR events_dropped_before - events_freed_before >= 16 AS has_garbage"
    return f"WITH moved AS ({move}), stored AS ({insert}){more} SELECT has_garbage FROM moved"


def _parameters(commit: Commit, parts: Parts) -> list[Any]:
    """The values for `commit_statement`."""
    events = commit.events
    last_seq = 0 if events is None else events.first_seq + events.count - 1
    lease = commit.lease
    values = [thread_key(lease.thread_id), lease.owner, lease.fence, last_seq, commit.timestamp, *commit_row(commit)]
    if parts.has_checkpoint:
        values.append(commit.due_at)
    if parts.settles:
        values.append(list(commit.unsettled))
    if parts.consumes:
        values += [list(commit.consumed), [consumed_seal(lease.thread_id, item_id) for item_id in commit.consumed]]
    if parts.has_requests:
        values += ([getattr(request, name) for request in commit.requests or ()] for name in _REQUEST_COLUMNS)
    if parts.prunes:
        values.append(list(commit.prunes))
    if parts.drops_events:
        values.append(min(commit.prunes_events_before, MAX_NUMBER))
    return values


MAX_WAITING = 8
"""So many commits do not wait for those before them. Groups of 8 cost a commit as little CPU as larger ones."""
MAX_WAIT_SECONDS = 0.02
"""How long a commit waits for the statement of others, which may wait for a lock, before it is sent all the same."""
MAX_GROUP_BYTES = 100_000
"""A commit with a larger payload is sent by itself."""

_GROUP_TYPES = ("uuid", "text", "bigint", "bigint", "text", *TYPES, "timestamptz")
_COMMIT_GROUP = f"""
WITH batch AS (SELECT * FROM unnest({", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_GROUP_TYPES, 1))})
  WITH ORDINALITY g (thread, owner, fence, last_seq, updated_at, {COLUMNS}, due_at, place)),
moved AS (UPDATE {{s}}.threads t SET number = g.number, moved = nextval('{{s}}.moves'), status = g.status,
  updated_at = g.updated_at, last_seq = GREATEST(t.last_seq, g.last_seq), head = g.number, workflow = g.workflow,
  due_at = g.due_at FROM batch g
  WHERE t.thread = g.thread AND t.fence = g.fence AND t.owner = g.owner AND t.number = g.number - 1
    AND (g.parent IS NULL OR t.head = g.parent)
    AND EXISTS (SELECT 1 FROM {{s}}.threads l WHERE l.thread = g.thread FOR NO KEY UPDATE SKIP LOCKED)
  RETURNING g.*, t.moved AS seq),
stored AS (INSERT INTO {{s}}.commits (thread, seq, {COLUMNS}) SELECT thread, seq, {COLUMNS} FROM moved)
SELECT place FROM moved
"""
"""Several commits, each with a checkpoint and nothing beside it. It stores those whose proof holds, and returns their
places. It waits for no lock of a thread: a commit of one must not delay those of others."""


class CommitWriter:
    """Writes the commits of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._groups: WeakKeyDictionary[asyncio.AbstractEventLoop, Batcher[Commit, bool]] = WeakKeyDictionary()

    async def write(self, commit: Commit, held: HeldThread | None) -> None:
        """Store a commit. `held`: what this process knows of the thread; None if another object opened it."""
        check_ids(commit)
        has_checkpoint = commit.info is not None
        parts = Parts(
            has_checkpoint,
            commit.parent is not None,
            has_checkpoint and (held is None or held.has_journal),
            bool(commit.consumed),
            commit.requests is not None,
            bool(commit.prunes),
            bool(commit.prunes_events_before),
        )
        try:
            has_garbage = await self._send(commit, parts, is_first=True)
        except asyncio.CancelledError:  # it may be stored: a separate task finds out, which other commits do without
            has_garbage, _ = await await_uncancelled(self._send(commit, parts, is_first=False))
        if parts.settles and held is not None:
            held.has_journal = bool(commit.unsettled)
        if has_garbage:
            await await_uncancelled(collect_garbage(self._db, commit.lease.thread_id))

    async def _send(self, commit: Commit, parts: Parts, *, is_first: bool) -> bool:
        """Returns whether the thread has garbage to collect. Sends the statement again if and only if the commit is
        not stored. Not `is_first`: an earlier attempt may have stored it. Raises ThreadConflict."""

        async def attempt() -> bool:
            nonlocal is_first
            try:
                result = await self._try(commit, parts)
                if result is not None:
                    return parts.may_collect and bool(result["has_garbage"])
                if not is_first and await _is_stored(self._db, commit):
                    return False
                return await _commit_in_transaction(self._db, commit, parts)
            except OutcomeUnknown:
                is_first = False
                raise
            except ThreadConflict:  # raised with the thread's row locked: an earlier attempt has ended by now
                if is_first or not await _is_stored(self._db, commit):
                    raise
                return False

        return await self._db.retry(attempt)

    async def _try(self, commit: Commit, parts: Parts) -> Any:
        """None if the proof fails, or another checkpoint has this id."""
        if parts.is_plain:
            group = self._group()
            if group.is_idle:
                with group.busy():
                    return await _try_alone(self._db, commit, parts)
            if count_bytes(commit) <= MAX_GROUP_BYTES and await group.add(commit):
                return _STORED
        return await _try_alone(self._db, commit, parts)

    def _group(self) -> Batcher[Commit, bool]:
        """The commits of this event loop that wait while others are under way."""
        loop = asyncio.get_running_loop()
        if loop not in self._groups:
            write = partial(_write_group, self._db)
            self._groups[loop] = Batcher(write, max_items=MAX_WAITING, max_seconds=MAX_WAIT_SECONDS)
        return self._groups[loop]


async def _write_group(db: Database, commits: Sequence[Commit]) -> list[bool]:
    """Which of them are stored. The others are to be sent alone, which finds out the reason."""
    plain = Parts(has_checkpoint=True)
    columns = zip(*(_parameters(commit, plain) for commit in commits), strict=True)
    try:
        rows = await db.once("fetch", _COMMIT_GROUP, tuple(columns))
    except Refused:  # because of one of them: none is stored
        rows = []
    places = {row["place"] for row in rows}
    return [place in places for place in range(1, len(commits) + 1)]


async def _try_alone(db: Database, commit: Commit, parts: Parts) -> Any:
    """None if the proof fails, or another checkpoint has this id."""
    method = "fetchrow" if parts.may_collect else "execute"  # whose result is the number of added rows
    try:
        result = await db.once(method, commit_statement(parts), tuple(_parameters(commit, parts)))
    except IdTaken:
        return None
    return None if result == _NO_ROW else result


async def _is_stored(db: Database, commit: Commit) -> bool:
    """Number, run and seal identify a commit: no other owner can have written the same in its place."""
    query = "SELECT 1 FROM {s}.commits WHERE thread = $1 AND number = $2 AND run_id = $3 AND seal = $4"
    place = thread_key(commit.lease.thread_id), commit.number
    return await db.value(query, *place, pack_id(commit.run_id, RUN), commit_row(commit)[SEAL]) is not None


_LOCK_PARENT = f"""
SELECT 1 FROM {{s}}.commits c JOIN {{s}}.threads t ON t.thread = c.thread WHERE c.thread = $1 AND c.number = $2
  AND {HAS_CHECKPOINT} FOR SHARE OF c
"""
"""The lock keeps it from being pruned before the commit."""


async def _commit_in_transaction(db: Database, commit: Commit, parts: Parts) -> bool:
    """For a commit whose parent is not the head, or whose checkpoint replaces another. Raises ThreadConflict."""
    lease, info, key = commit.lease, commit.info, thread_key(commit.lease.thread_id)
    async with db.transaction() as session:
        # Rows of commits are locked before that of the thread, in the same order as pruning does.
        has_parent = commit.parent is None or await session.value(_LOCK_PARENT, key, commit.parent)
        if info is not None:
            await _displace(session, info.checkpoint_id, key)
        row = await session.row("SELECT fence, owner, number, head FROM {s}.threads WHERE thread = $1 FOR UPDATE", key)
        if row is None or (row["fence"], row["owner"]) != (lease.fence, lease.owner):
            raise fence_conflict(lease, None if row is None else row["fence"])
        if commit.number != row["number"] + 1:
            raise ThreadConflict(lease.thread_id, f"commit {commit.number}", f"commit {row['number']}")
        if not has_parent and commit.parent != row["head"]:
            raise ThreadConflict(lease.thread_id, f"after commit {commit.parent}", "no such checkpoint any more")
        parts = parts._replace(has_parent=False)  # it is checked
        result = await session.row(commit_statement(parts), *_parameters(commit, parts))
        return parts.may_collect and bool(result["has_garbage"])


async def _displace(session: PgSession, checkpoint_id: str, thread: UUID) -> None:
    """Delete the checkpoints with this id: a new one of `thread` replaces them."""
    packed = pack_id(checkpoint_id)
    for row in await session.rows("SELECT thread FROM {s}.commits WHERE checkpoint_id = $1", packed):
        await lock_against_pruning(session, row["thread"])
    release = "UPDATE {s}.commits SET checkpoint_id = NULL, is_pinned = false WHERE checkpoint_id = $1"
    prune = "UPDATE {s}.threads SET pruned = pruned || $2::bigint WHERE thread = $1 AND $2 <> ALL (pruned)"
    for row in await session.rows(f"{release} RETURNING thread, number", packed):
        displaced = (row["thread"], row["number"])
        await session.rows(prune, *displaced)
        if row["thread"] != thread:  # in its own thread the commit sets the head
            await move_head(session, *displaced)
