"""One thread of the system for the blocking work of a store. A hop there and back costs more than most of the work."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from perdure.log import get_logger

logger = get_logger("stores")
T = TypeVar("T")


class _Job:
    """A piece of work, and how to tell whoever waits for it."""

    __slots__ = ("done", "error", "is_done", "loop", "result", "work")

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        try:
            self.result = self.work()
        except StopIteration as raised:  # a coroutine cannot raise it
            self.error = RuntimeError(f"the work raised {raised!r}")
        except BaseException as raised:  # noqa: BLE001  # raised again where the work was asked for
            self.error = raised
        try:
            self.loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more

    def _tell(self) -> None:
        self.is_done = True
        if not self.done.done():  # cancelled meanwhile
            self.done.set_result(None)

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class _Errand:
    """A piece of work that nobody waits for."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def do(self) -> None:
        try:
            self.work()
        except BaseException:  # who needs the store is told by it
            logger.exception("the store's thread goes on")


_ALL: WeakSet[OwnThread] = WeakSet()


class OwnThread:
    """Does blocking work one piece after the other, for event loops of any thread.

    Work that was begun comes to its end even if whoever waits for it is cancelled. Between pieces, `in_between` is
    called every `every_seconds`. The thread ends with the object; after a fork there is a new one.
    """

    def __init__(self, name: str, in_between: Callable[[], None] | None = None, every_seconds: float = 3.0) -> None:
        self._name = name
        self._in_between = in_between
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._process_id = 0
        _ALL.add(self)
        self._queue: SimpleQueue[_Job | _Errand | None] = SimpleQueue()
        self._running: threading.Thread | None = None
        self._end: finalize[..., Any] | None = None

    async def do(self, work: Callable[[], T]) -> T:
        """What the work gives or raises. Whoever is cancelled does not wait for it."""
        job = self._put(work)
        await job.done
        result: T = job.outcome()
        return result

    async def do_to_the_end(self, work: Callable[[], T]) -> T:
        """The same, but a cancellation does not show: whether the work was done must not be left open. The task still
        knows that it was cancelled (`Task.cancelling`)."""
        job = self._put(work)
        while not job.is_done:
            try:
                await job.done
            except asyncio.CancelledError:
                if not job.is_done:
                    job.done = job.loop.create_future()
        result: T = job.outcome()
        return result

    def ask(self, work: Callable[[], None]) -> None:
        """Do it, and tell nobody."""
        self._add(_Errand(work))

    def _put(self, work: Callable[[], Any]) -> _Job:
        job = _Job(work, asyncio.get_running_loop())
        self._add(job)
        return job

    def _add(self, job: _Job | _Errand) -> None:
        with self._lock:  # a `stop` in between would leave the job to nobody
            if self._process_id != os.getpid():
                self._start()
            self._queue.put(job)

    def _start(self) -> None:
        before = self._running if self._running is not None and self._running.is_alive() else None
        self._queue = SimpleQueue()
        given = (self._queue, before, self._in_between, self._every_seconds)
        self._running = threading.Thread(target=_work_off, args=given, name=self._name, daemon=True)
        self._running.start()
        self._process_id = os.getpid()
        if self._end is not None:
            self._end.detach()
        self._end = finalize(self, self._queue.put, None)
        self._end.atexit = False

    def stop(self) -> None:
        """Let the thread end when it has done what it was given. The next piece of work starts another."""
        with self._lock:
            if self._process_id == os.getpid():
                self._process_id = 0
                self._queue.put(None)


def _work_off(
    queue: SimpleQueue[_Job | _Errand | None],
    before: threading.Thread | None,
    in_between: Callable[[], None] | None,
    every_seconds: float,
) -> None:
    if before is not None:
        before.join()  # its work comes first
    due = time.monotonic() + every_seconds
    while True:
        try:
            job = queue.get(timeout=max(0.0, due - time.monotonic()) if in_between is not None else None)
            if job is None:
                return
            job.do()
            del job  # what the work refers to must not live until the next piece
        except Empty:
            pass
        if in_between is not None and time.monotonic() >= due:
            try:
                in_between()
            except Exception:  # whoever needs the store is told by it
                logger.exception("the store's thread goes on")
            due = time.monotonic() + every_seconds


def _begin_anew() -> None:
    """In a child: its threads are not there, and a lock that one of them held would never be given up."""
    for one in list(_ALL):
        one._lock = threading.Lock()
        one._process_id = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
