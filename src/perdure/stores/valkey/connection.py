"""A Valkey or Redis server as an accelerator: without it nothing is lost or wrong, only slower."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from perdure.stores.valkey.circuit_breaker import CircuitBreaker
from perdure.stores.valkey.subscriber import Subscriber
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

MAX_QUEUED_BYTES = 8 * 1024 * 1024
"""The publisher drops commands beyond this."""
MAX_BATCH = 100
"""Commands of one round trip."""
EXCHANGE_SECONDS = 1.0
"""The limit of one round trip, a new connection included."""
QUIET_SECONDS = 0.05
"""Changes of a channel without subscribers are combined into one message within this time."""
NO_SUBSCRIBERS_SECONDS = 0.25
"""How long the publisher relies on the last count of subscribers."""
MAX_CHANNELS = 10_000
PROBES = 5

Command = tuple[Any, ...]


class Publisher:
    """A task sends what is queued, and ends when the queue is empty."""

    def __init__(self, client: Any, breaker: CircuitBreaker) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._breaker = breaker
        self._changes: dict[bytes, bytes] = {}
        """The change message of each channel: one is enough for several changes."""
        self._queue: deque[Command] = deque()
        self._bytes = 0
        self._delayed: dict[bytes, tuple[bytes, asyncio.TimerHandle]] = {}
        self._subscribers: dict[bytes, tuple[int, float]] = {}
        """How many subscribers received the last message of a channel, and when."""
        self._task: asyncio.Task[None] | None = None

    def publish_change(self, channel: bytes, message: bytes, *, is_urgent: bool) -> None:
        """Publish that a thread changed. Several messages of a channel may become one."""
        if self._breaker.seconds_left():
            return
        if channel in self._delayed:
            if not is_urgent:
                return
            self._delayed.pop(channel)[1].cancel()
        elif not is_urgent and self._has_no_subscribers(channel, QUIET_SECONDS):
            timer = self._loop.call_later(QUIET_SECONDS, self._publish_delayed, channel)
            self._delayed[channel] = message, timer
            return
        self._changes[channel] = message
        self._start()

    def _publish_delayed(self, channel: bytes) -> None:
        message, _ = self._delayed.pop(channel)
        self._changes[channel] = message
        self._start()

    def put(self, *command: Any) -> None:
        size = sum(len(part) for part in command if isinstance(part, bytes))
        if self._breaker.seconds_left() or self._bytes + size > MAX_QUEUED_BYTES:
            return
        self._bytes += size
        self._queue.append(command)
        self._start()

    def may_have_subscribers(self, channel: bytes) -> bool:
        return not self._breaker.seconds_left() and not self._has_no_subscribers(channel, NO_SUBSCRIBERS_SECONDS)

    def _has_no_subscribers(self, channel: bytes, seconds: float) -> bool:
        count, at = self._subscribers.get(channel, (1, 0.0))
        return count == 0 and self._loop.time() - at < seconds

    def _start(self) -> None:
        if self._task is not None and not self._task.done():
            return
        if self._breaker.may_try():
            self._task = self._loop.create_task(self._send(), name="perdure-valkey-publisher")
        else:
            self._drop_all()

    async def _send(self) -> None:
        try:
            while self._changes or self._queue:
                await self._send_batch()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a server or a network does: perdure works without it
            self._breaker.failed(error)
            self._drop_all()
        finally:
            self._task = None

    async def _send_batch(self) -> None:
        batch: list[Command] = []
        while self._queue and len(batch) < MAX_BATCH:
            batch.append(self._queue.popleft())
        while self._changes and len(batch) < MAX_BATCH:  # after the bodies published before the commit
            channel, message = self._changes.popitem()
            batch.append(("PUBLISH", channel, message))
        if not self._queue:
            self._bytes = 0
        pipeline = self._client.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*command)
        async with asyncio.timeout(EXCHANGE_SECONDS):
            answers = await pipeline.execute(raise_on_error=False)
        now = self._loop.time()
        if len(self._subscribers) > MAX_CHANNELS:
            self._subscribers.clear()
        for command, answer in zip(batch, answers, strict=False):
            if command[0] == "PUBLISH":
                if isinstance(answer, Exception):
                    raise answer
                self._subscribers[command[1]] = answer, now
        self._breaker.succeeded()

    def _drop_all(self) -> None:
        self._changes.clear()
        self._queue.clear()
        self._bytes = 0

    async def close(self, seconds: float) -> None:
        """Send what is queued, for at most this time."""
        for channel, (message, timer) in self._delayed.items():
            timer.cancel()
            self._changes[channel] = message
        self._delayed.clear()
        if self._changes:
            self._start()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
            task.cancel()
            await asyncio.wait([task])
        self._drop_all()


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
            connections = self._by_loop[loop] = _LoopConnections(
                make_valkey_client(self._options, TIMEOUT_SECONDS), self._breaker
            )
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
    return ValkeyReport(
        address,
        version=_version(info),
        round_trip_seconds=min(trips),
        used_bytes=int(info.get("used_memory", 0)),
        limit_bytes=int(info.get("maxmemory", 0)),
    )


def _version(info: dict[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version') or info.get('redis_version') or '?'}"


def _problem(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if type(error).__name__ in ("AuthenticationError", "NoPermissionError") or "NOAUTH" in text or "WRONGPASS" in text:
        return "it refuses the user or the password"
    if type(error).__name__ == "TimeoutError":
        return f"it does not answer within {TIMEOUT_SECONDS:g} s"
    if "111" in text or "refused" in text or "Connect call failed" in text:
        return "no server listens there"
    return text or type(error).__name__
