"""Running lanes side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from perdure.engine.delivery.lane import Lane
from perdure.engine.delivery.scope import RunScope
from perdure.engine.superstep.commit import Committer
from perdure.engine.superstep.nesting import Nesting
from perdure.engine.thread.inputs import next_deadline, pass_deadlines
from perdure.engine.thread.position import Position, next_wake_up


async def run_side_by_side(lanes: Sequence[Lane], run_lane: Callable[[Lane], Coroutine[Any, Any, None]]) -> bool:
    """Run all lanes to their end. If one fails, cancel and await the others, then raise its error.

    True if the run was cancelled after every lane had succeeded: the caller commits their work, then raises
    CancelledError.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(run_lane(lane), name=lane.executor_id) for lane in lanes]
    was_cancelled = False
    try:
        await asyncio.sleep(0)  # lanes that never wait are done after this
        pending = [task for task in tasks if not task.done()]
        while pending and not any(map(_has_failed, tasks)):
            await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            pending = [task for task in pending if not task.done()]
    except asyncio.CancelledError:
        was_cancelled = True
    if all(task.done() for task in tasks) and not any(map(_has_failed, tasks)):
        return was_cancelled
    await _cancel_and_wait(tasks)
    if was_cancelled:
        raise asyncio.CancelledError
    _raise_first(tasks)
    return False


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _cancel_and_wait(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel and await all tasks, even those that resist: no side effect may happen after the run has ended."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    while pending:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:  # cancelled again while waiting: still await the lanes
            for task in pending:
                task.cancel()
        pending = [task for task in pending if not task.done()]
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that the event loop does not report it: the run raises its own error


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """Raise the first failure in lane order, with notes of the others. Cancelled siblings are not failures."""
    failures = [(task, error) for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if not failures:
        raise asyncio.CancelledError
    first = failures[0][1]
    for task, error in failures[1:]:
        first.add_note(f"Executor {task.get_name()!r} failed in the same superstep: {error!r}")
    raise first


class SleeperWait:
    def __init__(self, scope: RunScope, nesting: Nesting, committer: Committer) -> None:
        self._thread = scope.thread
        self._clock = scope.clock
        self._nesting = nesting
        self._committer = committer

    async def has_work(self, enter: Callable[[Position], Awaitable[None]]) -> bool:
        """Whether a superstep has work now. Waits for sleepers, unless a request to the outside is pending: the thread
        then pauses, and the next run continues them.

        Commits the results of passed deadlines with `enter`.
        """
        thread = self._thread
        while True:
            position, now = thread.position, self._clock.now()
            if position.mailbox or thread.inbox:
                return True
            if not position.suspended and not position.children:
                return False
            limit = self._nesting.next_deadline
            if position.is_due(now) or (limit is not None and limit <= now):
                return True
            if position.requests:
                return False
            after, expired = pass_deadlines(position, now)
            if after is not position:  # deadlines of requests that executors answer, not the outside
                for event in expired:
                    self._committer.emit(event)
                await enter(after)
                continue
            if limit is None and next_wake_up(position) is None:
                return False
            times = [time for time in (limit, next_deadline(position)) if time is not None]
            await self._sleep_until(min(times))

    async def _sleep_until(self, time: datetime) -> None:
        """Sleep until `time`, or until an item arrives in the inbox."""
        if self._thread.owner.is_leaving:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        waker = self._thread.waker = loop.create_future()
        alarm = loop.create_task(self._clock.sleep((time - self._clock.now()).total_seconds()))
        try:
            await asyncio.wait([waker, alarm], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._thread.waker = None
            alarm.cancel()
