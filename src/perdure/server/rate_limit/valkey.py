"""A rate limit that all instances share: one script in Valkey or Redis counts, by the clock of that server."""

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
from perdure.server.config.errors import invalid
from perdure.server.rate_limit.memory import Verdict

logger = get_logger(__name__)

TIMEOUT_SECONDS = 0.25
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
WARN_EVERY_SECONDS = 60.0
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}

# A sorted set of one member for each request, by its time in microseconds. What lies in the future is from before the
# server's clock was set back; it would lock its key for as long.
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
    """At most `requests` of a key in any `window` seconds, whichever instance is asked.

    While the server is away requests are let through (`fail_open`) or refused, without waiting for it: it is left alone
    for a time that grows, and then tried beside the requests.
    """

    def __init__(self, url: str, requests: int, window: float, *, prefix: str, fail_open: bool) -> None:
        """Connects when it is first used. Raises MissingExtra, and InvalidConfig for what is no URL."""
        self._known_url, self._address = _checked(url)
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
            self._try_beside()
            return self._without()
        try:
            return await self._counted(key)
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does
            self._failed(error)
            return self._without()

    async def close(self) -> None:
        trying, self._trying = self._trying, None
        if trying is not None and self._loop is asyncio.get_running_loop():
            trying.cancel()
            await asyncio.wait([trying])
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            try:
                await client.aclose()
            except Exception:  # noqa: BLE001, S110  # what could not be said goodbye to is gone all the same
                pass

    async def _counted(self, key: str) -> Verdict:
        # Names of users and addresses need not lie there in clear, nor be of any length.
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
            self._client = _client(self._known_url)
            self._script = self._client.register_script(SCRIPT)

    # ------------------------------------------------------------ while it is away

    def _without(self) -> Verdict:
        if self._fail_open:
            return Verdict(True, self._requests, self._requests, 0.0)
        return Verdict(False, self._requests, 0, max(1.0, self._try_at - time.monotonic()))

    def _failed(self, error: Exception) -> None:
        now = time.monotonic()
        # Those that were under way together fail together, which is one failure. A ResponseError is none: the server is
        # there, and refuses this one.
        if now >= self._try_at and type(error).__name__ != "ResponseError":
            self._try_at = now + min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10))
            self._failures += 1
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning(
                "Valkey at %s cannot count requests (%s): they are %s until it can",
                self._address,
                type(error).__name__,  # its text may hold what was sent
                "let through without a limit" if self._fail_open else "refused",
            )

    def _try_beside(self) -> None:
        if self._trying is None and time.monotonic() >= self._try_at:
            self._trying = asyncio.create_task(self._try())
            self._trying.add_done_callback(self._tried)

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._client.ping()
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does
            self._failed(error)
        else:
            self._failures = 0
            logger.info("Valkey at %s counts requests again", self._address)

    def _tried(self, task: asyncio.Task[None]) -> None:
        if self._trying is task:
            self._trying = None


def _checked(url: str) -> tuple[str, str]:
    """The URL as the library knows it, and where that is, for people."""
    try:
        from redis.asyncio.connection import parse_url
    except ImportError as error:
        raise MissingExtra('rate_limit.backend "redis"', "redis", "redis") from error
    try:
        scheme, _, rest = url.partition("://")
        known = f"{_SCHEMES[scheme.lower()]}://{rest}"
        given = dict(parse_url(known))
        database = urlsplit(known).path.strip("/")
        if not known.startswith("unix") and database and not database.isdecimal():
            raise ValueError("a database has a number")
    except (KeyError, ValueError):
        # Not `from` the error: what it cannot read may be part of a password.
        raise invalid(
            "redis",
            "expected redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or "
            "unix://path, and got something else. In a password, characters that mean something in a URL are written "
            "as %XX.",
        ) from None
    return known, str(given.get("path") or f"{given.get('host') or 'localhost'}:{given.get('port') or 6379}")


def ping_of(url: str) -> Callable[[], Awaitable[object]]:
    """A way to ask whether it is there, which raises ConnectionError if not. Raises InvalidConfig, MissingExtra."""
    known, _ = _checked(url)

    async def ping() -> object:
        client = _client(known)
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
