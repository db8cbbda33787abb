"""A store with Valkey beside it: notifications reach other processes at once, and large checkpoints load in one read.

The store remains the only source of truth: all commits, checkpoint roots and logged events come from it. Valkey carries
notifications, which may be lost, and caches chunks, whose digests prove them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from hashlib import blake2b

import msgspec

from perdure.records import Commit, Lease, ThreadHeader
from perdure.store import Rewrite, Store, Subscription
from perdure.stores.layer import StoreLayer
from perdure.stores.notify import LocalBus, PollInterval
from perdure.stores.valkey.channels import change_message, published_message
from perdure.stores.valkey.connection import VERSION_DIGITS, Valkey

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

    delegated = StoreLayer.delegated | {"has_thread"}

    def __init__(self, store: Store, valkey: Valkey, location: str) -> None:
        super().__init__(store)
        self._valkey = valkey
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
            publisher.publish_change(self._channel(thread_id), change_message(self.bus), is_urgent=is_urgent)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)
        self._valkey.send("PUBLISH", self._channel(thread_id), published_message(self.bus, body))

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

        async with self.bus.subscribe(thread_id, interval) as subscription:
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

    async def ping(self) -> None:
        """Whether Valkey itself answers. Raises ConnectionError."""
        await self._valkey.ping()

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
