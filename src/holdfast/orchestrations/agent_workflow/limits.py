"""How many may do something at a time, in one process."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary


class Turnstile:
    """A semaphore for whichever event loop it is used in; without a number everybody passes."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def _semaphore(self) -> asyncio.Semaphore | None:
        if self._most is None:
            return None
        loop = asyncio.get_running_loop()
        return self._by_loop.setdefault(loop, asyncio.Semaphore(self._most))

    async def __aenter__(self) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            await semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            semaphore.release()
