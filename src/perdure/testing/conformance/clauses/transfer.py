"""A thread moved to another store: with its numbers and ids, its journal, inbox and pins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from perdure.errors import CursorExpired, ThreadExists
from perdure.records import Commit, InboxItem
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_raises
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    ThreadOwner,
    all_commits,
    checkpoint_ids,
    chunk,
    chunks,
    expect_state,
    expect_unchanged,
    first_seqs,
    header_of,
    make_events,
    own,
    parts_of,
    read_as_owner,
    read_everything,
    save_full_thread,
    save_thread,
)


async def move_thread(source: Store, target: Store, thread_id: str = "t") -> None:
    await target.add_thread(await header_of(source, thread_id), iter(await all_commits(source, thread_id)))


@clause
async def a_transferred_thread_is_complete_and_continues(store: Store, target: Store) -> None:
    """Add a thread as another store had it, with its numbers and ids, all or nothing. Reads the iterable once."""
    before = await save_full_thread(store)
    await save_thread(store, "pruned", 2, events=1)
    await store.prune("pruned", ["pruned-1", "pruned-2"])
    await store.post("posted to", "item", "message", b"1")
    recorded = await own(store, "recorded")
    await recorded.record(1)
    await recorded.release()
    names = ("t", "pruned", "posted to", "recorded")
    for name in names:
        await move_thread(store, target, name)
        await target.post(name, "item", "message", b"2")
        await store.post(name, "item", "message", b"2")
    await target.post("t", "consumed", "message", b"1")  # no item: the thread has consumed it
    expect_equal("what can be read there", await read_everything(target, *names), await read_everything(store, *names))
    owners = {name: await own(target, name) for name in names}
    for name, owner in owners.items():
        expect_equal(f"{name!r}, opened", parts_of(owner.opened), await read_as_owner(store, name))
    expect_higher_fence(owners["t"], before)
    owners["t"].has = before.has
    await owners["t"].save(brings=["new"], drops=["shared"], events=1)
    await expect_state(target, checkpoints=["t-1", "t-2", "t-4", "t-5"], events=[1, 3, 4, 5])
    for name in names[1:]:
        number = owners[name].number
        expect_equal(f"the next commit of {name!r}", (await owners[name].save()).number, number + 1)
    await owners["t"].expect_readable()


@clause
async def branches_and_pins_are_transferred_and_can_be_pruned(store: Store, owner: ThreadOwner, target: Store) -> None:
    """its references to commits that are no longer its ancestors."""
    await owner.save(brings=["a", "b"], events=1)
    fork = await owner.save(brings=["c"], drops=["b"], events=1)
    await owner.save(brings=["d"])
    owner.head = fork
    await owner.save(brings=["e"], drops=["a"])
    await owner.save(brings=["f"], events=1)  # 1 -> 2 -> 3 and 2 -> 4 -> 5
    await store.pin("t-1")
    await owner.release()
    await store.prune("t", ["t-2", "t-3"])
    await move_thread(store, target)
    expect_equal("what can be read there", await read_everything(target), await read_everything(store))
    expect_equal("how many went of a pinned and another", await target.prune("t", ["t-1", "t-4"]), 1)
    await expect_state(target, "then", checkpoints=["t-1", "t-5"], chunks={*owner.has[1], *owner.has[5]})
    await owner.expect_readable(target)


def expect_higher_fence(owner: ThreadOwner, before: ThreadOwner) -> None:
    old, new = before.lease.fence, owner.lease.fence
    expect(new > old, f"its fence was {old}, and is {new} now")


@clause
async def a_header_has_all_of_a_thread_except_its_commits(store: Store) -> None:
    """All of a thread except its commits; None if no such thread exists."""
    expect_equal("the header of no thread", await store.thread_header("none"), None)
    expect_equal("the commits of no thread", await store.commits("none"), [])
    await save_full_thread(store)
    await store.pin("t-2")
    owner = await own(store)
    async with expect_unchanged(store):
        header = await header_of(store)
        await all_commits(store)
    expect_fields("the header", header, thread_id="t", workflow_name="w", status="IDLE", number=4, head=4, last_seq=4)
    expect_fields("the header", header, consumed=["consumed"], pins=[2], fence=owner.lease.fence)
    expect_fields("the header", header, inbox=[InboxItem("item", "message", b'"posted"')])
    expect_equal("its requests", [request.request_id for request in header.requests], ["q"])
    expect_equal("its journal", [(entry.delivery_id, entry.body) for entry in header.journal], [(5, b'{"done":1}')])
    expect_equal("no commits", await store.commits("t", limit=0), [])
    await owner.save(prunes=[1])
    await all_commits(store)
    await owner.save()


@clause
async def a_transfer_replaces_no_existing_thread_and_comes_after_all(store: Store, target: Store) -> None:
    """Raises ThreadExists if the thread id, or a checkpoint id, exists already."""
    await save_full_thread(store)
    held = await own(target)
    await expect_raises(ThreadExists, move_thread(store, target), "adding a thread that has an owner")
    await held.release()
    await save_thread(target, "other", checkpoint_id="t-2")
    async with expect_unchanged(target, "t"):
        await expect_raises(ThreadExists, move_thread(store, target), "adding a checkpoint that there is")
    await target.delete_thread("other")
    await save_thread(target, "u", 2)
    await move_thread(store, target)  # a thread that was claimed and released is no obstacle
    async with expect_unchanged(target):
        await expect_raises(ThreadExists, move_thread(store, target), "adding a thread that there is")
    await expect_state(target, checkpoints=["u-1", "u-2", "t-1", "t-2", "t-4"], threads=["u", "t"])
    expect_equal("the page before it", await checkpoint_ids(target, limit=1, before="t-1"), ["u-2"])
    again = await own(target)
    expect_higher_fence(again, held)
    await again.save()


@clause
async def a_thread_whose_commits_break_off_is_not_added(store: Store, target: Store, place: TrialLocation) -> None:
    """Add a thread as another store had it, with its numbers and ids, all or nothing."""
    await save_full_thread(store)
    header, commits = await header_of(store), await all_commits(store)

    def broken_off() -> Iterator[Commit]:
        yield from commits[:2]
        raise _BrokenOff

    with suppress(_BrokenOff):
        await target.add_thread(header, broken_off())
    empty = await read_everything(place.elsewhere("new"), "t")
    expect_equal("what can be read after that", await read_everything(target, "t"), empty)
    await target.add_thread(header, commits)
    await expect_state(target, "of the thread that was added again", checkpoints=["t-1", "t-2", "t-4"])


class _BrokenOff(Exception):
    """Raised by the clause itself."""


@clause
async def what_was_pruned_is_not_transferred_and_not_missed(store: Store, owner: ThreadOwner, target: Store) -> None:
    """its references to commits that are no longer its ancestors."""
    await owner.save(brings=["a", "b"], events=1)
    for number in range(2, 8):
        text = f"event {number}"
        events = make_events(owner.last_seq + 1, own=(chunk(text)[0],))
        await owner.save(brings=[f"c{number}", text], drops=["b"] if number == 3 else [], events=events)
    await owner.save(prunes=[1, 2, 3, 5], prunes_events_before=4)
    await move_thread(store, target)
    await expect_state(target, checkpoints=["t-4", "t-6", "t-7", "t-8"])
    expect_equal("the events", await first_seqs(target, None), [4, 5, 6, 7])
    await expect_raises(CursorExpired, target.events_after("t", 2), "reading there after 2, which is pruned")
    await owner.expect_readable(target)
    mover = await own(target)
    mover.has = owner.has
    for each in (store, target):
        await each.prune("t", ["t-4", "t-7"])
        await owner.expect_readable(each)
        expect_equal("the damage after a prune", await each.check(), [])
    expect_equal("the chunks in both", sorted(await chunks(target, "t")), sorted(await chunks(store, "t")))
    await mover.save(prunes=[6, 8])
    expect_equal("the damage after one more commit", await target.check(), [])
