"""The store as a whole: closed and opened again, checked, measured."""

from __future__ import annotations

import inspect

from perdure.errors import ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.acts import everything, full, ids, inside, own, saved
from perdure.testing.conformance.clause import Needs, clause, clause_with
from perdure.testing.conformance.expectations import holds, refused, same
from perdure.testing.conformance.place import Place


@clause
async def it_has_every_method_of_the_contract(store: Store) -> None:
    """A store keeps threads."""
    methods = [one for one in inspect.getmembers(Store, inspect.isfunction) if not one[0].startswith("_")]
    missing = [name for name, _ in methods if not callable(getattr(store, name, None))]
    same("what it lacks", missing, [])
    is_async = inspect.iscoroutinefunction
    same("what is not async", [name for name, one in methods if is_async(one) > is_async(getattr(store, name))], [])
    holds(isinstance(store.finishes_commits, bool), "finishes_commits is neither True nor False")


@clause
async def a_closed_store_opens_itself_again(store: Store) -> None:
    """Idempotent; what is called afterwards opens them again."""
    await full(store)
    before = await everything(store)
    await store.close()
    await store.close()
    same("what can be read after that", await everything(store), before)
    await store.close()
    await saved(store, "u")
    same("the checkpoints", await ids(store), ["t-1", "t-2", "t-4", "u-1"])


@clause
async def a_thread_stays_owned_while_its_store_is_closed(store: Store) -> None:
    """Give back files and connections."""
    owner = await own(store)
    await owner.save()
    await store.close()
    await refused(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held, after a close")
    await owner.save()


@clause_with(Needs.TWO_OBJECTS)
async def what_was_written_is_there_for_the_next_object(place: Place) -> None:
    """when it returns it is as durable as the store makes anything"""
    first = place.store
    await full(first)
    await first.pin("t-2")
    before, within = await everything(first), await inside(first)
    await first.close()
    second = place.another()
    same("what can be read by the next", await everything(second), before)
    same("what an owner finds", await inside(second), within)


@clause
async def a_check_of_a_sound_store_finds_nothing(store: Store) -> None:
    """Whatever the store itself can tell to be damaged, in all that it keeps."""
    same("what is damaged in an empty one", list(await store.check()), [])
    owner = await full(store)
    await store.copy_thread("t", "copy")
    await store.prune("t", ["t-1"])
    await store.delete_thread("copy")
    await own(store, owner="run-2")
    same("what is damaged in one that was used", list(await store.check()), [])
    holds(owner.number == 4, "it was used otherwise")


@clause
async def its_size_grows_with_what_it_keeps(store: Store) -> None:
    """Bytes that it takes now."""
    before = await store.size()
    holds(type(before) is int and before >= 0, f"the size of an empty store is {before!r}")
    await saved(store, "t", 3, chunks={f"{index:064x}": f'"{index:0200x}"'.encode() for index in range(500)})
    after = await store.size()
    holds(after > before, f"it took {before} bytes when it was empty, and {after} with three checkpoints in it")
