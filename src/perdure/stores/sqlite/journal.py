"""The journal and the inbox of a thread. Each row is proved by a seal."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import DamagedCheckpoint
from perdure.records import InboxItem, JournalEntry
from perdure.stores.packing import consumed_seal, seal
from perdure.stores.sqlite.owners import ensure_thread, find_thread
from perdure.stores.sqlite.schema import SqliteDatabase


def append_journal(db: SqliteDatabase, thread: int, thread_id: str, delivery_id: int, body: bytes) -> None:
    db.without_journal.discard(thread_id)
    db.execute(
        "INSERT INTO journal (thread, delivery_id, body, seal) VALUES (?, ?, ?, ?)",
        (thread, delivery_id, body, seal(thread_id, delivery_id, body)),
    )


def read_journal(db: SqliteDatabase, thread: int, thread_id: str, number: int) -> list[JournalEntry]:
    """Entries of the deliveries after commit `number`. Raises DamagedCheckpoint."""
    entries = []
    for delivery_id, body, sealed in db.execute(
        "SELECT delivery_id, body, seal FROM journal WHERE thread = ? ORDER BY entry", (thread,)
    ):
        if not is_entry_sealed(thread_id, delivery_id, body, sealed):
            raise changed_entry(thread_id, delivery_id)
        entries.append(JournalEntry(number, delivery_id, body))
    return entries


def is_entry_sealed(thread_id: str, delivery_id: int, body: object, sealed: object) -> bool:
    return isinstance(body, bytes) and seal(thread_id, delivery_id, body) == sealed


def changed_entry(thread_id: str, delivery_id: int) -> DamagedCheckpoint:
    return DamagedCheckpoint("of its head", f"the journal of delivery {delivery_id} was changed", thread_id)


def post_item(db: SqliteDatabase, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
    """Idempotent by `item_id`."""
    db.execute(
        "INSERT OR IGNORE INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, ?, ?, ?)",
        (ensure_thread(db, thread_id), item_id, kind, body, item_seal(thread_id, item_id, kind, body)),
    )


def has_item(db: SqliteDatabase, thread_id: str, item_id: str) -> bool:
    """Whether the item was ever posted, consumed or not."""
    query = "SELECT 1 FROM inbox WHERE thread = ? AND item_id = ?"
    return db.execute(query, (find_thread(db, thread_id), item_id)).fetchone() is not None


def read_inbox(db: SqliteDatabase, thread: int, thread_id: str) -> list[InboxItem]:
    """Raises DamagedCheckpoint."""
    items = []
    for item_id, kind, body, sealed in db.execute(
        "SELECT item_id, kind, body, seal FROM inbox WHERE thread = ? AND body IS NOT NULL ORDER BY item",
        (thread,),
    ):
        if not isinstance(body, bytes) or item_seal(thread_id, item_id, kind, body) != sealed:
            raise changed_item(thread_id, item_id)
        items.append(InboxItem(item_id, kind, body))
    return items


def changed_item(thread_id: str, item_id: str) -> DamagedCheckpoint:
    return DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)


def consume_items(db: SqliteDatabase, thread_id: str, item_ids: Iterable[str]) -> None:
    """Mark items as consumed, also those that were posted in another store."""
    thread = ensure_thread(db, thread_id)
    for item_id in item_ids:
        db.execute(
            "INSERT INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, '', NULL, ?)"
            " ON CONFLICT (thread, item_id) DO UPDATE SET body = NULL, seal = excluded.seal",
            (thread, item_id, consumed_seal(thread_id, item_id)),
        )


def check_consumed(db: SqliteDatabase, thread: int, thread_id: str) -> None:
    """Raises DamagedCheckpoint for a consumed item that was changed."""
    query = "SELECT item_id, seal FROM inbox WHERE thread = ? AND body IS NULL"
    for item_id, sealed in db.execute(query, (thread,)):
        if sealed != consumed_seal(thread_id, item_id):
            raise changed_item(thread_id, item_id)


def list_consumed(db: SqliteDatabase, thread: int) -> list[str]:
    rows = db.execute("SELECT item_id FROM inbox WHERE thread = ? AND body IS NULL ORDER BY item", (thread,))
    return [item_id for (item_id,) in rows]


def item_seal(thread_id: str, item_id: str, kind: str, body: bytes) -> bytes:
    return seal(f"{thread_id}\0{item_id}\0{kind}", 0, body)
