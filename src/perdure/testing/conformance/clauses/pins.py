"""Pins: a pinned checkpoint stays, whatever is pruned."""

from __future__ import annotations

import msgspec

from perdure.errors import CheckpointNotFound
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect_equal, expect_raises
from perdure.testing.conformance.threads import (
    ThreadOwner,
    check_readable,
    checkpoint_ids,
    expect_state,
    expect_unchanged,
    own,
    read_everything,
    save_line,
    save_thread,
)


@clause
async def a_pinned_checkpoint_is_not_pruned(store: Store) -> None:
    """Protect the checkpoint from pruning."""
    owner = await save_line(store, 4)
    await store.pin("t-2")
    expect_equal("how many went", await store.prune("t", ["t-1", "t-2", "t-3"]), 2)
    await expect_state(store, checkpoints=["t-2", "t-4"])
    await check_readable(store, "t", owner.has)


@clause
async def a_pinned_checkpoint_is_not_pruned_with_a_commit(store: Store) -> None:
    """The head and pinned checkpoints stay."""
    owner = await save_line(store, 3)
    await store.pin("t-1")
    await owner.save(prunes=[1, 2, 3])
    expect_equal("the checkpoints", await checkpoint_ids(store), ["t-1", "t-4"])
    await check_readable(store, "t", owner.has)


@clause
async def an_unpinned_checkpoint_goes_like_any_other(store: Store) -> None:
    """Remove that protection."""
    owner = await save_line(store, 3)
    for checkpoint_id in ("t-1", "t-2"):
        await store.pin(checkpoint_id)
        await store.unpin(checkpoint_id)
    expect_equal("how many went", await store.prune("t", ["t-1"]), 1)
    await owner.save(prunes=[2])
    await expect_state(store, checkpoints=["t-3", "t-4"])


@clause
async def pinning_needs_no_lease_and_twice_is_once(store: Store, owner: ThreadOwner) -> None:
    """Needs no lease; idempotent."""
    await owner.save()
    await store.pin("t-1")
    await store.pin("t-1")
    await owner.save()
    for checkpoint_id in ("t-1", "t-1", "t-2"):
        await store.unpin(checkpoint_id)
    expect_equal("how many went", await store.prune("t", ["t-1"]), 1)


@clause
async def a_checkpoint_shows_whether_it_is_pinned(store: Store) -> None:
    """Whether retention and pruning keep it."""
    await save_thread(store, "t", 2)
    await store.pin("t-2")
    expect_equal("the list", await pinned_ids(store), ["t-2"])
    read = (await store.find_checkpoint("t-2"), await store.head("t"))
    expect_equal("the checkpoint and the head", [each and each.info.is_pinned for each in read], [True, True])
    await store.unpin("t-2")
    expect_equal("the list after it was unpinned", await pinned_ids(store), [])


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
async def a_pinned_head_is_no_reason_to_reject_a_prune(store: Store) -> None:
    """Pinned checkpoints stay"""
    owner = await save_line(store, 3)
    await store.pin("t-3")
    expect_equal("how many went", await store.prune("t", ["t-1", "t-2", "t-3"]), 2)
    await expect_state(store, checkpoints=["t-3"])
    await owner.save()


@clause
async def a_pin_belongs_to_one_checkpoint_and_goes_with_it(store: Store, owner: ThreadOwner) -> None:
    """Whether retention and pruning keep it."""
    commit = owner.checkpoint()
    claim = msgspec.structs.replace(commit.info, is_pinned=True) if commit.info else None
    await owner.write(msgspec.structs.replace(commit, info=claim))
    expect_equal("whether a commit can pin its own checkpoint", await pinned_ids(store), [])
    owner.head = commit.info
    await owner.save()
    await store.pin("t-1")
    await store.pin("t-2")
    await owner.save("t-1")
    await (await own(store, "u")).save("t-2")
    expect_equal("the pins of two that were replaced", await pinned_ids(store), [])
    await store.pin("t-1")
    await owner.release()
    await store.copy_thread("t", "copy")
    expect_equal("the pins beside a copy", await pinned_ids(store), ["t-1"])
    await store.delete_thread("t")
    await save_thread(store, "t", 3)
    expect_equal("the pins of a new thread", await pinned_ids(store), [])


async def pinned_ids(store: Store) -> list[str]:
    return [info.checkpoint_id for info in await store.infos() if info.is_pinned]


@clause
async def pinning_changes_nothing_else(store: Store) -> None:
    """Protect the checkpoint from pruning."""
    await save_thread(store, "t", 2, events=1)
    await save_thread(store, "u", 2, events=1)
    before = await read_everything(store)
    await store.pin("t-1")
    after = await read_everything(store)
    for name in ("threads", "requests", "due", "heads", "chunks"):
        expect_equal(f"the {name}", after[name], before[name])
    await store.unpin("t-1")
    expect_equal("what can be read after it was unpinned", await read_everything(store), before)
