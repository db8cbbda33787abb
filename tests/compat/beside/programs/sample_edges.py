"""Executors and every kind of edge: a program that prints all events, outputs and errors, and in its handlers."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Never

from _samples import printed
from flows import (
    Case,
    Default,
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowConvergenceException,
    WorkflowEvent,
    executor,
    handler,
)


class Signal(Enum):
    START = "start"
    ABOVE = "above"
    BELOW = "below"
    MATCHED = "matched"


class Guess(Executor):
    def __init__(self, low: int, high: int) -> None:
        super().__init__(id="guess")
        self.low, self.high, self.last = low, high, 0

    @handler
    async def guess(self, signal: Signal, ctx: WorkflowContext[int, str]) -> None:
        if signal is Signal.MATCHED:
            await ctx.yield_output(f"It is {self.last}.")
            return
        if signal is Signal.ABOVE:
            self.low = self.last + 1
        elif signal is Signal.BELOW:
            self.high = self.last - 1
        self.last = (self.low + self.high) // 2
        print("guessed", self.last)
        await ctx.send_message(self.last)


@executor(id="judge")
async def judge(number: int, ctx: WorkflowContext[Signal]) -> None:
    print("judges", number)
    await ctx.send_message(Signal.MATCHED if number == 30 else Signal.ABOVE if number < 30 else Signal.BELOW)


@dataclass
class Mail:
    text: str
    kind: str


class Saved(WorkflowEvent):
    def __init__(self, kind: str) -> None:
        super().__init__("data", data=kind)
        self.kind = kind


@executor(id="sort")
async def sort(text: str, ctx: WorkflowContext[Mail]) -> None:
    ctx.set_state("text", text)
    await ctx.send_message(Mail(text, "spam" if "win" in text else "unsure" if "?" in text else "good"))


@executor(id="answer")
async def answer(mail: Mail, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"answered {mail.text}")


@executor(id="drop")
async def drop(mail: Mail, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"dropped {mail}")


@executor(id="ask")
async def ask(mail: Mail, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"unsure about {ctx.get_state('text')}")


@executor(id="save")
async def save(mail: Mail, ctx: WorkflowContext) -> None:
    await ctx.add_event(Saved(mail.kind))


class Dispatch(Executor):
    @handler
    async def dispatch(self, numbers: list[int], ctx: WorkflowContext[list[int]]) -> None:
        if not numbers:
            raise ValueError("Numbers, please.")
        await ctx.send_message(numbers)


class Total(Executor):
    @handler(input=list[int], output=int)
    async def add(self, numbers: Any, ctx: WorkflowContext) -> None:
        await ctx.send_message(sum(numbers))


class Mean(Executor):
    @handler
    async def divide(self, numbers: list[int], ctx: WorkflowContext[float]) -> None:
        await ctx.send_message(sum(numbers) / len(numbers))


class Join(Executor):
    @handler
    async def join(self, results: list[int | float], ctx: WorkflowContext[Never, list[int | float]]) -> None:
        await ctx.yield_output(results)


@executor(id="loop")
async def loop(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.send_message(text)


def select(mail: Mail, ids: list[str]) -> list[str]:
    answered, saved, dropped = ids
    return [dropped] if mail.kind == "spam" else [answered, saved]


async def show(stream: Any) -> None:
    async for event in stream:
        print(f"EVENT: {event}" if not isinstance(event, Saved) else f"SAVED: {event.kind}")


async def show_failure(stream: Any) -> None:
    try:
        async for event in stream:
            if event.type in ("failed", "executor_failed"):
                print(event.type, event.executor_id, event.details.error_type)
    except (ValueError, WorkflowConvergenceException) as error:
        print(type(error).__name__, error if isinstance(error, ValueError) else "")


@printed
async def main() -> None:
    guess = Guess(1, 100)
    await show(
        WorkflowBuilder(start_executor=guess)
        .add_edge(guess, judge)
        .add_edge(judge, guess)
        .build()
        .run(Signal.START, stream=True)
    )
    cases = [
        Case(condition=lambda mail: mail.kind == "good", target=answer),
        Case(condition=lambda mail: mail.kind == "spam", target=drop),
        Default(target=ask),
    ]
    switch = WorkflowBuilder(start_executor=sort, name="switch").add_switch_case_edge_group(sort, cases).build()
    selected = (
        WorkflowBuilder(start_executor=sort)
        .add_multi_selection_edge_group(sort, [answer, save, drop], selection_func=select)
        .build()
    )
    conditional = (
        WorkflowBuilder(start_executor=sort)
        .add_edge(sort, answer, condition=lambda mail: mail.kind == "good")
        .add_edge(sort, save, condition=lambda mail: mail.kind != "good")
        .build()
    )
    for text in ("win it", "hello", "what?"):
        for workflow in (switch, selected, conditional):
            result = await workflow.run(text)
            print(result.get_outputs(), result.get_final_state(), [str(state) for state in result.status_timeline()])
            print(sorted(f"{event.type} {event.executor_id}" for event in result if not isinstance(event, Saved)))
    first, total, mean, join = Dispatch(id="first"), Total(id="total"), Mean(id="mean"), Join(id="join")
    builder = WorkflowBuilder(start_executor=first)
    joined = builder.add_fan_out_edges(first, [total, mean]).add_fan_in_edges([total, mean], join).build()
    print((await joined.run([1, 2, 3, 6])).get_outputs())
    await show_failure(joined.run([], stream=True))
    print((await joined.run([5])).get_outputs())
    await show_failure(
        WorkflowBuilder(start_executor=loop, max_iterations=3).add_edge(loop, loop).build().run("x", stream=True)
    )
