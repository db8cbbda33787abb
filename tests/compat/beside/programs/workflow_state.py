"""Shared state and the methods of a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
)


@dataclass
class Basket:
    items: list[str]


class Writer(Executor):
    @handler
    async def write(self, message: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("text", message)
        ctx.set_state("list", [*ctx.get_state("list", []), message])
        ctx.set_state("basket", Basket([message]))
        ctx.set_state("none", None)
        await ctx.send_message(message)


class Reader(Executor):
    @handler
    async def read(self, message: str, ctx: WorkflowContext[Never, Any]) -> None:
        basket = ctx.get_state("basket")
        missing = [ctx.get_state("missing"), ctx.get_state("missing", 5), ctx.get_state("none", "default")]
        await ctx.yield_output([ctx.get_state("text"), ctx.get_state("list"), basket.items, missing])


def build(**options: Any) -> Any:
    writer, reader = Writer(id="writer"), Reader(id="reader")
    return WorkflowBuilder(start_executor=writer, name="w", **options).add_edge(writer, reader).build()


async def kept_between_runs() -> Any:
    workflow = build()
    return [(await workflow.run(text)).get_outputs() for text in ("a", "b")]


async def apart_between_workflows() -> Any:
    return [(await build().run(text)).get_outputs() for text in ("a", "b")]


async def in_checkpoints() -> Any:
    storage = InMemoryCheckpointStorage()
    await build(checkpoint_storage=storage).run("a")
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="w"), key=lambda each: each.iteration_count)
    states = [
        {key: value for key, value in each.state.items() if not key.startswith("_") and key != "basket"}
        for each in checkpoints
    ]
    other = build(checkpoint_storage=storage)
    again = await other.run(checkpoint_id=checkpoints[1].checkpoint_id)
    return [states, again.get_outputs(), (await other.run("b")).get_outputs()]


async def written_and_read_in_one_handler() -> Any:
    @executor(id="only")
    async def only(message: str, ctx: WorkflowContext[Never, Any]) -> None:
        before = ctx.get_state("k", "nothing")
        ctx.set_state("k", message)
        await ctx.yield_output([before, ctx.get_state("k")])

    workflow = WorkflowBuilder(start_executor=only).build()
    return [(await workflow.run(text)).get_outputs() for text in ("a", "b")]


async def of_the_context() -> Any:
    @executor(id="only")
    async def only(message: str, ctx: WorkflowContext[str, Any]) -> None:
        await ctx.send_message("one")
        await ctx.send_message("two", target_id="end")
        await ctx.yield_output(1)
        sent, yielded = ctx.get_sent_messages(), ctx.get_yielded_outputs()
        sent.append("not sent")
        facts = [ctx.get_sent_messages(), yielded, ctx.is_streaming(), ctx.request_id, ctx.get_source_executor_id()]
        await ctx.yield_output(facts)

    @executor(id="end")
    async def end(message: str, ctx: WorkflowContext) -> None: ...

    workflow = WorkflowBuilder(start_executor=only).add_edge(only, end).build()
    plain = (await workflow.run("x")).get_outputs()
    events = [event async for event in workflow.run("x", stream=True)]
    streamed = [event.data for event in events if event.type == "output"]
    completed = [event.data for event in events if event.type == "executor_completed"]
    return [plain, streamed, [len(data) if data else data for data in completed]]


async def of_events() -> Any:
    seen: list[Any] = []

    @executor(id="only")
    async def only(message: list[str], ctx: WorkflowContext[list[str], list[str]]) -> None:
        message.append("changed")
        await ctx.yield_output(message)
        message.append("again")
        await ctx.add_event(WorkflowEvent("note", data={"k": 1}))

    async for event in WorkflowBuilder(start_executor=only).build().run(["x"], stream=True):
        if event.type in ("executor_invoked", "output", "executor_completed", "note"):
            seen.append([event.type, event.data if event.type != "output" else event.data[0]])
    return seen


async def main() -> Any:
    parts = (
        *(kept_between_runs, apart_between_workflows, in_checkpoints, written_and_read_in_one_handler),
        *(of_the_context, of_events),
    )
    return {part.__name__: await part() for part in parts}
