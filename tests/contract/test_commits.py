"""A commit is one act: number, fence and parent are compared, and either all of it is stored or nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import ThreadConflict
from perdure.records import Commit, LoggedEvents
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
)

WHOLE: dict[str, Any] = {
    "chunks": {"aa": b'"new"'},
    "consumed": ["item"],
    "requests": [make_request("t", "question", 9)],
    "due_at": at(60),
    "status": "WAITING",
}
"""Something for each part of a commit."""


async def standing(store: Store) -> ThreadOwner:
    """A thread with something of everything."""
    owner = await own(store)
    await owner.save(events=2, chunks={"bb": b'"old"'}, requests=[make_request("t", "first", 1)], due_at=at(5))
    await owner.save(dropped=["bb.1"])
    await owner.record(7)
    await store.post("t", "item", "message", b'"hello"')
    return owner


async def refused(store: Store, commit: Commit, match: str) -> None:
    before = await read_everything(store)
    with pytest.raises(ThreadConflict, match=match):
        await store.commit(commit)
    assert await read_everything(store) == before
    within = await read_as_owner(store, "t")
    assert (within["number"], within["last_seq"], within["status"]) == (2, 2, "IDLE")
    assert [one for one, _ in within["journal"]] == [7]
    assert within["inbox"] == [("item", "message", b'"hello"')]


@pytest.mark.parametrize("number", [0, 1, 2, 4, 1000])
async def test_a_commit_that_is_not_the_next_stores_nothing(store: Store, number: int) -> None:
    owner = await standing(store)
    commit = msgspec.structs.replace(owner.checkpoint(events=1, **WHOLE), number=number)
    await refused(store, commit, f"tried to write commit {number}, the store has commit 2")


async def test_a_commit_with_an_old_fence_stores_nothing(store: Store) -> None:
    owner = await standing(store)
    await store.open("t", "run-2", takeover=True)
    await refused(store, owner.checkpoint(events=1, **WHOLE), "fence 1 of run 'run-1'")


@pytest.mark.parametrize("parent", [3, 99])
async def test_a_commit_after_a_checkpoint_that_never_was_stores_nothing(store: Store, parent: int) -> None:
    owner = await standing(store)
    await refused(store, owner.checkpoint(events=1, **{**WHOLE, "parent": parent}), "no such checkpoint")


async def test_a_commit_after_a_checkpoint_that_was_pruned_stores_nothing(store: Store) -> None:
    owner = await standing(store)
    assert await store.prune("t", ["t-1"]) == 1
    await refused(store, owner.checkpoint(events=1, **{**WHOLE, "parent": 1}), "no such checkpoint")


async def test_a_pruned_checkpoint_whose_events_refer_to_chunks_is_gone_as_a_parent(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"}, events=make_events(1, refers=True))
    await owner.save()
    assert await store.prune("t", ["t-1"]) == 1
    before = await read_everything(store)
    with pytest.raises(ThreadConflict, match="no such checkpoint"):
        await owner.save(parent=1)
    assert await read_everything(store) == before


async def test_a_commit_after_one_without_a_checkpoint_stores_nothing(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await owner.note()
    before = await read_everything(store)
    with pytest.raises(ThreadConflict, match="no such checkpoint"):
        await owner.save(parent=2)
    assert await read_everything(store) == before


async def test_the_first_commit_is_number_one(store: Store) -> None:
    owner = await own(store)
    owner.number = 1
    with pytest.raises(ThreadConflict, match="tried to write commit 2, the store has commit 0"):
        await owner.save()
    assert await store.head("t") is None and await checkpoint_ids(store) == []


async def test_all_of_a_commit_is_stored(store: Store) -> None:
    owner = await standing(store)
    info = await owner.save(events=3, root=b'{"big":[1,2.50,null]}', **WHOLE)
    head = await store.head("t")
    assert head is not None and head.info == info and head.root == b'{"big":[1,2.50,null]}'
    assert await store.find_checkpoint("t-3") == head
    assert (await chunks(store, "t"))["aa.3"] == b'"new"'
    assert [one.request_id for one in await store.pending_requests()] == ["question"]
    (thread,) = await store.threads()
    assert (thread.number, thread.checkpoint_id, thread.due_at) == (3, "t-3", at(60))
    assert (thread.status, thread.updated_at, thread.workflow_name) == ("WAITING", at(3).isoformat(), "w")
    within = await read_as_owner(store, "t")
    assert (within["last_seq"], within["journal"], within["inbox"]) == (5, [], [])


async def test_a_commit_without_a_checkpoint_moves_the_number_and_keeps_the_head(store: Store) -> None:
    owner = await standing(store)
    head = await store.head("t")
    before = await checkpoint_ids(store)
    await owner.note(events=2, status="FAILED")
    assert await store.head("t") == head and await checkpoint_ids(store) == before
    (thread,) = await store.threads()
    assert (thread.number, thread.status, thread.checkpoint_id, thread.due_at) == (3, "FAILED", "t-2", None)
    within = await read_as_owner(store, "t")
    assert (within["number"], within["info"], within["last_seq"]) == (3, head and head.info, 4)
    assert [one for one, _ in within["journal"]] == [7]


async def test_a_commit_without_a_checkpoint_leaves_timer_and_requests_as_they_are(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "question", 1)], due_at=at(5))
    await owner.note(status="FAILED")
    (thread,) = await store.threads()
    assert thread.due_at == at(5)
    assert [one.request_id for one in await store.pending_requests()] == ["question"]


async def test_a_commit_without_a_checkpoint_may_change_what_is_pending(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "question", 1)])
    await owner.note(requests=[])
    assert list(await store.pending_requests()) == []


async def test_a_thread_may_begin_with_a_commit_without_a_checkpoint(store: Store) -> None:
    owner = await own(store)
    await owner.note(events=1, status="FAILED")
    assert await store.head("t") is None and await checkpoint_ids(store) == []
    (thread,) = await store.threads()
    assert (thread.number, thread.status, thread.checkpoint_id) == (1, "FAILED", None)
    await owner.save()
    assert (await read_as_owner(store, "t"))["number"] == 2


async def test_a_commit_may_continue_from_an_older_checkpoint(store: Store) -> None:
    owner = await own(store)
    first = await owner.save(chunks={"aa": b"1"})
    await owner.save(dropped=["aa.1"])
    owner.head = first
    branch = await owner.save()
    head = await store.head("t")
    assert head is not None and head.info == branch and branch.previous_checkpoint_id == "t-1"
    assert await checkpoint_ids(store) == ["t-1", "t-2", "t-3"]


async def test_a_checkpoint_may_follow_one_of_another_thread(store: Store) -> None:
    """The first of a fork: its parent is no commit of its own thread."""
    await (await own(store, "origin")).save()
    owner = await own(store, "fork")
    commit = owner.checkpoint()
    assert commit.info is not None
    info = msgspec.structs.replace(commit.info, previous_checkpoint_id="origin-1")
    await store.commit(msgspec.structs.replace(commit, info=info))
    assert list(await store.infos(thread_id="fork")) == [info]


async def test_a_checkpoint_with_the_id_of_another_takes_its_place(store: Store) -> None:
    owner = await own(store)
    await owner.save("same", chunks={"aa": b"1"}, events=1)
    await owner.save("other")
    await owner.save("same", root=b'"new"')
    assert await checkpoint_ids(store) == ["other", "same"]
    found = await store.find_checkpoint("same")
    assert found is not None and (found.root, found.info.number) == (b'"new"', 3)


async def test_what_others_need_of_a_replaced_checkpoint_stays(store: Store) -> None:
    owner = await own(store)
    await owner.save("same", chunks={"aa": b"1"}, events=2)
    await owner.save("same")  # shares the chunk
    assert await chunks(store, "t") == {"aa.1": b"1"}
    assert [one.first_seq for one in await store.events_after("t", 0)] == [1]
    await owner.save("next")
    assert await store.prune("t", ["same"]) == 1
    assert await chunks(store, "t") == {"aa.1": b"1"}


async def test_a_checkpoint_that_was_replaced_stays_gone_whatever_happens_to_the_other(store: Store) -> None:
    owner = await own(store)
    await owner.save("other")
    await owner.save("same")
    await owner.save("same")
    await owner.release()
    await store.copy_thread("t", "copy")
    assert [one.number for one in await store.infos(thread_id="copy")] == [1, 3]
    assert await store.prune("t", ["other"]) == 1 and await checkpoint_ids(store, thread_id="t") == ["same"]
    assert await store.prune("t", ["same"]) == 1 and await checkpoint_ids(store, thread_id="t") == []
    assert await store.find_checkpoint("same") is None and await store.head("t") is None


async def test_a_commit_that_takes_the_place_of_its_own_head_keeps_what_it_says_is_to_stay(store: Store) -> None:
    owner = await own(store)
    await owner.save("same", requests=[make_request("t", "q", 1)])
    await owner.record(1)
    await owner.record(2)
    await owner.save("same", unsettled=[2])
    assert [one.request_id for one in await store.pending_requests()] == ["q"]
    assert [one for one, _ in (await read_as_owner(store, "t"))["journal"]] == [2]


async def test_a_head_that_another_thread_replaced_falls_back(store: Store) -> None:
    one, two = await own(store, "one"), await own(store, "two")
    await one.save("older")
    await one.save("same")
    await two.save("same")
    head = await store.head("one")
    assert head is not None and head.info.checkpoint_id == "older"
    assert await checkpoint_ids(store, thread_id="two") == ["same"]


@pytest.mark.parametrize(
    "body", [b"null", b"0", b'""', b"[]", b"{}", b"-1.50e+3", b'{"a":1,"a":2}', '"é\\u00e9🦀 \\ud83e\\udd80"'.encode()]
)
async def test_bytes_come_back_as_they_were(store: Store, body: bytes) -> None:
    owner = await own(store)
    await owner.save(root=body, chunks={"aa": body}, events=LoggedEvents(1, 1, body))
    await owner.record(1, body)
    await store.post("t", "item", "message", body)
    assert [one.body for one in await store.events_after("t", 0)] == [body]
    within = await read_as_owner(store, "t")
    assert within["root"] == body and await chunks(store, "t") == {"aa.1": body}
    assert within["journal"] == [(1, body)] and within["inbox"] == [("item", "message", body)]
