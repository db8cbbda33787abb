"""One thread of the system for the blocking work of a store. A hop there and back costs more than most of the work."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import finalize

T = TypeVar("T")

_Work = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class OwnThread:
    """Does blocking work one piece after the other, for event loops of any thread.

    Work that was begun comes to its end even if whoever waits for it is cancelled. Between pieces, and at least every
    `every_seconds`, `in_between` is called. The thread ends with the object; after a fork there is a new one.
    """

    def __init__(self, name: str, in_between: Callable[[], None] | None = None, every_seconds: float = 3.0) -> None:
        self._name = name
        self._in_between = in_between
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._process_id = 0
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._end: finalize[..., Any] | None = None

    async def do(self, work: Callable[[], T]) -> T:
        """What the work gives or raises."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if self._process_id != os.getpid():
            self._start()
        self._queue.put((work, loop, done))
        return await done

    def _start(self) -> None:
        with self._lock:
            if self._process_id == os.getpid():
                return
            self._queue = SimpleQueue()
            thread = threading.Thread(
                target=_work_off,
                args=(self._queue, self._in_between, self._every_seconds),
                name=self._name,
                daemon=True,
            )
            thread.start()
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


def _work_off(queue: SimpleQueue[_Work | None], in_between: Callable[[], None] | None, every_seconds: float) -> None:
    while True:
        try:
            given = queue.get(timeout=every_seconds if in_between is not None else None)
        except Empty:
            if in_between is not None:
                in_between()
            continue
        if given is None:
            return
        _do(*given)
        del given  # what the work refers to must not live until the next piece


def _do(work: Callable[[], Any], loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any]) -> None:
    try:
        result, error = work(), None
    except BaseException as raised:  # noqa: BLE001  # raised again where the work was asked for
        result, error = None, raised
    try:
        loop.call_soon_threadsafe(_tell, done, result, error)
    except RuntimeError:
        pass  # the loop was closed: nobody waits any more


def _tell(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():  # cancelled meanwhile
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
