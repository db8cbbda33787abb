"""A thread with a sleeper: its checkpoint, its status, restarts in the middle, messages and questions meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Never

import pytest
from tests.six_methods import SixMethods
from tests.unit.engine.policy_flows import (
    Context,
    SkippingClock,
    alone,
    asleep,
    cancelled,
    chained,
    executor_outline,
    napping,
    of_kind,
    relay,
    started,
    worker,
)

from perdure import (
    Executor,
    IncompatibleWorkflow,
    InMemoryCheckpointStorage,
    ThreadNotIdle,
    Workflow,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from perdure.testing import FakeClock

STORAGES = [InMemoryCheckpointStorage, SixMethods]


# ---------------------------------------------------------------- a restart in between


@pytest.mark.parametrize("make_storage", STORAGES)
async def test_a_restart_in_the_middle_of_a_sleep_waits_only_for_the_rest(make_storage: Any) -> None:
    clock, storage = FakeClock(), make_storage()
    run = started(napping(60, clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(45)
    run = started(napping(60, clock=clock, checkpoint_storage=storage).run(thread_id="t"))
    await asleep(clock, run)
    clock.advance(14)
    await asleep(clock, run)
    clock.advance(1)
    assert (await run).get_outputs() == ["x woke"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_steps_and_sleeps_work_with_every_durability(durability: Any) -> None:
    calls: list[int] = []

    async def act(number: int) -> int:
        calls.append(number)
        return number

    async def work(message: Any, ctx: Context) -> None:
        values = []
        for number in range(3):
            values.append(await ctx.step(act, number))
            await ctx.sleep(10)
        await ctx.yield_output(values)

    storage = InMemoryCheckpointStorage()
    workflow = alone(work, clock=SkippingClock(), checkpoint_storage=storage)
    result = await workflow.run("x", thread_id="t", durability=durability)
    assert result.get_outputs() == [[0, 1, 2]] and calls == [0, 1, 2]
    assert result.get_final_state() is WorkflowRunState.IDLE
    head = await storage.get_latest(thread_id="t")
    assert head is not None and head.suspended == {}


async def test_with_durability_exit_a_cancelled_sleeper_is_saved_with_its_steps() -> None:
    clock, storage, calls = FakeClock(), InMemoryCheckpointStorage(), list[str]()

    async def act() -> None:
        calls.append("acted")

    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(act)
        await ctx.sleep(10)
        await ctx.yield_output("woke")

    run = started(alone(work, clock=clock, checkpoint_storage=storage).run("x", thread_id="t", durability="exit"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(10)
    assert (await alone(work, clock=clock, checkpoint_storage=storage).run(thread_id="t")).get_outputs() == ["woke"]
    assert calls == ["acted"]


async def test_output_before_a_sleep_is_emitted_once_a_run_and_marked_replayed() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    async def work(message: Any, ctx: Context) -> None:
        await ctx.yield_output("before")
        await ctx.sleep(10)
        await ctx.sleep(20)
        await ctx.yield_output("after")

    def build() -> Workflow:
        return alone(work, clock=clock, checkpoint_storage=storage)

    run = started(build().run("x", thread_id="t"))
    await asleep(clock, run)
    clock.advance(10)
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(20)
    result = await build().run(thread_id="t")
    assert [(event.data, event.replayed) for event in of_kind(result, "output")] == [("before", True), ("after", False)]
    assert result.get_outputs() == ["before", "after"]
    async with build().open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    assert [event.data for event in of_kind(logged, "output")] == ["before", "after"]
    assert executor_outline(logged) == [("invoked", "only"), ("completed", "only")]


# ---------------------------------------------------------------- the checkpoint and the thread's status


async def test_a_checkpoint_with_sleepers_is_plain_json_and_back() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    async def act(number: int) -> dict[int, str]:
        return {number: "value"}

    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(act, 1)
        await ctx.sleep(60)

    run = started(alone(work, clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    head = await storage.get_latest(thread_id="t")
    assert head is not None and len(head.suspended) == 1
    again = WorkflowCheckpoint.from_dict(json.loads(json.dumps(head.to_dict())))
    assert again.to_dict() == head.to_dict()
    [sleeper] = again.suspended.values()
    assert [record.kind for record in sleeper.records] == ["step", "sleeping"]


async def test_fork_of_a_sleeper_wakes_by_itself_and_repeats_no_recorded_step() -> None:
    clock, storage, calls = SkippingClock(), InMemoryCheckpointStorage(), list[str]()

    async def act() -> None:
        calls.append("acted")

    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(act)
        await ctx.sleep(60)
        await ctx.yield_output(ctx.thread_id)

    workflow = alone(work, clock=clock, checkpoint_storage=storage)
    await workflow.run("x", thread_id="t")
    asleep_there = (await storage.list_checkpoint_infos(thread_id="t"))[1]
    forked = await workflow.run(checkpoint_id=asleep_there, fork=True, thread_id="forked")
    rewound = await workflow.run(checkpoint_id=asleep_there)
    assert (forked.get_outputs(), rewound.get_outputs(), calls) == (["forked"], ["t"], ["acted"])


async def test_workflow_without_the_sleeping_executor_cannot_take_the_thread() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()

    async def nap(message: Any, ctx: Context) -> None:
        await ctx.sleep(60)

    def build(name: str) -> Workflow:
        return chained(relay("start"), worker(name, nap), clock=clock, checkpoint_storage=storage)

    run = started(build("naps").run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    with pytest.raises(IncompatibleWorkflow, match="something is due to executor 'naps', which is gone"):
        await build("snores").run(thread_id="t")


async def test_a_message_to_a_thread_that_sleeps_is_refused_or_waits() -> None:
    clock, woken = FakeClock(), list[str]()
    workflow = napping(60, woken=woken, clock=clock)
    run = started(workflow.run("one", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    with pytest.raises(ThreadNotIdle, match=r"'t' was interrupted and still has 1 message\(s\) to deliver"):
        await workflow.run("two", thread_id="t")
    run = started(workflow.run("two", thread_id="t", on_busy="enqueue"))
    for _ in range(2):
        await asleep(clock, run)
        clock.advance(60)
    assert (await run).get_final_state() is WorkflowRunState.IDLE
    assert woken == ["one", "two"]


async def test_cancelled_sleep_leaves_status_cancelled_and_a_resume_leaves_idle() -> None:
    clock = FakeClock()
    workflow = napping(60, clock=clock)
    run = started(workflow.run("x"))
    await asleep(clock, run)
    statuses = [workflow.status]
    await cancelled(run)
    statuses.append(workflow.status)
    clock.advance(60)
    assert (await workflow.run()).get_final_state() is WorkflowRunState.IDLE
    assert [*statuses, workflow.status] == [
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.CANCELLED,
        WorkflowRunState.IDLE,
    ]


# ---------------------------------------------------------------- messages and questions meanwhile


async def test_a_message_sent_through_a_handle_wakes_a_waiting_run() -> None:
    clock, woken = FakeClock(), asyncio.Event()

    async def work(message: str, ctx: Context) -> None:
        if message == "sleep":
            await ctx.sleep(60)
        else:
            woken.set()
        await ctx.yield_output(message)

    async with alone(work, clock=clock).open(thread_id="t") as handle:
        await handle.send("sleep")
        await clock.wait_for_sleepers()
        await handle.send("now")
        await woken.wait()
        await clock.wait_for_sleepers()
        clock.advance(60)
        result = await handle.wait()
    assert result is not None and result.get_outputs() == ["now", "sleep"]


class AsksAndSleeps(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        if message == "ask":
            await ctx.request_info("sure?", str, request_id="q")
        else:
            await ctx.sleep(60)
            await ctx.yield_output("slept")

    @response_handler
    async def receive(self, question: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.sleep(30)
        await ctx.yield_output(f"heard {answer} as {ctx.request_id}")


def resting(clock: FakeClock, storage: Any = None) -> Workflow:
    async def split(message: str, ctx: Context) -> None:
        for word in message.split():
            await ctx.send_message(word)

    return chained(worker("start", split), AsksAndSleeps("mixed"), clock=clock, checkpoint_storage=storage)


async def test_thread_with_a_pending_request_rests_while_a_delivery_sleeps() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    result = await resting(clock, storage).run("ask sleep", thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    clock.advance(60)
    result = await resting(clock, storage).run(thread_id="t")
    assert result.get_outputs() == ["slept"]
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def test_after_the_answer_the_run_waits_for_all_sleepers() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    await resting(clock, storage).run("ask sleep", thread_id="t")
    run = started(resting(clock, storage).run(responses={"q": "yes"}, thread_id="t"))
    await asleep(clock, run)
    clock.advance(30)
    await asleep(clock, run)
    clock.advance(30)
    result = await run
    assert result.get_outputs() == ["heard yes as q", "slept"]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_an_open_handle_wakes_the_sleeper_of_a_thread_that_rests() -> None:
    clock = FakeClock()
    async with resting(clock).open(thread_id="t") as handle:
        await handle.send("ask sleep")
        await handle.wait()
        await clock.wait_for_sleepers()
        clock.advance(60)
        outputs = [event.data async for event in handle.events() if event.type == "output"]
        assert outputs == ["slept"]
        await handle.respond({"q": "yes"})
        await clock.wait_for_sleepers()
        clock.advance(30)
        result = await handle.wait()
    assert result is not None and result.get_outputs() == ["heard yes as q"]


async def test_thread_that_rests_with_a_sleeper_accepts_a_new_message() -> None:
    clock = FakeClock()
    workflow = resting(clock)
    await workflow.run("ask sleep", thread_id="t")
    clock.advance(30)
    result = await workflow.run("sleep sleep", thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    clock.advance(30)
    assert (await workflow.run(thread_id="t")).get_outputs() == ["slept"]
    clock.advance(30)
    assert (await workflow.run(thread_id="t")).get_outputs() == ["slept"] * 3
