"""Promise 7: siblings are cancelled and awaited, writes dropped, executors restored; the thread can resume at once."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from copy import deepcopy
from typing import Any

import pytest
from tests.promises.stages import Boom, Does, Relay, Sink, Stage, Tally, alone, chain, collect, fan, kinds
from tests.six_methods import SixMethods
from tests.unit.engine.policy_flows import SkippingClock

from perdure import (
    ContextEnded,
    Executor,
    FunctionExecutor,
    RetryPolicy,
    RunContext,
    StateConflict,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    step,
    workflow as as_workflow,
)


@pytest.fixture(params=["no storage", "memory", "six methods"])
def maybe_storage(request: pytest.FixtureRequest, storage: Any) -> Any:
    """The promise needs no storage: without one the thread stands where its last superstep left it."""
    return {"no storage": None, "memory": storage, "six methods": SixMethods()}[request.param]


def pair(
    first: Executor, second: Executor, storage: Any = None, policies: dict[str, str] | None = None, **options: Any
) -> Workflow:
    """source -> two siblings -> sink."""

    async def begin(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("list", ["start"])
        await ctx.send_message(message)

    source, sink = Does("source", begin), Sink("sink")
    builder = WorkflowBuilder(name="pair", start_executor=source, checkpoint_storage=storage, **options)
    builder.add_fan_out_edges(source, [first, second]).add_edge(first, sink).add_edge(second, sink)
    for executor_id, mode in (policies or {}).items():
        builder.with_policy(executor_id, on_error=mode)
    return builder.build()


async def events_until_failure(workflow: Workflow, message: str = "x", **options: Any) -> list[WorkflowEvent]:
    events: list[WorkflowEvent] = []
    with pytest.raises(Boom):
        await collect(workflow.run(message, stream=True, thread_id="t", **options), events)
    return events


async def test_siblings_are_cancelled_and_awaited(maybe_storage: Any) -> None:
    """Their clean-up is over when the run ends."""
    stage, cleaned = Stage(), list[str]()
    stage.failing = {"fails"}

    async def slow(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(message)

    with pytest.raises(Boom):
        await pair(Does("slow", slow), Relay("fails", stage), maybe_storage).run("x")
    assert cleaned == ["x"]


async def test_siblings_are_awaited_even_if_the_run_is_cancelled_meanwhile() -> None:
    stage, cleaning, may_end, ended = Stage(), asyncio.Event(), asyncio.Event(), list[str]()
    stage.failing = {"fails"}

    async def slow(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    pass  # its clean-up cannot be hurried
            ended.append(message)

    running = asyncio.create_task(pair(Does("slow", slow), Relay("fails", stage)).run("x"))
    await cleaning.wait()
    running.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    was_over_too_soon = running.done()
    may_end.set()
    await asyncio.wait([running])
    assert not was_over_too_soon
    assert ended == ["x"]


async def test_a_sibling_in_a_thread_has_ended_when_the_run_ends() -> None:
    """A thread cannot be cancelled, so it is awaited: its side effects belong to a run."""
    stage, entered, may_end, ended = Stage(), asyncio.Event(), threading.Event(), list[str]()
    stage.failing = {"fails"}
    stage.close("fails")
    loop = asyncio.get_running_loop()

    def blocking(message: str) -> None:
        loop.call_soon_threadsafe(entered.set)
        may_end.wait(10)
        ended.append(message)

    source = Relay("source", Stage())
    builder = WorkflowBuilder(start_executor=source)
    flow = builder.add_fan_out_edges(source, [FunctionExecutor(blocking), Relay("fails", stage)]).build()
    running = asyncio.create_task(flow.run("x"))
    await entered.wait()
    stage.gates["fails"].set()
    loop.call_later(0.05, may_end.set)
    await asyncio.wait([running])
    assert isinstance(running.exception(), Boom)
    assert ended == ["x-source"]


async def test_a_second_failing_sibling_is_not_left_to_the_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.failing = {"a", "b", "c"}
    with caplog.at_level(logging.ERROR), pytest.raises(Boom, match="a"):
        await fan(stage).run("x")
    gc.collect()
    assert [record.message for record in caplog.records] == []


async def test_failed_superstep_emits_superstep_discarded(maybe_storage: Any) -> None:
    stage = Stage()
    stage.failing = {"c"}
    events = await events_until_failure(fan(stage, maybe_storage))
    last = [event for event in events if event.type.startswith("superstep_")]
    assert [(event.type, event.iteration) for event in last[-2:]] == [
        ("superstep_started", 2),
        ("superstep_discarded", 2),
    ]
    assert kinds(events)[-3:] == ["superstep_discarded", "failed", "status"]
    assert events[-1].state is WorkflowRunState.FAILED


async def test_events_of_a_failed_superstep_do_not_appear_later(maybe_storage: Any) -> None:
    """No later run gets the output of a cancelled sibling, or of a task that it left behind."""
    stage, over, left = Stage(), asyncio.Event(), list[asyncio.Task[None]]()
    stage.failing = {"fails"}

    async def talks(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        async def later() -> None:
            await over.wait()
            await ctx.yield_output("from a task")

        left.append(asyncio.create_task(later()))
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.yield_output("while cancelled")

    async def calm(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        over.set()
        [refused] = await asyncio.gather(*left, return_exceptions=True)
        assert isinstance(refused, ContextEnded)
        await ctx.yield_output("calm")

    workflow = pair(sibling := Does("sibling", talks), Relay("fails", stage), maybe_storage)
    assert kinds(await events_until_failure(workflow))[-3:] == ["superstep_discarded", "failed", "status"]
    stage.failing, sibling.act = set(), calm
    result = await workflow.run(thread_id="t")
    assert sorted(result.get_outputs()) == ["calm", "x-fails"]


async def test_writes_of_a_failed_superstep_are_dropped(maybe_storage: Any) -> None:
    """Set, changed in place, deleted, private: whatever it did, and in messages it was sent too."""
    stage, seen = Stage(), list[Any]()
    stage.failing = {"fails"}

    async def writes(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        seen.append(deepcopy((dict(ctx.state), dict(ctx.private), message)))
        ctx.get_state("list").append("dirty")
        ctx.set_state("other", "dirty")
        ctx.private["p"] = "dirty"
        message.append("dirty")
        await stage.play("fails", "")

    async def begin(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("list", ["clean"])
        await ctx.send_message(message)

    workflow = chain(Does("begin", begin), Does("writes", writes), storage=maybe_storage)
    with pytest.raises(Boom):
        await workflow.run(["clean"], thread_id="t")
    stage.failing = set()
    await workflow.run(thread_id="t")
    assert seen[1] == seen[0] == ({"list": ["clean"]}, {}, ["clean"])


async def test_a_new_message_after_a_failure_does_not_commit_its_writes(maybe_storage: Any) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"writes"}

    async def writes(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        seen.append((message, ctx.get_state("written")))
        ctx.set_state("written", message)
        await stage.play("writes", message)

    workflow = alone(Does("writes", writes), maybe_storage)
    with pytest.raises(Boom):
        await workflow.run("one", thread_id="t")
    stage.failing = set()
    await workflow.run("two", thread_id="t", on_busy="enqueue")
    assert seen == [("one", None), ("one", None), ("two", "one")]


async def test_executors_are_restored_from_the_head(maybe_storage: Any) -> None:
    """Those that failed, those that were cancelled, and those that had finished."""
    stage = Stage()
    workflow = fan(stage, maybe_storage, kind=Tally)
    await workflow.run("first", thread_id="t")
    stage.failing = {"b"}
    stage.close("c")
    await events_until_failure(workflow)
    totals = [getattr(workflow.executors[name], "total", None) for name in "abc"]
    assert totals == [1, 1, 1]
    stage.failing, stage.gates = set(), {}
    assert (await workflow.run(thread_id="t")).get_outputs() == ["a=2+b=2+c=2"]


async def test_executors_of_a_first_superstep_are_as_they_were_made(maybe_storage: Any) -> None:
    stage = Stage()
    stage.failing = {"tally"}
    workflow = alone(Tally("tally", stage), maybe_storage)
    for _ in range(3):
        with pytest.raises(Boom):
            await workflow.run("x" if not stage.calls else None, thread_id="t")
    stage.failing = set()
    result = await workflow.run(thread_id="t")
    completed = [event.data for event in result if event.type == "executor_completed"]
    assert completed == [["tally=1"]]


async def test_messages_are_not_lost_and_the_thread_can_be_resumed_at_once(maybe_storage: Any) -> None:
    stage = Stage()
    stage.failing = {"b"}
    workflow = fan(stage, maybe_storage)
    async for event in (stream := workflow.run("x", stream=True)):
        if event.type == "superstep_discarded":
            stage.failing = set()
        if event.state is WorkflowRunState.FAILED:
            result = await workflow.run()
            assert result.get_outputs() == ["x-source-a+x-source-b+x-source-c"]
            break
    with pytest.raises(Boom):
        await stream.get_final_response()


async def test_a_conflict_at_the_end_of_a_superstep_discards_it_too(maybe_storage: Any) -> None:
    async def write(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        ctx.set_state("one", message)

    workflow = pair(Does("first", write), Does("second", write), maybe_storage)
    with pytest.raises(StateConflict, match="'first' and 'second' both wrote the state key 'one'"):
        await workflow.run("x", thread_id="t")
    workflow.executors["second"].act = Sink("s").take  # type: ignore[attr-defined]  # a Does: the repaired code
    result = await workflow.run(thread_id="t")
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_log_keeps_nothing_of_a_failed_superstep(storage: Any) -> None:
    stage = Stage()
    stage.failing = {"c"}
    workflow = fan(stage, storage)
    await events_until_failure(workflow)
    async with workflow.open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    assert {event.executor_id for event in logged} == {None, "source"}
    assert kinds(logged)[-2:] == ["failed", "status"]
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))


# ---------------------------------------------------------------- policies, sleepers, sub-workflows, functions


async def logged_events(workflow: Workflow) -> list[WorkflowEvent]:
    async with workflow.open(thread_id="t") as handle:
        return [event async for event in handle.events(after=0)]


async def test_a_failure_after_the_last_retry_leaves_no_trace_of_any_attempt(maybe_storage: Any) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"writes"}

    async def writes(message: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        seen.append(deepcopy((dict(ctx.state), dict(ctx.private), message)))
        ctx.set_state("key", "dirty")
        ctx.private["key"] = "dirty"
        message.append("dirty")
        await ctx.send_message("dirty")
        await ctx.yield_output("dirty")
        await stage.play("writes", "")

    writer = Does("writes", writes)
    builder = WorkflowBuilder(name="retried", start_executor=writer, checkpoint_storage=maybe_storage)
    workflow = builder.add_edge(writer, Sink("sink")).with_policy(writer, retry=RetryPolicy(3, initial_delay=0)).build()
    with pytest.raises(Boom):
        await workflow.run(["clean"], thread_id="t")
    stage.failing = set()
    result = await workflow.run(thread_id="t")
    assert seen == [({}, {}, ["clean"])] * 4
    assert result.get_outputs() == ["dirty", "dirty"], "yielded and sent on, once"


async def test_failed_superstep_with_a_skipped_sibling_leaves_no_trace(maybe_storage: Any) -> None:
    stage = Stage()
    stage.failing = {"skipped", "fails"}
    workflow = pair(Relay("skipped", stage), Relay("fails", stage), maybe_storage, policies={"skipped": "skip"})
    events = await events_until_failure(workflow)
    assert kinds(events)[-3:] == ["superstep_discarded", "failed", "status"]
    stage.failing = set()
    result = await workflow.run(thread_id="t")
    assert [output for output in result.get_outputs() if "fails" in output] == ["x-fails"]
    assert result.get_final_state() is WorkflowRunState.IDLE


async def test_sleeper_of_a_failed_superstep_sleeps_again_after_a_resume(maybe_storage: Any) -> None:
    """With a journal its time is recorded; without a journal it is set again. It is not lost, and not doubled."""
    stage, woken = Stage(), list[str]()
    stage.failing = {"fails"}

    async def nap(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.sleep(10)
        woken.append(message)
        await ctx.send_message("napped")

    workflow = pair(Does("naps", nap), Relay("fails", stage), maybe_storage, clock=SkippingClock())
    await events_until_failure(workflow)
    assert woken == []
    stage.failing = set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x-fails", "napped"]
    assert woken == ["x"]


async def test_sleeper_that_fails_on_waking_leaves_the_thread_where_it_slept(maybe_storage: Any) -> None:
    stage, seen = Stage(), list[Any]()
    stage.failing = {"wakes"}

    async def nap(message: str, ctx: WorkflowContext[Any, Any]) -> None:
        seen.append(ctx.get_state("key"))
        ctx.set_state("key", "dirty")
        await ctx.sleep(10)
        await stage.play("wakes", message)
        await ctx.yield_output(ctx.get_state("key"))

    workflow = alone(Does("naps", nap), maybe_storage, clock=SkippingClock())
    await events_until_failure(workflow)
    stage.failing = set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["dirty"]
    assert seen == [None, None, None]


async def test_a_failure_in_a_sub_workflow_leaves_no_trace_in_child_or_parent(maybe_storage: Any) -> None:
    stage = Stage()

    def build() -> Workflow:
        first, tally, out = Relay("first", stage), Tally("tally", stage), Sink("out")
        child = WorkflowBuilder(name="child", start_executor=first).add_chain([first, tally, out]).build()
        return pair(WorkflowExecutor(child, "sub"), Tally("beside", stage), maybe_storage)

    workflow = build()
    stage.failing = {"tally"}
    with pytest.raises(SubWorkflowFailed) as failed:
        await workflow.run("x", thread_id="t")
    assert isinstance(failed.value.error, Boom)
    stage.failing = set()
    result = await workflow.run(thread_id="t")
    assert sorted(result.get_outputs()) == ["beside=1", "tally=1"]
    assert [stage.called(name) for name in ("first", "beside", "tally")] == [1, 1, 2]


async def test_a_failed_function_leaves_no_trace_but_its_recorded_steps(maybe_storage: Any) -> None:
    stage, calls = Stage(), list[str]()
    stage.failing = {"function"}

    @step
    async def note(word: str) -> str:
        calls.append(word)
        return word

    @as_workflow(name="function")
    async def function(message: str, ctx: RunContext) -> str:
        await note("a")
        seen = ctx.get_state("key")
        ctx.set_state("key", "dirty")
        await stage.play("function", message)
        return f"{seen} {await note('b')}"

    workflow = function.build(maybe_storage)
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    stage.failing = set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["None b"]
    assert calls == ["a", "b"]


async def test_log_keeps_committed_attempts_and_nothing_of_a_failed_superstep(storage: Any) -> None:
    stage = Stage()
    stage.failing = {"flaky"}
    flaky = Relay("flaky", stage)
    builder = WorkflowBuilder(name="flaky", start_executor=flaky, checkpoint_storage=storage)
    workflow = builder.add_edge(flaky, Sink("sink")).with_policy(flaky, retry=RetryPolicy(2, initial_delay=0)).build()
    await events_until_failure(workflow)
    logged = await logged_events(workflow)
    about = [event.type for event in logged if event.executor_id == "flaky"]
    assert about == ["executor_invoked", "executor_failed", "executor_retrying"], "the second attempt left nothing"
    assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
