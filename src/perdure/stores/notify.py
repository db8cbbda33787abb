"""Hearing of threads: what `tell` and `listen` are made of, for every store.

Within a process what happens is passed on at once, from any event loop and OS thread to any other. What happens in
another process nobody tells: whoever listens is sent to look at the store again after a short time.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from weakref import WeakSet, WeakValueDictionary

from perdure.store import Listener

UNTAKEN_BODIES = 1000
UNTAKEN_BYTES = 4 * 1024 * 1024
"""What is told to somebody who does not take it: more is dropped."""
GROWTH = 1.5
"""How much longer is waited with each time that nothing is heard."""


class Ear:
    """Implements `perdure.store.Listener`, for one reader in one event loop."""

    __slots__ = ("_bodies", "_bytes", "_is_changed", "_loop", "_period", "_quiet", "_waiter")

    def __init__(self, period: Callable[[int], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._period = period
        """How long at most until the store is looked at again, by how often nothing was heard before."""
        self._quiet = 0
        self._bodies: deque[bytes] = deque()
        self._bytes = 0
        self._is_changed = False
        self._waiter: asyncio.Future[None] | None = None

    async def next(self, seconds: float) -> bytes | None:
        if not self._bodies and not self._is_changed:
            period = self._period(self._quiet)
            if seconds >= period:
                self._quiet += 1
            if seconds > 0:
                await self._wait(min(seconds, period))
        if self._bodies:  # before the change: what was told while a commit was made belongs before it
            self._quiet = 0
            body = self._bodies.popleft()
            self._bytes -= len(body)
            return body
        if self._is_changed and seconds > 0:  # whoever does not wait only wants what was told
            self._quiet = 0
            self._is_changed = False
        return None

    async def _wait(self, seconds: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        # Set before this is asked: whoever tells something from another OS thread sees one or the other.
        if self._bodies or self._is_changed:
            self._waiter = None
            return
        timer = self._loop.call_later(seconds, _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def hear(self, body: bytes | None) -> None:
        """From any OS thread. None: the thread may have changed."""
        if body is None:
            self._is_changed = True
        elif len(self._bodies) < UNTAKEN_BODIES and self._bytes + len(body) <= UNTAKEN_BYTES:
            self._bytes += len(body)
            self._bodies.append(body)
        else:
            return
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            try:
                self._loop.call_soon_threadsafe(_resolve, waiter)
            except RuntimeError:
                pass  # its loop was closed under it


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Hall:
    """Those in this process who listen to the threads of one place."""

    __slots__ = ("__weakref__", "_lock", "ears", "token")

    def __init__(self) -> None:
        self.ears: dict[str, tuple[Ear, ...]] = {}
        """By thread. Where nobody listens there is nothing, so a commit finds out with one look."""
        self._lock = threading.Lock()
        self.token = os.urandom(8)
        """Tells it from the halls of other processes."""
        _HALLS.add(self)

    def enter(self, thread_id: str, ear: Ear) -> None:
        with self._lock:
            self.ears[thread_id] = (*self.ears.get(thread_id, ()), ear)

    def leave(self, thread_id: str, ear: Ear) -> None:
        with self._lock:
            left = tuple(one for one in self.ears.pop(thread_id, ()) if one is not ear)
            if left:
                self.ears[thread_id] = left

    def tell(self, thread_id: str, body: bytes | None) -> None:
        """None: the thread was changed."""
        for ear in self.ears.get(thread_id, ()):
            ear.hear(body)

    def begin_anew(self) -> None:
        """In a child that was forked: those who listen are the parent's."""
        self.ears.clear()
        self._lock = threading.Lock()
        self.token = os.urandom(8)


_HALLS: WeakSet[Hall] = WeakSet()
_BY_PLACE: WeakValueDictionary[object, Hall] = WeakValueDictionary()


def hall_of(place: object) -> Hall:
    """The one of this place: several stores of a process may be over one file."""
    return _BY_PLACE.setdefault(place, Hall())


class Seat:
    """Somebody's place in a hall: `async with seat as listener`."""

    # Not a generator: of several within each other, an event loop that ends closes all at once, and none of them well.

    def __init__(self, hall: Hall, thread_id: str, period: Callable[[int], float]) -> None:
        self._hall = hall
        self._thread_id = thread_id
        self._period = period
        self._ear: Ear | None = None

    async def __aenter__(self) -> Ear:
        ear = self._ear = Ear(self._period)
        self._hall.enter(self._thread_id, ear)
        return ear

    async def __aexit__(self, *_: object) -> None:
        if self._ear is not None:
            self._hall.leave(self._thread_id, self._ear)


class Listening:
    """Gives a store `tell` and `listen`. It says `self.hall.tell(thread_id, None)` after each commit, post and release,
    if `self.hall.ears` has anybody."""

    hall: Hall
    first_look_seconds: float = 0.02
    last_look_seconds: float = 0.05
    """How long at most until whoever listens looks at the store again: the first time, and when nothing happens for
    long."""

    def tell(self, thread_id: str, body: bytes) -> None:
        if thread_id in self.hall.ears:
            self.hall.tell(thread_id, body)

    def is_heard(self, thread_id: str) -> bool:
        """Whether anybody could be listening. Where this is False nothing need be told."""
        return thread_id in self.hall.ears

    def listen(self, thread_id: str) -> AbstractAsyncContextManager[Listener]:
        return Seat(self.hall, thread_id, self._look_seconds)

    def _look_seconds(self, quiet: int) -> float:
        return min(self.last_look_seconds, self.first_look_seconds * GROWTH ** min(quiet, 20))


def _begin_anew() -> None:
    for hall in list(_HALLS):
        hall.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
