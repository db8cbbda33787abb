"""A store in one SQLite file, for any number of processes of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from perdure.errors import DamagedCheckpoint, ThreadBusy, ThreadConflict, ThreadNotFound
from perdure.log import get_logger
from perdure.records import Commit, JournalEntry, Lease, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.garbage import PackedCommit, prune_bodies
from perdure.stores.packing import pack_body, repack_body, seal, to_id
from perdure.stores.rewriting import Changes
from perdure.stores.sqlite.batching import GroupedWrites, WaitingEntry, WrittenTogether
from perdure.stores.sqlite.connection import PAGES_AT_ONCE, Connection
from perdure.stores.sqlite.indexed import IndexedStore, delete_rows, unpacked
from perdure.stores.sqlite.rows import Payload
from perdure.stores.sqlite.tables import Tables

logger = get_logger("stores")


class SqliteStore(IndexedStore):
    """Implements `perdure.store.Store`. A commit is one transaction, and one hop to the store's thread and back."""

    def __init__(self, path: str | os.PathLike[str], *, synchronous: str = "FULL", busy_seconds: float = 30.0) -> None:
        self.path = Path(path).absolute()  # the program may change its folder
        super().__init__("perdure-sqlite", Connection(self.path, synchronous, busy_seconds))
        self._grouped: GroupedWrites = GroupedWrites(self._thread, self._connection.transact)
        self._journal = WrittenTogether(self._thread, self._write_journal)

    def _payload(self, thread_id: str, payload: Payload) -> bytes:
        return payload.body or b""

    async def size(self) -> int:
        return sum(size_of(Path(f"{self.path}{suffix}")) for suffix in ("", "-wal", "-shm"))

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        thread_id, body = commit.lease.thread_id, pack_body(commit)
        sealed = seal(thread_id, commit.number, body)
        due: list[bool] = []

        def work(tables: Tables) -> None:
            standing = tables.check(commit)
            tables.append(standing, commit, Payload(commit.number, sealed, body, None, None))
            if commit.prunes or commit.prunes_events_before:
                due[:] = [tables.is_sweep_due(standing.thread)]

        if not self._connection.transact_at_once(work, len(body)):
            await self._grouped.do(work, syncs=True, to_the_end=True)
        self.bus.notify(thread_id)
        if due and due[0]:
            await self._thread.do_to_the_end(partial(self._sweep, thread_id))

    def _sweep(self, thread_id: str) -> None:
        """Free what was forgotten. It is done again after the next commit if it fails."""
        try:
            # Not synced: what a power cut undoes of it is done again.
            self._connection.transact(lambda tables: prune_rows(tables, thread_id, set()), writes=True, syncs=False)
            count, free = self._connection.pages()
            if free > max(PAGES_AT_ONCE, count // 4):
                self._connection.give_back_some()
        except Exception as error:  # noqa: BLE001  # the commit was made, whatever becomes of this
            logger.warning("thread %s: what it forgot still takes space: %s", thread_id, error)

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._journal.add(lease, entry)

    def _write_journal(self, batch: Sequence[WaitingEntry]) -> None:
        def work(tables: Tables) -> None:
            for one in batch:
                try:
                    tables.prove(one.lease)
                except ThreadConflict as error:
                    one.error = error
                    continue
                tables.append_journal(one.lease.thread_id, one.entry.delivery_id, one.entry.body)

        self._connection.transact(work, writes=True, syncs=True)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._do(lambda tables: tables.post(thread_id, item_id, kind, body))
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ keeping, removing and copying

    async def pin(self, checkpoint_id: str) -> None:
        await self._do(lambda tables: _set_pin(tables, checkpoint_id, is_pinned=True))

    async def unpin(self, checkpoint_id: str) -> None:
        await self._do(lambda tables: _set_pin(tables, checkpoint_id, is_pinned=False))

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = set(checkpoint_ids)
        if not await self._list(lambda tables: tables.has_to_prune(thread_id, doomed, events_before)):
            return 0
        count = await self._do(lambda tables: prune_rows(tables, thread_id, doomed, events_before))
        await self._give_back()
        return count

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        is_gone = await self._do(lambda tables: delete_rows(tables, thread_id, if_unmoved_since))
        await self._give_back()
        return is_gone

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        def work(tables: Tables) -> None:
            thread = tables.make_room(standing)
            for commit in commits:
                body = pack_body(commit)
                sealed = seal(standing.thread_id, commit.number, body)
                payload = Payload(commit.number, sealed, body, None, None)
                tables.add_commit(thread, commit, payload)
            tables.stand(thread, standing)

        await self._do(work)

    async def copy_thread(self, thread_id: str, to: str) -> None:
        def work(tables: Tables) -> None:
            thread = tables.find_thread(thread_id)
            if thread is None:
                raise ThreadNotFound(thread_id)
            if tables.find_thread(to) is not None:
                raise ThreadBusy(to, tables.owner_of(to))
            tables.copy_thread(thread, to)
            for row in tables.bodies(to):
                tables.reseal(row.seq, seal(to, row.number, row.body), row.body)

        await self._do(work)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        """What is damaged is left as it is, and told when all else is done."""
        last = await self._list(lambda tables: tables.last_number(thread_id))
        damaged: list[DamagedCheckpoint] = []
        number, count = 0, 0

        def waiting(tables: Tables) -> tuple[int, list[DamagedCheckpoint]]:
            changes = Changes(change)
            found = [*tables.rewrite_journal(thread_id, changes), *tables.rewrite_inbox(thread_id, changes)]
            return changes.count, found

        def page(tables: Tables) -> tuple[int, int, list[DamagedCheckpoint]]:
            changes = Changes(change)
            reached, found = tables.rewrite_commits(thread_id, number, last, changes)
            return reached, changes.count, found

        while number < last:  # some in each transaction: others get their turn in between
            number, changed, found = await self._do(page)
            count += changed
            damaged += found
        changed, found = await self._do(waiting)
        for error in [*damaged, *found]:
            raise error
        return count + changed


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _set_pin(tables: Tables, checkpoint_id: str, *, is_pinned: bool) -> None:
    thread, _, number = tables.place_of(checkpoint_id)
    tables.set_pin(thread, number, is_pinned=is_pinned)


def prune_rows(tables: Tables, thread_id: str, doomed: set[str], events_before: int = 0) -> int:
    """Also what was forgotten before, and still takes space."""
    thread = tables.find_thread(thread_id)
    if thread is None:
        return 0
    rows, pinned = tables.bodies(thread_id), tables.pins(thread)
    gone = {row.number for row in rows if row.checkpoint_id is not None and to_id(row.checkpoint_id) in doomed}
    gone -= pinned
    if not gone and not events_before and not tables.forgotten(thread):
        return 0
    head = tables.head_of(thread_id)
    owner = tables.owner_of(thread_id)
    if owner is not None and head is not None and head[0].number in gone:
        raise ThreadBusy(thread_id, owner)
    commits = [
        PackedCommit(
            row.number,
            row.parent,
            row.checkpoint_id is not None,
            unpacked(thread_id, to_id(row.checkpoint_id), Payload(row.number, row.seal, None, None, None), row.body),
        )
        for row in rows
    ]
    if events_before:
        tables.forget_events(thread, events_before)
    by_number = {row.number: row for row in rows}
    for changed in prune_bodies(commits, gone, tables.silent_before(thread)):
        row = by_number[changed.number]
        if changed.is_empty:
            tables.delete_commit(row.seq)
            continue
        if not changed.has_events:
            tables.silence(row.seq)
        checkpoint_id = row.checkpoint_id if changed.has_checkpoint else None
        body = repack_body(changed.body)
        tables.replace_commit(row.seq, checkpoint_id, changed.parent, seal(thread_id, row.number, body), body)
    for number in gone:
        tables.move_head(thread, number)
    tables.note_swept(thread)
    return len(gone)
