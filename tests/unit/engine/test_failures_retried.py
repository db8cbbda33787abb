"""Failed deliveries that are tried again: how often, after how long, and without a trace of the failed attempt."""

from __future__ import annotations

from typing import Any

import pytest
from tests.turns import turns
from tests.unit.engine.flows import take_all
from tests.unit.engine.policy_flows import (
    AT_ONCE,
    Boom,
    Context,
    Flaky,
    SkippingClock,
    alone,
    asleep,
    cancelled,
    chained,
    executor_outline,
    failing,
    fan,
    of_kind,
    relay,
    sink,
    started,
    worker,
)

from perdure import (
    Executor,
    FunctionExecutor,
    InMemoryCheckpointStorage,
    RetryPolicy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    append,
    handler,
)
from perdure.testing import FakeClock

THRICE = RetryPolicy(3, initial_delay=10, backoff=2)


def flaky_chain(flaky: Flaky, *, retry: Any = THRICE, **options: Any) -> Workflow:
    return chained(failing("flaky", flaky, retry=retry), sink(), **options)


# ---------------------------------------------------------------- how often, after how long


async def test_an_executor_that_fails_is_tried_again() -> None:
    flaky = Flaky(2)
    result = await flaky_chain(flaky, clock=SkippingClock()).run("x")
    assert result.get_outputs() == ["x-flaky"]
    assert flaky.calls == ["x"] * 3


async def test_the_last_error_ends_the_run_when_all_attempts_are_made() -> None:
    flaky = Flaky(5)
    with pytest.raises(Boom, match="attempt 3"):
        await flaky_chain(flaky, clock=SkippingClock()).run("x")
    assert len(flaky.calls) == 3


async def test_an_error_that_is_not_to_be_tried_again_ends_the_run_at_once() -> None:
    flaky = Flaky(1)
    with pytest.raises(Boom, match="attempt 1"):
        await flaky_chain(flaky, retry=RetryPolicy(3, retry_on=OSError)).run("x")
    assert len(flaky.calls) == 1


async def test_each_attempt_waits_for_its_delay() -> None:
    clock, flaky = FakeClock(), Flaky(2)
    run = started(flaky_chain(flaky, clock=clock).run("x"))
    for calls, delay in ((1, 10), (2, 20)):
        await asleep(clock, run)
        clock.advance(delay - 0.1)
        await asleep(clock, run)
        assert len(flaky.calls) == calls
        clock.advance(0.1)
    assert (await run).get_outputs() == ["x-flaky"]


async def test_retry_event_has_its_attempt_delay_and_error() -> None:
    result = await flaky_chain(Flaky(2), clock=SkippingClock()).run("x")
    retrying = of_kind(result, "executor_retrying")
    assert [event.data for event in retrying] == [
        {"attempt": 1, "delay_seconds": 10},
        {"attempt": 2, "delay_seconds": 20},
    ]
    assert [(event.details.error_type, event.details.message) for event in retrying if event.details] == [
        ("Boom", "attempt 1"),
        ("Boom", "attempt 2"),
    ]
    assert [pair for pair in executor_outline(result) if pair[1] == "flaky"] == [
        ("invoked", "flaky"),
        *[("failed", "flaky"), ("retrying", "flaky")] * 2,
        ("completed", "flaky"),
    ]


async def test_log_has_retries_in_the_same_order_as_the_stream() -> None:
    workflow = flaky_chain(Flaky(2), clock=SkippingClock(), checkpoint_storage=InMemoryCheckpointStorage())
    streamed = [event async for event in workflow.run("x", thread_id="t", stream=True)]
    async with workflow.open(thread_id="t") as handle:
        logged = [event async for event in handle.events(after=0)]
    assert executor_outline(logged) == executor_outline(streamed)
    assert executor_outline(logged)[0] == ("invoked", "flaky")


async def test_failing_retry_predicate_fails_the_run_with_its_executor() -> None:
    def broken(error: BaseException) -> bool:
        raise KeyError("which errors were they?")

    events: list[WorkflowEvent] = []
    workflow = flaky_chain(Flaky(1), retry=RetryPolicy(3, retry_on=broken))
    with pytest.raises(KeyError) as failed:
        await take_all(workflow.run("x", thread_id="t", stream=True), events)
    assert isinstance(failed.value.__context__, Boom), "the error that the predicate received is kept"
    assert ("failed", "flaky") in executor_outline(events)
    assert [event.details.executor_id for event in of_kind(events, "failed") if event.details] == ["flaky"]
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x-flaky"]


async def test_waiting_for_retries_does_not_count_towards_the_superstep_limit() -> None:
    flaky = Flaky(9)
    workflow = flaky_chain(flaky, retry=RetryPolicy(10), clock=SkippingClock(), max_iterations=3)
    assert (await workflow.run("x")).get_outputs() == ["x-flaky"]


async def test_a_handler_cancelled_from_within_fails_and_is_tried_again() -> None:
    """The run was not cancelled: it is a failure of the executor like any other."""
    calls: list[str] = []

    async def work(message: str, ctx: Context) -> None:
        calls.append(message)
        if len(calls) == 1:
            lost = started(hang())
            lost.cancel()
            await lost
        await ctx.yield_output("done")

    async def hang() -> Any: ...

    result = await alone(work, policy={"retry": AT_ONCE}).run("x")
    assert result.get_outputs() == ["done"] and len(calls) == 2


# ---------------------------------------------------------------- a restart in between


async def test_the_count_of_attempts_survives_a_restart() -> None:
    storage, clock, flaky = InMemoryCheckpointStorage(), FakeClock(), Flaky(5)
    for delay in (10, 20):
        workflow = flaky_chain(flaky, clock=clock, checkpoint_storage=storage)
        run = started(workflow.run(None if flaky.calls else "x", thread_id="t"))
        await asleep(clock, run)
        await cancelled(run)
        clock.advance(delay)
    with pytest.raises(Boom, match="attempt 3"):
        await flaky_chain(flaky, clock=clock, checkpoint_storage=storage).run(thread_id="t")


async def test_a_restart_in_the_middle_of_a_delay_waits_only_the_rest() -> None:
    storage, clock, flaky = InMemoryCheckpointStorage(), FakeClock(), Flaky(1)
    run = started(flaky_chain(flaky, clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(7)
    run = started(flaky_chain(flaky, clock=clock, checkpoint_storage=storage).run(thread_id="t"))
    await asleep(clock, run)
    assert len(flaky.calls) == 1
    clock.advance(3)
    assert (await run).get_outputs() == ["x-flaky"]


async def test_interrupted_retry_is_resumed_by_the_same_object_without_a_storage() -> None:
    clock, flaky = FakeClock(), Flaky(1)
    workflow = flaky_chain(flaky, clock=clock)
    run = started(workflow.run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(10)
    assert (await workflow.run(thread_id="t")).get_outputs() == ["x-flaky"]


async def test_another_process_may_have_another_policy() -> None:
    """What waits for its retry waits for its time; then the policy of today counts."""
    storage, clock, flaky = InMemoryCheckpointStorage(), FakeClock(), Flaky(4)
    run = started(flaky_chain(flaky, clock=clock, checkpoint_storage=storage).run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(10)
    with pytest.raises(Boom, match="attempt 2"):
        await flaky_chain(flaky, retry=None, clock=clock, checkpoint_storage=storage).run(thread_id="t")
    patient = flaky_chain(flaky, retry=9, clock=SkippingClock(clock.now()), checkpoint_storage=storage)
    assert (await patient.run(thread_id="t")).get_outputs() == ["x-flaky"]


async def test_attempts_restart_from_one_after_the_run_has_failed() -> None:
    storage, flaky = InMemoryCheckpointStorage(), Flaky(5)

    def build() -> Workflow:
        return flaky_chain(flaky, retry=AT_ONCE, checkpoint_storage=storage)

    with pytest.raises(Boom, match="attempt 3"):
        await build().run("x", thread_id="t")
    assert (await build().run(thread_id="t")).get_outputs() == ["x-flaky"]
    assert len(flaky.calls) == 6


async def test_a_function_in_a_thread_is_tried_again() -> None:
    flaky = Flaky(2)

    def work(message: str) -> str:
        flaky.meet(message)
        return message.upper()

    start = FunctionExecutor(work, "in thread", retry=AT_ONCE)
    result = await WorkflowBuilder(start_executor=start).add_edge(start, sink()).build().run("x")
    assert result.get_outputs() == ["X"] and len(flaky.calls) == 3


# ---------------------------------------------------------------- no trace of the failed attempt


class Diligent(Executor):
    """Does everything a handler can do, and then fails for a while."""

    def __init__(self, flaky: Flaky, **policy: Any) -> None:
        super().__init__("diligent", **policy)
        self.flaky = flaky
        self.count = 0

    @handler
    async def work(self, message: list[str], ctx: WorkflowContext[str, Any]) -> None:
        self.count += 1
        message.append("changed")
        ctx.set_state("notes", f"{self.count}")
        ctx.set_state("seen", [*ctx.get_state("seen", []), len(message)])
        ctx.private["times"] = ctx.private.get("times", 0) + 1
        await ctx.send_message("sent")
        await ctx.yield_output(f"count {self.count}")
        self.flaky.meet(self.count)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("with_storage", [False, True])
@pytest.mark.parametrize("retry", [AT_ONCE, THRICE], ids=["at once", "later"])
async def test_failed_attempt_leaves_no_trace(with_storage: bool, retry: RetryPolicy) -> None:
    storage = InMemoryCheckpointStorage()
    start, end = Diligent(flaky := Flaky(2), retry=retry), sink()
    builder = WorkflowBuilder(
        name="diligent",
        start_executor=start,
        state={"notes": append},
        checkpoint_storage=storage if with_storage else None,
        clock=SkippingClock(),
    )
    workflow = builder.add_edge(start, end).build()
    result = await workflow.run(["clean"], thread_id="t")
    assert flaky.calls == [1, 1, 1], "its own memory is put back too"
    assert result.get_outputs() == ["count 1", "sent"]
    if with_storage:
        head = await storage.get_latest(thread_id="t")
        assert head is not None and head.state == {"notes": ["1"], "seen": [2]}
        assert head.executors["diligent"].private == {"times": 1} and head.executors["diligent"].saved == {"count": 1}


async def test_events_of_the_log_are_those_of_the_attempt_that_counted() -> None:
    storage = InMemoryCheckpointStorage()
    builder = WorkflowBuilder(start_executor=Diligent(Flaky(2), retry=AT_ONCE), state={"notes": append})
    workflow = builder.with_checkpointing(storage).build()
    await workflow.run([], thread_id="t")
    async with workflow.open(thread_id="t") as handle:
        outputs = of_kind([event async for event in handle.events(after=0)], "output")
    assert [event.data for event in outputs] == ["count 1"]


async def test_output_of_a_failed_attempt_is_not_among_the_events_of_the_result() -> None:
    """A stream emits it as it happens, and then the failure. A result lists only events of successful attempts."""
    workflow = WorkflowBuilder(start_executor=Diligent(Flaky(2), retry=AT_ONCE), state={"notes": append}).build()
    result = await workflow.run([])
    assert [event.data for event in of_kind(result, "output")] == result.get_outputs() == ["count 1"]


# ---------------------------------------------------------------- other deliveries


async def test_siblings_are_committed_meanwhile_and_not_run_again() -> None:
    storage, clock, flaky, calm = InMemoryCheckpointStorage(), FakeClock(), Flaky(1), Flaky(0)

    def build() -> Workflow:
        siblings = [failing("flaky", flaky, retry=THRICE), failing("calm", calm)]
        return fan(*siblings, clock=clock, checkpoint_storage=storage)

    run = started(build().run("x", thread_id="t"))
    await asleep(clock, run)
    await cancelled(run)
    clock.advance(10)
    result = await build().run(thread_id="t")
    assert result.get_outputs() == [["x-flaky", "x-calm"]]
    assert (len(flaky.calls), len(calm.calls)) == (2, 1)
    assert "bypassed" not in dict(executor_outline(result)), "its superstep is committed, so there is nothing to replay"


async def test_other_branches_continue_while_a_branch_waits_for_its_retry() -> None:
    clock, seen = FakeClock(), list[str]()
    source = worker("source", lambda message, ctx: ctx.send_message(message))
    late, early = failing("late", Flaky(1), retry=THRICE), [relay(f"early{place}") for place in range(3)]
    end = worker("end", lambda message, ctx: seen.append(message))
    builder = WorkflowBuilder(start_executor=source, clock=clock).add_fan_out_edges(source, [late, early[0]])
    workflow = builder.add_chain([*early, end]).add_edge(late, end).build()
    run = started(workflow.run("x"))
    await asleep(clock, run)
    assert seen == ["x-early0-early1-early2"]
    clock.advance(10)
    await run
    assert seen[1:] == ["x-late"]


async def test_a_second_message_to_the_executor_need_not_wait_for_the_first() -> None:
    calls: list[int] = []

    async def work(number: int, ctx: Context) -> None:
        calls.append(number)
        if calls.count(1) == 1 and number == 1:
            raise Boom
        await ctx.yield_output(number)

    async def split(message: str, ctx: Context) -> None:
        for number in (1, 2, 3):
            await ctx.send_message(number)

    workflow = chained(worker("split", split), worker("lane", work, retry=THRICE), clock=SkippingClock())
    assert (await workflow.run("x")).get_outputs() == [2, 3, 1]
    assert calls == [1, 2, 3, 1]


async def test_failed_attempt_stays_recorded_when_a_sibling_fails_the_superstep() -> None:
    storage, flaky, stops = InMemoryCheckpointStorage(), Flaky(1), Flaky(1)

    def build() -> Workflow:
        siblings = [failing("flaky", flaky, retry=RetryPolicy(2, initial_delay=0)), failing("stops", stops)]
        return fan(*siblings, checkpoint_storage=storage)

    with pytest.raises(Boom):
        await build().run("x", thread_id="t")
    flaky.failures = 2  # the second attempt would be the last one: the first was recorded before the sibling failed
    with pytest.raises(Boom, match="attempt 2"):
        await build().run(thread_id="t")


@pytest.mark.parametrize("is_same", [True, False], ids=["same object", "new object"])
async def test_delivery_that_waits_beside_a_failure_keeps_steps_and_attempts(is_same: bool) -> None:
    """The sibling succeeds, and its superstep is committed before the retry is due."""
    storage, clock, flaky, stops, steps = InMemoryCheckpointStorage(), SkippingClock(), Flaky(2), Flaky(1), list[str]()

    async def note() -> None:
        steps.append("made")

    async def work(message: Any, ctx: Context) -> None:
        await ctx.step(note)
        flaky.meet()

    async def stop(message: Any, ctx: Context) -> None:
        await turns(0 if stops.calls else 200)  # the first time until the attempt of its sibling is recorded
        assert flaky.calls
        stops.meet()

    def build() -> Workflow:
        siblings = [worker("flaky", work, retry=RetryPolicy(2, initial_delay=10)), worker("stops", stop)]
        return fan(*siblings, clock=clock, checkpoint_storage=storage)

    workflow = build()
    with pytest.raises(Boom):
        await workflow.run("x", thread_id="t")
    with pytest.raises(Boom, match="attempt 2"):
        await (workflow if is_same else build()).run(thread_id="t")
    assert steps == ["made"]


async def test_the_final_status_is_idle_once_the_retry_is_done() -> None:
    result = await flaky_chain(Flaky(1), clock=SkippingClock()).run("x")
    assert result.get_final_state() is WorkflowRunState.IDLE
