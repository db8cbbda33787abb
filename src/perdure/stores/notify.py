"""Notifications about threads within one process: what `Store.publish` and `Store.subscribe` are made of.

A bus delivers at once, from any event loop and OS thread to any other. It does not reach other processes: a
subscription also returns after a poll interval, so that its reader looks at the store again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from weakref import WeakSet, WeakValueDictionary

from perdure.clock import Waker
from perdure.platform import reset_in_children

MAX_QUEUED_BODIES = 1000
MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""The most notifications that a subscription holds for a slow reader; it drops later ones."""
GROWTH = 1.5
"""By how much a poll interval grows each time that no notification arrives."""


@dataclass(frozen=True, slots=True)
class PollInterval:
    """How long a subscription waits before its reader looks at the store again: at first, and on a quiet thread."""

    first_seconds: float = 0.02
    last_seconds: float = 0.05

    def after(self, quiet: int) -> float:
        """The interval after this many waits without a notification."""
        return min(self.last_seconds, self.first_seconds * GROWTH ** min(quiet, 20))


class LocalSubscription(AbstractAsyncContextManager["LocalSubscription"]):
    """Implements `perdure.store.Subscription`, for one reader in one event loop. It receives while it is entered."""

    # Not a generator: an event loop that ends closes nested async generators all at once, and in the wrong order.

    __slots__ = ("_bodies", "_bus", "_bytes", "_interval", "_is_changed", "_quiet", "_thread_id", "_waker")

    def __init__(self, bus: LocalBus, thread_id: str, interval: Callable[[int], float]) -> None:
        self._bus = bus
        self._thread_id = thread_id
        self._interval = interval
        """The longest wait in seconds, by the number of quiet waits before it."""
        self._quiet = 0
        self._bodies: deque[bytes] = deque()
        self._bytes = 0
        self._is_changed = False
        self._waker = Waker()

    async def __aenter__(self) -> LocalSubscription:
        self._bus.add(self._thread_id, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._bus.remove(self._thread_id, self)

    async def next(self, seconds: float) -> bytes | None:
        if not self._bodies and not self._is_changed:
            interval = self._interval(self._quiet)
            if seconds >= interval:
                self._quiet += 1
            if seconds > 0:
                await self._waker.wait(min(seconds, interval), lambda: self._bodies or self._is_changed)
        if self._bodies:  # before the change: what is published while a commit is written belongs before it
            self._quiet = 0
            body = self._bodies.popleft()
            self._bytes -= len(body)
            return body
        if self._is_changed and seconds > 0:  # a caller that does not wait only asks for published bodies
            self._quiet = 0
            self._is_changed = False
        return None

    def put(self, body: bytes) -> None:
        """Queue a published body, or drop it if the queue is full. Callable from any OS thread."""
        if len(self._bodies) < MAX_QUEUED_BODIES and self._bytes + len(body) <= MAX_QUEUED_BYTES:
            self._bytes += len(body)
            self._bodies.append(body)
            self._waker.wake()

    def notify(self) -> None:
        """Note that the thread may have changed. Callable from any OS thread."""
        self._is_changed = True
        self._waker.wake()


class LocalBus:
    """The subscriptions of this process to the threads of one location."""

    __slots__ = ("__weakref__", "_lock", "has_subscribers", "subscriptions", "token")

    def __init__(self) -> None:
        self.subscriptions: dict[str, tuple[LocalSubscription, ...]] = {}
        """By thread. A thread without subscribers has no entry."""
        self.has_subscribers: Callable[[str], bool] = self.subscriptions.__contains__
        """Asked before each event of a run: a call into the dict itself."""
        self._lock = threading.Lock()
        self.token = os.urandom(8)
        """Distinguishes this bus from those of other processes."""
        _BUSES.add(self)

    def publish(self, thread_id: str, body: bytes) -> None:
        for subscription in self.subscriptions.get(thread_id, ()):
            subscription.put(body)

    def notify(self, thread_id: str) -> None:
        """Wake the subscribers: the thread may have changed. A store calls it after each commit, post and release."""
        for subscription in self.subscriptions.get(thread_id, ()):
            subscription.notify()

    def add(self, thread_id: str, subscription: LocalSubscription) -> None:
        with self._lock:
            self.subscriptions[thread_id] = (*self.subscriptions.get(thread_id, ()), subscription)

    def remove(self, thread_id: str, subscription: LocalSubscription) -> None:
        with self._lock:
            others = tuple(other for other in self.subscriptions.pop(thread_id, ()) if other is not subscription)
            if others:
                self.subscriptions[thread_id] = others

    def reset(self) -> None:
        """In a forked child: the subscriptions are the parent's, and the lock may be held."""
        self.subscriptions.clear()
        self._lock = threading.Lock()
        self.token = os.urandom(8)


class NotifyingStore:
    """The part of a store that notifies: through a bus of this process."""

    poll_interval = PollInterval()

    def __init__(self, bus: LocalBus) -> None:
        self.bus = bus
        self.publish, self.has_subscribers = bus.publish, bus.has_subscribers

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return LocalSubscription(self.bus, thread_id, self.poll_interval.after)


_BUSES: WeakSet[LocalBus] = WeakSet()
reset_in_children(_BUSES)
_BY_LOCATION: WeakValueDictionary[object, LocalBus] = WeakValueDictionary()


def bus_for(location: object) -> LocalBus:
    """The bus of this location: several stores of a process may use one file or database."""
    return _BY_LOCATION.setdefault(location, LocalBus())
