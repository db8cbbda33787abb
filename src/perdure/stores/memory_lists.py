"""Lists of threads in memory and of what they ask. All are looked at: nothing is read for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from perdure.errors import ThreadNotFound
from perdure.records import PendingRequest, ThreadInfo
from perdure.stores.memory_thread import MemoryThread
from perdure.stores.memory_whole import requests_of


class Wanted(NamedTuple):
    """Which threads a list is of: all, but for what is given."""

    workflow_name: str | None = None
    thread_id: str | None = None
    prefix: str | None = None
    statuses: Collection[str] | None = None

    def has(self, thread_id: str, thread: MemoryThread) -> bool:
        return (
            thread_id.startswith(self.prefix or "")
            and self.thread_id in (None, thread_id)
            and self.workflow_name in (None, thread.workflow_name)
            and (self.statuses is None or thread.status in self.statuses)
        )


def listed_threads(
    threads: Mapping[str, MemoryThread], wanted: Wanted, limit: int | None, before: str | None
) -> list[ThreadInfo]:
    """Raises ThreadNotFound."""
    if before is not None and before not in threads:
        raise ThreadNotFound(before)
    found = [(one.moved, key) for key, one in threads.items() if one.number and wanted.has(key, one)]
    if before is not None:
        found = [(moved, key) for moved, key in found if moved < threads[before].moved]
    newest = sorted(found)[0 if limit is None else max(0, len(found) - limit) :]
    return [thread_info(key, threads[key]) for _, key in newest]


def listed_requests(threads: Mapping[str, MemoryThread], wanted: Wanted, limit: int | None) -> list[PendingRequest]:
    found = [
        one
        for key, thread in threads.items()
        if thread.requests and wanted.has(key, thread)
        for one in requests_of(key, thread)
    ]
    return sorted(found, key=lambda one: (one.asked_at, one.thread_id, one.request_id))[:limit]


def listed_due(threads: Mapping[str, MemoryThread], now: datetime, limit: int | None) -> list[ThreadInfo]:
    due = [
        (thread.due_at, key)
        for key, thread in threads.items()
        if thread.due_at is not None and thread.due_at <= now and thread.owner is None
    ]
    return [thread_info(key, threads[key]) for _, key in sorted(due)[:limit]]


def thread_info(thread_id: str, thread: MemoryThread) -> ThreadInfo:
    info = None if thread.head is None else thread.head.info
    return ThreadInfo(
        thread_id,
        thread.workflow_name,
        thread.number,
        thread.status,
        thread.updated_at,
        None if info is None else info.checkpoint_id,
        thread.due_at,
        thread.owner,
    )
