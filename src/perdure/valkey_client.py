"""A client of the Valkey or Redis that a URL names, and the circuit breaker that decides when the server is used.

The driver is imported when the first client is made.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import MissingExtra
from perdure.log import get_logger

logger = get_logger("stores")

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}


def parse_valkey_url(url: object, feature: str) -> tuple[str, dict[str, Any]]:
    """The address for messages, without the password, and the options of the driver.

    Raises MissingExtra for the feature, and ValueError, which has no part of the URL.
    """
    try:
        from redis.asyncio.connection import parse_url
    except ImportError as error:
        raise MissingExtra(feature, "redis", "redis") from error
    try:
        scheme, _, rest = str(url).partition("://")
        library_url = f"{SCHEMES[scheme.lower()]}://{rest}"
        options = dict(parse_url(library_url))
        database = urlsplit(library_url).path.strip("/")
        if not library_url.startswith("unix") and database and not database.isdecimal():
            raise ValueError
    except (KeyError, ValueError):
        raise ValueError(
            "expected redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or unix://path, "
            "got something else. In a password, escape special characters as %XX."
        ) from None
    host, port = options.get("host") or "localhost", options.get("port") or 6379
    return str(options.get("path") or f"{host}:{port}"), options


def make_valkey_client(options: dict[str, Any], timeout_seconds: float) -> Any:
    """It connects when it is first used, and retries nothing. It belongs to one event loop."""
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    ours = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    return Redis.from_pool(ConnectionPool(**{**options, **ours}))


async def ping_client(client: Any, seconds: float) -> object:
    """Raises ConnectionError if it does not answer."""
    try:
        async with asyncio.timeout(seconds):
            return await client.ping()
    except Exception as error:
        raise ConnectionError(f"Valkey does not answer: {type(error).__name__}") from error


FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
WARN_EVERY_SECONDS = 60.0
"""At most one warning in this time, for a server that fails again and again."""


class CircuitBreaker:
    """The state of one server, for all event loops of the process.

    It pauses after a failure, for a time that grows. Then one caller tries the server, while the others continue
    without it.
    """

    def __init__(self, address: str, consequence: str) -> None:
        """`consequence`: of a failure, for the log."""
        self._address = address
        self._consequence = consequence
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
        if self._failures == 1:
            self.warn(error)

    def warn(self, error: BaseException) -> None:
        """Log an error, without its text, which may contain a message."""
        if (now := time.monotonic()) - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at, kind = now, type(error).__name__
            logger.warning("Valkey at %s is unavailable (%s): %s", self._address, kind, self._consequence)

    def succeeded(self) -> None:
        if self._failures:
            self._failures = 0
            logger.info("Valkey at %s answers again", self._address)
