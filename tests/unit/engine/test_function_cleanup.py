"""Cleaning up, cancelling and giving up: code is written for the end of its work, not for the pauses in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest
from tests.unit.engine.function_flows import Calls, answer, begin, questions, resume
from tests.unit.engine.policy_flows import Context, SkippingClock, alone, cancelled, of_kind, started

from perdure import (
    FunctionalWorkflow,
    InMemoryCheckpointStorage,
    InvalidRun,
    RequestWithdrawn,
    RunContext,
    WorkflowRunnerException,
    WorkflowRunState,
    workflow,
)


class Connection:
    """Its closing takes some turns of the event loop, like that of anything on a network."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def __aenter__(self) -> Connection:
        self._log.append("open")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in range(200):
            await asyncio.sleep(0)
        self._log.append("closed")


def locking(calls: Calls, pause: Callable[[RunContext], Any]) -> FunctionalWorkflow[Any, Any]:
    """Locks, pauses, works, and unlocks whatever happens."""
    do = calls.step(name="do")

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        await do("lock")
        try:
            await pause(ctx)
            await do("work")
        finally:
            await do("unlock")
        return "done"

    return flow


# ---------------------------------------------------------------- steps in code that cleans up


async def test_a_step_in_finally_is_not_called_while_the_function_sleeps() -> None:
    calls = Calls()
    flow = locking(calls, lambda ctx: ctx.sleep(60))
    result = await begin(flow, InMemoryCheckpointStorage(), clock=SkippingClock())
    assert result.get_outputs() == ["done"] and not of_kind(result, "warning")
    assert calls == ["lock", "work", "unlock"]


async def test_step_in_finally_is_not_called_while_a_question_is_pending() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    flow = locking(calls, lambda ctx: ctx.request_info("ok?", str))
    asked = await begin(flow, storage)
    assert calls == ["lock"]
    result = await answer(flow, storage, asked, {"ok?": "yes"})
    assert result.get_outputs() == ["done"] and not of_kind(result, "warning")
    assert calls == ["lock", "work", "unlock"]


async def test_a_step_in_finally_is_not_called_when_the_run_is_cancelled() -> None:
    calls, storage, begun = Calls(), InMemoryCheckpointStorage(), asyncio.Event()

    async def hang_once(_: RunContext) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()

    flow = locking(calls, hang_once)
    run = started(begin(flow, storage))
    await begun.wait()
    await cancelled(run)
    assert calls == ["lock"]
    assert (await resume(flow, storage)).get_outputs() == ["done"]
    assert calls == ["lock", "work", "unlock"]


async def test_a_step_in_the_finally_of_a_handler_is_not_called_while_it_sleeps() -> None:
    calls: list[str] = []

    async def work(message: Any, ctx: Context) -> None:
        try:
            await ctx.sleep(60)
            await ctx.step(calls.append, "work", name="do")
        finally:
            await ctx.step(calls.append, "unlock", name="do")
        await ctx.yield_output("done")

    result = await alone(work, clock=SkippingClock()).run("x")
    assert result.get_outputs() == ["done"] and calls == ["work", "unlock"]


async def test_writes_of_a_function_that_caught_its_suspension_are_discarded() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            await ctx.request_info("ok?", str)
        except BaseException:
            ctx.set_state("given up", True)
            raise
        return f"given up: {ctx.get_state('given up', False)}"

    asked = await begin(flow, storage)
    assert (await answer(flow, storage, asked, {"ok?": "yes"})).get_outputs() == ["given up: False"]


# ---------------------------------------------------------------- cleaning up takes time, fails, or is refused


async def test_a_connection_of_a_function_is_closed_completely_at_each_pause() -> None:
    log: list[str] = []

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        async with Connection(log):
            await ctx.sleep(60)
        return "done"

    assert (await begin(flow, None, clock=SkippingClock())).get_outputs() == ["done"]
    assert log == ["open", "closed", "open", "closed"]


async def test_handler_with_slow_cleanup_sleeps_and_its_run_is_not_cancelled() -> None:
    log: list[str] = []

    async def work(message: Any, ctx: Context) -> None:
        async with Connection(log):
            await ctx.sleep(60)
        await ctx.yield_output("done")

    assert (await alone(work, clock=SkippingClock()).run("x")).get_outputs() == ["done"]
    assert log == ["open", "closed", "open", "closed"]


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a task group"])
async def test_an_error_that_code_makes_of_its_suspension_is_dropped_with_it(grouped: bool) -> None:
    async def nap(ctx: RunContext) -> None:
        try:
            await ctx.sleep(60)
        except BaseException as error:
            raise ValueError("session closed") from error

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        if not grouped:
            await nap(ctx)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(nap(ctx))
        return "done"

    assert (await begin(flow, None, clock=SkippingClock())).get_outputs() == ["done"]


async def test_function_that_catches_every_suspension_fails_and_does_not_block() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @workflow
    async def poller(_: str, ctx: RunContext) -> None:
        for _round in range(10_000):
            with contextlib.suppress(asyncio.CancelledError):
                await ctx.sleep(60)

    other = asyncio.create_task(turn())
    with pytest.raises(WorkflowRunnerException, match="'poller' catches its cancellation"):
        await begin(poller, None, clock=SkippingClock())
    other.cancel()
    assert turns > 50


# ---------------------------------------------------------------- what code cancels itself


async def test_a_step_that_timed_out_once_is_not_called_again_at_each_pause() -> None:
    calls: list[str] = []
    ways: list[str] = []

    async def pay(name: str) -> None:
        calls.append(name)
        await asyncio.Event().wait()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.step(pay, "rent")
        except TimeoutError:
            ways.append("too late")
        for _round in range(3):
            await ctx.sleep(60)
        return "done"

    result = await begin(flow, InMemoryCheckpointStorage(), clock=SkippingClock())
    assert result.get_outputs() == ["done"] and not of_kind(result, "warning")
    assert (calls, ways) == (["rent"], ["too late"] * 4)


def first_answer_wins() -> FunctionalWorkflow[Any, Any]:
    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        tasks = [asyncio.create_task(ctx.request_info(who, str, request_id=who)) for who in ("ann", "bob")]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await ctx.sleep(60)
        await ctx.request_info("go on?", str)
        return [task.result() for task in done]

    return flow


async def test_question_that_lost_a_race_is_withdrawn_before_the_function_ends() -> None:
    storage, clock = InMemoryCheckpointStorage(), SkippingClock()
    flow = first_answer_wins()
    await begin(flow, storage, clock=clock)
    asked = await resume(flow, storage, clock=clock, responses={"bob": "yes"})
    assert list(questions(asked)) == ["go on?"]
    with pytest.raises(RequestWithdrawn):
        await resume(flow, storage, clock=clock, responses={"ann": "too late"})
    result = await answer(flow, storage, asked, {"go on?": "yes"}, clock=clock)
    assert (result.get_outputs(), result.get_final_state()) == ([["yes"]], WorkflowRunState.IDLE)


# ---------------------------------------------------------------- request ids that are used again


async def test_reused_request_id_asks_again_and_ignores_the_first_answer() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(_: str, ctx: RunContext) -> list[str]:
        return [await ctx.request_info(what, str, request_id="approval") for what in ("rename?", "delete all?")]

    await begin(flow, storage)
    asked = await resume(flow, storage, responses={"approval": "yes"})
    assert (asked.get_outputs(), questions(asked)) == ([], {"delete all?": "approval"})
    result = await resume(flow, storage, responses={"approval": "no"})
    assert result.get_outputs() == [["yes", "no"]]


async def test_second_message_with_a_pending_id_is_rejected_and_asks_later() -> None:
    storage = InMemoryCheckpointStorage()

    @workflow
    async def flow(name: str, ctx: RunContext) -> str:
        return f"{name}: {await ctx.request_info(name, str, request_id='approval')}"

    await begin(flow, storage, "first")
    with pytest.raises(InvalidRun, match="'approval' is already pending"):
        await begin(flow, storage, "second")
    asked = await resume(flow, storage, responses={"approval": "yes"})
    assert (asked.get_outputs(), questions(asked)) == (["first: yes"], {"second": "approval"})
    assert (await resume(flow, storage, responses={"approval": "no"})).get_outputs() == ["second: no"]
