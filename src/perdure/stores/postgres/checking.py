"""What a PostgreSQL store can tell to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perdure.errors import DamagedCheckpoint, PerdureError
from perdure.records import Damage
from perdure.stores.packing import consumed_seal
from perdure.stores.postgres.history import AT_ONCE
from perdure.stores.postgres.owners import AGREEMENT, check_standing
from perdure.stores.postgres.reading import IS_THERE
from perdure.stores.postgres.rewriting import Rewriting
from perdure.stores.postgres.rows import (
    are_links_sound,
    chunks_of,
    events_of,
    id_in,
    inbox_of,
    journal_of,
    key_of,
    root_of,
)

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
