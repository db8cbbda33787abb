"""Finding and listing checkpoints and threads: order, filters and pages."""

from __future__ import annotations

import pytest

from perdure.errors import CheckpointNotFound, ThreadNotFound
from perdure.store import Store
from perdure.testing.conformance.threads import at, checkpoint_ids, own, save_thread, thread_ids


async def mixed(store: Store) -> list[str]:
    """Three threads of two workflows that move in turns; their checkpoints in the order of commits."""
    owners = {
        "a": await own(store, "a", workflow_name="one"),
        "b": await own(store, "b", workflow_name="two"),
        "c": await own(store, "c", workflow_name="one"),
    }
    order = []
    for name in "abcacbba":
        if name == "c":
            await owners[name].note()  # takes a number, but is no checkpoint
        order.append((await owners[name].save()).checkpoint_id)
    assert order == ["a-1", "b-1", "c-2", "a-2", "c-4", "b-2", "b-3", "a-3"]
    return order


async def test_an_empty_store_has_nothing(store: Store) -> None:
    assert list(await store.infos()) == [] and list(await store.threads()) == []
    assert list(await store.infos(workflow_name="w", thread_id="t", limit=3)) == []
    assert await store.find_checkpoint("none") is None and await store.head("none") is None
    assert list(await store.events_after("none", 0)) == []
    assert dict(await store.read_chunks("none", [1, 2])) == {}


async def test_checkpoints_are_listed_in_the_order_of_commits_across_threads(store: Store) -> None:
    order = await mixed(store)
    assert await checkpoint_ids(store) == order
    assert await checkpoint_ids(store, thread_id="a") == ["a-1", "a-2", "a-3"]
    assert await checkpoint_ids(store, workflow_name="one") == ["a-1", "c-2", "a-2", "c-4", "a-3"]
    assert await checkpoint_ids(store, workflow_name="one", thread_id="c") == ["c-2", "c-4"]
    assert await checkpoint_ids(store, workflow_name="two", thread_id="c") == []
    assert (
        await checkpoint_ids(store, workflow_name="nobody's") == []
        and await checkpoint_ids(store, thread_id="nobody's") == []
    )


@pytest.mark.parametrize("filters", [{}, {"thread_id": "b"}, {"workflow_name": "one"}])
async def test_limit_and_before_page_backwards_through_all(store: Store, filters: dict[str, str]) -> None:
    await mixed(store)
    all_of_them = await checkpoint_ids(store, **filters)
    for size in (1, 2, 3, 100):
        pages: list[str] = []
        page = await checkpoint_ids(store, **filters, limit=size)
        while page:
            assert len(page) <= size
            pages = page + pages
            page = await checkpoint_ids(store, **filters, limit=size, before=page[0])
        assert pages == all_of_them


async def test_before_may_name_a_checkpoint_of_another_thread_or_workflow(store: Store) -> None:
    await mixed(store)
    assert await checkpoint_ids(store, thread_id="a", before="b-2") == ["a-1", "a-2"]
    assert await checkpoint_ids(store, workflow_name="two", before="c-4", limit=5) == ["b-1"]


async def test_before_a_checkpoint_that_there_is_not_is_an_error(store: Store) -> None:
    await mixed(store)
    for filters in ({}, {"thread_id": "a"}, {"workflow_name": "one"}, {"limit": 1}):
        with pytest.raises(CheckpointNotFound, match="none"):
            await checkpoint_ids(store, before="none", **filters)


async def test_a_limit_of_nothing_gives_nothing(store: Store) -> None:
    await mixed(store)
    assert await checkpoint_ids(store, limit=0) == [] and await thread_ids(store, limit=0) == []
    assert list(await store.pending_requests(limit=0)) == [] and list(await store.due(at(0), limit=0)) == []


async def test_an_info_says_all_that_was_said_of_its_checkpoint(store: Store) -> None:
    owner = await own(store, "t", owner="run-0a1b", workflow_name="naïve workflow")
    first = await owner.save("c0ffee")
    second = await owner.save(status="WAITING", run_id="another", timestamp="2026-03-01T10:00:00.000123+00:00")
    assert first.previous_checkpoint_id is None and second.previous_checkpoint_id == "c0ffee"
    assert list(await store.infos()) == [first, second]
    for info in (first, second):
        found = await store.find_checkpoint(info.checkpoint_id)
        assert found is not None and found.info == info


@pytest.mark.parametrize("timestamp", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+02:00", "2026-01-01", "yesterday"])
async def test_a_timestamp_comes_back_to_the_letter(store: Store, timestamp: str) -> None:
    owner = await own(store)
    info = await owner.save(timestamp=timestamp)
    assert list(await store.infos()) == [info] and info.timestamp == timestamp
    assert [one.updated_at for one in await store.threads()] == [timestamp]


@pytest.mark.parametrize("checkpoint_id", ["00", "AB", "ab", "abc", "0", "run-00", "", "c0 ffee", "\N{SNOWMAN}"])
async def test_a_checkpoint_id_comes_back_to_the_letter(store: Store, checkpoint_id: str) -> None:
    owner = await own(store, "t", owner=f"run-{checkpoint_id}")
    info = await owner.save(checkpoint_id)
    assert (info.checkpoint_id, info.run_id) == (checkpoint_id, f"run-{checkpoint_id}")
    found = await store.find_checkpoint(checkpoint_id)
    assert found is not None and found.info == info
    assert list(await store.infos()) == [info]


async def test_ids_that_differ_only_in_case_or_form_are_different_checkpoints(store: Store) -> None:
    owner = await own(store)
    names = ["ab", "AB", "Ab", "é", "e\u0301", " ab", "ab "]
    for name in names:
        await owner.save(name)
    assert await checkpoint_ids(store) == names
    for number, name in enumerate(names, 1):
        found = await store.find_checkpoint(name)
        assert found is not None and found.info.number == number


# ---------------------------------------------------------------- threads


async def test_threads_are_listed_with_those_that_moved_last_at_the_end(store: Store) -> None:
    await mixed(store)
    assert await thread_ids(store) == ["c", "b", "a"]
    owner = await own(store, "c", owner="run-2", takeover=True)
    await owner.note()
    assert await thread_ids(store) == ["b", "a", "c"]
    assert await thread_ids(store, workflow_name="one") == ["a", "c"]
    assert await thread_ids(store, thread_id="b") == ["b"] and await thread_ids(store, thread_id="d") == []
    assert await thread_ids(store, workflow_name="two", thread_id="a") == []


async def test_threads_are_in_the_order_of_commits_whatever_their_clocks_say(store: Store) -> None:
    for name, seconds in [("late", 99), ("early", 1), ("middle", 50)]:
        await save_thread(store, name, timestamp=at(seconds).isoformat())
    assert await thread_ids(store) == ["late", "early", "middle"]


async def test_limit_and_before_page_backwards_through_the_threads(store: Store) -> None:
    for index in range(7):
        await save_thread(store, f"t{index}", workflow_name="odd" if index % 2 else "even", timestamp=at(0).isoformat())
    assert await all_pages(store) == [f"t{index}" for index in range(7)]
    assert await thread_ids(store, workflow_name="odd", before="t4", limit=5) == ["t1", "t3"]
    with pytest.raises(ThreadNotFound, match="none"):
        await thread_ids(store, before="none")


async def test_paging_finds_every_thread_also_when_others_were_copied_pruned_and_deleted(store: Store) -> None:
    for name in "abc":
        await save_thread(store, name)
    await store.prune("c", ["c-1"])
    await save_thread(store, "d")  # the first commit since the newest one went
    await store.delete_thread("d")
    await save_thread(store, "e")
    await store.copy_thread("a", "copy")
    found = await all_pages(store)
    assert found == await thread_ids(store)
    assert found[:4] == ["a", "b", "c", "e"] and found[4:] == ["copy"]


async def all_pages(store: Store) -> list[str]:
    pages: list[str] = []
    page = await thread_ids(store, limit=1)
    while page and len(pages) < 20:
        pages = page + pages
        page = await thread_ids(store, limit=1, before=page[0])
    return pages


async def test_a_thread_says_where_it_stands_and_who_owns_it(store: Store) -> None:
    owner = await own(store, "t", owner="run-7", workflow_name="w")
    await owner.save(due_at=at(100.5))
    await owner.note(status="FAILED")
    (info,) = await store.threads()
    assert (info.thread_id, info.workflow_name, info.number, info.status) == ("t", "w", 2, "FAILED")
    assert (info.updated_at, info.checkpoint_id, info.due_at) == (at(2).isoformat(), "t-1", at(100.5))
    assert info.run_id == "run-7"
    await owner.release()
    (info,) = await store.threads()
    assert info.run_id is None


async def test_a_thread_is_of_the_workflow_that_moved_it_last(store: Store) -> None:
    await save_thread(store, "t", workflow_name="old name")
    await save_thread(store, "t", workflow_name="new name")
    assert [one.workflow_name for one in await store.threads()] == ["new name"]
    assert await thread_ids(store, workflow_name="old name") == []
    assert await checkpoint_ids(store, workflow_name="old name") == ["t-1"]
