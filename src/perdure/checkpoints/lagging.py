"""Commits that are written while the next superstep runs: in order, and never more than so many of them unsaved."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any


class LaggingWrites:
    """A line of writes, each begun when the one before it has ended. None is begun after one that failed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[asyncio.Task[None]] = deque()
        self._failure: BaseException | None = None

    async def add(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take one more in, waiting while there are too many. Raises what an earlier one raised."""
        self._take_out_ended()
        self._raise_failure()
        while len(self._line) >= self._most:
            await asyncio.wait([self._line[0]])
            self._take_out_ended()
        self._raise_failure()
        before = self._line[-1] if self._line else None
        self._line.append(asyncio.get_running_loop().create_task(self._write(before, write)))

    async def settled(self) -> None:
        """Wait for all of them. Raises what the one that failed raised, once."""
        while self._line:
            await asyncio.wait([self._line[-1]])
            self._take_out_ended()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take_out_ended(self) -> None:
        while self._line and self._line[0].done():
            self._line.popleft().result()

    async def _write(self, before: asyncio.Task[None] | None, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            if self._failure is None:
                await write()
        except BaseException as error:
            self._failure = error
            raise
