"""Finding and listing checkpoints and threads: order, filters and pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.errors import CheckpointNotFound, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_one, expect_raises
from perdure.testing.conformance.threads import at, checkpoint_ids, own, save_thread, thread_ids


async def save_mixed_threads(store: Store) -> list[str]:
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
    expect_equal("checkpoints and threads", (list(await store.infos()), list(await store.threads())), ([], []))
    expect_equal("some of them", list(await store.infos(workflow_name="w", thread_id="t", limit=3)), [])
    expect_equal(
        "one of them, and a head", (await store.find_checkpoint("none"), await store.head("none")), (None, None)
    )
    expect_equal(
        "events", (list(await store.events_after("none", 0)), list(await store.events_after("none", None))), ([], [])
    )
    expect_equal("chunks", dict(await store.read_chunks("none", [1, 2])), {})
    expect_equal("requests and timers", (list(await store.pending_requests()), list(await store.due(at(9)))), ([], []))


@clause
async def checkpoints_are_listed_in_the_order_of_their_commits(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    order = await save_mixed_threads(store)
    expect_equal("the checkpoints", await checkpoint_ids(store), order)
    order.append((await (await own(store, "a", takeover=True, workflow_name="one")).save()).checkpoint_id)
    expect_equal("the checkpoints after one more", await checkpoint_ids(store), order)


@clause
async def checkpoints_are_listed_by_thread_and_by_workflow(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    await save_mixed_threads(store)
    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a"), ["a-1", "a-2", "a-3"])
    expect_equal(
        "those of a workflow", await checkpoint_ids(store, workflow_name="one"), ["a-1", "c-2", "a-2", "c-4", "a-3"]
    )
    expect_equal("those of both", await checkpoint_ids(store, workflow_name="one", thread_id="c"), ["c-2", "c-4"])
    expect_equal("a thread of another workflow", await checkpoint_ids(store, workflow_name="two", thread_id="c"), [])
    expect_equal(
        "none",
        (await checkpoint_ids(store, workflow_name="none"), await checkpoint_ids(store, thread_id="none")),
        ([], []),
    )


@clause
async def a_limit_keeps_the_newest(store: Store) -> None:
    """`limit` selects the newest ones"""
    order = await save_mixed_threads(store)
    for limit in (0, 1, 3, 100):
        newest = order[max(0, len(order) - limit) :]
        expect_equal(f"the checkpoints with limit {limit}", await checkpoint_ids(store, limit=limit), newest)
    expect_equal("those of a workflow", await checkpoint_ids(store, workflow_name="one", limit=2), ["c-4", "a-3"])


async def all_pages(read: Callable[..., Awaitable[list[str]]], store: Store, size: int, **filters: Any) -> list[str]:
    """What `read` gives in pages, read backwards."""
    pages: list[str] = []
    page = await read(store, **filters, limit=size)
    while page:
        expect(len(page) <= size, f"a page of at most {size} had {len(page)}")
        pages = page + pages
        expect(len(pages) <= 100, "paging backwards did not come to an end")
        page = await read(store, **filters, limit=size, before=page[0])
    return pages


@clause
async def limit_and_before_page_backwards_through_all_checkpoints(store: Store) -> None:
    """together they page backwards through a history"""
    await save_mixed_threads(store)
    filters: list[dict[str, str]] = [{}, {"thread_id": "b"}, {"workflow_name": "one"}]
    for chosen in filters:
        listed = await checkpoint_ids(store, **chosen)
        for size in (1, 2, 3, 100):
            expect_equal(
                f"pages of {size}, {chosen or 'all'}", await all_pages(checkpoint_ids, store, size, **chosen), listed
            )

    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a", before="b-2"), ["a-1", "a-2"])
    expect_equal(
        "those of a workflow", await checkpoint_ids(store, workflow_name="two", before="c-4", limit=5), ["b-1"]
    )


@clause
async def paging_before_an_unknown_checkpoint_is_an_error(store: Store) -> None:
    """Raises CheckpointNotFound if no checkpoint has the id `before`."""
    await save_mixed_threads(store)
    filters: list[dict[str, Any]] = [{}, {"thread_id": "a"}, {"workflow_name": "one"}, {"limit": 1}]
    for chosen in filters:
        await expect_raises(
            CheckpointNotFound, store.infos(before="none", **chosen), "paging before an unknown checkpoint"
        )


@clause
async def an_info_has_all_fields_of_its_checkpoint(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    owner = await own(store, "t", owner="run-0a1b", workflow_name="naïve workflow")
    first = await owner.save("c0ffee")
    second = await owner.save(status="WAITING", run_id="another", timestamp="2026-03-01T10:00:00.000123+00:00")
    third = await owner.save("C0FFEE", timestamp="2026-01-01T02:00:00+02:00")
    fourth = await owner.save("00", timestamp="yesterday")
    expect_equal("the checkpoints", list(await store.infos()), [first, second, third, fourth])
    for info in (first, second, third, fourth):
        checkpoint = await store.find_checkpoint(info.checkpoint_id)
        expect_equal(f"checkpoint {info.checkpoint_id!r}", None if checkpoint is None else checkpoint.info, info)


@clause
async def threads_are_listed_with_those_that_moved_last_at_the_end(store: Store) -> None:
    """Threads that have a commit, in the order of their last commits."""
    await save_mixed_threads(store)
    expect_equal("the threads", await thread_ids(store), ["c", "b", "a"])
    owner = await own(store, "c", owner="run-2", takeover=True)
    await owner.note(timestamp=at(-99).isoformat())  # its clock is of no importance
    expect_equal("the threads after one moved", await thread_ids(store), ["b", "a", "c"])
    expect_equal("those of a workflow", await thread_ids(store, workflow_name="one"), ["a", "c"])
    expect_equal("one of another workflow", await thread_ids(store, workflow_name="two", thread_id="a"), [])
    expect_equal(
        "one of them", (await thread_ids(store, thread_id="b"), await thread_ids(store, thread_id="d")), (["b"], [])
    )


@clause
async def limit_and_before_page_backwards_through_the_threads(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    for index in range(6):
        await save_thread(store, f"t{index}", workflow_name="odd" if index % 2 else "even", timestamp=at(0).isoformat())
    expect_equal("all pages", await all_pages(thread_ids, store, 2), [f"t{index}" for index in range(6)])
    expect_equal(
        "those of a workflow", await thread_ids(store, workflow_name="odd", before="t4", limit=5), ["t1", "t3"]
    )
    expect_equal("none", await thread_ids(store, limit=0), [])
    await expect_raises(ThreadNotFound, store.threads(before="none"), "paging before an unknown thread")


@clause
async def a_thread_is_listed_with_its_status_and_owner(store: Store) -> None:
    """A thread's status, read without its content."""
    owner = await own(store, "t", owner="run-7", workflow_name="old name")
    await owner.save()
    await owner.release()
    owner = await own(store, "t", owner="run-8", workflow_name="new name")
    await owner.save(due_at=at(100.5))
    await owner.note(status="FAILED")
    info = expect_one("the threads", await store.threads())
    expect_equal(
        "thread, workflow and owner", (info.thread_id, info.workflow_name, info.run_id), ("t", "new name", "run-8")
    )
    expect_equal(
        "number, status and time", (info.number, info.status, info.updated_at), (3, "FAILED", at(3).isoformat())
    )
    expect_equal("those of its old name", await thread_ids(store, workflow_name="old name"), [])
    expect_equal("its old checkpoint", await checkpoint_ids(store, workflow_name="old name"), ["t-1"])
    expect_equal("head and timer", (info.checkpoint_id, info.due_at), ("t-2", at(100.5)))


@clause
async def every_thread_of_which_something_is_kept_is_named(store: Store) -> None:
    """All threads of which anything is kept, also those that only have an inbox, in the order of their ids."""
    expect_equal("the ids in an empty store", list(await store.thread_ids()), [])
    for name in ("m", "Z", "é", "a b", "b"):
        await save_thread(store, name)
    await store.post("posted", "item", "message", b"1")
    recorded = await own(store, "recorded")
    await recorded.record(1)
    await store.delete_thread("b")
    expected = sorted(["m", "Z", "é", "a b", "posted", "recorded"])
    expect_equal("the ids", list(await store.thread_ids()), expected)


@clause
async def the_ids_of_threads_are_read_in_pages(store: Store) -> None:
    """All threads of which anything is kept, also those that only have an inbox, in the order of their ids."""
    names = [f"t{number}" for number in range(7)]
    for name in reversed(names):
        await store.post(name, "item", "message", b"1")
    for size in (1, 3, 7, 99):
        ids: list[str] = []
        while page := list(await store.thread_ids(after=ids[-1] if ids else None, limit=size)):
            expect(len(page) <= size, f"{len(page)} ids were read where {size} were asked for")
            ids += page
            expect(len(ids) < 20, "paging through the ids did not come to an end")
        expect_equal(f"all, {size} at a time", ids, names)
    expect_equal("after one that does not exist", list(await store.thread_ids(after="t3x")), names[4:])
    expect_equal("none of them", list(await store.thread_ids(limit=0)), [])


@clause
async def paging_finds_every_thread_after_others_were_pruned_deleted_and_copied(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    for name in "abc":
        await save_thread(store, name)
    await store.prune("c", ["c-1"])
    await save_thread(store, "d")  # the first commit since the newest one was pruned
    await store.delete_thread("d")
    await save_thread(store, "e")
    await store.copy_thread("a", "copy")
    expect_equal("all pages", await all_pages(thread_ids, store, 1), ["a", "b", "c", "e", "copy"])


@clause
async def a_thread_belongs_to_the_workflow_that_moved_it_last_also_when_that_is_pruned(store: Store) -> None:
    """Threads that have a commit, in the order of their last commits."""
    await save_thread(store, "t", workflow_name="one")
    await save_thread(store, "t", workflow_name="two", events=1)
    await store.prune("t", ["t-2"])
    of_both = [await thread_ids(store, workflow_name=name) for name in ("one", "two")]
    expect_equal("the threads of both workflows", of_both, [[], ["t"]])
    await save_thread(store, "t", workflow_name="one")
    expect_equal("those of the first", await thread_ids(store, workflow_name="one"), ["t"])
