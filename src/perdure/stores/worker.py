"""The one OS thread that does a store's blocking work, for event loops of any thread.

A hop to the thread and back costs more than most of the work. So work that waits for the thread at the same time can be
done together, and its event loops are woken together.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar, overload
from weakref import WeakSet, finalize

import msgspec

from perdure.log import get_logger
from perdure.platform import reset_in_children

logger = get_logger("stores")
T = TypeVar("T")
W = TypeVar("W")
MAX_BATCH = 64
"""Pieces of work that are done together: the first of them waits for the last."""


class Job(msgspec.Struct, Generic[W], eq=False):
    """A piece of work, and the event loop that awaits its outcome."""

    work: W
    loop: asyncio.AbstractEventLoop
    waiter: asyncio.Future[None]
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False


Together: TypeAlias = Callable[[list[Job[Any]]], None]
"""Does several pieces of work in one go, and gives each job its result or its error.

An error that it raises is that of all jobs without one.
"""


class WorkerThread:
    """Does one piece of work after the other.

    Calls `between` every `every_seconds`, between two pieces. The OS thread ends with the object. After a fork the
    child starts one of its own.
    """

    def __init__(self, name: str, between: Callable[[], None] | None = None, every_seconds: float = 3.0) -> None:
        self._name = name
        self._between = between
        self._every_seconds = every_seconds
        self.reset()
        self._thread: threading.Thread | None = None
        self._end: finalize[..., Any] | None = None
        _WORKERS.add(self)

    def reset(self) -> None:
        """After a fork: the thread is not there, a lock that it held would never be released, and the parent does the
        work that waited."""
        self._lock = threading.Lock()
        self._process_id = 0
        self._queue: SimpleQueue[_Pieces | None] = SimpleQueue()
        self._waiting: dict[Together, list[Job[Any]]] = {}
        """The jobs that the thread has not begun, by the function that does them together."""

    @overload
    async def run(self, work: Callable[[], T], *, uncancellable: bool = False) -> T: ...

    @overload
    async def run(self, work: Any, together: Together, *, uncancellable: bool = False) -> Any: ...

    async def run(self, work: Any, together: Together | None = None, *, uncancellable: bool = False) -> Any:
        """The outcome of the work: what it returns or raises, or what `together` makes of it. The work is done even if
        this is cancelled.

        `uncancellable`: a cancellation does not show here, only in `Task.cancelling`: whether the work was done must
        not stay unknown.
        """
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future())
        with self._lock:  # after a `stop` in between, no thread would read the queue
            if self._process_id != os.getpid():
                self._start()
            if together is not None and together in self._waiting:
                self._waiting[together].append(job)
            else:
                jobs = [job]
                if together is not None:
                    self._waiting[together] = jobs
                self._queue.put((jobs, together))
        while not job.is_done:
            try:
                await job.waiter
            except asyncio.CancelledError:
                if not uncancellable:
                    raise
                job.waiter = loop.create_future()
        if job.error is not None:
            raise job.error
        return job.result

    def _start(self) -> None:
        previous = self._thread if self._thread is not None and self._thread.is_alive() else None
        self._queue = SimpleQueue()
        arguments = (self._queue, self._waiting, self._lock, previous, self._between, self._every_seconds)
        self._thread = threading.Thread(target=_work_off, args=arguments, name=self._name, daemon=True)
        self._thread.start()
        self._process_id = os.getpid()
        if self._end is not None:
            self._end.detach()
        self._end = finalize(self, self._queue.put, None)
        self._end.atexit = False

    def stop(self) -> None:
        """Let the thread end after the work that it has. The next piece of work starts another."""
        with self._lock:
            if self._process_id == os.getpid():
                self._process_id = 0
                self._queue.put(None)


_Pieces: TypeAlias = "tuple[list[Job[Any]], Together | None]"


def _work_off(
    queue: SimpleQueue[_Pieces | None],
    waiting: dict[Together, list[Job[Any]]],
    lock: threading.Lock,
    previous: threading.Thread | None,
    between: Callable[[], None] | None,
    every_seconds: float,
) -> None:
    if previous is not None:
        previous.join()  # its work comes first
    due = time.monotonic() + every_seconds
    while True:
        try:
            pieces = queue.get(timeout=max(0.0, due - time.monotonic()) if between is not None else None)
        except Empty:
            pieces = [], None  # only the call in between is due
        if pieces is None:
            return
        jobs, together = pieces
        if together is not None:
            with lock:
                del waiting[together]  # a job that comes now is one of the next
        for start in range(0, len(jobs), MAX_BATCH):
            _do(jobs[start : start + MAX_BATCH], together)
        del jobs, together, pieces  # they must not keep their objects alive until the next piece comes
        if between is not None and time.monotonic() >= due:
            due = time.monotonic() + every_seconds
            try:
                between()
            except BaseException:  # calls of the store raise their own errors
                logger.exception("background work of a store failed; its worker thread keeps running")


def _do(jobs: list[Job[Any]], together: Together | None) -> None:
    raised: BaseException | None = None
    try:
        if together is None:
            jobs[0].result = jobs[0].work()
        else:
            together(jobs)
    except StopIteration as error:  # a coroutine cannot raise it
        raised = RuntimeError(f"the work raised {error!r}")
    except BaseException as error:  # noqa: BLE001  # `run` raises it
        raised = error
    for job in jobs:
        if job.error is None:
            job.error = raised
        job.is_done = True
    for loop in {job.loop for job in jobs}:  # one call for each: waking a loop costs more than writing
        try:
            loop.call_soon_threadsafe(_wake, loop, jobs)
        except RuntimeError:
            pass  # the loop was closed: its tasks have ended


def _wake(loop: asyncio.AbstractEventLoop, jobs: list[Job[Any]]) -> None:
    for job in jobs:
        if job.loop is loop and not job.waiter.done():  # it may be cancelled
            job.waiter.set_result(None)


_WORKERS: WeakSet[WorkerThread] = WeakSet()
reset_in_children(_WORKERS)
