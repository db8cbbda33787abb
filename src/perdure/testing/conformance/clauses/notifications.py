"""Notifications: subscribers receive what is published and notice changes; publishers never wait."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from perdure.store import Store, Subscription
from perdure.testing.conformance.clause import Needs, clause, clause_with, expect, expect_equal
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import own

LONG_SECONDS = 10.0
"""Longer than any subscription may take to notice a change, also on a machine that is busy with other work."""
MANY = 3000


async def notices(subscription: Subscription, what: str, act: Callable[[], Awaitable[object]]) -> None:
    """The subscription returns long before its time is up."""
    await act()
    began = time.monotonic()
    body = await subscription.next(LONG_SECONDS)
    expect_equal(f"the body received after {what}", body, None)
    expect(time.monotonic() - began < 0.9 * LONG_SECONDS, f"the subscription does not notice {what}")


async def bodies(subscription: Subscription, count: int) -> list[bytes]:
    """The next published bodies; ignores notifications of changes."""
    received: list[bytes] = []
    until = time.monotonic() + LONG_SECONDS
    while len(received) < count and time.monotonic() < until:
        body = await subscription.next(until - time.monotonic())
        if body is not None:
            received.append(body)
    return received


@clause
async def published_bodies_reach_all_subscribers_of_the_thread_in_order(store: Store) -> None:
    """Deliver a body, which is not stored, to the current subscribers of the thread."""
    store.publish("t", b'"before the first subscription"')
    async with store.subscribe("t") as first, store.subscribe("t") as second, store.subscribe("u") as other:
        for body in (b'"a"', b'{"b":1}', b'"c"'):
            store.publish("t", body)
        store.publish("u", b'"of another thread"')
        for subscription in (first, second):
            expect_equal("the bodies received", await bodies(subscription, 3), [b'"a"', b'{"b":1}', b'"c"'])
        expect_equal("the bodies received of another thread", await bodies(other, 1), [b'"of another thread"'])


@clause
async def commits_posts_and_releases_notify_subscribers(store: Store) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
    owner = await own(store)
    async with store.subscribe("t") as subscription:
        await notices(subscription, "a commit", owner.save)
        await notices(subscription, "a post", lambda: store.post("t", "item", "message", b"1"))
        await notices(subscription, "a release", owner.release)


@clause
async def a_subscription_returns_when_its_time_is_up(store: Store) -> None:
    """None if the thread may have changed, or after this time."""
    async with store.subscribe("t") as subscription:
        for seconds in (0, 0.05, 0.2):
            began = time.monotonic()
            expect_equal("the body received of a quiet thread", await subscription.next(seconds), None)
            expect(time.monotonic() - began < seconds + LONG_SECONDS, f"it did not return after {seconds} s")


@clause
async def a_thread_with_a_subscriber_has_subscribers(store: Store) -> None:
    """Whether the thread may have subscribers: False if `publish` would reach none, True if that is unknown."""
    async with store.subscribe("t"):
        expect(store.has_subscribers("t"), "has_subscribers is False, although a subscription is open")


@clause
async def publishing_never_waits_and_never_raises(store: Store) -> None:
    """Never waits and never raises: the body may be lost."""
    async with store.subscribe("t") as subscription:
        for number in range(MANY):  # more than a subscription holds
            store.publish("t", b'"%d"' % number)
            store.publish("u", b'"lost"')
        received = await bodies(subscription, 1)
        expect(received and received[0].startswith(b'"'), f"many bodies may be lost, but not all: received {received}")
    store.publish("t", b'"after the last subscription"')


@clause_with(Needs.TWO_OBJECTS)
async def subscribers_notice_changes_through_another_object(place: TrialLocation) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
    owner = await own(place.another())
    async with place.store.subscribe("t") as subscription:
        await notices(subscription, "a commit through another object", owner.save)
        await notices(subscription, "a release through another object", owner.release)


@clause_with(Needs.PROCESSES)
async def subscribers_notice_changes_in_another_process(place: TrialLocation) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
    process = await place.start_process()
    await process.do("open", "t", "run-1")
    async with place.store.subscribe("t") as subscription:
        await notices(subscription, "a commit in another process", lambda: process.do("save", "t", "c1"))
        head = await place.store.head("t")
        expect_equal("the head after the notification", head and head.info.checkpoint_id, "c1")
