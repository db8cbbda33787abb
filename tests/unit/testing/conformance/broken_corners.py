"""Stores that are broken in what happens seldom: replaced heads, pruned logs, moved pins, claimed copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.unit.testing.conformance.broken_by_many import ReadsWhatItRemembers
from tests.unit.testing.conformance.broken_keeping import NeverShrinks
from tests.unit.testing.conformance.broken_owning import changed
from tests.unit.testing.conformance.broken_reading import HandsOnNothingOfThoseBefore
from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.errors import CursorExpired, ThreadBusy, ThreadConflict
from perdure.records import (
    CheckpointInfo,
    Commit,
    Damage,
    LoggedEvents,
    OpenedThread,
    PendingRequest,
    StoredCheckpoint,
    ThreadHeader,
    ThreadInfo,
)
from perdure.store import Store
from perdure.testing.conformance.clauses import (
    commits,
    concurrency,
    copies,
    damage,
    events,
    journal,
    listing,
    retention,
    transfer,
    values,
)

breaks(damage.its_size_follows_what_it_keeps)(NeverShrinks)
breaks(transfer.what_was_pruned_is_not_transferred_and_not_missed)(HandsOnNothingOfThoseBefore)
breaks(concurrency.what_a_commit_prunes_is_pruned_for_every_object)(ReadsWhatItRemembers)


async def take_and_release(store: Store, thread_id: str) -> None:
    opened = await store.open(thread_id, "the store itself", takeover=True)
    await store.release(opened.lease)


@breaks(commits.a_commit_without_a_checkpoint_keeps_head_journal_requests_and_timer)
class BeginsWithACheckpoint(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.info is None and commit.number == 1:
            raise ThreadConflict(commit.lease.thread_id, "commit 1", "no checkpoint")
        await super().commit(commit)


@breaks(commits.a_checkpoint_follows_any_older_one_or_the_nearest_that_is_left)
class KnowsOnlyItsOwnParents(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.info is not None and commit.parent is None:
            commit = changed(commit, info=changed(commit.info, previous_checkpoint_id=None))
        await super().commit(commit)


@breaks(commits.a_checkpoint_with_the_id_of_another_takes_its_place)
class RemembersCheckpoints(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written: dict[str, StoredCheckpoint] = {}

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if commit.info is not None and commit.root is not None:
            self.written[commit.info.checkpoint_id] = StoredCheckpoint(commit.info, commit.root)

    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await super().find_checkpoint(checkpoint_id) or self.written.get(checkpoint_id)


@breaks(commits.a_checkpoint_with_the_id_of_another_takes_its_place)
class AsksNothingAfterAReplacement(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.info is not None and await self.inner.find_checkpoint(commit.info.checkpoint_id) is not None:
            commit = changed(commit, requests=[])
        await super().commit(commit)


@breaks(values.a_name_is_stored_or_rejected_and_then_nothing_is_written)
class SwallowsLongNames(Passing):
    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        if len(kind) < 1000:
            await super().post(thread_id, item_id, kind, body)


@breaks(values.a_thread_id_leads_to_no_file_outside_the_folder)
class HasAFileForEachThread(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        if commit.lease.thread_id.startswith("../"):
            (self.folder / commit.lease.thread_id).touch()


@breaks(values.a_thread_may_have_many_commits_entries_and_items)
class ReadsOnePage(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        return changed(opened, journal=opened.journal[:100])  # type: ignore[no-any-return]


@breaks(journal.a_commit_replaces_the_pending_requests_of_its_thread_or_leaves_them)
class KnowsRequestsByTheirIds(Passing):
    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        requests = await super().pending_requests(**filters)
        return list({request.request_id: request for request in requests}.values())


@breaks(commits.a_commit_without_a_checkpoint_keeps_head_journal_requests_and_timer)
class SettlesWithEveryCommit(Passing):
    is_settled = False

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.is_settled = bool(commit.unsettled)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        return changed(opened, journal=()) if self.is_settled else opened


@breaks(listing.limit_and_before_page_backwards_through_the_threads)
class PagesByName(Passing):
    async def threads(self, *, before: str | None = None, **filters: Any) -> Sequence[ThreadInfo]:
        if before is None:
            return await super().threads(**filters)
        return [thread for thread in await super().threads() if thread.thread_id < before][-1:]


@breaks(listing.a_thread_is_listed_with_its_status_owner_and_last_workflow)
class KnowsWorkflowsByCheckpoints(Passing):
    async def threads(self, *, workflow_name: str | None = None, **filters: Any) -> Sequence[ThreadInfo]:
        infos = await self.inner.infos(workflow_name=workflow_name)
        names = {info.thread_id for info in infos}
        return [thread for thread in await super().threads(**filters) if thread.thread_id in names]


@breaks(listing.any_prefix_lists_what_begins_with_it)
class ReadsOneCharacterOfAPrefix(Passing):
    async def threads(self, *, prefix: str | None = None, **filters: Any) -> Sequence[ThreadInfo]:
        return await super().threads(prefix=None if prefix is None else prefix[:1], **filters)


# ---------------------------------------------------------------- events


@breaks(events.events_that_a_commit_prunes_are_gone_and_their_cursors_expire)
class LosesItsLogWhenItPrunesAnOlderCommit(Passing):
    newest, is_lost = 0, False

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.is_lost = commit.prunes_events_before < self.newest
        self.newest = max(self.newest, commit.prunes_events_before)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return [] if self.is_lost else await super().events_after(thread_id, seq)


@breaks(events.no_cursor_expires_where_no_event_was_pruned)
class ExpiresEveryOldCursor(Passing):
    prunes = False

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.prunes = commit.prunes_events_before > 0

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        if self.prunes and seq == 0:
            raise CursorExpired(thread_id, 0, 1)
        return await super().events_after(thread_id, seq)


@breaks(events.events_that_a_commit_prunes_are_gone_and_their_cursors_expire)
class PrunesCheckpointsWithTheirEvents(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, prunes=range(1, commit.prunes_events_before)))


@breaks(events.a_pruned_log_begins_where_it_does_in_a_copy_and_at_one_in_a_new_thread)
class CopiesNeverExpire(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return await super().events_after(thread_id, None if thread_id == "copy" else seq)


# ---------------------------------------------------------------- retention and pins


@breaks(commits.a_commit_that_is_not_the_next_or_whose_parent_is_gone_stores_nothing)
class PrunesFirst(Passing):
    async def commit(self, commit: Commit) -> None:
        try:
            await super().commit(commit)
        except ThreadConflict:
            numbers = set(commit.prunes)
            infos = await self.inner.infos(thread_id=commit.lease.thread_id)
            await self.inner.prune(
                commit.lease.thread_id, [info.checkpoint_id for info in infos if info.number in numbers]
            )
            raise


@breaks(events.events_of_a_pruned_checkpoint_stay_and_name_none)
class PrunesEventsWithTheirCheckpoint(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.pruned: set[int] = set()

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.pruned |= set(commit.prunes)

    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        return [batch for batch in await super().events_after(thread_id, seq) if batch.number not in self.pruned]


@breaks(retention.chunks_that_events_refer_to_stay_as_long_as_the_events)
class ReferencesNeedACheckpoint(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.info is None and commit.events is not None:
            commit = changed(commit, events=changed(commit.events, refers=False))
        await super().commit(commit)


@breaks(retention.what_a_commit_prunes_is_gone_and_all_else_stays)
class PrunesRequests(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, requests=[]) if commit.prunes else commit)


@breaks(retention.a_pinned_checkpoint_is_not_pruned)
class RejectsEveryHead(Passing):
    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        names, head = list(checkpoint_ids), await self.inner.head(thread_id)
        if head is not None and head.info.checkpoint_id in names:
            raise ThreadBusy(thread_id, "run-1")
        return await super().prune(thread_id, names, events_before=events_before)


@breaks(retention.a_pin_belongs_to_one_checkpoint_and_goes_with_it)
class PinsNames(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names: set[str] = set()

    async def pin(self, checkpoint_id: str) -> None:
        await super().pin(checkpoint_id)
        self.names.add(checkpoint_id)

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        infos = await super().infos(**filters)
        return [changed(info, is_pinned=info.checkpoint_id in self.names) for info in infos]


@breaks(retention.a_checkpoint_shows_whether_it_is_pinned_and_nothing_else_is_changed)
class PinsAreMoves(Passing):
    is_moved = False

    async def pin(self, checkpoint_id: str) -> None:
        await super().pin(checkpoint_id)
        self.is_moved = True

    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        threads = await super().threads(**filters)
        return threads[::-1] if self.is_moved else threads


# ---------------------------------------------------------------- copies


@breaks(copies.a_copy_holds_all_commits_under_new_checkpoint_ids_and_nothing_else)
class CopiedEventsNameNothing(Passing):
    async def events_after(self, thread_id: str, seq: int | None) -> Sequence[LoggedEvents]:
        batches = await super().events_after(thread_id, seq)
        return [changed(batch, info=None) for batch in batches] if thread_id == "copy" else batches


@breaks(copies.a_copy_of_a_pruned_thread_has_all_that_is_left)
class CopiesAskNothing(Passing):
    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return [request for request in await super().pending_requests(**filters) if request.thread_id != "copy"]


@breaks(transfer.a_transferred_thread_is_complete_and_continues)
class TransfersOnlyWhatMoved(Passing):
    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        header = await super().thread_header(thread_id)
        return None if header is None or header.number == 0 else header


@breaks(transfer.a_transfer_replaces_no_existing_thread_and_comes_after_all)
class ListsByThread(Passing):
    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        return sorted(await super().infos(**filters), key=lambda info: (info.thread_id, info.number))


@breaks(transfer.a_transfer_replaces_no_existing_thread_and_comes_after_all)
class WritesOverClaims(Passing):
    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await take_and_release(self.inner, header.thread_id)
        await super().add_thread(header, commits)


@breaks(transfer.a_header_has_all_of_a_thread_except_its_commits)
class ClaimsWhatItReadsOut(Passing):
    async def thread_header(self, thread_id: str) -> ThreadHeader | None:
        await take_and_release(self.inner, thread_id)
        return await super().thread_header(thread_id)


# ---------------------------------------------------------------- closing, checking, and others


@breaks(concurrency.many_threads_move_at_once_while_the_store_is_closed_and_none_disturbs_another)
class DropsWhatIsWrittenWhileItCloses(Passing):
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        await super().close()

    async def commit(self, commit: Commit) -> None:
        if not self.is_closed:
            await super().commit(commit)
        self.is_closed = False


@breaks(concurrency.a_paused_owner_keeps_its_thread_and_blocks_no_other)
class DeletesUnderItsOwner(OnDisk):
    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        await take_and_release(self.inner, thread_id)
        return await super().delete_thread(thread_id, if_unmoved_since=if_unmoved_since)


@breaks(damage.a_check_of_a_sound_store_finds_and_changes_nothing)
class ClaimsWhatItChecks(Passing):
    async def check(self) -> Sequence[Damage]:
        for thread in await self.inner.threads():
            await take_and_release(self.inner, thread.thread_id)
        return await super().check()
