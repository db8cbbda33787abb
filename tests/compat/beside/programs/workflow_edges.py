"""How messages find their targets: conditions, fan-out, fan-in, switches, selections, named targets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Never

from flows import Case, Default, Executor, WorkflowBuilder, WorkflowContext, executor, handler


@dataclass
class Mail:
    text: str
    tags: list[str]


class Collect(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.seen: list[Any] = []

    @handler
    async def take(self, message: Mail, ctx: WorkflowContext[str, str]) -> None:
        self.seen.append(message.text)
        await ctx.yield_output(f"{self.id}:{message.text}")
        await ctx.send_message(f"{self.id}:{message.text}")


class Start(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Mail]) -> None:
        text, _, tags = message.partition("#")
        await ctx.send_message(Mail(text, tags.split()))

    @handler
    async def many(self, messages: list[str], ctx: WorkflowContext[Mail]) -> None:
        for message in messages:
            await ctx.send_message(Mail(message, []))


class Aimed(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Mail]) -> None:
        await ctx.send_message(Mail("to b", []), target_id="b")
        await ctx.send_message(Mail("to all", []))


class Join(Executor):
    @handler
    async def take(self, messages: list[str], ctx: WorkflowContext[Never, Any]) -> None:
        await ctx.yield_output([messages, ctx.source_executor_ids])


def three() -> list[Collect]:
    return [Collect(name) for name in "abc"]


async def outputs(workflow: Any, message: Any) -> Any:
    try:
        return sorted((await workflow.run(message)).get_outputs(), key=str)
    except Exception as error:  # noqa: BLE001
        return next(kind.__name__ for kind in (RuntimeError, ValueError, TypeError) if isinstance(error, kind))


async def conditions() -> Any:
    start, (a, b, c) = Start("start"), three()

    async def is_long(mail: Mail) -> bool:
        await asyncio.sleep(0)
        return len(mail.text) > 3

    builder = WorkflowBuilder(start_executor=start)
    builder.add_edge(start, a, condition=is_long).add_edge(start, b, condition=lambda mail: "x" in mail.tags)
    workflow = builder.add_edge(start, c).build()
    return [await outputs(workflow, text) for text in ("long text#", "s#x", "long#x", "s")]


async def failing_condition() -> Any:
    start, (a, *_) = Start("start"), three()

    def fails(mail: Mail) -> bool:
        raise ValueError("no")

    return await outputs(WorkflowBuilder(start_executor=start).add_edge(start, a, condition=fails).build(), "x")


async def fan_out() -> Any:
    start, targets = Start("start"), three()
    workflow = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, targets).build()
    first = await outputs(workflow, "x")
    second = await outputs(workflow, ["1", "2"])
    return [first, second, [target.seen for target in targets]]


async def fan_in() -> Any:
    start, (a, b, c), join = Start("start"), three(), Join("join")
    builder = WorkflowBuilder(start_executor=start, output_from=[join]).add_fan_out_edges(start, [a, b, c])
    workflow = builder.add_fan_in_edges([c, a, b], join).build()
    return [await outputs(workflow, "x"), await outputs(workflow, "y")]


async def fan_in_over_supersteps() -> Any:
    start, (a, b, _), join = Start("start"), three(), Join("join")

    @executor(id="slow")
    async def slow(message: Mail, ctx: WorkflowContext[Mail]) -> None:
        await ctx.send_message(message)

    builder = WorkflowBuilder(start_executor=start, output_from=[join])
    builder.add_fan_out_edges(start, [a, slow]).add_edge(slow, b)
    workflow = builder.add_fan_in_edges([a, b], join).build()
    return [await outputs(workflow, "x"), await outputs(workflow, "y")]


async def switches() -> Any:
    start, (a, b, c) = Start("start"), three()

    cases = [
        Case(condition=lambda mail: mail.text == "a", target=a),
        Case(condition=lambda mail: "b" in mail.text, target=b),
        Default(target=c),
    ]
    workflow = WorkflowBuilder(start_executor=start).add_switch_case_edge_group(start, cases).build()
    return [await outputs(workflow, text) for text in ("a", "b", "z")]


async def selections() -> Any:
    start, targets = Start("start"), three()
    asked: list[Any] = []

    def select(mail: Mail, ids: list[str]) -> list[str]:
        asked.append(ids)
        return [name for name in mail.tags if name != "none"]

    workflow = WorkflowBuilder(start_executor=start).add_multi_selection_edge_group(start, targets, select).build()
    results = [await outputs(workflow, text) for text in ("x#a c", "x#b", "x#", "x#wrong")]
    return [results, asked[0]]


async def named_targets() -> Any:
    start, (a, b, c) = Aimed("start"), three()
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, a).add_edge(start, b).build()
    again, other = Aimed("again"), Collect("b")
    fanned = WorkflowBuilder(start_executor=again).add_fan_out_edges(again, [other, c]).build()
    return [await outputs(workflow, "x"), a.seen, b.seen, await outputs(fanned, "x"), other.seen, c.seen]


async def unhandled_types() -> Any:
    @executor(id="numbers")
    async def numbers(message: int | Mail, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"got {type(message).__name__}")

    @executor(id="both")
    async def both(message: str, ctx: WorkflowContext[int | float]) -> None:
        await ctx.send_message(1)
        await ctx.send_message(1.5)

    return await outputs(WorkflowBuilder(start_executor=both).add_edge(both, numbers).build(), "x")


async def order_of_messages() -> Any:
    start, (a, *_) = Start("start"), three()
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, a).build()
    return (await workflow.run([str(number) for number in range(8)])).get_outputs()


async def chains_and_loops() -> Any:
    @executor(id="one")
    async def one(message: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(message + 1)

    @executor(id="two")
    async def two(message: int, ctx: WorkflowContext[int, int]) -> None:
        if message < 5:
            await ctx.send_message(message)
        else:
            await ctx.yield_output(message)

    loop = WorkflowBuilder(start_executor=one).add_edge(one, two).add_edge(two, one).build()
    chain = WorkflowBuilder(start_executor=one).add_chain([one, two]).build()
    return [await outputs(loop, 0), await outputs(chain, 4), await outputs(chain, 0)]


async def sources() -> Any:
    seen: list[Any] = []

    @executor(id="first")
    async def first(message: str, ctx: WorkflowContext[str]) -> None:
        seen.append([ctx.get_source_executor_id(), ctx.source_executor_ids])
        await ctx.send_message(message)

    @executor(id="second")
    async def second(message: str, ctx: WorkflowContext) -> None:
        seen.append([ctx.get_source_executor_id(), ctx.source_executor_ids])

    class Joined(Executor):
        @handler
        async def take(self, messages: list[str], ctx: WorkflowContext) -> None:
            try:
                seen.append(ctx.get_source_executor_id())
            except RuntimeError:
                seen.append(sorted(ctx.source_executor_ids))

    await WorkflowBuilder(start_executor=first).add_edge(first, second).build().run("x")
    start, (a, b, _) = Start("start"), three()
    joined = Joined("joined")
    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [a, b])
    await builder.add_fan_in_edges([a, b], joined).build().run("x")
    return seen


async def main() -> Any:
    parts = (
        *(conditions, failing_condition, fan_out, fan_in, fan_in_over_supersteps, switches, selections),
        *(named_targets, unhandled_types, order_of_messages, chains_and_loops, sources),
    )
    return {part.__name__: await part() for part in parts}
