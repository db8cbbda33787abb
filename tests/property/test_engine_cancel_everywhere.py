"""Cancelled at every turn of the event loop, failed by every call of its store, pulled at by many callers: a thread
ends as if nothing had happened, nothing that was accepted is lost or doubled, and no caller waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Never

import pytest
from hypothesis import given, strategies as st
from tests.chance import SOAK
from tests.promises.stages import Again, with_a_new_object, with_the_same_object
from tests.turns import AwaitingStore, awaiting_storage, turns

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RunInterrupted,
    ThreadBusy,
    ThreadNotFound,
    ThreadNotIdle,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunResult,
    WorkflowRunState,
    add,
    append,
    handler,
)
from perdure.checkpoints.storage import StoreCheckpointStorage

ROUNDS = 4 if SOAK else 2
"""How often the loop of the graph is gone through."""
GAPS = (0, 1, 2, 3, 5, 8) if SOAK else (0, 2)
"""Turns between two cancellations; 0 stands for one alone."""
HANG = 10
"""Seconds after which a run that should have ended is called hanging."""


# ---------------------------------------------------------------- a graph that shows all it remembers


class Remembering(Executor):
    """Keeps a count and a list through hooks that take their time."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.count = 0
        self.seen: list[int] = []

    def note(self, *numbers: int) -> str:
        self.count += 1
        self.seen += numbers
        return f"{self.id} {self.count} {self.seen}"

    async def on_checkpoint_save(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"count": self.count, "seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.count = state["count"]
        await asyncio.sleep(0)
        self.seen = state["seen"]


class Source(Remembering):
    @handler
    async def take(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(self.note(number))
        await asyncio.sleep(0)
        await ctx.send_message(number)


class Worker(Remembering):
    def __init__(self, id: str, pace: int) -> None:
        super().__init__(id)
        self.pace = pace

    @handler
    async def work(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        noted = self.note(number)
        await turns(self.pace)
        ctx.set_state("log", self.id)
        ctx.set_state("sum", number)
        ctx.private["times"] = ctx.private.get("times", 0) + 1
        await ctx.yield_output(f"{noted} {ctx.private['times']}")
        await ctx.send_message(number + 1)


class Join(Remembering):
    @handler
    async def join(self, numbers: list[int], ctx: WorkflowContext[int, str]) -> None:
        noted = self.note(*numbers)
        await asyncio.sleep(0)
        await ctx.yield_output(f"{noted} {ctx.get_state('log')} {ctx.get_state('sum')}")
        if numbers[0] < ROUNDS:
            await ctx.send_message(numbers[0])


def build(storage: Any) -> Workflow:
    """source -> three workers of different pace -> join -> source, until it was gone through often enough."""
    source, join = Source("source"), Join("join")
    workers = [Worker(f"worker{pace}", pace) for pace in (0, 3, 5)]
    reducers = {"log": append, "sum": add}
    return (
        WorkflowBuilder(name="remembering", start_executor=source, checkpoint_storage=storage, state=reducers)
        .add_fan_out_edges(source, workers)
        .add_fan_in_edges(workers, join)
        .add_edge(join, source)
        .build()
    )


async def in_time(run: asyncio.Future[WorkflowRunResult]) -> WorkflowRunResult:
    done, _ = await asyncio.wait([run], timeout=HANG)
    assert done, "the run hangs"
    return run.result()


def start(workflow: Workflow, message: Any = None, **options: Any) -> asyncio.Task[WorkflowRunResult]:
    return asyncio.get_running_loop().create_task(workflow.run(message, thread_id="t", **options))


async def outputs_of(workflow: Workflow, *, is_begun: bool, **options: Any) -> list[list[str]]:
    """What the thread gives when it is led to its end, and what it gives for one more message: all that it is."""
    try:
        first = await in_time(start(workflow, None if is_begun else 0, **options))
    except ThreadNotFound:  # disturbed before its input was accepted
        first = await in_time(start(workflow, 0, **options))
    return [first.get_outputs(), (await in_time(start(workflow, 0))).get_outputs()]


def case(storage: str, durability: str, again: Again) -> Any:
    return pytest.param(storage, durability, again, id=f"{storage}-{durability}-{again.__name__}")


STORAGES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "memory": InMemoryCheckpointStorage,
    "awaiting": awaiting_storage,
}
CASES = [
    case("none", "sync", with_the_same_object),
    *(
        case(storage, durability, again)
        for storage in ("memory", "awaiting")
        for durability in ("sync", "exit")
        for again in (with_the_same_object, with_a_new_object)
    ),
]


# ---------------------------------------------------------------- cancelled at every turn


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: f"gap {gap}")
@pytest.mark.parametrize(("storage", "durability", "again"), CASES)
async def test_run_cancelled_once_or_twice_at_any_turn_ends_as_undisturbed(
    storage: str, durability: str, again: Again, gap: int
) -> None:
    undisturbed = await outputs_of(build(STORAGES[storage]()), is_begun=False)
    moment = 0
    while True:
        kept = STORAGES[storage]()
        workflow = build(kept)
        run = start(workflow, 0, durability=durability)
        await turns(moment)
        if run.done():
            break
        run.cancel()
        if gap:
            await turns(gap)
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await in_time(run)
        resumed = await outputs_of(again(workflow, partial(build, kept)), is_begun=True)
        assert resumed == undisturbed, f"cancelled at turn {moment}"
        moment += 1
    assert moment > 20


# ---------------------------------------------------------------- failed by every call of its store


class Failing:
    """Raises at the n-th moment of a store's calls: before or after one of them took effect."""

    def __init__(self, moment: int) -> None:
        self._left = moment
        self.was_reached = False

    async def __call__(self, moment: str) -> None:
        await asyncio.sleep(0)
        self._left -= 1
        if self._left == 0:
            self.was_reached = True
            raise OSError(f"no answer {moment}")


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("again", [with_the_same_object, with_a_new_object])
async def test_run_whose_store_fails_at_any_call_ends_as_undisturbed(again: Again, durability: str) -> None:
    undisturbed = await outputs_of(build(awaiting_storage()), is_begun=False)
    moment = 0
    while True:
        moment += 1
        failing = Failing(moment)
        kept = StoreCheckpointStorage(AwaitingStore(failing))
        workflow = build(kept)
        run = start(workflow, 0, durability=durability)
        await asyncio.wait([run], timeout=HANG)
        assert run.done(), f"the run hangs after a failure at moment {moment}"
        is_well = run.exception() is None  # a release that failed costs nothing
        if not failing.was_reached:
            break
        # Whether the owner was given up is not sure after such a failure, so the next run takes the thread.
        resumed = await outputs_of(again(workflow, partial(build, kept)), is_begun=True, takeover=True)
        assert resumed == undisturbed, f"failed at moment {moment}, the run itself ended well: {is_well}"
    assert moment > 10


# ---------------------------------------------------------------- pulled at by many callers


@dataclass(frozen=True)
class Call:
    """One message of a client: how long it waits before it sends, how it waits its turn, when it gives up."""

    before: int
    on_busy: str
    gives_up_after: int | None


CALLS = st.builds(
    Call,
    before=st.integers(0, 6),
    on_busy=st.sampled_from(("enqueue", "interrupt", "reject")),
    gives_up_after=st.none() | st.integers(0, 12),
)


class Slow(Executor):
    @handler
    async def pass_on(self, message: str, ctx: WorkflowContext[str]) -> None:
        await turns(len(message) % 3)
        await ctx.send_message(message)


class Ledger(Executor):
    @handler
    async def enter(self, message: str, ctx: WorkflowContext[Never, list[str]]) -> None:
        entries = [*ctx.get_state(self.id, []), message]
        ctx.set_state(self.id, entries)
        await asyncio.sleep(0)
        if message == "last":
            await ctx.yield_output(entries)


def ledgers(storage: Any) -> Workflow:
    slow, books = Slow("slow"), [Ledger("left"), Ledger("right")]
    builder = WorkflowBuilder(name="ledgers", start_executor=slow, checkpoint_storage=storage)
    return builder.add_fan_out_edges(slow, books).build()


class Client:
    def __init__(self, name: str, workflow: Workflow) -> None:
        self._name = name
        self._workflow = workflow
        self.accepted: list[str] = []
        """Messages of runs that gave a result: they are in the thread, even where the run was interrupted."""

    async def make(self, calls: list[Call]) -> None:
        for number, call in enumerate(calls):
            message = self._name * (number + 1)
            await turns(call.before)
            run = start(self._workflow, message, on_busy=call.on_busy)
            has_given_up = False
            if call.gives_up_after is not None:
                await turns(call.gives_up_after)
                has_given_up = run.cancel()
            try:
                result = await in_time(run)
            except (ThreadBusy, ThreadNotIdle):
                assert call.on_busy != "enqueue" and not has_given_up
            except RunInterrupted:
                assert not has_given_up  # the error reports that it was never accepted
            except asyncio.CancelledError:
                assert has_given_up, "cancelled, though no caller did"
            else:
                assert not has_given_up, "its caller's cancellation was swallowed"
                assert result.get_final_state() in (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
                self.accepted.append(message)


@pytest.mark.parametrize("storage", STORAGES)
@given(plan=st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=2, max_size=4))
async def test_many_callers_of_one_thread_lose_nothing_and_double_nothing(storage: str, plan: list[list[Call]]) -> None:
    workflow = ledgers(STORAGES[storage]())
    clients = [Client(name, workflow) for name, _ in zip("abcd", plan, strict=False)]
    await asyncio.gather(*(client.make(calls) for client, calls in zip(clients, plan, strict=True)))
    left, right = (await in_time(start(workflow, "last", on_busy="enqueue"))).get_outputs()
    assert left == right, "one of two siblings missed a message"
    assert [message for message, times in Counter(left).items() if times > 1] == []
    accepted = [message for client in clients for message in client.accepted]
    assert set(accepted) <= set(left)
