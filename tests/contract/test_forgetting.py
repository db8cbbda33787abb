"""Commits that forget older checkpoints and events: gone at once, in one act with the commit; freed by and by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.errors import CursorExpired, ThreadConflict
from perdure.records import Commit
from perdure.store import Store
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    checkpoint_ids,
    chunks,
    make_events,
    make_request,
    own,
    read_as_owner,
    read_everything,
    save_thread,
)

MANY = 300


async def a_line(store: Store, count: int = 4) -> ThreadOwner:
    """Each checkpoint has one chunk, its own, and tells one event."""
    owner = await own(store)
    for number in range(1, count + 1):
        dropped = [f"c{number - 1}.{number - 1}"] if number > 1 else []
        await owner.save(chunks={f"c{number}": f'"{number}"'.encode()}, dropped=dropped, events=1)
    return owner


# ---------------------------------------------------------------- checkpoints


async def test_a_commit_forgets_the_checkpoints_that_it_names(store: Store) -> None:
    owner = await a_line(store)
    await owner.save(prunes=[1, 3])
    assert await checkpoint_ids(store) == await checkpoint_ids(store, thread_id="t") == ["t-2", "t-4", "t-5"]
    for gone in ("t-1", "t-3"):
        assert await store.find_checkpoint(gone) is None
    head = await store.head("t")
    assert head is not None and head.info.checkpoint_id == "t-5"
    await owner.save(prunes=[2, 4, 5], dropped=["c4.4"])
    assert await checkpoint_ids(store) == ["t-6"]


async def test_numbers_that_are_no_checkpoint_are_ignored(store: Store) -> None:
    owner = await a_line(store, 2)
    await owner.note(events=1)
    await store.prune("t", ["t-1"])
    await owner.save(prunes=[0, -1, 1, 3, 4, 5, 99])
    assert await checkpoint_ids(store) == ["t-2", "t-4"] and [
        one.first_seq for one in await store.events_after("t", 0)
    ] == [
        1,
        2,
        3,
    ]


async def test_neither_the_commit_itself_nor_the_head_is_ever_forgotten(store: Store) -> None:
    owner = await a_line(store, 2)
    await owner.save(prunes=[3])
    await owner.record(1)
    await owner.note(prunes=[3, 4, 2], events=1, requests=[make_request("t", "q", 1)])
    assert await checkpoint_ids(store) == ["t-1", "t-3"]
    assert [one.request_id for one in await store.pending_requests()] == ["q"]
    within = await read_as_owner(store, "t")
    assert within["info"].checkpoint_id == "t-3" and len(within["journal"]) == 1


async def test_a_refused_commit_forgets_nothing(store: Store) -> None:
    stale = await a_line(store)
    owner = await own(store, owner="run-2", takeover=True)
    before = await read_everything(store)
    forgetting: dict[str, Any] = {"prunes": [1, 2, 3], "prunes_events_before": 4}
    refused: list[Commit] = [
        stale.checkpoint(**forgetting),
        msgspec.structs.replace(owner.checkpoint(**forgetting), number=7),
        owner.checkpoint(parent=99, **forgetting),
    ]
    for commit in refused:
        with pytest.raises(ThreadConflict):
            await store.commit(commit)
        assert await read_everything(store) == before
    await owner.save(**forgetting)
    assert await checkpoint_ids(store) == ["t-4", "t-5"]


async def test_a_checkpoint_follows_the_nearest_one_that_is_not_forgotten(store: Store) -> None:
    owner = await a_line(store, 5)
    await owner.save(prunes=[2, 3])
    previous = {one.checkpoint_id: one.previous_checkpoint_id for one in await store.infos()}
    assert previous == {"t-1": None, "t-4": "t-1", "t-5": "t-4", "t-6": "t-5"}
    await owner.save(prunes=[1, 5, 6])
    previous = {one.checkpoint_id: one.previous_checkpoint_id for one in await store.infos()}
    assert previous == {"t-4": None, "t-7": "t-4"}
    head, found = await store.head("t"), await store.find_checkpoint("t-4")
    assert head is not None and head.info.previous_checkpoint_id == "t-4"
    assert found is not None and found.info.previous_checkpoint_id is None


async def test_nothing_can_continue_from_what_is_forgotten(store: Store) -> None:
    owner = await a_line(store, 3)
    await owner.save(prunes=[2])
    with pytest.raises(ThreadConflict):
        await owner.save(parent=2)
    await owner.save(parent=1, chunks={"dd": b"1"}, dropped=["c1.1"])
    assert await checkpoint_ids(store) == ["t-1", "t-3", "t-4", "t-5"]


async def test_what_is_left_keeps_all_that_it_has_from_what_is_forgotten(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"})
    fork = await owner.save(dropped=["bb.1"], chunks={"cc": b"3"})
    await owner.save(chunks={"dd": b"4"}, dropped=["cc.2"])  # aa dd
    owner.head = fork
    await owner.save(chunks={"ee": b"5"}, prunes=[1, 2])  # aa cc ee
    assert {"aa.1", "cc.2", "dd.3", "ee.4"} <= set(await chunks(store, "t"))
    await store.prune("t", [])
    await owner.save(prunes=[3], dropped=["cc.2"])
    assert {"aa.1", "cc.2", "ee.4"} <= set(await chunks(store, "t"))
    await store.prune("t", ["t-4"])
    assert set(await chunks(store, "t")) == {"aa.1", "ee.4"}


async def test_events_of_a_forgotten_checkpoint_stay_and_name_none(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"}, events=make_events(1, 2, refers=True, own=("bb",)))
    await owner.save(dropped=["aa.1"], events=1)
    await owner.save(prunes=[1, 2])
    await store.prune("t", [])
    found = await store.events_after("t", 0)
    assert [(one.first_seq, one.count, one.info) for one in found] == [(1, 2, None), (3, 1, None)]
    assert set(await chunks(store, "t")) == {"aa.1", "bb.1"}


async def test_forgetting_leaves_other_threads_and_what_waits_alone(store: Store) -> None:
    await save_thread(store, "u", 3, chunks={"c1": b'"u"'}, events=1)
    before = [await store.infos(thread_id="u"), await chunks(store, "u"), await store.events_after("u", None)]
    owner = await a_line(store, 3)
    await owner.save(requests=[make_request("t", "q", 1)], due_at=at(5))
    await owner.record(1)
    await store.post("t", "item", "message", b"1")
    await owner.note(prunes=[1, 2, 3], prunes_events_before=4)
    assert [await store.infos(thread_id="u"), await chunks(store, "u"), await store.events_after("u", None)] == before
    assert [one.request_id for one in await store.pending_requests()] == ["q"]
    within = await read_as_owner(store, "t")
    assert len(within["journal"]) == len(within["inbox"]) == 1 and within["last_seq"] == 3
    assert [one.thread_id for one in await store.due(at(9))] == ["t"]


# ---------------------------------------------------------------- giving back


async def test_what_was_forgotten_is_freed_by_the_commits_that_follow(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"old": b'"needed by all"'})
    for number in range(2, MANY + 1):
        await owner.save(
            chunks={f"c{number}": b'"only here"'},
            dropped=[f"c{number - 1}.{number - 1}"] * (number > 2),
            prunes=[number - 1],
        )
        if number % 50 == 0:
            held = await chunks(store, "t", number)
            assert {"old.1", f"c{number}.{number}"} <= held.keys(), number
            assert len(held) < 130, number
    assert await checkpoint_ids(store) == [f"t-{MANY}"]
    assert await store.prune("t", []) == 0
    assert set(await chunks(store, "t", MANY)) == {"old.1", f"c{MANY}.{MANY}"}


async def test_what_only_forgotten_events_referred_to_is_freed_by_the_commits_that_follow(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    for number in range(2, MANY + 1):
        events = make_events(owner.last_seq + 1, own=(f"e{number}",))
        await owner.note(chunks={f"e{number}": b'"told"'}, events=events, prunes_events_before=number)
    held = await chunks(store, "t", MANY)
    assert {"aa.1", f"e{MANY}.{MANY}"} <= held.keys() and len(held) < 130
    assert [one.first_seq for one in await store.events_after("t", None)] == [MANY - 1]


async def test_many_can_be_forgotten_with_one_commit(store: Store) -> None:
    owner = await a_line(store, 150)
    await owner.save(prunes=range(1, 151), prunes_events_before=151, chunks={"new": b"1"})
    assert await checkpoint_ids(store) == ["t-151"] and list(await store.events_after("t", None)) == []
    assert set(await chunks(store, "t", 151)) == {"c150.150", "new.151"}  # freed with it: there is much to free


async def test_what_was_forgotten_stays_so_for_others_and_later(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    owner = await a_line(one)
    await owner.save(prunes=[1, 2], prunes_events_before=3)
    for store in (one, two):
        assert await checkpoint_ids(store) == ["t-3", "t-4", "t-5"]
    await owner.release()
    await one.close()
    await two.close()
    three = another()
    assert await checkpoint_ids(three) == ["t-3", "t-4", "t-5"]
    with pytest.raises(CursorExpired):
        await three.events_after("t", 1)
    again = await own(three)
    await again.save(dropped=["c4.4"], prunes=[3, 4])
    assert await checkpoint_ids(two) == ["t-5", "t-6"]
    assert await two.prune("t", ["t-5"]) == 1 and await chunks(two, "t") == {}
