"""A rate limit shared by all instances: a script in Valkey or Redis counts, by that server's clock."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import MissingExtra
from perdure.log import get_logger
from perdure.server.config.schema import invalid
from perdure.server.rate_limit.limiter import Verdict

logger = get_logger(__name__)

TIMEOUT_SECONDS = 0.25
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
WARN_EVERY_SECONDS = 60.0
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}

# A sorted set with one member per request, by its time in microseconds. Members in the future were added before the
# server's clock was set back; they are removed, because they would block their key until then.
SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
local count = redis.call('ZCARD', KEYS[1])
if count < limit then
  redis.call('ZADD', KEYS[1], now, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
  return {1, limit - count - 1, window}
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {0, 0, math.max(1, oldest[2] + window - now)}
"""


class ValkeyLimiter:
    """At most `requests` of a key in any `window` seconds, over all instances.

    While Valkey is unreachable, requests are allowed (`fail_open`) or rejected without waiting. Background attempts
    with growing pauses detect when it is back.
    """

    def __init__(self, url: str, requests: int, window: float, *, prefix: str, fail_open: bool) -> None:
        """Connects at the first use. Raises MissingExtra, and InvalidConfig for an invalid URL."""
        self._url, self._address = _parse_url(url)
        self._requests = requests
        self._window = max(1, round(window * 1_000_000))
        self._prefix = prefix
        self._fail_open = fail_open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._script: Any = None
        self._failures = 0
        self._try_at = 0.0
        self._trying: asyncio.Task[None] | None = None
        self._warned_at = -WARN_EVERY_SECONDS

    def __repr__(self) -> str:
        return f"ValkeyLimiter({self._address!r})"  # without the password

    async def take(self, key: str) -> Verdict:
        self._connect()
        if self._failures:
            self._retry_in_background()
            return self._fallback_verdict()
        try:
            return await self._count(key)
        except Exception as error:  # noqa: BLE001  # drivers raise many types
            self._record_failure(error)
            return self._fallback_verdict()

    async def close(self) -> None:
        trying, self._trying = self._trying, None
        if trying is not None and self._loop is asyncio.get_running_loop():
            trying.cancel()
            await asyncio.wait([trying])
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            try:
                await client.aclose()
            except Exception:  # noqa: BLE001, S110  # the connection is dropped anyway
                pass

    async def _count(self, key: str) -> Verdict:
        # Hashed: users and addresses are not stored in clear, and the key has a fixed length.
        name = f"{self._prefix}:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            allowed, remaining, wait = await self._script(
                keys=[name], args=[self._window, self._requests, os.urandom(9).hex()]
            )
        return Verdict(bool(allowed), self._requests, int(remaining), int(wait) / 1_000_000)

    def _connect(self) -> None:
        """Connections belong to one event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._trying = loop, None
            self._client = _client(self._url)
            self._script = self._client.register_script(SCRIPT)

    # ------------------------------------------------------------ outages

    def _fallback_verdict(self) -> Verdict:
        if self._fail_open:
            return Verdict(True, self._requests, self._requests, 0.0)
        return Verdict(False, self._requests, 0, max(1.0, self._try_at - time.monotonic()))

    def _record_failure(self, error: Exception) -> None:
        now = time.monotonic()
        # Concurrent requests fail together and count as one failure. A ResponseError does not count: Valkey answered.
        if now >= self._try_at and type(error).__name__ != "ResponseError":
            self._try_at = now + min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
            self._failures += 1
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning(
                "Valkey at %s cannot count requests (%s): they are %s meanwhile",
                self._address,
                type(error).__name__,  # its text may hold request data
                "allowed without a limit" if self._fail_open else "rejected",
            )

    def _retry_in_background(self) -> None:
        if self._trying is None and time.monotonic() >= self._try_at:
            self._trying = asyncio.create_task(self._try())
            self._trying.add_done_callback(self._finish_attempt)

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._client.ping()
        except Exception as error:  # noqa: BLE001  # drivers raise many types
            self._record_failure(error)
        else:
            self._failures = 0
            logger.info("Valkey at %s counts requests again", self._address)

    def _finish_attempt(self, task: asyncio.Task[None]) -> None:
        if self._trying is task:
            self._trying = None


def _parse_url(url: str) -> tuple[str, str]:
    """The URL for the library, and its address for log lines."""
    try:
        from redis.asyncio.connection import parse_url
    except ImportError as error:
        raise MissingExtra('rate_limit.backend "redis"', "redis", "redis") from error
    try:
        scheme, _, rest = url.partition("://")
        library_url = f"{_SCHEMES[scheme.lower()]}://{rest}"
        options = dict(parse_url(library_url))
        database = urlsplit(library_url).path.strip("/")
        if not library_url.startswith("unix") and database and not database.isdecimal():
            raise ValueError("a database is a number")
    except (KeyError, ValueError):
        # Not `from` the error: its text may hold a part of a password.
        raise invalid(
            "redis",
            "expected redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or "
            "unix://path, got something else. In a password, escape special characters as %XX.",
        ) from None
    return library_url, str(
        options.get("path") or f"{options.get('host') or 'localhost'}:{options.get('port') or 6379}"
    )


def ping_of(url: str) -> Callable[[], Awaitable[object]]:
    """A readiness check, which raises ConnectionError. Raises InvalidConfig and MissingExtra."""
    library_url, _ = _parse_url(url)

    async def ping() -> object:
        client = _client(library_url)
        try:
            return await client.ping()
        except Exception as error:
            raise ConnectionError(f"Valkey does not answer: {type(error).__name__}") from error
        finally:
            await client.aclose()

    return ping


def _client(url: str) -> Any:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return Redis.from_url(
        url,
        protocol=2,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        health_check_interval=0,
    )
