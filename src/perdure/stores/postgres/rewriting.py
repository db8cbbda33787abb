"""Payloads of a PostgreSQL store put through a change: another key."""

from __future__ import annotations

from perdure.errors import DamagedCheckpoint
from perdure.store import Rewrite
from perdure.stores.packing import seal
from perdure.stores.postgres.history import AT_ONCE, Whole
from perdure.stores.postgres.rows import (
    as_words,
    chunks_of,
    events_of,
    events_seal,
    item_seal,
    key_of,
    root_of,
    root_seal,
    told_by_row,
)


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
