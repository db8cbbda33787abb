"""ctx.idempotency_key: the same for every attempt of an action, different for two. ctx.logger names its place."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
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
    started,
    worker,
)

from perdure import InMemoryCheckpointStorage, Workflow, WorkflowExecutor
from perdure.testing import FakeClock


class Keys:
    """A workflow of one executor that notes its key whenever it is tried, alone and in a step."""

    def __init__(self, failures: int = 0, *, clock: FakeClock | None = None) -> None:
        self.storage = InMemoryCheckpointStorage()
        self.clock = clock or SkippingClock()
        self.flaky = Flaky(failures)
        self.of_delivery: list[str] = []
        self.of_step: list[str] = []

    async def work(self, message: Any, ctx: Context) -> None:
        async def pay(amount: int) -> None:
            self.of_step.append(ctx.idempotency_key)
            self.flaky.meet()

        self.of_delivery.append(ctx.idempotency_key)
        await ctx.step(pay, 5)
        assert ctx.idempotency_key == self.of_delivery[-1], "after the step it is the delivery's again"
        await ctx.sleep(10)

    def build(self, **policy: Any) -> Workflow:
        return alone(self.work, policy=policy, clock=self.clock, checkpoint_storage=self.storage)


# ---------------------------------------------------------------- the same


async def test_the_key_is_the_same_over_retries_and_replays() -> None:
    keys = Keys(failures=2)
    await keys.build(retry=3).run("x", thread_id="t")
    assert len(keys.of_delivery) == 4 and len(set(keys.of_delivery)) == 1
    assert len(keys.of_step) == 3 and len(set(keys.of_step)) == 1


async def test_the_key_of_a_step_is_the_same_over_its_own_retries() -> None:
    seen: list[str] = []

    async def work(message: Any, ctx: Context) -> None:
        async def pay() -> None:
            seen.append(ctx.idempotency_key)
            if len(seen) < 3:
                raise Boom

        await ctx.step(pay, retry=AT_ONCE)

    await alone(work).run("x")
    assert len(seen) == 3 and len(set(seen)) == 1


async def test_key_is_the_same_after_a_failure_and_a_resume_by_another_object() -> None:
    keys = Keys(failures=1)
    with pytest.raises(Boom):
        await keys.build().run("x", thread_id="t")
    await keys.build().run(thread_id="t")
    assert len(set(keys.of_delivery)) == 1 and len(set(keys.of_step)) == 1 and len(keys.of_step) == 2


async def test_key_is_the_same_after_a_takeover_of_the_thread() -> None:
    keys = Keys(clock=FakeClock())
    run = started(keys.build().run("x", thread_id="t"))
    await asleep(keys.clock, run)
    other = started(keys.build().run(thread_id="t", takeover=True))
    await asleep(keys.clock, other, sleepers=2)
    keys.clock.advance(10)
    await asyncio.wait([run, other])
    assert other.exception() is None and run.exception() is not None
    assert len(keys.of_delivery) >= 2 and len(set(keys.of_delivery)) == 1


async def test_the_key_is_the_same_when_the_thread_is_resumed_at_its_head_by_id() -> None:
    keys = Keys(clock=FakeClock())
    run = started(keys.build().run("x", thread_id="t"))
    await asleep(keys.clock, run)
    await cancelled(run)
    keys.clock.advance(10)
    await keys.build().run(thread_id="t")
    assert len(keys.of_delivery) == 2 and len(set(keys.of_delivery)) == 1


# ---------------------------------------------------------------- not the same


async def test_every_delivery_step_and_thread_has_a_key_of_its_own() -> None:
    seen: list[str] = []

    async def note(ctx: Context, number: int = 0) -> None:
        seen.append(ctx.idempotency_key)

    async def split(message: Any, ctx: Context) -> None:
        await note(ctx)
        await asyncio.gather(*(ctx.step(note, ctx, number) for number in (1, 2)))
        await ctx.step(note, ctx, 1)
        await ctx.step(note, ctx, 1, key="by key")
        await ctx.send_message("a")
        await ctx.send_message("a")

    workflow = chained(worker("split", split), worker("lane", lambda message, ctx: note(ctx)))
    for thread_id in ("one", "two", "one"):
        await workflow.run("x", thread_id=thread_id)
    assert len(seen) == 3 * (1 + 4 + 2) and len(set(seen)) == len(seen)


async def test_a_step_in_a_step_has_a_key_of_its_own() -> None:
    seen: list[str] = []

    async def work(message: Any, ctx: Context) -> None:
        async def inner() -> None:
            seen.append(ctx.idempotency_key)

        async def outer() -> None:
            seen.append(ctx.idempotency_key)
            await ctx.step(inner)
            seen.append(ctx.idempotency_key)

        await ctx.step(outer)
        seen.append(ctx.idempotency_key)

    await alone(work).run("x")
    assert seen[0] == seen[2] and len(set(seen)) == 3


async def test_equal_deliveries_of_a_sub_workflow_have_keys_of_their_own() -> None:
    seen: list[str] = []
    child = alone(lambda message, ctx: seen.append(ctx.idempotency_key))

    async def split(message: Any, ctx: Context) -> None:
        for _ in range(3):
            await ctx.send_message("a")

    await chained(worker("split", split), WorkflowExecutor(child, "child")).run("x")
    assert len(seen) == 3 and len(set(seen)) == 3


async def test_a_function_in_a_thread_sees_the_key_of_its_step() -> None:
    seen: list[str] = []

    async def work(message: Any, ctx: Context) -> None:
        seen.append(ctx.idempotency_key)
        await ctx.step(lambda: seen.append(ctx.idempotency_key), name="in a thread")

    await alone(work).run("x")
    assert seen[0] != seen[1]


async def test_fork_and_each_rewind_to_a_checkpoint_have_keys_of_their_own() -> None:
    keys = Keys()
    workflow = keys.build()
    await workflow.run("x", thread_id="t")
    entry = (await keys.storage.list_checkpoint_infos(thread_id="t"))[0]
    await workflow.run(checkpoint_id=entry)
    await keys.build().run(checkpoint_id=entry)
    await keys.build().run(checkpoint_id=entry, fork=True, thread_id="forked")
    for seen in (keys.of_delivery[::2], keys.of_step):
        assert len(seen) == 4 and len(set(seen)) == 4


async def test_a_delivery_rewound_in_the_middle_of_its_sleep_has_another_key() -> None:
    keys = Keys()
    workflow = keys.build()
    await workflow.run("x", thread_id="t")
    asleep_there = (await keys.storage.list_checkpoint_infos(thread_id="t"))[1]
    before = len(keys.of_delivery)
    await workflow.run(checkpoint_id=asleep_there)
    assert len(keys.of_delivery) == before + 1 and len(keys.of_step) == 1, "the recorded step is not made again"
    assert keys.of_delivery[-1] != keys.of_delivery[0]


# ---------------------------------------------------------------- ctx.logger


async def test_a_line_of_the_logger_names_thread_run_and_executor(caplog: pytest.LogCaptureFixture) -> None:
    async def work(message: Any, ctx: Context) -> None:
        ctx.logger.info("counted %d of %s", 3, "many")

    with caplog.at_level(logging.INFO, logger="perdure"):
        await alone(work).run("my-diary-entry", thread_id="t", run_id="r")
    [line] = [record for record in caplog.records if record.name == "perdure.executor"]
    assert line.getMessage() == "thread=t run=r executor=only: counted 3 of many"
    assert "my-diary-entry" not in caplog.text


@pytest.mark.parametrize("thread_id", ["100%", "%s", "%(name)s", "a {b}"])
async def test_names_with_signs_of_formatting_do_not_break_the_line(
    caplog: pytest.LogCaptureFixture, thread_id: str
) -> None:
    async def work(message: Any, ctx: Context) -> None:
        ctx.logger.warning("counted %d", 3)

    with caplog.at_level(logging.INFO, logger="perdure"):
        await alone(work).run("x", thread_id=thread_id, run_id="r")
    assert [record.getMessage() for record in caplog.records if record.name == "perdure.executor"] == [
        f"thread={thread_id} run=r executor=only: counted 3"
    ]


async def test_logger_of_a_sub_workflow_names_the_path_and_takes_extra_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = alone(lambda message, ctx: ctx.logger.info("hello", extra={"amount": 5}))
    with caplog.at_level(logging.INFO, logger="perdure"):
        await chained(
            worker("start", lambda message, ctx: ctx.send_message(message)), WorkflowExecutor(child, "sub")
        ).run("x", thread_id="t", run_id="r")
    [line] = [record for record in caplog.records if record.name == "perdure.executor"]
    assert line.getMessage() == "thread=t run=r executor=sub/only: hello"
    assert getattr(line, "amount", None) == 5
