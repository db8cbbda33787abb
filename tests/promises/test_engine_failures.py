"""Executors that fail are retried, timed out or replaced by a fallback; outside services can detect a repetition."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.promises.stages import Again, Boom, Does, Sink, chain
from tests.unit.engine.policy_flows import SkippingClock, asleep, cancelled, started

from perdure import RetryPolicy, TimedOut, Workflow, WorkflowBuilder, WorkflowContext
from perdure.testing import FakeClock

Context = WorkflowContext[Any, Any]


class Shop:
    """An outside service: it fails when it is busy, and charges once per key."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.requests: list[str] = []
        self.charged: dict[str, int] = {}

    async def charge(self, key: str, amount: int) -> str:
        self.requests.append(key)
        if len(self.requests) <= self.failures:
            raise Boom("busy")
        self.charged[key] = amount
        return f"paid {amount}"


# ---------------------------------------------------------------- retry, timeout, backoff, error edges


def paying(shop: Shop, clock: Any, storage: Any, **policy: Any) -> Workflow:
    async def pay(message: Any, ctx: Context) -> None:
        await ctx.send_message(await shop.charge(ctx.idempotency_key, 5))

    start, end = Does("pay", pay), Sink("sink")
    builder = WorkflowBuilder(name="paying", start_executor=start, checkpoint_storage=storage, clock=clock)
    return builder.add_edge(start, end).with_policy(start, **policy).build()


async def test_an_executor_is_retried_with_backoff_also_over_restarts(any_storage: Any, again: Again) -> None:
    shop, clock = Shop(failures=3), FakeClock()

    def build() -> Workflow:
        return paying(shop, clock, any_storage, retry=RetryPolicy(4, initial_delay=1, backoff=10))

    workflow = build()
    for place, delay in enumerate((1, 10, 100)):
        run = started(workflow.run(None if place else "x", thread_id="t"))
        await asleep(clock, run)
        await cancelled(run)
        clock.advance(delay)
        workflow = again(workflow, build)
    assert (await workflow.run(thread_id="t")).get_outputs() == ["paid 5"]
    assert len(shop.requests) == 4


async def test_an_executor_that_hangs_is_cancelled_in_time() -> None:
    clock, ended = FakeClock(), list[str]()

    async def hang(message: Any, ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    start = Does("hang", hang)
    workflow = WorkflowBuilder(start_executor=start, clock=clock).with_policy(start, timeout=30).build()
    run = started(workflow.run("x"))
    await asleep(clock, run)
    clock.advance(30)
    with pytest.raises(TimedOut, match="'hang' did not end within 30 s"):
        await run
    assert ended == ["cleaned up"]


async def test_a_message_that_fails_for_good_goes_to_a_dead_letter_executor(any_storage: Any) -> None:
    dead: list[Any] = []

    async def bury(message: Any, ctx: Context) -> None:
        dead.append(message)

    shop = Shop(failures=9)
    policy = {"retry": 3, "on_error": Does("dead letters", bury)}
    result = await paying(shop, SkippingClock(), any_storage, **policy).run("x", thread_id="t")
    assert dead == ["x"] and len(shop.requests) == 3
    assert [event.executor_id for event in result if event.type == "executor_skipped"] == ["pay"]


async def test_the_rest_of_a_graph_outlives_a_failing_part(any_storage: Any) -> None:
    async def fail(message: Any, ctx: Context) -> None:
        raise Boom

    async def count(messages: list[Any], ctx: Context) -> None:
        await ctx.yield_output(messages)

    source, good = Does("source", relayed), Does("good", relayed)
    bad = Does("bad", fail)
    builder = WorkflowBuilder(name="parts", start_executor=source, checkpoint_storage=any_storage)
    builder.add_fan_out_edges(source, [good, bad]).add_fan_in_edges([good, bad], Does("join", count))
    assert (await builder.with_policy(bad, on_error="isolate").build().run("x")).get_outputs() == [["x"]]


async def relayed(message: Any, ctx: Context) -> None:
    await ctx.send_message(message)


# ---------------------------------------------------------------- keys for outside services, steps


async def test_outside_service_can_distinguish_a_repetition_from_a_new_call(any_storage: Any, again: Again) -> None:
    """The process dies after the charge and before anything of it is recorded: the second request has the same key."""
    shop, crash = Shop(), ["now"]

    async def pay(message: Any, ctx: Context) -> None:
        paid = await shop.charge(ctx.idempotency_key, message)
        if crash:
            raise Boom(crash.pop())
        await ctx.send_message(paid)

    def build() -> Workflow:
        return chain(Does("pay", pay), Sink("sink"), storage=any_storage)

    workflow = build()
    with pytest.raises(Boom):
        await workflow.run(5, thread_id="t")
    assert (await again(workflow, build).run(thread_id="t")).get_outputs() == ["paid 5"]
    assert len(shop.requests) == 2 and len(shop.charged) == 1
    await again(workflow, build).run(5, thread_id="t")
    assert len(shop.charged) == 2, "an equal message later is another charge"


async def test_a_turn_of_many_calls_does_not_repeat_those_that_ended(storage: Any, again: Again) -> None:
    calls: Counter[int] = Counter()
    crashes = [3, 7]

    async def tool(number: int) -> int:
        calls[number] += 1
        return number * number

    async def turn(message: Any, ctx: Context) -> None:
        squares = []
        for number in range(10):
            squares.append(await ctx.step(tool, number))
            if crashes and number == crashes[0]:
                raise Boom(crashes.pop(0))
        await ctx.send_message(squares)

    def build() -> Workflow:
        return chain(Does("agent", turn), Sink("sink"), storage=storage)

    workflow = build()
    for message in ("x", None):
        with pytest.raises(Boom):
            await workflow.run(message, thread_id="t")
        workflow = again(workflow, build)
    assert (await workflow.run(thread_id="t")).get_outputs() == [[number * number for number in range(10)]]
    assert calls == dict.fromkeys(range(10), 1)
