"""Finding and listing checkpoints and threads: order, filters and pages."""

from __future__ import annotations

from typing import Any

from perdure.errors import CheckpointNotFound, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_one, expect_raises
from perdure.testing.conformance.threads import at, checkpoint_ids, make_request, own, save_thread, thread_ids


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
    order = await mixed(store)
    expect_equal("the checkpoints", await checkpoint_ids(store), order)
    order.append((await (await own(store, "a", takeover=True, workflow_name="one")).save()).checkpoint_id)
    expect_equal("the checkpoints after one more", await checkpoint_ids(store), order)


@clause
async def checkpoints_are_listed_by_thread_and_by_workflow(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    await mixed(store)
    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a"), ["a-1", "a-2", "a-3"])
    expect_equal(
        "those of a workflow", await checkpoint_ids(store, workflow_name="one"), ["a-1", "c-2", "a-2", "c-4", "a-3"]
    )
    expect_equal("those of both", await checkpoint_ids(store, workflow_name="one", thread_id="c"), ["c-2", "c-4"])
    expect_equal("a thread of another workflow", await checkpoint_ids(store, workflow_name="two", thread_id="c"), [])
    expect_equal(
        "nobody's",
        (await checkpoint_ids(store, workflow_name="none"), await checkpoint_ids(store, thread_id="none")),
        ([], []),
    )


@clause
async def a_limit_keeps_the_newest(store: Store) -> None:
    """`limit` selects the newest ones"""
    order = await mixed(store)
    for limit in (0, 1, 3, 100):
        newest = order[max(0, len(order) - limit) :]
        expect_equal(f"the checkpoints with limit {limit}", await checkpoint_ids(store, limit=limit), newest)
    expect_equal("those of a workflow", await checkpoint_ids(store, workflow_name="one", limit=2), ["c-4", "a-3"])


async def all_pages(store: Store, size: int, **filters: Any) -> list[str]:
    pages: list[str] = []
    page = await checkpoint_ids(store, **filters, limit=size)
    while page:
        expect(len(page) <= size, f"a page of at most {size} had {len(page)}")
        pages = page + pages
        expect(len(pages) <= 100, "paging backwards did not come to an end")
        page = await checkpoint_ids(store, **filters, limit=size, before=page[0])
    return pages


@clause
async def limit_and_before_page_backwards_through_all_checkpoints(store: Store) -> None:
    """together they page backwards through a history"""
    await mixed(store)
    filters: list[dict[str, str]] = [{}, {"thread_id": "b"}, {"workflow_name": "one"}]
    for chosen in filters:
        listed = await checkpoint_ids(store, **chosen)
        for size in (1, 2, 3, 100):
            expect_equal(f"pages of {size}, {chosen or 'all'}", await all_pages(store, size, **chosen), listed)

    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a", before="b-2"), ["a-1", "a-2"])
    expect_equal(
        "those of a workflow", await checkpoint_ids(store, workflow_name="two", before="c-4", limit=5), ["b-1"]
    )


@clause
async def before_a_checkpoint_that_there_is_not_is_an_error(store: Store) -> None:
    """Raises CheckpointNotFound if no checkpoint has the id `before`."""
    await mixed(store)
    filters: list[dict[str, Any]] = [{}, {"thread_id": "a"}, {"workflow_name": "one"}, {"limit": 1}]
    for chosen in filters:
        await expect_raises(
            CheckpointNotFound, store.infos(before="none", **chosen), "paging before an unknown checkpoint"
        )


@clause
async def an_info_says_all_that_was_said_of_its_checkpoint(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    owner = await own(store, "t", owner="run-0a1b", workflow_name="naïve workflow")
    first = await owner.save("c0ffee")
    second = await owner.save(status="WAITING", run_id="another", timestamp="2026-03-01T10:00:00.000123+00:00")
    third = await owner.save("C0FFEE", timestamp="2026-01-01T02:00:00+02:00")
    fourth = await owner.save("00", timestamp="yesterday")
    expect_equal("the checkpoints", list(await store.infos()), [first, second, third, fourth])
    for info in (first, second, third, fourth):
        found = await store.find_checkpoint(info.checkpoint_id)
        expect_equal(f"checkpoint {info.checkpoint_id!r}", None if found is None else found.info, info)


# ---------------------------------------------------------------- threads


@clause
async def threads_are_listed_with_those_that_moved_last_at_the_end(store: Store) -> None:
    """Threads that have a commit, in the order of their last commits."""
    await mixed(store)
    expect_equal("the threads", await thread_ids(store), ["c", "b", "a"])
    owner = await own(store, "c", owner="run-2", takeover=True)
    await owner.note(timestamp=at(-99).isoformat())  # whatever its clock says
    expect_equal("the threads after one moved", await thread_ids(store), ["b", "a", "c"])
    expect_equal("those of a workflow", await thread_ids(store, workflow_name="one"), ["a", "c"])
    expect_equal(
        "one of them", (await thread_ids(store, thread_id="b"), await thread_ids(store, thread_id="d")), (["b"], [])
    )


@clause
async def limit_and_before_page_backwards_through_the_threads(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    for index in range(6):
        await save_thread(store, f"t{index}", workflow_name="odd" if index % 2 else "even", timestamp=at(0).isoformat())
    pages: list[str] = []
    page = await thread_ids(store, limit=2)
    while page and len(pages) < 20:
        pages = page + pages
        page = await thread_ids(store, limit=2, before=page[0])
    expect_equal("all pages", pages, [f"t{index}" for index in range(6)])
    expect_equal(
        "those of a workflow", await thread_ids(store, workflow_name="odd", before="t4", limit=5), ["t1", "t3"]
    )
    expect_equal("none", await thread_ids(store, limit=0), [])
    await expect_raises(ThreadNotFound, store.threads(before="none"), "paging before an unknown thread")


@clause
async def a_thread_says_where_it_stands_and_who_owns_it(store: Store) -> None:
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
        found: list[str] = []
        while page := list(await store.thread_ids(after=found[-1] if found else None, limit=size)):
            expect(len(page) <= size, f"{len(page)} ids were read where {size} were asked for")
            found += page
            expect(len(found) < 20, "paging through the ids did not come to an end")
        expect_equal(f"all, {size} at a time", found, names)
    expect_equal("after one that there is not", list(await store.thread_ids(after="t3x")), names[4:])
    expect_equal("none of them", list(await store.thread_ids(limit=0)), [])


# ---------------------------------------------------------------- choosing


OWNERS = ["ann/1", "bob/1", "ann/2", "ann", "anna/1", "bob/2", "ann/3"]
"""Threads of several owners, in the order in which they moved."""

ODD = [
    "a%b",
    "a%",
    "axb",
    "a_b",
    "a\\b",
    "a\\%b",
    "a*b",
    "a?",
    "a[b]",
    "a'b",
    "A%b",
    "é/1",
    "e\u0301/1",
    "É/1",
    "\ud7ff/1",
    "\ue000/1",
    "\uffff/1",
    "\U00010000/1",
    "\U0010ffff",
    "\U0010ffff\U0010ffff/1",
    "日本/1",
    "日本語",
    "n" * 250 + "1",
    "n" * 250 + "2",
    "n" * 199,
]
"""Ids that some comparison takes for each other: patterns, cases, other orders than that of characters, long ones."""


def beginning(prefix: str, names: list[str] = ODD) -> list[str]:
    return [one for one in names if one.startswith(prefix)]


async def owned(store: Store) -> None:
    for place, name in enumerate(OWNERS):
        await save_thread(
            store, name, workflow_name="odd" if place % 2 else "even", requests=[make_request(name, "q", place)]
        )


@clause
async def threads_are_listed_by_the_beginning_of_their_ids(store: Store) -> None:
    """only those whose ids begin with exactly this text"""
    await owned(store)
    expect_equal("those of one owner", await thread_ids(store, prefix="ann/"), ["ann/1", "ann/2", "ann/3"])
    expect_equal("those of all whose names begin so", await thread_ids(store, prefix="ann"), beginning("ann", OWNERS))
    expect_equal(
        "those of a workflow", await thread_ids(store, prefix="ann/", workflow_name="even"), ["ann/1", "ann/2", "ann/3"]
    )
    expect_equal("those of another", await thread_ids(store, prefix="bob/", workflow_name="even"), [])
    expect_equal("one of them", await thread_ids(store, prefix="ann/", thread_id="ann/2"), ["ann/2"])
    expect_equal("one of another owner", await thread_ids(store, prefix="ann/", thread_id="bob/1"), [])
    expect_equal("those of nobody", await thread_ids(store, prefix="carl/"), [])
    expect_equal("those of anybody", await thread_ids(store, prefix=""), OWNERS)
    await save_thread(store, "ann/1")
    expect_equal(
        "those of one owner after one moved", await thread_ids(store, prefix="ann/"), ["ann/2", "ann/3", "ann/1"]
    )


@clause
async def a_prefix_is_text_and_no_pattern(store: Store) -> None:
    """it has no wildcards"""
    for name in ODD:
        await save_thread(store, name)
    for prefix in sorted({name[:length] for name in ODD for length in (1, 2, 200, 201, len(name))}):
        expect_equal(
            f"the threads that begin with {prefix!a}", await thread_ids(store, prefix=prefix), beginning(prefix)
        )
        checkpoint_ids = list(await store.thread_ids(prefix=prefix))
        expect_equal(f"the ids that begin with {prefix!a}", checkpoint_ids, sorted(beginning(prefix)))
    for prefix in ("%", "_", "?", "[a]", "a__", "a%%", "nul \0", "\ud800"):
        expect_equal(f"what begins with {prefix!a}", await thread_ids(store, prefix=prefix), [])
        expect_equal(f"the ids that begin with {prefix!a}", list(await store.thread_ids(prefix=prefix)), [])


@clause
async def limit_and_before_page_backwards_through_the_threads_of_a_prefix(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    await owned(store)
    expect_equal("the newest", await thread_ids(store, prefix="ann/", limit=2), ["ann/2", "ann/3"])
    expect_equal("those before", await thread_ids(store, prefix="ann/", limit=2, before="ann/2"), ["ann/1"])
    expect_equal("before the first", await thread_ids(store, prefix="ann/", limit=2, before="ann/1"), [])
    expect_equal(
        "before another's", await thread_ids(store, prefix="ann/", limit=9, before="bob/2"), ["ann/1", "ann/2"]
    )
    expect_equal("none", await thread_ids(store, prefix="ann/", limit=0), [])


@clause
async def requests_are_listed_by_the_beginning_of_their_threads_ids(store: Store) -> None:
    """`prefix` is that of `threads`."""
    await owned(store)
    await save_thread(store, "ann/0", requests=[make_request("ann/0", "late", 99), make_request("ann/0", "early", -1)])

    async def pending(prefix: str, limit: int | None = None, **wanted: str) -> list[tuple[str, str]]:
        found = await store.pending_requests(prefix=prefix, limit=limit, **wanted)
        return [(one.thread_id, one.request_id) for one in found]

    expected = [("ann/0", "early"), ("ann/1", "q"), ("ann/2", "q"), ("ann/3", "q"), ("ann/0", "late")]
    expect_equal("those of one owner", await pending("ann/"), expected)
    expect_equal("the two that wait longest", await pending("ann/", 2), expected[:2])
    expect_equal("those of a thread", await pending("ann/", thread_id="ann/2"), [("ann/2", "q")])
    expect_equal("those of another's thread", await pending("ann/", thread_id="bob/1"), [])
    expect_equal("those of a workflow", await pending("bob/", workflow_name="odd"), [("bob/1", "q"), ("bob/2", "q")])
    expect_equal("those of nobody", (await pending("carl/"), await pending("%"), await pending("\ud800")), ([], [], []))


@clause
async def the_ids_of_threads_are_read_in_pages_of_a_prefix(store: Store) -> None:
    """All threads of which anything is kept, also those that only have an inbox, in the order of their ids."""
    names = [f"{owner}/{number}" for owner in ("ann", "bob", "carl") for number in range(5)]
    for name in reversed(names):
        await store.post(name, "item", "message", b"1")
    of_bob = names[5:10]
    expect_equal("all of them", list(await store.thread_ids(prefix="bob/")), of_bob)
    expect_equal("the first", list(await store.thread_ids(prefix="bob/", limit=2)), of_bob[:2])
    expect_equal("the next", list(await store.thread_ids(prefix="bob/", after="bob/1", limit=2)), of_bob[2:4])
    expect_equal("after the last", list(await store.thread_ids(prefix="bob/", after="bob/4")), [])
    expect_equal("after another's, before", list(await store.thread_ids(prefix="bob/", after="ann/3")), of_bob)
    expect_equal("after another's, behind", list(await store.thread_ids(prefix="bob/", after="carl/1")), [])


@clause
async def threads_are_listed_by_their_status(store: Store) -> None:
    """`statuses`: only those whose status is one of these."""
    states = {"a/1": "IDLE", "b/1": "IN_PROGRESS", "a/2": "IN_PROGRESS", "b/2": "FAILED", "a/3": "IN_PROGRESS"}
    for name, status in states.items():
        await save_thread(store, name, status=status)
    expect_equal("one of them", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/2", "a/3"])
    expect_equal("two of them", await thread_ids(store, statuses=["FAILED", "IDLE", "FAILED"]), ["a/1", "b/2"])
    expect_equal("none of them", await thread_ids(store, statuses=()), [])
    expect_equal("one that there is not", await thread_ids(store, statuses={"idle", "IN_PROG", "nul \0"}), [])
    expect_equal("with a prefix", await thread_ids(store, statuses={"IN_PROGRESS"}, prefix="a/"), ["a/2", "a/3"])
    expect_equal("the newest", await thread_ids(store, statuses={"IN_PROGRESS"}, limit=1), ["a/3"])
    expect_equal("those before", await thread_ids(store, statuses={"IN_PROGRESS"}, before="a/3", limit=1), ["a/2"])
    await (await own(store, "a/2")).note(status="FAILED")
    expect_equal("after one changed", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/3"])
