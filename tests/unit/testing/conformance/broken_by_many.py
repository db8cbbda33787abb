"""Stores that are broken where many use them at once, and where a process dies in the middle."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.unit.testing.conformance.broken_keeping import LosesChunks
from tests.unit.testing.conformance.broken_owning import OwnersInItself, changed
from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import CheckpointInfo, Commit, Lease, OpenedThread
from perdure.testing.conformance.clauses import concurrency

breaks(concurrency.two_objects_have_one_owner_between_them)(OwnersInItself)
breaks(concurrency.processes_move_threads_of_their_own_and_only_one_opens_or_writes_the_same)(OwnersInItself)


@breaks(concurrency.many_threads_move_at_once_while_the_store_is_closed_and_none_disturbs_another)
class HasOnePlaceForAll(Passing):
    """What is to be written lies where the next one that comes puts its own."""

    commit_at_hand: Commit

    async def commit(self, commit: Commit) -> None:
        self.commit_at_hand = commit
        await asyncio.sleep(0)
        await super().commit(self.commit_at_hand)


@breaks(concurrency.one_of_many_concurrent_opens_and_commits_succeeds)
class LooksBeforeItOpens(Passing):
    """Another owner opens in between."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.held: set[str] = set()

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        if thread_id in self.held and not takeover:
            raise ThreadBusy(thread_id)
        await asyncio.sleep(0)
        self.held.add(thread_id)
        return await super().open(thread_id, owner, takeover=True)

    async def release(self, lease: Lease) -> None:
        self.held.discard(lease.thread_id)
        await super().release(lease)


@breaks(concurrency.one_of_many_concurrent_opens_and_commits_succeeds)
class ComparesBeforeItWrites(Passing):
    """Another owner writes in between."""

    async def commit(self, commit: Commit) -> None:
        if commit.number != await self._next(commit):
            raise ThreadConflict(commit.lease.thread_id, f"commit {commit.number}", "another")
        await asyncio.sleep(0)
        number = await self._next(commit)
        info = None if commit.info is None else changed(commit.info, number=number)
        await super().commit(changed(commit, number=number, info=info))

    async def _next(self, commit: Commit) -> int:
        threads = await self.inner.threads(thread_id=commit.lease.thread_id)
        return 1 + (threads[0].number if threads else 0)


@breaks(concurrency.pruning_while_others_commit_breaks_nothing)
class FreesWhatComesMeanwhile(LosesChunks):
    """What is needed is worked out first; what is committed before it is freed is not among it."""

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        needed = {info.number for info in await self.inner.infos(thread_id=thread_id)}
        for _ in range(3):
            await asyncio.sleep(0)
        self.lost |= {info.number for info in await self.inner.infos(thread_id=thread_id)} - needed
        return await super().prune(thread_id, checkpoint_ids, events_before=events_before)

    async def commit(self, commit: Commit) -> None:
        await asyncio.sleep(0)
        await super().commit(commit)


@breaks(concurrency.what_one_object_wrote_another_sees_at_once)
class ReadsWhatItRemembers(OnDisk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.remembered: dict[str, Sequence[CheckpointInfo]] = {}

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        if str(filters) not in self.remembered:
            self.remembered[str(filters)] = await super().infos(**filters)
        return self.remembered[str(filters)]

    async def commit(self, commit: Commit) -> None:
        self.remembered.clear()
        await super().commit(commit)


@breaks(concurrency.processes_move_threads_of_their_own_and_only_one_opens_or_writes_the_same)
class DropsWhatMeets(OnDisk):
    """Where another process is writing, what is to be written is dropped."""

    async def commit(self, commit: Commit) -> None:
        lock = self.folder / "writing"
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        await super().commit(commit)
        await asyncio.sleep(0.003)
        lock.unlink()


# ---------------------------------------------------------------- killed


class WritesLater(OnDisk):
    """Not broken yet: does things one after the other, a moment after it was asked to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.todo: list[Any] = []
        self.doing: asyncio.Task[None] | None = None

    def later(self, act: Any) -> None:
        self.todo.append(act)
        if self.doing is None or self.doing.done():
            self.doing = asyncio.create_task(self._do())

    async def _do(self) -> None:
        while self.todo:
            await asyncio.sleep(0.1)
            await self.todo.pop(0)()


@breaks(concurrency.acknowledged_commits_are_there_after_a_kill)
class AcknowledgesCommitsTooEarly(WritesLater):
    async def commit(self, commit: Commit) -> None:
        self.later(partial(self.inner.commit, commit))
        await asyncio.sleep(0.001)


@breaks(concurrency.acknowledged_posts_and_journal_entries_are_there_after_a_kill)
class AcknowledgesPostsTooEarly(WritesLater):
    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        self.later(partial(self.inner.post, thread_id, item_id, kind, body))
        await asyncio.sleep(0.001)


@breaks(concurrency.the_thread_of_a_killed_owner_can_be_opened_at_once)
class OwnersOutliveTheirProcess(OnDisk):
    """Who owns a thread stands in a file that only a release removes."""

    def note(self, thread_id: str) -> Path:
        return self.folder / f"owner of {quote(thread_id, safe='')}"

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        if self.note(thread_id).exists() and not takeover:
            raise ThreadBusy(thread_id, owner)
        opened = await super().open(thread_id, owner, takeover=takeover)
        self.note(thread_id).touch()
        return opened

    async def release(self, lease: Lease) -> None:
        await super().release(lease)
        self.note(lease.thread_id).unlink(missing_ok=True)


@breaks(concurrency.a_kill_while_pruning_breaks_nothing_that_is_left)
class PrunesInPlace(WritesLater):
    """The thread is taken out, and put back without what is pruned: a moment later."""

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        if self.doing is not None:
            await self.doing
        count = await super().prune(thread_id, checkpoint_ids, events_before=events_before)
        header, commits = await self.inner.thread_header(thread_id), await self.inner.commits(thread_id)
        await self.inner.delete_thread(thread_id)
        if header is not None:
            self.later(partial(self.inner.add_thread, header, commits))
        return count


@breaks(concurrency.a_kill_while_copying_leaves_a_whole_copy_or_none)
class CopiesOneByOne(WritesLater):
    async def copy_thread(self, thread_id: str, to: str) -> None:
        opened = await self.inner.open(to, "copying")
        first, *rest = [
            changed(
                commit,
                lease=opened.lease,
                info=commit.info and changed(commit.info, thread_id=to, checkpoint_id=f"{to}-{commit.number}"),
            )
            for commit in await self.inner.commits(thread_id)
        ]
        await self.inner.commit(first)
        for commit in rest:
            self.later(partial(self.inner.commit, commit))
