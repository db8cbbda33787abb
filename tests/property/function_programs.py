"""Random function workflows: small programs, interpreted by one async function whose steps report to a ledger.

A `Program` prints as the code that makes it again. Every label in it is used once, or by calls that are equal, so what
a step gives depends on nothing but its arguments.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from hypothesis import strategies as st
from tests.turns import turns

from holdfast import (
    FunctionalWorkflow,
    RetryPolicy,
    RunContext,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    get_run_context,
)
from holdfast.testing.clock import START


class Boom(Exception):
    """What a failing step raises."""


class JumpingClock:
    """Nobody waits: whoever sleeps takes time to where it wakes up."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self._now += timedelta(seconds=max(0.0, seconds))


# ---------------------------------------------------------------- what a program is made of


@dataclass(frozen=True)
class Do:
    """A step that takes `pace` turns of the event loop. `writes`: state, from inside the step."""

    label: str
    pace: int = 0
    writes: bool = False


@dataclass(frozen=True)
class InThread:
    """A step that is no coroutine."""

    label: str


@dataclass(frozen=True)
class Nest:
    """A step that calls steps."""

    label: str
    inner: tuple[Do, ...]


@dataclass(frozen=True)
class Inquire:
    """A step that asks."""

    label: str


@dataclass(frozen=True)
class Race:
    """Two steps of which the quicker one counts; the other is cancelled."""

    quick: Do
    slow: Do


@dataclass(frozen=True)
class Fail:
    """A step that fails, and is caught."""

    label: str
    pace: int = 0


ALWAYS = 99


@dataclass(frozen=True)
class Retry:
    """A step that fails `fails` times and has three attempts."""

    label: str
    fails: int


@dataclass(frozen=True)
class Ask:
    label: str


@dataclass(frozen=True)
class Sleep:
    seconds: int


@dataclass(frozen=True)
class Write:
    """State, written by the function itself: a value of its own, and a list changed in place."""

    label: str


@dataclass(frozen=True)
class Series:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Gather:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Loop:
    times: int
    part: Node


Node: TypeAlias = (
    "Do | InThread | Nest | Inquire | Race | Fail | Retry | Ask | Sleep | Write | Series | Gather | Group | Loop"
)


# ---------------------------------------------------------------- what its steps do


@dataclass
class Ledger:
    """The world outside of anything holdfast keeps: it is never put back."""

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
        done = [await context.step(self.work, one.label, one.pace, one.writes) for one in inner]
        self.finished[label] += 1
        return [f"did {label}", *done]

    async def inquire(self, label: str) -> str:
        context = get_run_context()
        assert context is not None
        heard = await context.request_info(label, str)
        self.finished[label] += 1
        return f"did {label} and {heard}"


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
                    ledger.nest, label + turn, [Do(one.label + turn, one.pace, one.writes) for one in inner]
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
                tasks = [asyncio.create_task(self.perform(one, turn)) for one in (slow, quick)]
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


@dataclass(frozen=True)
class Program:
    node: Node
    one_by_one: bool = False
    """Whether only one of several pending questions is answered at a time."""
    is_nested: bool = False
    """Whether the function stands in a graph, two levels down."""

    def build(self, ledger: Ledger, storage: Any = None) -> Workflow:
        async def program(message: str, ctx: RunContext) -> Any:
            ctx.set_state("list", [])
            return [message, await Interpreter(ledger, ctx).perform(self.node)]

        flow: FunctionalWorkflow[Any, Any] = FunctionalWorkflow(program)
        if not self.is_nested:
            return flow.build(storage, clock=JumpingClock())
        inner = WorkflowExecutor(flow, "function", propagate_request=True, allow_direct_output=True)
        middle = WorkflowExecutor(
            WorkflowBuilder(name="middle", start_executor=inner).build(),
            "middle",
            propagate_request=True,
            allow_direct_output=True,
        )
        return WorkflowBuilder(
            name="outer", start_executor=middle, checkpoint_storage=storage, clock=JumpingClock()
        ).build()


# ---------------------------------------------------------------- drawing one


def _leaves() -> st.SearchStrategy[Node]:
    paces = st.integers(0, 3)
    do = st.builds(Do, label=st.just(""), pace=paces, writes=st.booleans())
    return st.one_of(
        do,
        st.builds(Fail, label=st.just(""), pace=paces),
        st.builds(Retry, label=st.just(""), fails=st.sampled_from((0, 1, 2, ALWAYS))),
        st.builds(Ask, label=st.just("")),
        st.builds(Sleep, st.integers(1, 9)),
        st.builds(Write, label=st.just("")),
        st.builds(Nest, label=st.just(""), inner=st.lists(do, min_size=1, max_size=2).map(tuple)),
        st.just(InThread("")),
        st.just(Inquire("")),
        st.builds(Race, do, do),
    )


def _composed(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Series, several),
        st.builds(Gather, several),
        st.builds(Group, several),
        st.builds(Loop, st.integers(1, 2), parts),
    )


class _Labels:
    """Names each leaf after its place. `twins`: all leaves of one kind have the same name, so equal calls are made."""

    def __init__(self, *, twins: bool) -> None:
        self._twins = twins
        self._count = 0

    def next(self) -> str:
        return "twin" if self._twins else self.unique()

    def unique(self) -> str:
        self._count += 1
        return str(self._count)

    def _named_step(self, step: Do) -> Do:
        return Do(f"d{self.next()}-{step.pace}{step.writes:d}", step.pace, step.writes)

    def named(self, node: Node) -> Node:
        match node:
            case Series(parts) | Gather(parts) | Group(parts):
                return type(node)(tuple(self.named(part) for part in parts))
            case Loop(times, part):
                return Loop(times, self.named(part))
            case Nest(_, inner):
                return Nest(f"n{self.next()}", tuple(map(self._named_step, inner)))
            case Race(quick, slow):
                return Race(Do(f"q{self.next()}", 0, quick.writes), Do(f"s{self.next()}", 20, slow.writes))
            case Inquire():
                return Inquire(f"q{self.next()}")
            case Sleep():
                return node
            case Do():
                return self._named_step(node)
            case Fail(_, pace):
                return Fail(f"f{self.next()}", pace)
            case Retry(_, fails):
                return Retry(f"r{self.unique()}", fails)
            case Ask():
                return Ask(f"a{self.next()}")
            case Write():
                return Write(f"w{self.next()}")
            case InThread():
                return InThread(f"t{self.next()}")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    leaves = _leaves()
    node = draw(_composed(leaves | _composed(leaves | _composed(leaves))))
    is_nested = draw(st.sampled_from((False, False, True)))
    return Program(_Labels(twins=draw(st.booleans())).named(node), draw(st.booleans()), is_nested)
