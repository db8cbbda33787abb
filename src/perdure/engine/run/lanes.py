"""Running lanes: side by side, and under the failure policies of sub-workflows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from functools import partial
from types import coroutine
from typing import Any

import msgspec

from perdure.clock import Clock, cancel_and_wait, run_with_timeout
from perdure.engine.delivery.lane import Lane
from perdure.engine.delivery.scope import RunScope
from perdure.engine.thread.level import Level, instances_of, start_child
from perdure.engine.thread.position import Child, Effects, every_level
from perdure.errors import (
    DuplicateRequest,
    StateConflict,
    SubWorkflowFailed,
    ThreadConflict,
    TimedOut,
    WorkflowCheckpointException,
    WorkflowConvergenceException,
)
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.policy import ISOLATE, SKIP

RunLane = Callable[[Lane], Coroutine[Any, Any, None]]


async def run_side_by_side(lanes: Sequence[Lane], run_lane: RunLane) -> bool:
    """Run all lanes to their end. If one fails, cancel and await the others, then raise the first failure in lane
    order, with notes of the others. Cancelled siblings are not failures.

    Lanes that never wait share a task, each with context variables of its own. The first that waits keeps the task, and
    all others get their own. A task for each lane costs 1.3 us of the 5.9 us per delivery (benchmarks/engine.py, fan).

    True if the run was cancelled after every lane had succeeded: the caller commits their work, then raises
    CancelledError.
    """
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    left = deque(lanes)
    was_cancelled = False
    try:
        while left:
            task = loop.create_task(_run_in_one_task(left, run_lane))
            tasks.append(task)
            await asyncio.sleep(0)
            if not task.done():
                while left:
                    lane = left.popleft()
                    lane.task = loop.create_task(run_lane(lane), name=lane.executor_id)
                    tasks.append(lane.task)
        pending = [task for task in tasks if not task.done()]
        while pending and not any(map(_has_failed, tasks)):
            await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            pending = [task for task in pending if not task.done()]
    except asyncio.CancelledError:
        was_cancelled = True
    if not left and all(task.done() for task in tasks) and not any(map(_has_failed, tasks)):
        return was_cancelled
    await cancel_and_wait(tasks)  # no side effect may happen after the run has ended
    # Retrieved even if the run was cancelled, so that the event loop does not report them.
    failures = [(task, error) for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if was_cancelled or not failures:
        raise asyncio.CancelledError
    first = failures[0][1]
    for task, error in failures[1:]:
        first.add_note(f"Executor {task.get_name()!r} failed in the same superstep: {error!r}")
    raise first


async def _run_in_one_task(lanes: deque[Lane], run_lane: RunLane) -> None:
    """Take lanes and run them, one after the other. The caller empties `lanes` when one of them waits."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # the caller made one
    while lanes:
        lane = lanes.popleft()
        lane.task = task
        task.set_name(lane.executor_id)
        context, work = copy_context(), run_lane(lane)
        try:
            waits_for = context.run(work.send, None)
        except StopIteration:
            continue
        await _await_rest(context, work, waits_for)


@coroutine
def _await_rest(context: Context, work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Await the rest of a coroutine, which waits for `waits_for`, in its own context."""
    try:
        while True:
            try:
                answer = yield waits_for
            except BaseException as error:  # noqa: BLE001  # thrown into the work
                waits_for = context.run(work.throw, error)
            else:
                waits_for = context.run(work.send, answer)
    except StopIteration:
        return


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


NOT_ITS_OWN = (WorkflowCheckpointException, ThreadConflict)
"""Failures of the thread's storage or its content. No policy of a sub-workflow applies to them."""


def enclosing_levels(level: Level) -> Iterator[Level]:
    """The level and those around it, without the thread's own workflow, which has no policy."""
    while level.parent is not None:
        yield level
        level = level.parent


def find_policy_level(level: Level, error: BaseException) -> Level | None:
    """The nearest sub-workflow around the failure whose policy handles it."""
    return next((outer for outer in enclosing_levels(level) if _handles(outer, error)), None)


def _handles(level: Level, error: BaseException) -> bool:
    policy, child, parent = level.policy, level.child, level.parent
    if child is None or parent is None or not isinstance(error, Exception) or isinstance(error, NOT_ITS_OWN):
        return False
    if policy.retry is not None and policy.retry.retries(error, child.attempts + 1):
        return True
    graph = parent.compiled.graph
    fallback_id = graph.fallbacks.get(child.executor_id)
    return policy.contains and (fallback_id is None or graph.executors[fallback_id].can_handle(child.message))


async def run_child_lane(lane: Lane, run_lane: RunLane, clock: Clock) -> None:
    """Run a lane of a sub-workflow. A failure that a policy handles ends only the lanes inside that sub-workflow."""
    levels = list(enclosing_levels(lane.level))
    if any(level.failure is not None for level in levels):
        return  # the sub-workflow failed before this lane began
    for level in levels:
        level.running[lane] = lane.task
    limits = [(level.deadline, level) for level in levels if level.deadline is not None]
    deadline, limited = min(limits, key=lambda limit: limit[0], default=(None, lane.level))
    late = None if deadline is None else TimedOut(limited.full_id, limited.policy.timeout or 0)
    try:
        if deadline is None:
            await run_lane(lane)
        else:
            seconds = (deadline - clock.now()).total_seconds()
            await run_with_timeout(seconds, run_lane(lane), clock, late, partial(setattr, lane, "task"))
    except asyncio.CancelledError:
        if not lane.is_dropped:
            raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
    except Exception as error:  # noqa: BLE001  # raised again, unless a policy handles it
        _meet(lane, limited if error is late else lane.level, error)
    finally:
        for level in levels:
            level.running.pop(lane, None)
            if level.deadline is not None:
                level.ended_at = clock.now()


def _meet(lane: Lane, where: Level, error: Exception) -> None:
    """Let the nearest policy handle the failure. Raises it if there is none."""
    if lane.failure is None:
        lane.failure = error
    failed = find_policy_level(where, error)
    if failed is None:
        raise error
    failed.failure = error
    for other, task in failed.running.items():
        if other is not lane and task is not None:
            other.is_dropped = True
            task.cancel()


def apply_child_policy(
    level: Level, now: datetime, next_delivery_id: int
) -> tuple[Child | None, Effects, list[WorkflowEvent]]:
    """The child that replaces it, if it is retried; the effects of its executor; and events to emit."""
    child, parent, error = level.child, level.parent, level.failure
    assert child is not None and parent is not None and error is not None  # noqa: S101, PT018  # a failed child's level
    effects = Effects()
    withdrawn = (request for position in every_level(level.position) for request in sorted(position.asked))
    effects.also(withdrawn=tuple(withdrawn))
    notices = [_event("executor_failed", level, error)]
    policy, attempts = level.policy, child.attempts + 1
    if policy.retry is not None and policy.retry.retries(error, attempts):
        delay = policy.retry.delay_after(attempts)
        again = start_child(level.compiled.graph, child.executor_id, child.message, next_delivery_id)
        notices.append(_event("executor_retrying", level, error, {"attempt": attempts, "delay_seconds": delay}))
        due_at = now + timedelta(seconds=delay)
        return msgspec.structs.replace(again, attempts=attempts, due_at=due_at), effects, notices
    fallback_id = parent.compiled.graph.fallbacks.get(child.executor_id)
    effects.also(message=child.message, is_isolated=policy.on_error == ISOLATE, forwarded_to=fallback_id)
    mode = policy.on_error if policy.on_error in (SKIP, ISOLATE) else f"fallback {fallback_id}"
    notices.append(_event("executor_skipped", level, error, mode))
    return None, effects, notices


def _event(kind: str, level: Level, error: BaseException, data: Any = None) -> WorkflowEvent:
    details = WorkflowErrorDetails.from_exception(error, executor_id=level.full_id)
    above = None if level.parent is None else level.parent.child_id
    data = details if kind == "executor_failed" else data
    return WorkflowEvent(kind, data, executor_id=level.full_id, details=details, child_id=above)


class Nesting:
    def __init__(self, scope: RunScope) -> None:
        self._thread = scope.thread
        self._now = scope.clock.now
        self._scope = scope
        self._deadlines: dict[int, datetime] = {}
        """Deadlines of children whose executor has a timeout. Time counts only while a run works on them."""

    @property
    def next_deadline(self) -> datetime | None:
        return min(self._deadlines.values(), default=None)

    def open_child(self, parent: Level, child: Child) -> Level | None:
        """The child's level; None if nothing is due. Raises if it timed out, unless its own policy handles that."""
        now, child_id = self._now(), child.message.delivery_id
        deadline = self._deadlines.get(child_id)
        if not child.is_due(now) and (deadline is None or deadline > now):
            return None
        compiled, path = parent.compiled.children[child.executor_id], f"{parent.path}{child.executor_id}/"
        executors = instances_of(self._thread, child, compiled)
        level = Level(compiled, child.position, executors, parent, child, child_id=child_id, path=path)
        seconds = level.policy.timeout
        if seconds is not None:
            level.deadline = self._deadlines.setdefault(child_id, now + timedelta(seconds=seconds))
        limit = level.compiled.graph.max_iterations
        if level.deadline is not None and level.deadline <= now:
            level.failure = TimedOut(level.full_id, seconds or 0)
        elif level.position.mailbox and level.position.since_input >= limit:
            level.failure = WorkflowConvergenceException(self._thread.thread_id, limit)
        if level.failure is not None and find_policy_level(level, level.failure) is not level:
            parent.levels = [level]  # `failure` searches here
            raise level.failure
        return level

    def failure(self, root: Level, lane: Lane | None, error: BaseException) -> SubWorkflowFailed | None:
        """The error of the outermost executor around a failed sub-workflow. Emits `executor_failed` for each of them.

        None for a failure outside of sub-workflows.
        """
        level = lane.level if lane is not None else _failed_level(root, error)
        failure: SubWorkflowFailed | None = None
        if isinstance(error, NOT_ITS_OWN):
            return None
        for outer in enclosing_levels(level) if level is not None and isinstance(error, Exception) else ():
            failure = SubWorkflowFailed(outer.full_id, outer.compiled.graph.name, error)
            self._scope.emit(_event("executor_failed", outer, error))
        return failure

    def forget_ended(self) -> None:
        """Drop the executors of children that have ended."""
        alive = {child_id for level in every_level(self._thread.position) for child_id in level.children}
        for child_id in self._thread.children.keys() - alive:
            self._forget(child_id)

    def superstep_ended(self, level: Level) -> None:
        """Drop the executors of failed children, so that a retry starts with new ones. Extend the deadlines of children
        that waited for others to end."""
        for child in level.levels:
            if child.failure is not None and child.child_id is not None:
                self._forget(child.child_id)
            elif child.ended_at is not None and child.child_id in self._deadlines:
                self._deadlines[child.child_id] += self._now() - child.ended_at
            self.superstep_ended(child)

    def _forget(self, child_id: int) -> None:
        self._thread.children.pop(child_id, None)
        self._deadlines.pop(child_id, None)


def _failed_level(level: Level, error: BaseException) -> Level | None:
    """The sub-workflow that the error ended, at any depth; None if it ended none."""
    if level.failure is error:
        return level
    failed = (_failed_level(inner, error) for inner in level.levels)
    return next((inner for inner in failed if inner is not None), None)


def lanes_in_conflict(root: Level, lanes: Iterable[Lane], error: StateConflict | DuplicateRequest) -> list[Lane]:
    """The lanes whose outcomes cannot be merged. Executors of other levels may have the same ids."""
    where = _failed_level(root, error) or root
    inside = [lane for lane in lanes if where is root or where in enclosing_levels(lane.level)]
    return [lane for lane in inside if lane.full_id.removeprefix(where.path) in error.executors]
