"""Rewriting all payloads of a thread, finding damage, and the size of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perdure.errors import DamagedCheckpoint, PerdureError
from perdure.records import Damage
from perdure.store import Rewrite
from perdure.stores.packing import consumed_seal, seal
from perdure.stores.postgres.checkpoints import HAS_CHECKPOINT, THREAD_ROW, check_thread_row
from perdure.stores.postgres.copies import BATCH_SIZE
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.rows import (
    are_links_intact,
    events_seal,
    item_seal,
    join_words,
    read_events,
    read_inbox,
    read_journal,
    read_root,
    root_seal,
    sealed_fields_of_row,
    thread_key,
    unpack_chunks,
    unpack_id,
)
from perdure.stores.postgres.threads import list_thread_ids

_PAYLOADS = ("root", "events", "chunks", "names", "dropped", "carried", "checkpoint_id", "run_id")
_ROW_BYTES = 120
"""What a row needs beside its payloads, in its table and in indexes."""
_COMMIT_BYTES = " + ".join(f"COALESCE(pg_column_size({column}), 0)" for column in _PAYLOADS)
_SIZE = f"""
SELECT COALESCE((SELECT sum({_ROW_BYTES} + {_COMMIT_BYTES})
    FROM {{s}}.commits), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + pg_column_size(body)) FROM {{s}}.journal), 0)
  + COALESCE((SELECT sum({_ROW_BYTES} + COALESCE(pg_column_size(body), 0)) FROM {{s}}.inbox), 0)
  + (SELECT count(*) * {_ROW_BYTES} FROM {{s}}.threads)
"""


async def rewrite(db: Database, thread_id: str, change: Rewrite) -> int:
    key, count, after = thread_key(thread_id), 0, 0
    damage: DamagedCheckpoint | None = None
    while numbers := [
        row["number"]
        for row in await db.rows(
            "SELECT number FROM {s}.commits WHERE thread = $1 AND number > $2 ORDER BY number LIMIT $3",
            key,
            after,
            BATCH_SIZE,
        )
    ]:
        after = numbers[-1]
        for number in numbers:
            try:
                count += await _rewrite_commit(db, thread_id, number, change)
            except DamagedCheckpoint as error:
                damage = damage or error
    count += await _rewrite_uncommitted(db, thread_id, change)
    if damage is not None:  # raised after the rest is rewritten
        raise damage
    return count


async def _rewrite_commit(db: Database, thread_id: str, number: int, change: Rewrite) -> int:
    key = thread_key(thread_id)

    async def attempt() -> int:
        async with db.transaction() as session:
            row = await session.row(
                "SELECT * FROM {s}.commits WHERE thread = $1 AND number = $2 FOR UPDATE", key, number
            )
            if row is None:
                return 0
            root, events, chunks = row["root"], row["events"], unpack_chunks(thread_id, row)
            read_events(thread_id, row)
            if row["checkpoint_id"] is not None:
                read_root(thread_id, row)
            new_root = None if root is None else change("root", str(number), root)
            new_events = None if events is None else change("events", str(number), events)
            new_chunks = {name: change("chunk", name, chunk) for name, chunk in chunks.items()}
            changed = (new_root != root) + (new_events != events)
            changed += sum(new_chunks[name] != chunks[name] for name in chunks)
            if changed:
                seqs = (row["first_seq"], row["event_count"])
                new_seal = root_seal(thread_id, number, sealed_fields_of_row(row), new_root)
                await session.rows(
                    "UPDATE {s}.commits SET root = $3, events = $4, names = $5, chunks = $6, seal = $7"
                    " WHERE thread = $1 AND number = $2",
                    key,
                    number,
                    new_root,
                    new_events,
                    join_words([f"{name}:{len(chunk)}" for name, chunk in new_chunks.items()]),
                    b"".join(new_chunks.values()) or None,
                    new_seal + events_seal(thread_id, number, *seqs, new_events) + row["seal"][16:],
                )
            return int(changed)

    return await db.retry(attempt)


async def _rewrite_uncommitted(db: Database, thread_id: str, change: Rewrite) -> int:
    """The journal and the inbox, each row in its own statement: locks on several rows could deadlock with a commit."""
    key, count = thread_key(thread_id), 0
    for row in await db.rows("SELECT mark, delivery_id, body FROM {s}.journal WHERE thread = $1", key):
        body = change("journal", str(row["delivery_id"]), row["body"])
        if body != row["body"]:
            count += 1
            new_seal = seal(thread_id, row["delivery_id"], body)
            await db.rows(
                "UPDATE {s}.journal SET body = $3, seal = $4 WHERE thread = $1 AND mark = $2",
                *(key, row["mark"], body, new_seal),
            )
    items = "SELECT item_id, kind, body FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL"
    for row in await db.rows(items, key):
        body = change("inbox", row["item_id"], row["body"])
        if body != row["body"]:
            count += 1
            new_seal = item_seal(thread_id, row["item_id"], row["kind"], body)
            await db.rows(
                "UPDATE {s}.inbox SET body = $3, seal = $4 WHERE thread = $1 AND item_id = $2 AND body IS NOT NULL",
                *(key, row["item_id"], body, new_seal),
            )
    return count


async def find_damage(db: Database) -> Sequence[Damage]:
    damage = [Damage(reason) for reason in await _find_orphans(db)]
    after: str | None = None
    while ids := await list_thread_ids(db, None, after, BATCH_SIZE):
        after = ids[-1]
        for thread_id in ids:
            try:
                damage += await _check_thread(db, thread_id)
            except (PerdureError, TypeError, ValueError) as error:  # rows with impossible values
                damage.append(Damage(f"it cannot be checked: {error}", thread_id))
    return damage


async def _find_orphans(db: Database) -> list[str]:
    orphans = []
    for table in ("commits", "journal", "inbox", "requests"):
        count = await db.value(
            f"SELECT count(*) FROM {{s}}.{table} o WHERE NOT EXISTS"
            " (SELECT 1 FROM {s}.threads t WHERE t.thread = o.thread)"
        )
        if count:
            orphans.append(f"{count} rows of {table} belong to a thread that does not exist")
    return orphans


async def _check_thread(db: Database, thread_id: str) -> list[Damage]:
    damage: list[Damage] = []
    key = thread_key(thread_id)

    def attempt(work: Callable[[], object]) -> None:
        try:
            work()
        except DamagedCheckpoint as error:
            checkpoint_id = None if error.checkpoint_id.startswith("of ") else error.checkpoint_id
            damage.append(Damage(error.reason, thread_id, checkpoint_id))

    row = await db.row(THREAD_ROW, key)
    attempt(partial(check_thread_row, thread_id, row))
    # The thread's row names the workflow of the newest checkpoint, also if that was pruned.
    if row["is_newest_ever"] and row["newest_workflow"] not in (None, row["workflow"]):
        workflows = f"{row['workflow']!r}, and its head belongs to {row['newest_workflow']!r}"
        damage.append(Damage(f"the thread's row names workflow {workflows}", thread_id))
    consumed = await db.rows("SELECT item_id, seal FROM {s}.inbox WHERE thread = $1 AND body IS NULL", key)
    damage += [
        Damage(f"item {item_id!r} in its inbox was changed", thread_id)
        for item_id, stored_seal in consumed
        if stored_seal != consumed_seal(thread_id, item_id)
    ]
    journal = await db.rows("SELECT delivery_id, body, seal FROM {s}.journal WHERE thread = $1", key)
    attempt(partial(read_journal, thread_id, 0, journal))
    inbox = "SELECT item_id, kind, body, seal FROM {s}.inbox WHERE thread = $1 AND body IS NOT NULL"
    attempt(partial(read_inbox, thread_id, await db.rows(inbox, key)))
    numbers: set[int] = set()
    after = 0
    query = (
        f"SELECT c.*, ({HAS_CHECKPOINT}) AS has_checkpoint, c.number = ANY (t.pruned) AS is_pruned"
        " FROM {s}.commits c JOIN {s}.threads t ON t.thread = c.thread"
        " WHERE c.thread = $1 AND c.number > $2 ORDER BY c.number LIMIT $3"
    )
    while rows := await db.rows(query, key, after, BATCH_SIZE):
        for row in rows:
            numbers.add(row["number"])
            _check_row(thread_id, row, attempt)
            if row["has_checkpoint"] and not are_links_intact(row):
                reason = f"the references of commit {row['number']} to earlier commits were changed"
                damage.append(Damage(reason, thread_id, unpack_id(row["checkpoint_id"])))
            if row["root"] is not None and row["checkpoint_id"] is None and not row["is_pruned"]:
                damage.append(Damage(f"the checkpoint of commit {row['number']} has lost its id", thread_id))
            if row["parent"] is not None and row["parent"] not in numbers:
                reason = f"commit {row['number']} continues from commit {row['parent']}, which does not exist"
                damage.append(Damage(reason, thread_id, unpack_id(row["checkpoint_id"])))
        after = rows[-1]["number"]
    return damage


async def measure_size(db: Database) -> int:
    """Bytes of all rows. PostgreSQL reuses the space of deleted rows, and its vacuum frees it."""
    return int(await db.value(_SIZE))


def _check_row(thread_id: str, row: Any, attempt: Callable[[Callable[[], object]], None]) -> None:
    if row["has_checkpoint"]:
        attempt(partial(read_root, thread_id, row))
    attempt(partial(read_events, thread_id, row))
    attempt(partial(unpack_chunks, thread_id, row))
