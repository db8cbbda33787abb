"""Policies for an executor that fails: retry, timeout, skip, isolate, or replace it by another executor.

The clock is a FakeClock, so the delays and timeouts take no real time.

    python examples/failure_policies.py
"""

import asyncio
from typing import Never

from perdure import (
    Executor,
    ResponseStream,
    RetryPolicy,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunResult,
    executor,
)
from perdure.testing import FakeClock, ScriptedExecutor

clock = FakeClock()


@executor
async def start(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text)


@executor(id="print", input=str, workflow_output=str)
async def printer(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text)


async def run(title: str, service: Executor) -> None:
    """Run a service between start and printer, and print its events and the outputs."""
    builder = WorkflowBuilder(start_executor=start, clock=clock).add_edge(start, service).add_edge(service, printer)
    print(title)
    async with clock.skipping():  # the clock advances when all tasks wait
        await show(builder.build().run("hello", stream=True))


async def show(stream: ResponseStream[WorkflowEvent, WorkflowRunResult]) -> None:
    async for event in stream:
        error = event.details.error_type if event.details else None
        if event.type == "executor_retrying":
            print(f"   {event.executor_id} failed: {error}; again in {event.data['delay_seconds']:g} s")
        elif event.type == "executor_skipped":
            print(f"   {event.executor_id} failed: {error}; {event.data}")
    print("   outputs:", (await stream.get_final_response()).get_outputs())


# Scripted executors: each reply is for one attempt.
flaky = ScriptedExecutor(
    "flaky", [ConnectionError("busy"), ConnectionError("busy"), "served"], input=str, retry=RetryPolicy(3)
)
broken = ScriptedExecutor("broken", [ConnectionError("out of order")], input=str, on_error="skip")
spare = ScriptedExecutor("spare", ["served by the spare"], input=str)
replaced = ScriptedExecutor("replaced", [ConnectionError("out of order")], input=str, on_error=spare)


@executor(timeout=30, on_error="skip")
async def slow(text: str, ctx: WorkflowContext[str]) -> None:
    await clock.sleep(3600)
    await ctx.send_message("too late")


async def isolate() -> None:
    """Run a fan-in that waits for all its senders except the isolated one."""
    quick = ScriptedExecutor("quick", ["one half"], input=str)
    lost = ScriptedExecutor("lost", [ConnectionError("gone")], input=str, output=str, on_error="isolate")

    @executor
    async def join(parts: list[str], ctx: WorkflowContext[Never, list[str]]) -> None:
        await ctx.yield_output(parts)

    builder = WorkflowBuilder(start_executor=start, clock=clock)
    workflow = builder.add_fan_out_edges(start, [quick, lost]).add_fan_in_edges([quick, lost], join).build()
    print('on_error="isolate": a fan-in continues without the sender that failed')
    await show(workflow.run("hello", stream=True))


async def main() -> None:
    await run("retry=RetryPolicy(3): up to three attempts", flaky)
    await run('timeout=30, on_error="skip": given up in time, and nothing is sent on', slow)
    await run('on_error="skip": the message is dropped', broken)
    await isolate()
    await run("on_error=spare: another executor gets the message", replaced)


if __name__ == "__main__":
    asyncio.run(main())
