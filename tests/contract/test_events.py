"""The event log of a thread: read from any cursor, without a gap or a repeat."""

from __future__ import annotations

from perdure.store import Store
from perdure.testing.conformance.threads import at, make_events, own

CURSORS = [(-1, [1, 4, 5]), (0, [1, 4, 5]), (2, [1, 4, 5]), (3, [4, 5]), (4, [5]), (5, [5]), (6, []), (99, [])]


async def test_events_are_read_from_the_commit_that_holds_the_next_one(store: Store) -> None:
    owner = await own(store)
    await owner.save(events=3)
    await owner.save()
    await owner.note(events=1)
    await owner.save(events=2)
    for cursor, firsts in CURSORS:
        assert [one.first_seq for one in await store.events_after("t", cursor)] == firsts, cursor


async def test_events_say_which_run_and_checkpoint_they_belong_to(store: Store) -> None:
    owner = await own(store, owner="run-0a")
    info = await owner.save(chunks={"aa": b"1", "bb": b"2"}, events=make_events(1, 2, refers=True, own=("bb",)))
    await owner.note(events=1, run_id="run-2")
    first, second = await store.events_after("t", 0)
    assert (first.first_seq, first.count, first.refers, tuple(first.own)) == (1, 2, True, ("bb",))
    assert (first.run_id, first.timestamp, first.info) == ("run-0a", info.timestamp, info)
    assert (second.run_id, second.timestamp, second.info) == ("run-2", at(2).isoformat(), None)
    assert (second.refers, tuple(second.own)) == (False, ())


async def test_events_of_two_threads_are_two_logs(store: Store) -> None:
    one, two = await own(store, "one"), await own(store, "two")
    await one.save(events=2)
    await two.save(events=5)
    await one.save(events=1)
    assert [(log.first_seq, log.count) for log in await store.events_after("one", 0)] == [(1, 2), (3, 1)]
    assert [(log.first_seq, log.count) for log in await store.events_after("two", 0)] == [(1, 5)]
