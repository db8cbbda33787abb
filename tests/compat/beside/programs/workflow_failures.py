"""After a failed run: what the workflow object, its state and its executors are, and what takes a new message."""

from __future__ import annotations

import asyncio
from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowExecutor,
    executor,
    handler,
)


class Brittle(Executor):
    """Fails at some messages."""

    def __init__(self, id: str, bad: list[str]) -> None:
        super().__init__(id=id)
        self.bad = bad
        self.seen: list[str] = []

    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None:
        self.seen.append(message)
        if message in self.bad:
            raise ValueError(f"cannot take {message}")
        ctx.set_state("last", message)
        if self.id == "brittle":
            await ctx.send_message(message)
        await ctx.yield_output(f"{self.id}:{message}")


@executor(id="start")
async def start(message: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("started", ctx.get_state("started", 0) + 1)
    await ctx.send_message(message)


@executor(id="count")
async def count(message: str, ctx: WorkflowContext[Never, Any]) -> None:
    await ctx.yield_output([message, ctx.get_state("started"), ctx.get_state("last")])


async def attempt(work: Any) -> Any:
    try:
        return (await work).get_outputs()
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__, str(error)]


async def after_a_failure(**options: Any) -> Any:
    bad = ["x"]
    brittle = Brittle("brittle", bad)
    workflow = (
        WorkflowBuilder(start_executor=start, **options).add_edge(start, brittle).add_edge(brittle, count).build()
    )
    results = [await attempt(workflow.run("x")), workflow.status.value]
    results += [await attempt(workflow.run("y")), workflow.status.value]
    results += [await attempt(workflow.run("x")), await attempt(workflow.run("x"))]
    bad.clear()
    return [*results, await attempt(workflow.run("x")), brittle.seen]


async def without_storage() -> Any:
    return await after_a_failure()


async def with_storage() -> Any:
    return await after_a_failure(checkpoint_storage=InMemoryCheckpointStorage())


async def in_the_first_executor() -> Any:
    brittle = Brittle("brittle", ["x"])
    workflow = WorkflowBuilder(start_executor=brittle).build()
    return [await attempt(workflow.run(text)) for text in ("x", "y", "x", "z")]


async def streamed() -> Any:
    workflow = WorkflowBuilder(start_executor=Brittle("alone", ["x"])).build()
    results = []
    for text in ("x", "y"):
        kinds = []
        try:
            async for event in workflow.run(text, stream=True):
                kinds.append(event.type if event.state is None else event.state.value)
        except ValueError as error:
            kinds.append(str(error))
        results.append([kind for kind in kinds if kind not in ("superstep_discarded", "warning")])
    return results


async def at_the_limit() -> Any:
    @executor(id="again")
    async def again(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(message)

    @executor(id="and_again")
    async def and_again(message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(message)

    builder = WorkflowBuilder(start_executor=again, max_iterations=3)
    workflow = builder.add_edge(again, and_again).add_edge(and_again, again).build()
    results: list[Any] = []
    try:
        await workflow.run("x")
    except WorkflowConvergenceException:
        results.append("did not converge")
    try:
        await workflow.run("y")
    except RuntimeError as error:
        results.append("in-flight" in str(error))
    return results


async def in_a_child() -> Any:
    inner = WorkflowBuilder(start_executor=(brittle := Brittle("brittle", ["x"])), name="inner").build()
    child = WorkflowExecutor(inner, id="child")
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, child).add_edge(child, count).build()
    first = (await attempt(workflow.run("x")))[0]
    return [first in ("ValueError", "SubWorkflowFailed"), (await attempt(workflow.run("y")))[0][0], brittle.id]


async def cancelled() -> Any:
    waiting, ending = asyncio.Event(), asyncio.Event()

    @executor(id="slow")
    async def slow(message: str, ctx: WorkflowContext[Never, str]) -> None:
        if message == "slow":
            waiting.set()
            await ending.wait()
        await ctx.yield_output(message)

    workflow = WorkflowBuilder(start_executor=slow).build()
    task = asyncio.ensure_future(workflow.run("slow"))
    await waiting.wait()
    task.cancel()
    ending.set()  # 1.13 does not cancel the executor
    try:
        await task
    except asyncio.CancelledError:
        pass
    return await attempt(workflow.run("quick"))


async def main() -> Any:
    parts = (
        *(without_storage, with_storage, in_the_first_executor, streamed, at_the_limit),
        *(in_a_child, cancelled),
    )
    return {part.__name__: await part() for part in parts}
