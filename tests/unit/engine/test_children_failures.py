"""A failure inside a sub-workflow is a failure of the executor that runs it, with the child's error inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Never

import pytest
from tests.promises.stages import Boom, Stage, collect
from tests.unit.engine.nested import (
    THREAD,
    Give,
    Split,
    Take,
    around,
    asking,
    committed,
    deep,
    due,
    line,
    on_any_storage,
    outline,
    requests_of,
    seen,
)

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    StateConflict,
    SubWorkflowFailed,
    UnsavableValue,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
)


def failing(*ids: str) -> Stage:
    stage = Stage()
    stage.failing = set(ids)
    return stage


async def events_until_failure(workflow: Workflow, message: str = "x") -> list[WorkflowEvent]:
    events: list[WorkflowEvent] = []
    with pytest.raises(SubWorkflowFailed):
        await collect(workflow.run(message, stream=True, thread_id=THREAD), events)
    return events


# ---------------------------------------------------------------- errors and events


@on_any_storage
async def test_a_failed_child_is_raised_with_its_error_inside(make_storage: Callable[[], Any]) -> None:
    with pytest.raises(SubWorkflowFailed, match="'line' of executor 'sub' failed: Boom: b") as failed:
        await around(line(failing("b")), make_storage()).run("x")
    assert isinstance(failed.value.error, Boom)
    assert failed.value.__cause__ is failed.value.error
    assert (failed.value.executor_id, failed.value.workflow_name) == ("sub", "line")


async def test_failure_three_levels_down_is_a_failure_of_the_outermost_executor() -> None:
    with pytest.raises(SubWorkflowFailed) as failed:
        await deep(line(failing("a"), "a"), 3).run("x")
    assert failed.value.executor_id == "l1"
    assert isinstance(failed.value.error, Boom)


async def test_executors_around_a_failure_report_it_from_the_inside_out() -> None:
    events = await events_until_failure(deep(line(failing("a"), "a"), 2))
    failed = [event for event in events if event.type == "executor_failed"]
    assert [event.executor_id for event in failed] == ["l1/l2/a", "l1/l2", "l1"]
    assert {event.details.error_type for event in failed if event.details} == {"Boom"}
    assert events[-1].state is WorkflowRunState.FAILED
    [whole] = [event for event in events if event.type == "failed"]
    assert whole.details is not None and whole.details.executor_id == "l1/l2/a"


async def test_failure_is_reported_once_and_a_failed_executor_never_completes() -> None:
    events = await events_until_failure(around(line(failing("b"))))
    ended = ("executor_completed", "executor_failed")
    assert outline(events, *ended) == [
        ("executor_completed", "first"),
        ("executor_completed", "sub/a"),
        ("executor_failed", "sub/b"),
        ("executor_failed", "sub"),
    ]


# ---------------------------------------------------------------- the failure leaves no trace, and the thread resumes


@on_any_storage
async def test_failed_thread_resumes_inside_the_child(make_storage: Callable[[], Any]) -> None:
    stage = failing("b")
    flow = around(line(stage), make_storage())
    await events_until_failure(flow)
    stage.failing.clear()
    result = await flow.run(thread_id=THREAD)
    assert result.get_outputs() == ["x-a-b-c"]
    assert stage.calls == ["a(x)", "b(x-a)", "b(x-a)", "c(x-a-b)"]


async def test_a_failure_inside_a_child_leaves_the_checkpoint_before_as_the_head() -> None:
    stage, storage = failing("b"), InMemoryCheckpointStorage()
    await events_until_failure(around(line(stage), storage))
    assert [due(checkpoint) for checkpoint in await committed(storage)][-1] == ["sub/b"]


class Writer(Executor):
    """Writes and yields, and then fails if its stage does."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def write(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        ctx.set_state("tries", ctx.get_state("tries", 0) + 1)
        ctx.private["tries"] = ctx.private.get("tries", 0) + 1
        await ctx.yield_output(f"{ctx.get_state('tries')} {ctx.private['tries']}")
        await self.stage.play(self.id, message)


@on_any_storage
async def test_writes_and_outputs_of_a_failed_child_superstep_are_discarded(
    make_storage: Callable[[], Any],
) -> None:
    stage = failing("write")
    flow = around(WorkflowBuilder(name="writing", start_executor=Writer("write", stage)).build(), make_storage())
    events = await events_until_failure(flow)
    assert "superstep_discarded" in [event.type for event in events]
    stage.failing.clear()
    result = await flow.run(thread_id=THREAD)
    assert result.get_outputs() == ["1 1"]


async def test_a_failed_superstep_of_a_child_is_not_in_the_log() -> None:
    stage = failing("b")
    flow = around(line(stage), InMemoryCheckpointStorage())
    await events_until_failure(flow)
    async with flow.open(thread_id=THREAD) as run:
        logged = await seen(run.events(after=0))
    assert ("executor_invoked", "sub/a") in outline(logged, "executor_invoked")
    assert ("executor_invoked", "sub/b") not in outline(logged, "executor_invoked")


async def test_a_finished_sibling_child_is_not_run_again() -> None:
    """Both are in one superstep: one ends, then the other fails."""
    stage, storage = failing("bad"), InMemoryCheckpointStorage()
    stage.watch_journal(storage)
    stage.fails_after = 1

    def build() -> Workflow:
        first, good, bad = Split("first"), line(stage, "g", name="good"), line(stage, ["bad"], name="bad")
        last = Take("last")
        builder = WorkflowBuilder(name="two", start_executor=first, checkpoint_storage=storage)
        builder.add_fan_out_edges(first, [good, bad])
        return builder.add_edge(good, last).add_edge(bad, last).build()

    await events_until_failure(build())
    stage.failing.clear()
    result = await build().run(thread_id=THREAD)
    assert result.get_outputs() == ["x-g", "x-bad"]
    assert stage.calls == ["g(x)", "bad(x)", "bad(x)"]
    assert ("executor_bypassed", "good/g") in outline(result, "executor_bypassed")


async def test_without_a_storage_too_a_finished_sibling_child_is_not_run_again() -> None:
    stage = failing("bad")
    stage.close("bad")

    @executor
    async def good(text: str, ctx: WorkflowContext[Never, str]) -> None:
        stage.calls.append("good")
        stage.gates["bad"].set()

    first, bad = Split("first"), line(stage, ["bad"], name="two")
    finished = WorkflowBuilder(name="one", start_executor=good).build()
    flow = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [finished, bad]).build()
    await events_until_failure(flow)
    stage.failing.clear()
    await flow.run(thread_id=THREAD)
    assert stage.calls == ["good", "bad(x)", "bad(x)"]


async def test_siblings_in_other_children_are_cancelled_and_awaited() -> None:
    stage = failing("fails")
    stage.close("slow", "fails")
    first = Split("first")
    slow, fails = line(stage, ["slow"], name="one"), line(stage, ["fails"], name="two")
    flow = WorkflowBuilder(start_executor=first).add_fan_out_edges(first, [slow, fails]).build()
    running = asyncio.ensure_future(flow.run("x"))
    await stage.entered["slow"].wait()
    stage.gates["fails"].set()
    with pytest.raises(SubWorkflowFailed):
        await running
    assert stage.cancelled == ["slow"]


# ---------------------------------------------------------------- failures that no handler raised


def conflicting(stage: Stage) -> Workflow:
    """A child in which `one` and `two` write the same key if its input is `bad`."""

    async def write(text: str, ctx: WorkflowContext[Never, str]) -> None:
        stage.calls.append(f"{ctx.executor_id}({text})")
        if text == "bad" and "write" in stage.failing:
            ctx.set_state("key", ctx.executor_id)
        if ctx.executor_id == "one":
            await ctx.yield_output(text)

    start, writers = Split("start"), [executor(id=name)(write) for name in ("one", "two")]
    return WorkflowBuilder(name="conflict", start_executor=start).add_fan_out_edges(start, writers).build()


async def test_a_conflict_of_writes_in_a_child_is_a_failure_of_its_executor() -> None:
    with pytest.raises(SubWorkflowFailed, match="'sub'") as failed:
        await around(conflicting(failing("write"))).run("bad")
    assert isinstance(failed.value.error, StateConflict)
    assert "one" in str(failed.value) and "two" in str(failed.value)


async def test_a_conflict_in_one_child_does_not_repeat_its_sibling() -> None:
    stage, storage = failing("write"), InMemoryCheckpointStorage()
    await events_until_failure(around(conflicting(stage), storage), "good bad")
    stage.failing.clear()
    result = await around(conflicting(stage), storage).run(thread_id=THREAD)
    assert result.get_outputs() == ["good", "bad"]
    assert (stage.calls.count("one(good)"), stage.calls.count("one(bad)")) == (1, 2)


async def test_unsavable_value_in_the_state_of_a_child_is_named_with_its_child() -> None:
    @executor
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("report", {"author": object()})
        await ctx.send_message(text)

    child = WorkflowBuilder(start_executor=start).add_edge(start, Give("end", Stage())).build()
    with pytest.raises(UnsavableValue, match=r"sub.*state\['report'\]\['author'\]"):
        await around(child, InMemoryCheckpointStorage()).run("x")


# ---------------------------------------------------------------- its own superstep limit


def rounds(**options: Any) -> Workflow:
    """A child that goes round as often as its input is long."""

    @executor
    async def turn(text: str, ctx: WorkflowContext[str, str]) -> None:
        await (ctx.send_message(text[1:]) if len(text) > 1 else ctx.yield_output(text))

    return WorkflowBuilder(name="rounds", start_executor=turn, **options).add_edge(turn, turn).build()


async def test_a_child_has_its_own_superstep_limit() -> None:
    assert (await around(rounds(max_iterations=3)).run("abc")).get_outputs() == ["c"]
    flow = around(rounds(max_iterations=3))
    with pytest.raises(SubWorkflowFailed, match="'rounds' of executor 'sub'") as failed:
        await flow.run("abcd")
    assert isinstance(failed.value.error, WorkflowConvergenceException)
    assert "3" in str(failed.value.error)


async def test_child_that_reaches_its_limit_emits_executor_failed() -> None:
    events = await events_until_failure(around(rounds(max_iterations=2)), "abc")
    assert ("executor_failed", "sub") in outline(events, "executor_failed")


async def test_the_limit_counts_each_child_by_itself() -> None:
    assert (await around(rounds(max_iterations=2)).run("ab cd ef")).get_outputs() == ["b", "d", "f"]


async def test_supersteps_of_a_child_do_not_count_towards_its_parents_limit() -> None:
    """The parent makes four supersteps of its own; how long its child takes is the child's business."""
    first, last, sub = Split("first"), Take("last"), WorkflowExecutor(rounds(), "sub")
    builder = WorkflowBuilder(start_executor=first, max_iterations=5).add_edge(first, sub).add_edge(sub, last)
    assert (await builder.build().run("abcdefghijkl")).get_outputs() == ["l"]


async def test_child_continues_its_superstep_count_after_a_restart() -> None:
    storage, stage = InMemoryCheckpointStorage(), failing("b")

    def build() -> Workflow:
        return around(line(stage, "abcd", max_iterations=3), storage)

    await events_until_failure(build())
    stage.failing.clear()
    with pytest.raises(SubWorkflowFailed) as failed:
        await build().run(thread_id=THREAD)
    assert isinstance(failed.value.error, WorkflowConvergenceException)


async def test_answer_resets_the_superstep_count_of_a_child() -> None:
    ask = asking().get_start_executor()
    front = Split("front")
    child = WorkflowBuilder(name="asks", start_executor=front, max_iterations=2).add_edge(front, ask).build()
    flow = around(child, propagate_request=True)
    asked = requests_of(await flow.run("p", thread_id=THREAD))
    assert (await flow.run(responses={asked["p"]: "A"}, thread_id=THREAD)).get_outputs() == ["p=A"]
