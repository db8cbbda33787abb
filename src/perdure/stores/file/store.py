"""A store in a folder: one append-only file of JSON lines for each thread, readable with any tool.

The files are the truth. Beside them lies `index.db` (`index.py`), which answers lists, names owners, and knows how much
of each file was acknowledged. The store appends a line and syncs it, then updates the index. A process that dies in
between leaves a file that is longer than the index knows. The next process that opens the thread reads the rest, and
cuts off a torn last line, which was never acknowledged. A file that is shorter has lost acknowledged lines: an error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from functools import partial, partialmethod
from pathlib import Path

import msgspec

from perdure.errors import CheckpointNotFound, DamagedStore
from perdure.log import get_logger
from perdure.records import Commit, Damage, Lease, ThreadHeader
from perdure.store import Rewrite
from perdure.stores.disk import Disk
from perdure.stores.file.access import FileAccess
from perdure.stores.file.folder import LockedFile
from perdure.stores.file.lines import LineContext, PinLine, PostLine, commit_line, lines_of_thread
from perdure.stores.file.replay import index_commit, read_context
from perdure.stores.garbage import prune_commits
from perdure.stores.packing import Changes
from perdure.stores.sqlite import history, threads
from perdure.stores.sqlite.commits import check_commit, move_to_end, read_dropped_before
from perdure.stores.sqlite.health import check_schema, find_orphans, list_all_thread_ids
from perdure.stores.sqlite.lists import find_position
from perdure.stores.sqlite.payloads import read_commits
from perdure.stores.sqlite.schema import SqliteDatabase
from perdure.stores.sqlite.store import IndexedStore

logger = get_logger("stores")


class FileStore(IndexedStore):
    """Implements `perdure.store.Store`, for any number of processes of one machine."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = True,
        busy_seconds: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(path).absolute()  # the program may change its working folder
        self._access = FileAccess(self.path, disk or Disk(syncs=fsync), busy_seconds)
        super().__init__(self._access)
        self._index = self._access.index
        self.append_journal = self._access.append_journal

    async def size(self) -> int:
        return await asyncio.to_thread(self._access.files.total_size)

    def _release(self, lease: Lease) -> Awaitable[bool]:
        def work(file: LockedFile) -> bool:
            self._index.transact(lambda db: threads.release_lease(db, lease))
            is_due = self._index.read(partial(threads.is_collection_due, thread_id=lease.thread_id, at_rest=True))
            is_due = self._access.is_mostly_journal(file) or is_due
            self._access.remove_if_new(file)
            return is_due

        return self._access.with_file(lease.thread_id, work)

    # ------------------------------------------------------------ writing

    async def commit(self, commit: Commit) -> None:
        def prove(db: SqliteDatabase) -> tuple[threads.ThreadRow, LineContext]:
            thread = check_commit(db, commit)
            return thread, read_context(db, thread.thread)

        def work(file: LockedFile) -> bool | None:
            thread, context = self._index.read(prove)
            place, size = file.append(commit_line(commit, context))
            return self._access.update_index(file, lambda db: index_commit(db, thread, commit, place, size))

        is_due = await self._access.with_file(commit.lease.thread_id, work, uncancellable=True)
        self.bus.notify(commit.lease.thread_id)
        if is_due:
            await self._collect_garbage(commit.lease.thread_id)

    def _free(self, thread_id: str) -> None:
        self._access.lock(thread_id, partial(rewrite_file, self._access))

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        def work(file: LockedFile) -> None:
            if not self._index.read(lambda db: threads.has_item(db, thread_id, item_id)):
                self._access.append(file, PostLine(item_id, kind, msgspec.Raw(body)))

        await self._access.with_file(thread_id, work)
        self.bus.notify(thread_id)

    # ------------------------------------------------------------ keeping, removing and copying

    async def _set_pin(self, checkpoint_id: str, *, is_pinned: bool) -> None:
        def work(file: LockedFile) -> None:
            _, owner, number = self._index.read(lambda db: find_position(db, checkpoint_id))
            if owner != thread_id:  # another thread took the id since
                raise CheckpointNotFound(checkpoint_id)
            self._access.append(file, PinLine(number, is_pinned))

        _, thread_id, _ = await self._access.read_lists(lambda db: find_position(db, checkpoint_id))
        await self._access.with_file(thread_id, work)

    pin = partialmethod(_set_pin, is_pinned=True)
    unpin = partialmethod(_set_pin, is_pinned=False)

    async def _prune(self, thread_id: str, checkpoint_ids: set[str], events_before: int) -> int:
        def work(file: LockedFile) -> int:
            numbers = self._index.transact(
                lambda db: history.choose_pruned(db, thread_id, checkpoint_ids, events_before)
            )
            if numbers is None or not file.size:
                self._access.remove_if_new(file)
                return 0
            rewrite_file(self._access, file, numbers)
            return len(numbers)

        return await self._access.with_file(thread_id, work)

    async def _delete(self, thread_id: str, if_unmoved_since: int | None) -> bool:
        def work(file: LockedFile) -> bool:
            is_deleted = self._index.transact(lambda db: history.delete_thread(db, thread_id, if_unmoved_since))
            if is_deleted or not file.size:
                self._access.files.remove(file)
            return is_deleted

        return await self._access.with_file(thread_id, work)

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        if await self._access.read_lists(lambda db: threads.find_thread(db, thread_id)) is None:
            return 0
        return await self._access.with_file(thread_id, lambda file: rewrite_file(self._access, file, change=change))

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        def refuse_known() -> Iterator[Commit]:
            for commit in commits:
                if commit.info is not None:
                    self._index.read(partial(history.refuse_known_checkpoint, info=commit.info))
                yield commit

        def work(file: LockedFile) -> None:
            self._index.transact(lambda db: history.reserve_thread(db, header))
            self._access.rewrite(file, lines_of_thread(header, refuse_known(), 0, has_garbage=True))
            self._index.transact(lambda db: move_to_end(db, threads.ensure_thread(db, header.thread_id)))

        await self._access.with_file(header.thread_id, work)

    async def _check_files(self) -> Sequence[Damage]:
        return await self._access.wait_for_locks(
            lambda: self._access.worker.run(lambda: self._access.guard(lambda: check_files(self._access)))
        )


# ---------------------------------------------------------------- a thread as a whole
# A file is never changed in place: it is written from the thread's header and commits, and put in its place.


def rewrite_file(
    access: FileAccess, file: LockedFile, pruned: Collection[int] = (), change: Rewrite | None = None
) -> int:
    """Rewrite the file without these checkpoints, and without all that was pruned before; with changed payloads, if
    any changes. How many did. Raises DamagedStore, without a change."""

    def read(db: SqliteDatabase) -> tuple[ThreadHeader | None, list[Commit], int]:
        thread_id, dropped_before = file.thread_id, read_dropped_before(db, threads.find_thread(db, file.thread_id))
        return history.read_standing(db, thread_id), read_commits(db, thread_id, with_garbage=True), dropped_before

    for _ in file.scan(0):
        pass  # a line that was changed stops it, also one that is not copied
    header, commits, dropped_before = access.index.read(read)
    if header is None:
        access.remove_if_new(file)
        return 0
    left = {commit.number: commit for commit in commits} | dict(prune_commits(commits, pruned, dropped_before))
    commits = [commit for commit in left.values() if commit is not None]
    head = max((commit.number for commit in commits if commit.info is not None), default=None)
    if head != header.head:
        header = msgspec.structs.replace(header, head=head, due_at=None, requests=(), journal=())
    changes = Changes(change or (lambda kind, name, data: data))
    header, commits = changes.header(header), [changes.commit(commit) for commit in commits]
    if change is None or changes.count:
        access.rewrite(file, lines_of_thread(header, commits, dropped_before, has_garbage=False))
    return changes.count


# ---------------------------------------------------------------- checks


def check_files(access: FileAccess) -> list[Damage]:
    """Damage of the index, and of files that cannot be read as a whole."""
    index = access.index
    index.make_ready()
    damage = [Damage(f"{name!r} is not the file of a thread") for name in access.files.list_foreign()]
    reasons = [*index.check_integrity(), *index.read(find_orphans), *index.read(check_schema)]
    damage += [Damage(f"{index.path.name}: {reason}. Delete it: the store rebuilds it") for reason in reasons]
    for thread_id in dict.fromkeys([*index.read(list_all_thread_ids), *access.files.thread_ids()]):
        damage += _check_file(access, thread_id)
    return damage


def _check_file(access: FileAccess, thread_id: str) -> list[Damage]:
    path = access.files.path_of(thread_id)
    if not path.exists():
        is_lost = access.index.read_file_size(thread_id)
        return [Damage(f"its file {path.name!r} does not exist", thread_id)] if is_lost else []
    try:
        with access.files.lock(thread_id) as file:
            access.index.catch_up(file)
            differences = access.index.find_differences(file)
    except DamagedStore as error:
        return [Damage(error.reason, thread_id)]
    name = access.index.path.name
    return [
        Damage(f"{name!r} differs from the file in commit {number}: delete {name!r}", thread_id, checkpoint_id)
        for number, checkpoint_id in differences
    ]
