"""Payloads put through a change, each under a new seal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.errors import DamagedCheckpoint
from perdure.stores.packing import SEAL_BYTES, repack_body, seal, unpack_body
from perdure.stores.rewriting import Changes
from perdure.stores.sqlite.journal import WaitingRows, item_seal

PAGE_BYTES = 1 << 18
PAGE_ROWS = 64
"""About as many commits are changed in one transaction: others wait for it."""

HOLDS_ANYTHING = """
(t.number > 0 OR EXISTS (SELECT 1 FROM inbox i WHERE i.thread = t.thread)
  OR EXISTS (SELECT 1 FROM journal j WHERE j.thread = t.thread))
"""
"""Of a row of `threads`: one may be there only because somebody claimed it."""


class PayloadRows(WaitingRows):
    """What is damaged is left as it is, lest it gets a seal that proves it. It is given back, to be told."""

    def last_number(self, thread_id: str) -> int:
        """Of its commits; 0 if there is none."""
        row = self._db.execute("SELECT number FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return 0 if row is None else int(row[0])

    def rewrite_commits(
        self, thread_id: str, after: int, until: int, changes: Changes
    ) -> tuple[int, list[DamagedCheckpoint]]:
        """Some of those after this number; and the number of the last of them."""
        damaged = []
        number = until
        for seq, number, sealed, data in self._page_of_bodies(thread_id, after, until):
            try:
                if not isinstance(data, bytes) or seal(thread_id, number, data) != sealed[:SEAL_BYTES]:
                    raise msgspec.DecodeError("it does not have its seal")
                before = unpack_body(data)
            except (msgspec.DecodeError, TypeError) as error:
                name, reason = f"of commit {number}", f"commit {number} was changed or damaged in its store: {error}"
                damaged.append(DamagedCheckpoint(name, reason, thread_id))
                continue
            body = changes.body(number, before)
            if body is not before:
                data = repack_body(body)
                # What lists say of it stays as it is, and so does the sum of that, which stands behind the seal.
                sealed = seal(thread_id, number, data) + sealed[SEAL_BYTES:]
                self._db.execute("UPDATE commits SET seal = ?, body = ? WHERE seq = ?", (sealed, data, seq))
        return number, damaged

    def _page_of_bodies(self, thread_id: str, after: int, until: int) -> list[tuple[int, int, Any, Any]]:
        page, size = [], 0
        for row in self._db.execute(
            "SELECT seq, number, seal, body FROM commits WHERE thread = ? AND number > ? AND number <= ?"
            " ORDER BY number LIMIT ?",
            (self.find_thread(thread_id), after, until, PAGE_ROWS),
        ):
            page.append(row)
            size += len(row[3] or b"")
            if size >= PAGE_BYTES:
                break
        return page

    def rewrite_journal(self, thread_id: str, changes: Changes) -> Iterator[DamagedCheckpoint]:
        rows = self._db.execute(
            "SELECT entry, delivery_id, body, seal FROM journal WHERE thread = ?", (self.find_thread(thread_id),)
        )
        for entry, delivery_id, body, sealed in rows.fetchall():
            if not isinstance(body, bytes) or seal(thread_id, delivery_id, body) != sealed:
                yield DamagedCheckpoint("of its head", f"the journal of delivery {delivery_id} was changed", thread_id)
                continue
            after = changes.changed("journal", str(delivery_id), body)
            if after != body:
                given = (after, seal(thread_id, delivery_id, after), entry)
                self._db.execute("UPDATE journal SET body = ?, seal = ? WHERE entry = ?", given)

    def rewrite_inbox(self, thread_id: str, changes: Changes) -> Iterator[DamagedCheckpoint]:
        rows = self._db.execute(
            "SELECT item, item_id, kind, body, seal FROM inbox WHERE thread = ? AND body IS NOT NULL",
            (self.find_thread(thread_id),),
        )
        for item, item_id, kind, body, sealed in rows.fetchall():
            if not isinstance(body, bytes) or item_seal(thread_id, item_id, kind, body) != sealed:
                yield DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)
                continue
            after = changes.changed("inbox", item_id, body)
            if after != body:
                given = (after, item_seal(thread_id, item_id, kind, after), item)
                self._db.execute("UPDATE inbox SET body = ?, seal = ? WHERE item = ?", given)
