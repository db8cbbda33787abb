"""A limit of time on work: it is cancelled and awaited, so that nothing of it goes on behind the caller's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perdure.clock import Clock


class TimeIsUp(Exception):  # a signal to the caller, who knows what took too long
    """The work did not end in time. It has ended now."""


async def within(
    seconds: float | None,
    work: Coroutine[Any, Any, Any],
    clock: Clock,
    on_task: Callable[[asyncio.Task[Any]], None] | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> Any:
    """The work's result, by a task of its own; without a limit if `seconds` is None. Raises TimeIsUp, or what the work
    raises.

    Work that keeps its cancellation to itself and ends well all the same has done what it was asked to do: its result
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
        except asyncio.CancelledError as error:  # cancelled once more while waiting: the work still comes first
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation stands for it
        raise cancelled
    if was_late and (task.cancelled() or task.exception() is not None):
        raise TimeIsUp from (None if task.cancelled() else task.exception())
    return task.result()
