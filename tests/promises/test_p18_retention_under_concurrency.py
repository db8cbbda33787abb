"""Promise 18 under concurrency: threads are pruned by some while others run, fork, rewind, pin and read them."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest
from tests.chance import draw_seed
from tests.promises.histories import DAY, Days, Seen, log, numbers
from tests.promises.processes import FarStage, Place
from tests.promises.stages import Relay, Sink, Stage, chain, ledger

from perdure import CheckpointNotFound, CursorExpired, ThreadConflict, Workflow
from perdure.checkpoints.history.retention import KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage

TURNS = 8


def entry_text(who: str, turn: int) -> str:
    """Long enough to be kept in chunks that several checkpoints share."""
    return f"{who}-{turn}-" + "x" * 3000


# ---------------------------------------------------------------- what each of them does


async def write(storage: StoreCheckpointStorage, who: str, stage: Stage) -> dict[str, Any]:
    """Turns of a thread of its own and of one that all share; some checkpoints are pinned, and some forked."""
    workflow, seen = ledger(stage, storage), Seen()
    pinned: dict[str, Any] = {}
    forks: dict[str, list[str]] = {}
    for turn in range(TURNS):
        await workflow.run(entry_text(who, turn), thread_id="shared", on_busy="enqueue")
        result = await workflow.run(entry_text(who, turn), thread_id=who)
        [mine] = result.get_outputs()
        [head] = await storage.list_checkpoint_infos(thread_id=who, limit=1)
        if turn % 4 == 1:
            await storage.pin(head)
            pinned[head.checkpoint_id] = mine
        if turn % 4 == 2:
            fork = await storage.fork(head)
            forks[fork.thread_id] = mine
        await seen.look(storage)
    for thread_id, before in forks.items():
        [after] = (await workflow.run("end", thread_id=thread_id)).get_outputs()
        assert after == [*before, "end"]
    return pinned


async def prune(storage: StoreCheckpointStorage, until: asyncio.Event, seed: int) -> int:
    """Again and again, in one way or another. Gives how many went."""
    chance, gone = random.Random(seed), 0
    while not until.is_set():
        keep = chance.randint(1, 3)
        report = await storage.prune(keep_last=keep) if keep > 1 else await storage.prune(older_than=timedelta(0))
        assert report.skipped == ()
        gone += report.checkpoints
        await asyncio.sleep(0)
    return gone


async def read(storage: StoreCheckpointStorage, until: asyncio.Event, whom: list[str]) -> int:
    """All that is there, again and again: it can be read, and never is anything but what it was."""
    seen, count = Seen(), 0
    while not until.is_set():
        await seen.look(storage)
        for thread_id in whom:
            events = await log(storage, None, thread_id)
            seqs = [event.seq or 0 for event in events]
            assert seqs == sorted(set(seqs))
            count += len(events)
        await asyncio.sleep(0)
    return count


async def check(storage: StoreCheckpointStorage, pinned: dict[str, Any], writers: list[str]) -> None:
    for who in writers:
        head = await storage.get_latest(thread_id=who)
        assert head is not None and head.state["entries"] == [entry_text(who, turn) for turn in range(TURNS)]
    shared = await storage.get_latest(thread_id="shared")
    assert shared is not None
    assert sorted(shared.state["entries"]) == sorted(entry_text(who, turn) for who in writers for turn in range(TURNS))
    for checkpoint_id, entries in pinned.items():
        assert (await storage.load(checkpoint_id)).state["entries"] == entries
    await Seen().look(storage)
    assert list(await storage.store.check()) == []


# ---------------------------------------------------------------- tasks of one process


@pytest.mark.parametrize("retention", [None, LatestOnly()], ids=repr)
async def test_tasks_prune_while_others_write_fork_pin_and_read(
    storage: StoreCheckpointStorage, retention: Retention | None
) -> None:
    seed = draw_seed()
    storage.retention = retention or storage.retention
    writers, done = ["ann", "bob"], asyncio.Event()
    others = [asyncio.create_task(prune(storage, done, seed)), asyncio.create_task(read(storage, done, writers))]
    pins = await asyncio.gather(*(write(storage, who, Stage()) for who in writers))
    done.set()
    await asyncio.gather(*others)
    await check(storage, {key: entries for pinned in pins for key, entries in pinned.items()}, writers)


# ---------------------------------------------------------------- processes


async def write_there(stage: FarStage, storage: StoreCheckpointStorage, who: str, retention: Any) -> Any:
    storage.retention = retention
    return await write(storage, who, Stage())


async def prune_there(stage: FarStage, storage: StoreCheckpointStorage, seed: int) -> int:
    """Until the gate is opened."""
    stage.report("prunes")
    return await prune(storage, stage.gates["stop"], seed)


@pytest.mark.parametrize("retention", [KeepLast(50), LatestOnly()], ids=repr)
async def test_processes_prune_while_others_write_fork_pin_and_read(place: Place, retention: Retention) -> None:
    seed = draw_seed()
    writers, done = ["ann", "bob"], asyncio.Event()
    pruning = place.start(prune_there, seed, held=["stop"])
    await pruning.wait_for("prunes")
    async with place.storage() as storage:
        reading = asyncio.create_task(read(storage, done, writers))
        writing = [place.start(write_there, who, retention) for who in writers]
        pins = await asyncio.gather(*(writer.result() for writer in writing))
        pinned = {key: entries for pinned in pins for key, entries in pinned.items()}
        done.set()
        assert await reading > 0
        pruning.open_gate("stop")
        gone = await pruning.result()
        await check(storage, pinned, writers)
    assert retention == LatestOnly() or gone > TURNS


async def test_a_process_that_is_killed_while_it_prunes_breaks_nothing(place: Place) -> None:
    chance = random.Random(seed := draw_seed())
    async with place.storage() as storage:
        workflow, seen = ledger(Stage(), storage), Seen()
        for turn in range(6):
            for thread_id in ("t", "u", "v"):
                for _ in range(3):
                    await workflow.run(entry_text(thread_id, turn), thread_id=thread_id)
            await seen.look(storage)
            pruning = place.start(prune_there, seed + turn, held=["stop"])
            await pruning.wait_for("prunes")
            await asyncio.sleep(chance.random() / 50)  # some of it is done
            await pruning.kill()
            await seen.look(storage)
        for thread_id in ("t", "u", "v"):
            [entries] = (await workflow.run("end", thread_id=thread_id)).get_outputs()
            assert len(entries) == 19
        await storage.prune(keep_last=1)
        await seen.look(storage)
        assert list(await storage.store.check()) == []


# ---------------------------------------------------------------- runs that come and go


def relays(stage: Stage, storage: Any) -> Workflow:
    return chain(*(Relay(name, stage) for name in "abcd"), Sink("last"), storage=storage)


async def run_there(stage: FarStage, storage: StoreCheckpointStorage, message: str | None) -> Any:
    storage.retention = LatestOnly()
    return (await relays(stage, storage).run(message, thread_id="t")).get_outputs()


async def test_run_under_latest_only_killed_at_any_superstep_resumes(place: Place) -> None:
    for killed_at in "abcd":
        other = place.start(run_there, "x" if killed_at == "a" else None, held=[killed_at])
        await other.wait_for("entered", killed_at)
        await other.kill()
        async with place.storage() as storage:
            assert len(await numbers(storage)) == 1
            assert (await log(storage, 0))[0].type == "started"
    last = place.start(run_there, None)
    assert await last.result() == ["x-a-b-c-d"]


async def take_turns(stage: FarStage, storage: StoreCheckpointStorage, who: str, count: int) -> Any:
    storage.retention = KeepLast(3)
    workflow = ledger(Stage(), storage)
    for turn in range(count):
        await workflow.run(entry_text(who, turn), thread_id="shared", on_busy="enqueue")
    return None


async def test_processes_that_share_one_thread_keep_what_the_policy_names(place: Place) -> None:
    others = [place.start(take_turns, who, 10) for who in ("ann", "bob")]
    await asyncio.gather(*(other.result() for other in others))
    async with place.storage() as storage:
        listed = await numbers(storage, "shared")
        assert len(listed) == 3 and listed[-1] == 40
        head = await storage.get_latest(thread_id="shared")
        assert head is not None and len(head.state["entries"]) == 20
        await Seen().look(storage)


async def test_rewind_during_pruning_finds_the_checkpoint_whole_or_not_at_all(
    storage: StoreCheckpointStorage,
) -> None:
    """A late rewind or fork raises an error, and the thread stays where it was."""
    outcomes = set()
    for turn in range(12):
        thread_id = f"t{turn}"
        workflow, seen = ledger(Stage(), storage), Seen()
        for message in "abc":
            await workflow.run(message, thread_id=thread_id)
        await seen.look(storage)
        back = (await storage.list_checkpoint_infos(thread_id=thread_id))[1]
        acts = [storage.rewind(thread_id, back), storage.fork(back), storage.prune(thread_id=thread_id, keep_last=1)]
        if turn % 2:
            acts.reverse()
        done = await asyncio.gather(*acts, return_exceptions=True)
        failed = [outcome for outcome in done if isinstance(outcome, BaseException)]
        assert all(isinstance(outcome, CheckpointNotFound | ThreadConflict) for outcome in failed), failed
        outcomes.add(len(failed))
        await seen.look(storage)
        [entries] = (await workflow.run("z", thread_id=thread_id)).get_outputs()
        assert entries in (["a", "z"], ["a", "b", "c", "z"])
        assert list(await storage.store.check()) == []
    assert outcomes


async def test_reader_of_a_busy_thread_gets_all_events_or_cursor_expired(storage: StoreCheckpointStorage) -> None:
    storage.retention = LatestOnly()
    workflow, seen, done = ledger(Stage(), storage), list[int](), asyncio.Event()

    async def follow(cursor: int) -> None:
        while not done.is_set():
            try:
                for event in await log(storage, cursor):
                    assert event.seq == cursor + 1
                    cursor = event.seq
                    seen.append(cursor)
            except CursorExpired as expired:
                seen.append(cursor := max(cursor + 1, expired.oldest - 1))
            await asyncio.sleep(0)

    following = asyncio.create_task(follow(0))
    for turn in range(20):
        await workflow.run(entry_text("t", turn), thread_id="t")
    done.set()
    await following
    assert seen == sorted(set(seen)) and len(seen) > 8


# ---------------------------------------------------------------- whole threads


async def delete_there(stage: FarStage, storage: StoreCheckpointStorage) -> int:
    return await delete_old(storage, stage.gates["stop"])


async def delete_old(storage: StoreCheckpointStorage, until: asyncio.Event) -> int:
    gone = 0
    while not until.is_set():
        gone += (await storage.prune(older_than=5 * DAY, whole_threads=True)).whole_threads
        await asyncio.sleep(0)
    return gone


async def old_threads(storage: StoreCheckpointStorage, days: Days, round_: int) -> list[str]:
    days.pass_(-10)
    thread_ids = [f"t{round_}-{number}" for number in range(10)]
    for thread_id in thread_ids:
        await ledger(Stage(), storage).run("old", thread_id=thread_id)
    days.pass_(10)
    return thread_ids


async def test_old_thread_that_a_run_moves_is_deleted_before_or_not_at_all(
    storage: StoreCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    days, done = Days(monkeypatch), asyncio.Event()
    for round_ in range(3):
        threads = await old_threads(storage, days, round_)
        deleting = asyncio.create_task(delete_old(storage, done))
        await asyncio.gather(
            *(ledger(Stage(), storage).run("new", thread_id=thread_id) for thread_id in reversed(threads))
        )
        done.set()
        await deleting
        done.clear()
        for thread_id in threads:
            head = await storage.get_latest(thread_id=thread_id)
            assert head is not None and head.state["entries"] in (["old", "new"], ["new"])
    assert list(await storage.store.check()) == []


async def test_other_process_deletes_an_old_thread_before_it_moves_or_never(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    days, gone = Days(monkeypatch), 0
    async with place.storage() as storage:
        for round_ in range(3):
            threads = await old_threads(storage, days, round_)
            deleting = place.start(delete_there, held=["stop"])
            workflow = ledger(Stage(), storage)
            for thread_id in reversed(threads):
                await workflow.run("new", thread_id=thread_id)
            deleting.open_gate("stop")
            gone += await deleting.result()
            for thread_id in threads:
                head = await storage.get_latest(thread_id=thread_id)
                assert head is not None and head.state["entries"] in (["old", "new"], ["new"])
        assert list(await storage.store.check()) == []
