"""Finding and listing checkpoints and threads: order, filters and pages."""

from __future__ import annotations

from typing import Any

from perdure.errors import CheckpointNotFound, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.acts import at, ids, own, saved, thread_ids
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import holds, refused, same, the_one


async def mixed(store: Store) -> list[str]:
    """Three threads of two workflows that move in turns; their checkpoints in the order of commits."""
    names = {"a": "one", "b": "two", "c": "one"}
    owners = {name: await own(store, name, workflow_name=workflow) for name, workflow in names.items()}
    order = []
    for name in "abcacbba":
        if name == "c":
            await owners[name].note()  # takes a number, but is no checkpoint
        order.append((await owners[name].save()).checkpoint_id)
    return order


@clause
async def an_empty_store_has_nothing(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    same("checkpoints and threads", (list(await store.infos()), list(await store.threads())), ([], []))
    same("some of them", list(await store.infos(workflow_name="w", thread_id="t", limit=3)), [])
    same("one of them, and a head", (await store.find_checkpoint("none"), await store.head("none")), (None, None))
    same("events", (list(await store.events_after("none", 0)), list(await store.events_after("none", None))), ([], []))
    same("chunks", dict(await store.read_chunks("none", [1, 2])), {})
    same("requests and timers", (list(await store.pending_requests()), list(await store.due(at(9)))), ([], []))


@clause
async def checkpoints_are_listed_in_the_order_of_their_commits(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    order = await mixed(store)
    same("the checkpoints", await ids(store), order)
    order.append((await (await own(store, "a", takeover=True, workflow_name="one")).save()).checkpoint_id)
    same("the checkpoints after one more", await ids(store), order)


@clause
async def checkpoints_are_listed_by_thread_and_by_workflow(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    await mixed(store)
    same("those of a thread", await ids(store, thread_id="a"), ["a-1", "a-2", "a-3"])
    same("those of a workflow", await ids(store, workflow_name="one"), ["a-1", "c-2", "a-2", "c-4", "a-3"])
    same("those of both", await ids(store, workflow_name="one", thread_id="c"), ["c-2", "c-4"])
    same("a thread of another workflow", await ids(store, workflow_name="two", thread_id="c"), [])
    same("nobody's", (await ids(store, workflow_name="none"), await ids(store, thread_id="none")), ([], []))


@clause
async def a_limit_keeps_the_newest(store: Store) -> None:
    """`limit` keeps the newest ones"""
    order = await mixed(store)
    for limit in (0, 1, 3, 100):
        newest = order[max(0, len(order) - limit) :]
        same(f"the checkpoints with limit {limit}", await ids(store, limit=limit), newest)
    same("those of a workflow", await ids(store, workflow_name="one", limit=2), ["c-4", "a-3"])


async def all_pages(store: Store, size: int, **filters: Any) -> list[str]:
    pages: list[str] = []
    page = await ids(store, **filters, limit=size)
    while page:
        holds(len(page) <= size, f"a page of at most {size} had {len(page)}")
        pages = page + pages
        holds(len(pages) <= 100, "paging backwards did not come to an end")
        page = await ids(store, **filters, limit=size, before=page[0])
    return pages


@clause
async def limit_and_before_page_backwards_through_all_checkpoints(store: Store) -> None:
    """together they page backwards through a history"""
    await mixed(store)
    filters: list[dict[str, str]] = [{}, {"thread_id": "b"}, {"workflow_name": "one"}]
    for chosen in filters:
        listed = await ids(store, **chosen)
        for size in (1, 2, 3, 100):
            same(f"pages of {size}, {chosen or 'all'}", await all_pages(store, size, **chosen), listed)

    same("those of a thread", await ids(store, thread_id="a", before="b-2"), ["a-1", "a-2"])
    same("those of a workflow", await ids(store, workflow_name="two", before="c-4", limit=5), ["b-1"])


@clause
async def before_a_checkpoint_that_there_is_not_is_an_error(store: Store) -> None:
    """Raises CheckpointNotFound for a `before` that there is not."""
    await mixed(store)
    filters: list[dict[str, Any]] = [{}, {"thread_id": "a"}, {"workflow_name": "one"}, {"limit": 1}]
    for chosen in filters:
        await refused(CheckpointNotFound, store.infos(before="none", **chosen), "paging before an unknown checkpoint")


@clause
async def an_info_says_all_that_was_said_of_its_checkpoint(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    owner = await own(store, "t", owner="run-0a1b", workflow_name="naïve workflow")
    first = await owner.save("c0ffee")
    second = await owner.save(status="WAITING", run_id="another", timestamp="2026-03-01T10:00:00.000123+00:00")
    third = await owner.save("C0FFEE", timestamp="2026-01-01T02:00:00+02:00")
    fourth = await owner.save("00", timestamp="yesterday")
    same("the checkpoints", list(await store.infos()), [first, second, third, fourth])
    for info in (first, second, third, fourth):
        found = await store.find_checkpoint(info.checkpoint_id)
        same(f"checkpoint {info.checkpoint_id!r}", None if found is None else found.info, info)


# ---------------------------------------------------------------- threads


@clause
async def threads_are_listed_with_those_that_moved_last_at_the_end(store: Store) -> None:
    """Threads that have a commit, those that moved last at the end."""
    await mixed(store)
    same("the threads", await thread_ids(store), ["c", "b", "a"])
    owner = await own(store, "c", owner="run-2", takeover=True)
    await owner.note(timestamp=at(-99).isoformat())  # whatever its clock says
    same("the threads after one moved", await thread_ids(store), ["b", "a", "c"])
    same("those of a workflow", await thread_ids(store, workflow_name="one"), ["a", "c"])
    same("one of them", (await thread_ids(store, thread_id="b"), await thread_ids(store, thread_id="d")), (["b"], []))


@clause
async def limit_and_before_page_backwards_through_the_threads(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    for index in range(6):
        await saved(store, f"t{index}", workflow_name="odd" if index % 2 else "even", timestamp=at(0).isoformat())
    pages: list[str] = []
    page = await thread_ids(store, limit=2)
    while page and len(pages) < 20:
        pages = page + pages
        page = await thread_ids(store, limit=2, before=page[0])
    same("all pages", pages, [f"t{index}" for index in range(6)])
    same("those of a workflow", await thread_ids(store, workflow_name="odd", before="t4", limit=5), ["t1", "t3"])
    same("none", await thread_ids(store, limit=0), [])
    await refused(ThreadNotFound, store.threads(before="none"), "paging before an unknown thread")


@clause
async def a_thread_says_where_it_stands_and_who_owns_it(store: Store) -> None:
    """Where a thread stands, without reading what is in it."""
    owner = await own(store, "t", owner="run-7", workflow_name="old name")
    await owner.save()
    await owner.release()
    owner = await own(store, "t", owner="run-8", workflow_name="new name")
    await owner.save(due_at=at(100.5))
    await owner.note(status="FAILED")
    info = the_one("the threads", await store.threads())
    same("thread, workflow and owner", (info.thread_id, info.workflow_name, info.run_id), ("t", "new name", "run-8"))
    same("number, status and time", (info.number, info.status, info.updated_at), (3, "FAILED", at(3).isoformat()))
    same("head and timer", (info.checkpoint_id, info.due_at), ("t-2", at(100.5)))


@clause
async def every_thread_of_which_something_is_kept_is_named(store: Store) -> None:
    """All threads of which anything is kept, also those that were only posted to, in the order of their ids."""
    same("the ids in an empty store", list(await store.thread_ids()), [])
    for name in ("m", "Z", "é", "a b", "b"):
        await saved(store, name)
    await store.post("posted", "item", "message", b"1")
    recorded = await own(store, "recorded")
    await recorded.record(1)
    await store.delete_thread("b")
    expected = sorted(["m", "Z", "é", "a b", "posted", "recorded"])
    same("the ids", list(await store.thread_ids()), expected)


@clause
async def the_ids_of_threads_are_read_in_pages(store: Store) -> None:
    """All threads of which anything is kept, also those that were only posted to, in the order of their ids."""
    names = [f"t{number}" for number in range(7)]
    for name in reversed(names):
        await store.post(name, "item", "message", b"1")
    for size in (1, 3, 7, 99):
        found: list[str] = []
        while page := list(await store.thread_ids(after=found[-1] if found else None, limit=size)):
            holds(len(page) <= size, f"{len(page)} ids were read where {size} were asked for")
            found += page
            holds(len(found) < 20, "paging through the ids did not come to an end")
        same(f"all, {size} at a time", found, names)
    same("after one that there is not", list(await store.thread_ids(after="t3x")), names[4:])
    same("none of them", list(await store.thread_ids(limit=0)), [])
