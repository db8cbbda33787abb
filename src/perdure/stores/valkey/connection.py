"""A Valkey or Redis server as an accelerator: whatever becomes of it, nothing is lost or wrong, only slower."""

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
"""What a value begins with, so that an older one never takes the place of a newer one."""


class _Line:
    """What belongs to one event loop: connections cannot be shared between two."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self.client = client
        self.publisher = Publisher(client, breaker)
        self.subscriber = Subscriber(client, breaker)

    async def close(self) -> None:
        await self.publisher.close(TIMEOUT_SECONDS)
        await self.subscriber.close()
        try:
            await self.client.aclose()
        except Exception:  # noqa: BLE001, S110  # what could not be said goodbye to is gone all the same
            pass


class Valkey:
    """Connections to one server, made when they are needed, for any number of event loops of this process.

    Nothing here but `ping` raises because of the server, and nothing but `get` and `ping` waits for it, for at most a
    quarter of a second. A server that does not answer is left alone for a while. `url` is `redis://[user:password@]host[:port][/database]`,
    `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`. Raises MissingExtra, and ValueError for another URL.
    """

    def __init__(self, url: str) -> None:
        self.address, self._options = _options(url)
        self._breaker = CircuitBreaker(self.address)
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}

    def __repr__(self) -> str:
        return f"Valkey({self.address!r})"  # without the password

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            for gone in [one for one in self._lines if one.is_closed()]:
                del self._lines[gone]
            line = self._lines[loop] = _Line(_client(self._options), self._breaker)
        return line

    # ------------------------------------------------------------ publishing

    def hint(self, channel: bytes, message: bytes, *, at_once: bool) -> None:
        """Publish that something happened. Several hints of a channel may become one."""
        self._line().publisher.hint(channel, message, at_once=at_once)

    def publish(self, channel: bytes, message: bytes) -> None:
        if asyncio._get_running_loop() is not None:  # else there is nobody to send it
            self._line().publisher.put("PUBLISH", channel, message)

    def may_have_subscribers(self, channel: bytes) -> bool:
        """False if nobody was subscribed a moment ago, or the server does not answer."""
        return asyncio._get_running_loop() is not None and self._line().publisher.may_have_subscribers(channel)

    def subscriber(self) -> Subscriber:
        """What is heard in this event loop."""
        return self._line().subscriber

    # ------------------------------------------------------------ keeping

    async def get(self, key: bytes) -> bytes | None:
        """None for what is not there, is no value, or does not come in time."""
        line = self._line()
        if self._breaker.is_open:
            line.publisher.put("PING")  # whoever reads does not wait to find out whether it is over
            return None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await line.client.get(key)
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does
            if type(error).__name__ != "ResponseError":  # else something that is no value is there, and the server well
                self._breaker.failed(error)
            return None
        return found if isinstance(found, bytes) else None

    def set(self, key: bytes, version: int, value: bytes, seconds: int) -> None:
        """Keep the value for so long, unless one of a newer version is there. What `get` gives begins with the version,
        in so many digits."""
        self._line().publisher.put("EVAL", _SET_IF_NEWER, 1, key, b"%019d" % version + value, seconds)

    def forget(self, key: bytes) -> None:
        self._line().publisher.put("UNLINK", key)

    async def ping(self) -> None:
        """Raises ConnectionError if it does not answer."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._line().client.ping()
        except Exception as error:
            raise ConnectionError(f"Valkey does not answer: {type(error).__name__}") from error

    async def close(self) -> None:
        """Give back the connections of this event loop, and those of loops that are gone. Idempotent; what is called
        afterwards makes new ones."""
        line = self._lines.pop(asyncio.get_running_loop(), None)
        for gone in [one for one in self._lines if one.is_closed()]:
            del self._lines[gone]
        if line is not None:
            await line.close()


def _options(url: object) -> tuple[str, dict[str, Any]]:
    """Where the server is, for people, and how the library is told. Raises MissingExtra or ValueError."""
    try:
        from redis.asyncio.connection import parse_url
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise MissingExtra("Valkey", "redis", "redis") from error
    try:
        scheme, _, rest = str(url).partition("://")
        known = f"{_SCHEMES[scheme.lower()]}://{rest}"
        given = dict(parse_url(known))
        database = urlsplit(known).path.strip("/")
        if not known.startswith("unix") and database and not database.isdecimal():
            raise ValueError("a database has a number")
    except (KeyError, ValueError):
        # Not `from` the error: what it cannot read may be part of a password.
        raise ValueError(
            "redis_url expects redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or "
            "unix://path, and got something else. In a password, characters that mean something in a URL are written "
            "as %XX."
        ) from None
    address = str(given.get("path") or f"{given.get('host') or 'localhost'}:{given.get('port') or 6379}")
    ours = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "health_check_interval": 0,
    }
    return address, {**given, **ours}


def _client(options: dict[str, Any]) -> Any:
    from redis.asyncio import ConnectionPool, Redis

    return Redis.from_pool(ConnectionPool(**options))
