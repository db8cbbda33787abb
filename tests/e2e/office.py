"""Workflows of a user of the command line. Tests copy this file into an empty folder."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Never

from perdure import (
    Executor,
    FileCheckpointStorage,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
    tool,
    workflow,
)
from perdure.orchestrations import SequentialBuilder
from perdure.testing import Call, ScriptedAgent


@dataclass
class Refund:
    customer: str
    amount: int


@dataclass
class Verdict:
    approved: bool
    note: str = ""


class Cashier(Executor):
    @handler
    async def ask(self, refund: Refund, ctx: WorkflowContext) -> None:
        ctx.set_state("refund", refund)
        deadline = datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC)
        await ctx.request_info(refund, Verdict, request_id="refund", assignee="ada", deadline=deadline)

    @response_handler
    async def decide(self, refund: Refund, verdict: Verdict, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{refund.amount} to {refund.customer}" if verdict.approved else "refused")


refunds = WorkflowBuilder(name="refunds", start_executor=Cashier("cashier"))


@workflow
async def titles(topic: str, ctx: RunContext) -> str:
    title = await ctx.request_info(f"A title for {topic}?", str, request_id="title")
    return f"{title}: {topic}"


@executor
async def read(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text.upper())


@executor
async def work(text: str, ctx: WorkflowContext[Never, str]) -> None:
    """Fails while the folder has a file `broken`, and never ends while it has a file `hold`."""
    if "broken" in os.listdir():
        raise ConnectionError("nobody answers")
    if "hold" in os.listdir():
        await asyncio.Event().wait()
    await ctx.yield_output(f"worked on {text}")


def build() -> Workflow:
    return WorkflowBuilder(name="works", start_executor=read).add_edge(read, work).build()


async def build_later() -> Workflow:
    return build()


kept = WorkflowBuilder(name="kept", start_executor=read, checkpoint_storage=FileCheckpointStorage("own")).add_edge(
    read, work
)


class Titler(Executor):
    @handler
    async def ask(self, topic: str, ctx: WorkflowContext) -> None:
        ctx.set_state("topic", topic)
        await ctx.request_info(f"A title for {topic}?", str, request_id="title")

    @response_handler
    async def take(self, question: str, title: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(title)


class Greeter(Executor):
    @handler
    async def greet(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.private["greeted"] = [text]
        await ctx.send_message(text)


def parent() -> Workflow:
    greeter = Greeter("greeter")
    titling = WorkflowBuilder(name="titling", start_executor=Titler("titler")).build()
    inner = WorkflowExecutor(titling, "inner", allow_direct_output=True)
    return WorkflowBuilder(name="parent", start_executor=greeter).add_edge(greeter, inner).build()


@tool(approval=True)
def publish(title: str) -> str:
    return f"{title!r} is out"


def build_desk() -> Workflow:
    """A team of two agents. The editor needs an approval to publish."""
    writer = ScriptedAgent("writer", ["The tide turns at six."])
    editor = ScriptedAgent("editor", [Call("publish", {"title": "Tides"}), "Published."], tools=[publish])
    return SequentialBuilder(participants=[writer, editor], name="desk").build()


desk = build_desk()
