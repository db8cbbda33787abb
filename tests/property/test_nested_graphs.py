"""Random workflows in workflows, up to three deep: whatever disturbs them, they end as if nothing had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Never

from hypothesis import given, settings, strategies as st
from tests.chance import SOAK
from tests.property.engine_graphs import (
    HABITS,
    Boom,
    Habits,
    Ledger,
    Plan,
    RememberingWorker,
    Rest,
    Token,
    Wire,
    Worker,
    add_wire,
    cancelled_after,
    drive,
    final,
    history,
    wirings,
)
from tests.six_methods import SixMethods
from tests.unit.engine.nested import due

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunResult,
    handler,
)
from perdure.graph.policy import Reducer, add, append, merge

REDUCERS: dict[str, Reducer] = {"notes": append, "total": add, "index": merge}


def examples(count: int) -> settings:
    """So many, for a quick look at each run of the suite; a soak takes as many as its settings name."""
    return settings() if SOAK else settings(max_examples=count)


# ---------------------------------------------------------------- who works in a nesting


class Deep(Worker):
    """What it keeps, has in private and finds in the state shows in what it sends on, and so in the end's outputs."""

    async def _send(self, token: Token, ctx: WorkflowContext[Token, Any]) -> None:
        calls = ctx.private["calls"] if self.habits.private else 0
        token.value += len(self.seen) + 3 * calls + 5 * int(ctx.get_state(f"count-{self.id}", 0))
        await super()._send(token, ctx)


class DeepRememberingWorker(Deep, RememberingWorker):
    """The same with hooks."""


class Exit(Executor):
    """The last of every workflow: yields each token, which becomes a message of the workflow around it."""

    def __init__(self, id: str, ledger: Ledger, ways: int) -> None:
        super().__init__(id)
        self.ledger = ledger
        self.ways = ways

    @handler
    async def leave(self, token: Token, ctx: WorkflowContext[Never, Token]) -> None:
        call = f"{self.id}:{token.trail}"
        self.ledger.started.append(call)
        if 0 < self.ways <= token.share:
            await ctx.yield_output(replace(token, trail=f"{token.trail}^{self.id}", share=token.share // self.ways))
        self.ledger.finished.append(call)


class Out(Exit):
    """The last of the outermost one."""

    @handler
    async def leave(self, token: Token, ctx: WorkflowContext[Never, Any]) -> None:
        self.ledger.started.append(f"{self.id}:{token.trail}")
        await ctx.yield_output([self.id, token.trail, token.value, token.marks])
        self.ledger.finished.append(f"{self.id}:{token.trail}")


# ---------------------------------------------------------------- nestings


@dataclass(frozen=True)
class Nest(Plan):
    """A plan in which some places are workflows of their own."""

    children: tuple[tuple[int, Nest], ...] = ()

    @property
    def first_message(self) -> Token:
        return Token("", self.hops, 12, 7)

    def build(self, ledger: Ledger, storage: Any = None) -> Workflow:
        return self._build(ledger, "", Out("x", ledger, 0), checkpoint_storage=storage)

    def _build(self, ledger: Ledger, prefix: str, last: Exit, **options: Any) -> Workflow:
        """Ids are unique in the whole nesting, so that the ledger can distinguish all deliveries."""
        nodes = [self._node(place, ledger, prefix) for place in range(len(self.habits))]
        builder = WorkflowBuilder(name=f"nest {prefix}", start_executor=nodes[0], state=REDUCERS, **options)
        for wire in self.wires:
            add_wire(builder, wire, nodes)
        return builder.add_edge(nodes[-1], last).build()

    def _node(self, place: int, ledger: Ledger, prefix: str) -> Executor:
        ways = sum(len(wire.targets) for wire in self.wires if place in wire.sources) + (place == len(self.habits) - 1)
        name, child, habits = f"{prefix}n{place}", dict(self.children).get(place), self.habits[place]
        if child is not None:
            inner = child._build(ledger, name, Exit(f"{name}x", ledger, ways))
            return WorkflowExecutor(inner, name, propagate_request=True)
        return (DeepRememberingWorker if habits.memory else Deep)(name, habits, ledger, ways)

    def starts(self, prefix: str = "") -> set[str]:
        """Ids of the executors that only start a child."""
        ids = {f"{prefix}n{place}" for place, _ in self.children}
        return ids.union(*(child.starts(f"{prefix}n{place}") for place, child in self.children))

    def handler_calls(self, checkpoint: WorkflowCheckpoint) -> int:
        """How many calls of workers the next superstep makes, at all depths."""
        return sum(path.rpartition("/")[2] not in self.starts() for path in due(checkpoint))


@st.composite
def nests(draw: st.DrawFn, depth: int = 3) -> Nest:
    drawn = draw(st.lists(HABITS, min_size=2, max_size=3))
    habits = [replace(habit, outputs=0, pauses=min(habit.pauses, 1), sends=max(habit.sends, 1)) for habit in drawn]
    places = draw(st.sets(st.integers(0, len(habits) - 1), min_size=1, max_size=2)) if depth > 1 else set()
    below = tuple((place, draw(nests(depth - draw(st.integers(1, 2))))) for place in sorted(places))
    wires = draw(wirings(len(habits)))
    return Nest(tuple(habits), wires, draw(st.integers(5, 8)), draw(st.booleans()), below)


LEAF = Nest((Habits(memory=True, private=True, fails=True), Habits(pauses=1, asks=True)), (Wire("edge", (0,), (1,)),))
MIDDLE = Nest((Habits(sends=2), Habits(fails=True)), (Wire("edge", (0,), (1,)),), children=((1, LEAF),))
SIBLINGS = Nest(
    (Habits(sends=2), Habits(), Habits(), Habits()),
    (Wire("fan_out", (0,), (1, 2)), Wire("fan_in", (1, 2), (3,))),
    hops=7,
    children=((1, LEAF), (2, MIDDLE)),
)
"""Tried every time: two children each, of different depth, joined; one asks, and all of them fail once."""


# ---------------------------------------------------------------- what must hold


async def attempt_that_may_fail(workflow: Workflow, options: dict[str, Any]) -> WorkflowRunResult | None:
    try:
        result: WorkflowRunResult = await workflow.run(**options)
    except Boom:
        return None
    except SubWorkflowFailed as failed:
        if not isinstance(failed.error, Boom):
            raise
        return None
    return result


async def calm(plan: Nest, storage: Any) -> tuple[list[Rest], list[str]]:
    ledger = Ledger()
    workflow = plan.build(ledger, storage)
    return await drive(plan, lambda: workflow), ledger.finished


async def check_forks(plan: Nest, make_storage: Callable[[], Any]) -> None:
    storage, ledger = make_storage(), Ledger()
    workflow = plan.build(ledger, storage)
    rests, calls = await drive(plan, lambda: workflow), list(ledger.finished)
    end, past = await final(storage), await history(storage)
    run_ids = list(dict.fromkeys(checkpoint.run_id for checkpoint in past))
    done = 0
    for place, checkpoint in enumerate(past):
        ledger.finished.clear()
        begin: dict[str, Any] = {"checkpoint_id": checkpoint.checkpoint_id, "fork": True, "thread_id": f"fork-{place}"}
        resumed = await drive(plan, lambda: plan.build(ledger, storage), thread=f"fork-{place}", **begin)
        assert resumed == rests[run_ids.index(checkpoint.run_id) :]
        assert await final(storage, f"fork-{place}") == end
        assert sorted(ledger.finished) == sorted(calls[done:])
        done += plan.handler_calls(checkpoint)
    assert past[-1].children == {}


async def check_failures(plan: Nest, make_storage: Callable[[], Any], *, with_new_objects: bool) -> Ledger:
    calm_storage, storage, ledger = InMemoryCheckpointStorage(), make_storage(), Ledger(may_fail=True)
    rests, calls = await calm(plan, calm_storage)
    same = plan.build(ledger, storage)
    assert (
        await drive(plan, lambda: plan.build(ledger, storage) if with_new_objects else same, attempt_that_may_fail)
        == rests
    )
    assert await final(storage) == await final(calm_storage)
    if make_storage is SixMethods:
        assert set(ledger.finished) == set(calls)  # without a journal a superstep is repeated whole
    else:
        assert sorted(ledger.finished) == sorted(calls)
    return ledger


STORAGES = st.sampled_from((InMemoryCheckpointStorage, SixMethods))


@examples(3)
@given(nests(), STORAGES)
async def test_resumed_nesting_ends_as_undisturbed_and_runs_only_what_was_left(
    plan: Nest, make_storage: Callable[[], Any]
) -> None:
    await check_forks(plan, make_storage)


async def test_children_side_by_side_are_resumed_at_every_checkpoint() -> None:
    await check_forks(SIBLINGS, InMemoryCheckpointStorage)


@examples(8)
@given(nests(), STORAGES, st.booleans())
async def test_nesting_with_failures_ends_as_undisturbed_and_repeats_nothing(
    plan: Nest, make_storage: Callable[[], Any], with_new_objects: bool
) -> None:
    await check_failures(plan, make_storage, with_new_objects=with_new_objects)


async def test_children_side_by_side_that_fail_are_resumed_until_they_are_done() -> None:
    ledger = await check_failures(SIBLINGS, InMemoryCheckpointStorage, with_new_objects=True)
    assert len(ledger.started) > len(ledger.finished), "something did fail"


@examples(5)
@given(nests(), st.lists(st.integers(0, 60), min_size=1, max_size=4), st.booleans())
async def test_nesting_cancelled_at_any_await_ends_as_undisturbed(
    plan: Nest, turns: list[int], with_new_objects: bool
) -> None:
    rests, calls = await calm(plan, InMemoryCheckpointStorage())
    storage, ledger = InMemoryCheckpointStorage(), Ledger()
    same = plan.build(ledger, storage)
    make = (lambda: plan.build(ledger, storage)) if with_new_objects else (lambda: same)
    assert await drive(plan, make, cancelled_after(turns)) == rests
    assert sorted(ledger.finished) == sorted(calls)


@examples(4)
@given(nests())
async def test_nestings_in_parallel_threads_end_as_each_would_alone(plan: Nest) -> None:
    rests, _ = await calm(plan, None)
    workflow = plan.build(Ledger(), InMemoryCheckpointStorage())
    driven = [drive(plan, lambda: workflow, thread=thread) for thread in ("one", "two", "three")]
    assert await asyncio.gather(*driven) == [rests] * 3
