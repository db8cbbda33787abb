"""Ownership of a thread: first come, first served. No accepted message is lost, and no run keeps a thread forever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Never
from weakref import WeakSet

import pytest
from tests.turns import AwaitingStore, awaiting_storage, turns
from tests.unit.engine.flows import Gate, Verdict, alone, asking, gated, tallying

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RunInterrupted,
    ThreadBusy,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunResult,
    WorkflowRunState,
    handler,
    run_sync,
)
from perdure.checkpoints import access as busy
from perdure.checkpoints.storage import StoreCheckpointStorage

STORAGES = pytest.mark.parametrize(
    "make_storage", [lambda: None, InMemoryCheckpointStorage, awaiting_storage], ids=["none", "memory", "awaiting"]
)


def logging(seen: list[Any], gate: Gate | None = None, **options: Any) -> Workflow:
    """Each message takes some turns (and the gate, if there is one); then it is in `seen`."""

    async def log(message: Any, ctx: WorkflowContext[Never, Any]) -> None:
        await turns(2)
        if gate is not None:
            gate.arrived.set()
            await gate.opened.wait()
        seen.append(message)
        await ctx.yield_output(message)

    return alone(log, accepts=object, **options)


def start(workflow: Workflow, message: Any = None, **options: Any) -> asyncio.Task[WorkflowRunResult]:
    return asyncio.get_running_loop().create_task(workflow.run(message, **{"thread_id": "t", **options}))


# ---------------------------------------------------------------- first come first served


@STORAGES
async def test_waiting_run_is_served_before_a_run_that_comes_as_the_owner_ends(
    make_storage: Callable[[], Any],
) -> None:
    seen: list[str] = []
    gate = Gate()
    workflow = logging(seen, gate, checkpoint_storage=make_storage())

    async def first_and_third() -> None:
        await workflow.run("first", thread_id="t")
        await workflow.run("third", thread_id="t", on_busy="enqueue")

    both = asyncio.ensure_future(first_and_third())
    await gate.arrived.wait()
    second = start(workflow, "second", on_busy="enqueue")
    await turns(1)
    gate.opened.set()
    await asyncio.gather(both, second)
    assert seen == ["first", "second", "third"]


async def test_a_run_that_does_not_wait_is_refused_while_others_do() -> None:
    seen: list[str] = []
    gate = Gate()
    workflow = logging(seen, gate)
    refused: list[str] = []

    async def first_and_impatient() -> None:
        await workflow.run("first", thread_id="t")
        try:
            await workflow.run("impatient", thread_id="t")
        except ThreadBusy as error:
            refused.append(str(error.run_id))

    both = asyncio.ensure_future(first_and_impatient())
    await gate.arrived.wait()
    second = start(workflow, "second", on_busy="enqueue", run_id="the-second")
    await turns(1)
    gate.opened.set()
    await asyncio.gather(both, second)
    assert seen == ["first", "second"] and refused == ["the-second"]


# ---------------------------------------------------------------- interrupting


@STORAGES
async def test_quick_interrupters_are_handled_in_order_and_none_of_them_is_lost(
    make_storage: Callable[[], Any],
) -> None:
    seen: list[int] = []
    workflow = logging(seen, checkpoint_storage=make_storage())
    runs = []
    for number in range(5):
        runs.append(start(workflow, number, on_busy="interrupt"))
        await turns(1)
    results = [await run for run in runs]
    states = [result.get_final_state() for result in results]
    assert states[:-1] == [WorkflowRunState.CANCELLED] * 4 and states[-1] is WorkflowRunState.IDLE
    assert results[-1].get_outputs() == seen == [0, 1, 2, 3, 4]


@STORAGES
async def test_a_message_is_committed_before_its_run_can_be_interrupted(make_storage: Callable[[], Any]) -> None:
    """Whatever the moment of the interruption, what the first run was given is delivered by the second."""
    for moment in range(12):
        seen: list[str] = []
        workflow = logging(seen, checkpoint_storage=make_storage())
        first = start(workflow, "first")
        await turns(moment)
        second = start(workflow, "second", on_busy="interrupt")
        await asyncio.gather(first, second)
        assert seen == ["first", "second"], moment


@STORAGES
async def test_enqueued_message_is_kept_when_its_run_is_interrupted_before_it(
    make_storage: Callable[[], Any],
) -> None:
    seen: list[str] = []
    gate = Gate()
    workflow = logging(seen, gate, checkpoint_storage=make_storage())
    first = start(workflow, "first")
    await gate.arrived.wait()
    first.cancel()
    await asyncio.wait([first])
    gate.arrived.clear()
    second = start(workflow, "second", on_busy="enqueue")
    await gate.arrived.wait()
    third = start(workflow, "third", on_busy="interrupt")
    assert (await second).get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    await third
    assert seen == ["first", "second", "third"]


@STORAGES
@pytest.mark.parametrize("moment", range(8))
async def test_caller_that_cancels_an_interrupted_run_receives_cancelled_error(
    make_storage: Callable[[], Any], moment: int
) -> None:
    gate, seen = Gate(), list[str]()
    workflow = logging(seen, gate, checkpoint_storage=make_storage())
    first = start(workflow, "first")
    await turns(moment)
    second = start(workflow, "second", on_busy="interrupt")
    await turns(1)
    assert first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.opened.set()
    assert (await second).get_outputs()[-1] == "second"


async def test_run_that_just_received_the_thread_can_be_interrupted() -> None:
    seen: list[str] = []
    gate = Gate()
    workflow = logging(seen, gate)

    async def first_and_interrupter() -> WorkflowRunResult:
        await workflow.run("first", thread_id="t")
        return await workflow.run("third", thread_id="t", on_busy="interrupt")

    both = asyncio.ensure_future(first_and_interrupter())
    await gate.arrived.wait()
    waiting = start(workflow, "second", on_busy="enqueue")
    await turns(1)
    gate.opened.set()
    assert (await waiting).get_final_state() is WorkflowRunState.CANCELLED
    assert (await both).get_outputs() == ["second", "third"] and seen == ["first", "second", "third"]


async def test_run_interrupted_while_it_waits_for_another_object_never_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(busy, "MAX_POLL_SECONDS", 3600.0)  # it does not come to look by itself
    storage, gate, seen = InMemoryCheckpointStorage(), Gate(), list[str]()
    holder = start(gated(gate, checkpoint_storage=storage), "held")
    await gate.arrived.wait()
    workflow = logging(seen, checkpoint_storage=storage)
    waiting = start(workflow, "waiting", on_busy="enqueue", run_id="the-waiting")
    while not storage.store.has_subscribers("t"):  # until it listens, which is how it waits
        await turns(1)
    await turns(5)
    interrupter = start(workflow, "interrupting", on_busy="interrupt")
    with pytest.raises(RunInterrupted, match=r"'the-waiting' was interrupted.*before it had begun.*Send its input"):
        await waiting
    assert (await interrupter).get_outputs()[-1] == "interrupting" and "waiting" not in seen
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder


async def test_taking_over_ends_a_run_of_the_same_object() -> None:
    gate, storage = Gate(), InMemoryCheckpointStorage()
    workflow = gated(gate, checkpoint_storage=storage)
    first = start(workflow, "first")
    await gate.arrived.wait()
    taker = start(workflow, takeover=True)
    assert (await first).get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    assert (await taker).get_outputs() == ["first"]


# ---------------------------------------------------------------- runs that stop waiting


async def test_waiting_run_cancelled_as_the_owner_ends_does_not_harm_the_owner() -> None:
    gate = Gate()
    waiting: list[asyncio.Task[WorkflowRunResult]] = []

    async def cancel_and_end(word: str, ctx: WorkflowContext[Never, str]) -> None:
        gate.arrived.set()
        await gate.opened.wait()
        if word == "first":
            waiting[0].cancel()  # the last thing before the run ends
        await ctx.yield_output(word)

    workflow = alone(cancel_and_end)
    first = start(workflow, "first")
    await gate.arrived.wait()
    waiting.append(start(workflow, "cancelled", on_busy="enqueue"))
    last = start(workflow, "last", on_busy="enqueue")
    await turns(1)
    gate.opened.set()
    assert [(await run).get_outputs() for run in (first, last)] == [["first"], ["last"]]
    assert waiting[0].cancelled()


class Leaving:
    """A store's pause: so many turns after the first release it cancels the run that waits for the thread."""

    def __init__(self, moment: int) -> None:
        self._moment = moment
        self.waiting: asyncio.Task[WorkflowRunResult] | None = None

    async def __call__(self, moment: str) -> None:
        if moment == "after release" and self.waiting is not None:
            self._cancel(self.waiting, self._moment)
            self.waiting = None

    def _cancel(self, task: asyncio.Task[WorkflowRunResult], turns_left: int) -> None:
        if turns_left:
            asyncio.get_running_loop().call_soon(self._cancel, task, turns_left - 1)
        else:
            task.cancel()


@pytest.mark.parametrize("moment", range(8))
async def test_waiting_run_cancelled_as_it_gets_the_thread_passes_the_thread_on(moment: int) -> None:
    seen: list[str] = []
    gate, leaving = Gate(), Leaving(moment)
    workflow = logging(seen, gate, checkpoint_storage=StoreCheckpointStorage(AwaitingStore(leaving)))
    first = start(workflow, "first")
    await gate.arrived.wait()
    leaving.waiting, last = (start(workflow, word, on_busy="enqueue") for word in ("cancelled", "last"))
    await turns(1)
    gate.opened.set()
    assert (await first).get_outputs() == ["first"]
    assert (await last).get_outputs()[-1] == "last" and seen[0] == "first" and seen[-1] == "last"


class Counted(Executor):
    """Adds its instances to `alive`, and waits at the gate."""

    def __init__(self, id: str, gate: Gate, alive: WeakSet[Executor]) -> None:
        super().__init__(id)
        self.gate = gate
        alive.add(self)

    @handler
    async def take(self, word: str, ctx: WorkflowContext[Never, str]) -> None:
        await self.gate.pass_through(word, ctx)


@pytest.mark.parametrize("moment", range(8))
async def test_thread_in_a_storage_is_released_when_its_last_waiting_run_leaves(moment: int) -> None:
    gate, alive, leaving = Gate(), WeakSet[Executor](), Leaving(moment)
    storage = StoreCheckpointStorage(AwaitingStore(leaving))
    workflow = WorkflowBuilder(start_executor=Counted("c", gate, alive), checkpoint_storage=storage).build()

    async def leave_while_waiting(thread_id: str) -> None:
        owner = start(workflow, "x", thread_id=thread_id)
        await gate.arrived.wait()
        leaving.waiting = waiting = start(workflow, "y", thread_id=thread_id, on_busy="enqueue")
        await turns(1)
        gate.opened.set()
        await asyncio.wait([owner, waiting])

    for thread_id in ("the first, which stays", "another", "a third"):
        gate.arrived.clear()
        gate.opened.clear()
        await leave_while_waiting(thread_id)
    gc.collect()
    assert len(alive) == 1


# ---------------------------------------------------------------- whose thread is the object's own


async def test_rejected_run_from_another_threads_checkpoint_keeps_the_own_thread() -> None:
    workflow = tallying(checkpoint_storage=InMemoryCheckpointStorage())
    mine = await workflow.run("x")
    other = await workflow.run("x", thread_id="other")
    with pytest.raises(RuntimeError):
        await workflow.run(checkpoint_id=other.checkpoint_id, responses={"nobody asked": 1})
    again = await workflow.run("x")
    assert again.thread_id == mine.thread_id and again.get_outputs() == [2]


async def test_run_rejected_by_another_busy_thread_keeps_the_own_thread() -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=InMemoryCheckpointStorage())
    gate.opened.set()
    mine = await workflow.run("x")
    other = await workflow.run("x", thread_id="other")
    gate.opened.clear()
    gate.arrived.clear()
    holder = start(workflow, "y", thread_id="other")
    await gate.arrived.wait()
    with pytest.raises(ThreadBusy):
        await workflow.run(checkpoint_id=other.checkpoint_id)
    gate.opened.set()
    await holder
    assert (await workflow.run("z")).thread_id == mine.thread_id


async def test_a_refused_fork_leaves_the_object_its_own_thread_and_its_question() -> None:
    workflow = asking(checkpoint_storage=InMemoryCheckpointStorage())
    asked = await workflow.run("q")
    with pytest.raises(UnknownRequest):
        await workflow.run(checkpoint_id=asked.checkpoint_id, fork=True, responses={"another": Verdict(True)})
    answered = await workflow.run(responses={"q": Verdict(True)})
    assert answered.thread_id == asked.thread_id and answered.get_outputs() == ["q: True []"]


# ---------------------------------------------------------------- event loops and OS threads


@pytest.mark.parametrize(
    "how",
    [{}, {"on_busy": "enqueue"}, {"on_busy": "interrupt"}, {"takeover": True}],
    ids=["reject", "enqueue", "interrupt", "takeover"],
)
@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["none", "memory"])
def test_a_run_whose_event_loop_was_closed_does_not_keep_its_thread(
    how: dict[str, Any], make_storage: Callable[[], Any]
) -> None:
    calls: list[str] = []

    async def hang_once(word: str, ctx: WorkflowContext[Never, str]) -> None:
        calls.append(word)
        if len(calls) == 1:
            await asyncio.Event().wait()
        await ctx.yield_output(word)

    workflow = alone(hang_once, checkpoint_storage=make_storage())

    async def leave_open() -> Any:
        reader = aiter(workflow.run("x", stream=True, thread_id="t"))
        while (await anext(reader)).type != "executor_invoked":
            pass
        await turns(1)
        return reader

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a task destroyed while it is pending: as a careless user leaves it
    reader = loop.run_until_complete(leave_open())
    loop.close()
    assert run_sync(workflow.run(thread_id="t", **how)).get_outputs() == ["x"]
    del reader


def test_runs_of_several_os_threads_take_their_turns() -> None:
    seen: list[int] = []
    together = threading.Barrier(6)
    workflow = logging(seen)

    def one(number: int) -> list[Any]:
        together.wait()
        return run_sync(workflow.run(number, thread_id="t", on_busy="enqueue")).get_outputs()

    with ThreadPoolExecutor(6) as pool:
        outputs = list(pool.map(one, range(6)))
    assert outputs == [[number] for number in range(6)] and sorted(seen) == list(range(6))


def test_a_run_of_another_os_thread_can_be_interrupted_and_loses_nothing() -> None:
    arrived, calls = threading.Event(), list[str]()

    async def hang_once(word: str, ctx: WorkflowContext[Never, str]) -> None:
        calls.append(word)
        if len(calls) == 1:
            arrived.set()
            await asyncio.Event().wait()
        await ctx.yield_output(word)

    workflow = alone(hang_once)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: run_sync(workflow.run("first", thread_id="t")))
        assert arrived.wait(10)
        second = run_sync(workflow.run("second", thread_id="t", on_busy="interrupt"))
        assert first.result(10).get_final_state() is WorkflowRunState.CANCELLED
    assert second.get_outputs() == ["first", "second"]


# ---------------------------------------------------------------- stores that hang or fail


async def test_run_with_a_hanging_store_is_cancelled_at_once_and_releases_later() -> None:
    hanging, opening = asyncio.Event(), asyncio.Event()

    async def pause(moment: str) -> None:
        if moment == "after open":
            opening.set()
            await hanging.wait()

    seen: list[str] = []
    workflow = logging(seen, checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))
    run = start(workflow, "x")
    await opening.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    following = start(workflow, "y")
    await turns(5)
    hanging.set()
    assert (await following).get_outputs() == ["y"] and seen == ["y"]


@pytest.mark.parametrize(
    "how", [{"on_busy": "interrupt"}, {"takeover": True}, {}], ids=["interrupt", "takeover", "reject"]
)
async def test_run_cancelled_while_its_store_opens_never_takes_the_thread(
    how: dict[str, Any],
) -> None:
    hanging, opening, gate, seen = asyncio.Event(), asyncio.Event(), Gate(), list[str]()

    async def pause(moment: str) -> None:
        if moment == "before open" and not opening.is_set():
            opening.set()
            await hanging.wait()

    workflow = logging(seen, gate, checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))
    first = start(workflow, "first", **how)
    await opening.wait()
    first.cancel()
    await asyncio.wait([first])
    second = start(workflow, "second")
    await turns(10)
    hanging.set()
    await gate.arrived.wait()
    await turns(10)
    gate.opened.set()
    assert (await second).get_outputs() == ["second"] and seen == ["second"]


async def test_a_store_that_fails_to_release_costs_the_run_nothing() -> None:
    async def pause(moment: str) -> None:
        if moment == "after release":
            raise OSError("the line went dead")

    seen: list[str] = []
    workflow = logging(seen, checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))
    assert (await workflow.run("x", thread_id="t")).get_outputs() == ["x"]
    assert (await workflow.run("y", thread_id="t")).get_outputs() == ["y"]


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_cancellation_during_release_waits_for_it_and_frees_the_thread(times: int) -> None:
    releasing, may_continue = asyncio.Event(), asyncio.Event()

    async def pause(moment: str) -> None:
        if moment == "before release":
            releasing.set()
            await may_continue.wait()

    seen: list[str] = []
    workflow = logging(seen, checkpoint_storage=StoreCheckpointStorage(AwaitingStore(pause)))
    run = start(workflow, "x")
    await releasing.wait()
    for _ in range(times):
        run.cancel()
        await turns(2)
    assert not run.done()
    may_continue.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await workflow.run("y", thread_id="t")).get_outputs() == ["y"] and seen == ["x", "y"]


# ---------------------------------------------------------------- the same id in two storages


async def test_threads_with_the_same_id_in_two_storages_are_two_threads() -> None:
    async def add(word: str, ctx: WorkflowContext[Never, list[str]]) -> None:
        ctx.set_state("words", [*ctx.get_state("words", []), word])
        await ctx.yield_output(ctx.get_state("words"))

    workflow, first, second = alone(add), InMemoryCheckpointStorage(), InMemoryCheckpointStorage()

    async def words(word: str, storage: Any) -> Any:
        (output,) = (await workflow.run(word, thread_id="main", checkpoint_storage=storage)).get_outputs()
        return output

    assert await words("a", first) == ["a"]
    assert await words("b", second) == ["b"]
    assert await words("c", first) == ["a", "c"]
    assert await words("d", second) == ["b", "d"]


async def test_executors_with_the_same_id_in_two_storages_share_no_memory() -> None:
    first, second = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await tallying().run("x", thread_id="main", checkpoint_storage=second)
    workflow = tallying()
    for storage, count in ((first, 1), (second, 2), (first, 2), (second, 3)):
        result = await workflow.run("x", thread_id="main", checkpoint_storage=storage)
        assert result.get_outputs() == [count]
