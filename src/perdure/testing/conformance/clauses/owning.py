"""One owner at a time: claiming, renewing, releasing and taking over a thread, proved by fences."""

from __future__ import annotations

from perdure.errors import ThreadBusy, ThreadConflict, UnsupportedId
from perdure.names import RESERVED_THREAD
from perdure.records import Lease
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect, expect_equal, expect_fields, expect_raises
from perdure.testing.conformance.threads import (
    WHOLE,
    ThreadOwner,
    expect_owner_finds,
    expect_state,
    expect_unchanged,
    own,
    save_thread,
)


@clause
async def a_new_thread_opens_empty(store: Store) -> None:
    """Claim the thread, created if it is new, and load its head, journal and inbox, in one round trip."""
    opened = await store.open("t", "run-1")
    await expect_owner_finds(opened, number=0, info=None, root=None, last_seq=0, journal=[], inbox=[], damage=None)
    expect_fields("the lease", opened.lease, thread_id="t", owner="run-1")


@clause
async def a_thread_opens_where_its_last_commit_left_it(store: Store, owner: ThreadOwner) -> None:
    """Claim the thread, created if it is new, and load its head, journal and inbox, in one round trip."""
    await owner.save(events=2)
    info = await owner.save(events=3, status="WAITING", root=b'"the head"')
    await owner.note(events=1, status="FAILED")
    await owner.record(7, b'"recorded"')
    await store.post("t", "item", "message", b'"posted"')
    await owner.release()
    opened = await store.open("t", "run-2")
    await expect_owner_finds(opened, number=3, last_seq=6, status="FAILED", info=info, root=b'"the head"')
    await expect_owner_finds(opened, journal=[(7, b'"recorded"')], inbox=[("item", "message", b'"posted"')])


@clause
async def an_opened_thread_shows_whether_its_store_is_encrypted(store: Store) -> None:
    """The result shows whether the store is encrypted: whether it has a thread `perdure.names.RESERVED_THREAD`."""
    opened = await store.open("t", "run-1")
    expect_equal("is_encrypted without the reserved thread", opened.is_encrypted, False)
    try:
        await store.post(RESERVED_THREAD, "item", "message", b'"posted"')
    except UnsupportedId:  # this store is a layer that has the key
        has_thread = False
    else:
        has_thread = True
    for thread_id in ("t", "u"):
        opened = await store.open(thread_id, "run-2", takeover=True)
        expect_equal("is_encrypted with the reserved thread", opened.is_encrypted, has_thread)


@clause
async def every_owner_has_a_higher_fence_than_all_before_also_of_a_deleted_thread(store: Store) -> None:
    """The lease's fence is higher than any the thread had before."""
    old = await own(store)
    await old.save()
    fences = [old.lease.fence]
    for turn in range(5):
        opened = await store.open("t", f"run-{turn}", takeover=turn % 2 == 0)
        fences.append(opened.lease.fence)
        if turn % 2 == 0:
            await store.release(opened.lease)
    expect(fences == sorted(set(fences)), f"the fences of six owners, in order, were {fences}")
    await store.delete_thread("t")
    new = await own(store, owner="run-3")
    old.number, old.head = 0, None
    await expect_raises(ThreadConflict, old.save(), "a commit with a lease of a thread that was deleted")
    await old.release()
    await new.save()
    expect_equal("who wrote what is there", [info.run_id for info in await store.infos()], ["run-3"])


@clause
async def a_thread_that_is_held_is_busy_and_only_a_takeover_takes_it(store: Store, owner: ThreadOwner) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread; `takeover` claims it all the
    same."""
    await owner.save(events=1)
    async with expect_unchanged(store):
        await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held")
        await expect_raises(ThreadBusy, store.open("t", "run-1"), "opening a thread again that one holds")
    await owner.save()  # its fence is still the newest
    second = await own(store, owner="run-2", takeover=True)
    expect_equal("the number that the new owner finds", second.number, 2)
    await second.save()
    await expect_raises(ThreadBusy, store.open("t", "run-3"), "opening a thread that was taken over")
    await save_thread(store, "free")
    expect_equal("the number after a takeover of a free thread", (await own(store, "free", takeover=True)).number, 1)


@clause
async def a_release_frees_the_thread_of_its_lease_and_no_other_owners(store: Store, owner: ThreadOwner) -> None:
    """Release the thread. Idempotent; has no effect for a lease that was taken over."""
    await owner.save()
    await (await own(store, "other", owner="run-0")).save()
    expect_equal("the owners", [thread.run_id for thread in await store.threads()], ["run-1", "run-0"])
    await owner.release()
    expect_equal("the owners after the release", [thread.run_id for thread in await store.threads()], [None, "run-0"])
    await owner.release()
    second = await own(store, owner="run-2")
    await second.save()
    await owner.release()
    third = await own(store, owner="run-3", takeover=True)
    await second.release()
    await expect_raises(ThreadBusy, store.open("t", "run-4"), "opening a thread whose former owners released it again")
    await third.save()


@clause
async def a_lease_is_renewed_and_writes_until_it_is_taken_over_or_released(store: Store, owner: ThreadOwner) -> None:
    """Extend the lease. Raises ThreadConflict if it was taken over."""
    await store.renew(owner.lease)
    await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread whose lease was renewed")
    await owner.save()
    await owner.save()
    await store.post("t", "item", "message", b"1")
    new = await own(store, owner="run-2", takeover=True)
    async with expect_unchanged(store):
        for commit in (owner.checkpoint(**WHOLE), owner.remark()):
            await expect_raises(ThreadConflict, store.commit(commit), "a commit with the fence of a former owner")
        await expect_raises(ThreadConflict, owner.record(1), "a journal entry with the fence of a former owner")
        await expect_raises(ThreadConflict, store.renew(owner.lease), "renewing a lease that was taken over")
    await new.record(2)
    await new.release()
    async with expect_unchanged(store):
        await expect_raises(ThreadConflict, new.save(), "a commit with a lease that was released")
        await expect_raises(ThreadConflict, new.record(1), "a journal entry with a lease that was released")
        await expect_raises(ThreadConflict, store.renew(new.lease), "renewing a lease that was released")
    await expect_state(store, journal=[2], inbox=["item"])


@clause
async def an_invented_lease_is_rejected(store: Store, owner: ThreadOwner) -> None:
    """The right to write to a thread. Every write proves it."""
    await owner.save()
    fence = owner.lease.fence
    await store.copy_thread("t", "copy")
    async with expect_unchanged(store, "none"):
        others = [Lease("none", "run-1", fence), Lease("copy", "run-1", fence)]
        for lease in [*others, Lease("t", "run-1", fence + 6), Lease("t", "run-2", fence)]:
            owner.lease, it = lease, f"{lease}, which was never granted"
            await expect_raises(ThreadConflict, owner.save(), f"a commit with {it}")
            await expect_raises(ThreadConflict, owner.record(1), f"a journal entry with {it}")
            await expect_raises(ThreadConflict, store.renew(lease), f"renewing {it}")
            await store.release(lease)
