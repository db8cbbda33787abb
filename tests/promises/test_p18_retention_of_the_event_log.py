"""Promise 18: retention drops events with their checkpoints. The log of a thread's current work is always whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.promises.histories import EACH_POLICY, infos, log, numbers
from tests.promises.stages import Again, Asker, Boom, Does, Relay, Sink, Stage, alone, chain, collect, kinds, ledger
from tests.unit.engine.flows import countdown

from perdure import CursorExpired, RunContext, WorkflowEvent, step, workflow
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.history.retention import KeepLast, LatestOnly, Retention
from perdure.checkpoints.storage import StoreCheckpointStorage


def seqs(events: Sequence[WorkflowEvent]) -> list[int]:
    return [event.seq or 0 for event in events]


async def test_next_input_drops_the_log_of_the_run_before(storage: StoreCheckpointStorage) -> None:
    storage.retention = LatestOnly()
    writer = ledger(Stage(), storage)
    await writer.run("a", thread_id="t")
    first = await log(storage)
    await writer.run("b", thread_id="t")
    second = await log(storage)
    assert seqs(first) == list(range(1, len(first) + 1)) and kinds(second) == kinds(first)
    assert seqs(second) == [seq + len(first) for seq in seqs(first)]


async def test_expired_cursor_is_refused_with_the_oldest_valid_cursor(
    storage: StoreCheckpointStorage,
) -> None:
    storage.retention = LatestOnly()
    writer = ledger(Stage(), storage)
    for message in "abc":
        await writer.run(message, thread_id="t")
    kept = seqs(await log(storage))
    for after in (0, 1, kept[0] - 2):
        with pytest.raises(CursorExpired, match=rf"Start from events\(after={kept[0] - 1}\)") as caught:
            await log(storage, after)
        assert (caught.value.thread_id, caught.value.oldest) == ("t", kept[0])
    assert seqs(await log(storage, kept[0] - 1)) == kept
    assert seqs(await log(storage, kept[3])) == kept[4:]
    assert await log(storage, kept[-1]) == []


async def test_a_handle_reads_the_log_from_where_it_is_kept(storage: StoreCheckpointStorage) -> None:
    storage.retention = LatestOnly()
    writer = ledger(Stage(), storage)
    async with writer.open(thread_id="t") as run:
        for message in "abc":
            await run.send(message)
            await run.wait()
        with pytest.raises(CursorExpired) as caught:
            [event async for event in run.events(after=0)]
        logged = [event async for event in run.events(after=caught.value.oldest - 1)]
    assert seqs(logged) == seqs(await log(storage)) and kinds(logged)[-1] == "status"


async def test_without_retention_the_log_is_whole(storage: StoreCheckpointStorage) -> None:
    writer = ledger(Stage(), storage)
    for message in "abc":
        await writer.run(message, thread_id="t")
    assert seqs(await log(storage)) == seqs(await log(storage, 0)) == list(range(1, len(await log(storage)) + 1))


@EACH_POLICY
async def test_the_log_of_a_long_run_is_whole_however_few_checkpoints_are_kept(
    storage: StoreCheckpointStorage, retention: Retention
) -> None:
    storage.retention = retention
    counting = countdown(checkpoint_storage=storage)
    await counting.run(1, thread_id="t")
    seen = [event async for event in counting.run(12, thread_id="t", stream=True)]
    logged = await log(storage)
    of_this_run = [event for event in logged if event.run_id == logged[-1].run_id]
    streamed_kinds = [kind for kind in kinds(seen) if kind not in ("checkpoint_saved", "data")]
    assert sorted(kinds(of_this_run)) == sorted(streamed_kinds)
    assert seqs(logged) == list(range(logged[0].seq or 0, (logged[-1].seq or 0) + 1))


@pytest.mark.parametrize("retention", [LatestOnly(), KeepLast(2)], ids=repr)
async def test_a_run_that_is_resumed_by_another_process_has_the_whole_log(
    storage: StoreCheckpointStorage, again: Again, retention: Retention
) -> None:
    storage.retention = retention
    stage = Stage()

    def build() -> Any:
        return chain(Relay("a", stage), Relay("b", stage), Relay("c", stage), Sink("last"), storage=storage)

    first = build()
    await first.run("x", thread_id="t")
    before = seqs(await log(storage))
    stage.failing = {"b"}
    with pytest.raises(Boom):
        await first.run("y", thread_id="t")
    stage.failing = {"c"}
    with pytest.raises(Boom):
        await again(first, build).run(thread_id="t")
    stage.failing = set()
    await again(first, build).run(thread_id="t")
    logged = await log(storage)
    assert seqs(logged)[0] == before[-1] + 1
    assert kinds(logged).count("failed") == 2
    invoked = [event.executor_id for event in logged if event.type == "executor_completed"]
    assert invoked == ["a", "b", "c", "last"]


async def test_a_function_that_saves_its_progress_keeps_the_log_of_its_beginning(
    storage: StoreCheckpointStorage,
) -> None:
    storage.retention = LatestOnly()

    @step
    async def double(number: int) -> int:
        return 2 * number

    @workflow(name="doubling", checkpoint_storage=storage)
    async def doubling(count: int, ctx: RunContext) -> int:
        return sum([await double(number) for number in range(count)])

    await doubling.run(1, thread_id="t")
    before = seqs(await log(storage))[-1]
    result = await doubling.run(350, thread_id="t")
    assert result.get_outputs() == [350 * 349]
    logged = await log(storage)
    assert seqs(logged)[0] == before + 1 and kinds(logged)[0] == "started"
    assert (await numbers(storage))[-1] - min(await numbers(storage)) == 0
    assert max(await numbers(storage)) > 5, "it saved no progress"


async def test_events_of_a_question_stay_until_the_next_message(storage: StoreCheckpointStorage, again: Again) -> None:
    storage.retention = LatestOnly()

    def build() -> Any:
        return alone(Asker("asker"), storage)

    asking = build()
    await asking.run("one two", thread_id="t")
    await again(asking, build).run(responses={"one": "1"}, thread_id="t")
    await again(asking, build).run(responses={"two": "2"}, thread_id="t")
    logged = await log(storage, 0)
    assert [event.data for event in logged if event.type == "request_info"] == ["one", "two"]
    assert [event.data for event in logged if event.type == "output"] == ["one=1", "two=2"]
    await again(asking, build).run("three", thread_id="t")
    assert [event.data for event in await log(storage) if event.type == "request_info"] == ["three"]


async def test_outcomes_of_executors_come_from_the_kept_events(storage: StoreCheckpointStorage) -> None:
    storage.retention = LatestOnly()
    writer = ledger(Stage(), storage)
    for message in "ab":
        await writer.run(message, thread_id="t")
    assert await writer.outcomes("t") == {"ledger": "completed"}


async def yield_letters(storage: StoreCheckpointStorage, words: str) -> None:
    """A turn for each letter, with an output that is too large to stand in the log itself."""

    async def yield_letter(letter: str, ctx: Any) -> None:
        await ctx.yield_output(letter * 20_000)

    flow = alone(Does("teller", yield_letter), storage)
    for letter in words:
        await flow.run(letter, thread_id="t")


def letters(events: Sequence[WorkflowEvent]) -> list[str]:
    return [event.data[:1] for event in events if event.type == "output" and len(event.data) == 20_000]


async def test_large_data_of_events_stays_with_those_that_stay(storage: StoreCheckpointStorage) -> None:
    storage.retention = KeepLast(4)
    await yield_letters(storage, "abcdefghijklmnopqrstuvwxyz" * 4)
    assert letters(await log(storage)) == ["y", "z"]


async def test_overtaken_reader_with_a_cursor_gets_cursor_expired(storage: StoreCheckpointStorage) -> None:
    await yield_letters(storage, "abc")
    storage.retention = LatestOnly()
    reading = read_events(storage, "t", 0, None)
    first = [await anext(reading) for _ in range(9)]
    await yield_letters(storage, "d" * 100)
    with pytest.raises(CursorExpired) as caught:
        await collect(reading, first)
    assert letters(first) == ["a"] and seqs(first) == list(range(1, len(first) + 1))
    assert f"after {len(first)} are no longer kept" in str(caught.value)


async def test_reader_without_a_cursor_continues_with_the_remaining_events(storage: StoreCheckpointStorage) -> None:
    await yield_letters(storage, "abc")
    storage.retention = LatestOnly()
    reading = read_events(storage, "t", None, None)
    events = [await anext(reading) for _ in range(9)]
    await yield_letters(storage, "d" * 100)
    events += [event async for event in reading]
    assert letters(events) == ["a", "d"] and seqs(events) == sorted(set(seqs(events)))


async def test_a_pin_keeps_a_checkpoint_and_not_its_events(storage: StoreCheckpointStorage) -> None:
    storage.retention = LatestOnly()
    writer = ledger(Stage(), storage)
    await writer.run("a" * 9000, thread_id="t")
    pinned = (await infos(storage))[2]
    await storage.pin(pinned)
    for message in "bc":
        await writer.run(message, thread_id="t")
    assert await numbers(storage) == [2, 6]
    assert seqs(await log(storage))[0] > 5
    assert (await storage.load(pinned)).state["entries"] == ["a" * 9000]
