"""Pins: a pinned checkpoint stays, whatever is pruned."""

from __future__ import annotations

import msgspec

from perdure.errors import CheckpointNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect_equal, expect_raises
from perdure.testing.conformance.threads import (
    ThreadOwner,
    check_readable,
    expect_state,
    expect_unchanged,
    own,
    read_everything,
    save_line,
    save_thread,
)


@clause
async def a_pinned_checkpoint_is_not_pruned(store: Store) -> None:
    """Pinned checkpoints stay"""
    owner = await save_line(store, 4)
    await store.pin("t-2")
    expect_equal("how many went", await store.prune("t", ["t-1", "t-2", "t-3"]), 2)
    await expect_state(store, checkpoints=["t-2", "t-4"])
    await check_readable(store, "t", owner.has)
    await owner.save(prunes=[2, 4, 5])
    await expect_state(store, "after a commit that prunes it", checkpoints=["t-2", "t-5"])
    await check_readable(store, "t", owner.has)
    await store.pin("t-5")
    expect_equal("how many went of it and a pinned head", await store.prune("t", ["t-2", "t-5"]), 0)
    await owner.save()


@clause
async def an_unpinned_checkpoint_goes_like_any_other_however_often_it_was_pinned(store: Store) -> None:
    """Needs no lease; idempotent."""
    owner = await save_line(store, 3)
    for checkpoint_id in ("t-1", "t-1", "t-2"):
        await store.pin(checkpoint_id)
    for checkpoint_id in ("t-1", "t-2", "t-2", "t-3"):
        await store.unpin(checkpoint_id)
    expect_equal("how many went", await store.prune("t", ["t-1"]), 1)
    await owner.save(prunes=[2])
    await expect_state(store, checkpoints=["t-3", "t-4"])


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
async def an_unknown_checkpoint_cannot_be_pinned(store: Store) -> None:
    """Needs no lease; idempotent. Raises CheckpointNotFound."""
    await save_thread(store, "t", 2)
    await store.prune("t", ["t-1"])
    async with expect_unchanged(store):
        for gone in ("none", "t-1"):
            await expect_raises(CheckpointNotFound, store.pin(gone), f"pinning {gone!r}, which is not there")
            await expect_raises(CheckpointNotFound, store.unpin(gone), f"unpinning {gone!r}, which is not there")


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
