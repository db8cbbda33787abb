"""One store used by many at once: by tasks, by several objects and by several processes."""

from __future__ import annotations

import asyncio

from perdure.errors import CursorExpired, ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.testing.conformance.clause import (
    Needs,
    clause,
    clause_with,
    expect,
    expect_equal,
    expect_raises,
    run_together,
)
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    check_readable,
    checkpoint_ids,
    chunks,
    own,
    read_as_owner,
    read_everything,
    ref,
    save_thread,
    thread_ids,
)


async def five_commits(store: Store, thread_id: str) -> None:
    owner = await own(store, thread_id)
    for _ in range(5):
        await owner.save(events=1, brings=[thread_id])
    await owner.release()


@clause
async def many_threads_move_at_once_and_none_disturbs_another(store: Store) -> None:
    """Each method is one atomic step"""
    names = [f"t{index}" for index in range(12)]
    await run_together(*(five_commits(store, name) for name in names))
    expect_equal("the threads", sorted(await thread_ids(store)), sorted(names))
    for name in names:
        expect_equal(
            f"the commits of {name}", [info.number for info in await store.infos(thread_id=name)], [1, 2, 3, 4, 5]
        )
        expect_equal(
            f"the chunks of {name}", set(await chunks(store, name)), {ref(name, number) for number in range(1, 6)}
        )


@clause
async def one_of_many_concurrent_opens_succeeds(store: Store) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    tried = await asyncio.gather(*(store.open("t", f"run-{index}") for index in range(10)), return_exceptions=True)
    won = [outcome for outcome in tried if not isinstance(outcome, BaseException)]
    expect_equal("how many got it", len(won), 1)
    expect_equal("what the others got", {type(outcome) for outcome in tried if outcome not in won}, {ThreadBusy})


@clause
async def one_of_many_concurrent_commits_succeeds(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await own(store)
    commits = [owner.checkpoint(f"c{index}", events=1) for index in range(10)]
    tried = await asyncio.gather(*(store.commit(commit) for commit in commits), return_exceptions=True)
    expect_equal("how many were written", sum(outcome is None for outcome in tried), 1)
    expect_equal("how many were refused", sum(isinstance(outcome, ThreadConflict) for outcome in tried), 9)
    expect_equal(
        "checkpoints and events", (len(await checkpoint_ids(store)), len(await store.events_after("t", 0))), (1, 1)
    )


@clause
async def pruning_while_others_commit_breaks_nothing(store: Store) -> None:
    """Pinned checkpoints stay, and so do the chunks that the head, a branch or any other checkpoint refers to."""
    owner = await own(store)
    await owner.save(brings=["c0", "common"])

    async def move() -> None:
        for turn in range(1, 16):
            await owner.save(brings=[f"c{turn}"], drops=[f"c{turn - 2}"])

    async def prune() -> None:
        while owner.number < 16:
            left = await checkpoint_ids(store, thread_id="t")
            await store.prune("t", left[:-1:2])  # older than the head, whatever comes meanwhile
            await asyncio.sleep(0)

    await run_together(move(), prune())
    await check_readable(store, "t", owner.has)
    head = await store.head("t")
    expect_equal("the head", head and head.info.number, 16)


@clause_with(Needs.TWO_OBJECTS)
async def what_one_object_wrote_another_sees_at_once(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    first, second = place.store, place.another()
    expect_equal("two that are empty", await read_everything(first), await read_everything(second))
    for turn, (writer, reader) in enumerate([(first, second), (second, first), (first, second)]):
        await save_thread(writer, "t", events=1, brings=["a"])
        await save_thread(writer, f"u{turn}")
        await writer.post("t", f"item {turn}", "message", b"1")
        expect_equal("what the other sees", await read_everything(reader), await read_everything(writer))
    await second.prune("t", ["t-1"])
    await second.pin("t-2")
    await first.copy_thread("t", "copy")
    await second.delete_thread("u0")
    expect_equal(
        "what both see after a prune, a copy and a deletion",
        await read_everything(first),
        await read_everything(second),
    )
    expect_equal("the threads", await thread_ids(first), ["u1", "t", "u2", "copy"])
    expect_equal("the inbox", len((await read_as_owner(second))["inbox"]), 3)


@clause_with(Needs.TWO_OBJECTS)
async def two_objects_have_one_owner_between_them(place: TrialLocation) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    first, second = place.store, place.another()
    owner = await own(first)
    await owner.save()
    await expect_raises(ThreadBusy, second.open("t", "run-2"), "opening a thread that is held through another object")
    await expect_raises(ThreadBusy, second.delete_thread("t"), "deleting a thread that is held through another object")
    await expect_raises(ThreadBusy, second.prune("t", ["t-1"]), "pruning its head through another object")
    owner.store = second
    await owner.save()  # a lease is worth the same in both
    await owner.release()
    expect_equal("the number", (await own(first, owner="run-2")).number, 2)


@clause_with(Needs.PROCESSES)
async def processes_that_move_threads_of_their_own_do_not_disturb_each_other(place: TrialLocation) -> None:
    """Each method is one atomic step"""
    first, second = await run_together(place.start_process(), place.start_process())
    await run_together(
        first.do("save_many", "one", 20),
        second.do("save_many", "two", 20),
        *(five_commits(place.store, f"here {index}") for index in range(3)),
    )
    for name, count in (("one", 20), ("two", 20), ("here 0", 5), ("here 1", 5), ("here 2", 5)):
        numbers = [info.number for info in await place.store.infos(thread_id=name)]
        expect_equal(f"the commits of {name!r}", numbers, list(range(1, count + 1)))
        expect_equal(f"the events of {name!r}", len(await place.store.events_after(name, 0)), count)
        expect_equal(f"the chunks of {name!r}", len(await chunks(place.store, name)), count)


@clause_with(Needs.PROCESSES)
async def one_of_two_processes_that_open_or_write_at_once_succeeds(place: TrialLocation) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    both = await run_together(place.start_process(), place.start_process())
    for turn in range(10):
        for index, process in enumerate(both):
            await process.ask("open", f"opened {turn}", f"run-{index}")
        opened = [(await process.outcome())[:2] for process in both]
        expect_equal(
            "opening one thread", sorted(map(str, opened)), sorted(["['done', 0]", "['refused', 'ThreadBusy']"])
        )
        lease = (await place.store.open(f"t{turn}", "run-1")).lease
        for process in both:
            await process.do("lend", lease.thread_id, lease.owner, lease.fence)
        for name, process in zip("ab", both, strict=True):
            await process.ask("save", f"t{turn}", f"{name}{turn}")
        saving = [(await process.outcome())[:2] for process in both]
        expect_equal(
            "writing one commit", sorted(map(str, saving)), sorted(["['done', 1]", "['refused', 'ThreadConflict']"])
        )
        won = "ab"[[outcome for outcome, _ in saving].index("done")]
        expect_equal("what was written", await checkpoint_ids(place.store, thread_id=f"t{turn}"), [f"{won}{turn}"])
    expect(len(await place.store.events_after("t0", 0)) == 1, "the events of a commit that was refused are there")


@clause
async def closing_while_others_write_loses_nothing(store: Store) -> None:
    """Close files and connections. Idempotent; a later call opens them again."""
    threads = (five_commits(store, f"t{index}") for index in range(4))
    await run_together(store.close(), *threads, store.close())
    expect_equal("the checkpoints", len(await checkpoint_ids(store)), 20)


@clause_with(Needs.TWO_OBJECTS)
async def what_a_commit_prunes_is_pruned_for_every_object(place: TrialLocation) -> None:
    """Numbers of checkpoints that retention deletes with it."""
    first, second = place.store, place.another()
    owner = await own(first)
    for number in range(1, 5):
        await owner.save(brings=[f"c{number}"], drops=[f"c{number - 1}"], events=1)
    expect_equal("the checkpoints before", len(await checkpoint_ids(second)), 4)
    await owner.save(prunes=[1, 2], prunes_events_before=3)
    expect_equal("the checkpoints", await checkpoint_ids(second), ["t-3", "t-4", "t-5"])
    await owner.release()
    await first.close()
    third = place.another()
    expect_equal("those of a new object", await checkpoint_ids(third), ["t-3", "t-4", "t-5"])
    await expect_raises(CursorExpired, third.events_after("t", 1), "reading after 1, which is pruned")
    again = await own(third)
    again.has = owner.has
    await again.save(drops=["c4"], prunes=[3, 4])
    expect_equal("the checkpoints then", await checkpoint_ids(second), ["t-5", "t-6"])
    expect_equal("how many went", await second.prune("t", ["t-5"]), 1)
    expect_equal("the chunks", await chunks(second, "t"), {})


@clause_with(Needs.PROCESSES)
async def a_paused_owner_keeps_its_thread_and_blocks_no_other(place: TrialLocation) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    process, store = await place.start_process(), place.store
    await process.do("open", "t", "run-1")
    await process.do("save", "t", "old")
    process.pause()
    try:
        await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread whose owner is paused")
        await expect_raises(ThreadBusy, store.delete_thread("t"), "deleting a thread whose owner is paused")
        await store.post("t", "item", "message", b"1")
        await save_thread(store, "u")
        expect_equal("the threads", await thread_ids(store), ["t", "u"])
        owner = await own(store, "t", owner="run-2", takeover=True)
        await owner.save("new")
    finally:
        process.resume()
    await process.refuses("ThreadConflict", "save", "t", "late")
    await owner.save("newer")
    expect_equal("the checkpoints", await checkpoint_ids(store, thread_id="t"), ["old", "new", "newer"])
