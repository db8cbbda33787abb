"""Pins: what is pinned stays, whatever is pruned or forgotten, and says so wherever it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.errors import CheckpointNotFound
from perdure.store import Store
from perdure.testing.conformance.threads import ThreadOwner, checkpoint_ids, chunks, own, read_everything, save_thread


async def a_line(store: Store, count: int = 4) -> ThreadOwner:
    """Each checkpoint has one chunk, its own."""
    owner = await own(store)
    for number in range(1, count + 1):
        dropped = [f"c{number - 1}.{number - 1}"] if number > 1 else []
        await owner.save(chunks={f"c{number}": f'"{number}"'.encode()}, dropped=dropped, events=1)
    return owner


async def pins(store: Store, **filters: Any) -> list[str]:
    return [one.checkpoint_id for one in await store.infos(**filters) if one.is_pinned]


async def test_a_pinned_checkpoint_says_so_wherever_it_is_read(store: Store) -> None:
    await (await a_line(store, 3)).release()
    await store.pin("t-3")
    await store.pin("t-1")
    assert (
        await pins(store) == await pins(store, thread_id="t") == await pins(store, workflow_name="w") == ["t-1", "t-3"]
    )
    found, head = await store.find_checkpoint("t-1"), await store.head("t")
    assert found is not None and found.info.is_pinned and head is not None and head.info.is_pinned
    other = await store.find_checkpoint("t-2")
    assert other is not None and not other.info.is_pinned
    opened = await store.open("t", "run-2")
    assert opened.info is not None and opened.info == head.info


async def test_an_unpinned_checkpoint_is_like_any_other_again(store: Store) -> None:
    await (await a_line(store, 3)).release()
    before = await read_everything(store)
    await store.pin("t-2")
    await store.unpin("t-2")
    assert await read_everything(store) == before
    assert await store.prune("t", ["t-2"]) == 1


async def test_pinning_and_unpinning_again_changes_nothing(store: Store) -> None:
    await a_line(store, 2)
    await store.unpin("t-1")
    assert await pins(store) == []
    await store.pin("t-1")
    before = await read_everything(store)
    await store.pin("t-1")
    assert await read_everything(store) == before
    await store.unpin("t-1")
    await store.unpin("t-1")
    assert await pins(store) == []


async def test_pinning_changes_nothing_but_the_pin_and_moves_no_thread(store: Store) -> None:
    await save_thread(store, "one", 2, events=1)
    await save_thread(store, "two", 2, events=1)
    before = await read_everything(store)
    await store.pin("one-1")
    after = await read_everything(store)
    assert after["infos"] == [
        msgspec.structs.replace(one, is_pinned=one.checkpoint_id == "one-1") for one in before["infos"]
    ]
    for name in ("threads", "requests", "due", "heads", "chunks"):
        assert after[name] == before[name], name


async def test_pinning_needs_no_lease_and_leaves_the_owner_alone(store: Store) -> None:
    owner = await a_line(store, 2)
    await store.pin("t-2")
    await owner.save()
    await owner.record(1)
    await store.unpin("t-2")
    await owner.save()
    assert await checkpoint_ids(store) == ["t-1", "t-2", "t-3", "t-4"] and await pins(store) == []


async def test_what_there_is_not_cannot_be_pinned_or_unpinned(store: Store) -> None:
    await a_line(store, 2)
    await store.prune("t", ["t-1"])
    before = await read_everything(store)
    for checkpoint_id in ("none", "t-1", "t", ""):
        with pytest.raises(CheckpointNotFound):
            await store.pin(checkpoint_id)
        with pytest.raises(CheckpointNotFound):
            await store.unpin(checkpoint_id)
    assert await read_everything(store) == before


async def test_pruning_leaves_what_is_pinned_with_all_that_it_needs(store: Store) -> None:
    await a_line(store)
    await store.pin("t-2")
    assert await store.prune("t", ["t-1", "t-2", "t-3"]) == 2
    assert await checkpoint_ids(store) == ["t-2", "t-4"] and set(await chunks(store, "t")) == {"c2.2", "c4.4"}
    found = await store.find_checkpoint("t-2")
    assert found is not None and found.info.is_pinned and found.info.previous_checkpoint_id is None
    await store.unpin("t-2")
    assert await store.prune("t", ["t-2"]) == 1 and set(await chunks(store, "t")) == {"c4.4"}


async def test_a_commit_that_forgets_leaves_what_is_pinned(store: Store) -> None:
    owner = await a_line(store)
    await store.pin("t-2")
    await owner.save(prunes=[1, 2, 3, 4])
    assert await checkpoint_ids(store) == ["t-2", "t-5"] and await pins(store) == ["t-2"]
    assert {"c2.2", "c4.4"} <= set(await chunks(store, "t"))
    await store.prune("t", [])
    await owner.save(prunes=[5])
    assert await checkpoint_ids(store) == ["t-2", "t-6"] and {"c2.2", "c4.4"} <= set(await chunks(store, "t"))
    await store.unpin("t-2")
    await owner.save(prunes=[2])
    assert await checkpoint_ids(store) == ["t-6", "t-7"]


async def test_an_abandoned_branch_stays_as_far_as_it_is_pinned(store: Store) -> None:
    owner = await a_line(store, 2)
    branch = await owner.save(chunks={"dd": b"1"})
    await owner.save(chunks={"ee": b"2"}, dropped=["c2.2"])  # 1 -> 2 -> 3 -> 4
    owner.head = (await store.infos())[0]
    await owner.save(chunks={"ff": b"3"})  # and 1 -> 5
    await store.pin(branch.checkpoint_id)
    await owner.save(prunes=[2, 3, 4])
    assert await checkpoint_ids(store) == ["t-1", "t-3", "t-5", "t-6"]
    assert await store.prune("t", ["t-1", "t-2", "t-3", "t-4", "t-5"]) == 2
    assert await checkpoint_ids(store) == ["t-3", "t-6"] and set(await chunks(store, "t")) == {
        "c1.1",
        "c2.2",
        "dd.3",
        "ff.5",
    }


async def test_a_pinned_head_of_a_thread_with_an_owner_is_no_reason_to_refuse(store: Store) -> None:
    owner = await a_line(store, 3)
    await store.pin("t-3")
    assert await store.prune("t", ["t-1", "t-2", "t-3"]) == 2
    assert await checkpoint_ids(store) == ["t-3"]
    await owner.save()


async def test_a_checkpoint_that_takes_the_place_of_a_pinned_one_is_not_pinned(store: Store) -> None:
    owner = await a_line(store, 2)
    await store.pin("t-1")
    await owner.save("t-1")
    assert await checkpoint_ids(store) == ["t-2", "t-1"] and await pins(store) == []
    await save_thread(store, "u")
    await store.pin("t-2")
    other = await own(store, "u")
    await other.save("t-2")  # an id of another thread's
    assert await pins(store) == []


async def test_a_new_checkpoint_is_not_pinned_whatever_its_commit_says(store: Store) -> None:
    owner = await a_line(store, 1)
    commit = owner.checkpoint()
    assert commit.info is not None
    claims = msgspec.structs.replace(commit.info, is_pinned=True)
    await store.commit(msgspec.structs.replace(commit, info=claims))
    head = await store.head("t")
    assert head is not None and head.info == commit.info and await pins(store) == []


async def test_a_copy_of_a_thread_has_no_pins(store: Store) -> None:
    await (await a_line(store, 3)).release()
    await store.pin("t-2")
    await store.copy_thread("t", "copy")
    assert await pins(store) == ["t-2"]
    copied = await store.infos(thread_id="copy")
    assert await store.prune("copy", [copied[1].checkpoint_id]) == 1


async def test_pins_go_with_their_thread(store: Store) -> None:
    await (await a_line(store, 3)).release()
    await store.pin("t-2")
    assert await store.delete_thread("t") is True
    await (await a_line(store, 3)).release()  # the same ids and numbers
    assert await pins(store) == [] and await store.prune("t", ["t-2"]) == 1


async def test_pins_are_seen_by_others_at_once_and_outlive_their_process(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    await (await a_line(one, 3)).release()
    await two.pin("t-1")
    await one.pin("t-2")
    assert await pins(one) == await pins(two) == ["t-1", "t-2"]
    await two.unpin("t-1")
    await one.close()
    await two.close()
    three = another()
    assert await pins(three) == ["t-2"] and await three.prune("t", ["t-1", "t-2"]) == 1
    assert await checkpoint_ids(one) == await checkpoint_ids(two) == ["t-2", "t-3"]
