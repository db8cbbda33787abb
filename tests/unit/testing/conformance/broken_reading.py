"""Stores that are broken in what they give back: lists, pages, events, and whole threads for others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.testing.conformance.broken_commits import RemembersWhatWasConsumed
from tests.unit.testing.conformance.broken_owning import changed
from tests.unit.testing.conformance.passing import Passing, breaks

from perdure.errors import CheckpointNotFound, CursorExpired, ThreadBusy, ThreadExists
from perdure.records import (
    CheckpointInfo,
    Commit,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.testing.conformance.clauses import copies, events, listing, transfer


@breaks(copies.nothing_is_left_of_a_deleted_thread_and_others_are_left_alone)
class MissesWhatThereIsNot(Passing):
    async def head(self, thread_id: str) -> StoredCheckpoint | None:
        if not await self.inner.threads(thread_id=thread_id):
            raise KeyError(thread_id)
        return await super().head(thread_id)


@breaks(listing.checkpoints_are_listed_in_the_order_of_their_commits)
class ListsTheNewestFirst(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return (await super().infos(**filters))[::-1]


@breaks(listing.checkpoints_are_listed_in_the_order_of_their_commits)
class ListsEveryWorkflow(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return await super().infos(**{**filters, "workflow_name": None})


@breaks(listing.limit_and_before_page_backwards_through_all_checkpoints)
class KeepsTheOldest(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        limit = filters.pop("limit", None)
        return (await super().infos(**filters))[:limit]


@breaks(listing.limit_and_before_page_backwards_through_all_checkpoints)
class PagesOverlap(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        before, limit = filters.pop("before", None), filters.pop("limit", None)
        infos = list(await super().infos(**filters))
        end = [info.checkpoint_id for info in infos].index(before) + 1 if before is not None else len(infos)
        return infos[max(0, end - (len(infos) if limit is None else limit)) : end]


@breaks(listing.limit_and_before_page_backwards_through_all_checkpoints)
class PagesFromNowhere(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        try:
            return await super().infos(**filters)
        except CheckpointNotFound:
            return []


@breaks(listing.an_info_has_all_fields_of_its_checkpoint)
class RoundsTimes(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return [changed(info, timestamp=info.timestamp[:19]) for info in await super().infos(**filters)]


@breaks(listing.threads_are_listed_with_those_that_moved_last_at_the_end)
class ListsThreadsByTheirNames(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return sorted(await super().threads(**filters), key=lambda thread: thread.thread_id)


@breaks(listing.limit_and_before_page_backwards_through_the_threads)
class KeepsTheOldestThreads(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        limit = filters.pop("limit", None)
        return (await super().threads(**filters))[:limit]


@breaks(listing.a_thread_is_listed_with_its_status_owner_and_last_workflow)
class HidesTheOwner(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return [changed(thread, run_id=None) for thread in await super().threads(**filters)]


@breaks(listing.every_thread_of_which_something_is_kept_is_named_in_pages)
class NamesOnlyWhatHasMoved(Passing):
    async def thread_ids(self, **filters: Any) -> Sequence[str]:
        moved = {thread.thread_id for thread in await self.inner.threads()}
        return [thread_id for thread_id in await super().thread_ids(**filters) if thread_id in moved]


@breaks(listing.every_thread_of_which_something_is_kept_is_named_in_pages)
class NamesTheFirstOnEachPage(Passing):
    async def thread_ids(self, **filters: Any) -> Sequence[str]:
        if filters.get("limit") == 1:
            filters["after"] = None
        return await super().thread_ids(**filters)


# ---------------------------------------------------------------- events


@breaks(events.events_are_read_from_the_commit_that_holds_the_next_without_gap_or_repeat)
class SkipsWhatIsReadInPart(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return [events for events in await super().events_after(thread_id, seq) if events.first_seq > (seq or 0)]


@breaks(events.events_are_read_from_the_commit_that_holds_the_next_without_gap_or_repeat)
class RepeatsTheLast(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return await super().events_after(thread_id, None if seq is None else max(0, seq - 1))


@breaks(events.events_name_their_commit_run_and_checkpoint)
class ForgetsTheRunOfEvents(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return [changed(events, run_id="") for events in await super().events_after(thread_id, seq)]


@breaks(events.events_of_a_pruned_checkpoint_stay_and_name_none)
class PrunesTheEventsToo(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        doomed = set(checkpoint_ids)
        gone = [info.number for info in await self.infos(thread_id=thread_id) if info.checkpoint_id in doomed]
        return await super().prune(thread_id, doomed, events_before=max([events_before, *(n + 1 for n in gone)]))


@breaks(events.events_that_a_commit_prunes_are_gone_and_their_cursors_expire)
class KeepsAllEvents(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, prunes_events_before=0))


@breaks(events.a_pruned_log_begins_where_it_does_in_a_copy_and_at_one_in_a_new_thread)
class GoesOnFromAnExpiredCursor(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        try:
            return await super().events_after(thread_id, seq)
        except CursorExpired:
            return await super().events_after(thread_id, None)


@breaks(events.the_last_event_is_known_also_when_all_are_pruned)
class RestartsEventNumbers(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        restarted: OpenedThread = changed(opened, last_seq=0)
        return opened if await self.inner.events_after(thread_id, None) else restarted


# ---------------------------------------------------------------- whole threads


@breaks(copies.nothing_is_left_of_a_deleted_thread_and_others_are_left_alone)
class StillAsksForTheDeleted(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[PendingRequest] = []

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        self.asked += await self.inner.pending_requests(thread_id=thread_id)
        return await super().delete_thread(thread_id, if_unmoved_since=if_unmoved_since)

    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return [*await super().pending_requests(**filters), *self.asked]


@breaks(copies.nothing_is_left_of_a_deleted_thread_and_others_are_left_alone)
class RemembersItemsOfTheDeleted(RemembersWhatWasConsumed):
    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        if item_id not in self.consumed[thread_id]:
            await super().post(thread_id, item_id, kind, body)


@breaks(copies.nothing_is_left_of_a_deleted_thread_and_others_are_left_alone)
class DeletesTheirQuestionsToo(Passing):
    was_deleted = False

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        self.was_deleted = True
        return await super().delete_thread(thread_id, if_unmoved_since=if_unmoved_since)

    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return [] if self.was_deleted else await super().pending_requests(**filters)


@breaks(copies.a_thread_with_an_owner_or_that_is_not_as_it_was_is_not_deleted)
class DeletesWhatIsOwned(Passing):
    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        opened = await self.inner.open(thread_id, "deleting", takeover=True)
        await self.inner.release(opened.lease)
        return await super().delete_thread(thread_id, if_unmoved_since=if_unmoved_since)


@breaks(copies.a_thread_with_an_owner_or_that_is_not_as_it_was_is_not_deleted)
class DeletesWhatHasMoved(Passing):
    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        return await super().delete_thread(thread_id)


@breaks(copies.a_copy_holds_all_commits_under_new_checkpoint_ids_and_nothing_else)
class CopiesTheHeadOnly(Passing):
    async def copy_thread(self, thread_id: str, to: str) -> None:
        await super().copy_thread(thread_id, to)
        await self.inner.prune(to, [info.checkpoint_id for info in await self.infos(thread_id=to)][:-1])


@breaks(copies.a_copy_holds_all_commits_under_new_checkpoint_ids_and_nothing_else)
class CopiesTheInboxToo(Passing):
    async def copy_thread(self, thread_id: str, to: str) -> None:
        await super().copy_thread(thread_id, to)
        header = await self.inner.thread_header(thread_id)
        for item in header.inbox if header is not None else ():
            await self.inner.post(to, item.item_id, item.kind, item.body)


@breaks(copies.a_copy_and_its_original_are_independent)
class CopiesThatShare(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.copies: dict[str, str] = {}

    async def copy_thread(self, thread_id: str, to: str) -> None:
        self.copies[thread_id] = to
        await super().copy_thread(thread_id, to)

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        if thread_id in self.copies:
            await self.inner.delete_thread(self.copies[thread_id])
        return await super().delete_thread(thread_id, if_unmoved_since=if_unmoved_since)


@breaks(copies.a_copy_never_takes_the_place_of_a_thread)
class CopiesOverWhatThereIs(Passing):
    async def copy_thread(self, thread_id: str, to: str) -> None:
        try:
            await super().copy_thread(thread_id, to)
        except ThreadBusy:
            await self.inner.delete_thread(to)
            await super().copy_thread(thread_id, to)


# ---------------------------------------------------------------- raw copies


@breaks(transfer.a_transferred_thread_is_complete_and_continues)
class AddsWithoutTheInbox(Passing):
    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await super().add_thread(changed(header, inbox=()), commits)


@breaks(transfer.branches_and_pins_are_transferred_and_can_be_pruned)
class HandsOnNothingOfThoseBefore(Passing):
    """What a commit carries of commits that were pruned is left out."""

    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        commits = await super().commits(thread_id, after=after, limit=limit)
        return [changed(commit, carried=()) for commit in commits]


@breaks(transfer.a_transferred_thread_is_complete_and_continues)
class AddsWithoutTheFence(Passing):
    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await super().add_thread(changed(header, fence=0), commits)


@breaks(transfer.a_transferred_thread_is_complete_and_continues)
class PagesOfCommitsOverlap(Passing):
    async def commits(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Commit]:
        return await super().commits(thread_id, after=max(0, after - 1), limit=limit)


@breaks(transfer.a_header_has_all_of_a_thread_except_its_commits)
class StandsWithoutTheJournal(Passing):
    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        header = await super().thread_header(thread_id)
        without: ThreadHeader | None = header and changed(header, journal=())
        return without


@breaks(transfer.a_transfer_replaces_no_existing_thread_and_comes_after_all)
class AddsOverWhatThereIs(Passing):
    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        all_of_them = list(commits)
        try:
            await super().add_thread(header, all_of_them)
        except ThreadExists:
            await self.inner.delete_thread(header.thread_id)
            await super().add_thread(header, all_of_them)


@breaks(transfer.a_thread_whose_commits_break_off_is_not_added)
class AddsAsFarAsItComes(Passing):
    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        read: list[Commit] = []
        try:
            for commit in commits:
                read.append(commit)  # what was read is kept, although the rest raises
        finally:
            await super().add_thread(changed(header, head=read[-1].number), read)
