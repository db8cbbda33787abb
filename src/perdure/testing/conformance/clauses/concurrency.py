"""One store used by many at once: by tasks, by several objects and by processes, some of which are killed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, TypeAlias

from perdure.errors import CursorExpired, ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.testing.conformance.clause import NotKept, clause, expect, expect_equal, expect_raises, run_together
from perdure.testing.conformance.location import TrialLocation, TrialProcess
from perdure.testing.conformance.threads import (
    ThreadOwner,
    at,
    checkpoint_ids,
    chunk,
    chunks,
    commit_numbers,
    expect_state,
    own,
    read_as_owner,
    read_everything,
    ref,
    save_full_thread,
    save_line,
    save_thread,
    thread_ids,
)

Processes: TypeAlias = list[TrialProcess]


@clause
async def many_threads_move_at_once_while_the_store_is_closed_and_none_disturbs_another(store: Store) -> None:
    """Each method is one atomic step"""
    names = [f"t{index}" for index in range(12)]
    moves = (save_thread(store, name, 5, events=1, brings=[name]) for name in names)
    await run_together(store.close(), *moves, store.close())
    expect_equal("the threads", sorted(await thread_ids(store)), sorted(names))
    for name in names:
        numbers = await commit_numbers(store, thread_id=name)
        expect_equal(f"the commits of {name}", numbers, [1, 2, 3, 4, 5])
        await expect_state(store, f"of {name}", thread_id=name, chunks={ref(name, number) for number in numbers})


@clause
async def one_of_many_concurrent_opens_and_commits_succeeds(store: Store, owner: ThreadOwner) -> None:
    """Each method is one atomic step"""
    tried = await asyncio.gather(*(store.open("u", f"run-{index}") for index in range(10)), return_exceptions=True)
    won = [outcome for outcome in tried if not isinstance(outcome, BaseException)]
    expect_equal("how many got it", len(won), 1)
    expect_equal("what the others got", {type(outcome) for outcome in tried if outcome not in won}, {ThreadBusy})
    commits = [owner.checkpoint(f"c{index}", events=1) for index in range(10)]
    outcomes = await asyncio.gather(*(store.commit(commit) for commit in commits), return_exceptions=True)
    expect_equal("how many were written", sum(outcome is None for outcome in outcomes), 1)
    expect_equal("how many were refused", sum(isinstance(outcome, ThreadConflict) for outcome in outcomes), 9)
    await expect_state(store, checkpoints=[f"c{outcomes.index(None)}"], events=[1])


@clause
async def pruning_while_others_commit_breaks_nothing(store: Store, owner: ThreadOwner) -> None:
    """Pinned checkpoints stay, and so do the chunks that the head, a branch or any other checkpoint refers to."""
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
    await owner.expect_readable()
    await expect_state(store, head="t-16")


@clause
async def what_one_object_wrote_another_sees_at_once(place: TrialLocation, store: Store, second: Store) -> None:
    """When it returns, its effect is as durable as the store makes anything."""

    async def expect_same(when: str) -> None:
        expect_equal(f"what the second sees {when}", await read_everything(second), await read_everything(store))

    await expect_same("while both are empty")
    for turn, writer in enumerate([store, second, store]):
        await save_thread(writer, "t", events=1, brings=["a"])
        await save_thread(writer, f"u{turn}")
        await writer.post("t", f"item {turn}", "message", b"1")
        await expect_same(f"after turn {turn}")
    await second.prune("t", ["t-1"])
    await second.pin("t-2")
    await store.copy_thread("t", "copy")
    await second.delete_thread("u0")
    await expect_same("after a prune, a copy and a deletion")
    await expect_state(store, threads=["u1", "t", "u2", "copy"])
    await expect_state(second, inbox=["item 0", "item 1", "item 2"])
    await save_full_thread(store, "full")
    before, within = await read_everything(store), await read_as_owner(store, "full")
    await store.close()
    await second.close()
    third = place.another()
    expect_equal("what can be read by the next", await read_everything(third), before)
    expect_equal("what an owner finds", await read_as_owner(third, "full"), within)


@clause
async def two_objects_have_one_owner_between_them(store: Store, owner: ThreadOwner, second: Store) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    await owner.save()
    await expect_raises(ThreadBusy, second.open("t", "run-2"), "opening a thread that is held through another object")
    await expect_raises(ThreadBusy, second.delete_thread("t"), "deleting a thread that is held through another object")
    await expect_raises(ThreadBusy, second.prune("t", ["t-1"]), "pruning its head through another object")
    owner.store = second
    await owner.save()  # a lease is worth the same in both
    await owner.release()
    old = await own(store, owner="run-2")
    expect_equal("the number", old.number, 2)
    new = await own(second, owner="run-3", takeover=True)
    await expect_raises(ThreadConflict, old.save(), "a commit with a fence that is old, as another object knows")
    await expect_raises(ThreadConflict, old.record(1), "a journal entry with a fence that is old, as another one knows")
    await new.save("new")
    await expect_state(store, checkpoints=["t-1", "t-2", "new"])


@clause
async def processes_move_threads_of_their_own_and_only_one_opens_or_writes_the_same(
    store: Store, processes: Processes
) -> None:
    """Each method is one atomic step"""
    await run_together(
        *(process.do("save_many", name, 20) for name, process in zip(("one", "two"), processes, strict=True)),
        *(save_thread(store, name, 5, events=1, brings=[name]) for name in ("here 0", "here 1", "here 2")),
    )
    for name, count in (("one", 20), ("two", 20), ("here 0", 5), ("here 1", 5), ("here 2", 5)):
        expect_equal(f"the commits of {name!r}", await commit_numbers(store, thread_id=name), range(1, count + 1))
        expect_equal(f"the events of {name!r}", len(await store.events_after(name, 0)), count)
        expect_equal(f"the chunks of {name!r}", len(await chunks(store, name)), count)
    for turn in range(10):
        for index, process in enumerate(processes):
            await process.ask("open", f"opened {turn}", f"run-{index}")
        opened = sorted([(await process.outcome())[:2] for process in processes])
        expect_equal("opening one thread", opened, [["done", 0], ["refused", "ThreadBusy"]])
        lease = (await store.open(f"t{turn}", "run-1")).lease
        for process in processes:
            await process.do("lend", lease.thread_id, lease.owner, lease.fence)
        for name, process in zip("ab", processes, strict=True):
            await process.ask("save", f"t{turn}", f"{name}{turn}")
        saving = [(await process.outcome())[:2] for process in processes]
        expect_equal("writing one commit", sorted(saving), [["done", 1], ["refused", "ThreadConflict"]])
        won = "ab"[saving.index(["done", 1])]
        expect_equal("what was written", await checkpoint_ids(store, thread_id=f"t{turn}"), [f"{won}{turn}"])
    await expect_state(store, "beside those of a commit that was refused", thread_id="t0", events=[1])


@clause
async def what_a_commit_prunes_is_pruned_for_every_object(
    place: TrialLocation, store: Store, owner: ThreadOwner, second: Store
) -> None:
    """Numbers of checkpoints that retention deletes with it."""
    for number in range(1, 5):
        await owner.save(brings=[f"c{number}"], drops=[f"c{number - 1}"], events=1)
    expect_equal("the checkpoints before", len(await checkpoint_ids(second)), 4)
    await owner.save(prunes=[1, 2], prunes_events_before=3)
    await expect_state(second, checkpoints=["t-3", "t-4", "t-5"])
    await owner.release()
    await store.close()
    third = place.another()
    await expect_state(third, "of a new object", checkpoints=["t-3", "t-4", "t-5"])
    await expect_raises(CursorExpired, third.events_after("t", 1), "reading after 1, which is pruned")
    again = await own(third)
    again.has = owner.has
    await again.save(drops=["c4"], prunes=[3, 4])
    await expect_state(second, "then", checkpoints=["t-5", "t-6"])
    expect_equal("how many went", await second.prune("t", ["t-5"]), 1)
    await expect_state(second, chunks=set())


@clause
async def a_paused_owner_keeps_its_thread_and_blocks_no_other(store: Store, process: TrialProcess) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
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


NAMES = ("t0", "t1")
"""Threads of one clause, each of a process of its own that is killed once."""


async def kill_at_random(processes: Processes, chance: Random, act: str) -> dict[str, list[Any]]:
    """What the store acknowledged for each of NAMES, before its process was killed in the middle of more."""
    for process, thread_id in zip(processes, NAMES, strict=True):
        await process.ask(act, thread_id)
    return dict(zip(NAMES, await run_together(*(_kill(process, chance) for process in processes)), strict=True))


async def _kill(process: TrialProcess, chance: Random) -> list[Any]:
    acknowledged, delay = 1 + chance.randrange(6), chance.uniform(0, 0.02)
    replies = [await process.outcome() for _ in range(acknowledged)]
    await asyncio.sleep(delay)  # a moment left to chance: no signal of the process marks it
    replies += await process.kill()
    for reply in replies:
        if reply[0] != "done":
            raise NotKept(f"a process that wrote on its own got {reply[1]}: {reply[2]}")
    return [reply[1] for reply in replies]


@clause
async def acknowledged_commits_are_there_after_a_kill(store: Store, processes: Processes, chance: Random) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    for name, acknowledged in (await kill_at_random(processes, chance, "keep_committing")).items():
        owner, last = await own(store, name), acknowledged[-1]
        why = f"commit {last} was acknowledged before the kill, and the thread stands at {owner.number}"
        expect(owner.number in (last, last + 1), why)
        expect_equal("the last event", owner.last_seq, owner.number * 2)
        numbers = range(1, owner.number + 1)
        expect_equal("the checkpoints", await commit_numbers(store, thread_id=name), numbers)
        held = await chunks(store, name, owner.number)
        for number in numbers:
            text = f"{name} at {number}"
            expect_equal(f"a chunk of commit {number}", held.get(ref(text, number)), chunk(text)[1])
        await owner.save()


@clause
async def acknowledged_posts_and_journal_entries_are_there_after_a_kill(
    store: Store, processes: Processes, chance: Random
) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    for name, acknowledged in (await kill_at_random(processes, chance, "keep_posting")).items():
        within = await read_as_owner(store, name)
        posted = [f"item {number}" for kind, number in acknowledged if kind == "post"]
        recorded = [(number, b"%d" % number) for kind, number in acknowledged if kind == "journal"]
        inbox = [item for item, _, _ in within["inbox"]]
        expect_equal("the items", inbox[: len(posted)], posted)
        expect_equal("the journal", within["journal"][: len(recorded)], recorded)
        expect(len(inbox) <= len(posted) + 1, f"{len(posted)} posts were made, and {len(inbox)} items are there")


@clause
async def the_thread_of_a_killed_owner_can_be_opened_at_once(store: Store, processes: Processes) -> None:
    """An owner whose process is dead no longer holds the thread, nor does one whose lease has expired where its
    process cannot be checked."""
    await save_thread(store, "t", due_at=at(1))
    first, second = processes
    await first.do("open", "t", "run-1")
    await first.do("open", "u", "run-1")
    await first.do("save", "u", "u1")
    await second.refuses("ThreadBusy", "open", "t", "run-2")
    expect_equal("what is due while it has an owner", await store.due(at(2)), [])
    await first.kill()
    await expect_state(store, "then", due=["t"])
    expect_equal("the owners", [info.run_id for info in await store.threads()], [None, None])
    expect_equal("the number that the next finds", await second.do("open", "t", "run-2"), 1)
    expect_equal("whether the other can be deleted", await store.delete_thread("u"), True)
    await second.do("save", "t", "t2")


@clause
async def a_kill_while_pruning_breaks_nothing_that_is_left(store: Store, processes: Processes, chance: Random) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    owners = {name: await save_line(store, 20, thread_id=name, events=1) for name in NAMES}
    for owner in owners.values():
        await owner.release()
    for name, pruned in (await kill_at_random(processes, chance, "keep_pruning")).items():
        left = await checkpoint_ids(store, thread_id=name)
        expect_equal("what is left of what was pruned", set(left) & set(pruned), set())
        expect(len(left) >= 20 - len(pruned) - 1, f"{len(pruned)} of 20 were pruned, and {len(left)} are left")
        await owners[name].expect_readable()
        expect_equal("the events", len(await store.events_after(name, 0)), 20)
        again = await own(store, name)
        expect_equal("the number", again.number, 20)
        await again.save()


@clause
async def a_kill_while_copying_leaves_a_whole_copy_or_none(store: Store, processes: Processes, chance: Random) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    for name in NAMES:
        await save_thread(store, name, 8, brings=["a", "b"], events=1)
    acknowledged = await kill_at_random(processes, chance, "keep_copying")
    expected, made = await chunks(store, NAMES[0]), await thread_ids(store)
    copies = {f"{name} copy {number}" for name, numbers in acknowledged.items() for number in numbers}
    expect_equal("copies that were acknowledged and are not there", copies - {*made}, set())
    for copy in made:
        expect_equal(f"the commits of {copy!r}", await commit_numbers(store, thread_id=copy), range(1, 9))
        expect_equal(f"the events of {copy!r}", len(await store.events_after(copy, 0)), 8)
        expect_equal(f"the chunks of {copy!r}", await chunks(store, copy), expected)
        await (await own(store, copy)).save()
