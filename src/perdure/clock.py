"""Time as a dependency: whatever waits or stamps is handed a clock, so that tests need not sleep."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Three ways to ask for time. `now` may jump when somebody sets the machine's clock; `monotonic` never does."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC: for stamps that people and other machines read."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never going back: for durations and deadlines inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed; at once, but after other tasks had a turn, if that is 0 or less."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
