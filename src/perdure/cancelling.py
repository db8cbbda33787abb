"""Awaiting work that must finish although its run was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
