"""A store that looks at itself: nothing to say of what is sound, something of what is not; and how much it takes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.conformance.whole_threads import a_full_thread, read_out, renamed
from tests.contract.harming import damage, files_in, lose_a_part

from perdure.errors import DamagedStore
from perdure.records import LoggedEvents
from perdure.store import Store
from perdure.testing.conformance.threads import own, save_thread

BIG = b'"%b"' % b64encode(Random(6).randbytes(37_500))
"""Nothing that a store could make smaller."""
COUNT = 40
WHOLE = COUNT * len(BIG)


async def a_large_thread(store: Store, thread_id: str = "t") -> None:
    """Each checkpoint with a chunk that no other has."""
    owner = await own(store, thread_id)
    for number in range(1, COUNT + 1):
        dropped = [f"c{number - 1}.{number - 1}"] if number > 1 else []
        await owner.save(chunks={f"c{number}": BIG}, dropped=dropped)
    await owner.release()


# ---------------------------------------------------------------- check


async def test_there_is_nothing_to_say_of_a_store_that_holds_nothing(store: Store) -> None:
    assert list(await store.check()) == []
    await store.close()
    assert list(await store.check()) == []


async def test_there_is_nothing_to_say_of_a_store_that_is_sound_whatever_was_done_to_it(store: Store) -> None:
    await a_full_thread(store)
    assert list(await store.check()) == []
    await store.copy_thread("t", "copy")
    await store.add_thread(*renamed(*await read_out(store), "new"))
    await save_thread(store, "gone", 2, chunks={"aa": b"1"}, events=1)
    await store.delete_thread("gone")
    await store.post("only posted to", "item", "message", b"1")
    await store.open("only claimed", "run-1")
    assert list(await store.check()) == []
    owner = await own(store, "new")
    await owner.save("t-6")  # an id of another thread's
    await owner.save(prunes=range(1, 10), prunes_events_before=9)
    assert list(await store.check()) == []  # also while it has an owner
    await store.prune("copy", [one.checkpoint_id for one in await store.infos(thread_id="copy")])
    assert list(await store.check()) == []
    await store.close()
    assert list(await store.check()) == []


async def test_checking_changes_nothing_and_disturbs_no_owner(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"}, events=1)
    await owner.record(1)
    before = await read_out(store)
    assert list(await store.check()) == []
    assert await read_out(store) == before
    await owner.save(dropped=["aa.1"])


@pytest.mark.parametrize("what", ["root", "event", "journal", "inbox"])
async def test_a_payload_that_was_changed_is_found_and_named(
    another: Callable[[], Store], kind: str, tmp_path: Path, what: str
) -> None:
    await is_found_and_named(another, kind, tmp_path, what)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_chunk_that_was_changed_is_found_where_a_commit_is_sealed_as_a_whole(
    another: Callable[[], Store], kind: str, tmp_path: Path
) -> None:
    """In PostgreSQL its digest proves it, which the storage compares: tests/promises/test_verification_of_tables.py."""
    await is_found_and_named(another, kind, tmp_path, "chunk")


async def is_found_and_named(another: Callable[[], Store], kind: str, tmp_path: Path, what: str) -> None:
    store = another()
    await save_thread(store, "sound", 3, chunks={"aa": b'"sound"'}, events=1)
    owner = await own(store, "hurt")
    await owner.save(root=b'{"of":"the root value"}', chunks={"aa": b'"the chunk value"'}, events=1)
    await owner.note(events=LoggedEvents(2, 1, b'[["the event value"]]'))
    await owner.record(1, b'"the journal value"')
    await store.post("hurt", "item", "message", b'"the inbox value"')
    await owner.release()
    await store.close()
    assert damage(kind, tmp_path, b"the %b value" % what.encode()) >= 1
    found = await another().check()
    assert found and {one.thread_id for one in found} == {"hurt"}, found
    assert all(one.reason for one in found)


# ---------------------------------------------------------------- size


async def test_a_store_says_how_much_it_takes(store: Store, tmp_path: Path) -> None:
    await save_thread(store, "u")
    small = await store.size()
    assert small < 200_000
    await a_large_thread(store)
    whole = await store.size()
    assert small + WHOLE <= whole <= small + 3 * WHOLE
    on_disk = sum(path.stat().st_size for path in files_in(tmp_path))
    assert on_disk in (0, whole)


async def test_what_is_pruned_is_given_back_at_once(store: Store) -> None:
    await a_large_thread(store)
    assert await store.prune("t", [f"t-{number}" for number in range(1, COUNT)]) == COUNT - 1
    assert await store.size() < WHOLE / 4
    head = await store.head("t")
    assert head is not None and (await store.read_chunks("t", [COUNT]))[COUNT][f"c{COUNT}"] == BIG


async def test_what_a_deleted_thread_took_is_given_back(store: Store) -> None:
    await save_thread(store, "u")
    small = await store.size()
    await a_large_thread(store)
    await store.delete_thread("t")
    assert await store.size() < small + WHOLE / 4


async def test_a_thread_that_keeps_only_its_head_does_not_grow(store: Store) -> None:
    owner, data, count = await own(store), BIG[:20_000] + b'"', 8 * COUNT
    sizes = []
    for number in range(1, count + 1):
        dropped = [f"c{number - 1}.{number - 1}"] if number > 1 else []
        await owner.save(chunks={f"c{number}": data}, dropped=dropped, prunes=[number - 1])
        sizes.append(await store.size() if number % 20 == 0 else 0)
    assert max(sizes[count // 2 :]) < 1.5 * max(sizes[: count // 2]), sizes[19::20]
    await owner.release()
    await store.close()
    assert await store.size() < count * len(data) / 3


async def test_a_store_that_is_closed_says_how_much_it_takes_all_the_same(store: Store) -> None:
    await a_large_thread(store)
    await store.close()
    assert await store.size() >= WHOLE
    await store.prune("t", [f"t-{number}" for number in range(1, COUNT)])
    await store.close()
    assert await store.size() < WHOLE / 4


async def test_a_store_of_which_a_part_was_lost_does_not_call_itself_sound(
    another: Callable[[], Store], kind: str, tmp_path: Path
) -> None:
    store = another()
    await a_large_thread(store)
    await store.close()
    lose_a_part(kind, tmp_path, WHOLE // 2)
    try:
        found = [one.reason for one in await another().check()]
    except DamagedStore as error:  # where hardly anything of it can be read
        found = [error.reason]
    assert found and all(found)
