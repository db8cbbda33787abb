"""Executors and small workflows that the tests of the engine share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, field
from typing import Any, Never

from perdure import (
    Executor,
    FunctionExecutor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
)


@executor
async def shout(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text.upper())


@executor
async def deliver(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"<{text}>")


def shouting(**options: Any) -> Workflow:
    """`"hi"` goes through two supersteps and comes out as `"<HI>"`."""
    return WorkflowBuilder(name="shouting", start_executor=shout, **options).add_edge(shout, deliver).build()


def function(name: str, work: Callable[[Any, WorkflowContext[Any, Any]], Any], *, accepts: Any = str) -> Executor:
    """An executor of one line: `work(message, ctx)`, which may give something to await."""

    async def call(message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        made = work(message, ctx)
        if made is not None:
            await made

    return FunctionExecutor(call, name, input=accepts, output=object, workflow_output=object)


def relay(name: str, *, accepts: Any = object) -> Executor:
    """Sends on what it gets."""
    return function(name, lambda message, ctx: ctx.send_message(message), accepts=accepts)


def sink(name: str, *, accepts: Any = object) -> Executor:
    """Yields `(its name, the message)`."""
    return function(name, lambda message, ctx: ctx.yield_output((name, message)), accepts=accepts)


def alone(work: Callable[[Any, WorkflowContext[Any, Any]], Any], *, accepts: Any = str, **options: Any) -> Workflow:
    """A workflow of one executor, called `only`."""
    return WorkflowBuilder(name="alone", start_executor=function("only", work, accepts=accepts), **options).build()


class Countdown(Executor):
    """Sends itself one less, until it is 0."""

    def __init__(self, id: str = "countdown") -> None:
        super().__init__(id)

    @handler
    async def count(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        if left:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output("lift-off")


def countdown(**options: Any) -> Workflow:
    start = Countdown()
    return WorkflowBuilder(name="countdown", start_executor=start, **options).add_edge(start, start).build()


@dataclass
class Weather:
    """What a test changes between two runs, and what the executors have seen."""

    is_bad: bool = True
    seen: list[Any] = field(default_factory=list)

    async def pass_through(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        self.seen.append(message)
        if self.is_bad:
            raise ConnectionError("the bridge is closed")
        await ctx.yield_output(message)


def crossing(weather: Weather, **options: Any) -> Workflow:
    """`relay` sends to `bridge`, which fails while the weather is bad."""
    start, bridge = relay("relay"), function("bridge", weather.pass_through, accepts=object)
    return WorkflowBuilder(name="crossing", start_executor=start, **options).add_edge(start, bridge).build()


class Gate:
    """Holds an executor until the test opens it. `arrived` is set when an executor waits at the gate."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()

    async def pass_through(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        self.arrived.set()
        await self.opened.wait()
        await ctx.yield_output(message)


def gated(gate: Gate, **options: Any) -> Workflow:
    return alone(gate.pass_through, **options)


@dataclass
class Question:
    text: str


@dataclass
class Verdict:
    is_good: bool
    marks: list[int] = field(default_factory=list)


class Asker(Executor):
    """Asks one question for each word it is sent, and yields question and answer."""

    def __init__(self, id: str = "asker", response_type: Any = Verdict, **terms: Any) -> None:
        super().__init__(id)
        self.response_type = response_type
        self.terms = terms

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        for word in text.split():
            await ctx.request_info(Question(word), self.response_type, request_id=word, **self.terms)

    @response_handler
    async def receive_verdict(self, question: Question, verdict: Verdict, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text}: {verdict.is_good} {verdict.marks}")

    @response_handler
    async def receive_words(self, question: Question, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{question.text}: {answer}")


def asking(response_type: Any = Verdict, *, terms: dict[str, Any] | None = None, **options: Any) -> Workflow:
    asker = Asker(response_type=response_type, **(terms or {}))
    return WorkflowBuilder(name="asking", start_executor=asker, **options).build()


class Tally(Executor):
    """Counts its messages in `self`, and keeps the count through its hooks."""

    def __init__(self, id: str = "tally") -> None:
        super().__init__(id)
        self.count = 0

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, int]) -> None:
        self.count += 1
        await ctx.yield_output(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def tallying(start: Executor | None = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="tallying", start_executor=start or Tally(), **options).build()


async def take_all(events: AsyncIterable[WorkflowEvent], seen: list[WorkflowEvent]) -> None:
    """Put every event into `seen`, which keeps them even if the iteration raises in the end."""
    async for event in events:
        seen.append(event)


def kinds(events: list[WorkflowEvent]) -> list[str]:
    return [event.type for event in events]


def warnings_of(events: list[WorkflowEvent]) -> list[str]:
    return [event.data for event in events if event.type == "warning"]
