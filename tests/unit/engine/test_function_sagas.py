"""Failures after which code compensated: the compensation is kept, and the failure stays recorded with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import pytest
from tests.unit.engine.function_flows import Calls, begin, paused_and_resumed, resume
from tests.unit.engine.policy_flows import AT_ONCE, Boom, Context, Flaky, SkippingClock, alone, of_kind

from perdure import (
    Executor,
    FunctionalWorkflow,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunContext,
    SubWorkflowFailed,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
    handler,
    step,
    workflow,
)


def saga(calls: Calls, *, raise_as: type[Exception] | None = None) -> FunctionalWorkflow[Any, Any]:
    """Reserves, charges (which fails the first time) and, if that fails, releases and fails."""
    reserve, release = calls.step(name="reserve"), calls.step(name="release")
    charge = calls.step(lambda _: bank.meet(), name="charge")
    bank = Flaky()

    @workflow
    async def flow(_: str) -> str:
        await reserve("reserve")
        try:
            await charge("charge")
        except Boom as error:
            await release("release")
            if raise_as is not None:
                raise raise_as("not charged") from error
            raise
        return "paid"

    return flow


async def test_compensated_failure_fails_a_resume_the_same_way() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    flow = saga(calls)
    for attempt in (begin, resume, resume):
        with pytest.raises(Boom, match="attempt 1"):
            await attempt(flow, storage)
    assert calls == ["reserve", "charge", "release"]


async def test_a_compensated_failure_that_was_raised_as_another_stays_too() -> None:
    calls, storage = Calls(), InMemoryCheckpointStorage()
    flow = saga(calls, raise_as=LookupError)
    for attempt in (begin, resume):
        with pytest.raises(LookupError, match="not charged"):
            await attempt(flow, storage)
    assert calls == ["reserve", "charge", "release"]


async def test_failure_stays_when_the_sibling_it_cancelled_has_cleaned_up() -> None:
    calls, storage, begun = Calls(), InMemoryCheckpointStorage(), asyncio.Event()
    clean, flaky = calls.step(name="clean"), Flaky()

    async def bad(name: str) -> None:
        await begun.wait()
        calls.append(name)
        flaky.meet()

    async def hang(name: str) -> None:
        calls.append(name)
        begun.set()
        await asyncio.Event().wait()

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        async def side() -> None:
            try:
                await ctx.step(hang, "hang")
            finally:
                await clean("clean")

        async with asyncio.TaskGroup() as group:
            group.create_task(side())
            group.create_task(ctx.step(bad, "bad"))

    for attempt in (begin, resume):
        with pytest.raises(ExceptionGroup) as failed:
            await attempt(flow, storage)
        assert [str(error) for error in failed.value.exceptions] == ["attempt 1"]
    assert calls == ["hang", "bad", "clean"]


def guarded(log: list[str], *, failures: int = 1, cleans: bool = True, **policy: Any) -> Workflow:
    """A handler that works in a step and then unlocks in another, if `cleans`."""
    flaky = Flaky(failures)

    def work(name: str) -> None:
        log.append(name)
        flaky.meet()

    async def handle(_: Any, ctx: Context) -> None:
        try:
            await ctx.step(work, "work")
        finally:
            if cleans:
                await ctx.step(log.append, "unlock", name="unlock")
        await ctx.yield_output("done")

    return alone(handle, policy=policy, clock=SkippingClock())


async def keep_all(stream: AsyncIterable[WorkflowEvent], events: list[WorkflowEvent]) -> None:
    async for event in stream:
        events.append(event)  # one by one: those before an error are wanted


async def test_executor_that_cleaned_up_with_a_step_is_not_retried() -> None:
    log, events = list[str](), list[WorkflowEvent]()
    guarding = guarded(log, retry=RetryPolicy(3, initial_delay=60))
    with pytest.raises(Boom, match="attempt 1"):
        await keep_all(guarding.run("x", stream=True), events)
    assert log == ["work", "unlock"]
    assert of_kind(events, "executor_failed") and not of_kind(events, "executor_retrying")


async def test_executor_that_recorded_nothing_after_its_failure_is_retried() -> None:
    log: list[str] = []
    result = await guarded(log, failures=2, cleans=False, retry=AT_ONCE).run("x")
    assert result.get_outputs() == ["done"] and log == ["work"] * 3


async def test_a_child_that_cleaned_up_is_tried_again_from_its_beginning() -> None:
    calls = Calls()
    child = WorkflowExecutor(saga(calls), "saga", retry=AT_ONCE, allow_direct_output=True)
    result = await WorkflowBuilder(start_executor=child).build().run("x")
    assert result.get_outputs() == ["paid"]
    assert calls == ["reserve", "charge", "release", "reserve", "charge"]


# ---------------------------------------------------------------- the errors that a caller receives


async def test_recorded_error_is_restored_with_its_causes() -> None:
    seen: list[list[str]] = []

    @step
    async def call_service(_: str) -> None:
        try:
            try:
                raise KeyError("socket")
            except KeyError as error:
                raise TimeoutError("read") from error
        except TimeoutError as error:
            raise ConnectionError("service") from error

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        try:
            await call_service("x")
        except ConnectionError as error:
            cause = error.__cause__
            assert cause is not None
            seen.append([repr(error), repr(cause), repr(cause.__cause__)])
        await ctx.request_info("go on?", str)
        return "end"

    await paused_and_resumed(flow)
    assert seen == [["ConnectionError('service')", "TimeoutError('read')", "KeyError('socket')"]] * 2


async def test_error_of_a_failed_child_ends_each_sentence_with_one_full_stop() -> None:
    @workflow
    async def child(_: str) -> None:
        raise Boom("The bank is closed. Try again..")

    with pytest.raises(SubWorkflowFailed) as failed:
        await WorkflowBuilder(start_executor=WorkflowExecutor(child, "pay")).build().run("x")
    assert "Boom: The bank is closed. Try again. The superstep was discarded" in str(failed.value)


# ---------------------------------------------------------------- values of policies


class Plain(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext) -> None: ...


@pytest.mark.parametrize("misspelt", [{"retires": 3}, {"on_eror": "skip"}, {"time_out": 5}])
def test_a_misspelt_policy_is_refused(misspelt: dict[str, Any]) -> None:
    @workflow
    async def child(_: str) -> None: ...

    async def work(message: str) -> None: ...

    with pytest.raises(TypeError, match=next(iter(misspelt))):
        executor(id="work", **misspelt)(work)
    with pytest.raises(TypeError, match=next(iter(misspelt))):
        WorkflowExecutor(child, "child", **misspelt)
    with pytest.raises(TypeError, match=f"{next(iter(misspelt))}.*did you mean"):
        Plain("plain", **misspelt)
    assert Plain("plain", colour="blue").id == "plain", "what a class hands on for itself is let through"


def test_first_delay_may_exceed_the_default_maximum_delay() -> None:
    policy = RetryPolicy(3, initial_delay=3600)
    assert [policy.delay_after(attempts) for attempts in (1, 2)] == [3600, 3600]
    with pytest.raises(ValueError, match=r"max_delay=60\) is shorter than initial_delay=3600"):
        RetryPolicy(3, initial_delay=3600, max_delay=60)
