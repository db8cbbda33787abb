"""Things that wait to be written at the same time are written together: one round trip for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Combined(Generic[T]):
    """One of those who wait writes for all; those who come meanwhile wait for the next turn. For one event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[T, asyncio.Future[bool]]] = []
        self._is_writing = False

    async def add(self, item: T, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        """Comes back when the item was written. What is written is written in the order of adding, and may be written
        again if whoever wrote it was cancelled."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._is_writing and await self._is_written(done):
            return
        self._is_writing = True  # it is our turn to write, for all who wait
        batch, self._waiting = self._waiting, []
        try:
            await write([one for one, _ in batch])
        except asyncio.CancelledError:
            self._waiting = [one for one in batch if one[1] is not done and not one[1].done()] + self._waiting
            raise
        except Exception as error:
            for _, other in batch:
                if other is not done and not other.done():
                    other.set_exception(error)
                    other.exception()  # whoever waited for it may be gone
            raise
        else:
            for _, other in batch:
                if not other.done():
                    other.set_result(True)
        finally:
            self._pass_on()

    async def _is_written(self, done: asyncio.Future[bool]) -> bool:
        """False: it is our turn to write."""
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None and not done.result():
                self._waiting = [one for one in self._waiting if one[1] is not done]
                self._pass_on()  # it was our turn
            raise

    def _pass_on(self) -> None:
        """The turn, to the next that waits."""
        self._waiting = [one for one in self._waiting if not one[1].done()]
        self._is_writing = bool(self._waiting)
        if self._waiting:
            self._waiting[0][1].set_result(False)
