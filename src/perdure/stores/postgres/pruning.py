"""Pruning: checkpoints and events are deleted in batches that do not delay commits.

A batch reads the chunk references of its own commits, of their children, and of commits that carry references over. It
reads no payload, and never all commits of a thread. The server cuts deleted chunks out of their rows.

`threads.pruned` lists checkpoints that are deleted for readers and still take space. `collect_garbage` frees them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from perdure.errors import PerdureError, ThreadBusy
from perdure.log import get_logger
from perdure.stores.garbage import Lineage, plan_pruning
from perdure.stores.postgres.checkpoints import COMMITS, HAS_CHECKPOINT, THREAD_ROW, check_thread_row
from perdure.stores.postgres.database import Database, HasDatabase, OutcomeUnknown, PgSession
from perdure.stores.postgres.leases import OWNER, live_owner
from perdure.stores.postgres.rows import (
    MAX_NUMBER,
    is_text,
    join_words,
    links_checksum,
    pack_id,
    split_words,
    thread_key,
)

logger = get_logger("stores")

MAX_BATCH = 2000
"""Commits that one transaction prunes. Each batch rewrites the carried references of its children, so many small
batches would write more than few large ones."""
MAX_BATCH_CHARACTERS = 2_000_000
"""The same limit, in characters of the names of their chunks."""
COLLECT_AT_LEAST, COLLECT_AT_MOST = 16, 256
"""Pruned checkpoints of a thread before a commit collects them; the more references are carried over, the more. All
lists skip those that are pruned and not freed."""

MAX_COLLECTED = 512
"""Commits of one collection that a commit waits for."""

_LINES = "number, parent, refers, names, dropped, carried, own, is_pinned, root IS NOT NULL AS has_root"

_LOCKED = f"""
SELECT {_LINES}, events IS NOT NULL AS has_events FROM {{s}}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])
  ORDER BY number FOR UPDATE
"""
"""The lock keeps commits from continuing from one of them: they wait, and then find no checkpoint."""

_BESIDE = f"""
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND number = ANY ($2::bigint[]) AND parent = number - 1
UNION ALL
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND parent = ANY ($3::bigint[]) AND parent <> number - 1
UNION ALL
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND carried IS NOT NULL
"""
"""The children of the commits of a batch, and the commits that carry references over."""

_CUT = """
UPDATE {s}.commits c SET (names, chunks) = (
  WITH whole AS MATERIALIZED (SELECT c.chunks || ''::bytea AS packed), -- once, not for each chunk
  gone AS MATERIALIZED (SELECT unnest(string_to_array(g.gone, ' ')) AS name),
  placed AS (SELECT word, place, length, 1 + (sum(length) OVER (ORDER BY place))::int - length AS start
    FROM unnest(string_to_array(c.names, ' ')) WITH ORDINALITY u (word, place),
      LATERAL (SELECT substring(word FROM ':([0-9]+)$')::int AS length) l)
  SELECT string_agg(word, ' ' ORDER BY place),
    string_agg(substring((SELECT packed FROM whole) FROM start FOR length), '' ORDER BY place)
  FROM placed WHERE substring(word FROM '^(.*):[0-9]+$') NOT IN (SELECT name FROM gone)
) FROM unnest($2::bigint[], $3::text[]) g (number, gone)
WHERE c.thread = $1 AND c.number = ANY ($2::bigint[]) AND c.number = g.number
"""
"""Removes chunks from their rows, without sending the others."""

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 1))"

_FREE = """
UPDATE {s}.commits c SET
  checkpoint_id = CASE WHEN NOT is_pruned THEN checkpoint_id END, root = CASE WHEN NOT is_pruned THEN root END,
  events = CASE WHEN NOT drops_events THEN events END, first_seq = CASE WHEN NOT drops_events THEN first_seq END,
  event_count = CASE WHEN NOT drops_events THEN event_count END, own = CASE WHEN NOT drops_events THEN own END,
  refers = refers AND NOT drops_events, parent = CASE WHEN NOT is_unlinked THEN parent END,
  dropped = CASE WHEN NOT is_unlinked THEN dropped END, carried = CASE WHEN NOT is_unlinked THEN carried END
FROM unnest($2::bigint[], $3::boolean[], $4::boolean[], $5::boolean[]) g (number, is_pruned, drops_events, is_unlinked)
WHERE c.thread = $1 AND c.number = ANY ($2::bigint[]) AND c.number = g.number
  AND (is_pruned OR drops_events OR is_unlinked)
"""

_NOTE_FREED = """
UPDATE {s}.threads SET pruned = ARRAY(SELECT unnest(pruned) EXCEPT SELECT unnest($2::bigint[])),
  events_freed_before = GREATEST(events_freed_before, $3), collect_at = $4 WHERE thread = $1
"""

_EMPTY = """
DELETE FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[]) AND checkpoint_id IS NULL AND names IS NULL
  AND events IS NULL
"""


@dataclass
class Batch:
    """The rows that one transaction frees."""

    rows: dict[int, Any]
    pruned: set[int]
    events_before: int
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """The new links of commits that stay and continue from pruned ones."""
    needed: set[str] = field(default_factory=set)
    """Carried references. A chunk of a commit without checkpoint is needed if one of them names it."""

    def drops_events(self, row: Any) -> bool:
        return bool(row["has_events"] and row["number"] < self.events_before)

    def needs_chunks(self, row: Any) -> bool:
        """Whether the commit still refers to the chunks of its checkpoint: as a checkpoint, or for its events."""
        is_checkpoint = row["has_root"] and row["number"] not in self.pruned
        return bool(is_checkpoint or (row["refers"] and not self.drops_events(row)))

    def is_empty(self, row: Any, removed: set[str]) -> bool:
        has_events = row["has_events"] and not self.drops_events(row)
        return not self.needs_chunks(row) and not has_events and removed.issuperset(chunk_names(row))

    def unneeded_chunks(self) -> dict[int, set[str]]:
        """Names of chunks, by the commit that holds them."""
        unneeded: dict[int, set[str]] = defaultdict(set)
        for number, row in self.rows.items():
            own = frozenset(split_words(row["own"]))
            for name in chunk_names(row):
                if name in own:
                    is_unneeded = self.drops_events(row)
                else:
                    is_unneeded = not self.needs_chunks(row) and f"{name}.{number}" not in self.needed
                if is_unneeded:
                    unneeded[number].add(name)
            if not self.needs_chunks(row):
                for ref in split_words(row["carried"]):
                    name, _, holder = ref.partition(".")
                    if ref not in self.needed:
                        unneeded[int(holder)].add(name)
        return unneeded


_EVENTS_OF_BATCH = """
SELECT LEAST(events_dropped_before, $2 + 1) AS until, ARRAY(SELECT number FROM {s}.commits WHERE thread = $1
  AND number >= events_freed_before AND number < LEAST(events_dropped_before, $2 + 1) ORDER BY number) AS with_events
FROM {s}.threads WHERE thread = $1 AND events_freed_before < events_dropped_before
"""
"""The commits whose dropped events a batch frees too. A row that keeps nothing is then deleted, not updated first."""

_DROP_EVENTS = """
UPDATE {s}.threads t SET events_dropped_before = GREATEST(t.events_dropped_before, LEAST($2, t.number + 1)),
  first_seq = GREATEST(t.first_seq, COALESCE((SELECT c.first_seq FROM {s}.commits c WHERE c.thread = $1
    AND c.number >= LEAST($2, t.number + 1) AND c.first_seq IS NOT NULL ORDER BY c.number LIMIT 1), t.last_seq + 1))
WHERE t.thread = $1
"""


async def prune(store: HasDatabase, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
    """Delete checkpoints, and the events of commits before `events_before`; returns how many checkpoints existed."""
    db, key = store.db, thread_key(thread_id)
    packed_ids = [pack_id(checkpoint_id) for checkpoint_id in checkpoint_ids if is_text(checkpoint_id)]
    thread_row = await db.row(THREAD_ROW, key)
    if thread_row is None:
        return 0
    check_thread_row(thread_id, thread_row)  # a damaged thread is not pruned
    prunable = f"c.thread = $1 AND c.checkpoint_id = ANY ($2::bytea[]) AND {HAS_CHECKPOINT} AND NOT c.is_pinned"
    query = f"SELECT c.number, COALESCE(length(c.names), 0) AS names FROM {COMMITS} WHERE {prunable} ORDER BY c.number"
    rows = await db.rows(query, key, packed_ids)
    numbers = [row["number"] for row in rows]
    if numbers:
        owner = live_owner(await db.row(OWNER, key)) if thread_row["head"] in numbers else None
        if owner is not None:
            raise ThreadBusy(thread_id, owner)
    if events_before:
        await _drop_events(db, key, min(events_before, MAX_NUMBER))
    count = 0
    for batch in _batches(rows):
        row = await db.row(_EVENTS_OF_BATCH, key, batch[-1])
        events = ((), 0) if row is None else (row["with_events"], row["until"])
        count += await _free(db, thread_id, batch, *events)
    await _collect(db, thread_id)
    return count


async def _drop_events(db: Database, key: UUID, before: int) -> None:
    async def attempt() -> None:
        async with db.transaction() as session:
            # Locked in a statement of its own, so that the next one sees a commit that was under way.
            await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR NO KEY UPDATE", key)
            await session.value(_DROP_EVENTS, key, before)

    await db.retry(attempt)


async def collect_garbage(db: Database, thread_id: str) -> None:
    """Free some of what was pruned. Never raises and never waits for another collection: a commit waits for this."""
    try:
        await _collect(db, thread_id, max_commits=MAX_COLLECTED)
    except (PerdureError, OutcomeUnknown) as error:  # the commit is stored all the same
        logger.warning("thread %s: pruning failed, space not freed: %s", thread_id, error)


async def _collect(db: Database, thread_id: str, max_commits: int | None = None) -> None:
    """Free what was pruned before: all, or one batch of at most `max_commits`."""
    key, size = thread_key(thread_id), max_commits or MAX_BATCH
    while True:
        row = await db.row(
            "SELECT pruned[:$2] AS pruned, events_dropped_before, ARRAY(SELECT number FROM {s}.commits"
            " WHERE thread = $1 AND number >= events_freed_before AND number < events_dropped_before"
            " ORDER BY number LIMIT $2) AS with_events FROM {s}.threads WHERE thread = $1"
            " AND (pruned <> '{}' OR events_freed_before < events_dropped_before)",
            key,
            size,
        )
        if row is None:
            return
        with_events = row["with_events"]
        events_before = with_events[-1] + 1 if len(with_events) == size else row["events_dropped_before"]
        await _free(db, thread_id, row["pruned"], with_events, events_before, waits=max_commits is None)
        if max_commits is not None:
            return


async def _free(
    db: Database,
    thread_id: str,
    checkpoints: Sequence[int],
    with_events: Sequence[int],
    events_before: int,
    *,
    waits: bool = True,
) -> int:
    """Free one batch: checkpoints, and the events of commits before `events_before`, which are `with_events`.

    Returns how many checkpoints it had. Raises ThreadBusy if one is the head of an owned thread.
    """
    key = thread_key(thread_id)

    async def attempt() -> int:
        async with db.transaction() as session:
            if waits:
                await lock_against_pruning(session, key)
            elif not await session.value(_TRY_LOCK, session.lock_name(key)):
                return 0
            rows = {row["number"]: row for row in await session.rows(_LOCKED, key, [*checkpoints, *with_events])}
            pruned = {number for number in checkpoints if number in rows and not rows[number]["is_pinned"]}
            head = await session.value("SELECT head FROM {s}.threads WHERE thread = $1", key)
            if head in pruned:  # only by `prune`: a commit never prunes the head
                await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR UPDATE", key)
                owner = live_owner(await session.row(OWNER, key))  # read after the lock, which may have waited
                if owner is not None:
                    raise ThreadBusy(thread_id, owner)
            batch = Batch(rows, pruned, events_before)
            await _plan(session, key, batch)
            carried = await _write(session, key, batch)
            if head in pruned:
                await move_head(session, key, head)
            collect_at = min(max(COLLECT_AT_LEAST, carried // 8), COLLECT_AT_MOST)
            await session.value(_NOTE_FREED, key, list(checkpoints), events_before, collect_at)
            return len(pruned)

    return await db.retry(attempt)


async def _plan(session: PgSession, key: UUID, batch: Batch) -> None:
    numbers = [*batch.rows]
    lineages = {number: _lineage(row, row["parent"], batch.needs_chunks(row)) for number, row in batch.rows.items()}
    for row in await session.rows(_BESIDE, key, [number + 1 for number in numbers], numbers):
        if row["number"] not in lineages:
            parent = row["parent"] if row["parent"] in batch.rows else None
            lineages[row["number"]] = _lineage(row, parent, is_kept=True)
    # Parents outside the batch: the plan only needs to know that they exist.
    parents = {lineage.parent for lineage in lineages.values() if lineage.parent is not None} - lineages.keys()
    query = "SELECT number FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])"
    for row in await session.rows(query, key, list(parents)):
        lineages[row["number"]] = Lineage(row["number"], None, True, frozenset(), frozenset())
    # The plan does not decide which chunks are needed: for that it would have to read all commits of the thread.
    # Chunks of commits without checkpoint are needed only by those that carry references to them.
    if len(lineages) < MAX_COLLECTED:
        batch.relinked = plan_pruning(lineages.values()).relinked
    else:  # it would block the event loop
        batch.relinked = (await asyncio.to_thread(plan_pruning, lineages.values())).relinked
    for lineage in (lineages | batch.relinked).values():
        if lineage.is_kept:
            batch.needed |= lineage.carried


async def _write(session: PgSession, key: UUID, batch: Batch) -> int:
    """Returns how many references the children of pruned commits carry over."""
    relinked = [*batch.relinked.values()]
    relink = "UPDATE {s}.commits SET parent = $3, dropped = $4, carried = $5, previous = NULL,"
    relink += " seal = substring(seal FOR 16) || $6::bytea WHERE thread = $1 AND number = $2"
    for lineage in relinked:
        links = (lineage.parent, join_words(sorted(lineage.dropped)), join_words(sorted(lineage.carried)))
        await session.rows(relink, key, lineage.number, *links, links_checksum(links[0], None, *links[1:]))
    removed = batch.unneeded_chunks()
    empty = [number for number, row in batch.rows.items() if batch.is_empty(row, removed.get(number, set()))]
    await session.rows("DELETE FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])", key, empty)
    left = {number: row for number, row in batch.rows.items() if number not in empty}
    await session.rows(
        _FREE,
        key,
        [*left],
        [number in batch.pruned for number in left],
        [batch.drops_events(row) for row in left.values()],
        [not batch.needs_chunks(row) for row in left.values()],
    )
    cut = {number: names for number, names in removed.items() if number not in empty}
    # Locked first: otherwise the statement would read a row that changes meanwhile partly before the change.
    await session.rows(_LOCKED, key, [*cut])
    await session.rows(_CUT, key, [*cut], [join_words(names) for names in cut.values()])
    await session.rows(_EMPTY, key, [*cut])
    return sum(len(lineage.carried) for lineage in relinked)


async def lock_against_pruning(session: PgSession, thread: UUID) -> None:
    """Lock out other pruning of the thread until the transaction ends."""
    await session.value("SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", session.lock_name(thread))


async def move_head(session: PgSession, thread: UUID, number: int) -> None:
    """After the checkpoint `number` was deleted: if it was the head, the newest one left becomes the head."""
    newest = f"SELECT max(c.number) FROM {{s}}.commits c WHERE c.thread = $1 AND c.number <> $2 AND {HAS_CHECKPOINT}"
    move = (
        f"UPDATE {{s}}.threads t SET due_at = NULL, head = ({newest}) WHERE t.thread = $1 AND t.head = $2 RETURNING 1"
    )
    if await session.value(move, thread, number) is not None:
        await session.rows("DELETE FROM {s}.journal WHERE thread = $1", thread)
        await session.rows("DELETE FROM {s}.requests WHERE thread = $1", thread)


def _lineage(row: Any, parent: int | None, is_kept: bool) -> Lineage:
    brought = frozenset(chunk_names(row)).difference(split_words(row["own"]))
    dropped, carried = frozenset(split_words(row["dropped"])), frozenset(split_words(row["carried"]))
    return Lineage(row["number"], parent, is_kept, brought, dropped, carried)


def chunk_names(row: Any) -> list[str]:
    return [word.rpartition(":")[0] for word in split_words(row["names"])]


def _batches(rows: Iterable[Any]) -> Iterator[list[int]]:
    """Numbers of commits, in batches whose chunk names stay small."""
    batch, size = list[int](), 0
    for row in rows:
        batch.append(row["number"])
        size += row["names"]
        if len(batch) >= MAX_BATCH or size >= MAX_BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
