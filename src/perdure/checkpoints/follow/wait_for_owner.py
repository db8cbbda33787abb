"""Waiting for a thread that somebody else owns, in this process or another."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, Self

from perdure.store import Store, Subscription

MIN_POLL_SECONDS = 0.02
MAX_POLL_SECONDS = 1.0
"""How often whoever waits for a thread tries to get it: while its owner moves it, and while nothing is heard."""


class OwnerWait:
    """Waits until a thread that somebody else owns may be free. Listens from the first call on, which does not wait:
    the thread may have been given up before."""

    def __init__(self, storage: Any, thread_id: str) -> None:
        self._store: Store | None = getattr(storage, "store", None)
        self._thread_id = thread_id
        self._listening: AsyncExitStack | None = None
        self._subscription: Subscription | None = None
        self._looked_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            await self._listening.aclose()

    async def until_free(self) -> None:
        if self._store is None:
            await asyncio.sleep(MIN_POLL_SECONDS)
        elif self._subscription is None:
            self._listening = AsyncExitStack()
            self._subscription = await self._listening.enter_async_context(self._store.subscribe(self._thread_id))
        else:
            await self._hear(self._subscription)
        self._looked_at = time.monotonic()

    async def _hear(self, subscription: Subscription) -> None:
        until = time.monotonic() + MAX_POLL_SECONDS
        while (left := until - time.monotonic()) > 0 and await subscription.next(left) is not None:
            pass  # what its owner tells of
        # An owner who commits often is not asked each time whether it has done.
        await asyncio.sleep(max(0.0, self._looked_at + MIN_POLL_SECONDS - time.monotonic()))
