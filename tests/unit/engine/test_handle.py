"""`workflow.open`: send, answer, restore, cancel and watch a thread that is live."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.engine.flows import (
    Gate,
    Verdict,
    Weather,
    alone,
    asking,
    crossing,
    function,
    gated,
    kinds,
    shouting,
    take_all,
)

from perdure import (
    CheckpointNotFound,
    InMemoryCheckpointStorage,
    NoStorage,
    RequestExpired,
    RunHandle,
    ThreadBusy,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowEvent,
    WorkflowRunState,
    WrongInputType,
)
from perdure.testing.clock import FakeClock


def outputs(events: list[WorkflowEvent]) -> list[Any]:
    return [event.data for event in events if event.type == "output"]


async def until_rest(run: RunHandle) -> list[WorkflowEvent]:
    return [event async for event in run.events()]


async def test_handle_sends_messages_in_sequence_and_watches_their_events() -> None:
    async with shouting().open(thread_id="t") as run:
        for word in ("hi", "ho"):
            await run.send(word)
            assert outputs(await until_rest(run)) == [f"<{word.upper()}>"]
        assert run.thread_id == "t"


async def test_an_opened_handle_that_did_nothing_is_at_rest() -> None:
    async with shouting().open() as run:
        assert await until_rest(run) == [] and run.checkpoints == [] and run.last_checkpoint is None
        assert await run.wait() is None


async def test_opening_starts_nothing_even_where_none_is_accepted() -> None:
    seen: list[Any] = []
    workflow = alone(lambda message, ctx: seen.append(message), accepts=type(None))
    async with workflow.open() as run:
        assert await run.wait() is None
    assert seen == []


async def test_waiting_gives_the_result() -> None:
    async with shouting().open() as run:
        await run.send("hi")
        result = await run.wait()
        assert result is not None and result.get_outputs() == ["<HI>"] and run.result is result


def slow_then_echo(gate: Gate, **options: Any) -> Workflow:
    """`start` echoes its message. For the message "slow" it waits at the gate first."""

    async def work(message: str, ctx: Any) -> None:
        if message == "slow":
            await gate.pass_through(message, ctx)
        else:
            await ctx.yield_output(message)

    return WorkflowBuilder(name="echo", start_executor=function("start", work), **options).build()


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_a_message_sent_while_a_superstep_runs_is_delivered_in_the_next(make_storage: Callable[[], Any]) -> None:
    gate = Gate()
    async with slow_then_echo(gate, checkpoint_storage=make_storage()).open() as run:
        await run.send("slow")
        await gate.arrived.wait()
        await run.send("quick")
        gate.opened.set()
        events = await until_rest(run)
        assert outputs(events) == ["slow", "quick"] and kinds(events).count("started") == 1


async def test_messages_sent_before_the_first_begins_are_all_delivered() -> None:
    gate = Gate()
    async with slow_then_echo(gate).open() as run:
        await run.send("slow")
        await run.send("quick")
        gate.opened.set()
        assert outputs(await until_rest(run)) == ["slow", "quick"]


async def test_message_of_the_wrong_type_is_rejected_and_the_run_continues() -> None:
    gate = Gate()
    wrong: Any = 5
    async with slow_then_echo(gate).open() as run:
        await run.send("slow")
        await gate.arrived.wait()
        with pytest.raises(WrongInputType, match="cannot handle input of type 'int'"):
            await run.send(wrong)
        gate.opened.set()
        assert outputs(await until_rest(run)) == ["slow"]
        with pytest.raises(WrongInputType):
            await run.send(wrong)
        await run.send("after")
        assert outputs(await until_rest(run)) == ["after"]


async def test_a_request_is_answered_through_the_handle() -> None:
    async with asking().open() as run:
        await run.send("why")
        events = await until_rest(run)
        assert [event.request_id for event in events if event.type == "request_info"] == ["why"]
        await run.respond({"why": {"is_good": True}})
        assert outputs(await until_rest(run)) == ["why: True []"]


async def test_events_raise_a_wrong_answer_and_the_handle_stays_usable() -> None:
    async with asking().open() as run:
        await run.send("why")
        await until_rest(run)
        await run.respond({"what": Verdict(True)})
        with pytest.raises(UnknownRequest, match="no request 'what'"):
            await until_rest(run)
        await run.respond({"why": Verdict(True)})
        assert outputs(await until_rest(run)) == ["why: True []"]


async def test_restore_continues_from_the_checkpoint_in_the_same_handle() -> None:
    storage = InMemoryCheckpointStorage()
    async with shouting(checkpoint_storage=storage).open(thread_id="t") as run:
        await run.send("hi")
        await until_rest(run)
        entry, _, end = run.checkpoints
        assert run.last_checkpoint is end and entry.iteration_count == 0
        await run.restore(entry)
        events = await until_rest(run)
        assert outputs(events) == ["<HI>"] and kinds(events).count("superstep_completed") == 2
    assert len(await storage.list_checkpoint_ids(thread_id="t")) == 6


async def test_restore_cancels_the_current_run() -> None:
    gate = Gate()
    workflow = slow_then_echo(gate, checkpoint_storage=InMemoryCheckpointStorage())
    async with workflow.open() as run:
        await run.send("first")
        await until_rest(run)
        done = run.checkpoints[-1]
        await run.send("slow")
        await gate.arrived.wait()
        await run.restore(done)
        assert outputs(await until_rest(run)) == ["first"]
        await run.send("second")
        assert outputs(await until_rest(run)) == ["second"]


async def test_restore_of_an_unknown_checkpoint_raises_and_keeps_the_thread() -> None:
    async with shouting(checkpoint_storage=InMemoryCheckpointStorage()).open() as run:
        await run.send("hi")
        await until_rest(run)
        await run.restore("nothing")
        with pytest.raises(CheckpointNotFound, match="No checkpoint found with ID nothing "):
            await until_rest(run)
        await run.send("ho")
        assert outputs(await until_rest(run)) == ["<HO>"]


async def test_restoring_needs_a_storage() -> None:
    async with shouting().open() as run:
        with pytest.raises(NoStorage, match="Restoring a checkpoint needs a checkpoint storage"):
            await run.restore("c")


async def test_cancel_ends_the_current_run_and_the_thread_can_be_resumed() -> None:
    gate = Gate()
    async with gated(gate).open() as run:
        await run.send("x")
        await gate.arrived.wait()
        await run.cancel()
        events = await until_rest(run)
        assert events[-1].state is WorkflowRunState.CANCELLED and "superstep_discarded" in kinds(events)
        gate.opened.set()
        await run.resume()
        assert outputs(await until_rest(run)) == ["x"]


async def test_cancelling_with_nothing_at_work_does_nothing() -> None:
    async with shouting().open() as run:
        await run.cancel()
        await run.send("hi")
        await until_rest(run)
        await run.cancel()
        assert run.result is not None and run.result.get_final_state() is WorkflowRunState.IDLE


async def test_leaving_the_block_cancels_the_current_run_and_frees_the_thread() -> None:
    gate = Gate()
    workflow = gated(gate, checkpoint_storage=InMemoryCheckpointStorage())
    async with workflow.open(thread_id="t") as run:
        await run.send("x")
        await gate.arrived.wait()
    gate.opened.set()
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x"]


async def test_failure_is_raised_after_its_events_and_the_thread_can_be_resumed() -> None:
    weather = Weather()
    async with crossing(weather).open() as run:
        await run.send("cart")
        seen: list[WorkflowEvent] = []
        with pytest.raises(ConnectionError):
            await take_all(run.events(), seen)
        assert seen[-1].state is WorkflowRunState.FAILED
        weather.is_bad = False
        await run.resume()
        assert outputs(await until_rest(run)) == ["cart"]


async def test_wait_raises_the_error_of_the_run_once() -> None:
    async with crossing(Weather()).open() as run:
        await run.send("cart")
        with pytest.raises(ConnectionError):
            await run.wait()


async def test_between_two_messages_others_may_move_the_thread() -> None:
    workflow = shouting(checkpoint_storage=InMemoryCheckpointStorage())
    async with workflow.open(thread_id="t") as run:
        await run.send("hi")
        await until_rest(run)
        assert (await workflow.run("ho", thread_id="t")).get_outputs() == ["<HO>"]
        await run.send("ha")
        assert outputs(await until_rest(run)) == ["<HA>"]


async def test_a_handle_on_a_busy_thread_is_refused_like_any_other_run() -> None:
    gate = Gate()
    workflow = gated(gate)
    async with workflow.open(thread_id="t") as first, workflow.open(thread_id="t") as second:
        await first.send("x")
        await gate.arrived.wait()
        with pytest.raises(ThreadBusy):
            await second.send("y")
        gate.opened.set()
        assert outputs(await until_rest(first)) == ["x"], "what was refused is not delivered"
        await second.send("z")
        assert outputs(await until_rest(second)) == ["z"], "and the handle can still be used"


@pytest.mark.parametrize("make_storage", [lambda: None, InMemoryCheckpointStorage], ids=["no storage", "memory"])
async def test_a_message_sent_while_a_superstep_runs_survives_its_failure(make_storage: Callable[[], Any]) -> None:
    gate, fails = Gate(), [True]

    async def work(message: str, ctx: Any) -> None:
        await gate.pass_through(message, ctx)
        if fails[0]:
            raise ConnectionError("as asked")

    async with alone(work, checkpoint_storage=make_storage()).open() as run:
        await run.send("first")
        await gate.arrived.wait()
        await run.send("second")
        gate.opened.set()
        with pytest.raises(ConnectionError):
            await run.wait()
        fails[0] = False
        await run.resume()
        result = await run.wait()
        assert result is not None and result.get_outputs()[-1] == "second"


# ---------------------------------------------------------------- the log


async def test_the_log_is_read_from_a_cursor_without_gap_or_repeat() -> None:
    async with shouting(checkpoint_storage=InMemoryCheckpointStorage()).open() as run:
        await run.send("hi")
        live = await until_rest(run)
        logged = [event async for event in run.events(after=0)]
        assert [event.seq for event in logged] == list(range(1, len(logged) + 1))
        assert {event.thread_id for event in logged} == {run.thread_id}
        assert all(event.timestamp is not None and event.run_id is not None for event in logged)
        not_logged = ("checkpoint_saved",)
        assert kinds(logged) == [kind for kind in kinds(live) if kind not in not_logged]
        assert [event async for event in run.events(after=4)] == logged[4:]


async def test_superstep_completed_event_has_the_cursor_to_continue_from() -> None:
    async with shouting(checkpoint_storage=InMemoryCheckpointStorage()).open() as run:
        await run.send("hi")
        first, *_ = [event for event in await until_rest(run) if event.type == "superstep_completed"]
        assert first.last_seq is not None
        rest = [event async for event in run.events(after=first.last_seq)]
        assert (rest[0].type, rest[0].iteration) == ("superstep_started", 2)


async def test_the_log_holds_outputs_and_no_payload_of_messages() -> None:
    async with shouting(checkpoint_storage=InMemoryCheckpointStorage()).open() as run:
        await run.send("hi")
        logged = [event async for event in run.events(after=0)]
        assert outputs(logged) == ["<HI>"]
        assert {event.data for event in logged if event.type.startswith("executor_")} == {None}


async def test_log_waits_for_the_current_run() -> None:
    gate = Gate()
    async with slow_then_echo(gate, checkpoint_storage=InMemoryCheckpointStorage()).open() as run:
        await run.send("slow")
        await gate.arrived.wait()
        seen = []
        async for event in run.events(after=0):
            seen.append(event)
            gate.opened.set()
        assert outputs(seen) == ["slow"] and seen[-1].state is WorkflowRunState.IDLE


async def test_the_log_needs_a_storage() -> None:
    async with shouting().open() as run:
        await run.send("hi")
        with pytest.raises(NoStorage, match="Reading a thread's event log needs a checkpoint storage"):
            [event async for event in run.events(after=0)]


# ---------------------------------------------------------------- deadlines


def with_deadline(clock: FakeClock, hours: float = 1, **terms: Any) -> Workflow:
    return asking(terms={"deadline": clock.now() + timedelta(hours=hours), **terms}, clock=clock)


async def test_deadline_that_passes_in_an_open_handle_delivers_the_default() -> None:
    clock = FakeClock()
    async with with_deadline(clock, default=Verdict(False)).open() as run:
        await run.send("why")
        watched = run.events()
        seen = [await anext(watched)]
        await clock.wait_for_sleepers()
        clock.advance(3600)
        seen += [event async for event in watched]
        assert outputs(seen) == ["why: False []"] and seen[-1].state is WorkflowRunState.IDLE


async def test_a_deadline_that_passes_without_a_default_is_an_error_event() -> None:
    clock = FakeClock()
    async with with_deadline(clock).open() as run:
        await run.send("why")
        await clock.wait_for_sleepers()
        clock.advance(3600)
        seen = await until_rest(run)
        (error,) = [event.data for event in seen if event.type == "error"]
        assert isinstance(error, RequestExpired) and error.request_id == "why"
        assert seen[-1].state is WorkflowRunState.IDLE


async def test_events_continue_until_a_deadline_has_passed() -> None:
    clock = FakeClock()
    async with with_deadline(clock, default=Verdict(False)).open() as run:
        await run.send("why")
        seen = []
        async for event in run.events():
            seen.append(event)
            if event.state is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
                clock.advance(3600)
        assert outputs(seen) == ["why: False []"]


async def test_an_expired_request_is_in_the_log_and_a_new_process_knows_it() -> None:
    clock, storage = FakeClock(), InMemoryCheckpointStorage()
    terms = {"deadline": clock.now() + timedelta(hours=1)}
    async with asking(terms=terms, clock=clock, checkpoint_storage=storage).open(thread_id="t") as run:
        await run.send("why")
        await clock.wait_for_sleepers()
        clock.advance(3600)
        await until_rest(run)
        errors = [event async for event in run.events(after=0) if event.type == "error"]
    assert [(type(event.data), event.executor_id) for event in errors] == [(RequestExpired, "asker")]
    other = asking(clock=clock, checkpoint_storage=storage)
    with pytest.raises(RequestExpired, match="'why'"):
        await other.run(responses={"why": Verdict(True)}, thread_id="t")
    assert (await other.run(thread_id="t")).get_final_state() is WorkflowRunState.IDLE


async def test_an_answer_in_time_stops_the_alarm() -> None:
    clock = FakeClock()
    async with with_deadline(clock, default=Verdict(False)).open() as run:
        await run.send("why")
        await clock.wait_for_sleepers()
        await run.respond({"why": Verdict(True)})
        assert outputs(await until_rest(run)) == ["why: True []"]
        clock.advance(7200)
        assert outputs(await until_rest(run)) == []


async def test_each_deadline_passes_in_its_own_time() -> None:
    clock = FakeClock()

    async def ask(message: str, ctx: Any) -> None:
        for hours in (2, 1):
            await ctx.request_info(message, int, request_id=f"{hours}h", deadline=clock.now() + timedelta(hours=hours))

    async with alone(ask, clock=clock).open() as run:
        await run.send("x")
        for expected in ("1h", "2h"):
            await clock.wait_for_sleepers()
            clock.advance(3600)
            watched = run.events()
            async for event in watched:
                if event.type == "error":
                    assert event.data.request_id == expected
                    break


async def test_leaving_the_block_forgets_the_alarm() -> None:
    clock = FakeClock()
    async with with_deadline(clock).open() as run:
        await run.send("why")
        await clock.wait_for_sleepers()
    assert clock.sleepers == 0
