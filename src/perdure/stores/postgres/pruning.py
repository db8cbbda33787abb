"""Forgetting in a PostgreSQL store, in batches that do not hold up commits.

What a batch needs to know is what its own commits say of chunks, those that continue from them, and those that carry
references: never a payload, and never all of a thread. Chunks that go are cut out of their rows by the server.
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
from perdure.stores.postgres.commits import Writing, lock_against_sweeps, move_head
from perdure.stores.postgres.database import PgSession, Unknown
from perdure.stores.postgres.lists import IS_THERE
from perdure.stores.postgres.owners import AGREEMENT, check_standing
from perdure.stores.postgres.rows import LAST, as_words, is_text, key_of, links_sum, packed_id, words

logger = get_logger("stores")

BATCH = 2000
"""Commits that are pruned in one transaction. What the next ones carry on is written with each batch, so that many
small ones would write more than few large ones."""
BATCH_NAMES = 2_000_000
"""The same, in characters of the names of their chunks."""
SWEEP_AT_LEAST, SWEEP_AT_MOST = 16, 256
"""Commits that are forgotten before they are freed: the more references are carried on, the more. All lists look
through those that are forgotten and not yet freed."""

SWEEP_AT_ONCE = 512
"""Commits that are looked at by a sweep that a commit waits for."""

_LINES = "number, parent, refers, names, dropped, carried, own, is_pinned, root IS NOT NULL AS has_root"

_LOCKED = f"""
SELECT {_LINES}, events IS NOT NULL AS has_events FROM {{s}}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])
  ORDER BY number FOR UPDATE
"""
"""So that no commit can continue from one of them: it would wait, and then find no checkpoint."""

_BESIDE = f"""
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND number = ANY ($2::bigint[]) AND parent = number - 1
UNION ALL
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND parent = ANY ($3::bigint[]) AND parent <> number - 1
UNION ALL
SELECT {_LINES} FROM {{s}}.commits WHERE thread = $1 AND carried IS NOT NULL
"""
"""Those that continue from the commits of a batch, and those that carry references."""

_CUT = """
UPDATE {s}.commits c SET (names, chunks) = (
  WITH whole AS MATERIALIZED (SELECT c.chunks || ''::bytea AS packed), -- once: else it is fetched for each chunk
  gone AS MATERIALIZED (SELECT unnest(string_to_array(g.gone, ' ')) AS name),
  lying AS (SELECT word, place, length, 1 + (sum(length) OVER (ORDER BY place))::int - length AS start
    FROM unnest(string_to_array(c.names, ' ')) WITH ORDINALITY u (word, place),
      LATERAL (SELECT substring(word FROM ':([0-9]+)$')::int AS length) l)
  SELECT string_agg(word, ' ' ORDER BY place),
    string_agg(substring((SELECT packed FROM whole) FROM start FOR length), '' ORDER BY place)
  FROM lying WHERE substring(word FROM '^(.*):[0-9]+$') NOT IN (SELECT name FROM gone)
) FROM unnest($2::bigint[], $3::text[]) g (number, gone)
WHERE c.thread = $1 AND c.number = ANY ($2::bigint[]) AND c.number = g.number
"""
"""Chunks out of where they lie, without sending those that stay."""

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 1))"

_FREE = """
UPDATE {s}.commits c SET
  checkpoint_id = CASE WHEN NOT is_doomed THEN checkpoint_id END, root = CASE WHEN NOT is_doomed THEN root END,
  events = CASE WHEN NOT is_silent THEN events END, first_seq = CASE WHEN NOT is_silent THEN first_seq END,
  event_count = CASE WHEN NOT is_silent THEN event_count END, own = CASE WHEN NOT is_silent THEN own END,
  refers = refers AND NOT is_silent, parent = CASE WHEN NOT has_ended THEN parent END,
  dropped = CASE WHEN NOT has_ended THEN dropped END, carried = CASE WHEN NOT has_ended THEN carried END
FROM unnest($2::bigint[], $3::boolean[], $4::boolean[], $5::boolean[]) g (number, is_doomed, is_silent, has_ended)
WHERE c.thread = $1 AND c.number = ANY ($2::bigint[]) AND c.number = g.number AND (is_doomed OR is_silent OR has_ended)
"""

_EMPTY = """
DELETE FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[]) AND checkpoint_id IS NULL AND names IS NULL
  AND events IS NULL
"""


@dataclass(frozen=True)
class Doomed:
    """What a batch is to free: checkpoints, and events of commits before `silent_until`."""

    checkpoints: Sequence[int]
    silent: Sequence[int] = ()
    silent_until: int = 0


@dataclass
class Batch:
    """Rows that are looked at together."""

    rows: dict[int, Any]
    doomed: set[int]
    silent_before: int
    relinked: dict[int, Lineage] = field(default_factory=dict)
    """Commits that stay and continue from some that go: what they say from now on."""
    needed: set[str] = field(default_factory=set)
    """References that are carried on. A chunk of a commit whose line has ended is needed if one of them names it."""

    def is_silent(self, row: Any) -> bool:
        return bool(row["has_events"] and row["number"] < self.silent_before)

    def keeps_line(self, row: Any) -> bool:
        """Whether it still has what its checkpoint has: as a checkpoint, or for its events."""
        is_checkpoint = row["has_root"] and row["number"] not in self.doomed
        return bool(is_checkpoint or (row["refers"] and not self.is_silent(row)))

    def is_empty(self, row: Any, gone: set[str]) -> bool:
        """Whether nothing is left of it."""
        has_events = row["has_events"] and not self.is_silent(row)
        return not self.keeps_line(row) and not has_events and gone.issuperset(names_in(row))

    def lineage(self, row: Any) -> Lineage:
        return _lineage(row, is_kept=self.keeps_line(row))

    def gone_chunks(self) -> dict[int, set[str]]:
        """By the commit that holds them."""
        gone: dict[int, set[str]] = defaultdict(set)
        for number, row in self.rows.items():
            own = frozenset(words(row["own"]))
            for name in names_in(row):
                if name in own:
                    is_gone = self.is_silent(row)
                else:
                    is_gone = not self.keeps_line(row) and f"{name}.{number}" not in self.needed
                if is_gone:
                    gone[number].add(name)
            if not self.keeps_line(row):
                for ref in words(row["carried"]):
                    name, _, holder = ref.partition(".")
                    if ref not in self.needed:
                        gone[int(holder)].add(name)
        return gone


class Forgetting(Writing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        key = key_of(thread_id)
        wanted = [packed_id(one) for one in checkpoint_ids if is_text(one)]
        standing = await self.db.row(AGREEMENT, key)
        if standing is None:
            return 0
        check_standing(thread_id, standing)  # nothing is removed from a thread that is damaged
        rows = await self.db.rows(
            "SELECT c.number, COALESCE(length(c.names), 0) AS names FROM {s}.commits c"
            " JOIN {s}.threads t ON t.thread = c.thread WHERE c.thread = $1"
            f" AND c.checkpoint_id = ANY ($2::bytea[]) AND {IS_THERE} AND NOT c.is_pinned ORDER BY c.number",
            key,
            wanted,
        )
        numbers = [row["number"] for row in rows]
        if numbers and await self._is_busy_head(thread_id, numbers):
            raise ThreadBusy(thread_id, await self._owner_of(key))
        if events_before:
            await self._silence(key, min(events_before, LAST))
        count = 0
        for batch in _batches(rows):
            row = await self.db.row(_SILENT_UP_TO, key, batch[-1])
            silent, until = ((), 0) if row is None else (row["silent"], row["until"])
            count += await self._free(thread_id, Doomed(batch, silent, until))
        await self._sweep(thread_id)
        return count

    async def _silence(self, key: UUID, before: int) -> None:
        async def attempt() -> None:
            async with self.db.transaction() as session:
                # Waited for before it is looked at: a commit may be under way.
                await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR NO KEY UPDATE", key)
                await session.value(_SILENCE, key, before)

        await self.db.again(attempt)

    async def _is_busy_head(self, thread_id: str, numbers: Sequence[int]) -> bool:
        key = key_of(thread_id)
        head = await self.db.value("SELECT head FROM {s}.threads WHERE thread = $1", key)
        return head in numbers and await self._owner_of(key) is not None

    async def _owner_of(self, key: UUID) -> str | None:
        return self.owner_in(await self.db.row(OWNER, key))

    async def sweep_quietly(self, thread_id: str) -> None:
        """Not all that there is to do, and nothing if somebody else is at it: whoever commits is not to wait."""
        try:
            await self._sweep(thread_id, at_most=SWEEP_AT_ONCE)
        except (PerdureError, Unknown) as error:  # the commit was made, whatever becomes of this
            logger.warning("thread %s: what it forgot still takes space: %s", thread_id, error)

    async def _sweep(self, thread_id: str, at_most: int | None = None) -> None:
        """Free what was forgotten before."""
        key, size = key_of(thread_id), at_most or BATCH
        while True:
            row = await self.db.row(
                "SELECT forgotten[:$2] AS doomed, silent_before, ARRAY(SELECT number FROM {s}.commits WHERE thread = $1"
                " AND number >= silent_swept AND number < silent_before ORDER BY number LIMIT $2) AS silent"
                " FROM {s}.threads WHERE thread = $1 AND (forgotten <> '{}' OR silent_swept < silent_before)",
                key,
                size,
            )
            if row is None:
                return
            silent_until = row["silent"][-1] + 1 if len(row["silent"]) == size else row["silent_before"]
            await self._free(thread_id, Doomed(row["doomed"], row["silent"], silent_until), waits=at_most is None)
            if at_most is not None:
                return

    async def _free(self, thread_id: str, doomed: Doomed, *, waits: bool = True) -> int:
        """One batch: how many checkpoints went. Raises ThreadBusy if one of them is the head of a thread in use."""

        async def attempt() -> int:
            async with self.db.transaction() as session:
                key = key_of(thread_id)
                if waits:
                    await lock_against_sweeps(session, key)
                elif not await session.value(_TRY_LOCK, session.lock_name(key)):
                    return 0
                return await self._free_in(session, thread_id, doomed)

        return await self.db.again(attempt)

    async def _free_in(self, session: PgSession, thread_id: str, doomed: Doomed) -> int:
        key = key_of(thread_id)
        rows = {row["number"]: row for row in await session.rows(_LOCKED, key, [*doomed.checkpoints, *doomed.silent])}
        going = {number for number in doomed.checkpoints if number in rows and not rows[number]["is_pinned"]}
        head = await session.value("SELECT head FROM {s}.threads WHERE thread = $1", key)
        if head in going:  # only by hand: what a commit forgets is never the head
            await session.value("SELECT 1 FROM {s}.threads WHERE thread = $1 FOR UPDATE", key)
            owner = self.owner_in(await session.row(OWNER, key))  # looked at after the lock: it may have waited
            if owner is not None:
                raise ThreadBusy(thread_id, owner)
        batch = Batch(rows, going, doomed.silent_until)
        await self._plan(session, key, batch)
        carried = await self._write(session, key, batch)
        if head in going:
            await move_head(session, key, head)
        await session.value(
            "UPDATE {s}.threads SET forgotten = ARRAY(SELECT unnest(forgotten) EXCEPT SELECT unnest($2::bigint[])),"
            " silent_swept = GREATEST(silent_swept, $3), sweep_at = $4 WHERE thread = $1",
            key,
            list(doomed.checkpoints),
            doomed.silent_until,
            min(max(SWEEP_AT_LEAST, carried // 8), SWEEP_AT_MOST),
        )
        return len(going)

    async def _plan(self, session: PgSession, key: UUID, batch: Batch) -> None:
        numbers = [*batch.rows]
        lines = {number: batch.lineage(row) for number, row in batch.rows.items()}
        for row in await session.rows(_BESIDE, key, [number + 1 for number in numbers], numbers):
            if row["number"] not in lines:
                is_child = row["parent"] in batch.rows
                lines[row["number"]] = _lineage(row, is_kept=True, parent=row["parent"] if is_child else None)
        # Those that it continues from and that stay: all that is said of them is that they are there.
        above = {one.parent for one in lines.values() if one.parent is not None} - lines.keys()
        for row in await session.rows(
            "SELECT number FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])",
            key,
            list(above),
        ):
            lines[row["number"]] = Lineage(row["number"], None, True, frozenset(), frozenset())
        # Of which chunks are needed a plan can only tell if it is given all commits of the thread. What has ended is
        # had by those who carry it, and by nobody else.
        if len(lines) < SWEEP_AT_ONCE:
            batch.relinked = plan_pruning(lines.values()).relinked
        else:  # long enough to be noticed by whatever else runs in this loop
            batch.relinked = (await asyncio.to_thread(plan_pruning, lines.values())).relinked
        for one in (lines | batch.relinked).values():
            if one.is_kept:
                batch.needed |= one.carried

    async def _write(self, session: PgSession, key: UUID, batch: Batch) -> int:
        """How many references are carried on by those that continue from what goes."""
        relinked = [*batch.relinked.values()]
        for one in relinked:
            links = (one.parent, as_words(sorted(one.dropped)), as_words(sorted(one.carried)))
            await session.rows(
                "UPDATE {s}.commits SET parent = $3, dropped = $4, carried = $5, previous = NULL,"
                " seal = substring(seal FOR 16) || $6::bytea WHERE thread = $1 AND number = $2",
                key,
                one.number,
                *links,
                links_sum(links[0], None, *links[1:]),
            )
        gone = batch.gone_chunks()
        empty = [number for number, row in batch.rows.items() if batch.is_empty(row, gone.get(number, set()))]
        await session.rows("DELETE FROM {s}.commits WHERE thread = $1 AND number = ANY ($2::bigint[])", key, empty)
        left = {number: row for number, row in batch.rows.items() if number not in empty}
        await session.rows(
            _FREE,
            key,
            [*left],
            [number in batch.doomed for number in left],
            [batch.is_silent(row) for row in left.values()],
            [not batch.keeps_line(row) for row in left.values()],
        )
        cut = {number: names for number, names in gone.items() if number not in empty}
        # Locked first: a row that is changed meanwhile would be looked at half as it was and half as it is.
        await session.rows(_LOCKED, key, [*cut])
        await session.rows(_CUT, key, [*cut], [as_words(names) for names in cut.values()])
        await session.rows(_EMPTY, key, [*cut])
        return sum(len(one.carried) for one in relinked)


OWNER = """
SELECT t.owner, t.process, p.identity, p.leased_until > clock_timestamp() AS is_leased
FROM {s}.threads t LEFT JOIN {s}.processes p ON p.process = t.process WHERE t.thread = $1
"""

_SILENT_UP_TO = """
SELECT LEAST(silent_before, $2 + 1) AS until, ARRAY(SELECT number FROM {s}.commits WHERE thread = $1
  AND number >= silent_swept AND number < LEAST(silent_before, $2 + 1) ORDER BY number) AS silent
FROM {s}.threads WHERE thread = $1 AND silent_swept < silent_before
"""
"""The events that go with a batch: rows of which nothing is left are then removed, and not written anew before."""

_SILENCE = """
UPDATE {s}.threads t SET silent_before = GREATEST(t.silent_before, LEAST($2, t.number + 1)),
  first_seq = GREATEST(t.first_seq, COALESCE((SELECT c.first_seq FROM {s}.commits c WHERE c.thread = $1
    AND c.number >= LEAST($2, t.number + 1) AND c.first_seq IS NOT NULL ORDER BY c.number LIMIT 1), t.last_seq + 1))
WHERE t.thread = $1
"""


def _lineage(row: Any, *, is_kept: bool, parent: Any = ...) -> Lineage:
    own = frozenset(words(row["own"]))
    return Lineage(
        row["number"],
        row["parent"] if parent is ... else parent,
        is_kept,
        frozenset(names_in(row)) - own,
        frozenset(words(row["dropped"])),
        frozenset(words(row["carried"])),
    )


def names_in(row: Any) -> list[str]:
    """Digests of the chunks that it holds."""
    return [word.rpartition(":")[0] for word in words(row["names"])]


def _batches(rows: Iterable[Any]) -> Iterator[list[int]]:
    """Numbers of commits, so many together that what they say of chunks stays small."""
    batch: list[int] = []
    size = 0
    for row in rows:
        batch.append(row["number"])
        size += row["names"]
        if len(batch) >= BATCH or size >= BATCH_NAMES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
