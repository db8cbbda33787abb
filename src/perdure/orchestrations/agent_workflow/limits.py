"""How many may do something at a time, in one process."""

from __future__ import annotations

import asyncio
from uuid import uuid4
from weakref import WeakKeyDictionary

_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
"""By event loop and turnstile."""


class Turnstile:
    """A semaphore for whichever event loop it is used in; without a number everybody passes. Copies of it are the same:
    executors are copied for each thread, and this counts what all of them do."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._name = uuid4().hex

    def _semaphore(self) -> asyncio.Semaphore | None:
        if self._most is None:
            return None
        known = _semaphores.setdefault(asyncio.get_running_loop(), {})
        return known.setdefault(self._name, asyncio.Semaphore(self._most))

    async def __aenter__(self) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            await semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        semaphore = self._semaphore()
        if semaphore is not None:
            semaphore.release()
