"""A store with a Valkey or Redis server beside it: without the server nothing is lost or wrong, only slower."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from perdure.records import Commit, Lease, ThreadHeader
from perdure.store import Rewrite, Store, Subscription
from perdure.stores.layer import StoreLayer
from perdure.stores.notify import LocalBus, LocalSubscription, PollInterval
from perdure.stores.valkey.channels import CHANGED, PUBLISHED, Publisher, Subscriber, close_quietly
from perdure.valkey_client import CircuitBreaker, make_valkey_client, parse_valkey_url, ping_client

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


class _LoopConnections(NamedTuple):
    """The connections of one event loop: event loops cannot share connections."""

    client: Any
    publisher: Publisher
    subscriber: Subscriber


class Valkey:
    """Connections to one server, opened on first use, for any number of event loops of this process.

    Only `ping` raises errors of the server. Only `get` and `ping` wait for the server, at most a quarter of a second. A
    circuit breaker pauses the use of a server that does not answer. `url` is `redis://[user:password@]host[:port][/database]`,
    `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`. Raises MissingExtra, and ValueError for another URL.
    """

    def __init__(self, url: str) -> None:
        self.address, self._options = parse_valkey_url(url, "Valkey")
        self._breaker = CircuitBreaker(self.address, "notifications are slower, nothing is lost; retrying")
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}

    def __repr__(self) -> str:
        return f"Valkey({self.address!r})"  # without the password

    def _connections(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            self._drop_ended_loops()
            client = make_valkey_client(self._options, TIMEOUT_SECONDS)
            ways = Publisher(client, self._breaker), Subscriber(client, self._breaker)
            connections = self._by_loop[loop] = _LoopConnections(client, *ways)
        return connections

    def _drop_ended_loops(self) -> None:
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            del self._by_loop[loop]

    def publisher(self) -> Publisher | None:
        """The publisher of this event loop; None without one: no task could send anything."""
        return None if asyncio._get_running_loop() is None else self._connections().publisher

    def subscriber(self) -> Subscriber:
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
        await ping_client(self._connections().client, TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the connections of this event loop. Idempotent; a later call opens new ones."""
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._drop_ended_loops()
        if connections is not None:
            await connections.publisher.close(TIMEOUT_SECONDS)
            await connections.subscriber.close()
            await close_quietly(connections.client)


# ---------------------------------------------------------------- the store


Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""

SUBSCRIBED_POLL_SECONDS = 1.0
"""How often a subscription polls the store although Valkey works: a message may be lost."""
CACHE_SECONDS = 300
MAX_CACHED_BYTES = 4 * 1024 * 1024
"""The chunks of one thread, in Valkey."""
RECENT_BYTES = 8 * 1024 * 1024
"""The chunks that this process read recently, until `remember` selects some of them."""

_packs = msgspec.msgpack.Decoder(dict[int, dict[str, bytes]])


class AcceleratedStore(StoreLayer):
    """Implements `perdure.store.Store` around another one.

    `location` names what the store keeps: stores with the same location share notifications.
    """

    def __init__(self, store: Store, valkey: Valkey, location: str) -> None:
        super().__init__(store)
        self._valkey = valkey
        self.ping = valkey.ping
        self._location = blake2b(location.encode(), digest_size=12).hexdigest().encode()
        self._recent = _RecentChunks()
        bus = getattr(store, "bus", None)
        self._has_own_bus = not isinstance(bus, LocalBus)
        self.bus = bus if isinstance(bus, LocalBus) else LocalBus()
        self.poll_interval: PollInterval = getattr(store, "poll_interval", None) or PollInterval()

    def _channel(self, thread_id: str) -> bytes:
        return _channel(self._location, thread_id)

    async def commit(self, commit: Commit) -> None:
        await self.inner.commit(commit)
        self._notify(commit.lease.thread_id, is_urgent=False)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self.inner.post(thread_id, item_id, kind, body)
        self._notify(thread_id, is_urgent=True)

    async def release(self, lease: Lease) -> None:
        await self.inner.release(lease)
        self._notify(lease.thread_id, is_urgent=True)

    def _notify(self, thread_id: str, *, is_urgent: bool) -> None:
        if self._has_own_bus:
            self.bus.notify(thread_id)
        publisher = self._valkey.publisher()
        if publisher is not None:
            publisher.publish_change(self._channel(thread_id), self.bus.token + CHANGED, is_urgent=is_urgent)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)
        self._valkey.send("PUBLISH", self._channel(thread_id), self.bus.token + PUBLISHED + body)

    def has_subscribers(self, thread_id: str) -> bool:
        """False if there were none a moment ago, or Valkey does not answer."""
        publisher, here = self._valkey.publisher(), self.bus.has_subscribers(thread_id)
        return here or (publisher is not None and publisher.may_have_subscribers(self._channel(thread_id)))

    @asynccontextmanager
    async def subscribe(self, thread_id: str) -> AsyncIterator[Subscription]:
        """Subscribes to the local bus and, through Valkey, to other processes."""
        subscriber, channel = self._valkey.subscriber(), self._channel(thread_id)

        def interval(quiet: int) -> float:
            return SUBSCRIBED_POLL_SECONDS if subscriber.is_subscribed(channel) else self.poll_interval.after(quiet)

        async with LocalSubscription(self.bus, thread_id, interval) as subscription:
            try:
                await subscriber.add(channel, self.bus, thread_id)
                yield subscription
            finally:
                await subscriber.remove(channel, self.bus)

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Packs:
        chunks = await self.inner.read_chunks(thread_id, numbers)
        self._recent.add(thread_id, chunks)
        return chunks

    async def recall(self, thread_id: str) -> Packs:
        """Cached chunks of the thread: all that a checkpoint needs, some, or none.

        They may be old or wrong: the caller checks their digests, and reads the others with `read_chunks`.
        """
        key = self._cache_key(thread_id)
        value = await self._valkey.get(key)
        if value is None:
            return {}
        try:
            packs = _packs.decode(value[VERSION_DIGITS:])
        except msgspec.DecodeError:
            self._valkey.send("UNLINK", key)  # damaged, or written by another program
            return {}
        self._recent.add(thread_id, packs)
        return packs

    def remember(self, thread_id: str, number: int, numbers: Iterable[int]) -> None:
        """Cache the chunks of these commits: the checkpoint of commit `number` consists of them. Never waits."""
        packs = self._recent.take(thread_id, numbers)
        data = msgspec.msgpack.encode(packs)
        if packs and len(data) <= MAX_CACHED_BYTES:
            self._valkey.set(self._cache_key(thread_id), number, data, CACHE_SECONDS)

    def _cache_key(self, thread_id: str) -> bytes:
        return self._channel(thread_id) + b":chunks"

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        is_deleted = await self.inner.delete_thread(thread_id, if_unmoved_since=if_unmoved_since)
        if is_deleted:
            self._valkey.send("UNLINK", self._cache_key(thread_id))
        return is_deleted

    async def add_thread(self, header: ThreadHeader, commits: Iterable[Commit]) -> None:
        await self.inner.add_thread(header, commits)
        self._valkey.send("UNLINK", self._cache_key(header.thread_id))

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        count = await self.inner.rewrite(thread_id, change)
        self._valkey.send("UNLINK", self._cache_key(thread_id))
        return count

    async def close(self) -> None:
        self._recent = _RecentChunks()
        await self._valkey.close()
        await self.inner.close()


@lru_cache(maxsize=4096)
def _channel(location: bytes, thread_id: str) -> bytes:
    thread = blake2b(thread_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return b"perdure:1:%b:%b" % (location, thread.encode())


class _RecentChunks:
    """Chunks that were read recently, by thread and commit. It drops those of the least recently read thread first."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, dict[int, Mapping[str, bytes]]] = OrderedDict()
        self._bytes = 0

    def add(self, thread_id: str, packs: Packs) -> None:
        held = self._threads.setdefault(thread_id, {})
        self._threads.move_to_end(thread_id)
        for number, pack in packs.items():
            self._bytes += _size(pack) - _size(held.get(number, {}))
            held[number] = pack
        while self._bytes > RECENT_BYTES:
            _, dropped = self._threads.popitem(last=False)
            self._bytes -= sum(map(_size, dropped.values()))

    def take(self, thread_id: str, numbers: Iterable[int]) -> dict[int, dict[str, bytes]]:
        """The chunks of these commits; empty if those of one commit are missing."""
        held = self._threads.pop(thread_id, {})
        self._bytes -= sum(map(_size, held.values()))
        wanted = set(numbers)
        return {number: dict(held[number]) for number in wanted} if wanted <= held.keys() else {}


def _size(pack: Mapping[str, bytes]) -> int:
    return sum(map(len, pack.values()))


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
    address, options = parse_valkey_url(url, "Valkey")
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
    version = f"{name.title()} {info.get(f'{name}_version') or '?'}"
    memory = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    return ValkeyReport(address, "", version, min(trips), *memory)


def _problem(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if type(error).__name__ in ("AuthenticationError", "NoPermissionError") or "NOAUTH" in text or "WRONGPASS" in text:
        return "it refuses the user or the password"
    if type(error).__name__ == "TimeoutError":
        return f"it does not answer within {TIMEOUT_SECONDS:g} s"
    if "111" in text or "refused" in text or "Connect call failed" in text:
        return "no server listens there"
    return text or type(error).__name__
