"""Work that must come to its end although its run was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def await_uncancelled(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """The result, and the cancellation that came meanwhile: the caller raises it when everything is tidy.

    Undoing a superstep or giving up a thread half-way would leave it in a state that nobody asked for. Raises what
    the work raises, or the cancellation if there was one too.
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
