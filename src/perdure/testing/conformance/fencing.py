"""What an old lease can do: nothing."""

from __future__ import annotations

from perdure.errors import ThreadConflict
from perdure.records import Lease
from perdure.store import Store
from perdure.testing.conformance.acts import asked, at, everything, inside, own
from perdure.testing.conformance.clause import Needs, clause, clause_with
from perdure.testing.conformance.expectations import refused, same
from perdure.testing.conformance.place import Place


@clause
async def after_a_takeover_the_old_owner_cannot_commit(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    old = await own(store)
    await old.save()
    await store.post("t", "item", "message", b"1")
    await own(store, owner="run-2", takeover=True)
    before = await everything(store)
    whole = old.checkpoint(
        brings=["new"], events=1, consumed=["item"], requests=[asked("t", "q", 1)], due_at=at(1), status="WAITING"
    )
    await refused(ThreadConflict, store.commit(whole), "a commit with the fence of a former owner")
    await refused(ThreadConflict, store.commit(old.remark()), "a commit without a checkpoint, with an old fence")
    same("what can be read after that", await everything(store), before)
    same("the inbox after that", (await inside(store))["inbox"], [("item", "message", b"1")])


@clause
async def after_a_takeover_the_old_owner_cannot_write_the_journal(store: Store) -> None:
    """Record something of a delivery before its superstep is committed. Raises ThreadConflict like `commit`."""
    old = await own(store)
    await old.save()
    new = await own(store, owner="run-2", takeover=True)
    await refused(ThreadConflict, old.record(1), "a journal entry with the fence of a former owner")
    await new.record(2)
    same("the journal", [one for one, _ in (await inside(store))["journal"]], [2])


@clause
async def a_lease_that_was_released_cannot_write_any_more(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await own(store)
    await owner.save()
    await owner.release()
    before = await everything(store)
    await refused(ThreadConflict, owner.save(), "a commit with a lease that was released")
    await refused(ThreadConflict, owner.record(1), "a journal entry with a lease that was released")
    same("what can be read after that", await everything(store), before)


@clause
async def a_lease_that_nobody_was_given_proves_nothing(store: Store) -> None:
    """The right to move a thread, proved with every write."""
    owner = await own(store)
    await owner.save()
    fence = owner.lease.fence
    await store.copy_thread("t", "copy")
    before = await everything(store, "nobody's")
    others = [Lease("nobody's", "run-1", fence), Lease("copy", "run-1", fence)]
    for lease in [*others, Lease("t", "run-1", fence + 6), Lease("t", "run-2", fence)]:
        owner.lease = lease
        await refused(ThreadConflict, owner.save(), f"a commit with {lease}, which nobody was given")
        await refused(ThreadConflict, owner.record(1), f"a journal entry with {lease}, which nobody was given")
        await store.release(lease)
    same("what can be read after that", await everything(store, "nobody's"), before)


@clause
async def a_lease_of_a_deleted_thread_moves_no_other_of_its_name(store: Store) -> None:
    """The lease's fence is higher than any the thread had before."""
    old = await own(store)
    await old.save()
    await (await own(store, owner="run-2", takeover=True)).release()
    await store.delete_thread("t")
    new = await own(store, owner="run-3")
    old.number, old.head = 0, None
    await refused(ThreadConflict, old.save(), "a commit with a lease of a thread that was deleted")
    await old.release()
    await new.save()
    same("who wrote what is there", [one.run_id for one in await store.infos()], ["run-3"])


@clause_with(Needs.TWO_OBJECTS)
async def a_takeover_through_another_object_fences_the_old_owner_out(place: Place) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    old = await own(place.store)
    await old.save()
    new = await own(place.another(), owner="run-2", takeover=True)
    await refused(ThreadConflict, old.save(), "a commit with a fence that is old, as another object knows")
    await refused(ThreadConflict, old.record(1), "a journal entry with a fence that is old, as another object knows")
    await new.save("new")
    same("the checkpoints", [one.checkpoint_id for one in await place.store.infos()], ["t-1", "new"])


@clause_with(Needs.PROCESSES)
async def a_takeover_in_another_process_fences_the_old_owner_out(place: Place) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    process = await place.process()
    await process.do("open", "t", "run-1")
    await process.do("save", "t", "old")
    new = await own(place.store, owner="run-2", takeover=True)
    await new.save("new")
    await process.refuses("ThreadConflict", "save", "t", "late")
    same("the checkpoints", [one.checkpoint_id for one in await place.store.infos()], ["old", "new"])
