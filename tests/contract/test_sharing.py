"""One store used by many at once: by tasks, event loops and threads of the system, and by several objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.testing.conformance.threads import (
    checkpoint_ids,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)


async def five_commits(store: Store, thread_id: str) -> None:
    owner = await own(store, thread_id)
    for _ in range(5):
        await owner.save(events=1, chunks={"aa": thread_id.join('""').encode()})
    await owner.release()


async def test_many_threads_move_at_once_and_none_disturbs_another(store: Store) -> None:
    names = [f"t{index}" for index in range(30)]
    await asyncio.gather(*(five_commits(store, name) for name in names))
    assert sorted(await thread_ids(store)) == sorted(names)
    for name in names:
        infos = await store.infos(thread_id=name)
        assert [one.number for one in infos] == [1, 2, 3, 4, 5]
        assert {data for one in (await store.read_chunks(name, range(6))).values() for data in one.values()} == {
            name.join('""').encode()
        }
    assert len(await checkpoint_ids(store)) == 150


async def test_of_many_that_open_one_thread_at_once_one_gets_it(store: Store) -> None:
    tried = await asyncio.gather(*(store.open("t", f"run-{index}") for index in range(20)), return_exceptions=True)
    won = [one for one in tried if not isinstance(one, BaseException)]
    assert len(won) == 1 and all(isinstance(one, ThreadBusy) for one in tried if one not in won)


async def test_of_many_that_write_one_commit_at_once_one_does(store: Store) -> None:
    owner = await own(store)
    commits = [owner.checkpoint(f"c{index}") for index in range(20)]
    tried = await asyncio.gather(*(store.commit(one) for one in commits), return_exceptions=True)
    assert sum(one is None for one in tried) == 1
    assert sum(isinstance(one, ThreadConflict) for one in tried) == 19
    assert len(await checkpoint_ids(store)) == 1


async def test_a_cancelled_caller_leaves_the_store_usable_and_the_commit_whole_or_absent(store: Store) -> None:
    owner = await own(store)
    task = asyncio.create_task(owner.save(events=1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await owner.release()
    again = await own(store)
    assert (again.number, again.last_seq) in [(0, 0), (1, 1)]
    await again.save(events=1)


async def test_a_store_is_used_from_several_event_loops_and_threads_of_the_system(store: Store) -> None:
    def in_a_loop_of_its_own(name: str) -> None:
        asyncio.run(five_commits(store, name))

    names = [f"t{index}" for index in range(8)]
    with ThreadPoolExecutor(4) as pool:
        await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(pool, in_a_loop_of_its_own, name) for name in names),
            five_commits(store, "here"),
        )
    assert sorted(await thread_ids(store)) == sorted([*names, "here"])
    for name in names:
        assert [one.number for one in await store.infos(thread_id=name)] == [1, 2, 3, 4, 5]


async def test_a_closed_store_opens_itself_again(store: Store) -> None:
    await save_thread(store, "t", 2, events=1, chunks={"aa": b"1"})
    before = await read_everything(store)
    await store.close()
    await store.close()
    assert await read_everything(store) == before
    await store.close()
    await save_thread(store, "t")
    assert await checkpoint_ids(store) == ["t-1", "t-2", "t-3"]


async def test_a_thread_stays_owned_over_a_close(store: Store) -> None:
    """The object is closed, not the process: who holds a thread still does."""
    owner = await own(store)
    await owner.save()
    await store.close()
    with pytest.raises(ThreadBusy):
        await store.open("t", "run-2")
    await owner.save()


async def test_closing_while_others_are_at_work_loses_nothing(store: Store) -> None:
    await asyncio.gather(*(five_commits(store, f"t{index}") for index in range(5)), store.close(), store.close())
    assert len(await checkpoint_ids(store)) == 25


# ---------------------------------------------------------------- several objects


async def test_two_objects_on_one_place_see_each_others_writes_at_once(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    assert await read_everything(one) == await read_everything(two)
    for turn in range(3):
        for writer, reader in [(one, two), (two, one)]:
            await save_thread(writer, "t", events=1, chunks={"aa": b"1"})
            await writer.post("t", f"item {turn} {writer is one}", "message", b"1")
            assert await read_everything(reader) == await read_everything(writer)
    assert len((await read_as_owner(two, "t"))["inbox"]) == 6
    assert len(await checkpoint_ids(one)) == 6


async def test_two_objects_on_one_place_have_one_owner_between_them(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    first = await own(one)
    await first.save()
    for act in (two.open("t", "run-2"), two.delete_thread("t"), two.prune("t", ["t-1"])):
        with pytest.raises(ThreadBusy):
            await act
    second = await own(two, owner="run-2", takeover=True)
    with pytest.raises(ThreadConflict):
        await first.save()
    await second.save()
    assert await checkpoint_ids(one) == ["t-1", "t-2"]


async def test_what_one_object_prunes_deletes_and_copies_another_sees(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    await save_thread(one, "t", 3, chunks={"aa": b"1"})
    await save_thread(two, "u")
    await two.prune("t", ["t-1"])
    assert await read_everything(one) == await read_everything(two)
    await one.copy_thread("t", "copy")
    await two.delete_thread("t")
    await one.delete_thread("u")
    assert await read_everything(one) == await read_everything(two) and await thread_ids(one) == ["copy"]
    for store in (one, two, one):
        await save_thread(store, "copy", chunks={"bb": b"2"})
        await save_thread(store, "t")
    assert await read_everything(one) == await read_everything(two)


async def test_a_lease_is_worth_the_same_in_every_object(another: Callable[[], Store]) -> None:
    one, two = another(), another()
    owner = await own(one)
    await owner.save()
    owner.store = two
    await owner.save()
    await owner.release()
    assert (await own(one)).number == 2


async def test_what_was_written_is_there_for_the_next_object(another: Callable[[], Store]) -> None:
    one = another()
    await save_thread(one, "t", 3, events=1, chunks={"aa": b"1"})
    await one.post("t", "item", "message", b"1")
    before = await read_everything(one)
    await one.close()
    two = another()
    assert await read_everything(two) == before
    assert [name for name, _, _ in (await read_as_owner(two, "t"))["inbox"]] == ["item"]
