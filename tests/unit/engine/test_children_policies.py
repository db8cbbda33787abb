"""Failure policies around and inside sub-workflows, and recorded steps and sleeps in them."""

from __future__ import annotations

import asyncio
from typing import Any, Never

import pytest
from tests.promises.stages import Boom, Join, Relay, Stage
from tests.unit.engine.nested import (
    THREAD,
    Ask,
    Give,
    Split,
    Take,
    around,
    committed,
    deep,
    line,
    outline,
    seen,
)

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    workflow,
)
from perdure.testing import FakeClock


def failing(*ids: str) -> Stage:
    stage = Stage()
    stage.failing = set(ids)
    return stage


def guarded(child: Any, storage: Any = None, clock: Any = None, **policy: Any) -> Workflow:
    first, last = Split("first"), Take("last")
    sub = WorkflowExecutor(child, "sub", **policy)
    builder = WorkflowBuilder(name="guarded", start_executor=first, checkpoint_storage=storage, clock=clock)
    return builder.add_edge(first, sub).add_edge(sub, last).build()


async def test_a_failed_child_may_be_skipped() -> None:
    stage = failing("b")
    events = await seen(guarded(line(stage), on_error="skip").run("x", stream=True))
    assert ("executor_skipped", "sub") in outline(events, "executor_skipped")
    assert events[-1].state is WorkflowRunState.IDLE


async def test_sibling_of_a_skipped_child_continues() -> None:
    @executor
    async def picky(text: str, ctx: WorkflowContext[Never, str]) -> None:
        if text == "bad":
            raise Boom
        await ctx.yield_output(text)

    child = WorkflowBuilder(start_executor=picky).build()
    assert (await guarded(child, on_error="skip").run("one bad two")).get_outputs() == ["one", "two"]


async def test_a_fallback_gets_the_input_of_a_failed_child() -> None:
    flow = guarded(line(failing("b")), on_error=Relay("instead", Stage()))
    assert (await flow.run("x")).get_outputs() == ["x-instead"]


async def test_failed_child_is_retried_as_its_policy_defines() -> None:
    stage, clock = failing("b"), FakeClock()

    @executor
    async def recovers(text: str, ctx: WorkflowContext[Never, str]) -> None:
        stage.calls.append(text)
        if len(stage.calls) < 3:
            raise Boom
        await ctx.yield_output(text)

    child = WorkflowBuilder(start_executor=recovers).build()
    flow = guarded(child, clock=clock, retry=RetryPolicy(3, initial_delay=0))
    events = await seen(flow.run("x", stream=True))
    assert [event.data for event in events if event.type == "output"] == ["x"]
    assert outline(events, "executor_retrying") == [("executor_retrying", "sub")] * 2


async def test_a_child_that_takes_too_long_is_cancelled_and_fails() -> None:
    stage, clock = Stage(), FakeClock()
    stage.close("b")
    running = asyncio.ensure_future(guarded(line(stage), clock=clock, timeout=60).run("x"))
    await stage.entered["b"].wait()
    clock.advance(61)
    done, _ = await asyncio.wait([running], timeout=60)
    running.cancel()
    await asyncio.wait([running])
    assert done, "it still runs"
    assert "60" in str(running.exception())
    assert stage.cancelled == ["b"]


async def test_a_policy_inside_a_child_keeps_its_failure_inside() -> None:
    stage = failing("b")
    first, bad, last = Relay("a", stage), Relay("b", stage), Give("c", stage)
    builder = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, bad).add_edge(bad, last)
    child = builder.add_edge(first, last).with_policy(bad, on_error="skip").build()
    events = await seen(around(child).run("x", stream=True))
    assert outline(events, "executor_skipped") == [("executor_skipped", "sub/b")]
    assert [event.data for event in events if event.type == "output"] == ["x-a-c"]


async def test_join_continues_without_an_isolated_child() -> None:
    stage = failing("b")
    source, join = Relay("source", stage), Join("join", stage)
    good, bad = (WorkflowExecutor(line(stage, ids, name=ids), f"sub-{ids}", on_error="isolate") for ids in ("a", "b"))
    builder = WorkflowBuilder(start_executor=source).add_fan_out_edges(source, [good, bad])
    assert (await builder.add_fan_in_edges([good, bad], join).build().run("x")).get_outputs() == ["x-source-a"]


async def test_the_innermost_policy_meets_the_failure() -> None:
    stage = failing("a")
    inner = WorkflowExecutor(line(stage, "a"), "l2", on_error="skip")
    first = Split("in")
    middle = WorkflowBuilder(name="middle", start_executor=first).add_edge(first, inner).build()
    events = await seen(guarded(middle, on_error="skip").run("x", stream=True))
    assert outline(events, "executor_skipped") == [("executor_skipped", "sub/l2")]
    assert ("executor_completed", "sub") in outline(events, "executor_completed")


async def test_a_failure_rises_to_the_first_level_that_has_a_policy() -> None:
    events = await seen(guarded(deep(line(failing("a"), "a"), 2), on_error="skip").run("x", stream=True))
    assert outline(events, "executor_failed")[0] == ("executor_failed", "sub/l1/l2/a")
    assert outline(events, "executor_skipped") == [("executor_skipped", "sub")]


async def test_propagated_request_of_a_skipped_child_is_no_longer_pending() -> None:
    stage, storage = failing("b"), InMemoryCheckpointStorage()
    first, ask, between, bad = Split("first"), Ask(), Relay("a", stage), Give("b", stage)
    builder = WorkflowBuilder(name="child", start_executor=first).add_fan_out_edges(first, [ask, between])
    flow = guarded(builder.add_edge(between, bad).build(), storage, propagate_request=True, on_error="skip")
    result = await flow.run("x", thread_id=THREAD)
    assert outline(result, "request_info") == [("request_info", "sub/ask")]
    assert result.get_request_info_events() == []
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert (await committed(storage))[-1].children == {}


async def left_when_it_waits(flow: Workflow, **options: Any) -> None:
    """The run is left once the next attempt is in a checkpoint."""
    stream, is_retrying = flow.run(stream=True, thread_id=THREAD, **options), False
    async for event in stream:
        is_retrying = is_retrying or event.type == "executor_retrying"
        if is_retrying and event.type == "superstep_completed":
            break
    await stream.aclose()


async def test_the_attempts_of_a_child_are_counted_across_restarts() -> None:
    stage, storage, clock = failing("b"), InMemoryCheckpointStorage(), FakeClock()

    def build() -> Workflow:
        return guarded(line(stage), storage, clock, retry=RetryPolicy(3, initial_delay=60, jitter=0))

    await left_when_it_waits(build(), message="x")
    clock.advance(1000)
    await left_when_it_waits(build())
    clock.advance(1000)
    with pytest.raises(SubWorkflowFailed):
        await build().run(thread_id=THREAD)
    assert (stage.called("a"), stage.called("b")) == (3, 3), "each attempt is a new child, from its first executor on"


async def test_retry_of_a_child_starts_without_state_of_the_failed_attempt() -> None:
    tries: list[Any] = []

    class Fragile(Executor):
        def __init__(self, id: str) -> None:
            super().__init__(id)
            self.mine = 0

        @handler
        async def work(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.mine += 1
            ctx.set_state("count", ctx.get_state("count", 0) + 1)
            tries.append((self.mine, ctx.get_state("count")))
            await ctx.send_message(text)

    class Last(Executor):
        @handler
        async def work(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
            if len(tries) < 3:
                raise Boom
            await ctx.yield_output(text)

    first, last = Fragile("first"), Last("last")
    child = WorkflowBuilder(name="fragile", start_executor=first).add_edge(first, last).build()
    result = await guarded(child, retry=RetryPolicy(3, initial_delay=0)).run("x")
    assert result.get_outputs() == ["x"]
    assert tries == [(1, 1), (1, 1), (1, 1)]


# ---------------------------------------------------------------- steps and sleeps in children


async def test_recorded_step_in_a_child_is_not_called_again_after_a_failure() -> None:
    stage, storage = failing("use"), InMemoryCheckpointStorage()

    async def fetch(text: str) -> str:
        stage.calls.append("fetch")
        return text.upper()

    def build() -> Workflow:
        @executor
        async def use(text: str, ctx: WorkflowContext[Never, str]) -> None:
            fetched = await ctx.step(fetch, text)
            await stage.play("use", text)
            await ctx.yield_output(fetched)

        return deep(WorkflowBuilder(name="using", start_executor=use).build(), 2, storage)

    with pytest.raises(SubWorkflowFailed):
        await build().run("x", thread_id=THREAD)
    stage.failing.clear()
    result = await build().run(thread_id=THREAD)
    assert result.get_outputs() == ["X"]
    assert stage.calls == ["fetch", "use(x)", "use(x)"]
    assert ("executor_bypassed", "l1/l2/use/fetch") in outline(result, "executor_bypassed")


async def test_siblings_of_a_sleeping_child_continue_and_the_run_waits_for_it() -> None:
    clock = FakeClock()

    @workflow
    async def sleeper(text: str, ctx: RunContext) -> str:
        if text == "slow":
            await ctx.sleep(3600)
        return text

    events: list[WorkflowEvent] = []
    async for event in guarded(sleeper, clock=clock).run("slow quick", stream=True):
        events.append(event)
        if event.type == "output" and event.data == "quick":
            clock.advance(3601)
    assert [event.data for event in events if event.type == "output"] == ["quick", "slow"]
    assert events[-1].state is WorkflowRunState.IDLE
