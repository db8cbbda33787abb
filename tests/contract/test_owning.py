"""One owner at a time: claiming, renewing, releasing and taking over a thread, proved by fences."""

from __future__ import annotations

from functools import partial

import pytest

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.records import Lease
from perdure.store import Store
from perdure.testing.conformance.threads import own, read_as_owner, read_everything, save_thread


async def test_a_new_thread_opens_empty(store: Store) -> None:
    opened = await store.open("t", "run-1")
    assert (opened.number, opened.info, opened.root, opened.last_seq) == (0, None, None, 0)
    assert (list(opened.journal), list(opened.inbox), opened.status, opened.damage) == ([], [], "", None)
    assert (opened.lease.thread_id, opened.lease.owner) == ("t", "run-1")


async def test_a_thread_opens_where_its_last_commit_left_it(store: Store) -> None:
    owner = await own(store)
    await owner.save(events=2)
    info = await owner.save(events=3, status="WAITING")
    await owner.note(status="FAILED")
    await owner.release()
    opened = await store.open("t", "run-2")
    assert (opened.number, opened.info, opened.last_seq, opened.status) == (3, info, 5, "FAILED")
    head = await store.head("t")
    assert head is not None and opened.root == head.root


async def test_every_owner_has_a_higher_fence_than_all_before(store: Store) -> None:
    fences = []
    for turn in range(4):
        opened = await store.open("t", f"run-{turn}", takeover=turn % 2 == 1)
        fences.append(opened.lease.fence)
        if turn % 2 == 1:
            await store.release(opened.lease)
    assert fences == sorted(set(fences))


async def test_a_thread_that_is_held_is_busy_and_opening_it_touches_nothing(store: Store) -> None:
    owner = await own(store)
    await owner.save(events=1)
    await owner.record(1)
    await store.post("t", "item", "message", b"1")
    before = await read_everything(store)
    with pytest.raises(ThreadBusy, match="is being run by run 'run-1'"):
        await store.open("t", "run-2")
    assert await read_everything(store) == before
    await owner.save()  # its fence is still the newest


async def test_an_owner_that_opens_its_thread_again_is_busy_too(store: Store) -> None:
    await own(store, owner="run-1")
    with pytest.raises(ThreadBusy):
        await store.open("t", "run-1")


async def test_a_released_thread_is_free_and_releasing_it_again_changes_nothing(store: Store) -> None:
    first = await own(store)
    await first.release()
    await first.release()
    second = await own(store, owner="run-2")
    await first.release()
    await second.save()
    with pytest.raises(ThreadBusy):
        await store.open("t", "run-3")


async def test_a_lease_that_was_released_cannot_write_any_more(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await owner.release()
    before = await read_everything(store)
    with pytest.raises(ThreadConflict, match="Nothing was stored"):
        await owner.save()
    with pytest.raises(ThreadConflict):
        await owner.record(1)
    with pytest.raises(ThreadConflict):
        await store.renew(owner.lease)
    assert await read_everything(store) == before


async def test_after_a_takeover_the_old_owner_cannot_write_renew_or_release(store: Store) -> None:
    old = await own(store)
    await old.save()
    new = await own(store, owner="run-2", takeover=True)
    before = await read_everything(store)
    for act in (old.save, old.note, partial(old.record, 1), partial(store.renew, old.lease)):
        with pytest.raises(ThreadConflict, match="Nothing was stored"):
            await act()
    await old.release()
    assert await read_everything(store) == before
    with pytest.raises(ThreadBusy, match="run-2"):
        await store.open("t", "run-3")
    await store.renew(new.lease)
    await new.save()


async def test_a_takeover_of_a_free_thread_is_an_open(store: Store) -> None:
    await save_thread(store, "t")
    owner = await own(store, takeover=True)
    assert owner.number == 1
    await owner.save()


async def test_renewing_keeps_the_thread(store: Store) -> None:
    owner = await own(store)
    await store.renew(owner.lease)
    with pytest.raises(ThreadBusy):
        await store.open("t", "run-2")
    await owner.save()


@pytest.mark.parametrize("lease", [Lease("nobody", "run-1", 1), Lease("t", "run-1", 7), Lease("t", "run-2", 1)])
async def test_a_lease_that_nobody_was_given_proves_nothing(store: Store, lease: Lease) -> None:
    owner = await own(store)
    await owner.save()
    before = await read_everything(store, "nobody")
    owner.lease = lease
    for act in (owner.save, partial(owner.record, 1), partial(store.renew, lease)):
        with pytest.raises(ThreadConflict):
            await act()
    await store.release(lease)
    assert await read_everything(store, "nobody") == before
    assert (await read_as_owner(store, "t"))["journal"] == []


async def test_a_lease_of_a_deleted_thread_cannot_write_to_another_of_its_name(store: Store) -> None:
    old = await own(store)
    await old.save()
    taken = await own(store, owner="run-2", takeover=True)
    await taken.release()
    assert await store.delete_thread("t")
    new = await own(store, owner="run-3")
    old.number = 0
    old.head = None
    with pytest.raises(ThreadConflict):
        await old.save()
    await old.release()
    await new.save()
    assert [one.run_id for one in await store.infos()] == ["run-3"]


async def test_owners_of_different_threads_do_not_meet(store: Store) -> None:
    owners = [await own(store, f"t{index}") for index in range(5)]
    for owner in owners:
        await owner.save()
    await owners[0].release()
    assert [one.run_id for one in await store.threads()] == [None, "run-1", "run-1", "run-1", "run-1"]
