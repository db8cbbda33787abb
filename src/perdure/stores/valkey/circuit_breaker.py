"""A circuit breaker: when a server that failed is tried again."""

from __future__ import annotations

import time

from perdure.log import get_logger

logger = get_logger("stores")

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
WARN_EVERY_SECONDS = 60.0
"""At most one warning in this time, for a server that fails again and again."""


class CircuitBreaker:
    """The state of one server, for all event loops of the process.

    It pauses after a failure, for a time that grows. Then one caller tries the server, while the others continue
    without it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._failures = 0
        self._until = 0.0
        self._warned_at = -WARN_EVERY_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether the last use of the server failed."""
        return self._failures > 0

    def seconds_left(self) -> float:
        return max(0.0, self._until - time.monotonic()) if self._failures else 0.0

    def may_try(self) -> bool:
        """True: use the server now, and report the outcome with `failed` or `succeeded`."""
        if not self._failures:
            return True
        now = time.monotonic()
        if now < self._until:
            return False
        self._until = now + LONGEST_PAUSE_SECONDS  # for the other callers; one of them is next if no outcome arrives
        return True

    def failed(self, error: BaseException) -> None:
        now = time.monotonic()
        self._until = now + min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        if self._failures == 1 and now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning(
                "Valkey at %s cannot be used (%s). Nothing is lost or wrong without it, only slower; it is tried again",
                self._address,
                type(error).__name__,  # its text may contain a message
            )

    def succeeded(self) -> None:
        if self._failures:
            self._failures = 0
            logger.info("Valkey at %s answers again", self._address)
