"""What every rate limiter is: it counts requests by a key, and says when to come again."""

from __future__ import annotations

from typing import Protocol

import msgspec


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
