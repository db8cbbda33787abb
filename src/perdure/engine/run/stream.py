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


class _Flow(Generic[ItemT, ResultT]):
    """The running work, and its events that are not consumed yet."""

    def __init__(self, start: Start[ResultT], interrupt: Callable[[], bool]) -> None:
        self._interrupt = interrupt
        self.waiting: deque[ItemT] = deque()
        self._takers: set[asyncio.Future[None]] = set()
        self.task: asyncio.Task[ResultT] = asyncio.get_running_loop().create_task(start(self.put))
        self.task.add_done_callback(self._wake)

    def put(self, item: ItemT) -> None:
        self.waiting.append(item)
        self._wake(None)

    def _wake(self, _: object) -> None:
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)

    async def take(self) -> ItemT:
        """The next event. At the end raises StopAsyncIteration, or the error of the work."""
        while not self.waiting:
            if self.task.done():
                if not self.task.cancelled() and (error := self.task.exception()) is not None:
                    raise error
                raise StopAsyncIteration
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.add(taker)
            try:
                await taker
            finally:
                self._takers.discard(taker)
        return self.waiting.popleft()

    def cancel(self) -> None:
        if self.task.done() or self.task.get_loop().is_closed():
            return
        if not self._interrupt():  # it does not own its thread yet, so nothing needs an orderly end
            self.task.cancel()

    async def close(self) -> None:
        """Cancel the work and wait until it has cleaned up."""
        self.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():
            self.task.exception()  # retrieved: a caller that closes early does not want it


class _Taker(AsyncIterator[ItemT]):
    """One `async for`. Discarding it before the end, as `break` does, ends the work."""

    def __init__(self, flow: _Flow[ItemT, Any]) -> None:
        self._flow = flow

    async def __anext__(self) -> ItemT:
        try:
            return await self._flow.take()
        except asyncio.CancelledError:
            await self._flow.close()
            raise

    def __del__(self) -> None:
        # The cleanup of an async generator would run later, but a run that starts in the next line must find this one
        # ending, not running.
        self._flow.cancel()


class ResponseStream(Generic[ItemT, ResultT]):
    """Iterate it for events, await it for the result, or both: `async for event in stream`, `await stream`.

    Leaving the iteration early cancels the work; `aclose()`, or `async with`, also waits until it has ended.
    """

    def __init__(self, start: Start[ResultT], interrupt: Callable[[], bool]) -> None:
        self._start = start
        self._interrupt = interrupt
        self._flow: _Flow[ItemT, ResultT] | None = None

    def _begin(self) -> _Flow[ItemT, ResultT]:
        if self._flow is None:
            self._flow = _Flow(self._start, self._interrupt)
        return self._flow

    def __aiter__(self) -> AsyncIterator[ItemT]:
        return _Taker(self._begin())

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.get_final_response().__await__()

    async def get_final_response(self) -> ResultT:
        """The result, after the work has ended. Raises the error of the work."""
        flow = self._begin()
        try:
            await asyncio.wait([flow.task])
        except asyncio.CancelledError:
            await flow.close()
            raise
        if flow.task.cancelled():
            raise InvalidRun("The stream was closed before its run had begun. Nothing was run; call run() again.")
        return flow.task.result()

    async def aclose(self) -> None:
        if self._flow is not None:
            await self._flow.close()

    async def __aenter__(self) -> ResponseStream[ItemT, ResultT]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


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
