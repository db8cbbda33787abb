"""Random graphs with random policies and failures end as a small model predicts, however often they are interrupted."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, strategies as st
from tests.six_methods import SixMethods
from tests.turns import awaiting_storage, turns
from tests.unit.engine.policy_flows import Boom, Context, started

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    ThreadNotFound,
    Workflow,
    WorkflowBuilder,
    WorkflowRunResult,
    WorkflowRunState,
    append,
    handler,
)
from perdure.testing import FakeClock

# ---------------------------------------------------------------- what a graph is made of


@dataclass(frozen=True)
class Node:
    """One executor. It fails so many times and succeeds then, if it is tried so often."""

    failures: int = 0
    attempts: int = 1
    on_error: str = "stop"
    """stop, skip, isolate, or fallback."""
    hangs: bool = False
    """Whether it fails by hanging until its timeout."""
    steps: int = 0
    naps: int = 0
    spare: Node | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether it is stepped over. It then fails always: an attempt that was cancelled is made once more."""
        return self.on_error != "stop" and self.failures >= self.attempts


@dataclass(frozen=True)
class Fan:
    """A source, branches that all get its message, and a join."""

    branches: tuple[Chain, ...]
    join: Node


Chain: TypeAlias = "tuple[Node | Fan, ...]"

NODES = st.builds(
    Node,
    failures=st.integers(0, 3),
    attempts=st.integers(1, 3),
    on_error=st.sampled_from(("stop", "skip", "isolate", "isolate", "fallback")),
    hangs=st.sampled_from((False, False, False, True)),
    steps=st.integers(0, 2),
    naps=st.sampled_from((0, 0, 1, 2)),
    spare=st.builds(
        Node,
        failures=st.integers(0, 2),
        attempts=st.integers(1, 2),
        on_error=st.sampled_from(("stop", "skip", "isolate")),
        steps=st.integers(0, 1),
    ),
)


def chains(depth: int) -> st.SearchStrategy[Chain]:
    parts: st.SearchStrategy[Node | Fan] = NODES
    if depth:
        branches = st.lists(chains(depth - 1), min_size=2, max_size=3).map(tuple)
        parts = st.one_of(NODES, st.builds(Fan, branches, NODES))
    return st.lists(parts, min_size=1, max_size=3).map(tuple)


# ---------------------------------------------------------------- the model

SKIPPED, ISOLATED = "skipped", "isolated"


@dataclass
class Expected:
    outputs: list[str] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)

    def chain(self, chain: Chain, message: str, path: str) -> str:
        """What leaves the chain: a message, or that it was SKIPPED or its last executor ISOLATED."""
        for place, part in enumerate(chain):
            here = f"{path}{place}"
            message = self.node(part, message, here) if isinstance(part, Node) else self.fan(part, message, here)
            if message in (SKIPPED, ISOLATED):
                return message if place == len(chain) - 1 else SKIPPED
        return message

    def fan(self, fan: Fan, message: str, path: str) -> str:
        left = [self.chain(branch, message, f"{path}{name}") for branch, name in zip(fan.branches, "abc", strict=False)]
        present = [result for result in left if result != ISOLATED]
        if SKIPPED in left or not present:
            return SKIPPED
        return self.node(fan.join, "+".join(present), f"{path}j")

    def node(self, node: Node, message: str, path: str) -> str:
        self.steps.update(f"{path}.{number}" for number in range(node.steps))
        if not node.is_hopeless:
            self.outputs.append(f"{path}: {message}")
            return f"({message}>{path})"
        if node.on_error == "fallback" and node.spare is not None:
            return self.node(node.spare, message, f"{path}s")
        return ISOLATED if node.on_error == "isolate" else SKIPPED


# ---------------------------------------------------------------- the graph


class TurnClock(FakeClock):
    """So many seconds take so many turns of the event loop, and nothing else takes time."""

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        await turns(max(1, math.ceil(seconds)))
        self.advance(max(0.0, until - self.monotonic()))


class World:
    """What executors do outside of anything perdure keeps."""

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

    async def step(self, name: str) -> str:
        self.steps[name] += 1
        return name


class Worker(Executor):
    """Makes its steps, naps, fails if it is to, and counts in `self` how often it came to its end."""

    def __init__(self, id: str, node: Node, world: World, **policy: Any) -> None:
        super().__init__(id, **policy)
        self.node = node
        self.world = world
        self.done = 0

    @handler
    async def join(self, messages: list[str], ctx: Context) -> None:
        await self.work("+".join(messages), ctx)

    @handler
    async def work(self, message: str, ctx: Context) -> None:
        self.done += 1
        ctx.set_state("log", self.id)
        await ctx.yield_output(f"{self.id}: {message}")
        for number in range(self.node.steps):
            await ctx.step(self.world.step, f"{self.id}.{number}")
        for _ in range(self.node.naps):
            await ctx.sleep(2)
        await self._fail()
        assert self.done == 1, "an attempt that failed or slept left a trace in self"
        await ctx.send_message(f"({message}>{self.id})")

    async def _fail(self) -> None:
        if self.node.is_hopeless or self.world.failed[self.id] < self.node.failures:
            self.world.failed[self.id] += 1
            if self.node.hangs:
                await asyncio.Event().wait()
            raise Boom(self.id)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"done": self.done}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.done = state["done"]


class Builder:
    """Makes a workflow of a chain; every executor gets at most one message, so the order of things does not matter."""

    def __init__(self, world: World, storage: Any, patience: int) -> None:
        self._world = world
        self._patience = patience
        self._start = Worker("start", Node(), world)
        self._graph = WorkflowBuilder(
            name="random",
            start_executor=self._start,
            checkpoint_storage=storage,
            clock=TurnClock(),
            state={"log": append},
        )

    def build(self, chain: Chain) -> Workflow:
        first, _ = self._chain(chain, "")
        self._graph.add_edge(self._start, first)
        return self._graph.build()

    def _worker(self, node: Node, path: str) -> Executor:
        retry = None if node.attempts == 1 else RetryPolicy(node.attempts, initial_delay=node.attempts - 2)
        spare = self._worker(node.spare, f"{path}s") if node.on_error == "fallback" and node.spare is not None else None
        on_error = node.on_error if spare is None else spare
        timeout = self._patience if node.hangs else None
        return Worker(path, node, self._world, retry=retry, timeout=timeout, on_error=on_error)

    def _chain(self, chain: Chain, path: str) -> tuple[Executor, Executor]:
        """Its first and its last executor."""
        ends = [self._part(part, f"{path}{place}") for place, part in enumerate(chain)]
        for (_, last), (first, _) in pairwise(ends):
            self._graph.add_edge(last, first)
        return ends[0][0], ends[-1][1]

    def _part(self, part: Node | Fan, path: str) -> tuple[Executor, Executor]:
        if isinstance(part, Node):
            worker = self._worker(part, path)
            return worker, worker
        source, join = Plain(f"{path}o"), self._worker(part.join, f"{path}j")
        ends = [self._chain(branch, f"{path}{name}") for branch, name in zip(part.branches, "abc", strict=False)]
        self._graph.add_fan_out_edges(source, [first for first, _ in ends])
        self._graph.add_fan_in_edges([last for _, last in ends], join)
        return source, join


def built(chain: Chain, world: World, storage: Any, patience: int = 40) -> Workflow:
    """`patience`: turns after which one that hangs is given up, and more than any other needs."""
    return Builder(world, storage, patience).build(chain)


class Plain(Executor):
    @handler
    async def relay(self, message: str, ctx: Context) -> None:
        await ctx.send_message(message)


# ---------------------------------------------------------------- brought to its end


async def led_to_its_end(
    build: Callable[[], Workflow], after: Sequence[int] = (), message: Any = "x", **options: Any
) -> WorkflowRunResult:
    """Runs that are cancelled after so many turns each, or fail, until one of them ends well."""
    moments, sent = iter(after), None
    for _ in range(60):
        run = started(build().run(sent, thread_id="t", **options))
        moment = next(moments, None)
        if moment is not None:
            await turns(moment)
            run.cancel()
        await asyncio.wait([run])
        error = None if run.cancelled() else run.exception()
        if not run.cancelled() and error is None:
            return run.result()
        sent = message if isinstance(error, ThreadNotFound) else None
        assert error is None or isinstance(error, Boom | TimeoutError | ThreadNotFound), error
    raise AssertionError("it never ends")


EVERYTHING: Chain = (
    Node(1, attempts=2, steps=1, naps=1),
    Fan(
        (
            (Node(1, on_error="isolate", steps=1),),
            (Node(1, on_error="fallback", spare=Node(1, attempts=2, steps=1)),),
            (Node(2, attempts=3, hangs=True, steps=2, naps=1), Node(naps=2)),
        ),
        Node(2, attempts=3, steps=1),
    ),
    Node(1, attempts=2, on_error="skip"),
)
"""A bit of all, tried every time."""

STORAGES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "memory": InMemoryCheckpointStorage,
    "six methods": SixMethods,
}
POINTS = st.lists(st.integers(0, 60), max_size=5)


@example(EVERYTHING, [], "memory")
@example(EVERYTHING, [5, 13, 21, 34, 55], "memory")
@given(chains(2), POINTS, st.sampled_from(sorted(STORAGES)))
async def test_random_graph_of_failing_executors_ends_as_the_model(chain: Chain, after: list[int], kind: str) -> None:
    expected, world, storage = Expected(), World(), STORAGES[kind]()
    expected.chain(chain, "(x>start)", "")
    same = built(chain, world, storage)
    result = await led_to_its_end(lambda: same if kind == "none" else built(chain, world, storage), after)
    assert sorted(result.get_outputs()) == sorted(["start: x", *expected.outputs])
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert set(world.steps) == set(expected.steps)
    if kind != "six methods":  # which have no journal
        assert world.steps == expected.steps, "a recorded step was made again"
    if kind == "memory":
        head = await storage.get_latest(thread_id="t")
        assert (head.suspended, head.messages) == ({}, {})
        assert sorted(head.state["log"]) == sorted(line.partition(":")[0] for line in result.get_outputs())


# ---------------------------------------------------------------- cancelled at every turn

SMALL: Chain = (
    Node(1, attempts=2, hangs=True, steps=1, naps=1),
    Fan(((Node(1, on_error="isolate"),), (Node(1, attempts=2, steps=1, naps=1),)), Node(1, attempts=2)),
)
CASES = [
    (InMemoryCheckpointStorage, "sync"),
    (InMemoryCheckpointStorage, "exit"),
    (awaiting_storage, "sync"),
    (SixMethods, "sync"),
]


@pytest.mark.parametrize(("make_storage", "durability"), CASES)
async def test_steps_sleeps_and_retries_cancelled_at_any_turn_end_as_undisturbed(
    make_storage: Callable[[], Any], durability: Any
) -> None:
    expected, moment = Expected(), 0
    expected.chain(SMALL, "(x>start)", "")
    while True:
        world, storage = World(), make_storage()
        build = partial(built, SMALL, world, storage, patience=20)
        run = started(build().run("x", thread_id="t", durability=durability))
        await turns(moment)
        has_ended = run.done()
        run.cancel()
        await asyncio.wait([run])
        if has_ended:
            break
        assert run.cancelled(), f"the cancellation at turn {moment} was swallowed"
        result = await led_to_its_end(build)
        assert sorted(result.get_outputs()) == sorted(["start: x", *expected.outputs]), f"cancelled at turn {moment}"
        assert set(world.steps) == set(expected.steps), f"cancelled at turn {moment}"
        moment += 1
    assert moment > 30
