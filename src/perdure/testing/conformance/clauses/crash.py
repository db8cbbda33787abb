"""Processes that are killed: what the store acknowledged is there, and what is there is complete."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.testing.conformance.clause import Needs, NotKept, clause_with, expect, expect_equal, run_together
from perdure.testing.conformance.location import TrialLocation
from perdure.testing.conformance.threads import (
    at,
    check_readable,
    checkpoint_ids,
    chunk,
    chunks,
    own,
    read_as_owner,
    ref,
    save_line,
    save_thread,
)
from perdure.testing.conformance.worker import TrialProcess

KILLS = 2
"""Processes of one clause; each is killed once."""


async def kill_at_random(place: TrialLocation, act: str, *threads: str) -> list[list[Any]]:
    """What the store acknowledged to each process, before it was killed in the middle of more."""
    processes = await run_together(*(place.start_process() for _ in threads))
    for process, thread_id in zip(processes, threads, strict=True):
        await process.ask(act, thread_id)
    return await run_together(*(_kill(place, process) for process in processes))


async def _kill(place: TrialLocation, process: TrialProcess) -> list[Any]:
    acknowledged, delay = 1 + place.chance.randrange(6), place.chance.uniform(0, 0.02)
    replies = [await process.outcome() for _ in range(acknowledged)]
    await asyncio.sleep(delay)  # a moment left to chance: no signal of the process marks it
    replies += await process.kill()
    for reply in replies:
        if reply[0] != "done":
            raise NotKept(f"a process that wrote on its own got {reply[1]}: {reply[2]}")
    return [reply[1] for reply in replies]


@clause_with(Needs.PROCESSES)
async def acknowledged_commits_are_there_after_a_kill(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    names = [f"t{index}" for index in range(KILLS)]
    acknowledgements = await kill_at_random(place, "keep_committing", *names)
    for name, numbers in zip(names, acknowledgements, strict=True):
        owner = await own(place.store, name)
        expect(
            owner.number in (numbers[-1], numbers[-1] + 1),
            f"commit {numbers[-1]} was acknowledged before the kill, and the thread stands at {owner.number}",
        )
        expect_equal("the last event", owner.last_seq, owner.number * 2)
        numbers = list(range(1, owner.number + 1))
        expect_equal("the checkpoints", [info.number for info in await place.store.infos(thread_id=name)], numbers)
        held = await chunks(place.store, name, owner.number)
        for number in numbers:
            expect_equal(
                f"a chunk of commit {number}",
                held.get(ref(f"{name} at {number}", number)),
                chunk(f"{name} at {number}")[1],
            )
        await owner.save()


@clause_with(Needs.PROCESSES)
async def acknowledged_posts_and_journal_entries_are_there_after_a_kill(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    names = [f"t{index}" for index in range(KILLS)]
    acknowledgements = await kill_at_random(place, "keep_posting", *names)
    for name, acknowledged in zip(names, acknowledgements, strict=True):
        within = await read_as_owner(place.store, name)
        posted = [number for kind, number in acknowledged if kind == "post"]
        recorded = [number for kind, number in acknowledged if kind == "journal"]
        inbox = [item for item, _, _ in within["inbox"]]
        expect_equal("the items", inbox[: len(posted)], [f"item {number}" for number in posted])
        expect_equal(
            "the journal", within["journal"][: len(recorded)], [(number, b"%d" % number) for number in recorded]
        )
        expect(len(inbox) <= len(posted) + 1, f"{len(posted)} posts were made, and {len(inbox)} items are there")


@clause_with(Needs.PROCESSES)
async def the_thread_of_a_killed_owner_can_be_opened_at_once(place: TrialLocation) -> None:
    """An owner whose process is dead no longer holds the thread, nor does one whose lease has expired where its
    process cannot be checked."""
    await save_thread(place.store, "t", due_at=at(1))
    first, second = await run_together(place.start_process(), place.start_process())
    await first.do("open", "t", "run-1")
    await first.do("open", "u", "run-1")
    await first.do("save", "u", "u1")
    await second.refuses("ThreadBusy", "open", "t", "run-2")
    expect_equal("what is due while it has an owner", list(await place.store.due(at(2))), [])
    await first.kill()
    expect_equal("what is due without", [info.thread_id for info in await place.store.due(at(2))], ["t"])
    expect_equal("the owners", [info.run_id for info in await place.store.threads()], [None, None])
    expect_equal("the number that the next finds", await second.do("open", "t", "run-2"), 1)
    expect_equal("whether the other can be deleted", await place.store.delete_thread("u"), True)
    await second.do("save", "t", "t2")


@clause_with(Needs.PROCESSES)
async def a_kill_while_pruning_breaks_nothing_that_is_left(place: TrialLocation) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    owners = []
    for index in range(KILLS):
        owner = await save_line(place.store, 20, thread_id=f"t{index}", events=1)
        await owner.release()
        owners.append(owner)
    names = [owner.lease.thread_id for owner in owners]
    acknowledgements = await kill_at_random(place, "keep_pruning", *names)
    for owner, name, pruned in zip(owners, names, acknowledgements, strict=True):
        left = await checkpoint_ids(place.store, thread_id=name)
        expect_equal("what is left of what was pruned", sorted(set(left) & set(pruned)), [])
        expect(len(left) >= 20 - len(pruned) - 1, f"{len(pruned)} of 20 were pruned, and {len(left)} are left")
        await check_readable(place.store, name, owner.has)
        expect_equal("the events", len(await place.store.events_after(name, 0)), 20)
        again = await own(place.store, name)
        expect_equal("the number", again.number, 20)
        await again.save()


@clause_with(Needs.PROCESSES)
async def a_kill_while_copying_leaves_a_whole_copy_or_none(place: TrialLocation) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    names = [f"t{index}" for index in range(KILLS)]
    for name in names:
        await save_thread(place.store, name, 8, brings=["a", "b"], events=1)
    acknowledgements = await kill_at_random(place, "keep_copying", *names)
    expected = await chunks(place.store, names[0])
    made = [thread.thread_id for thread in await place.store.threads()]
    for name, numbers in zip(names, acknowledgements, strict=True):
        missing = [number for number in numbers if number is not None and f"{name} copy {number}" not in made]
        expect_equal("copies that were acknowledged and are not there", missing, [])
    for copy in made:
        expect_equal(
            f"the commits of {copy!r}",
            [info.number for info in await place.store.infos(thread_id=copy)],
            [*range(1, 9)],
        )
        expect_equal(f"the events of {copy!r}", len(await place.store.events_after(copy, 0)), 8)
        expect_equal(f"the chunks of {copy!r}", await chunks(place.store, copy), expected)
        await (await own(place.store, copy)).save()
