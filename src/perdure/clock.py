"""Time as a dependency: code that waits or stamps takes a clock, so that tests need not sleep."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time of day, monotonic time, and sleep. `now` jumps when the machine's clock is set; `monotonic` never does."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC: for stamps that people and other machines read."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never going back: for durations and deadlines inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`. For 0 or less, return once other tasks had a turn."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
