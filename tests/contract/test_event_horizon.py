"""Events that are forgotten: the log begins later, and a cursor from before that is told so."""

from __future__ import annotations

import pytest

from perdure.errors import CursorExpired
from perdure.store import Store
from perdure.testing.conformance.threads import (
    ThreadOwner,
    checkpoint_ids,
    chunks,
    make_events,
    own,
    read_as_owner,
    read_everything,
)


async def a_log(store: Store) -> ThreadOwner:
    """Commits 1 to 5, with the events 1 to 3, none, 4, 5 and 6, 7."""
    owner = await own(store)
    await owner.save(events=3)
    await owner.save()
    await owner.note(events=1)
    await owner.save(events=2)
    await owner.save(events=1)
    return owner


async def firsts(store: Store, seq: int | None, thread_id: str = "t") -> list[int]:
    return [one.first_seq for one in await store.events_after(thread_id, seq)]


async def test_without_a_cursor_all_that_is_kept_is_read(store: Store) -> None:
    owner = await a_log(store)
    assert await firsts(store, None) == await firsts(store, 0) == [1, 4, 5, 7]
    await owner.note(prunes_events_before=4)
    assert await firsts(store, None) == await firsts(store, 4) == [5, 7]
    assert list(await store.events_after("nobody", None)) == list(await store.events_after("nobody", 9)) == []


@pytest.mark.parametrize("cursor", [-1, 0, 1, 3])
async def test_a_cursor_whose_next_event_is_forgotten_has_expired(store: Store, cursor: int) -> None:
    owner = await a_log(store)
    await owner.save(events=1, prunes_events_before=4)  # of commits 1 and 3
    with pytest.raises(CursorExpired, match="'t'") as caught:
        await store.events_after("t", cursor)
    assert (caught.value.thread_id, caught.value.oldest) == ("t", 5)
    assert await firsts(store, caught.value.oldest - 1) == [5, 7, 8]


async def test_a_cursor_whose_next_event_is_kept_has_not(store: Store) -> None:
    owner = await a_log(store)
    await owner.save(events=1, prunes_events_before=4)
    for cursor, expected in [(4, [5, 7, 8]), (5, [5, 7, 8]), (6, [7, 8]), (7, [8]), (8, []), (99, [])]:
        assert await firsts(store, cursor) == expected, cursor


async def test_a_log_that_is_forgotten_altogether_begins_with_what_comes_next(store: Store) -> None:
    owner = await a_log(store)
    await owner.note(prunes_events_before=6)
    assert await firsts(store, None) == await firsts(store, 7) == []
    with pytest.raises(CursorExpired) as caught:
        await store.events_after("t", 6)
    assert caught.value.oldest == 8
    await owner.save(events=2)
    assert owner.last_seq == 9 and await firsts(store, 7) == await firsts(store, None) == [8]
    assert (await read_as_owner(store, "t"))["last_seq"] == 9


async def test_the_events_of_the_forgetting_commit_itself_stay(store: Store) -> None:
    owner = await a_log(store)
    await owner.save(events=1, prunes_events_before=6)
    assert await firsts(store, None) == [8]


async def test_a_horizon_does_not_move_back(store: Store) -> None:
    owner = await a_log(store)
    await owner.note(prunes_events_before=4)
    for before in (3, 1, 0, 4):
        await owner.note(prunes_events_before=before)
        assert await firsts(store, None) == [5, 7]
        with pytest.raises(CursorExpired):
            await store.events_after("t", 3)
    assert await store.prune("t", [], events_before=2) == 0
    assert await firsts(store, None) == [5, 7]


async def test_where_no_event_was_forgotten_no_cursor_expires(store: Store) -> None:
    owner = await own(store)
    await owner.save()
    await owner.save(prunes=[1], prunes_events_before=2)  # there was none
    assert await firsts(store, 0) == await firsts(store, -1) == []
    await owner.save(events=1, prunes_events_before=3)
    assert await firsts(store, 0) == await firsts(store, -1) == await firsts(store, None) == [1]


async def test_forgetting_events_leaves_the_checkpoints(store: Store) -> None:
    owner = await a_log(store)
    before = await read_everything(store)
    await owner.note(prunes_events_before=5)
    after = await read_everything(store)
    for name in ("infos", "checkpoints", "heads", "chunks"):
        assert after[name] == before[name], name


# ---------------------------------------------------------------- pruning


async def test_pruning_forgets_the_events_before_a_commit_too(store: Store) -> None:
    await a_log(store)
    assert await store.prune("t", ["t-1", "t-2"], events_before=4) == 2
    assert await checkpoint_ids(store) == ["t-4", "t-5"] and await firsts(store, None) == [5, 7]
    with pytest.raises(CursorExpired):
        await store.events_after("t", 3)


async def test_pruning_can_forget_events_and_no_checkpoint(store: Store) -> None:
    owner = await a_log(store)
    known = await checkpoint_ids(store)
    assert await store.prune("t", [], events_before=5) == 0
    assert await checkpoint_ids(store) == known and await firsts(store, None) == [7]
    await owner.save(events=1)
    assert await firsts(store, None) == [7, 8]
    assert await store.prune("nobody", [], events_before=5) == 0


async def test_what_only_forgotten_events_refer_to_goes_with_them(store: Store) -> None:
    owner = await own(store)
    await owner.save(chunks={"aa": b"1", "bb": b"2"}, events=make_events(1, refers=True, own=("bb",)))
    await owner.note(chunks={"cc": b"3"}, events=make_events(2, own=("cc",)))
    await owner.save(chunks={"dd": b"4"}, dropped=["aa.1"], parent=1, events=make_events(3, refers=True))
    await store.prune("t", ["t-1"])
    assert set(await chunks(store, "t")) == {"aa.1", "bb.1", "cc.2", "dd.3"}
    await store.prune("t", [], events_before=2)
    assert set(await chunks(store, "t")) == {"cc.2", "dd.3"}
    await store.prune("t", [], events_before=3)
    assert set(await chunks(store, "t")) == {"dd.3"}
    assert [one.first_seq for one in await store.events_after("t", None)] == [3]


async def test_a_copy_begins_where_the_original_does(store: Store) -> None:
    owner = await a_log(store)
    await owner.save(events=1, prunes_events_before=4, prunes=[1])
    await owner.release()
    await store.copy_thread("t", "copy")
    assert await firsts(store, None, "copy") == [5, 7, 8]
    with pytest.raises(CursorExpired, match="copy"):
        await store.events_after("copy", 2)
    copy = await own(store, "copy")
    await copy.save(prunes_events_before=7)
    assert await firsts(store, None, "copy") == [] and await firsts(store, None) == [5, 7, 8]


async def test_a_thread_of_a_deleted_name_has_a_log_of_its_own(store: Store) -> None:
    owner = await a_log(store)
    await owner.note(prunes_events_before=6)
    await owner.release()
    await store.delete_thread("t")
    assert await firsts(store, 0) == []
    again = await own(store)
    await again.save(events=2)
    assert again.opened.last_seq == 0 and await firsts(store, 0) == [1]
