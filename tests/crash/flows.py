"""Workflows to be killed: each does its work with `work`, under names that start with the thread's, each name once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Never

from tests.crash.notes import work

from perdure import (
    Executor,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
    step,
    workflow,
)


@dataclass(frozen=True)
class Flow:
    """Its thread has its name."""

    name: str
    build: Callable[[Any], Workflow]
    message: Any
    width: int
    """How much of its work can be in flight at once."""
    answers: dict[str, Any] = field(default_factory=dict)
    is_pruned: bool = False
    """Whether its old checkpoints are removed while it runs."""


# ---------------------------------------------------------------- one after the other


class Link(Executor):
    """Keeps a count by its hooks, adds to a list in shared state, and sends on."""

    def __init__(self, id: str, *, is_last: bool = False) -> None:
        super().__init__(id)
        self.count = 0
        self.is_last = is_last

    @handler
    async def take(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        done = await work(f"{ctx.thread_id}.{self.id}.{number}")
        self.count += number
        ctx.state.setdefault("pages", []).append(f"{done} " + "x" * 600)
        if self.is_last:
            await ctx.yield_output(number)
        else:
            await ctx.send_message(number + 1)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def chain(name: str) -> Callable[[Any], Workflow]:
    def build(storage: Any) -> Workflow:
        links = [Link(f"link-{place}", is_last=place == 5) for place in range(6)]
        builder = WorkflowBuilder(name=name, start_executor=links[0], checkpoint_storage=storage)
        return builder.add_chain(links).build()

    return build


# ---------------------------------------------------------------- side by side


class Source(Executor):
    @handler
    async def begin(self, message: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(await work(f"{ctx.thread_id}.{self.id}"))


class Writer(Executor):
    """With steps inside of its handler, or without."""

    def __init__(self, id: str, steps: int) -> None:
        super().__init__(id)
        self.steps = steps

    @handler
    async def write(self, message: str, ctx: WorkflowContext[str]) -> None:
        name = f"{ctx.thread_id}.{self.id}"
        parts = [await ctx.step(work, f"{name}.step-{number}") for number in range(self.steps)]
        ctx.set_state(self.id, len(parts))
        await ctx.send_message(await work(name))


class Join(Executor):
    @handler
    async def join(self, texts: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await work(f"{ctx.thread_id}.{self.id}")
        await ctx.yield_output("+".join(texts))


def fan(name: str, width: int, steps: int) -> Callable[[Any], Workflow]:
    def build(storage: Any) -> Workflow:
        source, writers = Source("source"), [Writer(f"writer-{number}", steps) for number in range(width)]
        builder = WorkflowBuilder(name=name, start_executor=source, checkpoint_storage=storage)
        return builder.add_fan_out_edges(source, writers).add_fan_in_edges(writers, Join("join")).build()

    return build


# ---------------------------------------------------------------- a function


@step
async def search(thread_id: str, topic: str) -> str:
    return await work(f"{thread_id}.search-{topic}")


@workflow
async def function(topics: list[str], ctx: RunContext) -> str:
    results = await asyncio.gather(*(search(ctx.thread_id, topic) for topic in topics))
    ctx.set_state("found", results)
    summary = await ctx.step(work, "function.summary")
    await ctx.sleep(0.002)
    answer = await ctx.request_info("publish?", str)
    return f"{await ctx.step(work, 'function.publish')} {summary} {answer}"


# ---------------------------------------------------------------- workflows in workflows, and questions


class Clerk(Executor):
    """Works, asks outside, and works on the answer."""

    @handler
    async def take(self, goods: str, ctx: WorkflowContext[Never, str]) -> None:
        checked = await ctx.step(work, f"{ctx.thread_id}.check-{goods}")
        ctx.set_state("checked", checked)
        await ctx.request_info(f"how to send {goods}?", str, request_id=f"send-{goods}")

    @response_handler
    async def take_answer(self, question: str, way: str, ctx: WorkflowContext[Never, str]) -> None:
        goods = question.split()[3].rstrip("?")
        await ctx.yield_output(f"{await work(f'{ctx.thread_id}.send-{goods}')} by {way}")


@executor
async def pick(goods: str, ctx: WorkflowContext[str]) -> None:
    await work(f"{ctx.thread_id}.pick-{goods}")
    await ctx.send_message(goods)


class Orders(Executor):
    @handler
    async def take(self, goods: list[str], ctx: WorkflowContext[str]) -> None:
        await work(f"{ctx.thread_id}.orders")
        for item in goods:
            await ctx.send_message(item)


class Report(Executor):
    @handler
    async def take(self, outcome: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"done: {outcome}")


def nested(storage: Any) -> Workflow:
    shipment = WorkflowBuilder(name="shipment", start_executor=pick).add_edge(pick, Clerk("clerk")).build()
    orders, ship = Orders("orders"), WorkflowExecutor(shipment, "ship", propagate_request=True)
    builder = WorkflowBuilder(name="nested", start_executor=orders, checkpoint_storage=storage)
    return builder.add_edge(orders, ship).add_edge(ship, Report("report")).build()


def asking(storage: Any) -> Workflow:
    orders = Orders("orders")
    builder = WorkflowBuilder(name="asking", start_executor=orders, checkpoint_storage=storage)
    return builder.add_edge(orders, Clerk("clerk")).build()


# ---------------------------------------------------------------- asleep


class Sleeper(Executor):
    """Runs again from the top whenever it wakes: only its steps are done once."""

    @handler
    async def doze(self, message: str, ctx: WorkflowContext[str]) -> None:
        name = f"{ctx.thread_id}.{self.id}"
        first = await ctx.step(work, f"{name}.before", name="before")
        await ctx.sleep(0.004)
        second = await ctx.step(work, f"{name}.after", name="after")
        await ctx.send_message(f"{first} {second}")


def sleeping(storage: Any) -> Workflow:
    source, sleepers = Source("source"), [Sleeper("one"), Sleeper("two"), Writer("awake", 1)]
    builder = WorkflowBuilder(name="sleeping", start_executor=source, checkpoint_storage=storage)
    return builder.add_fan_out_edges(source, sleepers).add_fan_in_edges(sleepers, Join("join")).build()


GOODS = ["tea", "silk"]
WAYS = {"how to send tea?": "ship", "how to send silk?": "air"}

FLOWS = {
    flow.name: flow
    for flow in (
        Flow("chain", chain("chain"), 1, 1),
        Flow("pruned", chain("pruned"), 1, 1, is_pruned=True),
        Flow("fan-3", fan("fan-3", 3, 2), "go", 3),
        Flow("fan-100", fan("fan-100", 100, 0), "go", 100),
        Flow("function", function.build, ["a", "b", "c"], 3, {"publish?": "yes"}),
        Flow("nested", nested, GOODS, 2, WAYS),
        Flow("asking", asking, GOODS, 2, WAYS),
        Flow("sleeping", sleeping, "go", 3),
    )
}
