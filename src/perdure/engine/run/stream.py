"""The stream of a run's events, and `run_sync`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from perdure.errors import InvalidRun, NotInAsyncCode

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Start = Callable[[Callable[[Any], None]], Coroutine[Any, Any, ResultT]]
"""Starts the work. Its argument is a function that takes each event."""


class ResponseStream(Generic[ItemT, ResultT]):
    """Iterate it for events, await it for the result, or both: `async for event in stream`, `await stream`.

    Leaving the iteration early cancels the work; `aclose()`, or `async with`, also waits until it has ended.
    """

    def __init__(self, start: Start[ResultT], interrupt: Callable[[], bool]) -> None:
        self._start = start
        self._interrupt = interrupt
        self._task: asyncio.Task[ResultT] | None = None
        """The work, once it was iterated or awaited."""
        self._unread: deque[ItemT] = deque()
        self._takers: set[asyncio.Future[None]] = set()

    def _begin(self) -> asyncio.Task[ResultT]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._start(self._put))
            self._task.add_done_callback(self._wake)
        return self._task

    def _put(self, item: ItemT) -> None:
        self._unread.append(item)
        self._wake(None)

    def _wake(self, _: object) -> None:
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)

    async def _take(self) -> ItemT:
        """The next event. At the end raises StopAsyncIteration, or the error of the work. Cancelled, it ends the
        work."""
        task = self._begin()
        while not self._unread:
            if task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
                raise StopAsyncIteration
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.add(taker)
            try:
                await taker
            except asyncio.CancelledError:
                await self.aclose()
                raise
            finally:
                self._takers.discard(taker)
        return self._unread.popleft()

    def _cancel(self) -> None:
        """Cancel the work, if it has begun and has not ended."""
        task = self._task
        if task is None or task.done() or task.get_loop().is_closed():
            return
        if not self._interrupt():  # it does not own its thread yet, so nothing needs an orderly end
            task.cancel()

    def __aiter__(self) -> AsyncIterator[ItemT]:
        _ = self._begin()
        return _Iteration(self)

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.get_final_response().__await__()

    async def get_final_response(self) -> ResultT:
        """The result, after the work has ended. Raises the error of the work."""
        task = self._begin()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if task.cancelled():
            raise InvalidRun("The stream was closed before its run had begun. Nothing was run; call run() again.")
        return task.result()

    async def aclose(self) -> None:
        """Cancel the work and wait until it has cleaned up."""
        self._cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # retrieved: a caller that closes early does not want it

    async def __aenter__(self) -> ResponseStream[ItemT, ResultT]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Iteration(AsyncIterator[ItemT]):
    """One `async for`. Discarding it before the end, as `break` does, ends the work."""

    def __init__(self, stream: ResponseStream[ItemT, Any]) -> None:
        self._stream = stream

    async def __anext__(self) -> ItemT:
        return await self._stream._take()

    def __del__(self) -> None:
        # The cleanup of an async generator would run later, but a run that starts in the next line must find this one
        # ending, not running.
        self._stream._cancel()


T = TypeVar("T")


def run_sync(work: Awaitable[T]) -> T:
    """Run to the end and return the result: `run_sync(workflow.run("hello"))`. For scripts.

    Raises NotInAsyncCode where an event loop runs already, as in a notebook: `await` it there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(work))
    close = getattr(work, "close", None)
    if close is not None:
        close()  # a coroutine that is never awaited would warn as well
    raise NotInAsyncCode(
        "run_sync() was called where an event loop is running, as in a notebook or an async function. Nothing was run. "
        "Use `await` instead: result = await workflow.run(...)."
    )


async def _await(work: Awaitable[T]) -> T:
    return await work
