"""Running lanes side by side: none of them outlives the superstep, and the first failure ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perdure.engine.lane import Lane


async def run_side_by_side(lanes: Sequence[Lane], run_lane: Callable[[Lane], Coroutine[Any, Any, None]]) -> bool:
    """Run all lanes to their end. When one fails the others are cancelled and awaited, then its error is raised.

    True if the run was cancelled when every lane had ended well already: their work is done and worth a commit, so
    the caller raises CancelledError after it.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(run_lane(lane), name=lane.executor_id) for lane in lanes]
    was_cancelled = False
    try:
        await asyncio.sleep(0)  # lanes that never wait are done after this: no need to watch them
        pending = [task for task in tasks if not task.done()]
        while pending and not any(map(_failed, tasks)):
            await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            pending = [task for task in pending if not task.done()]
    except asyncio.CancelledError:
        was_cancelled = True
    if all(task.done() for task in tasks) and not any(map(_failed, tasks)):
        return was_cancelled
    await _cancel_and_wait(tasks)
    if was_cancelled:
        raise asyncio.CancelledError
    _raise_first(tasks)
    return False


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _cancel_and_wait(tasks: list[asyncio.Task[None]]) -> None:
    """A side effect after the run has ended would belong to nobody: wait even for a lane that resists."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    while pending:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:  # cancelled once more while waiting: the lanes still come first
            for task in pending:
                task.cancel()
        pending = [task for task in pending if not task.done()]
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, so that the event loop does not report what the run's own error stands for


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    """The first real failure in lane order, with a note of the others; a cancelled sibling is only a consequence."""
    failures = [(task, error) for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if not failures:
        raise asyncio.CancelledError
    first = failures[0][1]
    for task, error in failures[1:]:
        first.add_note(f"Executor {task.get_name()!r} failed in the same superstep: {error!r}")
    raise first
