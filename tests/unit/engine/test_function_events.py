"""Events of a function workflow: emitted as they happen, once, under the names of its steps."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.engine.flows import kinds
from tests.unit.engine.function_flows import THREAD, Calls, answer, begin, outline, raising, resume
from tests.unit.engine.policy_flows import SkippingClock

from perdure import InMemoryCheckpointStorage, RunContext, WorkflowErrorDetails, WorkflowEvent, workflow

STEPS = ("executor_invoked", "executor_completed", "executor_failed", "executor_bypassed")


async def test_an_event_of_the_first_step_arrives_before_the_second_step_begins() -> None:
    may_begin, order = asyncio.Event(), []
    calls = Calls()
    first, second = calls.step(name="first"), calls.step(name="second")

    @workflow
    async def flow(_: str) -> None:
        await first(1)
        await may_begin.wait()  # set by the consumer, when it has seen that the first step ended
        order.append("second begins")
        await second(2)

    async for event in flow.run("go", stream=True):
        if (event.type, event.executor_id) == ("executor_completed", "first"):
            order.append("first seen")
            may_begin.set()
    assert order == ["first seen", "second begins"]


async def test_an_event_of_a_step_that_still_runs_arrives() -> None:
    was_seen = asyncio.Event()
    slow = Calls().step(name="slow")

    async def emit_and_wait(ctx: RunContext) -> str:
        await ctx.add_event(WorkflowEvent("data", "half way"))
        await was_seen.wait()
        return "done"

    slow.function = emit_and_wait

    @workflow
    async def flow(_: str, ctx: RunContext) -> Any:
        return await slow(ctx)

    stream = flow.run("go", stream=True)
    async for event in stream:
        if event.data == "half way":
            was_seen.set()
    assert (await stream.get_final_response()).get_outputs() == ["done"]


async def test_steps_emit_events_under_their_names_while_the_function_runs() -> None:
    calls = Calls()
    good, bad = calls.step(name="good"), calls.step(raising(ValueError("no")), name="bad")

    @workflow
    async def flow(_: str) -> str:
        await good(1)
        try:
            await bad(2)
        except ValueError:
            return "caught"
        return "never"

    result = await begin(flow, None)
    assert outline(result, *STEPS, "output") == [
        ("executor_invoked", "good"),
        ("executor_completed", "good"),
        ("executor_invoked", "bad"),
        ("executor_failed", "bad"),
        ("output", "flow"),
    ]
    assert [event.data for event in result if (event.type, event.executor_id) == ("executor_completed", "good")] == [1]
    (failed,) = [event for event in result if event.type == "executor_failed"]
    assert failed.details is not None and failed.details.message == "no"


async def test_recorded_step_emits_bypassed_once_a_run_with_its_result() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    note = calls.step(name="note")

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await note("a")
        await ctx.request_info("one?", str)
        await note("b")
        await ctx.sleep(60)
        await ctx.request_info("two?", str)

    first = await begin(flow, storage, clock=SkippingClock())
    assert "executor_bypassed" not in kinds(first)
    second = await answer(flow, storage, first, {"one?": "1"}, clock=SkippingClock())
    third = await answer(flow, storage, second, {"two?": "2"}, clock=SkippingClock())
    assert [[event.data for event in run if event.type == "executor_bypassed"] for run in (second, third)] == [
        ["a"],
        ["a", "b"],
    ]
    assert outline(second, "executor_invoked", "executor_completed").count(("executor_invoked", "note")) == 1


async def test_later_run_marks_repeated_events_replayed_and_logs_them_once() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.add_event(WorkflowEvent("group_chat", "hello"))
        await ctx.request_info("go on?", str)
        await ctx.add_event(WorkflowEvent("group_chat", "goodbye"))

    first = await begin(flow, storage)
    second = await answer(flow, storage, first, {"go on?": "y"})
    received = [
        [(event.data, event.replayed) for event in run if event.type == "group_chat"] for run in (first, second)
    ]
    assert received == [[("hello", False)], [("hello", True), ("goodbye", False)]]
    async with flow.build(storage).open(thread_id=THREAD) as handle:
        logged = [event.data async for event in handle.events(after=0) if event.type == "group_chat"]
    assert logged == ["hello", "goodbye"]


async def test_events_before_a_sleep_are_not_repeated_in_the_same_run() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        for n in range(3):
            await ctx.add_event(WorkflowEvent("data", n))
            await ctx.sleep(0.001)

    result = await begin(flow, InMemoryCheckpointStorage())
    assert [event.data for event in result if event.type == "data"] == [0, 1, 2]


async def test_two_equal_events_are_emitted_exactly_twice() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.add_event(WorkflowEvent("data", "tick"))
        await ctx.sleep(0.001)
        await ctx.add_event(WorkflowEvent("data", "tick"))
        await ctx.sleep(0.001)

    result = await begin(flow, None)
    assert [event.data for event in result if event.type == "data"] == ["tick", "tick"]


async def test_returned_value_is_the_output_and_none_gives_no_output() -> None:
    @workflow
    async def flow(message: str) -> str | None:
        return message or None

    assert (await begin(flow, None, "something")).get_outputs() == ["something"]
    nothing = await begin(flow, None, "")
    assert (nothing.get_outputs(), "output" in kinds(nothing)) == ([], False)


async def test_falsy_values_are_outputs() -> None:
    @workflow
    async def flow(message: int) -> list[int]:
        return []

    assert (await begin(flow, None, 0)).get_outputs() == [[]]


async def test_function_knows_whether_its_run_is_streamed() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> bool:
        return ctx.is_streaming()

    assert (await flow.run("go")).get_outputs() == [False]
    assert [event.data async for event in flow.run("go", stream=True) if event.type == "output"] == [True]


async def test_a_resumed_finished_thread_gives_its_output_again_marked_replayed() -> None:
    storage = InMemoryCheckpointStorage()
    note = Calls().step()

    @workflow
    async def flow(_: str) -> Any:
        return await note("x")

    await begin(flow, storage)
    again = await resume(flow, storage)
    assert again.get_outputs() == ["x"]
    assert [event.replayed for event in again if event.type == "output"] == [True]


async def test_only_the_engine_may_make_its_events() -> None:
    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        await ctx.add_event(WorkflowEvent.failed(WorkflowErrorDetails("Forged", "forged")))
        await ctx.add_event(WorkflowEvent.output("flow", "an output"))

    result = await begin(flow, None)
    assert result.get_outputs() == ["an output"]
    assert outline(result, "warning", "output", "failed") == [("warning", "flow"), ("output", "flow")]
