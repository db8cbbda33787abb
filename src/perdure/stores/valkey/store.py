"""Any store, with Valkey beside it: others hear at once what happens, and large checkpoints are read in one go.

The store stays the only truth. Every commit, every root of a checkpoint and every event of the log comes from it.
Valkey carries hints, which may be lost, and chunks, which their digests prove.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from hashlib import blake2b

import msgspec

from perdure.records import Commit, Lease, ThreadHeader
from perdure.store import Rewrite, Store, Subscription
from perdure.stores.notify import LocalBus, LocalSubscription, PollInterval
from perdure.stores.valkey.connection import VERSION_DIGITS, Valkey
from perdure.stores.valkey.subscriber import Subscriber, change_message, published_message

Packs = Mapping[int, Mapping[str, bytes]]
"""Chunks by commit and digest."""

SUBSCRIBED_POLL_SECONDS = 1.0
"""How often a store is looked at although nothing was heard: a message may be lost."""
KEPT_SECONDS = 300
LARGEST_BYTES = 4 * 1024 * 1024
"""Of the chunks of one thread, in Valkey."""
RECENT_BYTES = 8 * 1024 * 1024
"""Of the chunks that were read lately, here, until it is said which of them are worth keeping."""

_packs = msgspec.msgpack.Decoder(dict[int, dict[str, bytes]])


class AcceleratedStore:
    """Implements `perdure.store.Store` around another one.

    `place` names what the store keeps: two stores with one place hear each other, others do not.
    """

    def __init__(self, store: Store, valkey: Valkey, place: str) -> None:
        self.finishes_commits = store.finishes_commits
        self.inner = self._store = store
        self._valkey = valkey
        self._place = blake2b(place.encode(), digest_size=12).hexdigest().encode()
        self._recent = _Recent()
        self.path = getattr(store, "path", None)
        bus = getattr(store, "bus", None)
        self._has_own_bus = not isinstance(bus, LocalBus)
        self.bus = bus if isinstance(bus, LocalBus) else LocalBus()
        self.poll_interval: PollInterval = getattr(store, "poll_interval", None) or PollInterval()
        # Handed on as they are: a call costs nothing more.
        self.open = store.open
        self.renew = store.renew
        self.append_journal = store.append_journal
        self.find_checkpoint = store.find_checkpoint
        self.head = store.head
        self.infos = store.infos
        self.threads = store.threads
        self.events_after = store.events_after
        self.last_seq = store.last_seq
        self.pending_requests = store.pending_requests
        self.due = store.due
        self.thread_ids = store.thread_ids
        if hasattr(store, "has_thread"):
            self.has_thread = store.has_thread
        self.pin = store.pin
        self.unpin = store.unpin
        self.prune = store.prune
        self.copy_thread = store.copy_thread
        self.standing = store.standing
        self.commits = store.commits
        self.check = store.check
        self.size = store.size

    def _channel(self, thread_id: str) -> bytes:
        return _channel(self._place, thread_id)

    # ------------------------------------------------------------ telling others

    async def commit(self, commit: Commit) -> None:
        await self._store.commit(commit)
        self._changed(commit.lease.thread_id, at_once=False)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._store.post(thread_id, item_id, kind, body)
        self._changed(thread_id, at_once=True)

    async def release(self, lease: Lease) -> None:
        await self._store.release(lease)
        self._changed(lease.thread_id, at_once=True)

    def _changed(self, thread_id: str, *, at_once: bool) -> None:
        if self._has_own_bus:
            self.bus.notify(thread_id)
        self._valkey.hint(self._channel(thread_id), change_message(self.bus), at_once=at_once)

    def publish(self, thread_id: str, body: bytes) -> None:
        self.bus.publish(thread_id, body)
        self._valkey.publish(self._channel(thread_id), published_message(self.bus, body))

    def has_subscribers(self, thread_id: str) -> bool:
        return self.bus.has_subscribers(thread_id) or self._valkey.may_have_subscribers(self._channel(thread_id))

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        subscriber, channel = self._valkey.subscriber(), self._channel(thread_id)

        def interval(quiet: int) -> float:
            return SUBSCRIBED_POLL_SECONDS if subscriber.is_subscribed(channel) else self.poll_interval.after(quiet)

        return _Subscribing(self.bus, thread_id, interval, subscriber, channel)

    # ------------------------------------------------------------ chunks at hand

    async def read_chunks(self, thread_id: str, numbers: Iterable[int]) -> Packs:
        found = await self._store.read_chunks(thread_id, numbers)
        self._recent.add(thread_id, found)
        return found

    async def recall(self, thread_id: str) -> Packs:
        """Chunks of the thread that are at hand: all that a checkpoint needs, some, or none. They may be old, and be
        wrong in any way; their digests tell. Whatever is missing is read with `read_chunks`."""
        key = self._key(thread_id)
        value = await self._valkey.get(key)
        if value is None:
            return {}
        try:
            packs = _packs.decode(value[VERSION_DIGITS:])
        except msgspec.DecodeError:
            self._valkey.forget(key)  # damaged, or not ours
            return {}
        self._recent.add(thread_id, packs)
        return packs

    def remember(self, thread_id: str, number: int, numbers: Iterable[int]) -> None:
        """Have the chunks of these commits at hand the next time: a checkpoint, made by commit `number`, was put
        together from them. Never waits."""
        packs = self._recent.take(thread_id, numbers)
        key, data = self._key(thread_id), msgspec.msgpack.encode(packs)
        if packs and len(data) <= LARGEST_BYTES:
            self._valkey.set(key, number, data, KEPT_SECONDS)

    def _key(self, thread_id: str) -> bytes:
        return self._channel(thread_id) + b":chunks"

    # ------------------------------------------------------------ what makes them worthless

    async def delete_thread(self, thread_id: str, *, if_unmoved_since: int | None = None) -> bool:
        is_gone = await self._store.delete_thread(thread_id, if_unmoved_since=if_unmoved_since)
        if is_gone:
            self._valkey.forget(self._key(thread_id))
        return is_gone

    async def add_thread(self, standing: ThreadHeader, commits: Iterable[Commit]) -> None:
        await self._store.add_thread(standing, commits)
        self._valkey.forget(self._key(standing.thread_id))

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        count = await self._store.rewrite(thread_id, change)
        self._valkey.forget(self._key(thread_id))
        return count

    # ------------------------------------------------------------ as a whole

    async def ping(self) -> None:
        """Whether Valkey is there, by itself. Raises ConnectionError."""
        await self._valkey.ping()

    async def close(self) -> None:
        self._recent = _Recent()
        await self._valkey.close()
        await self._store.close()


class _Subscribing:
    """Subscribes to the local bus and, through Valkey, to other processes."""

    def __init__(
        self, bus: LocalBus, thread_id: str, interval: Callable[[int], float], subscriber: Subscriber, channel: bytes
    ) -> None:
        self._bus = bus
        self._thread_id = thread_id
        self._local = bus.subscribe(thread_id, interval)
        self._subscriber = subscriber
        self._channel = channel

    async def __aenter__(self) -> LocalSubscription:
        subscription = await self._local.__aenter__()
        try:
            await self._subscriber.add(self._channel, self._bus, self._thread_id)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        return subscription

    async def __aexit__(self, *_: object) -> None:
        await self._local.__aexit__()
        await self._subscriber.remove(self._channel, self._bus)


@lru_cache(maxsize=4096)
def _channel(place: bytes, thread_id: str) -> bytes:
    thread = blake2b(thread_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return b"perdure:1:%b:%b" % (place, thread.encode())


class _Recent:
    """Chunks that were read lately, by thread and commit. Those of the thread that was read longest ago go first."""

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
            _, gone = self._threads.popitem(last=False)
            self._bytes -= sum(map(_size, gone.values()))

    def take(self, thread_id: str, numbers: Iterable[int]) -> dict[int, dict[str, bytes]]:
        """Those of these commits, or nothing if one of them is not there any more."""
        held = self._threads.pop(thread_id, {})
        self._bytes -= sum(map(_size, held.values()))
        wanted = set(numbers)
        return {number: dict(held[number]) for number in wanted} if wanted <= held.keys() else {}


def _size(pack: Mapping[str, bytes]) -> int:
    return sum(map(len, pack.values()))
