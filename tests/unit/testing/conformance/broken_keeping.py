"""Stores that are broken in what they keep and what they free: retention, branches and pins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.testing.conformance.broken_owning import changed
from tests.unit.testing.conformance.passing import Passing, breaks

from perdure.errors import CheckpointNotFound, ThreadBusy
from perdure.records import CheckpointInfo, Commit, StoredCheckpoint, ThreadInfo
from perdure.testing.conformance.clauses import commits, damage, retention


class LosesChunks(Passing):
    """Not broken yet: chunks of commits that are named lost cannot be read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lost: set[int] = set()

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        return await super().read_chunks(thread_id, [number for number in numbers if number not in self.lost])

    async def numbers_of(self, thread_id: str, checkpoint_ids: Iterable[str]) -> set[int]:
        named = set(checkpoint_ids)
        return {info.number for info in await self.inner.infos(thread_id=thread_id) if info.checkpoint_id in named}


@breaks(retention.what_another_checkpoint_needs_stays_and_what_none_needs_goes)
class FreesAllOfWhatIsPruned(LosesChunks):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = list(checkpoint_ids)
        self.lost |= await self.numbers_of(thread_id, doomed)
        return await super().prune(thread_id, doomed, events_before=events_before)


@breaks(retention.pruning_any_part_of_a_tree_leaves_exactly_what_is_needed)
class ForgetsBranches(LosesChunks):
    """Only the line that leads to the head keeps its chunks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parents: dict[int, int | None] = {}

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.parents[commit.number] = commit.parent

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        line, number = set(), max(self.parents, default=None)
        while number is not None:
            line.add(number)
            number = self.parents[number]
        self.lost |= self.parents.keys() - line
        return await super().prune(thread_id, checkpoint_ids, events_before=events_before)


@breaks(retention.pruning_any_part_of_a_tree_leaves_exactly_what_is_needed)
class FreesNothing(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: dict[str, dict[int, Mapping[str, bytes]]] = defaultdict(dict)

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.kept[commit.lease.thread_id][commit.number] = dict(commit.chunks)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        kept = self.kept[thread_id]
        return {number: kept[number] for number in numbers if number in kept}


@breaks(retention.pruning_any_part_of_a_tree_leaves_exactly_what_is_needed)
class FreesAllOfWhatIsForgotten(LosesChunks):
    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.lost |= set(commit.prunes)


@breaks(retention.what_a_commit_prunes_is_gone_and_all_else_stays)
class NeverForgets(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, prunes=()))


@breaks(retention.what_a_commit_prunes_is_gone_and_all_else_stays)
class ForgetsItsHead(Passing):
    """Whatever a commit says is to go is gone, the newest included."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gone: set[int] = set()

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.gone |= set(commit.prunes)

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return [info for info in await super().infos(**filters) if info.number not in self.gone]


@breaks(retention.when_the_head_is_pruned_the_newest_that_is_left_is_the_head)
class LosesItsHead(Passing):
    has_lost = False

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed, head = set(checkpoint_ids), await self.inner.head(thread_id)
        self.has_lost = head is not None and head.info.checkpoint_id in doomed
        return await super().prune(thread_id, doomed, events_before=events_before)

    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        return None if self.has_lost else await super().head(thread_id)


@breaks(retention.when_the_head_is_pruned_the_newest_that_is_left_is_the_head)
class DeletesEmptyThreads(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        count = await super().prune(thread_id, checkpoint_ids, events_before=events_before)
        if not await self.inner.infos(thread_id=thread_id):
            await self.inner.delete_thread(thread_id)
        return count


@breaks(retention.when_the_head_is_pruned_the_newest_that_is_left_is_the_head)
class PrunesNothingSilently(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        try:
            return await super().prune(thread_id, checkpoint_ids, events_before=events_before)
        except ThreadBusy:
            return 0


@breaks(retention.what_another_checkpoint_needs_stays_and_what_none_needs_goes)
class CountsWhatWasNamed(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = list(checkpoint_ids)
        await super().prune(thread_id, doomed, events_before=events_before)
        return len(doomed)


@breaks(retention.chunks_that_events_refer_to_stay_as_long_as_the_events)
class ForgetsWhatEventsReferTo(Passing):
    async def commit(self, commit: Commit) -> None:
        events = commit.events and changed(commit.events, refers=False)
        await super().commit(changed(commit, events=events))


@breaks(commits.a_checkpoint_follows_any_older_one_or_the_nearest_that_is_left)
class FollowsTheGone(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.followed: dict[str, str | None] = {}

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if commit.info is not None:
            self.followed[commit.info.checkpoint_id] = commit.info.previous_checkpoint_id

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        infos = await super().infos(**filters)
        return [changed(info, previous_checkpoint_id=self.followed[info.checkpoint_id]) for info in infos]


@breaks(retention.what_another_checkpoint_needs_stays_and_what_none_needs_goes)
class MovesWhatItPrunes(Passing):
    pruned = ""

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        self.pruned = thread_id
        return await super().prune(thread_id, checkpoint_ids, events_before=events_before)

    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return sorted(await super().threads(**filters), key=lambda thread: thread.thread_id == self.pruned)


@breaks(damage.its_size_follows_what_it_keeps)
class NeverShrinks(Passing):
    largest = 0

    async def size(self) -> int:
        self.largest = max(self.largest, await super().size())
        return self.largest


# ---------------------------------------------------------------- pins


@breaks(retention.a_pinned_checkpoint_is_not_pruned)
class PrunesThePinned(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = set(checkpoint_ids)
        for info in await self.inner.infos(thread_id=thread_id):
            if info.checkpoint_id in doomed:
                await self.inner.unpin(info.checkpoint_id)
        return await super().prune(thread_id, doomed, events_before=events_before)


@breaks(retention.a_pinned_checkpoint_is_not_pruned)
class ForgetsThePinned(Passing):
    async def commit(self, commit: Commit) -> None:
        for info in await self.inner.infos(thread_id=commit.lease.thread_id):
            if info.number in commit.prunes:
                await self.inner.unpin(info.checkpoint_id)
        await super().commit(commit)


@breaks(retention.an_unpinned_checkpoint_goes_like_any_other_and_cannot_be_pinned_then)
class NeverUnpins(Passing):
    async def unpin(self, checkpoint_id: str) -> None:
        if await self.inner.find_checkpoint(checkpoint_id) is None:
            raise CheckpointNotFound(checkpoint_id)


@breaks(retention.an_unpinned_checkpoint_goes_like_any_other_and_cannot_be_pinned_then)
class CountsPins(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.count: Counter[str] = Counter()

    async def pin(self, checkpoint_id: str) -> None:
        await super().pin(checkpoint_id)
        self.count[checkpoint_id] += 2

    async def unpin(self, checkpoint_id: str) -> None:
        self.count[checkpoint_id] -= 1
        if self.count[checkpoint_id] <= 0:
            await super().unpin(checkpoint_id)


@breaks(retention.a_checkpoint_shows_whether_it_is_pinned_and_nothing_else_is_changed)
class HidesPins(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return [changed(info, is_pinned=False) for info in await super().infos(**filters)]


@breaks(retention.an_unpinned_checkpoint_goes_like_any_other_and_cannot_be_pinned_then)
class PinsAnything(Passing):
    async def pin(self, checkpoint_id: str) -> None:
        try:
            await super().pin(checkpoint_id)
        except CheckpointNotFound:
            pass
