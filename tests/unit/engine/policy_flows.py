"""Work that fails, waits and is counted, for the tests of failure policies, steps and sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from perdure import (
    Executor,
    FunctionExecutor,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunResult,
)
from perdure.testing import FakeClock

Context: TypeAlias = WorkflowContext[Any, Any]

AT_ONCE = RetryPolicy(3, initial_delay=0)
"""Three attempts without a pause."""


class Boom(Exception):
    """What failing work raises."""


@dataclass
class Flaky:
    """Fails the first times, and keeps what it was called with: like the world, it is never put back."""

    failures: int = 1
    calls: list[Any] = field(default_factory=list)

    def meet(self, what: Any = "") -> None:
        self.calls.append(what)
        if len(self.calls) <= self.failures:
            raise Boom(f"attempt {len(self.calls)}")


class SkippingClock(FakeClock):
    """Waiting takes no time: one turn after a sleep begins, the clock is at its end. Not for work with a timeout."""

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        await asyncio.sleep(0)
        self.advance(max(0.0, until - self.monotonic()))


def worker(name: str, work: Callable[[Any, Context], Any], *, accepts: Any = object, **policy: Any) -> Executor:
    """An executor of one line: `work(message, ctx)`, which may give something to await."""

    async def call(message: Any, ctx: Context) -> None:
        made = work(message, ctx)
        if made is not None:
            await made

    return FunctionExecutor(call, name, input=accepts, output=object, workflow_output=object, **policy)


def failing(name: str, flaky: Flaky, **policy: Any) -> Executor:
    """Sends on what it gets with its own name added, once the flaky part is over."""

    async def work(message: Any, ctx: Context) -> None:
        flaky.meet(message)
        await ctx.send_message(f"{message}-{name}")

    return worker(name, work, **policy)


def relay(name: str, **policy: Any) -> Executor:
    """Sends on what it gets with its own name added."""
    return failing(name, Flaky(0), **policy)


def sink(name: str = "sink") -> Executor:
    """Yields what it gets."""
    return worker(name, lambda message, ctx: ctx.yield_output(message))


def alone(work: Callable[[Any, Context], Any], *, policy: dict[str, Any] | None = None, **options: Any) -> Workflow:
    """A workflow of one executor, called `only`."""
    return WorkflowBuilder(name="alone", start_executor=worker("only", work, **(policy or {})), **options).build()


def napping(*seconds: Any, woken: list[str] | None = None, **options: Any) -> Workflow:
    """Sleeps so long, each in turn, and yields when it has slept."""

    async def nap(message: Any, ctx: Context) -> None:
        for duration in seconds:
            await ctx.sleep(duration)
        if woken is not None:
            woken.append(message)
        await ctx.yield_output(f"{message} woke")

    return alone(nap, **options)


def chained(*executors: Executor, **options: Any) -> Workflow:
    builder = WorkflowBuilder(name="chained", start_executor=executors[0], **options)
    return builder.add_chain(executors).build()


def fan(*siblings: Executor, **options: Any) -> Workflow:
    """source -> each of the siblings -> join, which yields the list."""
    source = worker("source", lambda message, ctx: ctx.send_message(message))
    return (
        WorkflowBuilder(name="fan", start_executor=source, **options)
        .add_fan_out_edges(source, siblings)
        .add_fan_in_edges(siblings, worker("join", lambda message, ctx: ctx.yield_output(message), accepts=list))
        .build()
    )


def started(work: Coroutine[Any, Any, WorkflowRunResult]) -> asyncio.Task[WorkflowRunResult]:
    return asyncio.get_running_loop().create_task(work)


async def asleep(clock: FakeClock, run: asyncio.Task[WorkflowRunResult], sleepers: int = 1) -> None:
    """Return once the run waits for the clock; raises what it raised if it ended instead."""
    waiting = asyncio.get_running_loop().create_task(clock.wait_for_sleepers(sleepers))
    await asyncio.wait([waiting, run], return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        raise AssertionError(f"the run ended instead of waiting: {run.result()}")


async def cancelled(run: asyncio.Task[WorkflowRunResult]) -> None:
    """End the run as a dying process would, and wait for it."""
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled(), run


def of_kind(events: list[WorkflowEvent], *wanted: str) -> list[WorkflowEvent]:
    return [event for event in events if event.type in wanted]


def executor_outline(events: list[WorkflowEvent], prefix: str = "executor_") -> list[tuple[str, str | None]]:
    """The executor events, in short form: `("failed", "a")`."""
    return [(event.type.removeprefix(prefix), event.executor_id) for event in events if event.type.startswith(prefix)]
