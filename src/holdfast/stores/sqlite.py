"""A store in one SQLite file, for any number of processes of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.errors import ThreadBusy, ThreadConflict, ThreadNotFound
from holdfast.records import Commit, JournalEntry, Lease
from holdfast.stores.columns import to_id
from holdfast.stores.connection import Connection
from holdfast.stores.indexed import IndexedStore, delete_rows, unpacked
from holdfast.stores.packing import pack_body, repack_body, seal
from holdfast.stores.pruning import PackedCommit, prune_bodies
from holdfast.stores.rows import Payload
from holdfast.stores.sqlite_tables import Tables
from holdfast.stores.together import WaitingEntry, WrittenTogether


class SqliteStore(IndexedStore):
    """Implements `holdfast.store.Store`. A commit is one transaction, and one hop to the store's thread and back."""

    def __init__(self, path: str | os.PathLike[str], *, synchronous: str = "FULL", busy_seconds: float = 30.0) -> None:
        self.path = Path(path).absolute()  # the program may change its folder
        super().__init__("holdfast-sqlite", Connection(self.path, synchronous, busy_seconds))
        self._journal = WrittenTogether(self._thread, self._write_journal)

    def _payload(self, thread_id: str, payload: Payload) -> bytes:
        return payload.body or b""

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        body = pack_body(commit)
        sealed = seal(commit.lease.thread_id, commit.number, body)

        def work(tables: Tables) -> None:
            tables.append(tables.check(commit), commit, Payload(commit.number, sealed, body, None, None))

        if not self._connection.transact_at_once(work, len(body)):
            await self._thread.do_to_the_end(lambda: self._connection.transact(work, writes=True, syncs=True))

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

    # ------------------------------------------------------------ removing and copying

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str]) -> int:
        doomed = set(checkpoint_ids)
        return await self._do(lambda tables: prune_rows(tables, thread_id, doomed))

    async def delete_thread(self, thread_id: str) -> bool:
        return await self._do(lambda tables: delete_rows(tables, thread_id))

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


def prune_rows(tables: Tables, thread_id: str, doomed: set[str]) -> int:
    rows = tables.bodies(thread_id)
    gone = {row.number for row in rows if row.checkpoint_id is not None and to_id(row.checkpoint_id) in doomed}
    if not gone:
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
    by_number = {row.number: row for row in rows}
    for changed in prune_bodies(commits, gone):
        row = by_number[changed.number]
        if changed.is_empty:
            tables.delete_commit(row.seq)
            continue
        checkpoint_id = row.checkpoint_id if changed.has_checkpoint else None
        body = repack_body(changed.body)
        tables.replace_commit(row.seq, checkpoint_id, changed.parent, seal(thread_id, row.number, body), body)
    for number in gone:
        tables.move_head(by_number[number].thread, number)
    return len(gone)
