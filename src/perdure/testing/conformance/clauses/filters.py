"""Lists of some threads: by the beginning of their ids and by status."""

from __future__ import annotations

from random import Random

from perdure.store import Store
from perdure.testing.conformance.clause import Needs, clause, clause_with, expect_equal
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import make_request, own, save_thread, thread_ids

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


def names_with_prefix(prefix: str, names: list[str] = ODD) -> list[str]:
    return [name for name in names if name.startswith(prefix)]


async def save_owned_threads(store: Store) -> None:
    for place, name in enumerate(OWNERS):
        await save_thread(
            store, name, workflow_name="odd" if place % 2 else "even", requests=[make_request(name, "q", place)]
        )


@clause
async def threads_are_listed_by_the_beginning_of_their_ids(store: Store) -> None:
    """only those whose ids begin with exactly this text"""
    await save_owned_threads(store)
    expect_equal("those of one owner", await thread_ids(store, prefix="ann/"), ["ann/1", "ann/2", "ann/3"])
    expect_equal(
        "those of all whose names begin so", await thread_ids(store, prefix="ann"), names_with_prefix("ann", OWNERS)
    )
    expect_equal(
        "those of a workflow", await thread_ids(store, prefix="ann/", workflow_name="even"), ["ann/1", "ann/2", "ann/3"]
    )
    expect_equal("those of another", await thread_ids(store, prefix="bob/", workflow_name="even"), [])
    expect_equal("one of them", await thread_ids(store, prefix="ann/", thread_id="ann/2"), ["ann/2"])
    expect_equal("one of another owner", await thread_ids(store, prefix="ann/", thread_id="bob/1"), [])
    expect_equal("those of no owner", await thread_ids(store, prefix="carl/"), [])
    expect_equal("those of any owner", await thread_ids(store, prefix=""), OWNERS)
    await save_thread(store, "ann/1")
    expect_equal(
        "those of one owner after one moved", await thread_ids(store, prefix="ann/"), ["ann/2", "ann/3", "ann/1"]
    )


@clause
async def a_prefix_is_not_a_pattern(store: Store) -> None:
    """it has no wildcards"""
    for name in ODD:
        await save_thread(store, name)
    for prefix in sorted({name[:length] for name in ODD for length in (1, 2, 200, 201, len(name))}):
        expect_equal(
            f"the threads that begin with {prefix!a}", await thread_ids(store, prefix=prefix), names_with_prefix(prefix)
        )
        checkpoint_ids = list(await store.thread_ids(prefix=prefix))
        expect_equal(f"the ids that begin with {prefix!a}", checkpoint_ids, sorted(names_with_prefix(prefix)))
    for prefix in ("%", "_", "?", "[a]", "a__", "a%%", "nul \0", "\ud800"):
        expect_equal(f"what begins with {prefix!a}", await thread_ids(store, prefix=prefix), [])
        expect_equal(f"the ids that begin with {prefix!a}", list(await store.thread_ids(prefix=prefix)), [])


@clause
async def limit_and_before_page_backwards_through_the_threads_of_a_prefix(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    await save_owned_threads(store)
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
    await save_owned_threads(store)
    await save_thread(store, "ann/0", requests=[make_request("ann/0", "late", 99), make_request("ann/0", "early", -1)])

    async def pending(prefix: str, limit: int | None = None, **wanted: str) -> list[tuple[str, str]]:
        requests = await store.pending_requests(prefix=prefix, limit=limit, **wanted)
        return [(request.thread_id, request.request_id) for request in requests]

    expected = [("ann/0", "early"), ("ann/1", "q"), ("ann/2", "q"), ("ann/3", "q"), ("ann/0", "late")]
    expect_equal("those of one owner", await pending("ann/"), expected)
    expect_equal("the two that wait longest", await pending("ann/", 2), expected[:2])
    expect_equal("those of a thread", await pending("ann/", thread_id="ann/2"), [("ann/2", "q")])
    expect_equal("those of another's thread", await pending("ann/", thread_id="bob/1"), [])
    expect_equal("those of a workflow", await pending("bob/", workflow_name="odd"), [("bob/1", "q"), ("bob/2", "q")])
    expect_equal(
        "those of no owner", (await pending("carl/"), await pending("%"), await pending("\ud800")), ([], [], [])
    )


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


@clause_with(Needs.A_STORE)
async def any_prefix_lists_what_begins_with_it(place: TrialLocation) -> None:
    """only those whose ids begin with exactly this text"""
    store, names = place.store, random_texts(place.chance, 24)
    for name in names:
        await save_thread(store, name, requests=[make_request(name, "q", 1)])
    for prefix in [*random_texts(place.chance, 16), *place.chance.sample(names, 6)]:
        expected = [name for name in names if name.startswith(prefix)]
        expect_equal(f"the threads of {prefix!a}", await thread_ids(store, prefix=prefix), expected)
        expect_equal(f"the newest of {prefix!a}", await thread_ids(store, prefix=prefix, limit=2), expected[-2:])
        expect_equal(f"the ids of {prefix!a}", list(await store.thread_ids(prefix=prefix)), sorted(expected))
        requests = [request.thread_id for request in await store.pending_requests(prefix=prefix)]
        expect_equal(f"the requests of {prefix!a}", requests, sorted(expected))
