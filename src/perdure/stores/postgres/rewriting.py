"""What a PostgreSQL store can tell to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perdure.errors import DamagedCheckpoint, PerdureError
from perdure.records import Damage
from perdure.store import Rewrite
from perdure.stores.packing import consumed_seal, seal
from perdure.stores.postgres.copies import AT_ONCE, Whole
from perdure.stores.postgres.lists import IS_THERE
from perdure.stores.postgres.owners import AGREEMENT, check_standing
from perdure.stores.postgres.rows import (
    are_links_sound,
    as_words,
    chunks_of,
    events_of,
    events_seal,
    id_in,
    inbox_of,
    item_seal,
    journal_of,
    key_of,
    root_of,
    root_seal,
    told_by_row,
)

# ---------------------------------------------------------------- rewriting


class Rewriting(Whole):
    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        key, count, after = key_of(thread_id), 0, 0
        damage: DamagedCheckpoint | None = None
        while numbers := [
            row["number"]
            for row in await self.db.rows(
                "SELECT number FROM {s}.commits WHERE thread = $1 AND number > $2 ORDER BY number LIMIT $3",
                key,
                after,
                AT_ONCE,
            )
        ]:
            after = numbers[-1]
            for number in numbers:
                try:
                    count += await self._rewrite_commit(thread_id, number, change)
                except DamagedCheckpoint as error:
                    damage = damage or error
        count += await self._rewrite_waiting(thread_id, change)
        if damage is not None:  # told when the rest is done
            raise damage
        return count

    async def _rewrite_commit(self, thread_id: str, number: int, change: Rewrite) -> int:
        key = key_of(thread_id)

        async def attempt() -> int:
            async with self.db.transaction() as session:
                row = await session.row(
                    "SELECT * FROM {s}.commits WHERE thread = $1 AND number = $2 FOR UPDATE", key, number
                )
                if row is None:
                    return 0
                root, events, chunks = row["root"], row["events"], chunks_of(thread_id, row)
                events_of(thread_id, row)
                if row["checkpoint_id"] is not None:
                    root_of(thread_id, row)
                new_root = None if root is None else change("root", str(number), root)
                new_events = None if events is None else change("events", str(number), events)
                new_chunks = {name: change("chunk", name, chunk) for name, chunk in chunks.items()}
                changed = (new_root != root) + (new_events != events)
                changed += sum(new_chunks[name] != chunks[name] for name in chunks)
                if changed:
                    told = (row["first_seq"], row["event_count"])
                    of_root = root_seal(thread_id, number, told_by_row(row), new_root)
                    await session.rows(
                        "UPDATE {s}.commits SET root = $3, events = $4, names = $5, chunks = $6, seal = $7"
                        " WHERE thread = $1 AND number = $2",
                        key,
                        number,
                        new_root,
                        new_events,
                        as_words([f"{name}:{len(chunk)}" for name, chunk in new_chunks.items()]),
                        b"".join(new_chunks.values()) or None,
                        of_root + events_seal(thread_id, number, *told, new_events) + row["seal"][16:],
                    )
                return int(changed)

        return await self.db.again(attempt)

    async def _rewrite_waiting(self, thread_id: str, change: Rewrite) -> int:
        """One by one: a commit that takes several of them away must not wait for one that waits for another."""
        key, count = key_of(thread_id), 0
        for row in await self.db.rows("SELECT mark, delivery_id, body FROM {s}.journal WHERE thread = $1", key):
            body = change("journal", str(row["delivery_id"]), row["body"])
            if body != row["body"]:
                count += 1
                sealed = seal(thread_id, row["delivery_id"], body)
                await self.db.rows(
                    "UPDATE {s}.journal SET body = $3, seal = $4 WHERE thread = $1 AND mark = $2",
                    *(key, row["mark"], body, sealed),
                )
        waiting = "SELECT item_id, kind, body FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL"
        for row in await self.db.rows(waiting, key):
            body = change("inbox", row["item_id"], row["body"])
            if body != row["body"]:
                count += 1
                sealed = item_seal(thread_id, row["item_id"], row["kind"], body)
                await self.db.rows(
                    "UPDATE {s}.inbox SET body = $3, seal = $4 WHERE thread = $1 AND item_id = $2 AND body IS NOT NULL",
                    *(key, row["item_id"], body, sealed),
                )
        return count


_PAYLOADS = ("root", "events", "chunks", "names", "dropped", "carried", "checkpoint_id", "run_id")
_ROW_BYTES = 120
"""What a row takes beside, in its table and in indexes."""
_SIZE = f"""
SELECT COALESCE((SELECT sum({_ROW_BYTES} + {" + ".join(f"COALESCE(pg_column_size({one}), 0)" for one in _PAYLOADS)})
    FROM {{s}}.commits), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + pg_column_size(body)) FROM {{s}}.journal), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + COALESCE(pg_column_size(body), 0)) FROM {{s}}.inbox), 0)
  + (SELECT count(*) * {_ROW_BYTES} FROM {{s}}.threads)
"""


class Checking(Rewriting):
    async def check(self) -> Sequence[Damage]:
        found = [Damage(reason) for reason in await self._orphans()]
        after: str | None = None
        while ids := await self.thread_ids(after=after, limit=AT_ONCE):
            after = ids[-1]
            for thread_id in ids:
                try:
                    found += await self._check_thread(thread_id)
                except (PerdureError, TypeError, ValueError) as error:  # rows that are not what they should be
                    found.append(Damage(f"it cannot be looked at: {error}", thread_id))
        return found

    async def _orphans(self) -> list[str]:
        found = []
        for table in ("commits", "journal", "inbox", "requests"):
            count = await self.db.value(
                f"SELECT count(*) FROM {{s}}.{table} o WHERE NOT EXISTS"
                " (SELECT 1 FROM {s}.threads t WHERE t.thread = o.thread)"
            )
            if count:
                found.append(f"{count} rows of {table} are of a thread that is not there")
        return found

    async def _check_thread(self, thread_id: str) -> list[Damage]:
        found: list[Damage] = []
        key = key_of(thread_id)

        def attempt(work: Callable[[], object]) -> None:
            try:
                work()
            except DamagedCheckpoint as error:
                named = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
                found.append(Damage(error.reason, thread_id, named))

        standing = await self.db.row(AGREEMENT, key)
        attempt(partial(check_standing, thread_id, standing))
        is_newest = standing["is_newest_ever"]  # else the thread says of which workflow one was that is gone
        if is_newest and standing["newest_workflow"] not in (None, standing["workflow"]):
            named = f"{standing['workflow']!r}, and its head is of {standing['newest_workflow']!r}"
            found.append(Damage(f"the thread says that it is of workflow {named}", thread_id))
        consumed = await self.db.rows("SELECT item_id, seal FROM {s}.inbox WHERE thread = $1 AND body IS NULL", key)
        found += [
            Damage(f"item {item_id!r} in its inbox was changed", thread_id)
            for item_id, sealed in consumed
            if sealed != consumed_seal(thread_id, item_id)
        ]
        journal = await self.db.rows("SELECT delivery_id, body, seal FROM {s}.journal WHERE thread = $1", key)
        attempt(partial(journal_of, thread_id, 0, journal))
        inbox = "SELECT item_id, kind, body, seal FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL"
        attempt(partial(inbox_of, thread_id, await self.db.rows(inbox, key)))
        numbers: set[int] = set()
        after = 0
        query = (
            f"SELECT c.*, ({IS_THERE}) AS is_there, c.number = ANY (t.forgotten) AS is_forgotten"
            " FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
            " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
        )
        while rows := await self.db.rows(query, key, after, AT_ONCE):
            for row in rows:
                numbers.add(row["number"])
                _check_row(thread_id, row, attempt)
                if row["is_there"] and not are_links_sound(row):
                    reason = f"what commit {row['number']} says of those before it was changed"
                    found.append(Damage(reason, thread_id, id_in(row["checkpoint_id"])))
                if row["root"] is not None and row["checkpoint_id"] is None and not row["is_forgotten"]:
                    found.append(Damage(f"the checkpoint of commit {row['number']} has lost its id", thread_id))
                if row["parent"] is not None and row["parent"] not in numbers:
                    reason = f"commit {row['number']} continues from commit {row['parent']}, which is not there"
                    found.append(Damage(reason, thread_id, id_in(row["checkpoint_id"])))
            after = rows[-1]["number"]
        return found

    async def size(self) -> int:
        """Of rows that are in use. Space of others is PostgreSQL's to use again, and its vacuum's to give back."""
        return int(await self.db.value(_SIZE))


def _check_row(thread_id: str, row: Any, attempt: Callable[[Callable[[], object]], None]) -> None:
    if row["is_there"]:
        attempt(partial(root_of, thread_id, row))
    attempt(partial(events_of, thread_id, row))
    attempt(partial(chunks_of, thread_id, row))
