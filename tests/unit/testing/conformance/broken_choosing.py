"""Stores that list other threads than those that were asked for, or return a wrong last event."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from tests.unit.testing.conformance.passing import Passing, breaks

from perdure.records import PendingRequest, ThreadInfo
from perdure.testing.conformance.clauses import events, listing


@breaks(listing.threads_and_requests_are_listed_by_the_beginning_of_thread_ids)
class ListsEverybodys(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return await super().threads(**{**filters, "prefix": None})


@breaks(listing.any_prefix_lists_what_begins_with_it)
class TakesAPrefixForAPattern(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        pattern = filters.pop("prefix").replace("%", "*").replace("_", "?") + "*"
        return [thread for thread in await super().threads(**filters) if fnmatchcase(thread.thread_id, pattern)]


@breaks(listing.limit_and_before_page_backwards_through_the_threads)
class LimitsBeforeItChooses(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        prefix = filters.pop("prefix", None) or ""
        return [thread for thread in await super().threads(**filters) if thread.thread_id.startswith(prefix)]


@breaks(listing.threads_and_requests_are_listed_by_the_beginning_of_thread_ids)
class ShowsEverybodysRequests(Passing):
    async def pending_requests(self, **filters: Any) -> Sequence[PendingRequest]:
        return await super().pending_requests(**{**filters, "prefix": None})


@breaks(listing.every_thread_of_which_something_is_kept_is_named_in_pages)
class RestartsEachPage(Passing):
    async def thread_ids(self, **filters: Any) -> Sequence[str]:
        if filters.get("prefix"):
            filters.pop("after", None)
        return await super().thread_ids(**filters)


@breaks(listing.threads_are_listed_by_their_status)
class TakesNoStatusForAny(Passing):
    async def threads(self, **filters: Any) -> Sequence[ThreadInfo]:
        return await super().threads(**{**filters, "statuses": filters.get("statuses") or None})


@breaks(events.the_last_event_is_known_also_when_all_are_pruned)
class CountsWhatIsKept(Passing):
    async def last_seq(self, thread_id: str) -> int:
        kept = await self.inner.events_after(thread_id, None)
        return kept[-1].first_seq + kept[-1].count - 1 if kept else 0
