"""Forgetting checkpoints: what anything else needs stays, and what nothing needs goes."""

from __future__ import annotations

import pytest

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.threads import (
    ThreadOwner,
    checkpoint_ids,
    chunks,
    make_events,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)


async def a_line(store: Store, count: int = 4) -> ThreadOwner:
    """Each checkpoint brings a chunk of its own, shares those before, and drops the one before the last."""
    owner = await own(store)
    for number in range(1, count + 1):
        dropped = [f"c{number - 2}.{number - 2}"] if number > 2 else []
        await owner.save(chunks={f"c{number}": f'"{number}"'.encode()}, dropped=dropped, events=1)
    return owner


async def test_what_another_checkpoint_needs_stays_and_what_none_needs_goes(store: Store) -> None:
    await a_line(store)  # 1: c1; 2: c1 c2; 3: c2 c3; 4: c3 c4
    assert await store.prune("t", ["t-2"]) == 1
    assert await chunks(store, "t") == {f"c{number}.{number}": f'"{number}"'.encode() for number in (1, 2, 3, 4)}
    assert await store.prune("t", ["t-1"]) == 1
    assert set(await chunks(store, "t")) == {"c2.2", "c3.3", "c4.4"}
    assert await store.prune("t", ["t-3"]) == 1
    assert set(await chunks(store, "t")) == {"c3.3", "c4.4"}
    assert await checkpoint_ids(store) == ["t-4"] and await store.find_checkpoint("t-3") is None


async def test_all_older_ones_can_go_at_once_and_the_thread_goes_on(store: Store) -> None:
    owner = await a_line(store)
    assert await store.prune("t", ["t-1", "t-2", "t-3"]) == 3
    head = await store.head("t")
    assert head is not None and head.info.checkpoint_id == "t-4"
    await owner.save(dropped=["c3.3"])
    assert await store.prune("t", ["t-4"]) == 1
    assert set(await chunks(store, "t")) == {"c4.4"}


async def test_pruning_again_or_what_there_is_not_changes_nothing(store: Store) -> None:
    owner = await a_line(store)
    await owner.release()
    await save_thread(store, "u")
    assert await store.prune("t", ["t-1", "t-1"]) == 1
    before = await read_everything(store)
    assert await store.prune("t", ["t-1"]) == 0 and await store.prune("t", []) == 0
    assert await store.prune("t", ["u-1", "none"]) == 0  # that is another thread's
    assert await store.prune("nobody", ["t-2"]) == 0
    assert await read_everything(store) == before


async def test_when_the_head_goes_the_newest_that_is_left_is_the_head(store: Store) -> None:
    owner = await a_line(store, 3)
    await owner.record(1)
    await owner.release()
    assert await store.prune("t", ["t-3", "t-2"]) == 2
    head = await store.head("t")
    assert head is not None and head.info.checkpoint_id == "t-1"
    within = await read_as_owner(store, "t")
    assert (within["info"], within["number"], within["journal"]) == (head.info, 3, [])
    assert set(await chunks(store, "t")) == {"c1.1"}
    again = await own(store)
    assert (await again.save()).number == 4


async def test_a_thread_without_any_checkpoint_left_keeps_its_number_and_its_events(store: Store) -> None:
    owner = await a_line(store, 2)
    await owner.release()
    assert await store.prune("t", ["t-1", "t-2"]) == 2
    assert await store.head("t") is None and await checkpoint_ids(store) == [] and await chunks(store, "t") == {}
    (thread,) = await store.threads(workflow_name="w")
    assert (thread.number, thread.checkpoint_id, thread.workflow_name) == (2, None, "w")
    assert [one.first_seq for one in await store.events_after("t", 0)] == [1, 2]
    again = await own(store)
    assert (again.number, again.last_seq, again.opened.info, again.opened.root) == (2, 2, None, None)
    await again.save()
    assert await checkpoint_ids(store) == ["t-3"] and await thread_ids(store) == ["t"]


async def test_the_head_of_a_thread_with_an_owner_is_not_pruned_but_older_ones_are(store: Store) -> None:
    owner = await a_line(store, 3)
    before = await read_everything(store)
    with pytest.raises(ThreadBusy, match="run-1"):
        await store.prune("t", ["t-1", "t-3"])
    assert await read_everything(store) == before
    assert await store.prune("t", ["t-1"]) == 1
    await owner.save()


async def test_events_of_a_pruned_checkpoint_stay(store: Store) -> None:
    await a_line(store)
    before = await store.events_after("t", 0)
    await store.prune("t", ["t-1", "t-2"])
    after = await store.events_after("t", 0)
    assert [(one.first_seq, one.count, one.body, one.run_id, one.timestamp) for one in after] == [
        (one.first_seq, one.count, one.body, one.run_id, one.timestamp) for one in before
    ]
    assert [one.first_seq for one in await store.events_after("t", 2)] == [3, 4]


async def test_events_of_a_pruned_checkpoint_name_none(store: Store) -> None:
    await a_line(store, 3)
    await store.prune("t", ["t-2"])
    assert [one.info and one.info.checkpoint_id for one in await store.events_after("t", 0)] == ["t-1", None, "t-3"]


async def test_a_checkpoint_follows_the_nearest_one_that_is_left(store: Store) -> None:
    await a_line(store)
    await store.prune("t", ["t-2", "t-3"])
    assert [one.previous_checkpoint_id for one in await store.infos()] == [None, "t-1"]
    head = await store.head("t")
    assert head is not None and head.info.previous_checkpoint_id == "t-1"
    await store.prune("t", ["t-1"])
    assert [one.previous_checkpoint_id for one in await store.infos()] == [None]


async def test_chunks_that_events_refer_to_stay_as_long_as_they_do(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"})
    await owner.save(chunks={"cc": b"3"}, dropped=["bb.1"], events=make_events(1, refers=True))
    await owner.save(dropped=["aa.1", "cc.2"], chunks={"dd": b"4"})
    await store.prune("t", ["t-1", "t-2"])
    assert set(await chunks(store, "t")) == {"aa.1", "cc.2", "dd.3"}
    await owner.save(dropped=["dd.3"])
    await store.prune("t", ["t-3"])
    assert set(await chunks(store, "t")) == {"aa.1", "cc.2"}


async def test_chunks_that_only_events_refer_to_stay_with_them(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"state": b"1", "told": b"2"}, events=make_events(1, own=("told",)))
    await owner.note(chunks={"failure": b"3"}, events=make_events(2, own=("failure",)))
    await owner.save(dropped=["state.1"])
    await store.prune("t", ["t-1"])
    assert set(await chunks(store, "t")) == {"told.1", "failure.2"}


async def test_events_without_a_checkpoint_keep_what_they_refer_to_of_the_one_before(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    await owner.note(parent=1, events=make_events(1, refers=True))
    await owner.save(dropped=["aa.1"])
    await store.prune("t", ["t-1"])
    assert set(await chunks(store, "t")) == {"aa.1"}


async def test_a_branch_keeps_what_it_shares_with_what_is_pruned(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"})
    fork = await owner.save(dropped=["bb.1"], chunks={"cc": b"3"})
    await owner.save(chunks={"dd": b"4"}, dropped=["cc.2"])
    owner.head = fork
    await owner.save(chunks={"ee": b"5"})  # 2 -> 3 and 2 -> 4
    assert await store.prune("t", ["t-1", "t-2"]) == 2
    assert set(await chunks(store, "t")) == {"aa.1", "cc.2", "dd.3", "ee.4"}
    assert await store.prune("t", ["t-3"]) == 1
    assert set(await chunks(store, "t")) == {"aa.1", "cc.2", "ee.4"}


async def test_a_chunk_that_came_back_under_another_number_is_another_chunk(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    await owner.save(dropped=["aa.1"])
    await owner.save(chunks={"aa": b"1"})
    await store.prune("t", ["t-1"])
    assert set(await chunks(store, "t")) == {"aa.3"}


async def test_commits_without_a_checkpoint_outlive_their_neighbours(store: Store) -> None:
    owner = await own(store)
    await owner.note(events=1)
    await owner.save(chunks={"aa": b"1"})
    await owner.note(events=2, status="FAILED")
    await owner.save(chunks={"bb": b"2"}, parent=2)
    await store.prune("t", ["t-2"])
    assert set(await chunks(store, "t")) == {"aa.2", "bb.4"}
    assert [one.count for one in await store.events_after("t", 0)] == [1, 2]


async def test_reading_chunks_of_commits_that_are_gone_gives_the_others(store: Store) -> None:
    await a_line(store)
    await store.prune("t", ["t-1", "t-2"])
    found = await store.read_chunks("t", [4, 99, 1, 2, 0, -1, 4])
    assert {number: dict(held) for number, held in found.items() if held} == {2: {"c2": b'"2"'}, 4: {"c4": b'"4"'}}


async def test_pruning_leaves_other_threads_alone(store: Store) -> None:
    await a_line(store)
    await save_thread(store, "u", 3, chunks={"c1": b'"u"'})
    before = [await store.find_checkpoint(f"u-{number}") for number in (1, 2, 3)]
    await store.prune("t", ["t-1", "t-2", "t-3"])
    assert [await store.find_checkpoint(f"u-{number}") for number in (1, 2, 3)] == before
    assert len(await chunks(store, "u")) == 3


async def test_pruning_moves_no_thread_and_leaves_the_order_of_commits(store: Store) -> None:
    one, two = await own(store, "one"), await own(store, "two")
    for owner in (one, two, one, two):
        await owner.save(events=1)
    await store.prune("one", ["one-1"])
    assert await checkpoint_ids(store) == ["two-1", "one-2", "two-2"] and await thread_ids(store) == ["one", "two"]
    await one.release()
    await store.prune("one", ["one-2"])
    assert await checkpoint_ids(store) == ["two-1", "two-2"] and await thread_ids(store) == ["one", "two"]


async def test_a_thread_is_of_the_workflow_that_moved_it_last_though_that_checkpoint_goes(store: Store) -> None:
    await save_thread(store, "t", workflow_name="one")
    await save_thread(store, "t", workflow_name="two", events=1)
    await store.prune("t", ["t-2"])
    for workflow_name, expected in [("one", []), ("two", ["t"])]:
        assert await thread_ids(store, workflow_name=workflow_name) == expected, workflow_name
    await save_thread(store, "t", workflow_name="one")
    assert await thread_ids(store, workflow_name="one") == ["t"]
