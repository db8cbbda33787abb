"""Rate limits: the protocol, the limiter in memory, and the key that a request is counted by."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, TypeAlias

import msgspec

from perdure.clock import Clock, SystemClock
from perdure.server.config.schema import invalid


class Verdict(msgspec.Struct, frozen=True):
    """The decision on one request."""

    is_allowed: bool
    limit: int
    remaining: int
    """Further requests that are allowed now."""
    seconds: float
    """Until the next request is allowed, if this one is not; otherwise until the window is empty."""


class RateLimiter(Protocol):
    async def take(self, key: str) -> Verdict:
        """Count one request of this key. Never raises: a failing limiter follows `fail_open`."""
        ...

    async def close(self) -> None: ...


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
        now = self._clock.monotonic()
        times = self._times.setdefault(key, deque())
        while times and times[0] <= now - self._window:
            times.popleft()
        is_allowed = len(times) < self._requests
        if is_allowed:
            times.append(now)
            self._times.move_to_end(key)
        self._drop_quiet_keys(now)
        seconds = (times[-1] if is_allowed else times[0]) + self._window - now
        return Verdict(is_allowed, self._requests, self._requests - len(times), seconds)

    async def close(self) -> None:
        self._times.clear()

    def _drop_quiet_keys(self, now: float) -> None:
        for _ in range(EXPIRED_PER_REQUEST):
            quietest = next(iter(self._times))
            if self._times[quietest][-1] > now - self._window and len(self._times) <= self._max_keys:
                return
            del self._times[quietest]


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

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
    while hops and _is_trusted(nearest, networks):
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
def trusted_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
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


def _is_trusted(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
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
