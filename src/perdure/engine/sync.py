"""The one way in from code that is not async."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from perdure.errors import NotInAsyncCode

T = TypeVar("T")


def run_sync(work: Awaitable[T]) -> T:
    """Run to the end and give the result: `run_sync(workflow.run("hello"))`. For scripts.

    Raises NotInAsyncCode where an event loop runs already, as in a notebook: `await` it there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(work))
    close = getattr(work, "close", None)
    if close is not None:
        close()  # a coroutine that is never awaited would warn as well
    raise NotInAsyncCode(
        "run_sync() was called where an event loop is running, as in a notebook or an async function. Nothing was run. "
        "Use `await` instead: result = await workflow.run(...)."
    )


async def _awaited(work: Awaitable[T]) -> T:
    return await work
