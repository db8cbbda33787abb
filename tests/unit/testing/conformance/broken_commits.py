"""Stores that are broken in what a commit leaves behind: the commit itself, journal, requests, timers and inbox."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.unit.testing.conformance.broken_owning import changed
from tests.unit.testing.conformance.passing import Passing, breaks

from perdure.errors import ThreadConflict
from perdure.records import Commit, JournalEntry, Lease, OpenedThread, PendingRequest, StoredCheckpoint, ThreadInfo
from perdure.testing.conformance.clauses import commits, journal, listing, values
from perdure.testing.conformance.threads import FAR


@breaks(commits.all_of_a_commit_is_stored)
class DropsTheEvents(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, events=None))


@breaks(commits.a_commit_that_is_not_the_next_or_whose_parent_is_gone_stores_nothing)
class SkipsNumbers(Passing):
    async def commit(self, commit: Commit) -> None:
        threads = await self.inner.threads(thread_id=commit.lease.thread_id)
        number = (threads[0].number if threads else 0) + 1
        if commit.number > number:
            info = None if commit.info is None else changed(commit.info, number=number)
            commit = changed(commit, number=number, info=info)
        await super().commit(commit)


@breaks(commits.a_commit_that_is_not_the_next_or_whose_parent_is_gone_stores_nothing)
class AsksForNoParent(Passing):
    async def commit(self, commit: Commit) -> None:
        try:
            await super().commit(commit)
        except ThreadConflict:
            await super().commit(changed(commit, parent=None))


@breaks(commits.a_commit_without_a_checkpoint_keeps_head_journal_requests_and_timer)
class NotesEndTheQuestions(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(commit if commit.info is not None else changed(commit, requests=[]))


@breaks(commits.a_checkpoint_follows_any_older_one_or_the_nearest_that_is_left)
class ContinuesFromTheHeadOnly(Passing):
    async def commit(self, commit: Commit) -> None:
        head = await self.head(commit.lease.thread_id)
        if commit.info is not None and commit.parent != (head and head.info.number):
            raise ThreadConflict(commit.lease.thread_id, f"after commit {commit.parent}", "another head")
        await super().commit(commit)


@breaks(commits.a_checkpoint_with_the_id_of_another_takes_its_place)
class RefusesAnIdThatThereIs(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.info is not None and await self.find_checkpoint(commit.info.checkpoint_id) is not None:
            raise ThreadConflict(commit.lease.thread_id, commit.info.checkpoint_id, "the same id")
        await super().commit(commit)


@breaks(values.bytes_come_back_as_they_were)
class TidiesJson(Passing):
    async def commit(self, commit: Commit) -> None:
        root = None if commit.root is None else json.dumps(json.loads(commit.root)).encode()
        await super().commit(changed(commit, root=root))


@breaks(values.any_text_is_an_id_and_no_two_are_taken_for_one)
class ForgetsCapitals(Passing):
    async def find_checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        return await super().find_checkpoint(checkpoint_id.casefold())


@breaks(values.a_commit_may_be_large)
class CutsWhatIsLong(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, root=commit.root and commit.root[:65536]))


@breaks(commits.what_a_caller_changes_later_is_not_changed_in_the_store)
class KeepsTheCallersDict(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.chunks_given: dict[int, Mapping[str, bytes]] = {}

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.chunks_given[commit.number] = commit.chunks

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Mapping[int, Mapping[str, bytes]]:
        return {number: self.chunks_given[number] for number in numbers if number in self.chunks_given}


@breaks(commits.a_commit_whose_caller_is_cancelled_completes)
class GivesUpWhenCancelled(Passing):
    async def commit(self, commit: Commit) -> None:
        await asyncio.sleep(0)
        await super().commit(commit)


# ---------------------------------------------------------------- journal, requests, timers


@breaks(journal.a_checkpoint_removes_journal_entries_but_for_unsettled_deliveries)
class SortsTheJournal(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        in_order = sorted(opened.journal, key=lambda entry: entry.delivery_id)
        sorted_: OpenedThread = changed(opened, journal=in_order)
        return sorted_


@breaks(journal.a_checkpoint_removes_journal_entries_but_for_unsettled_deliveries)
class KeepsTheJournal(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.recorded: set[int] = set()

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        self.recorded.add(entry.delivery_id)
        await super().append_journal(lease, entry)

    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, unsettled=tuple(self.recorded)))


@breaks(journal.a_checkpoint_removes_journal_entries_but_for_unsettled_deliveries)
class ForgetsTheJournal(Passing):
    async def commit(self, commit: Commit) -> None:
        await super().commit(changed(commit, unsettled=()))


@breaks(journal.requests_are_listed_with_those_that_wait_longest_first)
class ListsTheNewestQuestionsFirst(Passing):
    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return (await super().pending_requests(**filters))[::-1]


@breaks(journal.requests_are_listed_with_those_that_wait_longest_first)
class ForgetsDeadlines(Passing):
    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return [changed(request, deadline=None) for request in await super().pending_requests(**filters)]


@breaks(journal.a_commit_replaces_the_pending_requests_of_its_thread_or_leaves_them)
class NeverEndsAQuestion(Passing):
    async def commit(self, commit: Commit) -> None:
        if commit.requests is not None:
            asked = await self.inner.pending_requests(thread_id=commit.lease.thread_id)
            commit = changed(commit, requests=[*asked, *commit.requests])
        await super().commit(commit)


@breaks(journal.threads_are_due_at_their_time_with_the_most_overdue_first)
class IsDueTooEarly(Passing):
    async def due(self, now: datetime, limit: int | None = None) -> Sequence[ThreadInfo]:
        return await super().due(FAR, limit)


@breaks(journal.threads_are_due_at_their_time_with_the_most_overdue_first)
class KeepsTheFirstTimer(Passing):
    async def commit(self, commit: Commit) -> None:
        threads = await self.inner.threads(thread_id=commit.lease.thread_id)
        first = threads[0].due_at if threads else None
        await super().commit(changed(commit, due_at=first or commit.due_at))


# ---------------------------------------------------------------- inbox


@breaks(journal.what_is_posted_is_read_in_order_until_a_commit_consumes_it)
class ReadsTheLastPostFirst(Passing):
    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        turned: OpenedThread = changed(opened, inbox=opened.inbox[::-1])
        return turned


@breaks(journal.an_item_is_delivered_once_however_often_it_is_posted)
class TakesTheSecondPost(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bodies: dict[str, bytes] = {}

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        self.bodies[item_id] = body
        await super().post(thread_id, item_id, kind, body)

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        opened = await super().open(thread_id, owner, takeover=takeover)
        later: OpenedThread = changed(
            opened, inbox=[changed(item, body=self.bodies[item.item_id]) for item in opened.inbox]
        )
        return later


class RemembersWhatWasConsumed(Passing):
    """Not broken yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.consumed: dict[str, set[str]] = defaultdict(set)

    async def commit(self, commit: Commit) -> None:
        await super().commit(commit)
        self.consumed[commit.lease.thread_id].update(commit.consumed)


@breaks(journal.an_item_is_delivered_once_however_often_it_is_posted)
class DeliversAgain(RemembersWhatWasConsumed):
    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        again = " again" if item_id in self.consumed[thread_id] else ""
        await super().post(thread_id, item_id + again, kind, body)


@breaks(journal.an_item_is_delivered_once_however_often_it_is_posted)
class ForgetsTheConsumedWithTheirCommit(RemembersWhatWasConsumed):
    was_pruned = False

    async def prune(self, thread_id: str, checkpoint_ids: Iterable[str], *, events_before: int = 0) -> int:
        self.was_pruned = True
        return await super().prune(thread_id, checkpoint_ids, events_before=events_before)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        again = " again" if self.was_pruned and item_id in self.consumed[thread_id] else ""
        await super().post(thread_id, item_id + again, kind, body)


@breaks(journal.an_item_is_delivered_once_however_often_it_is_posted)
class PostsAsAnOwner(Passing):
    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        opened = await self.inner.open(thread_id, "posting", takeover=True)
        await super().post(thread_id, item_id, kind, body)
        await self.inner.release(opened.lease)


@breaks(listing.threads_are_listed_with_those_that_moved_last_at_the_end)
class ListsWhatWasPostedTo(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.posted: list[str] = []

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        self.posted.append(thread_id)
        await super().post(thread_id, item_id, kind, body)

    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return [*await super().threads(**filters), *(ThreadInfo(thread_id, "", 0, "", "") for thread_id in self.posted)]


@breaks(journal.what_is_posted_is_read_in_order_until_a_commit_consumes_it)
class LosesPostsThatMeet(Passing):
    is_posting = False

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        if self.is_posting:
            return
        self.is_posting = True
        await asyncio.sleep(0)
        await super().post(thread_id, item_id, kind, body)
        self.is_posting = False
