"""A Valkey or Redis server as an accelerator: without it nothing is lost or wrong, only slower."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from perdure.stores.valkey.channels import CircuitBreaker, Publisher, Subscriber
from perdure.valkey_client import make_valkey_client, parse_valkey_url

TIMEOUT_SECONDS = 0.25

_SET_IF_NEWER = b"""
local old = redis.pcall('GETRANGE', KEYS[1], 0, 18)
if type(old) == 'string' and tonumber(old) and tonumber(old) > tonumber(string.sub(ARGV[1], 1, 19)) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""
VERSION_DIGITS = 19
"""The version at the start of a value: an older value never replaces a newer one."""
PROBES = 5


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
        self.address, self._options = _parse(url)
        self._breaker = CircuitBreaker(self.address)
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}

    def __repr__(self) -> str:
        return f"Valkey({self.address!r})"  # without the password

    def _connections(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            self._drop_ended_loops()
            client = make_valkey_client(self._options, TIMEOUT_SECONDS)
            connections = self._by_loop[loop] = _LoopConnections(client, self._breaker)
        return connections

    def _drop_ended_loops(self) -> None:
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            del self._by_loop[loop]

    def publisher(self) -> Publisher | None:
        """The publisher of this event loop; None without one: no task could send anything."""
        return None if asyncio._get_running_loop() is None else self._connections().publisher

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

    def send(self, *command: Any) -> None:
        """Queue a command, unless no event loop runs here."""
        publisher = self.publisher()
        if publisher is not None:
            publisher.put(*command)

    def set(self, key: bytes, version: int, value: bytes, seconds: int) -> None:
        """Store the value for this time, unless a newer version is stored. The result of `get` begins with the version,
        in VERSION_DIGITS digits."""
        self.send("EVAL", _SET_IF_NEWER, 1, key, b"%019d" % version + value, seconds)

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


def _parse(url: object) -> tuple[str, dict[str, Any]]:
    """The address for messages, and the options of the driver. Raises MissingExtra or ValueError."""
    try:
        return parse_valkey_url(url, "Valkey")
    except ValueError:
        raise ValueError(
            "redis_url expects redis://[user:password@]host[:port][/database], rediss://, valkey://, valkeys:// or "
            "unix://path, and got something else. In a password, characters that mean something in a URL are written "
            "as %XX."
        ) from None


# ---------------------------------------------------------------- what `perdure doctor` reads


@dataclass(frozen=True)
class ValkeyReport:
    address: str
    problem: str = ""
    """Why the server cannot be used; empty if it can."""
    version: str = ""
    round_trip_seconds: float = 0.0
    used_bytes: int = 0
    limit_bytes: int = 0
    """0: none."""


async def inspect_server(url: str) -> ValkeyReport:
    """Facts, without a judgement, with the timeouts of a store. Writes nothing.

    Raises ValueError for another URL, MissingExtra.
    """
    address, options = _parse(url)
    client = make_valkey_client(options, TIMEOUT_SECONDS)
    try:
        trips = []
        for _ in range(PROBES):
            started = time.perf_counter()
            await client.ping()
            trips.append(time.perf_counter() - started)
        info = await client.info("server", "memory")
    except Exception as error:  # noqa: BLE001  # whatever a server or a network does
        return ValkeyReport(address, _problem(error))
    finally:
        await client.aclose()
    name = "valkey" if "valkey_version" in info else "redis"
    return ValkeyReport(
        address,
        version=f"{name.title()} {info.get(f'{name}_version') or '?'}",
        round_trip_seconds=min(trips),
        used_bytes=int(info.get("used_memory", 0)),
        limit_bytes=int(info.get("maxmemory", 0)),
    )


def _problem(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if type(error).__name__ in ("AuthenticationError", "NoPermissionError") or "NOAUTH" in text or "WRONGPASS" in text:
        return "it refuses the user or the password"
    if type(error).__name__ == "TimeoutError":
        return f"it does not answer within {TIMEOUT_SECONDS:g} s"
    if "111" in text or "refused" in text or "Connect call failed" in text:
        return "no server listens there"
    return text or type(error).__name__
