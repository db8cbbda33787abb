"""The reads of a thread's followers: its event log, from any cursor without a gap or a repeat, and notifications."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from perdure.errors import CursorExpired
from perdure.records import LoggedEvents
from perdure.store import Store, Subscription
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_raises
from perdure.testing.conformance.location import TrialProcess
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    chunk,
    expect_state,
    first_seqs,
    make_events,
    own,
    read_everything,
    ref,
    save_line,
    save_thread,
)

CURSORS: list[tuple[int | None, list[int]]] = [
    *((cursor, [1, 4, 5]) for cursor in (None, -1, 0, 2)),
    *[(3, [4, 5]), (4, [5]), (5, [5]), (6, []), (99, [])],
]


async def four_commits(store: Store) -> ThreadOwner:
    """Events 1 to 3, none, 4, and 5 to 6."""
    owner = await own(store)
    await owner.save(events=3)
    await owner.save()
    await owner.note(events=1)
    await owner.save(events=2)
    return owner


@clause
async def events_are_read_from_the_commit_that_holds_the_next_without_gap_or_repeat(store: Store) -> None:
    """The packed events of all commits that hold an event newer than `seq`, in order; None: all that are kept."""
    owner, other = await four_commits(store), await own(store, "other")
    for cursor, firsts in CURSORS:
        expect_equal(f"what is read after {cursor}", await first_seqs(store, cursor), firsts)
    read: list[int] = []
    for turn in range(8):
        await other.save(events=1)
        if turn % 3:
            await owner.save(events=turn)
        else:
            await owner.note(events=turn + 1)
        for batch in await store.events_after("t", read[-1] if read else 0):
            read += range(batch.first_seq, batch.first_seq + batch.count)
    expect_equal("the events that were read, each time after the last", read, list(range(1, owner.last_seq + 1)))


@clause
async def events_name_their_commit_run_and_checkpoint(store: Store) -> None:
    """This and the fields below repeat their commit. The store fills them in when it reads events."""
    owner = await own(store, owner="run-0a")
    info = await owner.save(brings=["a"], events=1)
    own_events = make_events(2, 2, refers=False, own=(chunk("only the events")[0],))
    await owner.note(brings=["only the events"], events=own_events, run_id="run-2")
    of_commits = (1, "run-0a", info.timestamp, info), (2, "run-2", at(2).isoformat(), None)
    expected = [
        LoggedEvents(events.first_seq, events.count, events.body, False, events.own, *of_commit)
        for events, of_commit in zip((make_events(1), own_events), of_commits, strict=True)
    ]
    expect_equal("the events", await store.events_after("t", 0), expected)


@clause
async def events_of_a_pruned_checkpoint_stay_and_name_none(store: Store) -> None:
    """The events of their commits stay, except those of commits before `events_before`."""
    owner = await save_line(store, 3, events=1)
    before = [(batch.first_seq, batch.count, batch.body, batch.run_id) for batch in await store.events_after("t", 0)]
    await store.prune("t", ["t-1", "t-2"])
    after = await store.events_after("t", 0)
    expect_equal("the events", [(batch.first_seq, batch.count, batch.body, batch.run_id) for batch in after], before)
    expect_equal("their checkpoints", [batch.info and batch.info.checkpoint_id for batch in after], [None, None, "t-3"])
    await owner.save(drops=["c2"], events=make_events(4, refers=True))
    await owner.save(drops=["c3"], prunes=[3, 4])
    await store.prune("t", [])
    stored = [(batch.first_seq, batch.info) for batch in await store.events_after("t", 0)]
    expect_equal("the events and their checkpoints", stored, [(seq, None) for seq in (1, 2, 3, 4)])
    await expect_state(store, "that events refer to", chunks={ref("c3", 3)})


async def begins_at_four(store: Store) -> None:
    expect_equal("what is kept", await first_seqs(store, None), [4, 5])
    expect_equal("after the last that is gone", await first_seqs(store, 3), [4, 5])
    expect_equal("after the newest", await first_seqs(store, 99), [])
    for cursor in (-1, 0, 2):
        reading = store.events_after("t", cursor)
        error = await expect_raises(CursorExpired, reading, f"reading after {cursor}, which is pruned")
        expect_fields("the error", error, thread_id="t", oldest=4)


@clause
async def events_that_a_commit_prunes_are_gone_and_their_cursors_expire(store: Store) -> None:
    """Delete the events of all commits before this number."""
    owner = await four_commits(store)
    before = await read_everything(store)
    for number in (3, 2, 1, 0, 3):  # the first event that is kept does not move back
        await owner.note(prunes_events_before=number)
        await begins_at_four(store)
    expect_equal("how many went", await store.prune("t", [], events_before=2), 0)
    await begins_at_four(store)
    after = await read_everything(store)
    for name in ("infos", "checkpoints"):
        expect_equal(f"the {name}", after[name], before[name])
    await owner.save(events=1)
    expect_equal("the events after one more", await first_seqs(store, 4), [5, 7])
    await owner.save(events=1, prunes_events_before=10)
    expect_equal("what is kept when the commit before is pruned", await first_seqs(store, None), [7, 8])
    await store.prune("t", ["t-2"], events_before=4)
    expect_equal("what is kept then", await first_seqs(store, None), [7, 8])


@clause
async def the_last_event_is_known_also_when_all_are_pruned(store: Store) -> None:
    """The seq of the last event of the thread, kept or pruned; 0 if it has none."""
    expect_equal("that of a thread that does not exist", await store.last_seq("t"), 0)
    await store.post("t", "item", "message", b"1")
    expect_equal("that of one that was only posted to", await store.last_seq("t"), 0)
    owner = await four_commits(store)
    await (await own(store, "other")).save(events=9)
    expect_equal("that of four commits", await store.last_seq("t"), 6)
    await owner.note(status="FAILED")
    expect_equal("that after a commit without one", await store.last_seq("t"), 6)
    await owner.save(prunes_events_before=99)
    expect_equal("that of a log that is pruned", await store.last_seq("t"), 6)
    expect_equal("what is kept", await store.events_after("t", None), [])
    expect_equal("after the last", await store.events_after("t", 6), [])
    await expect_raises(CursorExpired, store.events_after("t", 5), "reading after 5, when 6 is pruned")
    await owner.release()
    await store.copy_thread("t", "copy")
    expect_equal("that of a copy", await store.last_seq("copy"), 6)
    again = await own(store)
    expect_equal("that which an owner finds", again.last_seq, 6)
    await again.save(events=1)
    expect_equal("what is kept then", await first_seqs(store, None), [7])
    await again.release()
    await store.delete_thread("t")
    expect_equal("that of a thread that is gone", await store.last_seq("t"), 0)


@clause
async def no_cursor_expires_where_no_event_was_pruned(store: Store, owner: ThreadOwner) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    await owner.save()
    await owner.save(prunes=[1], prunes_events_before=2)  # there was none
    for cursor in (-1, 0, None):
        expect_equal(f"the events after {cursor}", await first_seqs(store, cursor), [])
    await owner.save(events=1, prunes_events_before=3)
    for cursor in (-1, 0, None):
        expect_equal(f"the events after {cursor}, of the commit that prunes", await first_seqs(store, cursor), [1])


@clause
async def a_pruned_log_begins_where_it_does_in_a_copy_and_at_one_in_a_new_thread(store: Store) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    owner = await four_commits(store)
    await store.prune("t", [], events_before=3)
    await begins_at_four(store)
    await owner.release()
    await store.copy_thread("t", "copy")
    await expect_raises(CursorExpired, store.events_after("copy", 2), "reading a copy after 2, which is pruned")
    copy = await own(store, "copy")
    await copy.save(prunes_events_before=9)
    expect_equal("the events of the copy", await store.events_after("copy", None), [])
    await begins_at_four(store)
    await store.delete_thread("t")
    expect_equal("the events of a deleted thread", await store.events_after("t", 0), [])
    await save_thread(store, "t", events=2)
    expect_equal("those of a new one", await first_seqs(store), [1])


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
        expect(store.has_subscribers("t"), "has_subscribers is False, although a subscription is open")
        for body in (b'"a"', b'{"b":1}', b'"c"'):
            store.publish("t", body)
        store.publish("u", b'"of another thread"')
        for subscription in (first, second):
            expect_equal("the bodies received", await bodies(subscription, 3), [b'"a"', b'{"b":1}', b'"c"'])
        expect_equal("the bodies received of another thread", await bodies(other, 1), [b'"of another thread"'])


@clause
async def commits_posts_and_releases_notify_subscribers(store: Store, owner: ThreadOwner) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
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
async def publishing_never_waits_and_never_raises(store: Store) -> None:
    """Never waits and never raises: the body may be lost."""
    async with store.subscribe("t") as subscription:
        for number in range(MANY):  # more than a subscription holds
            store.publish("t", b'"%d"' % number)
            store.publish("u", b'"lost"')
        received = await bodies(subscription, 1)
        expect(received and received[0].startswith(b'"'), f"many bodies may be lost, but not all: received {received}")
    store.publish("t", b'"after the last subscription"')


@clause
async def subscribers_notice_changes_through_another_object(store: Store, second: Store) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
    owner = await own(second)
    async with store.subscribe("t") as subscription:
        await notices(subscription, "a commit through another object", owner.save)
        await notices(subscription, "a release through another object", owner.release)


@clause
async def subscribers_notice_changes_in_another_process(store: Store, process: TrialProcess) -> None:
    """Receive what is published, and notice commits, posts and releases of the thread, in this process and others."""
    await process.do("open", "t", "run-1")
    async with store.subscribe("t") as subscription:
        await notices(subscription, "a commit in another process", lambda: process.do("save", "t", "c1"))
        await expect_state(store, "after the notification", head="c1")
