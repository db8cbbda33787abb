"""ResponseStream: iterate it, await it, leave it, close it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.engine.flows import Gate, Weather, crossing, gated, kinds, shouting, take_all

from perdure import InMemoryCheckpointStorage, ResponseStream, WorkflowEvent, WorkflowRunState


async def test_an_awaited_stream_is_the_stream_itself() -> None:
    stream = shouting().run("hi", stream=True)
    assert await stream is stream
    assert (await stream.get_final_response()).get_outputs() == ["<HI>"]


async def test_a_stream_that_was_iterated_still_gives_its_result() -> None:
    stream = shouting().run("hi", stream=True)
    seen = [event async for event in stream]
    final = await stream.get_final_response()
    assert [event for event in seen if event.type == "output"] == [event for event in final if event.type == "output"]
    assert await stream.get_final_response() is final


async def test_events_arrive_while_the_run_is_still_at_work() -> None:
    gate = Gate()
    stream = gated(gate).run("x", stream=True)
    events = aiter(stream)
    seen = [await anext(events) for _ in range(4)]
    assert kinds(seen) == ["started", "status", "superstep_started", "executor_invoked"]
    gate.opened.set()
    assert kinds([event async for event in events])[0] == "output"


async def test_nothing_runs_before_the_stream_is_used() -> None:
    weather = Weather(is_bad=False)
    stream = crossing(weather).run("cart", stream=True)
    await asyncio.sleep(0)
    assert weather.seen == []
    _ = await stream
    assert weather.seen == []
    await stream.get_final_response()
    assert weather.seen == ["cart"]


async def test_second_iteration_continues_from_the_first_and_repeats_nothing() -> None:
    stream = shouting().run("hi", stream=True)
    first = aiter(stream)
    seen = [await anext(first), await anext(first)]
    seen += [event async for event in stream]
    assert kinds(seen) == kinds([event async for event in shouting().run("hi", stream=True)])
    assert [event async for event in stream] == []


async def test_the_error_is_raised_after_all_events_and_by_await_again() -> None:
    stream = crossing(Weather()).run("cart", stream=True)
    seen: list[WorkflowEvent] = []
    with pytest.raises(ConnectionError, match="the bridge is closed"):
        await take_all(stream, seen)
    assert seen[-1].state is WorkflowRunState.FAILED
    with pytest.raises(ConnectionError):
        await stream.get_final_response()


async def test_leaving_the_iteration_cancels_executors_and_allows_a_resume() -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=InMemoryCheckpointStorage())
    async for event in workflow.run("x", stream=True, thread_id="t"):
        if event.type == "executor_invoked":
            break
    gate.opened.set()
    result = await workflow.run(thread_id="t")
    assert result.get_outputs() == ["x"] and kinds(result).count("executor_completed") == 1


async def test_leaving_after_the_final_status_cancels_nothing() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = shouting(checkpoint_storage=storage)
    async for event in workflow.run("hi", stream=True, thread_id="t"):
        if event.state is WorkflowRunState.IDLE:
            break
    latest = await storage.get_latest(workflow_name="shouting")
    assert latest is not None and latest.status == "IDLE"
    assert (await workflow.run("again", thread_id="t")).get_outputs() == ["<AGAIN>"]


async def close_it(stream: ResponseStream[WorkflowEvent, object]) -> None:
    await stream.aclose()


async def leave_its_block(stream: ResponseStream[WorkflowEvent, object]) -> None:
    async with stream:
        pass


@pytest.mark.parametrize("end", [close_it, leave_its_block])
async def test_closing_cancels_and_waits_until_the_executor_has_cleaned_up(end: Callable[..., object]) -> None:
    cleaned = []

    class Careful(Gate):
        async def pass_through(self, message: object, ctx: object) -> None:
            self.arrived.set()
            try:
                await self.opened.wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(message)

    stream = gated(Careful()).run("x", stream=True)
    events = aiter(stream)
    while (await anext(events)).type != "executor_invoked":
        pass
    await asyncio.sleep(0)
    await end(stream)  # type: ignore[misc]  # both are async functions
    assert cleaned == ["x"]


async def test_closed_stream_ends_its_iteration_with_status_cancelled() -> None:
    gate = Gate()
    stream = gated(gate).run("x", stream=True)
    events = aiter(stream)
    await anext(events)
    await gate.arrived.wait()
    await stream.aclose()
    rest = [event async for event in events]
    assert rest[-1].state is WorkflowRunState.CANCELLED


async def test_closing_a_stream_that_never_began_does_nothing() -> None:
    weather = Weather()
    await crossing(weather).run("cart", stream=True).aclose()
    assert weather.seen == []


async def test_closing_twice_or_after_the_end_does_nothing() -> None:
    stream = shouting().run("hi", stream=True)
    result = await stream.get_final_response()
    await stream.aclose()
    await stream.aclose()
    assert (await stream.get_final_response()).get_outputs() == result.get_outputs()


async def test_closing_a_stream_that_failed_raises_nothing() -> None:
    async with crossing(Weather()).run("cart", stream=True) as stream:
        assert (await anext(aiter(stream))).type == "started"


async def test_cancelling_the_task_that_awaits_a_stream_ends_the_run() -> None:
    gate = Gate()
    workflow = gated(gate)
    waiting = asyncio.ensure_future(workflow.run("x", stream=True).get_final_response())
    await gate.arrived.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    assert (await workflow.run()).get_outputs() == ["x"]


async def test_cancelling_the_task_of_a_plain_run_ends_it_and_keeps_the_message() -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=InMemoryCheckpointStorage())
    running = asyncio.ensure_future(workflow.run("x", thread_id="t"))
    await gate.arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_run_streaming_is_the_same_stream() -> None:
    workflow = shouting()
    assert kinds([event async for event in workflow.run_streaming("a")]) == kinds(
        [event async for event in workflow.run("a", stream=True)]
    )


async def test_stream_of_own_items_takes_hooks_in_the_order_of_their_use() -> None:
    seen: list[object] = []

    async def count() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    own: ResponseStream[int, int] = ResponseStream(count(), finalizer=sum)
    stream = own.with_transform_hook(lambda item: item + 10).with_cleanup_hook(lambda: seen.append("cleaned up"))
    stream = stream.with_result_hook(seen.append)
    assert [item async for item in stream] == [10, 11, 12]
    assert await stream.get_final_response() == 3 and seen == ["cleaned up", 3]


async def test_result_hook_of_a_run_replaces_the_result_that_it_gets() -> None:
    stream = shouting().run("hi", stream=True).map(lambda event: event.type, len)
    assert await stream.get_final_response() == len([event async for event in shouting().run("hi", stream=True)])
    changed = shouting().run("hi", stream=True).with_result_hook(lambda result: result.get_outputs())
    result: object = await changed.get_final_response()
    assert result == ["<HI>"]
    assert [event.type for event in changed.updates][-1] == "status"


async def test_last_checkpoint_of_the_default_thread_is_known() -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    assert workflow.get_last_checkpoint_id() is None
    result = await workflow.run("hi")
    assert workflow.get_last_checkpoint_id() == result.checkpoint_id
