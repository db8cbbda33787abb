"""Ending a run early: a cancellation takes effect whatever handlers and hooks do, and undoing is completed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Never

import pytest
from tests.turns import AwaitingStore, awaiting_storage, turns
from tests.unit.engine.flows import Gate, alone, function, kinds, relay, take_all

from perdure import (
    Executor,
    HandlerCancelled,
    InMemoryCheckpointStorage,
    ThreadBusy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunResult,
    WorkflowRunState,
    handler,
    run_sync,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

STORAGES = pytest.mark.parametrize(
    "make_storage", [lambda: None, InMemoryCheckpointStorage, awaiting_storage], ids=["none", "memory", "awaiting"]
)


def siblings(*executors: Executor, **options: Any) -> Workflow:
    """A relay, and all executors side by side after it; one alone is reached by a plain edge."""
    start = relay("start")
    builder = WorkflowBuilder(name="siblings", start_executor=start, **options)
    if len(executors) == 1:
        return builder.add_edge(start, executors[0]).build()
    return builder.add_fan_out_edges(start, executors).build()


# ---------------------------------------------------------------- handlers that keep a cancellation to themselves


def deaf(gate: Gate, calls: list[int]) -> Workflow:
    """Counts down; at 3 it waits at the gate, and takes a cancellation for its opening."""

    async def count(left: int, ctx: WorkflowContext[int, str]) -> None:
        calls.append(left)
        if left == 3:
            gate.arrived.set()
            try:
                await gate.opened.wait()
            except asyncio.CancelledError:
                pass
        await (ctx.send_message(left - 1) if left else ctx.yield_output("done"))

    start = function("deaf", count, accepts=int)
    return WorkflowBuilder(name="deaf", start_executor=start).add_edge(start, start).build()


async def cancel_the_task(workflow: Workflow, gate: Gate) -> None:
    task = asyncio.ensure_future(workflow.run(4, thread_id="t"))
    await gate.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_the_handle(workflow: Workflow, gate: Gate) -> None:
    async with workflow.open(thread_id="t") as run:
        await run.send(4)
        await gate.arrived.wait()
        await run.cancel()
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.CANCELLED


async def close_the_stream(workflow: Workflow, gate: Gate) -> None:
    stream = workflow.run(4, thread_id="t", stream=True)
    reading = asyncio.ensure_future(take_all(stream, []))
    await gate.arrived.wait()
    await stream.aclose()
    await reading


@pytest.mark.parametrize("cancel", [cancel_the_task, cancel_the_handle, close_the_stream])
async def test_run_ends_after_a_superstep_whose_handler_swallows_cancellation(
    cancel: Callable[[Workflow, Gate], Awaitable[None]],
) -> None:
    gate, calls = Gate(), list[int]()
    workflow = deaf(gate, calls)
    await cancel(workflow, gate)
    assert calls == [4, 3]
    assert (await workflow.run(thread_id="t")).get_outputs() == ["done"]
    assert calls == [4, 3, 2, 1, 0]


# ---------------------------------------------------------------- timeouts inside handlers


async def test_a_timeout_that_a_handler_catches_does_not_end_the_run() -> None:
    async def impatient(word: str, ctx: WorkflowContext[Never, str]) -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            await ctx.yield_output(f"{word}, too late")

    result = await siblings(function("impatient", impatient)).run("x")
    assert result.get_outputs() == ["x, too late"] and result.get_final_state() is WorkflowRunState.IDLE


def cleaning_up(gate: Gate, after: list[str]) -> Workflow:
    """Its handler's timeout has passed, and what timed out takes until the gate opens to clean up."""

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gate.arrived.set()
            await gate.opened.wait()

    async def work(word: str, ctx: WorkflowContext[Never, str]) -> None:
        try:
            async with asyncio.timeout(0):
                await stubborn()
        except TimeoutError:
            after.append(word)

    return alone(work)


async def test_cancellation_while_a_handler_handles_a_timeout_cancels_the_run() -> None:
    gate, after = Gate(), list[str]()
    async with cleaning_up(gate, after).open(thread_id="t") as run:
        await run.send("x")
        await gate.arrived.wait()
        await run.cancel()
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.CANCELLED
    assert after == []


async def test_a_run_whose_handler_is_timing_out_is_busy_and_can_be_interrupted() -> None:
    gate, after = Gate(), list[str]()
    workflow = cleaning_up(gate, after)
    first = asyncio.ensure_future(workflow.run("x", thread_id="t"))
    await gate.arrived.wait()
    with pytest.raises(ThreadBusy):
        await workflow.run("y", thread_id="t")
    second = asyncio.ensure_future(workflow.run("y", thread_id="t", on_busy="interrupt"))
    assert (await first).get_final_state() is WorkflowRunState.CANCELLED and after == []
    gate.opened.set()
    assert (await second).get_final_state() is WorkflowRunState.IDLE and after == ["x", "y"]


async def test_run_in_a_task_that_ignored_a_cancellation_can_be_interrupted() -> None:
    gate, ignored = Gate(), asyncio.Event()
    workflow = alone(gate.pass_through)

    async def ignoring() -> WorkflowRunResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ignored.set()
        await workflow.run("zero", thread_id="another")
        return await workflow.run("x", thread_id="t")

    task = asyncio.ensure_future(ignoring())
    await turns(1)
    task.cancel()
    await ignored.wait()
    gate.opened.set()
    await gate.arrived.wait()
    gate.arrived.clear()
    gate.opened.clear()
    await gate.arrived.wait()
    with pytest.raises(ThreadBusy):
        await workflow.run("y", thread_id="t")
    second = asyncio.ensure_future(workflow.run("y", thread_id="t", on_busy="interrupt"))
    assert (await task).get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    assert (await second).get_outputs() == ["x", "y"]


# ---------------------------------------------------------------- undoing


class Careful(Executor):
    """Counts its messages and puts the count back slowly: it arrives at `restoring` and waits for it to open."""

    def __init__(self, id: str, gate: Gate, restoring: Gate) -> None:
        super().__init__(id)
        self.gate = gate
        self.restoring = restoring
        self.count = 0

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        self.count += 1
        self.gate.arrived.set()
        await self.gate.opened.wait()
        await ctx.yield_output(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.restoring.arrived.set()
        await self.restoring.opened.wait()
        self.count = state["count"]


@STORAGES
@pytest.mark.parametrize("times", [2, 3])
async def test_repeated_cancellation_does_not_stop_the_undoing_of_a_superstep(
    make_storage: Callable[[], Any], times: int
) -> None:
    gate, restoring = Gate(), Gate()
    workflow = WorkflowBuilder(
        start_executor=Careful("careful", gate, restoring), checkpoint_storage=make_storage()
    ).build()
    task = asyncio.ensure_future(workflow.run("x", thread_id="t"))
    await gate.arrived.wait()
    task.cancel()
    await restoring.arrived.wait()
    for _ in range(times - 1):
        task.cancel()
        await turns(2)
    assert not task.done()
    restoring.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == [1]


@dataclass
class Trouble:
    """What a Fragile executor raises, as long as it is there."""

    in_handler: Exception | None = None
    in_restore: Exception | None = None


class Fragile(Executor):
    """Counts its messages, and gets into trouble."""

    def __init__(self, id: str, trouble: Trouble) -> None:
        super().__init__(id)
        self.trouble = trouble
        self.count = 0

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        self.count += 1
        if self.trouble.in_handler is not None:
            raise self.trouble.in_handler
        await ctx.yield_output(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        if self.trouble.in_restore is not None:
            raise self.trouble.in_restore
        self.count = state["count"]


@STORAGES
async def test_failing_restore_hook_keeps_the_handler_error_and_is_retried_later(
    make_storage: Callable[[], Any],
) -> None:
    trouble = Trouble()
    workflow = WorkflowBuilder(start_executor=Fragile("f", trouble), checkpoint_storage=make_storage()).build()
    assert (await workflow.run("a", thread_id="t")).get_outputs() == [1]
    trouble.in_handler, trouble.in_restore = ValueError("of the handler"), OSError("of the hook")
    seen: list[WorkflowEvent] = []
    with pytest.raises(ValueError, match="of the handler") as caught:
        await take_all(workflow.run("b", thread_id="t", stream=True), seen)
    assert "of the hook" in "".join(caught.value.__notes__) and "superstep_discarded" in kinds(seen)
    trouble.in_handler = trouble.in_restore = None
    assert (await workflow.run(thread_id="t")).get_outputs() == [2]


async def test_run_stays_cancelled_when_a_restore_hook_fails_afterwards() -> None:
    class Waiting(Fragile):
        @handler
        async def wait(self, gate: Gate, ctx: WorkflowContext) -> None:
            await gate.pass_through(None, ctx)

    gate, trouble = Gate(), Trouble()
    workflow = WorkflowBuilder(start_executor=Waiting("f", trouble)).build()
    await workflow.run("a")
    task = asyncio.ensure_future(workflow.run(gate))
    await gate.arrived.wait()
    trouble.in_restore = OSError("of the hook")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert workflow.status is WorkflowRunState.CANCELLED


async def test_failing_store_during_undo_keeps_the_error_and_restores_executors() -> None:
    recording = asyncio.Event()

    async def pause(moment: str) -> None:
        if moment == "before append_journal":
            if recording.is_set():
                raise OSError("the disk is full")
            recording.set()
            await asyncio.Event().wait()  # until its sibling has failed

    async def fail(word: str, ctx: Any) -> None:
        await recording.wait()
        raise ValueError("of the handler")

    counting, storage = Fragile("counting", Trouble()), StoreCheckpointStorage(AwaitingStore(pause))
    workflow = siblings(counting, function("bad", fail), checkpoint_storage=storage)
    seen: list[WorkflowEvent] = []
    with pytest.raises(ValueError, match="of the handler"):
        await take_all(workflow.run("x", thread_id="t", stream=True), seen)
    assert counting.count == 0 and "superstep_discarded" in kinds(seen)


async def test_executor_that_did_not_run_restores_the_object_it_shares() -> None:
    shared: list[str] = []

    class Sharing(Executor):
        @handler
        async def keep(self, word: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(word)

        async def on_checkpoint_save(self) -> dict[str, Any]:
            return {"shared": shared}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            shared[:] = state["shared"]

    async def spoil(word: str, ctx: Any) -> None:
        shared.append(word)
        raise ValueError(word)

    sharing = Sharing("keeper")
    workflow = WorkflowBuilder(start_executor=sharing).add_edge(sharing, function("spoil", spoil)).build()
    with pytest.raises(ValueError, match="x"):
        await workflow.run("x")
    assert shared == []


# ---------------------------------------------------------------- a CancelledError without a cancellation of the run


async def awaits_a_cancelled_task(word: str, ctx: WorkflowContext[Never, str]) -> None:
    if word == "bad":
        inner = asyncio.ensure_future(asyncio.Event().wait())
        await turns(1)
        inner.cancel()
        await inner
    await ctx.yield_output(word)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_handler_that_ends_cancelled_by_itself_fails_the_run(number: int) -> None:
    lanes = [function(f"lane{n}", awaits_a_cancelled_task) for n in range(number)]
    workflow = siblings(*lanes)
    seen: list[WorkflowEvent] = []
    with pytest.raises(HandlerCancelled, match="although the run was not cancelled"):
        await take_all(workflow.run("bad", stream=True), seen)
    assert kinds(seen)[-2:] == ["failed", "status"] and seen[-1].state is WorkflowRunState.FAILED
    assert "executor_failed" in kinds(seen) and workflow.status is WorkflowRunState.FAILED


async def test_handle_raises_handler_cancelled_and_drops_the_earlier_result() -> None:
    async with alone(awaits_a_cancelled_task).open() as run:
        await run.send("good")
        await run.wait()
        await run.send("bad")
        with pytest.raises(HandlerCancelled):
            await run.wait()
        assert run.result is None


# ---------------------------------------------------------------- other ends


async def test_event_loop_does_not_report_errors_of_cancelled_siblings() -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    both = asyncio.Barrier(3)

    async def angry(word: str, ctx: Any) -> None:
        try:
            await both.wait()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise ValueError(word) from error

    async def cancelled_run() -> None:
        task = asyncio.ensure_future(siblings(function("b", angry), function("c", angry)).run("x"))
        await both.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    await cancelled_run()
    await turns(1)
    gc.collect()  # the loop reports an unread error when its task is collected
    assert reported == []


class Stop(BaseException):
    """As SystemExit, but known to no event loop."""


@pytest.mark.parametrize("number", [1, 2])
async def test_base_exception_fails_the_run_and_the_log_records_it(number: int) -> None:
    storage, stops = InMemoryCheckpointStorage(), [True]

    async def stop(word: str, ctx: WorkflowContext[Never, str]) -> None:
        if stops[0]:
            raise Stop
        await ctx.yield_output(word)

    workflow = siblings(*(function(f"lane{n}", stop) for n in range(number)), checkpoint_storage=storage)
    with pytest.raises(Stop):
        await workflow.run("x", thread_id="t")
    async with workflow.open(thread_id="t") as run:
        logged = [event async for event in run.events(after=0)]
    assert kinds(logged)[-2:] == ["failed", "status"] and logged[-1].state is WorkflowRunState.FAILED
    stops[0] = False
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"] * number


def test_handler_that_exits_the_program_fails_its_run_first() -> None:
    async def leave(word: str, ctx: Any) -> None:
        raise SystemExit(3)

    workflow = alone(leave)
    with pytest.raises(SystemExit):
        run_sync(workflow.run("x"))
    assert workflow.status is WorkflowRunState.FAILED


class WithoutText(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class WithoutTruth(Exception):
    def __bool__(self) -> bool:
        raise KeyError("no truth")


@pytest.mark.parametrize("error", [WithoutText(), WithoutTruth()], ids=["str", "bool"])
async def test_error_that_cannot_be_shown_is_raised_unchanged_and_fails_the_run(error: Exception) -> None:
    async def fail(word: str, ctx: Any) -> None:
        raise error

    workflow = alone(fail, checkpoint_storage=InMemoryCheckpointStorage())
    seen: list[WorkflowEvent] = []
    with pytest.raises(type(error)) as caught:
        await take_all(workflow.run("x", stream=True), seen)
    assert caught.value is error and kinds(seen)[-2:] == ["failed", "status"]
    assert workflow.status is WorkflowRunState.FAILED
