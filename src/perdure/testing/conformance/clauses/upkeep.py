"""Closing, checking and measuring a store."""

from __future__ import annotations

import inspect

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.clause import Needs, clause, clause_with, expect, expect_equal, expect_raises
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    checkpoint_ids,
    expect_unchanged,
    own,
    read_as_owner,
    read_everything,
    save_full_thread,
    save_thread,
)


@clause
async def it_has_every_method_of_the_contract(store: Store) -> None:
    """A store keeps threads."""
    methods = [member for member in inspect.getmembers(Store, inspect.isfunction) if not member[0].startswith("_")]
    missing = [name for name, _ in methods if not callable(getattr(store, name, None))]
    expect_equal("what it lacks", missing, [])
    is_async = inspect.iscoroutinefunction
    expect_equal(
        "what is not async", [name for name, method in methods if is_async(method) > is_async(getattr(store, name))], []
    )


@clause
async def a_closed_store_opens_itself_again(store: Store) -> None:
    """Idempotent; a later call opens them again."""
    await save_full_thread(store)
    async with expect_unchanged(store):
        await store.close()
        await store.close()
    await store.close()
    await save_thread(store, "u")
    expect_equal("the checkpoints", await checkpoint_ids(store), ["t-1", "t-2", "t-4", "u-1"])


@clause
async def a_thread_stays_owned_while_its_store_is_closed(store: Store) -> None:
    """Close files and connections."""
    owner = await own(store)
    await owner.save()
    await store.close()
    await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held, after a close")
    await owner.save()


@clause_with(Needs.TWO_OBJECTS)
async def what_was_written_is_there_for_the_next_object(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    first = place.store
    await save_full_thread(first)
    await first.pin("t-2")
    before, within = await read_everything(first), await read_as_owner(first)
    await first.close()
    second = place.another()
    expect_equal("what can be read by the next", await read_everything(second), before)
    expect_equal("what an owner finds", await read_as_owner(second), within)


@clause
async def a_check_of_a_sound_store_finds_nothing(store: Store) -> None:
    """All damage that the store can detect by itself."""
    expect_equal("what is damaged in an empty one", list(await store.check()), [])
    owner = await save_full_thread(store)
    await store.copy_thread("t", "copy")
    await store.prune("t", ["t-1"])
    await store.delete_thread("copy")
    await store.post("only posted to", "item", "message", b"1")
    again = await own(store, owner="run-2")
    await again.save("t-2", prunes=range(1, 10), prunes_events_before=9)
    expect_equal("what is damaged in one that was used", list(await store.check()), [])
    expect(owner.number == 4, "it was used otherwise")


@clause
async def its_size_grows_with_what_it_keeps(store: Store) -> None:
    """Bytes that the store occupies now."""
    before = await store.size()
    expect(type(before) is int and before >= 0, f"the size of an empty store is {before!r}")
    await save_thread(store, "t", 3, chunks={f"{index:064x}": f'"{index:0200x}"'.encode() for index in range(500)})
    after = await store.size()
    expect(after > before, f"it took {before} bytes when it was empty, and {after} with three checkpoints in it")


@clause
async def checking_changes_nothing_and_disturbs_no_owner(store: Store) -> None:
    """All damage that the store can detect by itself."""
    owner = await own(store)
    await owner.save(brings=["a"], events=1)
    await owner.record(1)
    before = (await read_everything(store), await store.thread_header("t"), list(await store.commits("t")))
    expect_equal("the damage", list(await store.check()), [])
    after = (await read_everything(store), await store.thread_header("t"), list(await store.commits("t")))
    expect_equal("what can be read after a check", after, before)
    await owner.save(drops=["a"])


@clause
async def what_a_deleted_thread_took_is_given_back(store: Store) -> None:
    """Bytes that the store occupies now."""
    await save_thread(store, "u")
    await store.close()
    small = await store.size()
    texts = [f"{number} " + "x" * 200_000 for number in range(5)]
    await save_thread(store, "t", brings=texts)
    await store.close()
    large = await store.size()
    expect(large > small, f"it took {small} bytes, and {large} with a thread of 1 MB, when closed")
    await store.delete_thread("t")
    after = await store.size()
    expect(after < small + (large - small) / 2, f"it took {small}, then {large} bytes, and {after} without that thread")
