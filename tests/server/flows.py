"""Workflows that record their steps in files beside this file, and wait there for a test. Tests copy it to projects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Never

from perdure import RunContext, WorkflowBuilder, WorkflowContext, executor, workflow

HERE = Path(__file__).parent


def note(key: str, word: str) -> str:
    """Writes one line for each real execution."""
    with (HERE / f"{key}.done").open("a", encoding="utf-8") as file:
        file.write(f"{word}\n")
    return word


async def reach_gate(key: str) -> None:
    """Creates the file `.here`, and waits until the test creates the file `.open`."""
    (HERE / f"{key}.here").touch()
    while not (HERE / f"{key}.open").exists():  # noqa: ASYNC110  # another process opens it
        await asyncio.sleep(0.005)


@executor
async def first(key: str, ctx: WorkflowContext[str]) -> None:
    note(key, "first")
    await ctx.send_message(key)


@executor
async def second(key: str, ctx: WorkflowContext[str]) -> None:
    note(key, "second")
    await ctx.send_message(key)


@executor
async def third(key: str, ctx: WorkflowContext[str]) -> None:
    await ctx.step(note, key, "step of third")
    await reach_gate(key)
    note(key, "third")
    await ctx.send_message(key)


@executor
async def fourth(key: str, ctx: WorkflowContext[Never, str]) -> None:
    note(key, "fourth")
    await ctx.yield_output(f"all four of {key}")


chain = WorkflowBuilder(name="chain", start_executor=first).add_chain([first, second, third, fourth]).build()
WORDS = ["first", "second", "step of third", "third", "fourth"]
"""The words that a run of `chain` records, each once."""


@workflow
async def asking(topic: str, ctx: RunContext) -> str:
    note(topic, "asked")
    title = await ctx.request_info(f"A title for {topic}?", str)
    return f"{title}, about {topic}"
