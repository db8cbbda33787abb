"""A rate limit in this process: exact, and with bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Protocol

import msgspec

from perdure.clock import Clock, SystemClock

# ---------------------------------------------------------------- rate


class Verdict(msgspec.Struct, frozen=True):
    """Whether a request may go on."""

    is_allowed: bool
    limit: int
    remaining: int
    """How many more are allowed now."""
    seconds: float
    """Until the next is allowed if this one is not, and otherwise until all of them are."""


class RateLimiter(Protocol):
    async def take(self, key: str) -> Verdict:
        """Count one request of this key. Never raises: a limiter that fails says what its configuration says."""
        ...

    async def close(self) -> None: ...


MOST_KEYS = 100_000
MOST_TIMES = 2_000_000
"""Of all keys together: some 64 MB."""
SWEPT_AT_ONCE = 2
"""Quiet keys that are looked for with each request: more than one can come."""


class MemoryLimiter:
    """At most `requests` of a key in any `window` seconds. Requests that are refused are not counted.

    Keys that were quiet for a window are forgotten. There are never more than `most_keys`: the one that was quiet for
    the longest time goes first.
    """

    def __init__(
        self, requests: int, window: float, *, clock: Clock | None = None, most_keys: int | None = None
    ) -> None:
        self._requests = requests
        self._window = window
        self._clock = clock or SystemClock()
        self._most_keys = most_keys or max(1000, min(MOST_KEYS, MOST_TIMES // requests))
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        """When each key was heard, those heard last at the end."""

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._times)

    async def take(self, key: str) -> Verdict:
        now = self._clock.monotonic()
        times = self._times.setdefault(key, deque())
        while times and times[0] <= now - self._window:
            times.popleft()
        is_allowed = len(times) < self._requests
        if is_allowed:
            times.append(now)
            self._times.move_to_end(key)
        self._forget(now)
        seconds = (times[-1] if is_allowed else times[0]) + self._window - now
        return Verdict(is_allowed, self._requests, self._requests - len(times), seconds)

    async def close(self) -> None:
        self._times.clear()

    def _forget(self, now: float) -> None:
        for _ in range(SWEPT_AT_ONCE):
            quietest = next(iter(self._times))
            if self._times[quietest][-1] > now - self._window and len(self._times) <= self._most_keys:
                return
            del self._times[quietest]
