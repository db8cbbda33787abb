"""What waits in a thread, journal and inbox; and what only a file store needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perdure.errors import DamagedCheckpoint
from perdure.records import CheckpointInfo, Commit, InboxItem, JournalEntry
from perdure.stores.file.lines import Before
from perdure.stores.packing import RUN, consumed_seal, from_id, from_timestamp, seal, to_id, to_timestamp
from perdure.stores.sqlite.commits import ALL_BLOCKS, CommitRows
from perdure.stores.sqlite.rows import Payload, ThreadRow


class WaitingRows(CommitRows):
    def append_journal(self, thread_id: str, delivery_id: int, body: bytes) -> None:
        self.without_journal.discard(thread_id)
        given = (self.thread(thread_id), delivery_id, body, seal(thread_id, delivery_id, body))
        self._db.execute("INSERT INTO journal (thread, delivery_id, body, seal) VALUES (?, ?, ?, ?)", given)

    def journal(self, thread_id: str, number: int) -> list[JournalEntry]:
        """Raises DamagedCheckpoint."""
        rows = self._db.execute(
            "SELECT delivery_id, body, seal FROM journal WHERE thread = ? ORDER BY entry", (self.thread(thread_id),)
        )
        found = []
        for delivery_id, body, sealed in rows:
            if not isinstance(body, bytes) or seal(thread_id, delivery_id, body) != sealed:
                raise DamagedCheckpoint("of its head", f"the journal of delivery {delivery_id} was changed", thread_id)
            found.append(JournalEntry(number, delivery_id, body))
        return found

    def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, ?, ?, ?)",
            (self.thread(thread_id), item_id, kind, body, item_seal(thread_id, item_id, kind, body)),
        )

    def has_item(self, thread_id: str, item_id: str) -> bool:
        thread = self.find_thread(thread_id)
        return (
            thread is not None
            and self._db.execute("SELECT 1 FROM inbox WHERE thread = ? AND item_id = ?", (thread, item_id)).fetchone()
            is not None
        )

    def inbox(self, thread_id: str) -> list[InboxItem]:
        """Raises DamagedCheckpoint."""
        rows = self._db.execute(
            "SELECT item_id, kind, body, seal FROM inbox WHERE thread = ? AND body IS NOT NULL ORDER BY item",
            (self.thread(thread_id),),
        )
        found = []
        for item_id, kind, body, sealed in rows:
            if not isinstance(body, bytes) or item_seal(thread_id, item_id, kind, body) != sealed:
                raise DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)
            found.append(InboxItem(item_id, kind, body))
        return found

    # ------------------------------------------------------------ of a file store

    def meta(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def sizes(self) -> dict[tuple[str, str], int]:
        """How much is known of each file."""
        rows = self._db.execute("SELECT thread_id, written, size FROM threads WHERE size IS NOT NULL")
        return {(thread_id, written): size for thread_id, written, size in rows}

    def written(self, thread_id: str) -> str:
        row = self._db.execute("SELECT written FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return "" if row is None else str(row[0])

    def set_written(self, thread_id: str, written: str, version: int) -> None:
        self._db.execute(
            "UPDATE threads SET written = ?, version = ? WHERE thread_id = ?", (written, version, thread_id)
        )

    def size_of(self, thread_id: str) -> tuple[int | None] | None:
        """None for a thread that is not known."""
        row = self._db.execute("SELECT size FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        return None if row is None else (row[0],)

    def append_at(self, standing: ThreadRow, commit: Commit, payload: Payload, size: int) -> None:
        """A commit of a thread whose file has this size now."""
        self.append(standing, commit, payload)
        self._db.execute("UPDATE threads SET size = ? WHERE thread = ?", (size, standing.thread))

    def set_size(self, thread_id: str, size: int | None) -> None:
        self._db.execute("UPDATE threads SET size = ? WHERE thread_id = ?", (size, thread_id))

    def told_before(self, thread: int) -> Before:
        row = self._db.execute(
            "SELECT w.name, c.run_id, t.last_seq, t.version FROM threads t"
            " LEFT JOIN workflows w ON w.workflow = t.workflow"
            " LEFT JOIN commits c ON c.thread = t.thread AND c.number = t.number WHERE t.thread = ?",
            (thread,),
        ).fetchone()
        return Before() if row is None else Before(row[0], to_id(row[1], RUN), row[2], row[3])

    def raise_fences(self, by: int) -> None:
        self._db.execute("UPDATE threads SET fence = fence + ?", (by,))

    def set_workflow(self, thread: int, name: str) -> None:
        self._db.execute("UPDATE threads SET workflow = ? WHERE thread = ?", (self._workflow(name), thread))

    def is_taken_since(self, info: CheckpointInfo) -> bool:
        """Whether a later checkpoint of another thread took the id: files are read one after the other."""
        row = self._db.execute(
            "SELECT t.thread_id, c.timestamp FROM commits c JOIN threads t USING (thread) WHERE c.checkpoint_id = ?",
            (from_id(info.checkpoint_id),),
        ).fetchone()
        return row is not None and row[0] != info.thread_id and to_timestamp(row[1]) > info.timestamp

    def standing(self, thread: int) -> ThreadRow:
        row = self._db.execute(
            "SELECT thread, fence, number, head, status, last_seq FROM threads WHERE thread = ?", (thread,)
        ).fetchone()
        return ThreadRow(*row)

    def stand_at_least(self, thread_id: str, number: int, fence: int, last_seq: int) -> None:
        self._db.execute(
            "UPDATE threads SET number = MAX(number, ?), fence = MAX(fence, ?), last_seq = MAX(last_seq, ?)"
            " WHERE thread_id = ?",
            (number, fence, last_seq, thread_id),
        )

    def say(self, thread_id: str, number: int, status: str, updated_at: str) -> None:
        """What the last commit said, where its line is not in the thread's file any more."""
        self._db.execute(
            "UPDATE threads SET status = ?, updated_at = ? WHERE thread_id = ? AND NOT EXISTS"
            " (SELECT 1 FROM commits c WHERE c.thread = threads.thread AND c.number >= ?)",
            (status, from_timestamp(updated_at), thread_id, number),
        )

    def put_back(self, thread_id: str, places: Mapping[int, int]) -> None:
        """Give commits the places that they had in the order of all of them."""
        if places:
            thread, newest = self.thread(thread_id), self._newest()
            given = [(place, thread, number) for number, place in places.items()]
            self._db.execute("DELETE FROM commits WHERE thread = 0")
            self._db.executemany("UPDATE commits SET seq = -? WHERE thread = ? AND number = ?", given)
            self._db.execute("UPDATE commits SET seq = -seq WHERE seq < 0")
            self._db.execute("UPDATE threads SET moved = ? WHERE thread = ?", (max(places.values()), thread))
            self._hold_place(newest)

    def clear_thread(self, thread_id: str) -> dict[int, int]:
        """All that its file says; not who owns it. The places of its commits in the order of all of them."""
        thread = self.find_thread(thread_id)
        places = dict(self._db.execute("SELECT number, seq FROM commits WHERE thread = ?", (thread,)).fetchall())
        newest = self._newest()
        for table in ("commits", "pins", "journal", "inbox", "requests"):
            self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
        self._db.execute(
            "UPDATE threads SET number = 0, head = NULL, last_seq = 0, due_at = NULL, size = 0, first_seq = 1,"
            " silent_before = 0, forgotten = 0, forgotten_bytes = 0, swept = 0, swept_bytes = 0 WHERE thread = ?",
            (thread,),
        )
        self._hold_place(newest)
        return places

    def consume(self, thread_id: str, item_ids: Iterable[str]) -> None:
        """Items whose posting is not in the thread's file any more."""
        thread = self.thread(thread_id)
        for item_id in item_ids:
            self._db.execute(
                "INSERT INTO inbox (thread, item_id, kind, body, seal) VALUES (?, ?, '', NULL, ?)"
                " ON CONFLICT (thread, item_id) DO UPDATE SET body = NULL, seal = excluded.seal",
                (thread, item_id, consumed_seal(thread_id, item_id)),
            )

    def check_consumed(self, thread_id: str) -> None:
        """Raises DamagedCheckpoint. Those that were consumed under format 1 are not proved."""
        rows = self._db.execute(
            "SELECT item_id, seal FROM inbox WHERE thread = ? AND body IS NULL", (self.thread(thread_id),)
        )
        for item_id, sealed in rows:
            if isinstance(sealed, bytes) and sealed[:1] == b"c" and sealed != consumed_seal(thread_id, item_id):
                raise DamagedCheckpoint("of its head", f"item {item_id!r} in its inbox was changed", thread_id)

    def consumed(self, thread: int) -> list[str]:
        rows = self._db.execute("SELECT item_id FROM inbox WHERE thread = ? AND body IS NULL ORDER BY item", (thread,))
        return [item_id for (item_id,) in rows]

    def put_in_order(self) -> None:
        """Commits of several threads by their times, where nothing else tells; those of one thread by their numbers."""
        rows = self._db.execute("SELECT seq, thread, timestamp FROM commits ORDER BY thread, number").fetchall()
        latest: dict[int, str] = {}
        keyed = []
        for seq, thread, timestamp in rows:
            latest[thread] = max(latest.get(thread, ""), to_timestamp(timestamp))
            keyed.append((latest[thread], seq))
        order = [(place, seq) for place, (_, seq) in enumerate(sorted(keyed), 1)]
        self._db.executemany("UPDATE commits SET seq = -? WHERE seq = ?", order)
        self._db.execute("UPDATE commits SET seq = -seq")
        self._db.execute("DELETE FROM blocks")
        self._db.execute(ALL_BLOCKS)
        self._blocks = {}
        moved = "(SELECT MAX(seq) FROM commits c WHERE c.thread = threads.thread)"
        self._db.execute(f"UPDATE threads SET moved = COALESCE({moved}, 0)")

    def unread(self) -> list[str]:
        """Threads whose files were being written anew when somebody was interrupted."""
        return [thread_id for (thread_id,) in self._db.execute("SELECT thread_id FROM threads WHERE size IS NULL")]

    def owned(self) -> list[tuple[str, int]]:
        """Threads that have an owner, and its process."""
        return self._db.execute("SELECT thread_id, process FROM threads WHERE owner IS NOT NULL").fetchall()

    def release_all(self, processes: Iterable[int]) -> None:
        for process in processes:
            self._db.execute("UPDATE threads SET owner = NULL, process = NULL WHERE process IS ?", (process,))


def item_seal(thread_id: str, item_id: str, kind: str, body: bytes) -> bytes:
    return seal(f"{thread_id}\0{item_id}\0{kind}", 0, body)
