"""Which calls of a step are made again and which are answered from its record: retries, damage, names and keys."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.turns import turns
from tests.unit.engine.function_flows import THREAD, Calls, begin, questions, raising, resume
from tests.unit.engine.policy_flows import AT_ONCE, Boom, Context, Flaky, alone

from perdure import (
    Executor,
    InMemoryCheckpointStorage,
    RunContext,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    step,
    workflow,
)
from perdure.errors import DamagedCheckpoint, UnreadableValue
from perdure.testing import FakeClock

# ---------------------------------------------------------------- retries of steps and of executors


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_step_that_is_tried_again_calls_the_inner_step_that_failed_again(is_stored: bool) -> None:
    calls, flaky = Calls(), Flaky()
    well, inner = calls.step(name="well"), calls.step(flaky.meet, name="inner")

    @step(retry=AT_ONCE)
    async def outer() -> str:
        await well("well")
        await inner("inner")
        return "done"

    @workflow
    async def flow(_: str) -> str:
        return await outer()

    result = await begin(flow, InMemoryCheckpointStorage() if is_stored else None)
    assert result.get_outputs() == ["done"]
    assert calls == ["well", "inner", "inner"], "what ended well in the first attempt is not called again"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_step_that_timed_out_in_an_inner_step_calls_it_again(is_stored: bool) -> None:
    calls, clock = [], FakeClock()

    @step
    async def inner() -> str:
        calls.append("inner")
        if len(calls) == 1:
            await turns(10)
            clock.advance(3)
            await asyncio.Event().wait()
        return "done"

    @step(timeout=2, retry=AT_ONCE)
    async def outer() -> str:
        return await inner()

    @workflow
    async def flow(_: str) -> str:
        return await outer()

    result = await begin(flow, InMemoryCheckpointStorage() if is_stored else None, clock=clock)
    assert (result.get_outputs(), calls) == (["done"], ["inner", "inner"])


async def test_step_cancelled_by_a_failed_attempt_is_called_again_by_the_next() -> None:
    flaky, calls, is_at_work = Flaky(), Calls(), asyncio.Event()

    async def beside() -> str:
        calls.append("beside")
        if len(calls) == 1:
            is_at_work.set()
            await asyncio.Event().wait()
        return "done"

    async def work(_: Any, ctx: Context) -> None:
        task = asyncio.create_task(ctx.step(beside))
        await is_at_work.wait()
        try:
            await ctx.step(flaky.meet, name="meet")
        except Boom:
            task.cancel()
            raise
        await ctx.yield_output(await task)

    flow = alone(work, policy={"retry": AT_ONCE}, checkpoint_storage=InMemoryCheckpointStorage())
    assert (await flow.run("x")).get_outputs() == ["done"]
    assert calls == ["beside", "beside"]


async def test_a_failure_that_was_met_by_a_recorded_step_is_not_tried_again() -> None:
    calls: list[str] = []
    attempts: list[Any] = []
    storage = InMemoryCheckpointStorage()

    async def charge() -> None:
        calls.append("charge")
        raise Boom("the card service is down")

    async def note() -> None:
        calls.append("note")

    async def work(message: Any, ctx: Context) -> None:
        attempts.append(message)
        try:
            await ctx.step(charge)
        except Boom:
            await ctx.step(note)
            raise

    for message in ("x", None):
        with pytest.raises(Boom):
            await alone(work, policy={"retry": AT_ONCE}, checkpoint_storage=storage).run(message, thread_id=THREAD)
        assert calls == ["charge", "note"], "a compensation stays with the failure that it met"
    assert attempts == ["x", "x"], "one for each run: another would only replay the failure"


async def test_a_failure_after_which_code_only_slept_is_tried_again() -> None:
    clock, storage, calls = FakeClock(), InMemoryCheckpointStorage(), Calls()
    failing = calls.step(raising(Boom("down")), name="failing")

    @workflow
    async def flow(_: str, ctx: RunContext) -> None:
        try:
            await failing("call")
        except Boom:
            await ctx.sleep(timedelta(seconds=1))
            raise

    async with clock.skipping():
        with pytest.raises(Boom):
            await begin(flow, storage, clock=clock)
        with pytest.raises(Boom):
            await resume(flow, storage, clock=clock)
    assert calls == ["call", "call"]


# ---------------------------------------------------------------- records that cannot be read, names of steps


def damaged(storage: InMemoryCheckpointStorage, **damage: Any) -> None:
    """Put something else into the first record of the only suspended delivery, as no public call can."""
    thread = storage.store._threads[THREAD]  # type: ignore[attr-defined]  # the store's own memory
    head = thread.commits[thread.head]
    tree = json.loads(head.root)
    (suspended,) = tree["suspended"]
    suspended["records"][0].update(damage)
    thread.commits[thread.head] = msgspec.structs.replace(head, root=json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ({"value": {"$type": "nowhere:Thing", "value": {}}}, UnreadableValue),
        ({"kind": "failed", "value": "no list of errors"}, UnreadableValue),
        ({"kind": "nonsense"}, DamagedCheckpoint),
        ({"until": "2020-01-01T00:00:00"}, DamagedCheckpoint),
    ],
    ids=["undeclared type", "no error", "unknown kind", "time without a zone"],
)
async def test_unreadable_record_fails_the_run_even_if_the_caller_ignores_errors(
    damage: dict[str, Any], error: type[Exception]
) -> None:
    storage = InMemoryCheckpointStorage()
    fetch = Calls().step()

    @workflow
    async def flow(_: str, ctx: RunContext) -> str:
        got = await asyncio.gather(fetch("x"), return_exceptions=True)
        await ctx.request_info("go on?", str)
        return f"went on with {got}"

    asked = await begin(flow, storage)
    damaged(storage, **damage)
    with pytest.raises(error):
        await resume(flow, storage, responses={questions(asked)["go on?"]: "yes"})


@dataclass
class Payment:
    amount: int
    idempotency_key: str = "k"


async def test_argument_with_a_key_of_its_own_still_distinguishes_two_calls() -> None:
    storage, calls = InMemoryCheckpointStorage(), Calls()
    charge = calls.step(lambda payment: payment.amount)
    orders = iter([(1, 2), (2, 1)])

    @workflow
    async def flow(_: str, ctx: RunContext) -> dict[str, int]:
        paid = {str(amount): await charge(Payment(amount)) for amount in next(orders)}
        await ctx.request_info("go on?", str)
        return paid

    asked = await begin(flow, storage)
    result = await resume(flow, storage, responses={questions(asked)["go on?"]: "yes"})
    assert result.get_outputs() == [{"2": 2, "1": 1}]
    assert [payment.amount for payment in calls] == [1, 2]


async def test_callable_object_of_an_executor_is_the_same_step_in_every_thread() -> None:
    class Increment:
        async def __call__(self, number: int) -> int:
            return number + 1

    class Calling(Executor):
        def __init__(self) -> None:
            super().__init__("calling")
            self.increment = Increment()

        @handler
        async def call(self, number: int, ctx: WorkflowContext[Any, int]) -> None:
            await ctx.yield_output(await ctx.step(self.increment, number, name="increment"))

    flow = WorkflowBuilder(name="calling", start_executor=Calling()).build()
    assert [(await flow.run(1, thread_id=thread)).get_outputs() for thread in "ab"] == [[2], [2]]
