"""A thread as it is stored, handed to another store: with its numbers and ids, its journal, inbox and pins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.errors import ThreadBusy, ThreadExists, ThreadNotFound
from perdure.records import Commit, ThreadHeader
from perdure.store import Store
from perdure.testing.conformance.clause import (
    Needs,
    NotKept,
    clause,
    clause_with,
    expect,
    expect_equal,
    expect_one,
    expect_raises,
)
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    ThreadOwner,
    check_readable,
    checkpoint_ids,
    chunks,
    own,
    read_as_owner,
    read_everything,
    save_full_thread,
    save_thread,
    thread_ids,
)

# ---------------------------------------------------------------- whole threads


@clause
async def nothing_is_left_of_a_deleted_thread(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store)
    await save_full_thread(store, "u")
    before = await read_everything(store)
    await store.delete_thread("u")
    expect_equal("whether it was there, and then", [await store.delete_thread(one) for one in "tt"], [True, False])
    found = await read_everything(store, "t")
    expect_equal("the lists", [found[one] for one in ("infos", "threads", "requests", "due")], [[], [], [], []])
    expect_equal(
        "its head, events and chunks", [found[one]["t"] for one in ("heads", "events", "chunks")], [None, [], {}]
    )
    for checkpoint_id in before["checkpoints"]:
        expect_equal(f"checkpoint {checkpoint_id!r}", await store.find_checkpoint(checkpoint_id), None)
    within = await read_as_owner(store)
    expect_equal(
        "what an owner finds", [within[one] for one in ("number", "last_seq", "journal", "inbox")], [0, 0, [], []]
    )


@clause
async def a_thread_of_a_deleted_name_begins_anew(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store)
    await store.delete_thread("t")
    await store.post("t", "consumed", "message", b"2")  # an id that the old one had consumed
    owner = await own(store)
    expect_equal("the inbox", [one.item_id for one in owner.opened.inbox], ["consumed"])
    await owner.save("t-1", events=1)
    expect_equal(
        "checkpoints and events",
        (await checkpoint_ids(store), [e.first_seq for e in await store.events_after("t", 0)]),
        (["t-1"], [1]),
    )


@clause
async def deleting_leaves_other_threads_alone(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store, "u")
    before = await read_everything(store)
    await save_full_thread(store, "t")
    await store.delete_thread("t")
    await store.post("v", "item", "message", b"1")
    expect_equal("whether one that was only posted to was there", await store.delete_thread("v"), True)
    expect_equal("what can be read", await read_everything(store), before)
    expect_equal("what its owner finds", (await read_as_owner(store, "u"))["journal"], [(5, b'{"done":1}')])


@clause
async def a_thread_with_an_owner_is_not_deleted(store: Store) -> None:
    """Raises ThreadBusy while it has an owner."""
    owner = await own(store)
    await owner.save()
    before = await read_everything(store)
    await expect_raises(ThreadBusy, store.delete_thread("t"), "deleting a thread with an owner")
    expect_equal("what can be read after that", await read_everything(store), before)
    await owner.save()


@clause
async def a_thread_that_moved_or_waits_is_not_deleted_as_unmoved(store: Store) -> None:
    """only if that is its last commit, its inbox is empty and no checkpoint of it is pinned; otherwise False,
    without any change."""
    await save_thread(store, "t", 2)
    expect_equal("whether one that moved went", await store.delete_thread("t", if_unmoved_since=1), False)
    await store.post("t", "item", "message", b"1")
    expect_equal("whether one with an item went", await store.delete_thread("t", if_unmoved_since=2), False)
    owner = await own(store)
    await owner.note(consumed=["item"])
    await owner.release()
    await store.pin("t-1")
    expect_equal("whether one with a pin went", await store.delete_thread("t", if_unmoved_since=3), False)
    expect_equal("the checkpoints", await checkpoint_ids(store), ["t-1", "t-2"])
    await store.unpin("t-1")
    expect_equal("whether one that is as it was went", await store.delete_thread("t", if_unmoved_since=3), True)
    expect_equal("the checkpoints then", await checkpoint_ids(store), [])


# ---------------------------------------------------------------- copies


@clause
async def a_copy_holds_all_commits_under_new_checkpoint_ids(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await save_full_thread(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.infos(thread_id="t"), await store.infos(thread_id="copy")
    expect_equal(
        "its checkpoints",
        [(one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in copied],
        [(one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in original],
    )
    expect(not {one.checkpoint_id for one in original} & {one.checkpoint_id for one in copied}, "ids are shared")
    followed = [None, *(one.checkpoint_id for one in copied[:-1])]
    expect_equal("what they follow", [one.previous_checkpoint_id for one in copied], followed)
    for before, after in zip(original, copied, strict=True):
        one, two = [await store.find_checkpoint(info.checkpoint_id) for info in (before, after)]
        expect_equal(f"the root of commit {before.number}", two and two.root, one and one.root)
    expect_equal("its chunks", await chunks(store, "copy"), await chunks(store, "t"))
    logs = [[(e.first_seq, e.count, e.body) for e in await store.events_after(name, 0)] for name in ("t", "copy")]
    expect_equal("its events", logs[1], logs[0])


@clause
async def a_copy_has_no_journal_no_inbox_and_no_owner(store: Store) -> None:
    """The copy has no journal, no inbox and no owner."""
    await save_full_thread(store)
    held = await own(store)
    await store.copy_thread("t", "copy")
    copied = expect_one("the threads of that name", await store.threads(thread_id="copy"))
    expect_equal("number, status and owner", (copied.number, copied.status, copied.run_id), (4, "IDLE", None))
    expect_equal("its requests", [one.request_id for one in await store.pending_requests(thread_id="copy")], ["q"])
    within = await read_as_owner(store, "copy")
    expect_equal("last event, journal, inbox", (within["last_seq"], within["journal"], within["inbox"]), (4, [], []))
    await held.save()


@clause
async def a_copy_and_its_original_go_their_own_ways(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    owner = await save_full_thread(store)
    await store.copy_thread("t", "copy")
    before = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    copy = await own(store, "copy")
    copy.has[4] = owner.has[4]
    await copy.save(brings=["new"], drops=["shared"], events=1)
    await copy.release()
    copied = await checkpoint_ids(store, thread_id="copy")
    await store.prune("copy", copied[:2])
    after = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    expect_equal("the original after its copy was moved and pruned", after, before)
    held = await chunks(store, "copy")
    await store.delete_thread("t")
    expect_equal("the threads", await thread_ids(store), ["copy"])
    expect_equal("the chunks of the copy", await chunks(store, "copy"), held)
    expect_equal("its checkpoints", await checkpoint_ids(store), copied[2:])


@clause
async def a_copy_never_takes_the_place_of_a_thread(store: Store) -> None:
    """Raises ThreadBusy if a thread `to` exists already."""
    await save_full_thread(store)
    await save_thread(store, "there")
    await store.post("posted to", "item", "message", b"1")
    before = await read_everything(store)
    for to in ("there", "posted to", "t"):
        await expect_raises(ThreadBusy, store.copy_thread("t", to), f"copying to {to!r}, which there is")
    await expect_raises(ThreadNotFound, store.copy_thread("none", "new"), "copying a thread that there is not")
    expect_equal("what can be read after that", await read_everything(store), before)
    expect_equal("the inbox", (await read_as_owner(store, "posted to"))["inbox"], [("item", "message", b"1")])


async def header_of(store: Store, thread_id: str = "t") -> ThreadHeader:
    found = await store.thread_header(thread_id)
    if found is None:
        raise NotKept(f"the standing of thread {thread_id!r}, which there is, is None")
    return found


async def all_commits(store: Store, thread_id: str = "t", limit: int = 2) -> list[Commit]:
    found: list[Commit] = []
    while page := await store.commits(thread_id, after=found[-1].number if found else 0, limit=limit):
        found += page
        expect(len(found) < 100, "paging through the commits did not come to an end")
    return found


async def move_thread(source: Store, target: Store, thread_id: str = "t") -> None:
    await target.add_thread(await header_of(source, thread_id), iter(await all_commits(source, thread_id)))


async def a_tree(store: Store) -> ThreadOwner:
    """Two branches, pruned in the middle: 1 -> 2 -> 3, 2 -> 4 -> 5, without 2 and 3."""
    owner = await own(store)
    await owner.save(brings=["a", "b"], events=1)
    fork = await owner.save(brings=["c"], drops=["b"], events=1)
    await owner.save(brings=["d"])
    owner.head = fork
    await owner.save(brings=["e"], drops=["a"])
    await owner.save(brings=["f"], events=1)
    await store.pin("t-1")
    await owner.release()
    await store.prune("t", ["t-2", "t-3"])
    return owner


@clause_with(Needs.A_STORE)
async def a_thread_handed_to_another_store_is_all_there(place: TrialLocation) -> None:
    """Add a thread as another store had it, with its numbers and ids, all or nothing. Reads the iterable once."""
    source, target = place.store, place.elsewhere()
    await save_full_thread(source)
    await move_thread(source, target)
    expect_equal("what can be read there", await read_everything(target), await read_everything(source))
    expect_equal("what an owner finds there", await read_as_owner(target), await read_as_owner(source))
    await target.post("t", "consumed", "message", b"1")
    expect_equal("the inbox after a consumed item was posted again", len((await read_as_owner(target))["inbox"]), 1)


@clause_with(Needs.A_STORE)
async def branches_and_pins_are_handed_on_and_can_be_pruned_there(place: TrialLocation) -> None:
    """its references to commits that are no longer its ancestors."""
    source, target = place.store, place.elsewhere()
    owner = await a_tree(source)
    await move_thread(source, target)
    expect_equal("what can be read there", await read_everything(target), await read_everything(source))
    expect_equal("how many went of a pinned and another", await target.prune("t", ["t-1", "t-4"]), 1)
    expect_equal("the checkpoints then", await checkpoint_ids(target), ["t-1", "t-5"])
    await check_readable(target, "t", owner.has)
    expect_equal("the chunks then", sorted(await chunks(target, "t")), sorted({*owner.has[1], *owner.has[5]}))


@clause_with(Needs.A_STORE)
async def a_thread_that_was_handed_on_goes_on_there(place: TrialLocation) -> None:
    """Add a thread as another store had it, with its numbers and ids, all or nothing."""
    source, target = place.store, place.elsewhere()
    before = await save_full_thread(source)
    await move_thread(source, target)
    owner = await own(target)
    expect(
        owner.lease.fence > before.lease.fence, f"its fence was {before.lease.fence}, and is {owner.lease.fence} now"
    )
    owner.has = before.has
    await owner.save(brings=["new"], drops=["shared"], events=1)
    expect_equal("the checkpoints", await checkpoint_ids(target), ["t-1", "t-2", "t-4", "t-5"])
    expect_equal("the events", [one.first_seq for one in await target.events_after("t", 0)], [1, 3, 4, 5])
    await check_readable(target, "t", owner.has)


@clause
async def commits_are_read_in_pages_as_they_were_written(store: Store) -> None:
    """The thread's commits after a number, as they are stored, in order."""
    owner = await own(store)
    written = []
    for number in range(1, 6):
        commit = owner.checkpoint(brings=[f"c{number}"], drops=[f"c{number - 1}"], events=number % 2)
        await owner.write(commit)
        owner.head = commit.info
        written.append(commit)
    for limit in (1, 2, 5, 99):
        found = await all_commits(store, limit=limit)
        expect_equal(f"their numbers, {limit} at a time", [one.number for one in found], [1, 2, 3, 4, 5])
        for one, other in zip(found, written, strict=True):
            for name in ("info", "root", "chunks", "parent", "status", "run_id", "timestamp"):
                expect_equal(f"{name} of commit {one.number}", getattr(one, name), getattr(other, name))
            expect_equal(f"the thread of commit {one.number}", one.lease.thread_id, "t")
    expect_equal("those after 3", [one.number for one in await store.commits("t", after=3)], [4, 5])
    expect_equal("those after the last", list(await store.commits("t", after=5)), [])


@clause
async def a_standing_says_all_of_a_thread_but_its_commits(store: Store) -> None:
    """All of a thread except its commits; None if no such thread exists."""
    expect_equal("the standing of nobody", await store.thread_header("none"), None)
    await save_full_thread(store)
    await store.pin("t-2")
    found = await header_of(store)
    expect_equal(
        "thread, workflow and status", (found.thread_id, found.workflow_name, found.status), ("t", "w", "IDLE")
    )
    expect_equal("number, head and last event", (found.number, found.head, found.last_seq), (4, 4, 4))
    expect_equal("its requests", [one.request_id for one in found.requests], ["q"])
    expect_equal("its journal", [(one.delivery_id, one.body) for one in found.journal], [(5, b'{"done":1}')])
    expect_equal(
        "its inbox", [(one.item_id, one.kind, one.body) for one in found.inbox], [("item", "message", b'"posted"')]
    )
    expect_equal("consumed items and pins", (list(found.consumed), list(found.pins)), (["consumed"], [2]))


@clause_with(Needs.A_STORE)
async def a_thread_that_there_is_already_is_not_added(place: TrialLocation) -> None:
    """Raises ThreadExists if the thread id, or a checkpoint id, exists already."""
    source, target = place.store, place.elsewhere()
    await save_full_thread(source)
    standing, commits = await header_of(source), await all_commits(source)
    await save_thread(target, "t")
    await save_thread(target, "other", checkpoint_id="t-2")
    before = await read_everything(target, "free")
    await expect_raises(ThreadExists, target.add_thread(standing, commits), "adding a thread that there is")
    renamed = msgspec.structs.replace(standing, thread_id="free")
    await expect_raises(
        ThreadExists, target.add_thread(renamed, _of(commits, "free")), "adding a checkpoint that there is"
    )
    expect_equal("what can be read after that", await read_everything(target, "free"), before)


@clause_with(Needs.A_STORE)
async def a_thread_whose_commits_break_off_is_not_added(place: TrialLocation) -> None:
    """Add a thread as another store had it, with its numbers and ids, all or nothing."""
    source, target = place.store, place.elsewhere()
    await save_full_thread(source)
    standing, commits = await header_of(source), await all_commits(source)

    def broken_off() -> Iterator[Commit]:
        yield from commits[:2]
        raise _BrokenOff

    try:
        await target.add_thread(standing, broken_off())
    except _BrokenOff:
        pass
    expect_equal(
        "what can be read after that",
        await read_everything(target, "t"),
        await read_everything(place.elsewhere("new"), "t"),
    )
    await target.add_thread(standing, commits)
    expect_equal("its checkpoints, added again", await checkpoint_ids(target), ["t-1", "t-2", "t-4"])


class _BrokenOff(Exception):
    """What the clause itself raises."""


def _of(commits: Iterable[Commit], thread_id: str) -> list[Commit]:
    changed: list[Commit] = []
    for one in commits:
        parts: dict[str, Any] = {"lease": msgspec.structs.replace(one.lease, thread_id=thread_id)}
        if one.info is not None:
            parts["info"] = msgspec.structs.replace(one.info, thread_id=thread_id)
        changed.append(msgspec.structs.replace(one, **parts))
    return changed
