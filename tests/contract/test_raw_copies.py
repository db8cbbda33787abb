"""Threads handed over as they are stored: whatever can be read in one store can be read in the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.conformance.stores import STORES
from tests.conformance.whole_threads import a_full_thread, all_of, plain_commit, plain_standing, read_out, renamed

from perdure.errors import CursorExpired, ThreadConflict, ThreadExists
from perdure.records import Commit, Lease
from perdure.store import Store
from perdure.testing.conformance.threads import (
    checkpoint_ids,
    chunks,
    own,
    read_as_owner,
    read_everything,
    save_thread,
    thread_ids,
)


@pytest.fixture(params=STORES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Another store, of each kind."""
    folder = tmp_path / "target"
    folder.mkdir()
    made = STORES[request.param](folder)
    yield made
    await made.close()


async def hand_over(source: Store, target: Store, thread_id: str = "t") -> None:
    await target.add_thread(*await read_out(source, thread_id))


# ---------------------------------------------------------------- what is handed over


async def test_everything_that_can_be_read_of_a_thread_is_handed_over(store: Store, target: Store) -> None:
    await a_full_thread(store)
    before = await all_of(store)
    await hand_over(store, target)
    assert await all_of(target) == before
    assert await all_of(store) == before
    assert await read_as_owner(target, "t") == await read_as_owner(store, "t")


async def test_what_is_handed_on_is_what_was_handed_over(store: Store, target: Store, tmp_path: Path) -> None:
    await a_full_thread(store)
    before = await all_of(store)
    await hand_over(store, target)
    await store.delete_thread("t")
    await hand_over(target, store)
    assert await all_of(store) == before


async def test_what_was_forgotten_is_not_handed_over_and_what_is_left_needs_nothing_of_it(
    store: Store, target: Store
) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"}, events=1)
    for number in range(2, 8):
        await owner.save(chunks={f"c{number}": b"3"}, dropped=["bb.1"] * (number == 3), events=1)
    await owner.save(prunes=[1, 2, 3, 5], prunes_events_before=4, dropped=["c2.2"])
    await owner.release()
    await hand_over(store, target)
    assert list(await target.infos()) == list(await store.infos()) and await checkpoint_ids(target) == [
        "t-4",
        "t-6",
        "t-7",
        "t-8",
    ]
    assert [one.first_seq for one in await target.events_after("t", None)] == [4, 5, 6, 7]
    with pytest.raises(CursorExpired):
        await target.events_after("t", 2)
    for one in (store, target):
        assert await one.prune("t", ["t-4", "t-7"]) == 2
        assert set(await chunks(one, "t")) == {"aa.1", "c3.3", "c4.4", "c5.5", "c6.6", "c7.7", "c2.2"}
        assert await one.prune("t", ["t-6"]) == 1
        assert set(await chunks(one, "t")) == {"aa.1", "c3.3", "c4.4", "c5.5", "c6.6", "c7.7"}


async def test_a_thread_without_a_checkpoint_is_handed_over(store: Store, target: Store) -> None:
    await save_thread(store, "t", 2, events=1)
    await store.prune("t", ["t-1", "t-2"])
    owner = await own(store)
    await owner.note(events=1, status="FAILED")
    await owner.release()
    before = await all_of(store)
    await hand_over(store, target)
    assert await all_of(target) == before and await target.head("t") is None
    again = await own(target)
    assert (await again.save()).number == 4


async def test_a_thread_that_was_only_posted_to_is_copied_with_its_inbox(store: Store, target: Store) -> None:
    await store.post("t", "item", "message", b"1")
    await hand_over(store, target)
    assert (await read_as_owner(target, "t"))["inbox"] == [("item", "message", b"1")]
    await target.post("t", "item", "message", b"2")
    assert (await read_as_owner(target, "t"))["inbox"] == [("item", "message", b"1")]


async def test_a_thread_handed_over_comes_after_those_that_are_there(store: Store, target: Store) -> None:
    await save_thread(store, "t", 2)
    await save_thread(target, "u", 2)
    await hand_over(store, target)
    assert await checkpoint_ids(target) == ["u-1", "u-2", "t-1", "t-2"] and await thread_ids(target) == ["u", "t"]
    assert await checkpoint_ids(target, limit=1, before="t-1") == ["u-2"] and await checkpoint_ids(
        target, workflow_name="w", limit=1
    ) == ["t-2"]


async def test_a_thread_can_be_handed_over_under_another_name(store: Store) -> None:
    await a_full_thread(store)
    before = await all_of(store)
    await store.add_thread(*renamed(*await read_out(store), "new"))
    assert await all_of(store) == before
    for number, data in (await store.read_chunks("t", range(1, 9))).items():
        assert dict((await store.read_chunks("new", [number]))[number]) == dict(data)
    assert [one.number for one in await store.infos(thread_id="new") if one.is_pinned] == [4]
    await store.delete_thread("t")
    assert (await read_as_owner(store, "new"))["number"] == 8


# ---------------------------------------------------------------- going on


async def test_a_thread_goes_on_where_it_was_handed_over(store: Store, target: Store) -> None:
    await a_full_thread(store)
    await hand_over(store, target)
    for one in (store, target):
        owner = await own(one, owner="run-3")
        await owner.save(
            chunks={"gg": b"9"}, dropped=["ff.7"], events=1, unsettled=[6], consumed=["waits"], requests=[]
        )
        await owner.save("t-6", prunes=[8], events=1)  # in place of another
        await owner.release()
        await one.post("t", "taken", "message", b'"again"')
        await one.post("t", "waits", "message", b'"again"')
        await one.unpin("t-4")
        await one.prune("t", ["t-2"])
    assert await all_of(target) == await all_of(store)
    assert await read_as_owner(target, "t") == await read_as_owner(store, "t")
    for one in (store, target):
        await one.prune("t", [info.checkpoint_id for info in await one.infos()][:-1], events_before=10)
    assert await all_of(target) == await all_of(store)


async def test_an_owner_in_the_one_store_does_not_move_the_thread_in_the_other(store: Store, target: Store) -> None:
    owner = await own(store)
    await owner.save()
    await hand_over(store, target)
    (standing,) = await target.threads()
    assert standing.run_id is None
    with pytest.raises(ThreadConflict):
        await target.commit(owner.checkpoint())
    there = await own(target, owner="run-2")
    assert there.lease.fence > owner.lease.fence
    await there.save()
    await owner.save()


async def test_a_thread_that_was_claimed_and_never_written_is_no_hindrance(store: Store, target: Store) -> None:
    await save_thread(store, "t", 2)
    fences = [(await target.open("t", "run-9", takeover=True)).lease.fence for _ in range(5)]
    await target.release(Lease("t", "run-9", fences[-1]))
    await hand_over(store, target)
    assert await checkpoint_ids(target) == ["t-1", "t-2"]
    there = await own(target)
    assert there.lease.fence > max(fences)
    await there.save()


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("made", ["by a commit", "by a post", "by an open"])
async def test_a_thread_that_is_there_is_not_written_over(store: Store, target: Store, made: str) -> None:
    await a_full_thread(store)
    held = await own(target) if made == "by an open" else None
    if made == "by a commit":
        await save_thread(target, "t", 1, events=1)
    if made == "by a post":
        await target.post("t", "precious", "message", b"1")
    before = await read_everything(target)
    with pytest.raises(ThreadExists, match="'t'") as caught:
        await hand_over(store, target)
    assert caught.value.thread_id == "t" and await read_everything(target) == before
    if held is not None:
        await held.save()
    if made == "by a post":
        assert [one for one, _, _ in (await read_as_owner(target, "t"))["inbox"]] == ["precious"]


async def test_a_checkpoint_id_that_is_there_is_not_taken(store: Store, target: Store) -> None:
    await a_full_thread(store)
    other = await own(target, "u")
    await other.save("t-6", chunks={"aa": b"1"}, events=1)
    before = await read_everything(target)
    with pytest.raises(ThreadExists, match=r"t-6.*'u'"):
        await hand_over(store, target)
    assert await read_everything(target) == before and await target.delete_thread("t") is False
    await other.save("another")
    await target.prune("u", ["t-6"])
    await hand_over(store, target)
    assert await all_of(target) == await all_of(store)


async def test_commits_that_end_with_an_error_leave_nothing_behind(store: Store, target: Store) -> None:
    await a_full_thread(store)
    await save_thread(target, "u")
    standing, commits = await read_out(store)
    before = await read_everything(target)

    def broken_off() -> Iterator[Commit]:
        yield from commits[:3]
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"):
        await target.add_thread(standing, broken_off())
    assert await read_everything(target) == before and await target.delete_thread("t") is False
    await target.add_thread(standing, iter(commits))
    assert await all_of(target) == await all_of(store)


# ---------------------------------------------------------------- reading


async def test_commits_are_read_in_pages(store: Store) -> None:
    await a_full_thread(store)
    standing, commits = await read_out(store)
    whole = [plain_commit(one) for one in commits]
    assert [one["number"] for one in whole] == sorted({one["number"] for one in whole})
    for page in (1, 2, 3, 100):
        again, found = await read_out(store, page=page)
        assert [plain_commit(one) for one in found] == whole and plain_standing(again) == plain_standing(standing)
    assert [one.number for one in await store.commits("t", after=6)] == [7, 8]
    assert list(await store.commits("t", after=8)) == list(await store.commits("t", limit=0)) == []


async def test_of_a_thread_that_there_is_not_there_is_nothing_to_hand_over(store: Store) -> None:
    await save_thread(store, "u")
    assert await store.thread_header("t") is None and list(await store.commits("t")) == []
    assert await thread_ids(store) == ["u"]


async def test_reading_a_thread_out_changes_nothing_for_its_owner(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"}, events=1)
    await owner.record(1)
    before = await read_everything(store)
    standing, _ = await read_out(store)
    assert standing.fence == owner.lease.fence and [one.delivery_id for one in standing.journal] == [1]
    assert await read_everything(store) == before
    await owner.save(prunes=[1])
    await read_out(store)
    await owner.save()


async def test_a_commit_that_is_read_says_what_it_said(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1"})
    commit = owner.checkpoint(chunks={"bb": b'"2"'}, dropped=["aa.1"], events=2)
    await store.commit(commit)
    (found,) = await store.commits("t", after=1)
    assert found.lease.thread_id == "t"
    for name in ("number", "info", "root", "status", "run_id", "timestamp", "parent"):
        assert getattr(found, name) == getattr(commit, name), name
    assert plain_commit(found) == plain_commit(msgspec.structs.replace(commit, lease=found.lease))
