"""How work reaches the one OS thread that uses a store's connection.

The path of a write: `SqliteWriter.write` adds it to the batch and awaits it. The worker thread takes all writes that
wait and makes one transaction of them, so that one sync serves all. Each write has a savepoint: an error of one undoes
that one only. Then the worker wakes the event loops. A read is a transaction of its own. Other blocking work goes
through `WorkerThread.run`. A hop to the thread and back costs more than most of the work.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakSet, finalize

from perdure.log import get_logger
from perdure.stores.process_identity import RENEW_SECONDS
from perdure.stores.sqlite.connection import NOT_NOW, Connection
from perdure.stores.sqlite.schema import SqliteDatabase

logger = get_logger("stores")
T = TypeVar("T")
W = TypeVar("W")
MAX_BATCH = 64
"""Writes in one transaction: the first of them waits for the last."""

_FILE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Errors of the database file, which concern all writes of a batch."""


class Job(Generic[W]):
    """Work for the worker thread, and the event loop that awaits its outcome."""

    __slots__ = ("error", "is_settled", "loop", "result", "waiter", "work")

    def __init__(self, work: W) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_settled = False

    def settle(self, error: BaseException | None) -> None:
        """Fix the outcome. Later calls change nothing."""
        if not self.is_settled:
            self.error = error
            self.is_settled = True

    def wake(self) -> None:
        """On the event loop."""
        if not self.waiter.done():  # it may be cancelled
            self.waiter.set_result(None)

    async def wait(self) -> None:
        """Until the work is done, although the task was cancelled, which shows only in `Task.cancelling`."""
        while not self.is_settled:
            self.waiter = self.loop.create_future()
            try:
                await self.waiter
            except asyncio.CancelledError:
                pass

    def take(self) -> Any:
        """The result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def _wake_all(jobs: Sequence[Job[Any]]) -> None:
    """One call for each event loop: waking a loop costs more than writing."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, waiting)
        except RuntimeError:
            pass  # the loop was closed: its tasks have ended


def _resolve(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.wake()


class WorkerThread:
    """Does blocking work one piece after the other, for event loops of any thread.

    Calls `between` every `every_seconds`, between two pieces. The OS thread ends with the object. After a fork the
    child starts one of its own.
    """

    def __init__(self, name: str, between: Callable[[], None] | None = None, every_seconds: float = 3.0) -> None:
        self._name = name
        self._between = between
        self._every_seconds = every_seconds
        self.reset()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end: finalize[..., Any] | None = None
        _WORKERS.add(self)

    def reset(self) -> None:
        """After a fork: the thread is not there, and a lock that it held would never be released."""
        self._lock = threading.Lock()
        self._process_id = 0

    async def run(self, work: Callable[[], T], *, uncancellable: bool = False) -> T:
        """What the work returns or raises. The work is done even if this is cancelled.

        `uncancellable`: a cancellation does not show here: whether the work was done must not stay unknown.
        """
        job = Job(work)
        self.submit(partial(_do, job))
        try:
            await job.waiter
        except asyncio.CancelledError:
            if not uncancellable:
                raise
            await job.wait()
        result: T = job.take()
        return result

    def submit(self, work: Callable[[], None]) -> None:
        """Do the work without waiting for it. An error is logged."""
        with self._lock:  # after a `stop` in between, no thread would read the queue
            if self._process_id != os.getpid():
                self._start()
            self._queue.put(work)

    def _start(self) -> None:
        previous = self._thread if self._thread is not None and self._thread.is_alive() else None
        self._queue = SimpleQueue()
        arguments = (self._queue, previous, self._between, self._every_seconds)
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


def _do(job: Job[Callable[[], Any]]) -> None:
    try:
        job.result = job.work()
        job.settle(None)
    except StopIteration as error:  # a coroutine cannot raise it
        job.settle(RuntimeError(f"the work raised {error!r}"))
    except BaseException as error:  # noqa: BLE001  # `take` raises it
        job.settle(error)
    try:
        job.loop.call_soon_threadsafe(job.wake)  # last: the woken loop waits for the interpreter until this thread does
    except RuntimeError:
        pass  # the loop was closed: its tasks have ended


def _work_off(
    queue: SimpleQueue[Callable[[], None] | None],
    previous: threading.Thread | None,
    between: Callable[[], None] | None,
    every_seconds: float,
) -> None:
    if previous is not None:
        previous.join()  # its work comes first
    due = time.monotonic() + every_seconds
    while True:
        try:
            work = queue.get(timeout=max(0.0, due - time.monotonic()) if between is not None else None)
        except Empty:
            work = _do_nothing
        if work is None:
            return
        try:
            work()
            del work  # it must not keep its objects alive until the next piece comes
            if between is not None and time.monotonic() >= due:
                due = time.monotonic() + every_seconds
                between()
        except BaseException:  # calls of the store raise their own errors
            logger.exception("background work of a store failed; its worker thread keeps running")


def _do_nothing() -> None:
    """The work of a thread whose heartbeat is due."""


class JobBatch:
    """Jobs that wait for the worker at the same time are done together, in batches of `MAX_BATCH`."""

    def __init__(self, worker: WorkerThread) -> None:
        self._worker = worker
        self.reset()
        _BATCHES.add(self)

    def reset(self) -> None:
        """After a fork: the parent does the jobs that waited."""
        self._waiting: deque[Job[Any]] = deque()
        self._lock = threading.Lock()
        self._is_submitted = False

    async def run(self, job: Job[W], do: Callable[[list[Any]], None], *, uncancellable: bool = False) -> Any:
        """The job's outcome, as `WorkerThread.run` has it.

        `do` settles each job of a batch; an error that it raises is that of all others.
        """
        with self._lock:
            self._waiting.append(job)
            must_submit, self._is_submitted = not self._is_submitted, True
        if must_submit:
            try:
                self._worker.submit(partial(self._do_all, do))
            except BaseException:  # no thread could be started: the next job submits again
                with self._lock:
                    self._is_submitted = False
                    self._waiting.remove(job)
                raise
        try:
            await job.waiter
        except asyncio.CancelledError:
            if not uncancellable:
                raise
            await job.wait()
        return job.take()

    def _do_all(self, do: Callable[[list[Any]], None]) -> None:
        """On the worker thread."""
        with self._lock:
            self._is_submitted = False
            waiting = [*self._waiting]
            self._waiting.clear()
        for start in range(0, len(waiting), MAX_BATCH):
            jobs = waiting[start : start + MAX_BATCH]
            error: BaseException | None = None
            try:
                do(jobs)
            except BaseException as raised:  # noqa: BLE001  # `take` raises it
                error = raised
            for job in jobs:
                if not job.is_settled:
                    job.settle(error)
            _wake_all(jobs)


class _Write(Job[Callable[[SqliteDatabase], Any]]):
    __slots__ = ("needs_own_transaction", "syncs")

    def __init__(self, work: Callable[[SqliteDatabase], Any], *, syncs: bool) -> None:
        super().__init__(work)
        self.syncs = syncs
        self.needs_own_transaction = False


class SqliteWriter:
    """Reads and writes through one connection, on one thread."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.connection = connection
        self.worker = WorkerThread(name, connection.renew, RENEW_SECONDS)
        self._batch = JobBatch(self.worker)
        self._end = finalize(self, connection.close)

    async def read(self, work: Callable[[SqliteDatabase], T]) -> T:
        return await self.worker.run(partial(self.connection.transact, work, writes=False, syncs=True))

    async def read_lists(self, work: Callable[[SqliteDatabase], T]) -> T:
        return await self.worker.run(partial(self.connection.transact, work, writes=False, syncs=True))

    async def write(
        self,
        work: Callable[[SqliteDatabase], T],
        *,
        syncs: bool = True,
        uncancellable: bool = False,
        size: int | None = None,
    ) -> T:
        """All of the work happens, or none. `syncs`: it survives a power cut.

        `size`: about the bytes that it writes. If it need not wait for anything, a small write is made on this thread.
        """
        if size is not None:
            result = self.connection.transact_now(work, size)
            if result is not NOT_NOW:
                return result  # type: ignore[return-value]  # what the work returned
        outcome: T = await self._batch.run(_Write(work, syncs=syncs), self._write_all, uncancellable=uncancellable)
        return outcome

    def _write_all(self, writes: list[_Write]) -> None:
        if len(writes) > 1:
            self._write_together(writes)
        for write in writes:
            if not write.is_settled:
                write.result = None
                try:
                    write.result = self.connection.transact(write.work, writes=True, syncs=write.syncs)
                    write.settle(None)
                except BaseException as error:  # noqa: BLE001  # `take` raises it
                    write.settle(error)

    def _write_together(self, writes: list[_Write]) -> None:
        syncs = [write.syncs for write in writes]
        # A claim among them checks that the file is still the same, as a claim alone does.
        self.connection.transact(
            partial(_attempt_all, writes=writes), writes=True, syncs=any(syncs), checks=not all(syncs)
        )
        for write in writes:
            if not write.needs_own_transaction:
                write.settle(write.error)

    async def close(self) -> None:
        if self.connection.unreleased:
            await self.worker.run(self.connection.renew)  # the last attempt to release them
        await self.worker.run(self.connection.close)
        self.worker.stop()


def _attempt_all(db: SqliteDatabase, writes: list[_Write]) -> None:
    for write in writes:
        write.error, write.needs_own_transaction = None, False  # the transaction may be repeated
        try:
            write.result = db.attempt(write.work)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FILE_ERRORS:
                raise
            write.needs_own_transaction = True  # there the connection explains the error
        except (UnicodeDecodeError, OverflowError):
            write.needs_own_transaction = True
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # `take` raises it
            write.error = error


_WORKERS: WeakSet[WorkerThread] = WeakSet()
_BATCHES: WeakSet[JobBatch] = WeakSet()


def _reset_after_fork() -> None:
    for worker in list(_WORKERS):
        worker.reset()
    for batch in list(_BATCHES):
        batch.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
