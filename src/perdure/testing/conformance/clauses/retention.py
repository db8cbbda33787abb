"""Pruned checkpoints: pinned ones stay, and so do the chunks that others need; those that none needs are freed."""

from __future__ import annotations

import json
from random import Random

import msgspec

from perdure.errors import CheckpointNotFound, ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect_equal, expect_fields, expect_one, expect_raises
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    checkpoint_ids,
    chunk,
    chunks,
    expect_owner_finds,
    expect_state,
    expect_unchanged,
    make_events,
    make_request,
    own,
    read_everything,
    ref,
    save_line,
    save_thread,
)


async def grow(owner: ThreadOwner, chance: Random, count: int) -> None:
    """Checkpoints that branch off anywhere, each with some chunks of its parent and some of its own."""
    for _ in range(count):
        left = list(await owner.store.infos(thread_id="t"))
        if left and chance.random() < 0.4:
            owner.head = chance.choice(left)
        parent = {} if owner.head is None else owner.has[owner.head.number]
        drops = [json.loads(data) for data in parent.values() if chance.random() < 0.3]
        brings = [f"{owner.number} {index}" for index in range(chance.randrange(3))] + ["again"] * chance.randrange(2)
        await owner.save(brings=brings, drops=drops, events=chance.randrange(2))


def some(chance: Random, left: list[str]) -> list[str]:
    """Of all but the head, which has an owner."""
    return [name for name in left[:-1] if chance.random() < 0.4]


async def exactly_what_is_needed(owner: ThreadOwner) -> None:
    await owner.expect_readable()
    needed = {name for info in await owner.store.infos(thread_id="t") for name in owner.has[info.number]}
    left = await chunks(owner.store, "t", owner.number) if owner.number else {}
    expect_equal("the chunks that are left, beside those that a checkpoint has", sorted(left.keys() - needed), [])


@clause
async def what_another_checkpoint_needs_stays_and_what_none_needs_goes(store: Store) -> None:
    """Delete these checkpoints of the thread, and the chunks that no other needs; returns how many existed."""
    other = await own(store, "other")
    await other.save(brings=["c1"])
    owner = await save_line(store, events=1)  # 1: c1; 2: c1 c2; 3: c2 c3; 4: c3 c4
    await other.save(brings=["c1"])
    for gone, left in ((2, [1, 2, 3, 4]), (1, [2, 3, 4]), (3, [3, 4])):
        expect_equal(f"how many went with t-{gone}", await store.prune("t", [f"t-{gone}", f"t-{gone}"]), 1)
        await expect_state(store, f"without t-{gone}", chunks={ref(f"c{number}", number) for number in left})
        await owner.expect_readable()
    await expect_state(store, checkpoints=["other-1", "t-4", "other-2"], threads=["t", "other"])
    await expect_state(store, "of the other thread", thread_id="other", chunks={ref("c1", 1), ref("c1", 2)})
    expect_equal("one of them by its id", await store.find_checkpoint("t-3"), None)
    chunks_by_number = await store.read_chunks("t", [4, 99, 1, 3, 0, -1, 4])
    got = {number: held for number, held in chunks_by_number.items() if held}
    expect_equal("chunks by number, where most are gone", got, {3: dict([chunk("c3")]), 4: dict([chunk("c4")])})
    async with expect_unchanged(store):
        counts = [await store.prune("t", gone) for gone in (["t-1"], [], ["other-1", "none"])]
        counts.append(await store.prune("none", ["t-4"]))
        expect_equal("how many went of what there is not", counts, [0, 0, 0, 0])


@clause
async def pruning_any_part_of_a_tree_leaves_exactly_what_is_needed(
    store: Store, owner: ThreadOwner, chance: Random
) -> None:
    """Pinned checkpoints stay, and so do the chunks that the head, a branch or any other checkpoint refers to."""
    await owner.save(brings=["a", "b"])
    fork = await owner.save(drops=["b"], brings=["c"])
    await owner.save(brings=["d"], drops=["c"])
    owner.head = fork
    await owner.save(brings=["e"])  # 2 -> 3 and 2 -> 4
    for doomed in (["t-1", "t-2"], ["t-3"]):
        expect_equal(f"how many of {doomed} were pruned", await store.prune("t", doomed), len(doomed))
        await exactly_what_is_needed(owner)
    for _ in range(6):
        await grow(owner, chance, 5)
        doomed = some(chance, await checkpoint_ids(store, thread_id="t"))
        expect_equal("how many were pruned", await store.prune("t", doomed), len(doomed))
        await exactly_what_is_needed(owner)
    for _ in range(6):
        await grow(owner, chance, 4)
        left = {info.checkpoint_id: info.number for info in await store.infos(thread_id="t")}
        doomed = some(chance, list(left))
        await owner.save(prunes=[left.pop(name) for name in doomed])
        expected = [*left, f"t-{owner.number}"]
        expect_equal("the checkpoints that a commit leaves", await checkpoint_ids(store, thread_id="t"), expected)
        await owner.expect_readable()
    await store.prune("t", (await checkpoint_ids(store, thread_id="t"))[:1])  # frees all that was pruned, at once
    await exactly_what_is_needed(owner)


@clause
async def what_a_commit_prunes_is_gone_and_all_else_stays(store: Store) -> None:
    """Numbers of checkpoints that retention deletes with it."""
    owner = await save_line(store, 3, events=1)
    await save_thread(store, "u", 2)
    await owner.save(prunes=[1, 2, 77], events=1)
    await expect_state(store, checkpoints=["t-3", "u-1", "u-2", "t-4"], events=[1, 2, 3, 4])
    expect_equal("one of them by its id", await store.find_checkpoint("t-1"), None)
    await owner.expect_readable()
    await owner.save(prunes=[4, 6], requests=[make_request("t", "q", 1)], due_at=at(5))
    await expect_state(store, "after one that prunes itself", checkpoints=["t-3", "u-1", "u-2", "t-5"], head="t-5")
    await owner.record(1)
    await store.post("t", "item", "message", b"1")
    await owner.note(prunes=[-1, 0, 1, 2, 3, 4, 5, 6, 9], prunes_events_before=3)
    await expect_state(store, "beside the head", checkpoints=["u-1", "u-2", "t-5"], requests=["q"])
    await owner.expect_readable()
    await expect_state(store, journal=[1], inbox=["item"], due=["t"])


@clause
async def when_the_head_is_pruned_the_newest_that_is_left_is_the_head(store: Store) -> None:
    """Raises ThreadBusy if the head is among them and the thread has an owner."""
    owner = await save_line(store, 2, events=1)
    await owner.save(requests=[make_request("t", "q", 1)], due_at=at(1))
    await owner.record(1)
    async with expect_unchanged(store):
        await expect_raises(ThreadBusy, store.prune("t", ["t-1", "t-3"]), "pruning the head of a thread with an owner")
    expect_equal("how many went without the head", await store.prune("t", ["t-2"]), 1)
    await owner.release()
    await expect_state(store, head="t-3", due=["t"])
    expect_equal("how many went with it", await store.prune("t", ["t-3", "t-2"]), 1)
    await expect_state(store, "then", head="t-1", requests=[], due=[])
    left = await store.head("t")
    await expect_owner_finds(store, info=left and left.info, number=3, journal=[])
    expect_equal("how many went at last", await store.prune("t", ["t-1"]), 1)
    await expect_state(store, "at last", head=None, checkpoints=[], chunks=set(), events=[1, 2])
    thread = expect_one("the threads of the workflow", await store.threads(workflow_name="w"))
    expect_fields("the thread", thread, number=3, checkpoint_id=None, workflow_name="w")
    await expect_owner_finds(store, number=3, last_seq=2)
    again = await own(store)
    expect_equal("the number of the next", (await again.save()).number, 4)


@clause
async def chunks_that_events_refer_to_stay_as_long_as_the_events(store: Store, owner: ThreadOwner) -> None:
    """Whether they refer to chunks of their checkpoint, which then stay as long as they do."""
    await owner.save(brings=["a", "b"])
    await owner.save(brings=["c"], drops=["b"], events=make_events(1, refers=True))
    await owner.note(brings=["failure"], events=make_events(2, own=(chunk("failure")[0],)))
    await owner.save(brings=["of a note"])
    await owner.note(parent=4, events=make_events(3, refers=True))
    await owner.save(drops=["a", "c", "of a note"], brings=["d"])
    await owner.save(brings=["a"])  # the same text, in another commit
    await store.prune("t", ["t-1", "t-2", "t-4"])
    of_events = {ref("a", 1), ref("c", 2), ref("failure", 3), ref("of a note", 4)}
    await expect_state(store, chunks={*of_events, ref("d", 6), ref("a", 7)})
    await store.prune("t", [], events_before=99)
    await expect_state(store, "without the events", chunks={ref("d", 6), ref("a", 7)})


@clause
async def a_pinned_checkpoint_is_not_pruned(store: Store) -> None:
    """Pinned checkpoints stay"""
    owner = await save_line(store, 4)
    await store.pin("t-2")
    expect_equal("how many went", await store.prune("t", ["t-1", "t-2", "t-3"]), 2)
    await expect_state(store, checkpoints=["t-2", "t-4"])
    await owner.expect_readable()
    await owner.save(prunes=[2, 4, 5])
    await expect_state(store, "after a commit that prunes it", checkpoints=["t-2", "t-5"])
    await owner.expect_readable()
    await store.pin("t-5")
    expect_equal("how many went of it and a pinned head", await store.prune("t", ["t-2", "t-5"]), 0)
    await owner.save()


@clause
async def an_unpinned_checkpoint_goes_like_any_other_and_cannot_be_pinned_then(store: Store) -> None:
    """Needs no lease; idempotent. Raises CheckpointNotFound."""
    owner = await save_line(store, 3)
    for checkpoint_id in ("t-1", "t-1", "t-2"):
        await store.pin(checkpoint_id)
    for checkpoint_id in ("t-1", "t-2", "t-2", "t-3"):
        await store.unpin(checkpoint_id)
    expect_equal("how many went", await store.prune("t", ["t-1"]), 1)
    await owner.save(prunes=[2])
    await expect_state(store, checkpoints=["t-3", "t-4"])
    async with expect_unchanged(store):
        for gone in ("none", "t-1", "t-2"):
            await expect_raises(CheckpointNotFound, store.pin(gone), f"pinning {gone!r}, which is not there")
            await expect_raises(CheckpointNotFound, store.unpin(gone), f"unpinning {gone!r}, which is not there")


@clause
async def a_checkpoint_shows_whether_it_is_pinned_and_nothing_else_is_changed(store: Store) -> None:
    """Whether retention and pruning keep it."""
    await save_thread(store, "t", 2, events=1)
    await save_thread(store, "u", 2, events=1)
    before = await read_everything(store)
    await store.pin("t-2")
    await expect_state(store, pins=["t-2"])
    read = (await store.find_checkpoint("t-2"), await store.head("t"))
    expect_equal("the checkpoint and the head", [each and each.info.is_pinned for each in read], [True, True])
    await store.unpin("t-2")
    await store.pin("t-1")
    after = await read_everything(store)
    for name in ("threads", "requests", "due", "heads", "chunks"):
        expect_equal(f"the {name}", after[name], before[name])
    await store.unpin("t-1")
    expect_equal("what can be read after it was unpinned", await read_everything(store), before)


@clause
async def a_pin_belongs_to_one_checkpoint_and_goes_with_it(store: Store, owner: ThreadOwner) -> None:
    """Whether retention and pruning keep it."""
    commit = owner.checkpoint()
    claim = msgspec.structs.replace(commit.info, is_pinned=True) if commit.info else None
    await owner.write(msgspec.structs.replace(commit, info=claim))
    await expect_state(store, "that a commit claims", pins=[])
    owner.head = commit.info
    await owner.save()
    await store.pin("t-1")
    await store.pin("t-2")
    await owner.save("t-1")
    await (await own(store, "u")).save("t-2")
    await expect_state(store, "of two that were replaced", pins=[])
    await store.pin("t-1")
    await owner.release()
    await store.copy_thread("t", "copy")
    await expect_state(store, "beside a copy", pins=["t-1"])
    await store.delete_thread("t")
    await save_thread(store, "t", 3)
    await expect_state(store, "of a new thread", pins=[])
