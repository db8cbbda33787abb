"""Small workflows over a storage, for the tests of the testing helpers."""

from __future__ import annotations

from typing import Any, Never

from perdure import Workflow, WorkflowBuilder, WorkflowContext, WorkflowExecutor, executor


async def strip(text: str) -> str:
    return text.strip()


async def length(text: str) -> int:
    return len(text)


def two_steps(storage: Any) -> Workflow:
    """`"hi"` comes out as `"<HI>"`, after two supersteps."""

    @executor
    async def shout(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text.upper())

    @executor
    async def frame(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"<{text}>")

    return WorkflowBuilder(name="two", start_executor=shout, checkpoint_storage=storage).add_edge(shout, frame).build()


def fan_out(storage: Any, survivors: list[str] | None = None) -> Workflow:
    """Two siblings at once: whichever ends first is recorded. `survivors` collects errors that were caught."""

    @executor
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    @executor
    async def left(text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"left {text}")

    @executor
    async def right(text: str, ctx: WorkflowContext[Never, str]) -> None:
        try:
            await ctx.step(strip, text)
        except Exception as error:
            if survivors is None:
                raise
            survivors.append(repr(error))
        await ctx.yield_output(f"right {text}")

    builder = WorkflowBuilder(name="fan", start_executor=start, checkpoint_storage=storage)
    return builder.add_fan_out_edges(start, [left, right]).build()


def nested(storage: Any) -> Workflow:
    """Two children of one sub-workflow, whose executor calls a step."""

    @executor
    async def measure(text: str, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(await ctx.step(length, text))

    child = WorkflowBuilder(name="child", start_executor=measure).build()

    @executor
    async def split(text: str, ctx: WorkflowContext[str]) -> None:
        for word in text.split():
            await ctx.send_message(word)

    @executor(id="tell")
    async def pass_on(length: int, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(length)

    inner = WorkflowExecutor(child, "inner")
    builder = WorkflowBuilder(name="outer", start_executor=split, checkpoint_storage=storage)
    return builder.add_chain([split, inner, pass_on]).build()
