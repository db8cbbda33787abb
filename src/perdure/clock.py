"""Time as a dependency: code that waits, stamps or limits takes a clock, so that tests need not sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol


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


class TimeLimitReached(Exception):  # a signal to the caller, who knows what took too long
    """The work did not end in time. It was cancelled and has ended."""


async def run_with_timeout(
    seconds: float | None,
    work: Coroutine[Any, Any, Any],
    clock: Clock,
    on_task: Callable[[asyncio.Task[Any]], None] | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> Any:
    """Run the work in a task of its own, without a limit if `seconds` is None. Returns its result.

    Raises TimeLimitReached, or the error of the work. If the work catches its cancellation and succeeds, its result
    counts.
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
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:  # cancelled again while waiting: still await the work
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation replaces it
        raise cancelled
    if was_late and (task.cancelled() or task.exception() is not None):
        raise TimeLimitReached from (None if task.cancelled() else task.exception())
    return task.result()
