"""Workflows for the tests of the client. Copied into a project."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import RunContext, WorkflowBuilder, WorkflowContext, executor, workflow
from perdure.agents import Content, Message

HERE = Path(__file__).parent


@executor
async def opening(text: str, ctx: WorkflowContext[str, list[Message]]) -> None:
    with (HERE / "begun").open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    call = Content.from_function_call(call_id="c1", name="count", arguments='{"to": 3}')
    messages = [Message("assistant", [f"{text}, part {part}", call], "opening", f"id-{part}") for part in range(3)]
    await ctx.yield_output(messages)
    await ctx.send_message(text)


@executor
async def middle(text: str, ctx: WorkflowContext[str]) -> None:
    if text.startswith("fail"):
        raise RuntimeError("as told")
    if text.startswith("gate"):
        (HERE / f"{text}.here").touch()
        while not (HERE / f"{text}.open").exists():  # noqa: ASYNC110  # opened by another process
            await asyncio.sleep(0.005)
    await ctx.send_message(text)


@executor
async def closing(text: str, ctx: WorkflowContext[str, str | dict[str, object]]) -> None:
    await ctx.yield_output({"over": text, "numbers": [1, 2.5, None]})
    await ctx.yield_output(f"{text} is over")


parade = WorkflowBuilder(name="parade", start_executor=opening).add_chain([opening, middle, closing]).build()


@workflow
async def asking(topic: str, ctx: RunContext) -> str:
    title = await ctx.request_info(f"A title for {topic}?", str)
    return f"{title}, about {topic}"
