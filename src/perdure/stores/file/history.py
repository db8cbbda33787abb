"""What a file store keeps, removes, copies and checks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import msgspec

from perdure.errors import CheckpointNotFound, DamagedStore, PerdureError, ThreadBusy, ThreadNotFound
from perdure.records import Commit, Damage, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.file.folder import ThreadFile
from perdure.stores.file.lines import VERSION, FileThreadLine, PinLine, request_part
from perdure.stores.file.threads import FileThreads
from perdure.stores.packing import to_id
from perdure.stores.rewriting import Changes, WaitingItems, copied_lines, lines_of, pruned_lines
from perdure.stores.sqlite.indexed import delete_rows
from perdure.stores.sqlite.tables import Tables


class FileHistory(FileThreads):
    # ------------------------------------------------------------ keeping, removing and copying

    async def pin(self, checkpoint_id: str) -> None:
        await self._set_pin(checkpoint_id, is_pinned=True)

    async def unpin(self, checkpoint_id: str) -> None:
        await self._set_pin(checkpoint_id, is_pinned=False)

    async def _set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        def work(file: ThreadFile) -> None:
            thread, found, number = self._index.transact(lambda tables: tables.place_of(checkpoint_id), writes=False)
            if found != thread_id:  # another thread took the id since
                raise CheckpointNotFound(checkpoint_id)
            if self._index.transact(lambda tables: tables.told_before(thread), writes=False).version < VERSION:
                self._say_version(file)
            self._append(file, PinLine(number, is_pinned))

        _, thread_id, _ = await self._list(lambda tables: tables.place_of(checkpoint_id))
        await self._with_file(thread_id, work)

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = set(checkpoint_ids)

        def check(tables: Tables) -> tuple[set[int], bool]:
            thread = tables.find_thread(thread_id)
            rows = tables.bodies(thread_id)
            gone = {row.number for row in rows if row.checkpoint_id is not None and to_id(row.checkpoint_id) in doomed}
            gone -= set() if thread is None else tables.pins(thread)
            head, owner = tables.head_of(thread_id), tables.owner_of(thread_id)
            if owner is not None and head is not None and head[0].number in gone:
                raise ThreadBusy(thread_id, owner)
            return gone, bool(gone or events_before or (thread is not None and tables.forgotten(thread)))

        def work(file: ThreadFile) -> int:
            gone, is_needed = self._index.transact(check, writes=False)
            if is_needed and file.size:
                self._prune(file, gone, events_before)
            else:
                self._remove_if_new(file)
            return len(gone)

        if not await self._list(lambda tables: tables.has_to_prune(thread_id, doomed, events_before)):
            return 0
        count = await self._with_file(thread_id, work)
        await self._give_back()
        return count

    def _prune(self, file: ThreadFile, gone: Collection[int], events_before: int = 0) -> None:
        """Also what was forgotten before, and still takes space."""
        thread_id = file.thread_id

        def kept(tables: Tables) -> tuple[FileThreadLine, WaitingItems]:
            if events_before:
                tables.forget_events(tables.thread(thread_id), events_before)
            return self._index.first_line(tables, thread_id), self._index.waiting(tables, thread_id)

        first, waiting = self._index.transact(kept)
        self._rewrite(file, pruned_lines(self._index.all_lines(file), gone, first, waiting))
        self._index.transact(lambda tables: tables.note_swept(tables.thread(thread_id)))

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        def kept(tables: Tables) -> tuple[FileThreadLine, WaitingItems]:
            return self._index.first_line(tables, thread_id), self._index.waiting(tables, thread_id)

        def work(file: ThreadFile) -> int:
            if not file.size:
                self._remove_if_new(file)
                return 0
            first, waiting = self._index.transact(kept, writes=False)
            changes = Changes(change)
            lines = [changes.line(one) for one in pruned_lines(self._index.all_lines(file), (), first, waiting)]
            if changes.count:
                self._rewrite(file, lines)
                self._index.transact(lambda tables: tables.note_swept(tables.thread(thread_id)))
            return changes.count

        if await self._list(lambda tables: tables.find_thread(thread_id)) is None:
            return 0
        return await self._with_file(thread_id, work)

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        thread_id = standing.thread_id

        def first_line(tables: Tables) -> FileThreadLine:
            tables.make_room(standing)
            tables.set_size(thread_id, None)  # should this process die in between, lists read the file first
            return FileThreadLine(
                thread_id,
                VERSION,
                standing.number,
                standing.fence,
                standing.last_seq,
                os.urandom(8).hex(),
                standing.workflow_name,
                standing.status,
                standing.updated_at,
                standing.consumed,
                standing.first_seq,
                0,
                standing.pins,
                [request_part(one) for one in standing.requests],
                forgotten=1,  # what the other store had forgotten may be among the commits
            )

        def work(file: ThreadFile) -> None:
            first = self._index.transact(first_line)
            try:
                self._files.rewrite(file, lines_of(standing, map(self._new_here, commits), first))
            except BaseException as error:
                self._index.transact(lambda tables: tables.set_size(thread_id, file.size))
                self._index.transact(lambda tables: tables.drop_if_empty(thread_id))
                if not isinstance(error, PerdureError):  # else whoever locked the file sees to it
                    self._remove_if_new(file)
                raise
            self._catch_up_now(thread_id)
            self._index.transact(lambda tables: tables.move_to_end(tables.thread(thread_id)))

        await self._with_file(thread_id, work)

    def _new_here(self, commit: Commit) -> Commit:
        """Raises ThreadExists if its checkpoint is one of a thread that is here."""
        if commit.info is not None:
            self._index.transact(partial(Tables.refuse_known, info=commit.info), writes=False)
        return commit

    # ------------------------------------------------------------ as a whole

    async def _check_files(self) -> Sequence[Damage]:
        def work() -> list[Damage]:
            self._index.make_ready()
            found = [Damage(f"{name!r} is no file of a thread") for name in self._files.foreign()]
            lost = self._index.transact(lambda tables: tables.orphans(), writes=False)
            lost += self._index.integrity()
            lost += self._index.transact(lambda tables: tables.changed_schema(), writes=False)
            found += [Damage(f"{self._index.path.name}: {reason}. Delete it: it is made anew") for reason in lost]
            known = self._index.transact(lambda tables: tables.all_thread_ids(), writes=False)
            for thread_id in dict.fromkeys([*known, *self._files.thread_ids()]):
                found += self._check_file(thread_id)
            return found

        return await self._patiently(lambda: self._thread.do(lambda: self._guarded(work)))

    def _check_file(self, thread_id: str) -> list[Damage]:
        row = self._index.transact(lambda tables: tables.size_of(thread_id), writes=False)
        path = self._files.path_of(thread_id)
        if not path.exists():
            return [Damage(f"its file {path.name!r} is gone", thread_id)] if row is not None and row[0] else []
        try:
            with self._files.locked(thread_id) as file:
                self._index.catch_up(file)
                differing = self._index.differences(file)
        except DamagedStore as error:
            return [Damage(error.reason, thread_id)]
        name = self._index.path.name
        return [
            Damage(f"{name!r} says something else of commit {number} than the file: delete {name!r}", thread_id, one)
            for number, one in differing
        ]

    async def size(self) -> int:
        return await asyncio.to_thread(self._files.total_size)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        def work(file: ThreadFile) -> bool:
            is_gone = self._index.transact(lambda tables: delete_rows(tables, thread_id, if_unmoved_since))
            if is_gone or not file.size:
                self._files.remove(file)
            return is_gone

        is_gone = await self._with_file(thread_id, work)
        await self._give_back()
        return is_gone

    async def copy_thread(self, thread_id: str, to: str) -> None:
        def check(tables: Tables) -> None:
            if tables.find_thread(thread_id) is None:
                raise ThreadNotFound(thread_id)
            if tables.is_there(to):
                raise ThreadBusy(to, tables.owner_of(to))
            tables.thread(to)
            tables.set_size(to, None)  # as in `add_thread`

        def work(file: ThreadFile) -> None:
            self._index.transact(check)
            standing = self._index.transact(lambda tables: self._index.first_line(tables, thread_id))
            first = msgspec.structs.replace(standing, thread_id=to, fence=0, consumed=(), pins=(), forgotten=1)
            lines = copied_lines(self._index.all_lines(file), first)
            with self._files.locked(to) as target:
                self._files.rewrite(target, lines)
            self._catch_up_now(to)
            self._index.transact(lambda tables: tables.move_to_end(tables.thread(to)))

        await self._with_file(thread_id, work)
