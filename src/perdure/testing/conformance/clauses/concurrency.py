"""One store used by many at once: by tasks, by several objects and by several processes."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import ThreadBusy, ThreadConflict
from perdure.store import Store
from perdure.testing.conformance.clause import Needs, clause, clause_with
from perdure.testing.conformance.support.acts import (
    at,
    chunk,
    chunks,
    everything,
    ids,
    inside,
    own,
    readable,
    ref,
    saved,
    thread_ids,
)
from perdure.testing.conformance.support.expectations import NotKept, holds, refused, same
from perdure.testing.conformance.support.location import TrialLocation
from perdure.testing.conformance.support.processes import TrialProcess


async def five_commits(store: Store, thread_id: str) -> None:
    owner = await own(store, thread_id)
    for _ in range(5):
        await owner.save(events=1, brings=[thread_id])
    await owner.release()


@clause
async def many_threads_move_at_once_and_none_disturbs_another(store: Store) -> None:
    """Each method is one atomic step"""
    names = [f"t{index}" for index in range(12)]
    await asyncio.gather(*(five_commits(store, name) for name in names))
    same("the threads", sorted(await thread_ids(store)), sorted(names))
    for name in names:
        same(f"the commits of {name}", [one.number for one in await store.infos(thread_id=name)], [1, 2, 3, 4, 5])
        same(f"the chunks of {name}", set(await chunks(store, name)), {ref(name, number) for number in range(1, 6)})


@clause
async def of_many_that_open_one_thread_at_once_one_gets_it(store: Store) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    tried = await asyncio.gather(*(store.open("t", f"run-{index}") for index in range(10)), return_exceptions=True)
    won = [one for one in tried if not isinstance(one, BaseException)]
    same("how many got it", len(won), 1)
    same("what the others were told", {type(one) for one in tried if one not in won}, {ThreadBusy})


@clause
async def of_many_that_write_one_commit_at_once_one_does(store: Store) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    owner = await own(store)
    commits = [owner.checkpoint(f"c{index}", events=1) for index in range(10)]
    tried = await asyncio.gather(*(store.commit(one) for one in commits), return_exceptions=True)
    same("how many were written", sum(one is None for one in tried), 1)
    same("how many were refused", sum(isinstance(one, ThreadConflict) for one in tried), 9)
    same("checkpoints and events", (len(await ids(store)), len(await store.events_after("t", 0))), (1, 1))


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
            left = await ids(store, thread_id="t")
            await store.prune("t", left[:-1:2])  # older than the head, whatever comes meanwhile
            await asyncio.sleep(0)

    await asyncio.gather(move(), prune())
    await readable(store, "t", owner.has)
    head = await store.head("t")
    same("the head", head and head.info.number, 16)


# ---------------------------------------------------------------- several objects


@clause_with(Needs.TWO_OBJECTS)
async def what_one_object_wrote_another_sees_at_once(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    one, two = place.store, place.another()
    same("two that are empty", await everything(one), await everything(two))
    for turn, (writer, reader) in enumerate([(one, two), (two, one), (one, two)]):
        await saved(writer, "t", events=1, brings=["a"])
        await saved(writer, f"u{turn}")
        await writer.post("t", f"item {turn}", "message", b"1")
        same("what the other sees", await everything(reader), await everything(writer))
    await two.prune("t", ["t-1"])
    await two.pin("t-2")
    await one.copy_thread("t", "copy")
    await two.delete_thread("u0")
    same("what both see after a prune, a copy and a deletion", await everything(one), await everything(two))
    same("the threads", await thread_ids(one), ["u1", "t", "u2", "copy"])
    same("the inbox", len((await inside(two))["inbox"]), 3)


@clause_with(Needs.TWO_OBJECTS)
async def two_objects_have_one_owner_between_them(place: TrialLocation) -> None:
    """Raises ThreadBusy, without changing anything, while another owner holds the thread"""
    one, two = place.store, place.another()
    owner = await own(one)
    await owner.save()
    await refused(ThreadBusy, two.open("t", "run-2"), "opening a thread that is held through another object")
    await refused(ThreadBusy, two.delete_thread("t"), "deleting a thread that is held through another object")
    await refused(ThreadBusy, two.prune("t", ["t-1"]), "pruning its head through another object")
    owner.store = two
    await owner.save()  # a lease is worth the same in both
    await owner.release()
    same("the number", (await own(one, owner="run-2")).number, 2)


# ---------------------------------------------------------------- several processes


@clause_with(Needs.PROCESSES)
async def processes_that_move_threads_of_their_own_do_not_disturb_each_other(place: TrialLocation) -> None:
    """Each method is one atomic step"""
    one, two = await asyncio.gather(place.process(), place.process())
    await asyncio.gather(
        one.do("save_many", "one", 20),
        two.do("save_many", "two", 20),
        *(five_commits(place.store, f"here {index}") for index in range(3)),
    )
    for name, count in (("one", 20), ("two", 20), ("here 0", 5), ("here 1", 5), ("here 2", 5)):
        numbers = [info.number for info in await place.store.infos(thread_id=name)]
        same(f"the commits of {name!r}", numbers, list(range(1, count + 1)))
        same(f"the events of {name!r}", len(await place.store.events_after(name, 0)), count)
        same(f"the chunks of {name!r}", len(await chunks(place.store, name)), count)


@clause_with(Needs.PROCESSES)
async def of_two_processes_that_open_or_write_at_once_one_does(place: TrialLocation) -> None:
    """Raises ThreadConflict if the fence is not the thread's newest, the number is not the next, or the parent is gone;
    then nothing is stored."""
    both = await asyncio.gather(place.process(), place.process())
    for turn in range(10):
        for index, one in enumerate(both):
            await one.ask("open", f"opened {turn}", f"run-{index}")
        opened = [(await one.outcome())[:2] for one in both]
        same("opening one thread", sorted(map(str, opened)), sorted(["['done', 0]", "['refused', 'ThreadBusy']"]))
        lease = (await place.store.open(f"t{turn}", "run-1")).lease
        for one in both:
            await one.do("lend", lease.thread_id, lease.owner, lease.fence)
        for name, one in zip("ab", both, strict=True):
            await one.ask("save", f"t{turn}", f"{name}{turn}")
        saving = [(await one.outcome())[:2] for one in both]
        same("writing one commit", sorted(map(str, saving)), sorted(["['done', 1]", "['refused', 'ThreadConflict']"]))
        won = "ab"[[outcome for outcome, _ in saving].index("done")]
        same("what was written", await ids(place.store, thread_id=f"t{turn}"), [f"{won}{turn}"])
    holds(len(await place.store.events_after("t0", 0)) == 1, "the events of a commit that was refused are there")


# ---------------------------------------------------------------- crash


KILLS = 3
"""Processes of one clause; each is killed once."""


async def killed_at_random(place: TrialLocation, act: str, *threads: str) -> list[list[Any]]:
    """What the store acknowledged to each process, before it was killed in the middle of more."""
    processes = await asyncio.gather(*(place.process() for _ in threads))
    for one, thread_id in zip(processes, threads, strict=True):
        await one.ask(act, thread_id)
    return await asyncio.gather(*(_killed(place, one) for one in processes))


async def _killed(place: TrialLocation, process: TrialProcess) -> list[Any]:
    acknowledged, delay = 1 + place.chance.randrange(6), place.chance.uniform(0, 0.02)
    heard = [await process.outcome() for _ in range(acknowledged)]
    await asyncio.sleep(delay)  # a moment left to chance: nobody could signal it
    heard += await process.kill()
    for one in heard:
        if one[0] != "done":
            raise NotKept(f"a process that wrote on its own was refused with {one[1]}: {one[2]}")
    return [one[1] for one in heard]


@clause_with(Needs.PROCESSES)
async def acknowledged_commits_are_there_after_a_kill(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    names = [f"t{index}" for index in range(KILLS)]
    told = await killed_at_random(place, "keep_committing", *names)
    for name, numbers in zip(names, told, strict=True):
        owner = await own(place.store, name)
        holds(
            owner.number in (numbers[-1], numbers[-1] + 1),
            f"commit {numbers[-1]} was acknowledged before the kill, and the thread stands at {owner.number}",
        )
        same("the last event", owner.last_seq, owner.number * 2)
        numbers = list(range(1, owner.number + 1))
        same("the checkpoints", [one.number for one in await place.store.infos(thread_id=name)], numbers)
        held = await chunks(place.store, name, owner.number)
        for number in numbers:
            same(
                f"a chunk of commit {number}",
                held.get(ref(f"{name} at {number}", number)),
                chunk(f"{name} at {number}")[1],
            )
        await owner.save()


@clause_with(Needs.PROCESSES)
async def acknowledged_posts_and_journal_entries_are_there_after_a_kill(place: TrialLocation) -> None:
    """When it returns, its effect is as durable as the store makes anything."""
    names = [f"t{index}" for index in range(KILLS)]
    told = await killed_at_random(place, "keep_posting", *names)
    for name, acknowledged in zip(names, told, strict=True):
        within = await inside(place.store, name)
        posted = [number for kind, number in acknowledged if kind == "post"]
        recorded = [number for kind, number in acknowledged if kind == "journal"]
        inbox = [item for item, _, _ in within["inbox"]]
        same("the items", inbox[: len(posted)], [f"item {number}" for number in posted])
        same("the journal", within["journal"][: len(recorded)], [(number, b"%d" % number) for number in recorded])
        holds(len(inbox) <= len(posted) + 1, f"{len(posted)} posts were made, and {len(inbox)} items are there")


@clause_with(Needs.PROCESSES)
async def the_thread_of_a_killed_owner_can_be_opened_at_once(place: TrialLocation) -> None:
    """An owner whose process is dead no longer holds the thread, nor does one whose lease has expired where its
    process cannot be checked."""
    await saved(place.store, "t", due_at=at(1))
    one, two = await asyncio.gather(place.process(), place.process())
    await one.do("open", "t", "run-1")
    await one.do("open", "u", "run-1")
    await one.do("save", "u", "u1")
    await two.refuses("ThreadBusy", "open", "t", "run-2")
    same("what is due while it has an owner", list(await place.store.due(at(2))), [])
    await one.kill()
    same("what is due without", [info.thread_id for info in await place.store.due(at(2))], ["t"])
    same("the owners", [info.run_id for info in await place.store.threads()], [None, None])
    same("the number that the next finds", await two.do("open", "t", "run-2"), 1)
    same("whether the other can be deleted", await place.store.delete_thread("u"), True)
    await two.do("save", "t", "t2")


@clause_with(Needs.PROCESSES)
async def a_kill_while_pruning_breaks_nothing_that_is_left(place: TrialLocation) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    owners = []
    for index in range(KILLS):
        owner = await own(place.store, f"t{index}")
        for number in range(1, 21):
            await owner.save(brings=[f"c{number}"], drops=[f"c{number - 2}"], events=1)
        await owner.release()
        owners.append(owner)
    names = [owner.lease.thread_id for owner in owners]
    told = await killed_at_random(place, "keep_pruning", *names)
    for owner, name, pruned in zip(owners, names, told, strict=True):
        left = await ids(place.store, thread_id=name)
        same("what is left of what was pruned", sorted(set(left) & set(pruned)), [])
        holds(len(left) >= 20 - len(pruned) - 1, f"{len(pruned)} of 20 were pruned, and {len(left)} are left")
        await readable(place.store, name, owner.has)
        same("the events", len(await place.store.events_after(name, 0)), 20)
        again = await own(place.store, name)
        same("the number", again.number, 20)
        await again.save()


@clause_with(Needs.PROCESSES)
async def a_kill_while_copying_leaves_a_whole_copy_or_none(place: TrialLocation) -> None:
    """Each method is one atomic step: it happens completely or not at all"""
    names = [f"t{index}" for index in range(KILLS)]
    for name in names:
        await saved(place.store, name, 8, brings=["a", "b"], events=1)
    told = await killed_at_random(place, "keep_copying", *names)
    expected = await chunks(place.store, names[0])
    made = [one.thread_id for one in await place.store.threads()]
    for name, numbers in zip(names, told, strict=True):
        missing = [number for number in numbers if number is not None and f"{name} copy {number}" not in made]
        same("copies that were acknowledged and are not there", missing, [])
    for copy in made:
        same(
            f"the commits of {copy!r}", [one.number for one in await place.store.infos(thread_id=copy)], [*range(1, 9)]
        )
        same(f"the events of {copy!r}", len(await place.store.events_after(copy, 0)), 8)
        same(f"the chunks of {copy!r}", await chunks(place.store, copy), expected)
        await (await own(place.store, copy)).save()
