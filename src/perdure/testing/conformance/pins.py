"""Pinned checkpoints stay, whatever is pruned or forgotten."""

from __future__ import annotations

from perdure.errors import CheckpointNotFound
from perdure.store import Store
from perdure.testing.conformance.acts import everything, ids, own, readable, saved
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import refused, same


@clause
async def a_pinned_checkpoint_is_not_pruned(store: Store) -> None:
    """Keep the checkpoint, whatever is pruned."""
    owner = await own(store)
    for number in range(1, 5):
        await owner.save(brings=[f"c{number}"], drops=[f"c{number - 2}"])
    await store.pin("t-2")
    same("how many went", await store.prune("t", ["t-1", "t-2", "t-3"]), 2)
    same("the checkpoints", await ids(store), ["t-2", "t-4"])
    await readable(store, "t", owner.has)


@clause
async def a_pinned_checkpoint_is_not_forgotten_with_a_commit(store: Store) -> None:
    """The head and what is pinned stay."""
    owner = await own(store)
    for number in range(1, 4):
        await owner.save(brings=[f"c{number}"], drops=[f"c{number - 2}"])
    await store.pin("t-1")
    await owner.save(forgets=[1, 2, 3])
    same("the checkpoints", await ids(store), ["t-1", "t-4"])
    await readable(store, "t", owner.has)


@clause
async def an_unpinned_checkpoint_goes_like_any_other(store: Store) -> None:
    """Let it go like any other."""
    owner = await own(store)
    for _ in range(3):
        await owner.save()
    await store.pin("t-1")
    await store.pin("t-2")
    await store.unpin("t-1")
    await store.unpin("t-2")
    same("how many went", await store.prune("t", ["t-1"]), 1)
    await owner.save(forgets=[2])
    same("the checkpoints", await ids(store), ["t-3", "t-4"])


@clause
async def pinning_needs_no_lease_and_twice_is_once(store: Store) -> None:
    """Needs no lease; idempotent."""
    owner = await own(store)
    await owner.save()
    await store.pin("t-1")
    await store.pin("t-1")
    await owner.save()
    await store.unpin("t-1")
    await store.unpin("t-1")
    await store.unpin("t-2")
    same("how many went", await store.prune("t", ["t-1"]), 1)


@clause
async def a_checkpoint_says_whether_it_is_pinned(store: Store) -> None:
    """Whether it stays, whatever retention and pruning say."""
    await saved(store, "t", 2)
    await store.pin("t-2")
    same("the list", [one.is_pinned for one in await store.infos()], [False, True])
    found, head = await store.find_checkpoint("t-2"), await store.head("t")
    same("the checkpoint and the head", [one and one.info.is_pinned for one in (found, head)], [True, True])
    await store.unpin("t-2")
    same("the list after it was unpinned", [one.is_pinned for one in await store.infos()], [False, False])


@clause
async def what_there_is_not_cannot_be_pinned(store: Store) -> None:
    """Needs no lease; idempotent. Raises CheckpointNotFound."""
    owner = await own(store)
    await owner.save()
    await owner.save()
    await store.prune("t", ["t-1"])
    before = await everything(store)
    for checkpoint_id in ("none", "t-1"):
        await refused(CheckpointNotFound, store.pin(checkpoint_id), f"pinning {checkpoint_id!r}, which is not there")
        await refused(CheckpointNotFound, store.unpin(checkpoint_id), f"unpinning {checkpoint_id!r}, as little")
    same("what can be read after that", await everything(store), before)
