"""MemoryStore: commits by number and fence, a journal, an inbox and an event log, in the memory of one process."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import CheckpointNotFound, ThreadBusy, ThreadConflict
from holdfast.records import CheckpointInfo, Commit, JournalEntry, Lease, LoggedEvents
from holdfast.stores.memory import MemoryStore


def info(number: int, thread_id: str = "t", name: str = "w") -> CheckpointInfo:
    return CheckpointInfo(f"{thread_id}{number}", thread_id, name, number, number, None, "2026-01-01T00:00:00+00:00")


def commit(lease: Lease, number: int, **parts: Any) -> Commit:
    return Commit(lease, number, info(number, lease.thread_id), f"root {number}".encode(), **parts)


async def with_commits(count: int, thread_id: str = "t") -> tuple[MemoryStore, Lease]:
    store = MemoryStore()
    opened = await store.open(thread_id, "owner")
    for number in range(1, count + 1):
        await store.commit(commit(opened.lease, number))
    return store, opened.lease


async def test_a_new_thread_opens_empty() -> None:
    opened = await MemoryStore().open("t", "owner")
    assert (opened.number, opened.info, opened.root, opened.last_seq, list(opened.journal)) == (0, None, None, 0, [])


async def test_a_thread_opens_where_its_last_commit_left_it() -> None:
    store, lease = await with_commits(2)
    await store.release(lease)
    opened = await store.open("t", "next")
    assert (opened.number, opened.root) == (2, b"root 2") and opened.info == info(2)
    assert opened.lease.fence > lease.fence


async def test_a_thread_that_is_held_is_busy_until_it_is_released() -> None:
    store, lease = await with_commits(0)
    with pytest.raises(ThreadBusy, match="is being run by run 'owner'"):
        await store.open("t", "other")
    await store.release(lease)
    await store.release(lease)
    assert (await store.open("t", "other")).lease.owner == "other"


async def test_after_a_takeover_the_old_owner_cannot_write_or_release() -> None:
    store, old = await with_commits(1)
    new = (await store.open("t", "new", takeover=True)).lease
    entry = JournalEntry(1, 1, b"")
    for write in (store.commit(commit(old, 2)), store.append_journal(old, entry)):
        with pytest.raises(ThreadConflict, match="Nothing of it was stored"):
            await write
    await store.release(old)
    with pytest.raises(ThreadBusy):
        await store.open("t", "third")
    await store.commit(commit(new, 2))
    assert [one.number for one in await store.infos()] == [1, 2]


@pytest.mark.parametrize("number", [0, 1, 3])
async def test_a_commit_that_is_not_the_next_is_refused(number: int) -> None:
    store, lease = await with_commits(1)
    with pytest.raises(ThreadConflict, match=f"tried to write commit {number}, the store has commit 1"):
        await store.commit(commit(lease, number))
    head = await store.head("t")
    assert head is not None and head.info.number == 1


async def test_a_commit_without_a_checkpoint_moves_the_number_and_keeps_the_head() -> None:
    store, lease = await with_commits(1)
    await store.commit(Commit(lease, 2, status="FAILED"))
    opened = await store.open("t", "next", takeover=True)
    assert (opened.number, opened.root, opened.status) == (2, b"root 1", "FAILED")


async def test_the_journal_lasts_until_the_next_checkpoint() -> None:
    store, lease = await with_commits(1)
    await store.append_journal(lease, JournalEntry(1, 7, b"outcome"))
    await store.commit(Commit(lease, 2, status="FAILED"))
    opened = await store.open("t", "next", takeover=True)
    assert [(one.delivery_id, one.body) for one in opened.journal] == [(7, b"outcome")]
    await store.commit(commit(opened.lease, 3))
    await store.commit(Commit(opened.lease, 4, status="FAILED"))
    assert list((await store.open("t", "last", takeover=True)).journal) == []


async def test_an_inbox_item_is_kept_once_until_a_commit_consumes_it() -> None:
    store, lease = await with_commits(0)
    for body in (b"first", b"again"):
        await store.post("t", "item", "message", body)
    opened = await store.open("t", "next", takeover=True)
    assert [(one.item_id, one.kind, one.body) for one in opened.inbox] == [("item", "message", b"first")]
    await store.commit(commit(opened.lease, 1, consumed=["item"]))
    assert list((await store.open("t", "last", takeover=True)).inbox) == []
    assert lease.fence == 1


async def test_events_are_read_from_the_commit_that_holds_the_next_one() -> None:
    store, lease = await with_commits(0)
    for number, (first, count) in enumerate([(1, 3), (4, 1), (5, 2)], 1):
        await store.commit(commit(lease, number, events=LoggedEvents(first, count, b"")))
    for seq, firsts in [(0, [1, 4, 5]), (2, [1, 4, 5]), (3, [4, 5]), (4, [5]), (5, [5]), (6, [])]:
        assert [one.first_seq for one in await store.events_after("t", seq)] == firsts
    assert list(await store.events_after("nobody", 0)) == []
    assert (await store.open("t", "next", takeover=True)).last_seq == 6


async def test_checkpoints_are_found_listed_and_paged_in_commit_order() -> None:
    store, _ = await with_commits(3)
    other = (await store.open("u", "owner")).lease
    await store.commit(Commit(other, 1, info(1, "u", "other"), b""))
    found = await store.find_checkpoint("t2")
    assert found is not None and found.root == b"root 2" and await store.find_checkpoint("none") is None
    assert [one.checkpoint_id for one in await store.infos()] == ["t1", "t2", "t3", "u1"]
    assert [one.checkpoint_id for one in await store.infos(workflow_name="w", limit=2)] == ["t2", "t3"]
    assert [one.checkpoint_id for one in await store.infos(thread_id="t", limit=1, before="t3")] == ["t2"]
    assert [one.checkpoint_id for one in await store.infos(workflow_name="other", thread_id="t")] == []
    with pytest.raises(CheckpointNotFound):
        await store.infos(before="none")


async def test_deleting_the_head_makes_the_one_before_the_head() -> None:
    store, lease = await with_commits(2)
    await store.release(lease)
    assert await store.prune("t", ["t2"]) == 1 and await store.prune("t", ["t2"]) == 0
    head = await store.head("t")
    assert head is not None and head.info.number == 1
    assert await store.prune("t", ["t1"]) == 1 and await store.head("t") is None
    assert await store.head("nobody") is None
