"""Threads deleted, and copied within a store."""

from __future__ import annotations

from perdure.errors import ThreadBusy, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_one, expect_raises
from perdure.testing.conformance.threads import (
    at,
    checkpoint_ids,
    chunks,
    expect_unchanged,
    first_seqs,
    make_request,
    own,
    read_as_owner,
    read_everything,
    ref,
    request_ids,
    save_full_thread,
    save_thread,
    thread_ids,
)


@clause
async def nothing_is_left_of_a_deleted_thread(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store)
    await save_full_thread(store, "u")
    before = await read_everything(store)
    await store.delete_thread("u")
    expect_equal(
        "whether it was there, and then", [await store.delete_thread(thread_id) for thread_id in "tt"], [True, False]
    )
    contents = await read_everything(store, "t")
    expect_equal("the lists", [contents[info] for info in ("infos", "threads", "requests", "due")], [[], [], [], []])
    expect_equal(
        "its head, events and chunks", [contents[data]["t"] for data in ("heads", "events", "chunks")], [None, [], {}]
    )
    for checkpoint_id in before["checkpoints"]:
        expect_equal(f"checkpoint {checkpoint_id!r}", await store.find_checkpoint(checkpoint_id), None)
    within = await read_as_owner(store)
    expect_equal(
        "what an owner finds", [within[entry] for entry in ("number", "last_seq", "journal", "inbox")], [0, 0, [], []]
    )


@clause
async def a_thread_of_a_deleted_name_begins_empty(store: Store) -> None:
    """Delete a thread; False if none exists."""
    await save_full_thread(store)
    await store.delete_thread("t")
    await store.post("t", "consumed", "message", b"2")  # an id that the old one had consumed
    owner = await own(store)
    expect_equal("the inbox", [item.item_id for item in owner.opened.inbox], ["consumed"])
    await owner.save("t-1", events=1)
    expect_equal(
        "checkpoints and events",
        (await checkpoint_ids(store), await first_seqs(store)),
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
    async with expect_unchanged(store):
        await expect_raises(ThreadBusy, store.delete_thread("t"), "deleting a thread with an owner")
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


@clause
async def a_copy_holds_all_commits_under_new_checkpoint_ids(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await save_full_thread(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.infos(thread_id="t"), await store.infos(thread_id="copy")
    expect_equal(
        "its checkpoints",
        [(info.number, info.workflow_name, info.timestamp, info.status, info.run_id) for info in copied],
        [(info.number, info.workflow_name, info.timestamp, info.status, info.run_id) for info in original],
    )
    expect(not {info.checkpoint_id for info in original} & {info.checkpoint_id for info in copied}, "ids are shared")
    followed = [None, *(info.checkpoint_id for info in copied[:-1])]
    expect_equal("what they follow", [info.previous_checkpoint_id for info in copied], followed)
    for before, after in zip(original, copied, strict=True):
        checkpoint, copy = [await store.find_checkpoint(info.checkpoint_id) for info in (before, after)]
        expect_equal(f"the root of commit {before.number}", copy and copy.root, checkpoint and checkpoint.root)
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
    expect_equal("its requests", await request_ids(store, thread_id="copy"), ["q"])
    within = await read_as_owner(store, "copy")
    expect_equal("last event, journal, inbox", (within["last_seq"], within["journal"], within["inbox"]), (4, [], []))
    await held.save()


@clause
async def a_copy_and_its_original_are_independent(store: Store) -> None:
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
    held = await own(store, "claimed")
    async with expect_unchanged(store):
        for to in ("there", "posted to", "claimed", "t"):
            await expect_raises(ThreadBusy, store.copy_thread("t", to), f"copying to {to!r}, which there is")
        await expect_raises(ThreadNotFound, store.copy_thread("none", "new"), "copying a thread that does not exist")
    expect_equal("the inbox", (await read_as_owner(store, "posted to"))["inbox"], [("item", "message", b"1")])
    await held.save()


@clause
async def the_events_of_a_copy_name_its_own_checkpoints(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await save_full_thread(store)
    await store.copy_thread("t", "copy")
    infos = {info.number: info for info in await store.infos(thread_id="copy")}
    named = [batch.info for batch in await store.events_after("copy", 0)]
    expect_equal("their checkpoints", named, [infos[1], infos[2], None])


@clause
async def a_copy_of_a_pruned_thread_has_all_that_is_left(store: Store) -> None:
    """Create a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    owner = await own(store)
    await owner.save(brings=["a"])
    await owner.save(brings=["b"])
    await owner.save(brings=["c"], drops=["b"], requests=[make_request("t", "q", 1)], due_at=at(2))
    await owner.note(events=1, status="FAILED")
    await owner.release()
    await store.prune("t", ["t-1", "t-2"])
    await store.copy_thread("t", "copy")
    expect_equal("its chunks", sorted(await chunks(store, "copy")), sorted([ref("a", 1), ref("c", 3)]))
    requests = [(request.thread_id, request.request_id) for request in await store.pending_requests(thread_id="copy")]
    expect_equal("its requests", requests, [("copy", "q")])
    await store.prune("t", ["t-3"])
    await store.copy_thread("t", "empty")
    left = [
        (thread.number, thread.status, thread.due_at) for thread in await store.threads() if thread.thread_id != "copy"
    ]
    expect_equal("the thread and its copy without a checkpoint", left, [(4, "FAILED", None)] * 2)
    expect_equal("the threads of the workflow", await thread_ids(store, workflow_name="w"), ["t", "copy", "empty"])
    again = await own(store, "copy")
    again.has = {3: {}}
    await again.save()
    expect_equal("how many went of the copy", await store.prune("copy", (await checkpoint_ids(store))[:1]), 1)
    expect_equal("its chunks then", sorted(await chunks(store, "copy")), sorted([ref("a", 1), ref("c", 3)]))
