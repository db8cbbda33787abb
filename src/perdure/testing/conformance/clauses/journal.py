"""The waiting parts of a thread: recorded deliveries, questions to people, timers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect_equal, expect_one, expect_raises, run_together
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    due_ids,
    expect_owner_finds,
    expect_state,
    make_request,
    own,
    pending,
    read_as_owner,
    save_thread,
)


@clause
async def a_checkpoint_removes_journal_entries_but_for_unsettled_deliveries(store: Store, owner: ThreadOwner) -> None:
    """A checkpoint removes the journal entries of all deliveries except those that it names unsettled"""
    await owner.record(9, b'"before the first commit"')
    await expect_owner_finds(store, journal=[(9, b'"before the first commit"')])
    owner, other = await own(store), await own(store, "other")
    await other.record(1, b'"other"')
    await owner.save()
    written = [(3, b'"a"'), (1, b'"b"'), (3, b'"c"'), (2, b'"d"'), (3, b'"a"')]
    for delivery_id, body in written:
        await owner.record(delivery_id, body)
    owner = await own(store, owner="run-2", takeover=True)
    await expect_owner_finds(owner.opened, journal=written)
    expect_equal("the head that entries extend", {entry.number for entry in owner.opened.journal}, {1})
    await owner.save(unsettled=[1, 3])
    await owner.record(1, b'"e"')
    await owner.save(unsettled=[1, 99])
    owner = await own(store, takeover=True)
    await expect_owner_finds(owner.opened, journal=[(1, b'"b"'), (1, b'"e"')])
    expect_equal("the head that entries extend", {entry.number for entry in owner.opened.journal}, {3})
    await owner.save()
    await expect_owner_finds(store, journal=[])
    await expect_owner_finds(store, "other", journal=[(1, b'"other"')])


async def request_times(store: Store) -> list[tuple[str, datetime]]:
    return [(request.request_id, request.asked_at) for request in await store.pending_requests()]


@clause
async def requests_are_listed_with_those_that_wait_longest_first(store: Store) -> None:
    """Requests that wait for an answer, across threads, the oldest first."""
    early = make_request("b", "early/1", 10.000001, deadline=at(99.5), assignee="ann@example.com")
    await save_thread(store, "b", requests=[make_request("b", "late", 30), early], workflow_name="naïve")
    await save_thread(store, "a", requests=[make_request("a", "middle", 20)], workflow_name="other")
    of_all = [("b", "early/1"), ("a", "middle"), ("b", "late")]
    expect_equal("all", await pending(store), of_all)
    expect_equal("the first two", await pending(store, limit=2), of_all[:2])
    expect_equal("none", await pending(store, limit=0), [])
    expect_equal("those of a thread", await pending(store, thread_id="b"), of_all[::2])
    expect_equal("those of a workflow", await pending(store, workflow_name="other"), of_all[1:2])
    expect_equal("those of no thread", await pending(store, thread_id="none"), [])
    listed = msgspec.structs.replace(early, workflow_name="naïve")
    expect_equal("the first, with all its fields", await store.pending_requests(limit=1), [listed])


@clause
async def a_commit_replaces_the_pending_requests_of_its_thread_or_leaves_them(store: Store, owner: ThreadOwner) -> None:
    """All pending requests; None if they did not change."""
    await save_thread(store, "other", requests=[make_request("other", "second", 20)])
    await owner.save(requests=[make_request("t", "first", 1), make_request("t", "gone", 1)])
    await owner.save(requests=[make_request("t", "first", 2), make_request("t", "second", 2)])
    await owner.note(status="FAILED")
    await owner.save()
    expected = [("first", at(1)), ("second", at(2)), ("second", at(20))]
    expect_equal("what is pending since when", await request_times(store), expected)
    await owner.save(requests=[make_request("t", "second", 9)])
    await owner.save(requests=[make_request("t", "first", 4), make_request("t", "second", 9)])
    await owner.save()
    await store.prune("t", ["t-6"])
    expected = [("second", at(2)), ("first", at(4)), ("second", at(20))]
    expect_equal("what is pending after one was asked again", await request_times(store), expected)
    await owner.note(requests=[])
    expect_equal("what is pending after all were answered", await pending(store), [("other", "second")])
    await store.prune("other", ["other-1"])
    await expect_state(store, "after the head is pruned", requests=[])


@clause
async def threads_are_due_at_their_time_with_the_most_overdue_first(store: Store) -> None:
    """Threads without an owner that are due at this time, the most overdue first."""
    for name, seconds in [("b", 90), ("a", 20), ("d", 40), ("c", 20), ("b", 30)]:  # the last checkpoint decides
        await save_thread(store, name, due_at=at(seconds))
    await save_thread(store, "never", due_at=at(1))
    await save_thread(store, "never")
    expect_equal("before the first", await due_ids(store, at(19.999999)), [])
    expect_equal("at the first", sorted(await due_ids(store, at(20))), ["a", "c"])
    expect_equal("later", (await due_ids(store, at(35)))[2:], ["b"])
    first = expect_one("the most overdue", await store.due(at(1000), 1))
    expect_equal("the most overdue", first, expect_one("its thread", await store.threads(thread_id=first.thread_id)))
    expect_equal("when it is due", first.due_at, at(20))
    expect_equal("all", (await due_ids(store, at(1000)))[2:], ["b", "d"])
    expect_equal("none of them", await store.due(at(1000), 0), [])
    owner = await own(store, "b")
    expect_equal("all but one that has an owner", (await due_ids(store, at(1000)))[2:], ["d"])
    await owner.release()
    expect_equal("all after its release", (await due_ids(store, at(1000)))[2:], ["b", "d"])


@clause
async def what_is_posted_is_read_in_order_until_a_commit_consumes_it(store: Store) -> None:
    """Put an item into the thread's inbox."""
    for item in ("b", "a", "c"):
        await store.post("t", item, f"kind {item}", f'"{item}"'.encode())
    owner = await own(store)
    first = ("b", "kind b", b'"b"')
    await expect_owner_finds(owner.opened, inbox=[first, ("a", "kind a", b'"a"'), ("c", "kind c", b'"c"')])
    await store.post("u", "a", "message", b"1")
    await owner.save(consumed=["a"])
    await owner.note(consumed=["c", "never posted"])
    await store.post("t", "never posted", "message", b"1")
    await expect_state(store, "with an item that comes late", inbox=["b", "never posted"])
    owner = await own(store, takeover=True)
    await owner.note(consumed=["never posted"])
    await expect_owner_finds(store, inbox=[first])
    await expect_owner_finds(store, "u", inbox=[("a", "message", b"1")])
    await run_together(*(store.post("many", f"item {index % 15}", "message", b"1") for index in range(30)))
    item_ids = sorted(item for item, _, _ in (await read_as_owner(store, "many"))["inbox"])
    expect_equal("what was posted at once", item_ids, sorted(f"item {index}" for index in range(15)))


@clause
async def an_item_is_delivered_once_however_often_it_is_posted(store: Store, owner: ThreadOwner) -> None:
    """Needs no lease; posting one `item_id` again has no effect."""
    await store.post("t", "item", "message", b'"first"')
    await store.post("t", "item", "cancel", b'"second"')
    await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held and was posted to")
    await owner.save()
    await expect_owner_finds(store, inbox=[("item", "message", b'"first"')])
    owner = await own(store)
    await owner.save(consumed=["item"])
    await store.post("t", "item", "message", b'"again"')
    await expect_state(store, "after it was consumed", inbox=[])
    owner = await own(store)
    await owner.save()
    await store.prune("t", ["t-2"])
    await store.post("t", "item", "message", b'"after its commit is pruned"')
    await expect_state(store, "after its commit is pruned", inbox=[])
