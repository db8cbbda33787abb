"""A clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 1, 1, tzinfo=UTC)

QUIET_TURNS = 64
"""After so many turns of the event loop a task that is still asleep counts as waiting."""


class FakeClock:
    """Stands still until `advance`. One event loop at a time; not for use from several threads."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"FakeClock needs a time with a zone, got {start!r}: try start.replace(tzinfo=UTC).")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._order = count()
        self._alarms: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._alarms, (self._elapsed + seconds, next(self._order), alarm))
        self._wake_watchers()
        await alarm

    def advance(self, seconds: float) -> None:
        """Advance the time, and wake every sleeper whose time has come, the earliest first.

        They run when the test next awaits, and then see the new time. A sleeper that sleeps again counts from it.
        """
        if seconds < 0:
            raise ValueError(f"Time does not go back: advance({seconds:g}).")
        self._elapsed += seconds
        while self._alarms and self._alarms[0][0] <= self._elapsed:
            _, _, alarm = heapq.heappop(self._alarms)
            if not alarm.done():
                alarm.set_result(None)

    @property
    def sleepers(self) -> int:
        """How many are asleep now."""
        return sum(not alarm.done() for _, _, alarm in self._alarms)

    async def wait_for_sleepers(self, number: int = 1) -> None:
        """Return once at least `number` tasks are asleep: the moment to `advance`."""
        if self.sleepers < number:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append((number, watcher))
            await watcher

    def advance_to_next(self) -> None:
        """Advance the time to the moment when the first sleeper wakes. Does nothing without a sleeper."""
        asleep = [time for time, _, alarm in self._alarms if not alarm.done()]
        if asleep:
            self.advance(max(0.0, min(asleep) - self._elapsed))

    @asynccontextmanager
    async def skipping(self) -> AsyncIterator[None]:
        """While it is open, time moves on by itself whenever every task waits.

        It sees the event loop and the threads of functions that are not async. It cannot see what comes over a network:
        a `timeout=` around that may pass early. Use the real clock there.
        """
        mover = asyncio.create_task(self._skip())
        try:
            yield
        finally:
            mover.cancel()
            await asyncio.wait([mover])

    async def _skip(self) -> None:
        while True:
            await self.wait_for_sleepers()
            left = QUIET_TURNS
            while left:
                is_busy = _threads_are_busy()
                await asyncio.sleep(0.001 if is_busy else 0)  # a thread gives no sign when it is done
                left = QUIET_TURNS if is_busy else left - 1
            self.advance_to_next()

    def _wake_watchers(self) -> None:
        asleep = self.sleepers
        for number, watcher in self._watchers:
            if number <= asleep and not watcher.done():
                watcher.set_result(None)
        self._watchers = [(number, watcher) for number, watcher in self._watchers if not watcher.done()]


def _threads_are_busy() -> bool:
    """Whether something runs in the threads of `asyncio.to_thread`. Python has no public way to ask."""
    pool = getattr(asyncio.get_running_loop(), "_default_executor", None)
    try:
        return pool is not None and len(pool._threads) > pool._idle_semaphore._value
    except AttributeError:  # another kind of pool, or a Python that keeps it otherwise
        return False
