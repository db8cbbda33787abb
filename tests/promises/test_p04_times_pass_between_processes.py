"""Promise 4 for times: a durable sleep and a deadline outlive their process, and fire in the next run of a new one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.promises.processes import Place, Raised
from tests.promises.stages import Stage, alone

from perdure import (
    Executor,
    RunContext,
    Workflow,
    WorkflowContext,
    handler,
    response_handler,
    step,
    workflow as as_workflow,
)
from perdure.testing import FakeClock

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


class Sleeper(Executor):
    """Does a step, sleeps for a day, does another."""

    def __init__(self, id: str, stage: Stage) -> None:
        super().__init__(id)
        self.stage = stage

    @handler
    async def handle(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.step(self.stage.play, "before", message, name="before")
        await ctx.sleep(timedelta(days=1))
        await ctx.step(self.stage.play, "after", message, name="after")
        await ctx.yield_output("woke")


def sleeper(stage: Stage, storage: Any, *, days: int) -> Workflow:
    return alone(Sleeper("sleeper", stage), storage, clock=FakeClock(MONDAY + timedelta(days=days)))


def sleeping_function(stage: Stage, storage: Any, *, days: int) -> Workflow:
    before, after = step(name="before")(stage.play), step(name="after")(stage.play)

    @as_workflow(name="sleeping")
    async def flow(message: str, ctx: RunContext) -> str:
        await before("before", message)
        await ctx.sleep(timedelta(days=1))
        await after("after", message)
        return "woke"

    return flow.build(storage, clock=FakeClock(MONDAY + timedelta(days=days)))


async def due(place: Place, days: int) -> list[str]:
    async with place.storage() as storage:
        return [thread.thread_id for thread in await storage.store.due(MONDAY + timedelta(days=days))]


async def test_sleep_ends_in_the_first_run_after_its_time_in_any_process(place: Place) -> None:
    for make in (sleeper, sleeping_function):
        thread_id = make.__name__
        killed = place.run(partial(make, days=0), "x", thread_id=thread_id)
        await killed.wait_for("waits")
        await killed.kill()
        woken = place.run(partial(make, days=2), thread_id=thread_id)
        assert await woken.result() == ["woke"]
        assert (killed.calls, woken.calls) == (["before(x)"], ["after(x)"])
    assert await due(place, 9) == []


async def test_sleep_that_is_resumed_early_waits_for_the_same_moment(place: Place) -> None:
    """Every process that resumes too early waits for the same moment."""
    killed = place.run(partial(sleeper, days=0), "x")
    await killed.wait_for("waits")
    await killed.kill()
    early = place.run(early_sleeper)
    await early.wait_for("asleep for", 3600.0)
    await early.kill()
    assert await due(place, 1) == ["t"]
    assert await place.run(partial(sleeper, days=1)).result() == ["woke"]


class ReportingClock(FakeClock):
    """Reports each sleep to the test, with its duration."""

    def __init__(self, stage: Any, start: datetime) -> None:
        super().__init__(start)
        self.stage = stage

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.stage.report("asleep for", seconds)
        await super().sleep(seconds)


def early_sleeper(stage: Stage, storage: Any) -> Workflow:
    """An hour before its time."""
    return alone(Sleeper("sleeper", stage), storage, clock=ReportingClock(stage, MONDAY + timedelta(hours=23)))


def napping(stage: Stage, storage: Any) -> Workflow:
    @as_workflow(name="napping")
    async def flow(message: str, ctx: RunContext) -> str:
        await stage.play("flow", message)
        await ctx.sleep(0.3)
        return "woke"

    return flow.build(storage)


async def test_a_run_that_lives_waits_for_the_rest_of_the_sleep(place: Place) -> None:
    """With the machine's own clock."""
    began = time.monotonic()
    killed = place.run(napping, "x")
    await killed.wait_for("waits")
    await killed.kill()
    assert await place.run(napping).result() == ["woke"]
    assert time.monotonic() - began >= 0.3


# ---------------------------------------------------------------- deadlines


class Asker(Executor):
    def __init__(self, id: str, terms: dict[str, Any]) -> None:
        super().__init__(id)
        self.terms = terms

    @handler
    async def ask(self, message: str, ctx: WorkflowContext[Any, Any]) -> None:
        deadline = MONDAY + timedelta(days=1)
        await ctx.request_info(message, str, request_id="q", deadline=deadline, assignee="ann", **self.terms)

    @response_handler
    async def answered(self, question: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(f"{question}: {answer}")


def asker(stage: Stage, storage: Any, *, days: int, **terms: Any) -> Workflow:
    return alone(Asker("asker", terms), storage, clock=FakeClock(MONDAY + timedelta(days=days)))


async def test_deadline_that_passes_without_a_process_delivers_the_default(place: Place) -> None:
    ask = partial(asker, default="nobody answered")
    assert await place.run(partial(ask, days=0), "ok?").result() == []
    async with place.storage() as storage:
        (asked,) = await storage.pending_requests()
    assert (asked.request_id, asked.assignee, asked.deadline) == ("q", "ann", MONDAY + timedelta(days=1))
    assert await due(place, 0) == [] and await due(place, 2) == ["t"]
    assert await place.run(partial(ask, days=2)).result() == ["ok?: nobody answered"]
    async with place.storage() as storage:
        assert await storage.pending_requests() == []
    assert await due(place, 9) == []


async def test_an_answer_in_time_is_taken_by_a_new_process(place: Place) -> None:
    ask = partial(asker, default="nobody answered")
    assert await place.run(partial(ask, days=0), "ok?").result() == []
    assert await place.run(partial(ask, days=0), responses={"q": "yes"}).result() == ["ok?: yes"]
    assert await place.run(partial(ask, days=2)).result() == ["ok?: yes"]


async def test_an_answer_that_comes_too_late_is_refused_and_the_default_stands(place: Place) -> None:
    ask = partial(asker, default="nobody answered")
    assert await place.run(partial(ask, days=0), "ok?").result() == []
    with pytest.raises(Raised, match="AlreadyAnswered"):
        await place.run(partial(ask, days=2), responses={"q": "yes"}).result()
    assert await place.run(partial(ask, days=2)).result() == ["ok?: nobody answered"]


async def test_a_request_without_a_default_expires_in_the_next_run(place: Place) -> None:
    assert await place.run(partial(asker, days=0), "ok?").result() == []
    assert await place.run(partial(asker, days=2)).result() == []
    async with place.storage() as storage:
        assert await storage.pending_requests() == []
    with pytest.raises(Raised, match="RequestExpired"):
        await place.run(partial(asker, days=2), responses={"q": "yes"}).result()
