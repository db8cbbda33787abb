"""One owner at a time: claiming, renewing, releasing and taking over a thread."""

from __future__ import annotations

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.testing.conformance.acts import everything, own, saved
from perdure.testing.conformance.clause import clause
from perdure.testing.conformance.expectations import holds, refused, same


@clause
async def a_new_thread_opens_empty(store: Store) -> None:
    """Claim the thread (made if it is new) and read where it stands: head, journal and inbox, in one round trip."""
    opened = await store.open("t", "run-1")
    same("number, head and last event", (opened.number, opened.info, opened.root, opened.last_seq), (0, None, None, 0))
    same("journal and inbox", (list(opened.journal), list(opened.inbox)), ([], []))
    same("the lease", (opened.lease.thread_id, opened.lease.owner, opened.damage), ("t", "run-1", None))


@clause
async def a_thread_opens_where_its_last_commit_left_it(store: Store) -> None:
    """Claim the thread (made if it is new) and read where it stands: head, journal and inbox, in one round trip."""
    owner = await own(store)
    await owner.save(events=2)
    info = await owner.save(events=3, status="WAITING", root=b'"the head"')
    await owner.note(events=1, status="FAILED")
    await owner.record(7, b'"recorded"')
    await store.post("t", "item", "message", b'"posted"')
    await owner.release()
    opened = await store.open("t", "run-2")
    same("number, last event and status", (opened.number, opened.last_seq, opened.status), (3, 6, "FAILED"))
    same("the head", (opened.info, opened.root), (info, b'"the head"'))
    same("the journal", [(one.delivery_id, one.body) for one in opened.journal], [(7, b'"recorded"')])
    same("the inbox", [(one.item_id, one.kind, one.body) for one in opened.inbox], [("item", "message", b'"posted"')])


@clause
async def every_owner_has_a_higher_fence_than_all_before(store: Store) -> None:
    """The lease's fence is higher than any the thread had before."""
    fences = []
    for turn in range(6):
        opened = await store.open("t", f"run-{turn}", takeover=turn % 2 == 1)
        fences.append(opened.lease.fence)
        if turn % 2 == 1:
            await store.release(opened.lease)
    holds(fences == sorted(set(fences)), f"the fences of six owners, in order, were {fences}")


@clause
async def a_thread_that_is_held_is_busy_and_nothing_of_it_is_touched(store: Store) -> None:
    """Raises ThreadBusy, without touching anything, while another owner holds the thread"""
    owner = await own(store)
    await owner.save(events=1)
    before = await everything(store)
    await refused(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held")
    await refused(ThreadBusy, store.open("t", "run-1"), "opening a thread again that one holds")
    same("what can be read after that", await everything(store), before)
    await owner.save()  # its fence is still the newest


@clause
async def a_takeover_takes_the_thread_all_the_same(store: Store) -> None:
    """`takeover` takes it all the same."""
    first = await own(store)
    await first.save()
    second = await own(store, owner="run-2", takeover=True)
    same("the number that the new owner finds", second.number, 1)
    await second.save()
    await refused(ThreadBusy, store.open("t", "run-3"), "opening a thread that was taken over")
    await saved(store, "free")
    same("the number after a takeover of a free thread", (await own(store, "free", takeover=True)).number, 1)


@clause
async def a_released_thread_is_free(store: Store) -> None:
    """Give the thread up."""
    owner = await own(store)
    await owner.save()
    same("its owner", [one.run_id for one in await store.threads()], ["run-1"])
    await owner.release()
    same("its owner after the release", [one.run_id for one in await store.threads()], [None])
    again = await own(store, owner="run-2")
    await again.save()


@clause
async def releasing_again_or_after_a_takeover_frees_nobody_elses_thread(store: Store) -> None:
    """Idempotent; a lease that was taken over is left alone."""
    first = await own(store)
    await first.release()
    await first.release()
    second = await own(store, owner="run-2")
    await first.release()
    third = await own(store, owner="run-3", takeover=True)
    await second.release()
    await refused(ThreadBusy, store.open("t", "run-4"), "opening a thread whose former owners released it again")
    await third.save()


@clause
async def renewing_keeps_the_thread(store: Store) -> None:
    """Keep the lease from running out."""
    owner = await own(store)
    await store.renew(owner.lease)
    await refused(ThreadBusy, store.open("t", "run-2"), "opening a thread whose lease was renewed")
    await owner.save()


@clause
async def a_lease_that_was_taken_over_or_released_cannot_be_renewed(store: Store) -> None:
    """Keep the lease from running out. Raises ThreadConflict if it was taken over."""
    first = await own(store)
    second = await own(store, owner="run-2", takeover=True)
    await refused(ThreadConflict, store.renew(first.lease), "renewing a lease that was taken over")
    await second.release()
    await refused(ThreadConflict, store.renew(second.lease), "renewing a lease that was released")
