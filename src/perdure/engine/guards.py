"""Guards: sub-workflows whose executor has a failure policy. What fails inside of one need not end the superstep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from perdure.clock import Clock
from perdure.engine.children import started_child
from perdure.engine.effects import Effects
from perdure.engine.level import Level
from perdure.engine.position import Child, every_level
from perdure.engine.timeouts import TimeIsUp, within
from perdure.errors import ThreadConflict, TimedOut, WorkflowCheckpointException
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.policy import ISOLATE, SKIP

if TYPE_CHECKING:
    from perdure.engine.lane import Lane

NOT_ITS_OWN = (WorkflowCheckpointException, ThreadConflict)
"""Failures of the thread's storage, or about what it holds: no policy of a sub-workflow meets them."""

RunLane = Callable[["Lane"], Coroutine[Any, Any, None]]


def enclosing(level: Level) -> Iterator[Level]:
    """The level and those around it, without the thread's own workflow, which nothing guards."""
    while level.parent is not None:
        yield level
        level = level.parent


def guard_of(level: Level, error: BaseException) -> Level | None:
    """The nearest sub-workflow around the failure whose policy meets it."""
    return next((one for one in enclosing(level) if _meets(one, error)), None)


def _meets(level: Level, error: BaseException) -> bool:
    policy, child, parent = level.policy, level.child, level.parent
    if child is None or parent is None or not isinstance(error, Exception) or isinstance(error, NOT_ITS_OWN):
        return False
    if policy.retry is not None and policy.retry.retries(error, child.attempts + 1):
        return True
    graph = parent.compiled.graph
    fallback_id = graph.fallbacks.get(child.executor_id)
    return policy.contains and (fallback_id is None or graph.executors[fallback_id].can_handle(child.message))


async def run_guarded(lane: Lane, run_lane: RunLane, clock: Clock) -> None:
    """Run a lane of a sub-workflow. A failure that a guard meets ends the lanes inside of that guard, and no others."""
    guards = list(enclosing(lane.level))
    if any(guard.failure is not None for guard in guards):
        return  # it failed before this lane had begun
    task = asyncio.current_task()
    for guard in guards:
        guard.running[lane] = task
    try:
        await _in_time(lane, run_lane, clock, guards)
    except asyncio.CancelledError:
        if not lane.is_dropped:
            raise
        _take_off_cancellation(lane)
    except _OutOfTime as late:
        error = timed_out(late.guard)
        error.__cause__ = late.__cause__
        _meet(lane, late.guard, error)
    except Exception as error:  # noqa: BLE001  # raised again, unless a guard meets it
        _meet(lane, lane.level, error)
    finally:
        for guard in guards:
            guard.running.pop(lane, None)
            if guard.deadline is not None:
                guard.ended_at = clock.now()


async def _in_time(lane: Lane, run_lane: RunLane, clock: Clock, guards: list[Level]) -> None:
    limits = [(guard.deadline, guard) for guard in guards if guard.deadline is not None]
    if not limits:
        await run_lane(lane)
        return
    deadline, guard = min(limits, key=lambda one: one[0])
    try:
        await within((deadline - clock.now()).total_seconds(), run_lane(lane), clock)
    except TimeIsUp as error:
        raise _OutOfTime(guard) from error.__cause__


class _OutOfTime(Exception):  # a signal: whose time it was, however deep the lane
    def __init__(self, guard: Level) -> None:
        super().__init__()
        self.guard = guard


def timed_out(guard: Level) -> TimedOut:
    return TimedOut(guard.told_id, guard.policy.timeout or 0)


def _meet(lane: Lane, where: Level, error: Exception) -> None:
    """Let the guard in charge take the failure. Raises it, if there is none."""
    if lane.failure is None:
        lane.failure = error
    met = guard_of(where, error)
    if met is None:
        raise error
    met.failure = error
    _drop_others(met, lane)


def _drop_others(guard: Level, failed: Lane) -> None:
    for lane, task in guard.running.items():
        if lane is not failed and task is not None:
            lane.is_dropped = True
            task.cancel()


def _take_off_cancellation(lane: Lane) -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        task.uncancel()


# ---------------------------------------------------------------- what becomes of it


def contained(level: Level, now: datetime, next_delivery_id: int) -> tuple[Child | None, Effects, list[WorkflowEvent]]:
    """The child that takes its place, if it is tried again; the effects of its executor; and what is to be told."""
    child, parent, error = level.child, level.parent, level.failure
    assert child is not None and parent is not None and error is not None  # noqa: S101, PT018  # a failed child's level
    effects = Effects()
    effects.also(withdrawn=tuple(request for one in every_level(level.position) for request in sorted(one.asked)))
    details = WorkflowErrorDetails.from_exception(error, executor_id=level.told_id)
    told = [_event("executor_failed", level, details)]
    policy, attempts = level.policy, child.attempts + 1
    if policy.retry is not None and policy.retry.retries(error, attempts):
        delay = policy.retry.delay_after(attempts)
        again = started_child(level.compiled.graph, child.executor_id, child.message, next_delivery_id)
        told.append(_event("executor_retrying", level, details, {"attempt": attempts, "delay_seconds": delay}))
        return again.tried_again(attempts, now + timedelta(seconds=delay)), effects, told
    fallback_id = parent.compiled.graph.fallbacks.get(child.executor_id)
    effects.also(message=child.message, is_isolated=policy.on_error == ISOLATE, forwarded_to=fallback_id)
    mode = policy.on_error if policy.on_error in (SKIP, ISOLATE) else f"fallback {fallback_id}"
    told.append(_event("executor_skipped", level, details, mode))
    return None, effects, told


def _event(kind: str, level: Level, details: WorkflowErrorDetails, data: Any = None) -> WorkflowEvent:
    above = None if level.parent is None else level.parent.child_id
    return WorkflowEvent(kind, data, executor_id=level.told_id, details=details, child_id=above)
