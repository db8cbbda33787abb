"""Stores that are broken in who may write: owners, leases, fences, and the store as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import CheckpointInfo, Commit, Damage, JournalEntry, Lease, OpenedThread
from perdure.testing.conformance.clauses import concurrency, damage, owning


def changed(thing: Any, **parts: Any) -> Any:
    return msgspec.structs.replace(thing, **parts)


class KnowsTheNewest(Passing):
    """Not broken yet: it remembers the newest lease of each thread, for those that are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.newest: dict[str, Lease] = {}

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        self.newest[thread_id] = opened.lease
        return opened

    def instead_of(self, lease: Lease) -> Lease:
        return self.newest.get(lease.thread_id, lease)


# ---------------------------------------------------------------- upkeep


@breaks(damage.it_has_every_method_of_the_contract)
class LacksAMethod(Passing):
    unpin = None  # type: ignore[assignment]  # that is what is wrong with it


@breaks(damage.a_closed_store_opens_itself_again_with_the_same_owners)
class IsDeadOnceClosed(Passing):
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        if self.is_closed:
            raise RuntimeError("the store is closed")
        return await super().infos(**filters)


@breaks(damage.a_closed_store_opens_itself_again_with_the_same_owners)
class ReleasesAllWhenClosed(KnowsTheNewest):
    async def close(self) -> None:
        for lease in self.newest.values():
            await self.inner.release(lease)


@breaks(concurrency.what_one_object_wrote_another_sees_at_once)
class LivesInOneObject(Passing):
    """It is said to be shared, and is not."""


@breaks(damage.a_check_of_a_sound_store_finds_and_changes_nothing)
class FindsDamageEverywhere(Passing):
    async def check(self) -> Sequence[Damage]:
        return [Damage("something is not as it should be")]


@breaks(damage.its_size_follows_what_it_keeps)
class HasNoSize(Passing):
    async def size(self) -> int:
        return 0


# ---------------------------------------------------------------- single writer


@breaks(owning.a_new_thread_opens_empty)
class BeginsWithAnEvent(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        return opened if opened.number else OpenedThread(opened.lease, 0, None, None, last_seq=1)


@breaks(owning.a_thread_opens_where_its_last_commit_left_it)
class OpensWithoutItsJournal(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened: OpenedThread = changed(await super().open(thread_id, owner, takeover=takeover), journal=())
        return opened


@breaks(owning.an_opened_thread_shows_whether_its_store_is_encrypted)
class HidesThatItIsEncrypted(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        plain: OpenedThread = changed(await super().open(thread_id, owner, takeover=takeover), is_encrypted=False)
        return plain


@breaks(owning.every_owner_has_a_higher_fence_than_all_before_also_of_a_deleted_thread)
class HasOneFenceForAll(KnowsTheNewest):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened: OpenedThread = changed(
            await super().open(thread_id, owner, takeover=takeover), lease=Lease(thread_id, owner, 1)
        )
        return opened

    async def release(self, lease: Lease) -> None:
        await super().release(self.instead_of(lease))


@breaks(owning.a_thread_that_is_held_is_busy_and_only_a_takeover_takes_it)
class LetsAnybodyIn(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        return await super().open(thread_id, owner, takeover=True)


@breaks(owning.a_thread_that_is_held_is_busy_and_only_a_takeover_takes_it)
class NeverTakesOver(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        return await super().open(thread_id, owner)


@breaks(owning.a_release_frees_the_thread_of_its_lease_and_no_other_owners)
class NeverReleases(Passing):
    async def release(self, lease: Lease) -> None:
        pass


@breaks(owning.a_release_frees_the_thread_of_its_lease_and_no_other_owners)
class ReleasesForOthers(KnowsTheNewest):
    async def release(self, lease: Lease) -> None:
        await super().release(self.instead_of(lease))


@breaks(owning.a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released)
class GivesUpWhatIsRenewed(Passing):
    async def renew(self, lease: Lease) -> None:
        await super().release(lease)


@breaks(owning.a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released)
class RenewsAnything(Passing):
    async def renew(self, lease: Lease) -> None:
        pass


# ---------------------------------------------------------------- fencing


@breaks(owning.a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released)
class CommitsWithAnyFence(KnowsTheNewest):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, lease=self.instead_of(commit.lease)))


@breaks(owning.a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released)
class RecordsWithAnyFence(KnowsTheNewest):
    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await super().append_journal(self.instead_of(lease), entry)


@breaks(owning.a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released)
class WritesAfterTheRelease(KnowsTheNewest):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.released: set[Lease] = set()

    async def release(self, lease: Lease) -> None:
        self.released.add(lease)
        await super().release(lease)

    async def commit(self, commit: Commit) -> None:
        if commit.lease in self.released and self.newest.get(commit.lease.thread_id) == commit.lease:
            opened = await self.inner.open(commit.lease.thread_id, commit.lease.owner, takeover=True)
            commit = changed(commit, lease=opened.lease)
        await super().commit(commit)


@breaks(
    owning.an_invented_lease_is_rejected,
    owning.every_owner_has_a_higher_fence_than_all_before_also_of_a_deleted_thread,
)
class BelievesAnyOwner(KnowsTheNewest):
    """It compares the fence, and not who was given it."""

    async def commit(self, commit: Commit) -> None:
        newest = self.instead_of(commit.lease)
        if newest.fence != commit.lease.fence:
            raise ThreadConflict(commit.lease.thread_id, "an old fence", "a newer one")
        await super().commit(changed(commit, lease=newest))


@breaks(
    concurrency.two_objects_have_one_owner_between_them,
)
class KnowsOnlyItsOwnFences(OnDisk):
    """Each object thinks that what it was given last is the newest."""

    async def commit(self, commit: Commit) -> None:
        try:
            await super().commit(commit)
        except ThreadConflict:
            opened = await self.inner.open(commit.lease.thread_id, commit.lease.owner, takeover=True)
            number = opened.number + 1
            info = None if commit.info is None else changed(commit.info, number=number)
            await super().commit(changed(commit, lease=opened.lease, number=number, info=info))


class OwnersInItself(OnDisk):
    """Each object knows only the owners that it let in."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.held: set[str] = set()

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        if thread_id in self.held and not takeover:
            raise ThreadBusy(thread_id)
        self.held.add(thread_id)
        return await super().open(thread_id, owner, takeover=True)

    async def release(self, lease: Lease) -> None:
        self.held.discard(lease.thread_id)
        await super().release(lease)
