"""Retention at work in a thread: which commits prune, when the list is read, and the effect of a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.engine.flows import alone, countdown, function

from perdure import StorageFailed, UnsavableValue, WorkflowBuilder, WorkflowCheckpoint
from perdure.checkpoints.delta.recent import RecentThreads
from perdure.checkpoints.history.retention import KeepFor, KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.checkpoints.thread import StoredThread
from perdure.codec import DeclaredTypes
from perdure.codecs import JsonCodec
from perdure.records import CheckpointInfo, Commit
from perdure.stores.memory.store import MemoryStore

MINUTE = timedelta(minutes=1)


class WatchedStore(MemoryStore):
    """Counts the lists that are read, keeps the commits, and fails at the numbers in `failing`."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.written: list[Commit] = []
        self.failing: set[int] = set()
        self.pause = 1

    async def infos(self, **filters: Any) -> Sequence[CheckpointInfo]:
        self.lists += 1
        return await super().infos(**filters)

    async def commit(self, commit: Commit) -> None:
        for _ in range(self.pause):
            await asyncio.sleep(0)
        if commit.number in self.failing:
            self.failing.discard(commit.number)
            raise OSError("disk full")
        await super().commit(commit)
        self.written.append(commit)

    @property
    def prunes(self) -> list[list[int]]:
        return [list(commit.prunes) for commit in self.written if commit.info is not None]

    async def numbers(self) -> list[int]:
        return [info.number for info in await super().infos(thread_id="t")]


def stored(retention: Retention | None = None) -> tuple[WatchedStore, StoreCheckpointStorage]:
    store = WatchedStore()
    return store, StoreCheckpointStorage(store, retention=retention)


def yielding(storage: Any) -> Any:
    return alone(lambda message, ctx: ctx.yield_output(message), checkpoint_storage=storage)


async def test_full_history_reads_no_list_and_prunes_nothing() -> None:
    store, storage = stored()
    for _ in range(3):
        await yielding(storage).run("x", thread_id="t")
    assert store.lists == 0 and store.prunes == [[]] * 6
    assert {commit.prunes_events_before for commit in store.written} == {0}


async def test_turns_of_one_process_read_the_list_once() -> None:
    store, storage = stored(LatestOnly())
    workflow = yielding(storage)
    for _ in range(5):
        await workflow.run("x", thread_id="t")
    assert store.lists == 1
    assert store.prunes == [[]] + [[number] for number in range(1, 10)]
    assert [commit.prunes_events_before for commit in store.written] == [0, 0, 3, 0, 5, 0, 7, 0, 9, 0]


async def test_another_workflow_object_reads_the_list_again() -> None:
    store, storage = stored(KeepLast(3))
    for _ in range(3):
        await yielding(storage).run("x", thread_id="t")
    assert store.lists == 3 and await store.numbers() == [4, 5, 6]


async def test_each_thread_has_its_own_list() -> None:
    store, storage = stored(KeepLast(3))
    workflow = yielding(storage)
    for _ in range(3):
        await asyncio.gather(workflow.run("x", thread_id="t"), workflow.run("x", thread_id="u"))
    assert store.lists == 2
    assert [info.number for info in await storage.list_checkpoint_infos(thread_id="u")] == [4, 5, 6]
    assert await store.numbers() == [4, 5, 6]


async def test_first_commit_under_a_new_policy_prunes_older_checkpoints() -> None:
    store, storage = stored()
    workflow = countdown(checkpoint_storage=storage)
    await workflow.run(20, thread_id="t")
    storage.retention = KeepLast(2)
    await workflow.run(0, thread_id="t")
    assert await store.numbers() == [23, 24]
    assert store.prunes[-2:] == [list(range(1, 22)), [22]]


async def test_a_pin_of_this_storage_is_noticed_at_once() -> None:
    store, storage = stored(KeepLast(2))
    workflow = yielding(storage)
    for _ in range(2):
        await workflow.run("x", thread_id="t")
    [third, _] = await storage.list_checkpoint_infos(thread_id="t")
    await storage.pin(third)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    assert await store.numbers() == [3, 9, 10]
    assert all(3 not in prunes for prunes in store.prunes)
    await storage.unpin(third)
    await workflow.run("x", thread_id="t")
    assert await store.numbers() == [11, 12]


async def test_a_pin_in_the_middle_of_a_run_is_noticed_with_the_next_commit() -> None:
    store, storage = stored(LatestOnly())

    async def pinning(message: str, ctx: Any) -> None:
        [head] = [info for info in await storage.list_checkpoint_infos(thread_id="t") if not info.is_pinned]
        await storage.pin(head)

    workflow = alone(pinning, checkpoint_storage=storage)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    assert await store.numbers() == [1, 3, 5, 6]


async def test_pins_of_another_process_are_noticed_when_the_list_is_old() -> None:
    """They bypass this storage object, which reads them when its list is old."""
    store, _ = stored()
    opened = await store.open("t", "owner")
    thread = StoredThread(store, opened, DeclaredTypes(), JsonCodec(), RecentThreads(), retention=LatestOnly())

    async def commit_at(minute: float) -> list[int]:
        at = datetime(2026, 1, 1, tzinfo=UTC) + minute * MINUTE
        number, previous = thread.number + 1, f"c{thread.number}" if thread.number else None
        checkpoint = WorkflowCheckpoint(
            "w", "hash", f"c{number}", previous, timestamp=at.isoformat(), number=number, thread_id="t"
        )
        await thread.commit(checkpoint, (), "run", "IDLE")
        return await store.numbers()

    assert await commit_at(0) == [1]
    await store.pin("c1")
    assert await commit_at(0.2) == [1, 2]  # a store keeps pinned checkpoints even if a commit prunes them
    assert await commit_at(0.4) == [1, 3]
    assert await commit_at(1.1) == [1, 4] and store.lists == 2
    await store.unpin("c1")
    assert await commit_at(2) == [1, 5] and store.lists == 2
    assert await commit_at(2.2) == [6] and store.lists == 3


async def test_rewind_prunes_the_branch_that_it_left() -> None:
    store, storage = stored(KeepLast(3))
    workflow = yielding(storage)
    for _ in range(2):
        await workflow.run("x", thread_id="t")
    kept = await storage.list_checkpoint_infos(thread_id="t")
    assert [info.number for info in kept] == [2, 3, 4]
    await workflow.run(checkpoint_id=kept[1])
    assert await store.numbers() == [3, 5, 6]
    await storage.rewind("t", kept[1])
    assert await store.numbers() == [3, 7]
    await workflow.run(thread_id="t")
    assert await store.numbers() == [3, 7, 8]


async def test_checkpoint_deleted_by_hand_makes_room_for_an_older_checkpoint() -> None:
    store, storage = stored(KeepLast(3))
    workflow = yielding(storage)
    for _ in range(2):
        await workflow.run("x", thread_id="t")
    assert await storage.delete((await storage.list_checkpoint_infos(thread_id="t"))[1])
    await workflow.run("x", thread_id="t")
    assert await store.numbers() == [4, 5, 6]
    assert store.prunes[4:] == [[], [2]]


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(3), KeepFor(MINUTE)])
async def test_failed_commit_prunes_nothing(retention: Retention) -> None:
    store, storage = stored(retention)
    workflow = yielding(storage)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    before = await store.numbers()
    store.failing = {7}
    with pytest.raises(StorageFailed):
        await workflow.run("y", thread_id="t")
    assert await store.numbers() == before
    await workflow.run("z", thread_id="t")
    whole = [1, 2, 3, 4, 5, 6, 8, 9]  # 7 records the failed run
    assert await store.numbers() == whole[len(whole) - (len(before) if len(before) < 6 else 8) :]


async def test_commit_with_an_unsavable_value_prunes_nothing() -> None:
    store, storage = stored(LatestOnly())
    values = {"good": 1, "bad": object()}
    workflow = alone(lambda message, ctx: ctx.set_state("x", values[message]), checkpoint_storage=storage)
    await workflow.run("good", thread_id="t")
    with pytest.raises(UnsavableValue):
        await workflow.run("bad", thread_id="t")
    assert await store.numbers() == [3]  # the input of the run that failed
    with pytest.raises(UnsavableValue):
        await workflow.run(thread_id="t")
    assert await store.numbers() == [3]


@pytest.mark.parametrize("lost", [3, 6, 9])
async def test_failed_async_write_keeps_the_saved_head(lost: int) -> None:
    store, storage = stored(LatestOnly())
    workflow = countdown(checkpoint_storage=storage)
    store.failing = {lost}
    with pytest.raises(StorageFailed):
        await workflow.run(10, thread_id="t", durability="async", max_lag=3)
    assert await store.numbers() == [lost - 1]
    result = await workflow.run(thread_id="t", durability="async", max_lag=3)
    assert result.get_outputs() == ["lift-off"] and len(await store.numbers()) == 1


async def test_lagging_commits_prune_in_commit_order() -> None:
    store, storage = stored(KeepLast(2))
    workflow = countdown(checkpoint_storage=storage)
    await workflow.run(10, thread_id="t", durability="async", max_lag=4)
    numbers = [commit.number for commit in store.written if commit.info is not None]
    assert numbers == sorted(numbers) and store.prunes == [[], [], *([number] for number in numbers[:-2])]
    assert store.lists == 1


async def test_list_read_while_commits_lag_includes_them_all() -> None:
    store, storage = stored(LatestOnly())
    counting = countdown(checkpoint_storage=storage)
    await counting.run(0, thread_id="t")
    [first] = await storage.list_checkpoint_infos(thread_id="t")
    await storage.pin(first)
    store.pause = 3  # turns of the loop before each commit is made: some are always on their way

    async def pinning(left: int, ctx: Any) -> None:
        await storage.pin(first)  # again: the list is out of date
        await ctx.send_message(left - 1) if left else await ctx.yield_output("end")

    step = function("countdown", pinning, accepts=int)
    builder = WorkflowBuilder(name="countdown", start_executor=step, checkpoint_storage=storage)
    await builder.add_edge(step, step).build().run(12, thread_id="t", durability="async", max_lag=3, force=True)
    assert await store.numbers() == [2, store.written[-1].number]


async def test_checkpoints_saved_by_hand_follow_the_same_retention() -> None:
    _, storage = stored(KeepLast(2))
    previous = None
    for number in range(5):
        checkpoint = WorkflowCheckpoint("w", "hash", f"c{number}", previous, thread_id="t")
        previous = await storage.save(checkpoint)
    assert await storage.list_checkpoint_ids(thread_id="t") == ["c3", "c4"]
    await storage.save(WorkflowCheckpoint("w", "hash", "apart", thread_id="t"))  # continues from nothing
    assert await storage.list_checkpoint_ids(thread_id="t") == ["apart"]


async def test_thread_that_advances_while_it_is_listed_is_still_listed() -> None:
    """All listed checkpoints are gone before they are read, but the thread has a newer checkpoint."""
    store, storage = stored(LatestOnly())
    workflow, other = yielding(storage), yielding(storage)
    await workflow.run("x", thread_id="t")
    await workflow.run("x", thread_id="u")
    list_now = store.infos

    async def moved_meanwhile(**filters: Any) -> Sequence[CheckpointInfo]:
        infos = await list_now(**filters)
        store.infos = list_now  # type: ignore[method-assign]  # once
        await other.run("y", thread_id="t")
        return infos

    for thread_id, expected in (("t", {"t"}), (None, {"t", "u"})):
        store.infos = moved_meanwhile  # type: ignore[method-assign]  # a tap on the real method
        checkpoints = await storage.list_checkpoints(thread_id=thread_id)
        assert {checkpoint.thread_id for checkpoint in checkpoints} == expected
    store.infos = moved_meanwhile  # type: ignore[method-assign]  # and again
    assert await workflow.outcomes("t") == {"only": "completed"}


async def test_a_long_list_is_not_carried_to_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.checkpoints.thread.MAX_CARRIED_ENTRIES", 3)
    store, storage = stored(KeepLast(3))
    workflow = yielding(storage)
    for _ in range(4):
        await workflow.run("x", thread_id="t")
    assert store.lists == 1
    monkeypatch.setattr("perdure.checkpoints.thread.MAX_CARRIED_ENTRIES", 2)
    for _ in range(3):
        await workflow.run("x", thread_id="t")
    assert store.lists == 3  # it was still carried to the first of these


async def test_next_run_applies_a_changed_policy() -> None:
    store, storage = stored(KeepLast(2))
    workflow = yielding(storage)
    for count, kept in ((2, [1, 2]), (4, [1, 2, 3, 4]), (1, [6]), (3, [6, 7, 8])):
        storage.retention = KeepLast(count)
        await workflow.run("x", thread_id="t")
        assert await store.numbers() == kept
