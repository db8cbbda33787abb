"""Workflow.leave: runs stop between two supersteps and record no end; a resume of their threads continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest
from tests.six_methods import SixMethods
from tests.turns import awaiting_storage, turns
from tests.unit.engine.flows import Gate, function, gated, relay
from tests.unit.engine.policy_flows import asleep, napping
from tests.unit.engine.test_ownership import start

from perdure import (
    InMemoryCheckpointStorage,
    InvalidRun,
    RunInterrupted,
    SqliteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
)
from perdure.checkpoints.any_storage import read_events
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.testing import FakeClock

STORAGES = pytest.mark.parametrize(
    "make_storage",
    [lambda: None, InMemoryCheckpointStorage, awaiting_storage, SixMethods],
    ids=["none", "memory", "awaiting", "six methods"],
)
MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])

LONG = 15.0
"""Seconds that no test waits for: it would fail by its own limit first."""


class Line:
    """Executors `0`, `1`, ... in a row. Each notes that it ran, and the gated executor waits at the gate."""

    def __init__(self, gated_at: int, length: int = 4) -> None:
        self.gate = Gate()
        self.seen: list[str] = []
        self._gated_at = gated_at
        self._length = length

    def build(self, storage: Any, **options: Any) -> Workflow:
        executors = [function(str(place), self._work(place), accepts=list) for place in range(self._length)]
        builder = WorkflowBuilder(name="line", start_executor=executors[0], checkpoint_storage=storage, **options)
        return builder.add_chain(executors).build()

    def _work(self, place: int) -> Callable[[Any, WorkflowContext[Any, Any]], Any]:
        async def work(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.step(lambda: self.seen.append(f"step {place}"), name="once")
            if place == self._gated_at:
                self.gate.arrived.set()
                await self.gate.opened.wait()
            self.seen.append(f"end {place}")
            passed = [*message, f"{place}"]
            await (ctx.send_message(passed) if place + 1 < self._length else ctx.yield_output(passed))

        return work


async def left(run: asyncio.Task[Any]) -> RunInterrupted:
    with pytest.raises(RunInterrupted) as caught:
        await run
    return caught.value


async def log_of(storage: StoreCheckpointStorage) -> list[WorkflowEvent]:
    return [event async for event in read_events(storage, "t", 0, None)]


def ends(events: list[WorkflowEvent]) -> list[Any]:
    """The events of a log that record the end of a run."""
    running = (WorkflowRunState.IN_PROGRESS, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS)
    return [
        event for event in events if event.type == "failed" or (event.type == "status" and event.state not in running)
    ]


# ---------------------------------------------------------------- between two supersteps


@STORAGES
@MODES
async def test_run_stops_after_its_superstep_and_can_be_resumed(
    make_storage: Callable[[], Any], durability: Any
) -> None:
    line, storage = Line(gated_at=1), make_storage()
    workflow = line.build(storage)
    running = start(workflow, [], durability=durability)
    await line.gate.arrived.wait()
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    line.gate.opened.set()
    assert await leaving == 1
    error = await left(running)
    assert error.has_begun and "Nothing is lost" in str(error) and "run(thread_id='t')" in str(error)
    assert line.seen == ["step 0", "end 0", "step 1", "end 1"], "the superstep came to its end, and none began"
    if isinstance(storage, StoreCheckpointStorage):
        info = await storage.find_thread("t")
        assert (info.status, info.run_id) == ("IN_PROGRESS", None)
        assert ends(await log_of(storage)) == []
    resumed = await (workflow if storage is None else line.build(storage)).run(thread_id="t")
    assert resumed.get_outputs() == [["0", "1", "2", "3"]]
    assert line.seen[4:] == ["step 2", "end 2", "step 3", "end 3"], "nothing was run again"


@pytest.mark.parametrize("is_within_superstep", [False, True])
async def test_left_run_resumed_in_a_new_storage_ends_like_an_undisturbed_run(
    tmp_path: Path, is_within_superstep: bool
) -> None:
    whole = Line(gated_at=-1)
    async with SqliteCheckpointStorage(tmp_path / "whole.db") as storage:
        uninterrupted = await whole.build(storage).run([], thread_id="t")
        expected = [event.type for event in ends(await log_of(storage))]
    line = Line(gated_at=2)
    async with SqliteCheckpointStorage(tmp_path / "left.db") as storage:
        workflow = line.build(storage)
        running = start(workflow, [])
        await line.gate.arrived.wait()
        leaving = asyncio.ensure_future(workflow.leave(0 if is_within_superstep else LONG))
        await turns(3)
        if not is_within_superstep:
            line.gate.opened.set()
        assert await leaving == 1
        await left(running)
    line.gate.opened.set()
    async with SqliteCheckpointStorage(tmp_path / "left.db") as storage:
        resumed = await line.build(storage).run(thread_id="t")
        assert [event.type for event in ends(await log_of(storage))] == expected == ["status"]
    assert resumed.get_outputs() == uninterrupted.get_outputs()
    assert resumed.get_final_state() is uninterrupted.get_final_state()
    assert line.seen == whole.seen, "no step and no delivery was repeated"


@STORAGES
async def test_run_in_its_last_superstep_ends_as_usual(make_storage: Callable[[], Any]) -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=make_storage())
    running = start(workflow, "x")
    await gate.arrived.wait()
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    gate.opened.set()
    assert await leaving == 0
    assert (await running).get_final_state() is WorkflowRunState.IDLE


async def test_a_run_that_fails_in_its_last_superstep_fails() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()

    async def fail(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        gate.arrived.set()
        await gate.opened.wait()
        raise ConnectionError("the bridge is closed")

    start_of = function("only", fail)
    workflow = WorkflowBuilder(name="fails", start_executor=start_of, checkpoint_storage=storage).build()
    running = start(workflow, "x")
    await gate.arrived.wait()
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    gate.opened.set()
    assert await leaving == 0
    with pytest.raises(ConnectionError):
        await running
    assert (await storage.find_thread("t")).status == "FAILED"


# ---------------------------------------------------------------- inside a superstep


def forked(gate: Gate, seen: list[str], storage: Any) -> Workflow:
    """`start` sends to `quick`, and to `slow`, which records a step and waits at the gate."""

    async def quick(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        seen.append("quick")
        await ctx.yield_output("quick")

    async def slow(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.step(lambda: seen.append("step"), name="once")
        seen.append("slow")
        gate.arrived.set()
        await gate.opened.wait()
        await ctx.yield_output("slow")

    begin = relay("start")
    first, second = function("quick", quick, accepts=object), function("slow", slow, accepts=object)
    builder = WorkflowBuilder(name="forked", start_executor=begin, checkpoint_storage=storage)
    return builder.add_edge(begin, first).add_edge(begin, second).build()


@pytest.mark.parametrize("make_storage", [InMemoryCheckpointStorage, awaiting_storage], ids=["memory", "awaiting"])
async def test_records_of_a_superstep_that_takes_too_long_are_kept(
    make_storage: Callable[[], StoreCheckpointStorage],
) -> None:
    gate, storage = Gate(), make_storage()
    seen: list[str] = []
    workflow = forked(gate, seen, storage)
    running = start(workflow, "x")
    await gate.arrived.wait()
    await turns(10)
    assert await workflow.leave(0) == 1
    assert (await left(running)).has_begun
    info = await storage.find_thread("t")
    assert (info.status, info.run_id) == ("IN_PROGRESS", None)
    assert ends(await log_of(storage)) == []
    gate.opened.set()
    result = await forked(gate, seen, storage).run(thread_id="t")
    assert sorted(result.get_outputs()) == ["quick", "slow"]
    assert sorted(seen) == ["quick", "slow", "slow", "step"], "only what had not ended is run again"


async def test_cancelled_thread_is_in_progress_after_its_resumed_run_is_left() -> None:
    line, storage = Line(gated_at=1), InMemoryCheckpointStorage()
    workflow = line.build(storage)
    running = start(workflow, [])
    await line.gate.arrived.wait()
    await workflow.cancel("t")
    await running
    assert (await storage.find_thread("t")).status == "CANCELLED"
    line.gate.arrived.clear()
    resumed = start(workflow)
    await line.gate.arrived.wait()
    assert await workflow.leave(0) == 1
    await left(resumed)
    assert (await storage.find_thread("t")).status == "IN_PROGRESS"
    line.gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == [["0", "1", "2", "3"]]


async def test_caller_that_cancels_a_leaving_run_receives_cancelled_error() -> None:
    line = Line(gated_at=1)
    workflow = line.build(InMemoryCheckpointStorage())
    running = start(workflow, [])
    await line.gate.arrived.wait()
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    running.cancel()
    await leaving
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_task_of_a_run_that_was_left_is_not_cancelled() -> None:
    line = Line(gated_at=1)
    workflow = line.build(InMemoryCheckpointStorage())

    async def run_and_go_on() -> str:
        with pytest.raises(RunInterrupted):
            await workflow.run([], thread_id="t")
        await asyncio.sleep(0)
        task = asyncio.current_task()
        return "cancelled" if task is not None and task.cancelling() else "goes on"

    caller = asyncio.ensure_future(run_and_go_on())
    await line.gate.arrived.wait()
    assert await workflow.leave(0) == 1
    assert await caller == "goes on"


# ---------------------------------------------------------------- runs that wait


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage, awaiting_storage])
async def test_a_run_that_only_sleeps_stops_at_once(make_storage: Callable[[], Any]) -> None:
    clock, storage = FakeClock(), make_storage()
    workflow = napping(3600, clock=clock, checkpoint_storage=storage)
    running = start(workflow, "x")
    await asleep(clock, running)
    async with asyncio.timeout(60):
        assert await workflow.leave(LONG) == 1
    await left(running)
    if storage is not None:
        info = await storage.find_thread("t")
        assert (info.status, info.run_id) == ("IN_PROGRESS", None) and info.due_at is not None
    clock.advance(3600)
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x woke"]


async def test_a_run_that_falls_asleep_while_it_is_to_leave_does_not() -> None:
    clock, gate = FakeClock(), Gate()

    async def nap(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        gate.arrived.set()
        await gate.opened.wait()
        await ctx.sleep(3600)
        await ctx.yield_output(message)

    only = function("only", nap)
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="nap", start_executor=only, checkpoint_storage=storage, clock=clock).build()
    running = start(workflow, "x")
    await gate.arrived.wait()
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    gate.opened.set()
    async with asyncio.timeout(60):
        assert await leaving == 1
    await left(running)


async def test_the_message_of_a_run_that_waited_for_its_turn_is_not_lost() -> None:
    line, storage = Line(gated_at=1), awaiting_storage()
    workflow = line.build(storage)
    running = start(workflow, ["a"])
    await line.gate.arrived.wait()
    waiting = start(workflow, ["b"], on_busy="enqueue")
    await turns(2)
    leaving = asyncio.ensure_future(workflow.leave(LONG))
    await turns(3)
    line.gate.opened.set()
    assert await leaving == 2
    await left(running)
    assert (await left(waiting)).has_begun
    assert (await storage.find_thread("t")).status == "IN_PROGRESS"
    result = await line.build(storage).run(thread_id="t")
    assert [output for output in result.get_outputs() if output[0] == "b"] == [["b", "0", "1", "2", "3"]]


async def test_run_that_waits_for_another_owner_reports_that_it_never_began(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        SqliteCheckpointStorage(tmp_path / "t.db") as storage,
        SqliteCheckpointStorage(tmp_path / "t.db") as other,
    ):
        first, second = gated(gate, checkpoint_storage=storage), gated(gate, checkpoint_storage=other)
        running = start(first, "x")
        await gate.arrived.wait()
        waiting = start(second, "y", on_busy="enqueue")
        while not any(run.is_waiting for _, run in second._live.runs()):  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert await second.leave(LONG) == 0
        assert not (await left(waiting)).has_begun
        gate.opened.set()
        assert (await running).get_outputs() == ["x"]


# ---------------------------------------------------------------- a moment, not a state


async def test_all_runs_of_the_object_are_left_and_runs_of_others_continue() -> None:
    line, other_line, storage = Line(gated_at=1), Line(gated_at=1), InMemoryCheckpointStorage()
    workflow, other = line.build(storage), other_line.build(InMemoryCheckpointStorage())
    runs = [start(workflow, [], thread_id=str(number)) for number in range(20)]
    elsewhere = start(other, [])
    await line.gate.arrived.wait()
    await other_line.gate.arrived.wait()
    await turns(5)
    assert await workflow.leave(0) == 20
    for run in runs:
        await left(run)
    assert {(thread.status, thread.run_id) for thread in await storage.list_threads()} == {("IN_PROGRESS", None)}
    other_line.gate.opened.set()
    assert (await elsewhere).get_final_state() is WorkflowRunState.IDLE
    line.gate.opened.set()
    assert (await workflow.run([], thread_id="new")).get_outputs() == [["0", "1", "2", "3"]]
    assert (await workflow.run(thread_id="7")).get_outputs() == [["0", "1", "2", "3"]]
    assert await workflow.leave(0) == 0


async def test_event_stream_raises_and_a_follower_sees_events_of_the_next_run() -> None:
    line, storage = Line(gated_at=1), InMemoryCheckpointStorage()
    workflow = line.build(storage)
    stream = workflow.run([], thread_id="t", stream=True)
    seen: list[WorkflowEvent] = []

    async def read() -> None:
        async for event in stream:
            seen.append(event)

    reading = asyncio.ensure_future(read())
    await line.gate.arrived.wait()
    followed: list[WorkflowEvent] = []

    async def follow() -> None:
        async for event in storage.follow("t", after=0, until_idle=True):
            followed.append(event)

    following = asyncio.ensure_future(follow())
    await turns(3)
    assert await workflow.leave(0) == 1
    with pytest.raises(RunInterrupted):
        await reading
    assert ends(seen) == []
    assert [event.state for event in seen if event.type == "status"] == [WorkflowRunState.IN_PROGRESS], (
        "emitted once, not again"
    )
    await turns(5)
    assert not following.done()
    line.gate.opened.set()
    await workflow.run(thread_id="t")
    await following
    assert [event.state for event in ends(followed)] == [WorkflowRunState.IDLE]
    cursors = [event.seq for event in followed if event.seq is not None]
    assert cursors == list(range(1, len(cursors) + 1))


@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_invalid_number_of_seconds_is_rejected(seconds: float) -> None:
    with pytest.raises(InvalidRun, match="seconds"):
        await Line(0).build(None).leave(seconds)
