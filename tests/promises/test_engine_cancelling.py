"""However a run is cancelled, its executors stop and are awaited, its status is CANCELLED, and it can resume."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.promises.stages import Again, Does, Relay, Sink, Stage, chain

from perdure import Workflow, WorkflowContext, WorkflowRunState
from perdure.checkpoints.storage import StoreCheckpointStorage


def slow(stage: Stage, storage: Any) -> Workflow:
    """one -> slow (waits at its gate) -> sink."""
    return chain(Relay("one", stage), Relay("slow", stage), Sink("sink"), storage=storage)


async def break_out_of_the_stream(workflow: Workflow, stage: Stage) -> None:
    async for event in workflow.run("x", stream=True, thread_id="t"):
        if event.type == "executor_invoked" and event.executor_id == "slow":
            await stage.entered["slow"].wait()
            break


async def close_the_stream(workflow: Workflow, stage: Stage) -> None:
    stream = workflow.run("x", stream=True, thread_id="t")
    watched = aiter(stream)
    await anext(watched)
    await stage.entered["slow"].wait()
    await stream.aclose()
    assert stage.cancelled == ["slow"], "closing waits"


async def leave_the_streams_block(workflow: Workflow, stage: Stage) -> None:
    async with workflow.run("x", stream=True, thread_id="t") as stream:
        watched = aiter(stream)  # held on to: dropping it would be the same as `break`
        await anext(watched)
        await stage.entered["slow"].wait()
    assert stage.cancelled == ["slow"]


async def cancelled(task: asyncio.Task[Any], stage: Stage) -> None:
    await stage.entered["slow"].wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert stage.cancelled == ["slow"], "the task ends after its executors"


async def cancel_the_task_of_a_run(workflow: Workflow, stage: Stage) -> None:
    await cancelled(asyncio.create_task(workflow.run("x", thread_id="t")), stage)


async def cancel_the_task_that_awaits_a_stream(workflow: Workflow, stage: Stage) -> None:
    async def watch() -> None:
        await workflow.run("x", stream=True, thread_id="t").get_final_response()

    await cancelled(asyncio.create_task(watch()), stage)


async def cancel_the_task_that_iterates(workflow: Workflow, stage: Stage) -> None:
    async def watch() -> None:
        async for _ in workflow.run("x", stream=True, thread_id="t"):
            pass

    await cancelled(asyncio.create_task(watch()), stage)


async def run_into_a_timeout(workflow: Workflow, stage: Stage) -> None:
    async def until_it_is_slow() -> None:
        async with asyncio.timeout(None) as limit:
            watching = asyncio.create_task(stage.entered["slow"].wait())
            watching.add_done_callback(lambda _: limit.reschedule(0))
            await workflow.run("x", thread_id="t")

    with pytest.raises(TimeoutError):
        await until_it_is_slow()
    assert stage.cancelled == ["slow"]


async def cancel_the_handle(workflow: Workflow, stage: Stage) -> None:
    async with workflow.open(thread_id="t") as run:
        await run.send("x")
        await stage.entered["slow"].wait()
        await run.cancel()
        assert stage.cancelled == ["slow"]
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.CANCELLED
        states = [event.state async for event in run.events() if event.state is not None]
        assert states[-1] is WorkflowRunState.CANCELLED


async def leave_the_handles_block(workflow: Workflow, stage: Stage) -> None:
    async with workflow.open(thread_id="t") as run:
        await run.send("x")
        await stage.entered["slow"].wait()
    assert stage.cancelled == ["slow"]


Way = Callable[[Workflow, Stage], Awaitable[None]]
WAYS: list[Way] = [
    break_out_of_the_stream,
    close_the_stream,
    leave_the_streams_block,
    cancel_the_task_of_a_run,
    cancel_the_task_that_awaits_a_stream,
    cancel_the_task_that_iterates,
    run_into_a_timeout,
    cancel_the_handle,
    leave_the_handles_block,
]
each_way = pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])


@each_way
async def test_cancelling_stops_the_executor_and_the_thread_can_resume(
    storage: StoreCheckpointStorage, again: Again, way: Way
) -> None:
    stage = Stage()
    stage.close("slow")
    workflow = slow(stage, storage)
    await way(workflow, stage)
    stage.gates["slow"].set()
    resumed = await again(workflow, lambda: slow(stage, storage)).run(thread_id="t", on_busy="enqueue")
    assert stage.cancelled == ["slow"]
    assert resumed.get_outputs() == ["x-one-slow"]
    assert stage.calls == ["one(x)", "slow(x-one)", "slow(x-one)"]


@each_way
async def test_log_records_the_cancelled_status(storage: StoreCheckpointStorage, way: Way) -> None:
    stage = Stage()
    stage.close("slow")
    workflow = slow(stage, storage)
    await way(workflow, stage)
    stage.gates["slow"].set()
    await workflow.run(thread_id="t", on_busy="enqueue")
    async with workflow.open(thread_id="t") as run:
        states = [event.state async for event in run.events(after=0) if event.type == "status"]
    S = WorkflowRunState
    assert states == [S.IN_PROGRESS, S.CANCELLED, S.IN_PROGRESS, S.IDLE]


@each_way
async def test_run_cancelled_without_a_storage_can_resume(way: Way) -> None:
    stage = Stage()
    stage.close("slow")
    workflow = slow(stage, None)
    await way(workflow, stage)
    stage.gates["slow"].set()
    resumed = await workflow.run(thread_id="t", on_busy="enqueue")
    assert stage.cancelled == ["slow"]
    assert resumed.get_outputs() == ["x-one-slow"]


async def test_a_run_started_in_the_line_after_a_break_finds_the_thread_free(
    storage: StoreCheckpointStorage,
) -> None:
    stage = Stage()
    stage.close("slow")
    workflow = slow(stage, storage)
    await break_out_of_the_stream(workflow, stage)
    stage.gates["slow"].set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x-one-slow"]


async def test_a_new_message_after_cancelling_does_not_overtake_the_old_one(
    storage: StoreCheckpointStorage,
) -> None:
    stage = Stage()
    stage.close("slow")
    workflow = slow(stage, storage)
    await cancel_the_task_of_a_run(workflow, stage)
    stage.gates["slow"].set()
    result = await workflow.run("y", thread_id="t", on_busy="enqueue")
    assert [event.data for event in result if event.type == "output"] == ["x-one-slow", "y-one-slow"]


async def test_nothing_a_cancelled_executor_wrote_is_kept(any_storage: Any, again: Again) -> None:
    stage, seen = Stage(), list[Any]()
    stage.close("writes")

    async def write(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        seen.append(dict(ctx.state))
        ctx.set_state("dirty", True)
        await stage.play("writes", message)

    def build() -> Workflow:
        return chain(Relay("one", stage), Does("writes", write), storage=any_storage)

    workflow = build()
    running = asyncio.create_task(workflow.run("x", thread_id="t"))
    await stage.entered["writes"].wait()
    running.cancel()
    await asyncio.wait([running])
    stage.gates["writes"].set()
    await again(workflow, build).run(thread_id="t")
    assert seen == [{}, {}]
