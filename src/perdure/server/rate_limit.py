"""Rate limits: the key that a request is counted by, and the limiters in memory and in Valkey."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.server.config.schema import invalid
from perdure.valkey_client import CircuitBreaker, make_valkey_client, parse_valkey_url, ping_client


class Verdict(msgspec.Struct, frozen=True):
    """The decision on one request."""

    is_allowed: bool
    limit: int
    remaining: int
    """Further requests that are allowed now."""
    seconds: float
    """Until the next request is allowed, if this one is not; otherwise until the window is empty."""


MAX_KEYS = 100_000
MAX_TIMES = 2_000_000
"""Of all keys together: about 64 MB."""
EXPIRED_PER_REQUEST = 2
"""Expired keys removed with each request. More than one, so that the removal keeps up."""


class MemoryLimiter:
    """At most `requests` of a key in any `window` seconds. Rejected requests are not counted.

    Keys without a request for a window are removed. At most `max_keys` are stored: the least recently used key is
    removed first.
    """

    def __init__(
        self, requests: int, window: float, *, clock: Clock | None = None, max_keys: int | None = None
    ) -> None:
        self._requests = requests
        self._window = window
        self._clock = clock or SystemClock()
        self._max_keys = max_keys or max(1000, min(MAX_KEYS, MAX_TIMES // requests))
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        """Times of requests by key, the latest used key last."""

    def __len__(self) -> int:
        """The number of stored keys."""
        return len(self._times)

    async def take(self, key: str) -> Verdict:
        """Count one request of this key."""
        now = self._clock.monotonic()
        times = self._times.setdefault(key, deque())
        while times and times[0] <= now - self._window:
            times.popleft()
        is_allowed = len(times) < self._requests
        if is_allowed:
            times.append(now)
            self._times.move_to_end(key)
        for _ in range(EXPIRED_PER_REQUEST):
            quietest = next(iter(self._times))
            if self._times[quietest][-1] > now - self._window and len(self._times) <= self._max_keys:
                break
            del self._times[quietest]
        seconds = (times[-1] if is_allowed else times[0]) + self._window - now
        return Verdict(is_allowed, self._requests, self._requests - len(times), seconds)

    async def close(self) -> None:
        self._times.clear()


# ---------------------------------------------------------------- in Valkey


TIMEOUT_SECONDS = 0.25

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
        self._address, self._options = _parse_url(url)
        what = "allowed without a limit" if fail_open else "rejected"
        self._breaker = CircuitBreaker(self._address, f"requests are {what} meanwhile")
        self._requests = requests
        self._window = max(1, round(window * 1_000_000))
        self._prefix = prefix
        self._fail_open = fail_open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._script: Any = None
        self._trying: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"ValkeyLimiter({self._address!r})"  # without the password

    async def take(self, key: str) -> Verdict:
        """Count one request of this key. Never raises: a failing limiter follows `fail_open`."""
        self._connect()
        if self._breaker.is_open:
            if self._trying is None and self._breaker.may_try():
                self._trying = asyncio.create_task(self._try())
            return self._fallback_verdict()
        try:
            return await self._count(key)
        except Exception as error:  # noqa: BLE001  # drivers raise many types
            if type(error).__name__ == "ResponseError":  # Valkey answered
                self._breaker.warn(error)
            elif not self._breaker.is_open:  # concurrent requests fail together and count as one failure
                self._breaker.failed(error)
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
            self._client = make_valkey_client(self._options, TIMEOUT_SECONDS)
            self._script = self._client.register_script(SCRIPT)

    # ------------------------------------------------------------ outages

    def _fallback_verdict(self) -> Verdict:
        if self._fail_open:
            return Verdict(True, self._requests, self._requests, 0.0)
        return Verdict(False, self._requests, 0, max(1.0, self._breaker.seconds_left()))

    async def _try(self) -> None:
        try:
            await ping_client(self._client, TIMEOUT_SECONDS)
        except ConnectionError as error:
            self._breaker.failed(error.__cause__ or error)
        else:
            self._breaker.succeeded()
        finally:
            if self._trying is asyncio.current_task():
                self._trying = None


RateLimiter: TypeAlias = MemoryLimiter | ValkeyLimiter


def _parse_url(url: str) -> tuple[str, dict[str, Any]]:
    """The address for log lines, and the options of the driver."""
    try:
        return parse_valkey_url(url, 'rate_limit.backend "redis"')
    except ValueError as error:
        raise invalid("redis", str(error)) from None


def ping_of(url: str) -> Callable[[], Awaitable[object]]:
    """A readiness check, which raises ConnectionError. Raises InvalidConfig and MissingExtra."""
    _, options = _parse_url(url)

    async def ping() -> object:
        client = make_valkey_client(options, TIMEOUT_SECONDS)
        try:
            return await ping_client(client, TIMEOUT_SECONDS)
        finally:
            await client.aclose()

    return ping


# ---------------------------------------------------------------- addresses


UNKNOWN = "unknown"
MAX_HOPS = 32
"""Longest chain of proxies that is read."""


def client_address(peer: str | None, headers: Mapping[str, str], trusted_proxies: tuple[str, ...]) -> str:
    """The nearest address that is not a trusted proxy, read from right to left.

    Each proxy appends the address of its peer. Entries to the left of the first untrusted address prove nothing, so
    the chain ends there, and at an invalid address.
    """
    nearest = _address(peer or "")
    if nearest is None:
        return peer or UNKNOWN
    networks = trusted_networks(trusted_proxies)
    hops = headers.get("x-forwarded-for", "").rsplit(",", MAX_HOPS)[-MAX_HOPS:] if networks else []
    while hops and any(nearest in network for network in networks):
        before = _address(hops.pop())
        if before is None:
            break
        nearest = before
    return str(nearest)


def limit_key(by: str, address: str, user_id: str | None) -> str:
    """The key that a request is counted by.

    Requests without a user are counted by address. An IPv6 address counts as its /64 network, which usually belongs
    to one client.
    """
    if by == "global":
        return "global"
    if by == "user" and user_id is not None:
        return f"user:{user_id}"
    parsed = _address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return f"ip:{ipaddress.ip_network((int(parsed) >> 64 << 64, 64))}"
    return f"ip:{address}"


@lru_cache(maxsize=16)
def trusted_networks(texts: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Raises InvalidConfig for text that is neither an address nor a network."""
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            raise invalid(
                "rate_limit.trusted_proxies", f"{text!r} is neither an address nor a network, such as 10.0.0.0/8."
            ) from None
    return tuple(networks)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse `1.2.3.4`, `1.2.3.4:80`, `::1` or `[::1]:80`, also in quotes; None for anything else."""
    bare = text.strip().strip('"')
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address  # ::ffff:1.2.3.4 is 1.2.3.4
