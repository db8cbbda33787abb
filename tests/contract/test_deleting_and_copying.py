"""Whole threads: forgotten altogether, and copied so that neither knows of the other."""

from __future__ import annotations

import pytest

from perdure.errors import ThreadBusy, ThreadConflict, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.threads import (
    at,
    checkpoint_ids,
    chunks,
    make_events,
    make_request,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)


async def full(store: Store, thread_id: str = "t") -> None:
    """A thread with something of everything that nobody owns."""
    owner = await own(store, thread_id)
    await owner.save(chunks={"aa": b"1"}, events=2)
    await owner.save(chunks={"bb": b"2"}, dropped=["aa.1"], events=make_events(3, refers=True))
    await owner.note(chunks={"cc": b"3"}, events=make_events(4, own=("cc",)), status="FAILED")
    await owner.save(requests=[make_request(thread_id, "q", 1)], due_at=at(9))
    await owner.record(5)
    await store.post(thread_id, "item", "message", b"1")
    await owner.release()


async def test_nothing_is_left_of_a_deleted_thread(store: Store) -> None:
    await full(store)
    assert await store.delete_thread("t") is True
    assert await store.delete_thread("t") is False
    found = await read_everything(store, "t")
    assert [key for key, value in found.items() if value and any(value)] == ["heads", "events", "chunks"]
    assert found["heads"] == {"t": None} and found["events"] == {"t": []} and found["chunks"] == {"t": {}}
    within = await read_as_owner(store, "t")
    assert (within["number"], within["last_seq"], within["status"]) == (0, 0, "")
    assert (within["journal"], within["inbox"]) == ([], [])


async def test_a_thread_of_a_deleted_name_begins_anew(store: Store) -> None:
    await full(store)
    await store.delete_thread("t")
    await store.post("t", "item", "message", b"2")  # an id that the old one had consumed or not
    owner = await own(store)
    await owner.save("t-1", events=1)
    assert [one.item_id for one in owner.opened.inbox] == ["item"]
    assert await checkpoint_ids(store) == ["t-1"] and [one.first_seq for one in await store.events_after("t", 0)] == [1]


async def test_a_thread_with_an_owner_is_not_deleted(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    before = await read_everything(store)
    with pytest.raises(ThreadBusy, match="run-1"):
        await store.delete_thread("t")
    assert await read_everything(store) == before
    await owner.save()


async def test_deleting_a_thread_that_was_only_posted_to_takes_its_inbox(store: Store) -> None:
    await store.post("t", "item", "message", b"1")
    assert await store.delete_thread("t") is True
    assert (await read_as_owner(store, "t"))["inbox"] == []


async def test_deleting_leaves_other_threads_alone(store: Store) -> None:
    await full(store, "t")
    await full(store, "u")
    await store.delete_thread("t")
    assert await checkpoint_ids(store) == ["u-1", "u-2", "u-4"] and await thread_ids(store) == ["u"]
    assert len(await chunks(store, "u")) == 3 and len(await store.pending_requests()) == 1
    assert len((await read_as_owner(store, "u"))["journal"]) == 1


async def test_a_thread_that_moved_since_is_not_deleted(store: Store) -> None:
    await save_thread(store, "t", 3)
    before = await read_everything(store)
    for number in (0, 2, 4, 99):
        assert await store.delete_thread("t", if_unmoved_since=number) is False
    assert await read_everything(store) == before
    assert await store.delete_thread("t", if_unmoved_since=3) is True
    assert await thread_ids(store) == [] and await checkpoint_ids(store) == []
    assert await store.delete_thread("t", if_unmoved_since=3) is False


async def test_a_thread_that_still_holds_something_for_somebody_is_not_deleted_in_passing(store: Store) -> None:
    await save_thread(store, "t", 2)
    await store.pin("t-1")
    assert await store.delete_thread("t", if_unmoved_since=2) is False
    await store.unpin("t-1")
    await store.post("t", "item", "message", b"1")
    assert await store.delete_thread("t", if_unmoved_since=2) is False
    owner = await own(store)
    with pytest.raises(ThreadBusy):
        await store.delete_thread("t", if_unmoved_since=2)
    await owner.note(consumed=["item"])
    await owner.release()
    assert await store.delete_thread("t", if_unmoved_since=3) is True


# ---------------------------------------------------------------- copies


async def test_a_copy_holds_all_commits_under_new_checkpoint_ids(store: Store) -> None:
    await full(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.infos(thread_id="t"), await store.infos(thread_id="copy")
    assert [(one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in original] == [
        (one.number, one.workflow_name, one.timestamp, one.status, one.run_id) for one in copied
    ]
    known = [one.checkpoint_id for one in [*original, *copied]]
    assert len(set(known)) == len(known) == 6 and await checkpoint_ids(store) == known
    assert [one.previous_checkpoint_id for one in copied] == [None, *(one.checkpoint_id for one in copied[:-1])]
    for before, after in zip(original, copied, strict=True):
        one, two = [await store.find_checkpoint(info.checkpoint_id) for info in (before, after)]
        assert one is not None and two is not None and one.root == two.root and two.info == after
    assert await chunks(store, "copy") == await chunks(store, "t")


async def test_a_copy_stands_where_the_original_does_without_journal_inbox_or_owner(store: Store) -> None:
    await full(store)
    held = await own(store)
    await store.copy_thread("t", "copy")
    copied = {one.thread_id: one for one in await store.threads()}["copy"]
    assert (copied.number, copied.status, copied.workflow_name) == (4, "IDLE", "w")
    assert (copied.due_at, copied.updated_at, copied.run_id) == (at(9), at(4).isoformat(), None)
    assert [(one.thread_id, one.request_id) for one in await store.pending_requests(thread_id="copy")] == [
        ("copy", "q")
    ]
    within = await read_as_owner(store, "copy")
    assert (within["number"], within["last_seq"], within["journal"], within["inbox"]) == (4, 4, [], [])
    await held.save()


async def test_a_copy_of_a_thread_that_was_pruned_asks_what_the_original_asks(store: Store) -> None:
    await full(store)
    await store.prune("t", [one.checkpoint_id for one in await store.infos(thread_id="t")][:2])
    await store.copy_thread("t", "copy")
    assert [(one.thread_id, one.request_id) for one in await store.pending_requests(thread_id="copy")] == [
        ("copy", "q")
    ]


async def test_the_events_of_a_copy_are_those_of_the_original_with_its_own_checkpoints(store: Store) -> None:
    await full(store)
    await store.copy_thread("t", "copy")
    original, copied = await store.events_after("t", 0), await store.events_after("copy", 0)
    assert [(one.first_seq, one.count, one.body, one.refers, tuple(one.own)) for one in original] == [
        (one.first_seq, one.count, one.body, one.refers, tuple(one.own)) for one in copied
    ]
    infos = {one.number: one for one in await store.infos(thread_id="copy")}
    assert [one.info for one in copied] == [infos[1], infos[2], None]


async def test_a_copy_goes_its_own_way(store: Store) -> None:
    await full(store)
    await store.copy_thread("t", "copy")
    before = [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")]
    copy = await own(store, "copy")
    await copy.save(chunks={"dd": b"4"}, dropped=["bb.2"], events=1, requests=[])
    await copy.release()
    await store.prune("copy", [one.checkpoint_id for one in await store.infos(thread_id="copy")][:2])
    assert [await store.infos(thread_id="t"), await store.events_after("t", 0), await chunks(store, "t")] == before
    original = await own(store, "t")
    await original.save(chunks={"ee": b"5"})
    assert "ee.5" not in await chunks(store, "copy")
    assert [one.request_id for one in await store.pending_requests()] == ["q"]


async def test_a_copy_outlives_the_original_and_the_original_the_copy(store: Store) -> None:
    await full(store)
    held = await chunks(store, "t")
    await store.copy_thread("t", "copy")
    await store.copy_thread("copy", "second")
    await store.delete_thread("t")
    await store.delete_thread("second")
    assert await thread_ids(store) == ["copy"] and await chunks(store, "copy") == held
    for info in await store.infos():
        found = await store.find_checkpoint(info.checkpoint_id)
        assert found is not None and found.info == info
    copy = await own(store, "copy")
    assert copy.head is not None and (await copy.save()).number == 5


async def test_a_copy_of_what_was_pruned_needs_nothing_more(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    await owner.save(chunks={"bb": b"2"})
    await owner.save(chunks={"cc": b"3"}, dropped=["bb.2"])
    await store.prune("t", ["t-1", "t-2"])
    await store.copy_thread("t", "copy")
    assert set(await chunks(store, "copy")) == {"aa.1", "cc.3"}
    copy = await own(store, "copy")
    await copy.save()
    assert await store.prune("copy", [one.checkpoint_id for one in await store.infos(thread_id="copy")][:1]) == 1
    assert set(await chunks(store, "copy")) == {"aa.1", "cc.3"}


async def test_a_copy_of_a_thread_whose_head_was_pruned_goes_on_from_its_number(store: Store) -> None:
    owner = await own(store)
    await owner.save(requests=[make_request("t", "q", 1)], due_at=at(1))
    await owner.save()
    await owner.note(events=1, status="FAILED")
    await owner.save(requests=[make_request("t", "r", 1)], due_at=at(2))
    await owner.release()
    await store.prune("t", ["t-4", "t-2"])
    before = await read_as_owner(store, "t")
    await store.copy_thread("t", "copy")
    after = await read_as_owner(store, "copy")
    for name in ("number", "last_seq", "root", "status"):
        assert after[name] == before[name], name
    standing = [(one.number, one.status, one.updated_at, one.due_at) for one in await store.threads()]
    assert standing[0] == standing[1] == (4, "IDLE", at(4).isoformat(), None)
    assert list(await store.pending_requests()) == []
    copy = await own(store, "copy")
    assert (await copy.save()).number == 5


async def test_a_copy_of_a_thread_without_a_checkpoint_is_still_of_its_workflow(store: Store) -> None:
    await save_thread(store, "t", 2)
    await store.prune("t", ["t-1", "t-2"])
    await store.copy_thread("t", "copy")
    assert await thread_ids(store, workflow_name="w") == ["t", "copy"]


@pytest.mark.parametrize("made", ["by a commit", "by a post", "by an open"])
async def test_a_copy_never_takes_the_place_of_a_thread(store: Store, made: str) -> None:
    await full(store)
    held = await own(store, "copy") if made == "by an open" else None
    if made == "by a commit":
        await save_thread(store, "copy")
    if made == "by a post":
        await store.post("copy", "precious", "message", b"1")
    before = await read_everything(store)
    with pytest.raises(ThreadBusy, match="copy"):
        await store.copy_thread("t", "copy")
    with pytest.raises(ThreadBusy):
        await store.copy_thread("t", "t")
    assert await read_everything(store) == before
    if held is not None:
        await held.save()
    if made == "by a post":
        assert [one for one, _, _ in (await read_as_owner(store, "copy"))["inbox"]] == ["precious"]


async def test_copying_a_thread_that_there_is_not_makes_none(store: Store) -> None:
    with pytest.raises(ThreadNotFound, match="none"):
        await store.copy_thread("none", "copy")
    assert await thread_ids(store) == []
    await save_thread(store, "copy")


async def test_a_lease_of_the_original_does_not_move_the_copy(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await store.copy_thread("t", "copy")
    lease = type(owner.lease)("copy", owner.lease.owner, owner.lease.fence)
    owner.lease = lease
    with pytest.raises(ThreadConflict):
        await owner.save()
    assert [one.number for one in await store.infos(thread_id="copy")] == [1]
