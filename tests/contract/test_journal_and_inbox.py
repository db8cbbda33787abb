"""What is recorded before a superstep is committed, and what others send to a thread."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.threads import own, read_as_owner, save_thread, thread_ids


async def test_the_journal_is_read_in_the_order_it_was_written(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    written = [(3, b'"a"'), (1, b'"b"'), (3, b'"c"'), (2, b'"d"'), (3, b'"a"')]
    for delivery_id, body in written:
        await owner.record(delivery_id, body)
    opened = await store.open("t", "run-2", takeover=True)
    assert [(one.delivery_id, one.body) for one in opened.journal] == written
    assert {one.number for one in opened.journal} == {opened.number}


async def test_the_journal_of_a_thread_without_a_commit_is_kept(store: Store) -> None:
    owner = await own(store)
    await owner.record(1)
    assert [one for one, _ in (await read_as_owner(store, "t"))["journal"]] == [1]


async def test_journal_entries_go_with_the_next_checkpoint(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await owner.record(1)
    await owner.record(2)
    await owner.save()
    await owner.note()
    assert (await read_as_owner(store, "t"))["journal"] == []


async def test_journal_entries_of_unsettled_deliveries_stay_over_any_number_of_checkpoints(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    for delivery_id in (1, 2, 1, 3):
        await owner.record(delivery_id, f'"{delivery_id} at 1"'.encode())
    await owner.save(unsettled=[1, 3])
    await owner.record(1, b'"1 at 2"')
    await owner.save(unsettled=[1, 99])
    opened = await store.open("t", "run-2", takeover=True)
    assert [one.body for one in opened.journal] == [b'"1 at 1"', b'"1 at 1"', b'"1 at 2"']
    assert {one.number for one in opened.journal} == {3}


async def test_a_commit_without_a_checkpoint_keeps_all_journal_entries(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await owner.record(1)
    await owner.note(status="FAILED")
    await owner.note(unsettled=[7])
    opened = await store.open("t", "run-2", takeover=True)
    assert [(one.delivery_id, one.number) for one in opened.journal] == [(1, 3)]


async def test_the_journals_of_two_threads_are_two(store: Store) -> None:
    one, two = await own(store, "one"), await own(store, "two")
    await one.record(1, b'"one"')
    await two.record(1, b'"two"')
    await one.save()
    assert (await read_as_owner(store, "one"))["journal"] == []
    assert (await read_as_owner(store, "two"))["journal"] == [(1, b'"two"')]


# ---------------------------------------------------------------- inbox


async def test_what_is_posted_is_read_in_order_until_a_commit_consumes_it(store: Store) -> None:
    for item in ("b", "a", "c"):
        await store.post("t", item, f"kind {item}", f'"{item}"'.encode())
    owner = await own(store)
    assert [(one.item_id, one.kind, one.body) for one in owner.opened.inbox] == [
        ("b", "kind b", b'"b"'),
        ("a", "kind a", b'"a"'),
        ("c", "kind c", b'"c"'),
    ]
    await owner.save(consumed=["a"])
    await owner.note(consumed=["c", "never posted"])
    assert [one for one, _, _ in (await read_as_owner(store, "t"))["inbox"]] == ["b"]


async def test_an_item_posted_twice_is_one_the_first(store: Store) -> None:
    await store.post("t", "item", "message", b'"first"')
    await store.post("t", "item", "cancel", b'"second"')
    assert (await read_as_owner(store, "t"))["inbox"] == [("item", "message", b'"first"')]


async def test_an_item_posted_again_after_it_was_consumed_is_not_delivered_again(store: Store) -> None:
    """Whoever posted it may not have heard that it was acknowledged, and tries again."""
    await store.post("t", "item", "message", b'"first"')
    owner = await own(store)
    await owner.save(consumed=["item"])
    await store.post("t", "item", "message", b'"again"')
    assert (await read_as_owner(store, "t"))["inbox"] == []


async def test_consuming_what_was_never_posted_does_not_stop_it_from_coming(store: Store) -> None:
    owner = await own(store)
    await owner.save(consumed=["item"])
    await store.post("t", "item", "message", b"1")
    assert (await read_as_owner(store, "t"))["inbox"] == [("item", "message", b"1")]


async def test_an_item_consumed_by_a_commit_that_was_pruned_is_still_consumed(store: Store) -> None:
    await store.post("t", "item", "message", b"1")
    owner = await own(store)
    await owner.save(consumed=["item"])
    await owner.save()
    await store.prune("t", ["t-1"])
    await store.post("t", "item", "message", b"2")
    assert (await read_as_owner(store, "t"))["inbox"] == []


async def test_posting_needs_no_lease_and_disturbs_no_owner(store: Store) -> None:
    owner = await own(store)
    await store.post("t", "item", "message", b"1")
    with pytest.raises(ThreadBusy):
        await store.open("t", "run-2")
    await owner.save()
    assert len((await read_as_owner(store, "t"))["inbox"]) == 1


async def test_a_thread_that_was_only_posted_to_is_not_listed_and_has_no_head(store: Store) -> None:
    await save_thread(store, "moved")
    await store.post("t", "item", "message", b"1")
    assert await thread_ids(store) == ["moved"] and await store.head("t") is None
    owner = await own(store)
    assert (owner.number, [one.item_id for one in owner.opened.inbox]) == (0, ["item"])


async def test_one_item_id_in_two_threads_is_two_items(store: Store) -> None:
    await store.post("one", "item", "message", b'"1"')
    await store.post("two", "item", "message", b'"2"')
    owner = await own(store, "one")
    await owner.save(consumed=["item"])
    assert (await read_as_owner(store, "one"))["inbox"] == []
    assert (await read_as_owner(store, "two"))["inbox"] == [("item", "message", b'"2"')]


async def test_many_posts_at_once_are_all_kept(store: Store) -> None:
    await asyncio.gather(*(store.post("t", f"item {index % 25}", "message", b"1") for index in range(50)))
    found = [one for one, _, _ in (await read_as_owner(store, "t"))["inbox"]]
    assert sorted(found) == sorted(f"item {index}" for index in range(25))
