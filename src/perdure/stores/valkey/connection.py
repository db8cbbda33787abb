"""A Valkey or Redis server as an accelerator: without it nothing is lost or wrong, only slower."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import MissingExtra
from perdure.stores.valkey.circuit_breaker import CircuitBreaker
from perdure.stores.valkey.publisher import Publisher
from perdure.stores.valkey.subscriber import Subscriber

TIMEOUT_SECONDS = 0.25
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}

_SET_IF_NEWER = b"""
local old = redis.pcall('GETRANGE', KEYS[1], 0, 18)
if type(old) == 'string' and tonumber(old) and tonumber(old) > tonumber(string.sub(ARGV[1], 1, 19)) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""
VERSION_DIGITS = 19
"""The version at the start of a value: an older value never replaces a newer one."""


class _LoopConnections:
    """The connections of one event loop: event loops cannot share connections."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self.client = client
        self.publisher = Publisher(client, breaker)
        self.subscriber = Subscriber(client, breaker)

    async def close(self) -> None:
        await self.publisher.close(TIMEOUT_SECONDS)
        await self.subscriber.close()
        try:
            await self.client.aclose()
        except Exception:  # noqa: BLE001, S110  # the connection is lost already
            pass


class Valkey:
    """Connections to one server, opened on first use, for any number of event loops of this process.

    Only `ping` raises errors of the server. Only `get` and `ping` wait for the server, at most a quarter of a second. A
    circuit breaker pauses the use of a server that does not answer. `url` is `redis://[user:password@]host[:port][/database]`,
    `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`. Raises MissingExtra, and ValueError for another URL.
    """

    def __init__(self, url: str) -> None:
        self.address, self._options = _options(url)
        self._breaker = CircuitBreaker(self.address)
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}

    def __repr__(self) -> str:
        return f"Valkey({self.address!r})"  # without the password

    def _connections(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            self._drop_ended_loops()
            connections = self._by_loop[loop] = _LoopConnections(_client(self._options), self._breaker)
        return connections

    def _drop_ended_loops(self) -> None:
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            del self._by_loop[loop]

    def publish_change(self, channel: bytes, message: bytes, *, is_urgent: bool) -> None:
        """Publish that a thread changed. Several messages of a channel may become one."""
        self._connections().publisher.publish_change(channel, message, is_urgent=is_urgent)

    def publish(self, channel: bytes, message: bytes) -> None:
        if asyncio._get_running_loop() is not None:  # else no task could send it
            self._connections().publisher.put("PUBLISH", channel, message)

    def may_have_subscribers(self, channel: bytes) -> bool:
        """False if the channel had no subscribers a moment ago, or the server does not answer."""
        return asyncio._get_running_loop() is not None and self._connections().publisher.may_have_subscribers(channel)

    def subscriber(self) -> Subscriber:
        """The subscriber of this event loop."""
        return self._connections().subscriber

    async def get(self, key: bytes) -> bytes | None:
        """None if the key is missing, is not a string, or the answer is late."""
        connections = self._connections()
        if self._breaker.is_open:
            connections.publisher.put("PING")  # finds out in the background whether the server answers again
            return None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                value = await connections.client.get(key)
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does
            if type(error).__name__ != "ResponseError":  # else the key holds another type, and the server works
                self._breaker.failed(error)
            return None
        return value if isinstance(value, bytes) else None

    def set(self, key: bytes, version: int, value: bytes, seconds: int) -> None:
        """Store the value for this time, unless a newer version is stored. The result of `get` begins with the version,
        in VERSION_DIGITS digits."""
        self._connections().publisher.put("EVAL", _SET_IF_NEWER, 1, key, b"%019d" % version + value, seconds)

    def delete(self, key: bytes) -> None:
        self._connections().publisher.put("UNLINK", key)

    async def ping(self) -> None:
        """Raises ConnectionError if it does not answer."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._connections().client.ping()
        except Exception as error:
            raise ConnectionError(f"Valkey does not answer: {type(error).__name__}") from error

    async def close(self) -> None:
        """Close the connections of this event loop. Idempotent; a later call opens new ones."""
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._drop_ended_loops()
        if connections is not None:
            await connections.close()


def _options(url: object) -> tuple[str, dict[str, Any]]:
    """The address for messages, and the options of the library. Raises MissingExtra or ValueError."""
    try:
        from redis.asyncio.connection import parse_url
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise MissingExtra("Valkey", "redis", "redis") from error
    try:
        scheme, _, rest = str(url).partition("://")
        library_url = f"{_SCHEMES[scheme.lower()]}://{rest}"
        parsed = dict(parse_url(library_url))
        database = urlsplit(library_url).path.strip("/")
        if not library_url.startswith("unix") and database and not database.isdecimal():
            raise ValueError("a database is a number")
    except (KeyError, ValueError):
        # Not `from` the error: its text may contain a part of a password.
        raise ValueError(
            "redis_url expects redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or "
            "unix://path, and got something else. In a password, characters that mean something in a URL are written "
            "as %XX."
        ) from None
    address = str(parsed.get("path") or f"{parsed.get('host') or 'localhost'}:{parsed.get('port') or 6379}")
    ours = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    return address, {**parsed, **ours}


def _client(options: dict[str, Any]) -> Any:
    from redis.asyncio import ConnectionPool, Redis

    return Redis.from_pool(ConnectionPool(**options))
