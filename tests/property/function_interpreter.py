"""Random programs as function workflows: one async function that runs a program, with steps that report to
a ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.property.function_programs import (
    Ask,
    Do,
    Fail,
    Gather,
    Group,
    Inquire,
    InThread,
    Loop,
    Nest,
    Node,
    Program,
    Race,
    Retry,
    Series,
    Sleep,
    Write,
)
from tests.turns import turns
from tests.unit.engine.policy_flows import SkippingClock

from perdure import (
    FunctionalWorkflow,
    RetryPolicy,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    get_run_context,
)


class Boom(Exception):
    """What a failing step raises."""


@dataclass
class Ledger:
    """The world outside of anything perdure keeps: it is never put back."""

    finished: Counter[str] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)
    recorded: Counter[str] = field(default_factory=Counter)
    """What was recorded when `finished` began to be counted."""

    async def work(self, label: str, pace: int, writes: bool) -> str:
        context = get_run_context()
        assert context is not None
        own = f"list {context.idempotency_key[:8]}"  # two steps at once must not change one value in place
        if writes:
            context.set_state(f"by {label}", pace)
            context.set_state(own, [])
            context.get_state(own).append(label)
        await turns(pace)
        if writes:
            context.get_state(own).append("end")
        self.finished[label] += 1
        return f"did {label}"

    def work_in_thread(self, label: str) -> str:
        self.finished[label] += 1
        return f"did {label}"

    async def fail(self, label: str, pace: int) -> str:
        await turns(pace)
        self.finished[label] += 1
        raise Boom(f"did {label}")

    async def try_hard(self, label: str, fails: int) -> str:
        await asyncio.sleep(0)
        self.tries[label] += 1
        if self.tries[label] <= fails:
            raise Boom(f"try {label}")
        self.finished[label] += 1
        return f"did {label}"

    async def nest(self, label: str, inner: Sequence[Do]) -> list[Any]:
        context = get_run_context()
        assert context is not None
        done = [
            await context.step(self.work, inner_step.label, inner_step.pace, inner_step.writes) for inner_step in inner
        ]
        self.finished[label] += 1
        return [f"did {label}", *done]

    async def inquire(self, label: str) -> str:
        context = get_run_context()
        assert context is not None
        answer = await context.request_info(label, str)
        self.finished[label] += 1
        return f"did {label} and {answer}"


class Interpreter:
    def __init__(self, ledger: Ledger, ctx: RunContext) -> None:
        self._ledger = ledger
        self._ctx = ctx

    async def perform(self, node: Node, turn: str = "") -> Any:
        ctx, ledger = self._ctx, self._ledger
        match node:
            case Do(label, pace, writes):
                return await ctx.step(ledger.work, label + turn, pace, writes)
            case InThread(label):
                return await ctx.step(ledger.work_in_thread, label + turn)
            case Nest(label, inner):
                return await ctx.step(
                    ledger.nest,
                    label + turn,
                    [Do(inner_step.label + turn, inner_step.pace, inner_step.writes) for inner_step in inner],
                )
            case Inquire(label):
                return await ctx.step(ledger.inquire, label + turn)
            case Ask(label):
                return await ctx.request_info(label + turn, str)
            case Sleep(seconds):
                return await ctx.sleep(seconds)
            case Write(label):
                ctx.set_state(f"own {label}{turn}", turn)
                ctx.get_state("list").append(label + turn)
                return None
            case Fail() | Retry():
                return await self._caught(node, turn)
            case _:
                return await self._composed(node, turn)

    async def _caught(self, node: Fail | Retry, turn: str) -> str:
        label = node.label + turn
        try:
            if isinstance(node, Fail):
                return str(await self._ctx.step(self._ledger.fail, label, node.pace))
            retry = RetryPolicy(3, initial_delay=7, retry_on=Boom)
            return str(await self._ctx.step(self._ledger.try_hard, label, node.fails, retry=retry))
        except Boom as error:
            return f"caught {error}"

    async def _composed(self, node: Race | Series | Gather | Group | Loop, turn: str) -> Any:
        match node:
            case Race(quick, slow):
                tasks = [asyncio.create_task(self.perform(part, turn)) for part in (slow, quick)]
                done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in left:
                    task.cancel()
                return [task.result() for task in done]
            case Series(parts):
                return [await self.perform(part, turn) for part in parts]
            case Gather(parts):
                return await asyncio.gather(*(self.perform(part, turn) for part in parts))
            case Group(parts):
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.perform(part, turn)) for part in parts]
                return [task.result() for task in tasks]
            case Loop(times, part):
                return [await self.perform(part, f"{turn}.{number}") for number in range(times)]


def build(program: Program, ledger: Ledger, storage: Any = None) -> Workflow:
    async def run(message: str, ctx: RunContext) -> Any:
        ctx.set_state("list", [])
        return [message, await Interpreter(ledger, ctx).perform(program.node)]

    flow: FunctionalWorkflow[Any, Any] = FunctionalWorkflow(run, name="program")
    if not program.is_nested:
        return flow.build(storage, clock=SkippingClock())
    options: dict[str, bool] = {"propagate_request": True, "allow_direct_output": True}
    inner = WorkflowExecutor(flow, "function", **options)
    middle = WorkflowExecutor(WorkflowBuilder(name="middle", start_executor=inner).build(), "middle", **options)
    outer = WorkflowBuilder(name="outer", start_executor=middle, checkpoint_storage=storage, clock=SkippingClock())
    return outer.build()
