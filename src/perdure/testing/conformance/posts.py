"""The inbox: what others send to a thread is there once, until a commit takes it in."""

from __future__ import annotations

import asyncio

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.acts import inside, own, saved, thread_ids
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import refused, same


async def items(store: Store, thread_id: str = "t") -> list[tuple[str, str, bytes]]:
    found: list[tuple[str, str, bytes]] = (await inside(store, thread_id))["inbox"]
    return found


@clause
async def what_is_posted_is_read_in_order_until_a_commit_consumes_it(store: Store) -> None:
    """Put an item into the thread's inbox."""
    for item in ("b", "a", "c"):
        await store.post("t", item, f"kind {item}", f'"{item}"'.encode())
    owner = await own(store)
    got = [(one.item_id, one.kind, one.body) for one in owner.opened.inbox]
    same("the inbox", got, [("b", "kind b", b'"b"'), ("a", "kind a", b'"a"'), ("c", "kind c", b'"c"')])
    await store.post("u", "a", "message", b"1")
    await owner.save(consumed=["a"])
    await owner.note(consumed=["c", "never posted"])
    same("the inbox after a and c were consumed", await items(store), [("b", "kind b", b'"b"')])
    same("the inbox of another thread", await items(store, "u"), [("a", "message", b"1")])


@clause
async def an_item_posted_twice_is_one_the_first(store: Store) -> None:
    """Needs no lease; posting one `item_id` again does nothing."""
    await store.post("t", "item", "message", b'"first"')
    await store.post("t", "item", "cancel", b'"second"')
    same("the inbox", await items(store), [("item", "message", b'"first"')])


@clause
async def an_item_posted_again_after_it_was_consumed_is_not_delivered_again(store: Store) -> None:
    """Needs no lease; posting one `item_id` again does nothing."""
    await store.post("t", "item", "message", b'"first"')
    owner = await own(store)
    await owner.save(consumed=["item"])
    await store.post("t", "item", "message", b'"again"')
    same("the inbox", await items(store), [])


@clause
async def an_item_stays_consumed_when_its_commit_is_pruned(store: Store) -> None:
    """Needs no lease; posting one `item_id` again does nothing."""
    await store.post("t", "item", "message", b"1")
    owner = await own(store)
    await owner.save(consumed=["item"])
    await owner.save()
    await store.prune("t", ["t-1"])
    await store.post("t", "item", "message", b"2")
    same("the inbox", await items(store), [])


@clause
async def posting_needs_no_lease_and_disturbs_no_owner(store: Store) -> None:
    """Needs no lease; posting one `item_id` again does nothing."""
    owner = await own(store)
    await store.post("t", "item", "message", b"1")
    await refused(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held and was posted to")
    await owner.save()
    same("the inbox", await items(store), [("item", "message", b"1")])


@clause
async def a_thread_that_was_only_posted_to_is_not_listed(store: Store) -> None:
    """Threads that have a commit, those that moved last at the end."""
    await saved(store, "moved")
    await store.post("t", "item", "message", b"1")
    same("the threads", await thread_ids(store), ["moved"])
    same("its head", await store.head("t"), None)
    owner = await own(store)
    same("number and inbox", (owner.number, [one.item_id for one in owner.opened.inbox]), (0, ["item"]))


@clause
async def many_posts_at_once_are_all_kept(store: Store) -> None:
    """Put an item into the thread's inbox."""
    await asyncio.gather(*(store.post("t", f"item {index % 15}", "message", b"1") for index in range(30)))
    found = sorted(one for one, _, _ in await items(store))
    same("the inbox", found, sorted(f"item {index}" for index in range(15)))
