"""Lists of some threads only: those whose ids begin with a text, and those that stand in a certain way."""

from __future__ import annotations

from perdure.store import Store
from perdure.testing.conformance.acts import asked, own, saved, thread_ids
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import same

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
        await saved(store, name, workflow_name="odd" if place % 2 else "even", requests=[asked(name, "q", place)])


@clause
async def threads_are_listed_by_the_beginning_of_their_ids(store: Store) -> None:
    """only those whose ids begin with this text, to the letter"""
    await owned(store)
    same("those of one owner", await thread_ids(store, prefix="ann/"), ["ann/1", "ann/2", "ann/3"])
    same("those of all whose names begin so", await thread_ids(store, prefix="ann"), beginning("ann", OWNERS))
    same(
        "those of a workflow", await thread_ids(store, prefix="ann/", workflow_name="even"), ["ann/1", "ann/2", "ann/3"]
    )
    same("those of another", await thread_ids(store, prefix="bob/", workflow_name="even"), [])
    same("one of them", await thread_ids(store, prefix="ann/", thread_id="ann/2"), ["ann/2"])
    same("one of another owner", await thread_ids(store, prefix="ann/", thread_id="bob/1"), [])
    same("those of nobody", await thread_ids(store, prefix="carl/"), [])
    same("those of anybody", await thread_ids(store, prefix=""), OWNERS)
    await saved(store, "ann/1")
    same("those of one owner after one moved", await thread_ids(store, prefix="ann/"), ["ann/2", "ann/3", "ann/1"])


@clause
async def a_prefix_is_text_and_no_pattern(store: Store) -> None:
    """no character of it stands for others"""
    for name in ODD:
        await saved(store, name)
    for prefix in sorted({name[:length] for name in ODD for length in (1, 2, 200, 201, len(name))}):
        same(f"the threads that begin with {prefix!a}", await thread_ids(store, prefix=prefix), beginning(prefix))
        ids = list(await store.thread_ids(prefix=prefix))
        same(f"the ids that begin with {prefix!a}", ids, sorted(beginning(prefix)))
    for prefix in ("%", "_", "?", "[a]", "a__", "a%%", "nul \0", "\ud800"):
        same(f"what begins with {prefix!a}", await thread_ids(store, prefix=prefix), [])
        same(f"the ids that begin with {prefix!a}", list(await store.thread_ids(prefix=prefix)), [])


@clause
async def limit_and_before_page_backwards_through_the_threads_of_a_prefix(store: Store) -> None:
    """Paged like `infos`, by thread id."""
    await owned(store)
    same("the newest", await thread_ids(store, prefix="ann/", limit=2), ["ann/2", "ann/3"])
    same("those before", await thread_ids(store, prefix="ann/", limit=2, before="ann/2"), ["ann/1"])
    same("before the first", await thread_ids(store, prefix="ann/", limit=2, before="ann/1"), [])
    same("before another's", await thread_ids(store, prefix="ann/", limit=9, before="bob/2"), ["ann/1", "ann/2"])
    same("none", await thread_ids(store, prefix="ann/", limit=0), [])


@clause
async def requests_are_listed_by_the_beginning_of_their_threads_ids(store: Store) -> None:
    """`prefix` is that of `threads`."""
    await owned(store)
    await saved(store, "ann/0", requests=[asked("ann/0", "late", 99), asked("ann/0", "early", -1)])

    async def pending(prefix: str, limit: int | None = None, **wanted: str) -> list[tuple[str, str]]:
        found = await store.pending_requests(prefix=prefix, limit=limit, **wanted)
        return [(one.thread_id, one.request_id) for one in found]

    expected = [("ann/0", "early"), ("ann/1", "q"), ("ann/2", "q"), ("ann/3", "q"), ("ann/0", "late")]
    same("those of one owner", await pending("ann/"), expected)
    same("the two that wait longest", await pending("ann/", 2), expected[:2])
    same("those of a thread", await pending("ann/", thread_id="ann/2"), [("ann/2", "q")])
    same("those of another's thread", await pending("ann/", thread_id="bob/1"), [])
    same("those of a workflow", await pending("bob/", workflow_name="odd"), [("bob/1", "q"), ("bob/2", "q")])
    same("those of nobody", (await pending("carl/"), await pending("%"), await pending("\ud800")), ([], [], []))


@clause
async def the_ids_of_threads_are_read_in_pages_of_a_prefix(store: Store) -> None:
    """All threads of which anything is kept, also those that were only posted to, in the order of their ids."""
    names = [f"{owner}/{number}" for owner in ("ann", "bob", "carl") for number in range(5)]
    for name in reversed(names):
        await store.post(name, "item", "message", b"1")
    of_bob = names[5:10]
    same("all of them", list(await store.thread_ids(prefix="bob/")), of_bob)
    same("the first", list(await store.thread_ids(prefix="bob/", limit=2)), of_bob[:2])
    same("the next", list(await store.thread_ids(prefix="bob/", after="bob/1", limit=2)), of_bob[2:4])
    same("after the last", list(await store.thread_ids(prefix="bob/", after="bob/4")), [])
    same("after another's, before", list(await store.thread_ids(prefix="bob/", after="ann/3")), of_bob)
    same("after another's, behind", list(await store.thread_ids(prefix="bob/", after="carl/1")), [])


@clause
async def threads_are_listed_by_their_status(store: Store) -> None:
    """`statuses`: only those whose status is one of these."""
    states = {"a/1": "IDLE", "b/1": "IN_PROGRESS", "a/2": "IN_PROGRESS", "b/2": "FAILED", "a/3": "IN_PROGRESS"}
    for name, status in states.items():
        await saved(store, name, status=status)
    same("one of them", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/2", "a/3"])
    same("two of them", await thread_ids(store, statuses=["FAILED", "IDLE", "FAILED"]), ["a/1", "b/2"])
    same("none of them", await thread_ids(store, statuses=()), [])
    same("one that there is not", await thread_ids(store, statuses={"idle", "IN_PROG", "nul \0"}), [])
    same("with a prefix", await thread_ids(store, statuses={"IN_PROGRESS"}, prefix="a/"), ["a/2", "a/3"])
    same("the newest", await thread_ids(store, statuses={"IN_PROGRESS"}, limit=1), ["a/3"])
    same("those before", await thread_ids(store, statuses={"IN_PROGRESS"}, before="a/3", limit=1), ["a/2"])
    await (await own(store, "a/2")).note(status="FAILED")
    same("after one changed", await thread_ids(store, statuses={"IN_PROGRESS"}), ["b/1", "a/3"])
