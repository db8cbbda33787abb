"""`run.send`: once it returns, the message is delivered exactly once, in its turn, whatever becomes of the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.six_methods import SixMethods
from tests.turns import AwaitingStore, awaiting_storage, turns
from tests.unit.engine.flows import Gate, alone, function, sink, warnings_of

from perdure import (
    InMemoryCheckpointStorage,
    ThreadBusy,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

STORAGES = pytest.mark.parametrize(
    "make_storage",
    [lambda: None, SixMethods, InMemoryCheckpointStorage, awaiting_storage],
    ids=["none", "six methods", "memory", "awaiting"],
)
KEPT = pytest.mark.parametrize(
    "make_storage", [InMemoryCheckpointStorage, awaiting_storage], ids=["memory", "awaiting"]
)


class Desk:
    """Notes its messages in order. "held" waits at the gate; "bad" fails until `is_fixed`."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.gate = Gate()
        self.is_fixed = False

    async def take(self, message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        if message == "held":
            self.gate.arrived.set()
            await self.gate.opened.wait()
        if message == "bad" and not self.is_fixed:
            raise ConnectionError(message)
        self.taken.append(message)
        await ctx.yield_output(message)

    def workflow(self, storage: Any = None, accepts: Any = object) -> Workflow:
        return alone(self.take, accepts=accepts, checkpoint_storage=storage)


# ---------------------------------------------------------------- nothing is lost, nothing comes twice


@STORAGES
async def test_messages_survive_when_the_block_is_left(make_storage: Callable[[], Any]) -> None:
    desk = Desk()
    workflow = desk.workflow(make_storage())
    async with workflow.open(thread_id="t") as run:
        await run.send("held")
        await desk.gate.arrived.wait()
        await run.send("second")
        await run.send("third")
    assert desk.taken == []
    desk.gate.opened.set()
    await workflow.run(thread_id="t")
    assert desk.taken == ["held", "second", "third"]


@STORAGES
async def test_messages_survive_when_the_run_is_cancelled_and_resumed(make_storage: Callable[[], Any]) -> None:
    desk = Desk()
    async with desk.workflow(make_storage()).open(thread_id="t") as run:
        await run.send("held")
        await desk.gate.arrived.wait()
        await run.send("second")
        await run.cancel()
        desk.gate.opened.set()
        await run.resume()
        await run.wait()
    assert desk.taken == ["held", "second"]


@STORAGES
async def test_messages_survive_when_the_run_fails(make_storage: Callable[[], Any]) -> None:
    desk = Desk()
    async with desk.workflow(make_storage()).open(thread_id="t") as run:
        await asyncio.gather(*(run.send(word) for word in ("first", "bad", "third")))
        with pytest.raises(ConnectionError):
            await run.wait()
        desk.is_fixed = True
        await run.send("fourth")
        await run.wait()
    assert sorted(desk.taken) == ["bad", "first", "fourth", "third"] and desk.taken[-1] == "fourth"


@pytest.mark.parametrize("moment", range(0, 24, 2))
@KEPT
async def test_a_cancellation_at_any_moment_neither_loses_nor_doubles_a_message(
    make_storage: Callable[[], Any], moment: int
) -> None:
    desk = Desk()
    workflow = desk.workflow(make_storage())
    async with workflow.open(thread_id="t") as run:
        await run.send("first")
        await turns(3)
        await run.send("second")
        await turns(moment)
        await run.cancel()
        await run.resume()
        await run.wait()
    assert [message.data for message in await workflow.messages("t")] == ["first", "second"]


@KEPT
async def test_a_message_that_another_object_delivered_is_not_delivered_again(make_storage: Callable[[], Any]) -> None:
    desk, storage = Desk(), make_storage()
    sender, other = desk.workflow(storage), desk.workflow(storage)
    async with sender.open(thread_id="t") as run:
        await run.send("once")
    assert desk.taken == []
    await other.run(thread_id="t")
    await sender.run(thread_id="t")
    await sender.run("new", thread_id="t")
    assert desk.taken == ["once", "new"]


@KEPT
async def test_resume_delivers_messages_that_were_sent_to_a_thread_without_a_run(
    make_storage: Callable[[], Any],
) -> None:
    desk, storage = Desk(), make_storage()
    async with desk.workflow(storage).open(thread_id="t") as run:
        await run.send("alone")
    assert (await desk.workflow(storage).run(thread_id="t")).get_outputs() == ["alone"]


async def test_message_to_a_thread_held_by_another_object_waits_until_it_is_free() -> None:
    desk, storage = Desk(), InMemoryCheckpointStorage()
    holding = asyncio.ensure_future(desk.workflow(storage).run("held", thread_id="t"))
    await desk.gate.arrived.wait()
    async with desk.workflow(storage).open(thread_id="t") as run:
        await run.send("second")
        desk.gate.opened.set()
        await holding
        await run.wait()
    assert sorted(desk.taken) == ["held", "second"]


async def test_message_sent_after_a_left_stream_follows_the_interrupted_message() -> None:
    desk = Desk()
    workflow = desk.workflow()
    async for event in workflow.run("held", stream=True, thread_id="t"):
        if event.type == "executor_invoked":
            break
    desk.gate.opened.set()
    async with workflow.open(thread_id="t") as run:
        await run.send("second")
        await run.wait()
    assert desk.taken == ["held", "second"]


# ---------------------------------------------------------------- order


@STORAGES
async def test_new_message_does_not_overtake_earlier_messages(make_storage: Callable[[], Any]) -> None:
    desk = Desk()
    workflow = desk.workflow(make_storage())
    async with workflow.open(thread_id="t") as run:
        await run.send("first")
        await run.send("second")
    assert (await workflow.run("third", thread_id="t")).get_outputs() == ["first", "second", "third"]
    assert desk.taken == ["first", "second", "third"]


async def test_messages_of_concurrent_tasks_arrive_in_the_order_of_their_calls() -> None:
    desk = Desk()
    async with desk.workflow(awaiting_storage()).open(thread_id="t") as run:
        await asyncio.gather(*(run.send(number) for number in range(8)))
        await run.wait()
    assert desk.taken == list(range(8))


# ---------------------------------------------------------------- as it is when it is sent


@STORAGES
async def test_message_is_copied_at_the_call(make_storage: Callable[[], Any]) -> None:
    desk = Desk()
    starting, running = ["starts the run"], ["sent while it runs"]
    async with desk.workflow(make_storage()).open(thread_id="t") as run:
        await run.send(starting)
        starting.append("changed")
        await run.send("held")
        await desk.gate.arrived.wait()
        await run.send(running)
        running.append("changed")
        desk.gate.opened.set()
        await run.wait()
    assert desk.taken == [["starts the run"], "held", ["sent while it runs"]]


@pytest.mark.parametrize("make_storage", [SixMethods, InMemoryCheckpointStorage], ids=["six methods", "memory"])
async def test_send_rejects_an_unsavable_message_and_delivers_the_others(
    make_storage: Callable[[], Any],
) -> None:
    desk = Desk()
    async with desk.workflow(make_storage()).open(thread_id="t") as run:
        await run.send("held")
        await desk.gate.arrived.wait()
        with pytest.raises(UnsavableValue, match="message"):
            await run.send([threading.Lock()])
        await run.send("third")
        desk.gate.opened.set()
        await run.wait()
    assert desk.taken == ["held", "third"]


async def test_send_fails_and_delivers_nothing_when_the_store_fails() -> None:
    async def pause(moment: str) -> None:
        if moment == "before post":
            raise OSError("the disk is full")

    desk, store = Desk(), AwaitingStore()
    async with desk.workflow(StoreCheckpointStorage(store)).open(thread_id="t") as run:
        await run.send("first")
        await run.wait()
        store.pause = pause
        with pytest.raises(Exception, match="the disk is full"):
            await run.send("second")
        await run.wait()
    assert desk.taken == ["first"]


async def test_a_message_refused_because_the_thread_is_busy_is_not_in_the_inbox() -> None:
    desk, storage = Desk(), InMemoryCheckpointStorage()
    workflow = desk.workflow(storage)
    holding = asyncio.ensure_future(workflow.run("held", thread_id="t"))
    await desk.gate.arrived.wait()
    async with workflow.open(thread_id="t") as run:
        with pytest.raises(ThreadBusy):
            await run.send("second")
    desk.gate.opened.set()
    await holding
    await workflow.run(thread_id="t")
    assert desk.taken == ["held"]


@KEPT
async def test_message_of_a_type_no_longer_accepted_is_dropped_with_a_warning(make_storage: Callable[[], Any]) -> None:
    desk, storage = Desk(), make_storage()
    async with desk.workflow(storage).open(thread_id="t") as run:
        await run.send(5)
        await run.send("text")
    changed = desk.workflow(storage, accepts=str)
    result = await changed.run(thread_id="t")
    (warning,) = warnings_of(list(result))
    assert "message of type int" in warning and "'only'" in warning
    assert desk.taken == ["text"]
    assert warnings_of(list(await changed.run("more", thread_id="t"))) == [] and desk.taken == ["text", "more"]


# ---------------------------------------------------------------- a message in the middle of a run


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["none", "memory"])
async def test_run_that_takes_in_a_message_keeps_counting_and_has_both_outputs(
    make_storage: Callable[[], Any],
) -> None:
    gate = Gate()

    async def hold_and_pass_on(message: str, ctx: WorkflowContext[str, str]) -> None:
        await gate.pass_through(f"passing {message}", ctx)
        await ctx.send_message(message)

    start, end = function("start", hold_and_pass_on), sink("end")
    builder = WorkflowBuilder(start_executor=start, checkpoint_storage=make_storage())
    async with builder.add_edge(start, end).build().open(thread_id="t") as run:
        await run.send("a")
        await gate.arrived.wait()
        await run.send("b")
        gate.opened.set()
        result = await run.wait()
    assert result is not None
    assert [event.iteration for event in result if event.type == "superstep_started"] == [1, 2, 3]
    assert result.get_outputs() == ["passing a", ("end", "a"), "passing b", ("end", "b")]


async def test_run_that_takes_in_a_message_with_nothing_else_due_is_one_run() -> None:
    desk = Desk()
    async with desk.workflow().open(thread_id="t") as run:
        await run.send("held")
        await desk.gate.arrived.wait()
        await run.send("second")
        desk.gate.opened.set()
        result = await run.wait()
    assert result is not None and result.get_outputs() == ["held", "second"]
    assert [event.iteration for event in result if event.type == "superstep_started"] == [1, 2]


async def test_log_of_a_run_that_takes_in_a_message_has_idle_once_at_the_end() -> None:
    desk = Desk()
    async with desk.workflow(InMemoryCheckpointStorage()).open(thread_id="t") as run:
        await run.send("held")
        await desk.gate.arrived.wait()
        await run.send("second")
        desk.gate.opened.set()
        logged: list[WorkflowEvent] = [event async for event in run.events(after=0)]
    states = [event.state for event in logged if event.type == "status"]
    assert states == [WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE]
