"""Stores with broken notifications: to too many subscribers, too late, never, or with an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from pathlib import Path

from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.records import Lease
from perdure.store import Subscription
from perdure.stores.notify import LocalBus, LocalSubscription
from perdure.testing.conformance.clauses import events


@breaks(events.published_bodies_reach_all_subscribers_of_the_thread_in_order)
class PublishesToAll(Passing):
    def publish(self, thread_id: str, body: bytes) -> None:
        super().publish("t", body)
        super().publish("u", body)


@breaks(events.commits_posts_and_releases_notify_subscribers)
class ReleasesSilently(Passing):
    async def release(self, lease: Lease) -> None:
        bus = self.inner.bus  # type: ignore[attr-defined]  # of a MemoryStore
        subscriptions, bus.subscriptions = bus.subscriptions, {}
        await super().release(lease)
        bus.subscriptions = subscriptions


class Slow:
    """Ignores its time limit."""

    async def next(self, seconds: float) -> bytes | None:
        await asyncio.sleep(1.1)
        return None


@breaks(events.a_subscription_returns_when_its_time_is_up)
class DelaysSubscribers(Passing):
    @asynccontextmanager
    async def subscribe(self, thread_id: str) -> AsyncIterator[Subscription]:
        yield Slow()


@breaks(events.published_bodies_reach_all_subscribers_of_the_thread_in_order)
class DeniesSubscribers(Passing):
    def has_subscribers(self, thread_id: str) -> bool:
        return False


@breaks(events.publishing_never_waits_and_never_raises)
class FailsWhenFull(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.count = 0

    def publish(self, thread_id: str, body: bytes) -> None:
        self.count += 1
        if self.count > 1000:
            raise MemoryError("too many bodies")
        super().publish(thread_id, body)


@breaks(
    events.subscribers_notice_changes_through_another_object,
    events.subscribers_notice_changes_in_another_process,
)
class SubscribesToItself(OnDisk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.bus = self.inner.bus = LocalBus()  # type: ignore[attr-defined]  # of a SqliteStore

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        return LocalSubscription(self.bus, thread_id, lambda _: inf)
