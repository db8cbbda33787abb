"""A handle from its opening to its close: calls from several tasks, errors that are not lost, and nothing after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Never

import pytest
from tests.turns import awaiting_storage, turns
from tests.unit.engine.flows import Asker, Gate, Verdict, Weather, alone, asking, gated, kinds, shouting

from perdure import (
    AnswerRejected,
    InMemoryCheckpointStorage,
    InvalidRun,
    RunHandle,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
)
from perdure.testing.clock import FakeClock

STORAGES = pytest.mark.parametrize(
    "make_storage", [lambda: None, InMemoryCheckpointStorage, awaiting_storage], ids=["none", "memory", "awaiting"]
)


# ---------------------------------------------------------------- deadlines


class SlowAsker(Asker):
    """Asks for each word as its base does; a number makes it wait at the gate."""

    def __init__(self, gate: Gate, **terms: Any) -> None:
        super().__init__("asker", **terms)
        self.gate = gate

    @handler
    async def wait(self, number: int, ctx: WorkflowContext[Never, int]) -> None:
        await self.gate.pass_through(number, ctx)


def with_deadline(clock: FakeClock, gate: Gate, storage: Any) -> Workflow:
    terms = {"deadline": clock.now() + timedelta(hours=1), "default": Verdict(False)}
    return WorkflowBuilder(start_executor=SlowAsker(gate, **terms), checkpoint_storage=storage, clock=clock).build()


@STORAGES
async def test_handle_left_during_a_run_keeps_no_deadline(
    make_storage: Callable[[], Any],
) -> None:
    clock, gate = FakeClock(), Gate()
    workflow = with_deadline(clock, gate, make_storage())
    async with workflow.open(thread_id="t") as run:
        await run.send("asked")
        await run.wait()
        await run.send(1)
        await gate.arrived.wait()
    clock.advance(7200)
    await turns(10)
    assert clock.sleepers == 0 and run.result is not None
    assert run.result.get_final_state() is WorkflowRunState.CANCELLED
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == [1, "asked: False []"]


async def test_a_cancelled_handle_waits_for_no_deadline_until_it_is_resumed() -> None:
    clock, gate = FakeClock(), Gate()
    async with with_deadline(clock, gate, None).open() as run:
        await run.send("asked")
        await run.wait()
        await clock.wait_for_sleepers()
        await run.cancel()
        clock.advance(7200)
        await turns(5)
        assert run.result is not None and len(run.result.get_request_info_events()) == 1
        await run.resume()
        result = await run.wait()
        assert result is not None and result.get_outputs() == ["asked: False []"]


async def test_deadlines_are_kept_in_every_thread_of_a_storage() -> None:
    clock = FakeClock()
    terms = {"deadline": clock.now() + timedelta(hours=1), "default": Verdict(True)}
    workflow = asking(terms=terms, checkpoint_storage=InMemoryCheckpointStorage(), clock=clock)
    await workflow.run("asked", thread_id="first")
    async with workflow.open(thread_id="second") as run:
        await run.send("asked")
        await run.wait()
        await clock.wait_for_sleepers()
        clock.advance(7200)
        assert [event.data async for event in run.events() if event.type == "output"] == ["asked: True []"]


# ---------------------------------------------------------------- several callers at once


@STORAGES
async def test_answers_given_by_several_tasks_at_once_are_all_accepted(make_storage: Callable[[], Any]) -> None:
    workflow = asking(checkpoint_storage=make_storage())
    async with workflow.open(thread_id="t") as run:
        await run.send("a b c")
        await run.wait()
        await asyncio.gather(*(run.respond({word: Verdict(True)}) for word in "abc"))
        result = await run.wait()
        assert result is not None and result.get_request_info_events() == []
        assert result.get_final_state() is WorkflowRunState.IDLE


async def test_answers_of_several_tasks_wait_for_the_run_and_for_each_other() -> None:
    gate = Gate()
    workflow = WorkflowBuilder(start_executor=SlowAsker(gate), checkpoint_storage=InMemoryCheckpointStorage()).build()
    async with workflow.open(thread_id="t") as run:
        await run.send("a b")
        await run.wait()
        await run.send(1)
        await gate.arrived.wait()
        answers = asyncio.gather(*(run.respond({word: Verdict(True)}) for word in "ab"))
        await turns(2)
        gate.opened.set()
        await answers
        result = await run.wait()
        assert result is not None and result.get_request_info_events() == []


async def test_calls_that_wait_when_the_handle_is_left_start_nothing() -> None:
    gate = Gate()
    workflow = gated(gate)
    async with asyncio.timeout(60), workflow.open(thread_id="t") as run:
        await run.send("x")
        await gate.arrived.wait()
        waiting = [asyncio.ensure_future(call) for call in (run.resume(), run.respond({"q": 1}), run.resume())]
        await turns(2)
    for call in waiting:
        with pytest.raises(InvalidRun, match="This handle is closed"):
            await call
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_cancel_also_ends_the_runs_of_calls_that_waited_for_their_turn() -> None:
    gate = Gate()
    workflow = gated(gate)
    async with asyncio.timeout(60), workflow.open(thread_id="t") as run:
        await run.send("x")
        await gate.arrived.wait()
        waiting = asyncio.gather(run.resume(), run.resume())
        await turns(2)
        await run.cancel()
        await waiting
        await run.cancel()
        gate.opened.set()
        assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


# ---------------------------------------------------------------- closed


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.send("x"),
        lambda run: run.respond({"q": 1}),
        lambda run: run.resume(),
        lambda run: run.restore("a checkpoint"),
    ],
    ids=["send", "respond", "resume", "restore"],
)
async def test_a_closed_handle_refuses_to_move_the_thread(call: Callable[[RunHandle], Awaitable[None]]) -> None:
    async with shouting(checkpoint_storage=InMemoryCheckpointStorage()).open(thread_id="t") as run:
        await run.send("hi")
        await run.wait()
    with pytest.raises(InvalidRun, match=r"This handle is closed\. Open another one"):
        await call(run)
    assert [event.type async for event in run.events(after=0)][-1] == "status"  # reading is still possible


# ---------------------------------------------------------------- errors


async def test_next_wait_raises_the_first_error_and_notes_the_later_failure() -> None:
    weather = Weather()
    async with alone(weather.pass_through).open() as run:
        await run.send("bad")
        await turns(20)
        await run.respond({"nothing": "asked"})
        with pytest.raises(ConnectionError, match="the bridge is closed") as caught:
            await run.wait()
        assert "A later run of the handle failed too" in "".join(caught.value.__notes__)
        weather.is_bad = False
        await run.resume()
        result = await run.wait()
        assert result is not None and result.get_outputs() == ["bad"]


async def test_wrong_answer_is_raised_even_when_a_right_answer_followed() -> None:
    async with asking().open() as run:
        await run.send("a b")
        await run.wait()
        await run.respond({"a": "not a verdict"})
        await run.respond({"b": Verdict(True)})
        with pytest.raises(AnswerRejected):
            await run.wait()
        result = await run.wait()
        assert result is not None and [request.request_id for request in result.get_request_info_events()] == ["a"]


# ---------------------------------------------------------------- cancelling at once


@STORAGES
@pytest.mark.parametrize("moment", range(4))
async def test_leaving_right_after_sending_ends_at_once_and_keeps_the_message(
    make_storage: Callable[[], Any], moment: int
) -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=make_storage())
    async with asyncio.timeout(60), workflow.open(thread_id="t") as run:
        await run.send("x")
        await turns(moment)
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


@pytest.mark.parametrize("make_storage", [InMemoryCheckpointStorage, awaiting_storage], ids=["memory", "awaiting"])
@pytest.mark.parametrize("moment", range(5))
async def test_events_end_when_runs_were_interrupted_before_they_began(
    make_storage: Callable[[], Any], moment: int
) -> None:
    workflow = shouting(checkpoint_storage=make_storage())
    checkpoint_id = (await workflow.run("hi", thread_id="t")).checkpoint_id
    assert checkpoint_id is not None
    async with workflow.open(thread_id="t") as run:
        for _ in range(3):
            await run.restore(checkpoint_id)
            await turns(moment)
        watching = asyncio.ensure_future(watched(run))
        await turns(1)
        await run.cancel()
        assert set(await watching) <= {"started", "status", "output", "checkpoint_saved", *DRIVEN}


DRIVEN = {"superstep_started", "superstep_completed", "superstep_discarded", "executor_invoked", "executor_completed"}


async def watched(run: RunHandle) -> list[str]:
    return kinds([event async for event in run.events()])
