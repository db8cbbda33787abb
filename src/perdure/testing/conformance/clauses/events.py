"""The event log of a thread: read from any cursor, without a gap or a repeat, as far back as it is kept."""

from __future__ import annotations

from perdure.errors import CursorExpired
from perdure.store import Store
from perdure.testing.conformance.clause import clause, expect_equal, expect_raises
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    chunk,
    first_seqs,
    make_events,
    own,
    read_everything,
    save_thread,
)

CURSORS: list[tuple[int | None, list[int]]] = [
    (None, [1, 4, 5]),
    (-1, [1, 4, 5]),
    (0, [1, 4, 5]),
    (2, [1, 4, 5]),
    (3, [4, 5]),
    (4, [5]),
    (5, [5]),
    (6, []),
    (99, []),
]


async def four_commits(store: Store) -> ThreadOwner:
    """Events 1 to 3, none, 4, and 5 to 6."""
    owner = await own(store)
    await owner.save(events=3)
    await owner.save()
    await owner.note(events=1)
    await owner.save(events=2)
    return owner


@clause
async def events_are_read_from_the_commit_that_holds_the_next_one(store: Store) -> None:
    """The packed events of all commits that hold an event newer than `seq`, in order; None: all that are kept."""
    await four_commits(store)
    for cursor, firsts in CURSORS:
        got = await first_seqs(store, cursor)
        expect_equal(f"what is read after {cursor}", got, firsts)


@clause
async def a_log_read_from_its_own_ends_has_no_gap_and_no_repeat(store: Store) -> None:
    """The packed events of all commits that hold an event newer than `seq`, in order; None: all that are kept."""
    owner, other = await own(store), await own(store, "other")
    read: list[int] = []
    for turn in range(8):
        await other.save(events=1)
        if turn % 3:
            await owner.save(events=turn)
        else:
            await owner.note(events=turn + 1)
        for batch in await store.events_after("t", read[-1] if read else 0):
            read += range(batch.first_seq, batch.first_seq + batch.count)
    expect_equal("the events that were read, each time after the last", read, list(range(1, owner.last_seq + 1)))


@clause
async def events_name_their_commit_run_and_checkpoint(store: Store) -> None:
    """This and the fields below repeat their commit. The store fills them in when it reads events."""
    owner = await own(store, owner="run-0a")
    digest, data = chunk("only the events")
    info = await owner.save(brings=["a"], events=1)
    await owner.note(chunks={digest: data}, events=make_events(2, 2, refers=False, own=(digest,)), run_id="run-2")
    log = await store.events_after("t", 0)
    expect_equal("how many commits the events are of", len(log), 2)
    first, second = log
    expect_equal(
        "the first", (first.first_seq, first.count, first.body, first.refers), (1, 1, b'[["event",1,1]]', False)
    )
    expect_equal(
        "its commit", (first.number, first.run_id, first.timestamp, first.info), (1, "run-0a", info.timestamp, info)
    )
    expect_equal("the second", (second.first_seq, second.count, second.body), (2, 2, b'[["event",2,2]]'))
    expect_equal("its commit", (second.number, second.run_id, second.timestamp), (2, "run-2", at(2).isoformat()))
    expect_equal("its chunks and its checkpoint", (tuple(second.own), second.info), ((digest,), None))


@clause
async def events_of_a_pruned_checkpoint_stay_and_name_none(store: Store) -> None:
    """The events of their commits stay, except those of commits before `events_before`."""
    owner = await own(store)
    for _ in range(3):
        await owner.save(events=1)
    before = [(batch.first_seq, batch.count, batch.body, batch.run_id) for batch in await store.events_after("t", 0)]
    await store.prune("t", ["t-1", "t-2"])
    after = await store.events_after("t", 0)
    expect_equal("the events", [(batch.first_seq, batch.count, batch.body, batch.run_id) for batch in after], before)
    expect_equal("their checkpoints", [info.info and info.info.checkpoint_id for info in after], [None, None, "t-3"])


async def begins_at_four(store: Store) -> None:
    expect_equal("what is kept", await first_seqs(store, None), [4, 5])
    expect_equal("after the last that is gone", await first_seqs(store, 3), [4, 5])
    expect_equal("after the newest", list(await store.events_after("t", 99)), [])
    for cursor in (-1, 0, 2):
        await expect_raises(CursorExpired, store.events_after("t", cursor), f"reading after {cursor}, which is pruned")
    try:
        await store.events_after("t", 0)
    except CursorExpired as error:
        expect_equal("the oldest event that the error names", (error.thread_id, error.oldest), ("t", 4))


@clause
async def events_that_a_commit_prunes_are_gone_and_their_cursors_expire(store: Store) -> None:
    """Delete the events of all commits before this number."""
    owner = await four_commits(store)
    await owner.note(prunes_events_before=3)
    await begins_at_four(store)
    await owner.save(events=1)
    expect_equal("the events after one more", await first_seqs(store, 4), [5, 7])


@clause
async def events_before_a_prune_are_gone_and_their_cursors_expire(store: Store) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    await four_commits(store)
    await store.prune("t", [], events_before=3)
    await begins_at_four(store)


@clause
async def a_log_whose_events_are_all_pruned_continues_its_numbers(store: Store) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    owner = await four_commits(store)
    await owner.save(prunes_events_before=99)
    expect_equal("what is kept", list(await store.events_after("t", None)), [])
    expect_equal("after the last", list(await store.events_after("t", 6)), [])
    await expect_raises(CursorExpired, store.events_after("t", 5), "reading after 5, when 6 is pruned")
    await owner.release()
    again = await own(store)
    expect_equal("the last event", again.last_seq, 6)
    await again.save(events=1)
    expect_equal("what is kept then", await first_seqs(store, None), [7])


@clause
async def the_last_event_is_known_without_reading_it(store: Store) -> None:
    """The seq of the last event of the thread, kept or pruned; 0 if it has none."""
    expect_equal("that of a thread that does not exist", await store.last_seq("t"), 0)
    await store.post("t", "item", "message", b"1")
    expect_equal("that of one that was only posted to", await store.last_seq("t"), 0)
    owner = await four_commits(store)
    await (await own(store, "other")).save(events=9)
    expect_equal("that of four commits", await store.last_seq("t"), 6)
    await owner.note(status="FAILED")
    expect_equal("that after a commit without one", await store.last_seq("t"), 6)
    await owner.save(prunes_events_before=99)
    expect_equal("that of a log that is pruned", await store.last_seq("t"), 6)
    await owner.release()
    await store.copy_thread("t", "copy")
    expect_equal("that of a copy", await store.last_seq("copy"), 6)
    await store.delete_thread("t")
    expect_equal("that of a thread that is gone", await store.last_seq("t"), 0)


@clause
async def the_first_event_that_is_kept_does_not_move_back(store: Store) -> None:
    """Delete the events of all commits before this number."""
    owner = await four_commits(store)
    await owner.note(prunes_events_before=3)
    for before in (2, 1, 0, 3):
        await owner.note(prunes_events_before=before)
        await begins_at_four(store)
    expect_equal("how many went", await store.prune("t", [], events_before=2), 0)
    await begins_at_four(store)


@clause
async def no_cursor_expires_where_no_event_was_pruned(store: Store) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    owner = await own(store)
    await owner.save()
    await owner.save(prunes=[1], prunes_events_before=2)  # there was none
    for cursor in (-1, 0, None):
        expect_equal(f"the events after {cursor}", list(await store.events_after("t", cursor)), [])
    await owner.save(events=1, prunes_events_before=3)
    for cursor in (-1, 0, None):
        firsts = await first_seqs(store, cursor)
        expect_equal(f"the events after {cursor}, of the commit that prunes", firsts, [1])


@clause
async def pruning_events_keeps_the_checkpoints_and_later_events(store: Store) -> None:
    """Delete the events of all commits before this number."""
    owner = await four_commits(store)
    before = await read_everything(store)
    await owner.save(events=1, prunes_events_before=5)
    after = await read_everything(store)
    for name in ("infos", "checkpoints"):
        expect_equal(f"the {name}", list(after[name])[:3], list(before[name])[:3])
    expect_equal("what is kept", await first_seqs(store, None), [7])
    await owner.save(events=1)
    await store.prune("t", ["t-2"], events_before=4)
    expect_equal("what is kept then", await first_seqs(store, None), [7, 8])


@clause
async def a_log_begins_where_it_does_in_a_copy_and_at_one_in_a_new_thread(store: Store) -> None:
    """Raises CursorExpired if the event after `seq` was pruned."""
    owner = await four_commits(store)
    await owner.note(prunes_events_before=3)
    await owner.release()
    await store.copy_thread("t", "copy")
    await expect_raises(CursorExpired, store.events_after("copy", 2), "reading a copy after 2, which is pruned")
    copy = await own(store, "copy")
    await copy.save(prunes_events_before=9)
    expect_equal("the events of the copy", list(await store.events_after("copy", None)), [])
    await begins_at_four(store)
    await store.delete_thread("t")
    expect_equal("the events of a deleted thread", list(await store.events_after("t", 0)), [])
    await save_thread(store, "t", events=2)
    expect_equal("those of a new one", await first_seqs(store), [1])
