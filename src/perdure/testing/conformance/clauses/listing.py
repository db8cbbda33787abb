"""Finding and listing checkpoints and threads: order, filters and pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from perdure.errors import CheckpointNotFound, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_one, expect_raises
from perdure.testing.conformance.threads import (
    at,
    checkpoint_ids,
    expect_owner_finds,
    expect_state,
    make_request,
    own,
    pending,
    save_thread,
    thread_ids,
)


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
async def checkpoints_are_listed_in_the_order_of_their_commits(store: Store) -> None:
    """Checkpoints in the order of their commits, oldest first, without payload."""
    order = await save_mixed_threads(store)
    expect_equal("the checkpoints", await checkpoint_ids(store), order)
    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a"), ["a-1", "a-2", "a-3"])
    expect_equal("of a workflow", await checkpoint_ids(store, workflow_name="one"), ["a-1", "c-2", "a-2", "c-4", "a-3"])
    expect_equal("those of both", await checkpoint_ids(store, workflow_name="one", thread_id="c"), ["c-2", "c-4"])
    expect_equal("a thread of another workflow", await checkpoint_ids(store, workflow_name="two", thread_id="c"), [])
    expect_equal("those of no workflow", await checkpoint_ids(store, workflow_name="none"), [])
    expect_equal("those of no thread", await checkpoint_ids(store, thread_id="none"), [])
    order.append((await (await own(store, "a", takeover=True, workflow_name="one")).save()).checkpoint_id)
    expect_equal("the checkpoints after one more", await checkpoint_ids(store), order)


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
    """`limit` selects the newest ones"""
    order = await save_mixed_threads(store)
    for limit in (0, 1, 3, 100):
        newest = order[max(0, len(order) - limit) :]
        expect_equal(f"the checkpoints with limit {limit}", await checkpoint_ids(store, limit=limit), newest)
    filters: list[dict[str, Any]] = [{}, {"thread_id": "b"}, {"workflow_name": "one"}]
    for chosen in filters:
        listed = await checkpoint_ids(store, **chosen)
        for size in (1, 2, 3, 100):
            pages = await all_pages(checkpoint_ids, store, size, **chosen)
            expect_equal(f"pages of {size}, {chosen or 'all'}", pages, listed)
    expect_equal("those of a thread", await checkpoint_ids(store, thread_id="a", before="b-2"), ["a-1", "a-2"])
    expect_equal("of a workflow", await checkpoint_ids(store, workflow_name="two", before="c-4", limit=5), ["b-1"])
    for chosen in (*filters, {"limit": 1}):
        page = store.infos(before="none", **chosen)
        await expect_raises(CheckpointNotFound, page, "paging before an unknown checkpoint")


@clause
async def an_info_has_all_fields_of_its_checkpoint(store: Store) -> None:
    """The checkpoint with this id, whichever thread it belongs to."""
    owner = await own(store, "t", owner="run-0a1b", workflow_name="naïve workflow")
    infos = [
        await owner.save("c0ffee"),
        await owner.save(status="WAITING", run_id="another", timestamp="2026-03-01T10:00:00.000123+00:00"),
        await owner.save("C0FFEE", timestamp="2026-01-01T02:00:00+02:00"),
        await owner.save("00", timestamp="yesterday"),
    ]
    expect_equal("the checkpoints", await store.infos(), infos)
    for info in infos:
        checkpoint = await store.find_checkpoint(info.checkpoint_id)
        expect_equal(f"checkpoint {info.checkpoint_id!r}", checkpoint and checkpoint.info, info)


@clause
async def threads_are_listed_with_those_that_moved_last_at_the_end(store: Store) -> None:
    """Threads that have a commit, in the order of their last commits."""
    await save_mixed_threads(store)
    await store.post("t", "item", "message", b"1")
    await expect_state(store, threads=["c", "b", "a"], head=None)
    await expect_owner_finds(store, number=0, inbox=[("item", "message", b"1")])
    owner = await own(store, "c", owner="run-2", takeover=True)
    await owner.note(timestamp=at(-99).isoformat())  # its clock is of no importance
    await expect_state(store, "after one moved", threads=["b", "a", "c"])
    expect_equal("those of a workflow", await thread_ids(store, workflow_name="one"), ["a", "c"])
    expect_equal("one of another workflow", await thread_ids(store, workflow_name="two", thread_id="a"), [])
    expect_equal("one of them", await thread_ids(store, thread_id="b"), ["b"])
    expect_equal("one that does not exist", await thread_ids(store, thread_id="d"), [])


@clause
async def limit_and_before_page_backwards_through_the_threads(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    await save_owned_threads(store)
    expect_equal("all pages", await all_pages(thread_ids, store, 2), OWNERS)
    expect_equal("of a workflow", await thread_ids(store, workflow_name="odd", before="ann/3", limit=1), ["bob/2"])
    expect_equal("none", await thread_ids(store, limit=0), [])
    await expect_raises(ThreadNotFound, store.threads(before="none"), "paging before an unknown thread")
    expect_equal("the newest", await thread_ids(store, prefix="ann/", limit=2), ["ann/2", "ann/3"])
    expect_equal("those before", await thread_ids(store, prefix="ann/", limit=2, before="ann/2"), ["ann/1"])
    expect_equal("before the first", await thread_ids(store, prefix="ann/", limit=2, before="ann/1"), [])
    expect_equal("before bob's", await thread_ids(store, prefix="ann/", limit=9, before="bob/2"), ["ann/1", "ann/2"])
    expect_equal("none of a prefix", await thread_ids(store, prefix="ann/", limit=0), [])
    await store.prune("ann/3", ["ann/3-1"])
    await save_thread(store, "d")  # the first commit since the newest one was pruned
    await store.delete_thread("d")
    await save_thread(store, "e")
    await store.copy_thread("ann", "copy")
    expect_equal("all pages after that", await all_pages(thread_ids, store, 1), [*OWNERS, "e", "copy"])


@clause
async def a_thread_is_listed_with_its_status_owner_and_last_workflow(store: Store) -> None:
    """A thread's status, read without its content."""
    await save_thread(store, "t", workflow_name="old name")
    owner = await own(store, "t", owner="run-8", workflow_name="new name")
    await owner.save(due_at=at(100.5), events=1)
    await owner.note(status="FAILED")
    info = expect_one("the threads", await store.threads())
    expect_fields("the thread", info, thread_id="t", workflow_name="new name", run_id="run-8", number=3)
    expect_fields("the thread", info, updated_at=at(3).isoformat(), checkpoint_id="t-2", due_at=at(100.5))
    expect_equal("its status", info.status, "FAILED")
    expect_equal("its old checkpoint", await checkpoint_ids(store, workflow_name="old name"), ["t-1"])
    for when in ("", " after its checkpoint was pruned"):
        of_both = [await thread_ids(store, workflow_name=name) for name in ("old name", "new name")]
        expect_equal(f"the threads of both workflows{when}", of_both, [[], ["t"]])
        await owner.release()
        await store.prune("t", ["t-2"])
    await save_thread(store, "t", workflow_name="old name")
    expect_equal("those of the first", await thread_ids(store, workflow_name="old name"), ["t"])


@clause
async def every_thread_of_which_something_is_kept_is_named_in_pages(store: Store) -> None:
    """All threads of which anything is kept, also those that only have an inbox, in the order of their ids."""
    expect_equal("the ids in an empty store", await store.thread_ids(), [])
    names = [f"{owner}/{number}" for owner in ("ann", "bob", "carl") for number in range(5)]
    for name in reversed(names):
        await store.post(name, "item", "message", b"1")
    for name in ("m", "Z", "é", "a b", "b"):
        await save_thread(store, name)
    await (await own(store, "recorded")).record(1)
    await store.delete_thread("b")
    of_all = sorted([*names, "m", "Z", "é", "a b", "recorded"])
    for size in (1, 3, 7, 99):
        ids: list[str] = []
        while page := list(await store.thread_ids(after=ids[-1] if ids else None, limit=size)):
            expect(len(page) <= size, f"{len(page)} ids were read where {size} were asked for")
            ids += page
            expect(len(ids) < 50, "paging through the ids did not come to an end")
        expect_equal(f"all, {size} at a time", ids, of_all)
    expect_equal(
        "after one that does not exist", await store.thread_ids(after="bob/3x"), of_all[of_all.index("bob/4") :]
    )
    expect_equal("none of them", await store.thread_ids(limit=0), [])
    of_bob = names[5:10]
    expect_equal("all of a prefix", await store.thread_ids(prefix="bob/"), of_bob)
    expect_equal("the first", await store.thread_ids(prefix="bob/", limit=2), of_bob[:2])
    expect_equal("the next", await store.thread_ids(prefix="bob/", after="bob/1", limit=2), of_bob[2:4])
    expect_equal("after the last", await store.thread_ids(prefix="bob/", after="bob/4"), [])
    expect_equal("after another's, before", await store.thread_ids(prefix="bob/", after="ann/3"), of_bob)
    expect_equal("after another's, behind", await store.thread_ids(prefix="bob/", after="carl/1"), [])


OWNERS = ["ann/1", "bob/1", "ann/2", "ann", "anna/1", "bob/2", "ann/3"]
"""Threads of several owners, in the order in which they moved."""

ODD = [
    *("a%b", "a%", "axb", "a_b", "a\\b", "a\\%b", "a*b", "a?", "a[b]", "a'b", "A%b", "é/1", "e\u0301/1", "É/1"),
    *("\ud7ff/1", "\ue000/1", "\uffff/1", "\U00010000/1", "\U0010ffff", "\U0010ffff\U0010ffff/1", "日本/1", "日本語"),
    *("n" * 250 + "1", "n" * 250 + "2", "n" * 199),
]
"""Ids that some comparison takes for each other: patterns, cases, other orders than that of characters, long ones."""


async def save_owned_threads(store: Store) -> None:
    for place, name in enumerate(OWNERS):
        workflow_name = "odd" if place % 2 else "even"
        await save_thread(store, name, workflow_name=workflow_name, requests=[make_request(name, "q", place)])


@clause
async def threads_and_requests_are_listed_by_the_beginning_of_thread_ids(store: Store) -> None:
    """only those whose ids begin with exactly this text"""
    await save_owned_threads(store)
    of_ann = ["ann/1", "ann/2", "ann/3"]
    expect_equal("those of one owner", await thread_ids(store, prefix="ann/"), of_ann)
    of_all = await thread_ids(store, prefix="ann")
    expect_equal("those of all whose names begin so", of_all, [name for name in OWNERS if name.startswith("ann")])
    expect_equal("those of a workflow", await thread_ids(store, prefix="ann/", workflow_name="even"), of_ann)
    expect_equal("those of another", await thread_ids(store, prefix="bob/", workflow_name="even"), [])
    expect_equal("one of them", await thread_ids(store, prefix="ann/", thread_id="ann/2"), ["ann/2"])
    expect_equal("one of another owner", await thread_ids(store, prefix="ann/", thread_id="bob/1"), [])
    expect_equal("those of any owner", await thread_ids(store, prefix=""), OWNERS)
    await save_thread(store, "ann/1")
    moved = await thread_ids(store, prefix="ann/")
    expect_equal("those of one owner after one moved", moved, ["ann/2", "ann/3", "ann/1"])
    await save_thread(store, "ann/0", requests=[make_request("ann/0", "late", 99), make_request("ann/0", "early", -1)])
    requests = [("ann/0", "early"), ("ann/1", "q"), ("ann/2", "q"), ("ann/3", "q"), ("ann/0", "late")]
    expect_equal("the requests of one owner", await pending(store, prefix="ann/"), requests)
    expect_equal("the two that wait longest", await pending(store, prefix="ann/", limit=2), requests[:2])
    expect_equal("those of a thread", await pending(store, prefix="ann/", thread_id="ann/2"), [("ann/2", "q")])
    expect_equal("those of another's thread", await pending(store, prefix="ann/", thread_id="bob/1"), [])
    of_workflow = await pending(store, prefix="bob/", workflow_name="odd")
    expect_equal("those of a workflow", of_workflow, [("bob/1", "q"), ("bob/2", "q")])
    for prefix in ("carl/", "%", "\ud800"):
        listed = [*await thread_ids(store, prefix=prefix), *await pending(store, prefix=prefix)]
        expect_equal(f"the threads and requests of {prefix!a}", listed, [])


@clause
async def threads_are_listed_by_their_status(store: Store) -> None:
    """`statuses`: only those whose status is one of these."""
    states = {"a/1": "IDLE", "b/1": "IN_PROGRESS", "a/2": "IN_PROGRESS", "b/2": "FAILED", "a/3": "IN_PROGRESS"}
    for name, status in states.items():
        await save_thread(store, name, status=status)
    expect_equal("one of them", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/2", "a/3"])
    expect_equal("two of them", await thread_ids(store, statuses=["FAILED", "IDLE", "FAILED"]), ["a/1", "b/2"])
    expect_equal("none of them", await thread_ids(store, statuses=()), [])
    expect_equal("one that does not exist", await thread_ids(store, statuses={"idle", "IN_PROG", "nul \0"}), [])
    expect_equal("with a prefix", await thread_ids(store, statuses={"IN_PROGRESS"}, prefix="a/"), ["a/2", "a/3"])
    expect_equal("the newest", await thread_ids(store, statuses={"IN_PROGRESS"}, limit=1), ["a/3"])
    expect_equal("those before", await thread_ids(store, statuses={"IN_PROGRESS"}, before="a/3", limit=1), ["a/2"])
    await (await own(store, "a/2")).note(status="FAILED")
    expect_equal("after one changed", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/3"])


ALPHABET = "aAb/%_\\*é\u0301\u200b\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff"


def random_texts(chance: Random, count: int) -> list[str]:
    """Short texts of few characters, so that many begin alike; some are longer than an index entry."""
    texts = ["".join(chance.choices(ALPHABET, k=chance.randrange(1, 4))) for _ in range(count)]
    return list(dict.fromkeys([*texts, *((text * 300)[:300] for text in texts[: count // 8])]))


@clause
async def any_prefix_lists_what_begins_with_it(store: Store, chance: Random) -> None:
    """only those whose ids begin with exactly this text"""
    names = list(dict.fromkeys([*ODD, *random_texts(chance, 24)]))
    for name in names:
        await save_thread(store, name, requests=[make_request(name, "q", 1)])
    of_odd = {name[:length] for name in ODD for length in (1, 2, 200, 201, len(name))}
    patterns = ["%", "_", "?", "[a]", "a__", "a%%", "nul \0", "\ud800"]
    for prefix in [*sorted(of_odd), *patterns, *random_texts(chance, 16), *chance.sample(names, 6)]:
        expected = [name for name in names if name.startswith(prefix)]
        expect_equal(f"the threads of {prefix!a}", await thread_ids(store, prefix=prefix), expected)
        expect_equal(f"the newest of {prefix!a}", await thread_ids(store, prefix=prefix, limit=2), expected[-2:])
        expect_equal(f"the ids of {prefix!a}", await store.thread_ids(prefix=prefix), sorted(expected))
        requests = [thread_id for thread_id, _ in await pending(store, prefix=prefix)]
        expect_equal(f"the requests of {prefix!a}", requests, sorted(expected))
