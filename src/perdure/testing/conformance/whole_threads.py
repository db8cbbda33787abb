"""Whole threads: forgotten altogether, and copied so that neither knows of the other."""

from __future__ import annotations

from perdure.errors import ThreadBusy, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.acts import chunks, everything, full, ids, inside, own, saved, thread_ids
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import holds, refused, same, the_one


@clause
async def nothing_is_left_of_a_deleted_thread(store: Store) -> None:
    """Forget all of a thread; False if there was none."""
    await full(store)
    await full(store, "u")
    before = await everything(store)
    await store.delete_thread("u")
    same("whether it was there, and then", [await store.delete_thread(one) for one in "tt"], [True, False])
    found = await everything(store, "t")
    same("the lists", [found[one] for one in ("infos", "threads", "requests", "due")], [[], [], [], []])
    same("its head, events and chunks", [found[one]["t"] for one in ("heads", "events", "chunks")], [None, [], {}])
    for checkpoint_id in before["checkpoints"]:
        same(f"checkpoint {checkpoint_id!r}", await store.find_checkpoint(checkpoint_id), None)
    within = await inside(store)
    same("what an owner finds", [within[one] for one in ("number", "last_seq", "journal", "inbox")], [0, 0, [], []])


@clause
async def a_thread_of_a_deleted_name_begins_anew(store: Store) -> None:
    """Forget all of a thread; False if there was none."""
    await full(store)
    await store.delete_thread("t")
    await store.post("t", "consumed", "message", b"2")  # an id that the old one had consumed
    owner = await own(store)
    same("the inbox", [one.item_id for one in owner.opened.inbox], ["consumed"])
    await owner.save("t-1", events=1)
    same(
        "checkpoints and events",
        (await ids(store), [e.first_seq for e in await store.events_after("t", 0)]),
        (["t-1"], [1]),
    )


@clause
async def deleting_leaves_other_threads_alone(store: Store) -> None:
    """Forget all of a thread; False if there was none."""
    await full(store, "u")
    before = await everything(store)
    await full(store, "t")
    await store.delete_thread("t")
    await store.post("v", "item", "message", b"1")
    same("whether one that was only posted to was there", await store.delete_thread("v"), True)
    same("what can be read", await everything(store), before)
    same("what its owner finds", (await inside(store, "u"))["journal"], [(5, b'{"done":1}')])


@clause
async def a_thread_with_an_owner_is_not_deleted(store: Store) -> None:
    """Raises ThreadBusy while it has an owner."""
    owner = await own(store)
    await owner.save()
    before = await everything(store)
    await refused(ThreadBusy, store.delete_thread("t"), "deleting a thread with an owner")
    same("what can be read after that", await everything(store), before)
    await owner.save()


@clause
async def a_thread_that_moved_or_waits_is_not_deleted_as_unmoved(store: Store) -> None:
    """only if that is its last commit, its inbox is empty and nothing of it is pinned; otherwise False, and nothing is
    changed."""
    await saved(store, "t", 2)
    same("whether one that moved went", await store.delete_thread("t", if_unmoved_since=1), False)
    await store.post("t", "item", "message", b"1")
    same("whether one with an item went", await store.delete_thread("t", if_unmoved_since=2), False)
    owner = await own(store)
    await owner.note(consumed=["item"])
    await owner.release()
    await store.pin("t-1")
    same("whether one with a pin went", await store.delete_thread("t", if_unmoved_since=3), False)
    same("the checkpoints", await ids(store), ["t-1", "t-2"])
    await store.unpin("t-1")
    same("whether one that is as it was went", await store.delete_thread("t", if_unmoved_since=3), True)
    same("the checkpoints then", await ids(store), [])


# ---------------------------------------------------------------- copies


@clause
async def a_copy_holds_all_commits_under_new_checkpoint_ids(store: Store) -> None:
    """Make a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    await full(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.infos(thread_id="t"), await store.infos(thread_id="copy")
    same(
        "its checkpoints",
        [(one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in copied],
        [(one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in original],
    )
    holds(not {one.checkpoint_id for one in original} & {one.checkpoint_id for one in copied}, "ids are shared")
    followed = [None, *(one.checkpoint_id for one in copied[:-1])]
    same("what they follow", [one.previous_checkpoint_id for one in copied], followed)
    for before, after in zip(original, copied, strict=True):
        one, two = [await store.find_checkpoint(info.checkpoint_id) for info in (before, after)]
        same(f"the root of commit {before.number}", two and two.root, one and one.root)
    same("its chunks", await chunks(store, "copy"), await chunks(store, "t"))
    logs = [[(e.first_seq, e.count, e.body) for e in await store.events_after(name, 0)] for name in ("t", "copy")]
    same("its events", logs[1], logs[0])


@clause
async def a_copy_has_no_journal_no_inbox_and_no_owner(store: Store) -> None:
    """The copy has no journal, no inbox and no owner."""
    await full(store)
    held = await own(store)
    await store.copy_thread("t", "copy")
    copied = the_one("the threads of that name", await store.threads(thread_id="copy"))
    same("number, status and owner", (copied.number, copied.status, copied.run_id), (4, "IDLE", None))
    same("its requests", [one.request_id for one in await store.pending_requests(thread_id="copy")], ["q"])
    within = await inside(store, "copy")
    same("last event, journal, inbox", (within["last_seq"], within["journal"], within["inbox"]), (4, [], []))
    await held.save()


@clause
async def a_copy_and_its_original_go_their_own_ways(store: Store) -> None:
    """Make a thread `to` with copies of all commits of this one, under new checkpoint ids."""
    owner = await full(store)
    await store.copy_thread("t", "copy")
    before = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    copy = await own(store, "copy")
    copy.has[4] = owner.has[4]
    await copy.save(brings=["new"], drops=["shared"], events=1)
    await copy.release()
    copied = await ids(store, thread_id="copy")
    await store.prune("copy", copied[:2])
    after = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    same("the original after its copy was moved and pruned", after, before)
    held = await chunks(store, "copy")
    await store.delete_thread("t")
    same("the threads", await thread_ids(store), ["copy"])
    same("the chunks of the copy", await chunks(store, "copy"), held)
    same("its checkpoints", await ids(store), copied[2:])


@clause
async def a_copy_never_takes_the_place_of_a_thread(store: Store) -> None:
    """Raises ThreadBusy if there is a thread `to` already."""
    await full(store)
    await saved(store, "there")
    await store.post("posted to", "item", "message", b"1")
    before = await everything(store)
    for to in ("there", "posted to", "t"):
        await refused(ThreadBusy, store.copy_thread("t", to), f"copying to {to!r}, which there is")
    await refused(ThreadNotFound, store.copy_thread("none", "new"), "copying a thread that there is not")
    same("what can be read after that", await everything(store), before)
    same("the inbox", (await inside(store, "posted to"))["inbox"], [("item", "message", b"1")])
