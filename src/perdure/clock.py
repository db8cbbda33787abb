"""Time as a dependency, and waiting: for work despite a cancellation, for a limited time, for another OS thread.

Code that waits, stamps or limits takes a clock, so that tests need not sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Time of day, monotonic time, and sleep. `now` jumps when the machine's clock is set; `monotonic` never does."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC: for stamps that people and other machines read."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never going back: for durations and deadlines inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`. For 0 or less, return once other tasks had a turn."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Waker:
    """Wakes the one task that waits, from any OS thread. Set what the task waits for, then call `wake`."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[bool] | None = None

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return
        loop = waiter.get_loop()
        try:
            if asyncio._get_running_loop() is loop:
                _resolve(waiter, True)
            else:
                loop.call_soon_threadsafe(_resolve, waiter, True)
        except RuntimeError:
            pass  # the task's loop is closed

    def expect(self) -> asyncio.Future[bool]:
        """Resolved by the next `wake`."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        return waiter

    async def wait(self, seconds: float, is_due: Callable[[], object]) -> bool:
        """Whether it was woken within this time, or is due."""
        waiter = self.expect()
        if is_due():  # asked after: a caller of `wake` in another OS thread sees the waiter, or this sees its change
            return True
        timer = waiter.get_loop().call_later(seconds, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()


def _resolve(waiter: asyncio.Future[bool], is_woken: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_woken)


async def await_uncancelled(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Await the work to its end. Returns its result and the cancellation that arrived meanwhile, if any.

    The caller raises the cancellation once its state is consistent: half of an undone superstep, or of a release,
    would corrupt the thread. Raises the error of the work, or the cancellation if both occurred.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and (task.cancelled() or task.exception() is not None):
        raise cancelled
    return task.result(), cancelled


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Await the work to its end, then raise the cancellation that arrived meanwhile, if any."""
    result, cancelled = await await_uncancelled(work)
    if cancelled is not None:
        raise cancelled
    return result


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> asyncio.CancelledError | None:
    """Cancel and await all tasks, even those that resist, and cancel them again if the caller is cancelled meanwhile.
    Returns that cancellation."""
    cancelled: asyncio.CancelledError | None = None
    pending = [task for task in tasks if not task.done()]
    while pending:
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
        pending = [task for task in pending if not task.done()]
    return cancelled


async def run_with_timeout(
    seconds: float | None,
    work: Coroutine[Any, Any, Any],
    clock: Clock,
    late: Exception | None,
    on_task: Callable[[asyncio.Task[Any]], None] | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> Any:
    """Run the work in a task of its own, without a limit if `seconds` is None. Returns its result.

    Raises `late` when the time is over, or the error of the work. If the work catches its cancellation and succeeds,
    its result counts.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    alarm = None if seconds is None else loop.create_task(clock.sleep(seconds))
    if on_task is not None:
        on_task(task)
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait([task] if alarm is None else [task, alarm], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:
        cancelled = error
    if alarm is not None:
        alarm.cancel()
    was_late = not task.done()
    if was_late and on_cancel is not None:
        on_cancel()
    cancelled = await cancel_and_wait([task]) or cancelled
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation replaces it
        raise cancelled
    if was_late and late is not None and (task.cancelled() or task.exception() is not None):
        raise late from (None if task.cancelled() else task.exception())
    return task.result()
