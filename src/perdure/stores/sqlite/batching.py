"""Writes that wait at the same time are made in one transaction: one sync for all of them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakMethod, WeakSet

from perdure.errors import StorageFailed
from perdure.records import JournalEntry, Lease
from perdure.stores.sqlite.tables import Tables
from perdure.stores.sqlite.worker_thread import OwnThread

# ---------------------------------------------------------------- together


class WaitingEntry:
    __slots__ = ("entry", "error", "lease")

    def __init__(self, lease: Lease, entry: JournalEntry) -> None:
        self.lease = lease
        self.entry = entry
        self.error: Exception | None = None
        """Why it was not written."""


class WrittenTogether:
    """`write` is given all that wait; it notes an error with an entry, or raises one that is everybody's."""

    def __init__(self, thread: OwnThread, write: Callable[[Sequence[WaitingEntry]], None]) -> None:
        self._thread = thread
        self._write = WeakMethod(write)  # of the store, which is to go when nobody has it any more
        self._waiting: deque[WaitingEntry] = deque()

    async def add(self, lease: Lease, entry: JournalEntry) -> None:
        one = WaitingEntry(lease, entry)
        self._waiting.append(one)
        await self._thread.do(self._write_all)
        if one.error is not None:
            raise one.error

    def _write_all(self) -> None:
        """The first that comes writes for all; those after it find nothing left to do."""
        batch: list[WaitingEntry] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        if batch:
            try:
                write = self._write()
                if write is not None:
                    write(batch)
            except Exception as error:  # noqa: BLE001  # raised again by each that waits
                for one in batch:
                    one.error = one.error or error


T = TypeVar("T")
MOST = 64
"""In one transaction: the first of them waits for the last."""

_OF_THE_FILE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Errors that are not of one write."""


class _Write:
    __slots__ = ("done", "error", "is_for_itself", "is_settled", "loop", "result", "syncs", "work")

    def __init__(self, work: Callable[[Tables], Any], loop: asyncio.AbstractEventLoop, *, syncs: bool) -> None:
        self.work = work
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        """Whoever waits for it."""
        self.syncs = syncs
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_for_itself = False
        """Whether it cannot be made together with others."""
        self.is_settled = False
        """Written, or known not to be."""

    def settle(self, error: BaseException | None) -> None:
        if not self.is_settled:
            self.error, self.is_settled = error, True


_ALL: WeakSet[GroupedWrites] = WeakSet()


class GroupedWrites:
    """`transact` makes one transaction. What one write raises undoes that one only, and is told to nobody else; what
    the transaction itself raises concerns all of them."""

    def __init__(self, thread: OwnThread, transact: Callable[..., Any]) -> None:
        self._thread = thread
        self._transact = WeakMethod(transact)
        self.begin()
        _ALL.add(self)

    def begin(self) -> None:
        self.waiting: deque[_Write] = deque()
        self._lock = threading.Lock()
        self._is_asked = False
        """Whether the thread was asked to write what waits, and has not begun to."""

    async def do(self, work: Callable[[Tables], T], *, syncs: bool, to_the_end: bool = False) -> T:
        """What the work gives or raises. It is done although its caller is cancelled; with `to_the_end` that one waits
        for it all the same, and its task knows that it was cancelled (`Task.cancelling`)."""
        one = _Write(work, asyncio.get_running_loop(), syncs=syncs)
        with self._lock:
            self.waiting.append(one)
            must_ask, self._is_asked = not self._is_asked, True
        if must_ask:
            try:
                self._thread.ask(self._write_all)
            except BaseException:  # no thread could be started: the next write asks again, and this one is not made
                with self._lock:
                    self._is_asked = False
                    self.waiting.remove(one)
                raise
        while True:
            try:
                await one.done
                break
            except asyncio.CancelledError:
                if not to_the_end:
                    raise
                if one.is_settled:
                    break
                one.done = one.loop.create_future()
        if one.error is not None:
            raise one.error
        result: T = one.result
        return result

    def _write_all(self) -> None:
        """On the store's thread: what waits now, and what comes meanwhile is asked for again."""
        with self._lock:
            self._is_asked = False
            batches = [list(islice(self.waiting, at, at + MOST)) for at in range(0, len(self.waiting), MOST)]
            self.waiting.clear()
        for batch in batches:
            try:
                self._write(batch)
            finally:
                _tell(batch)

    def _write(self, batch: list[_Write]) -> None:
        transact = self._transact()
        if transact is None:
            gone = StorageFailed("SqliteStore", "write", "it was closed meanwhile. Nothing of this was written")
            for one in batch:
                one.settle(gone)
            return
        if len(batch) > 1:
            self._write_together(transact, batch)
        for one in batch:
            if not one.is_settled:
                self._write_alone(transact, one)

    def _write_together(self, transact: Callable[..., Any], batch: list[_Write]) -> None:
        syncs = [one.syncs for one in batch]
        try:
            # With a claim among them it is looked whether the file is still the same, as for a claim alone.
            transact(lambda tables: _all(tables, batch), writes=True, syncs=any(syncs), checks=not all(syncs))
        except BaseException as error:  # noqa: BLE001  # raised again where each write was asked for
            for one in batch:
                one.settle(error)
        for one in batch:
            if not one.is_for_itself:
                one.settle(one.error)

    def _write_alone(self, transact: Callable[..., Any], one: _Write) -> None:
        try:
            one.result = transact(one.work, writes=True, syncs=one.syncs)
            one.settle(None)
        except BaseException as error:  # noqa: BLE001  # as above
            one.settle(error)


def _all(tables: Tables, batch: list[_Write]) -> None:
    for one in batch:
        one.error, one.is_for_itself = None, False  # the transaction may be tried again
        try:
            one.result = tables.attempt(partial(one.work, tables))
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_FILE:
                raise  # which concerns all
            one.is_for_itself = True  # it is made again by itself, and told what is wrong in the connection's words
        except (UnicodeDecodeError, OverflowError):
            one.is_for_itself = True
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # raised again where the write was asked for
            one.error = error


def _tell(batch: list[_Write]) -> None:
    """Those who wait, with one call for each event loop: waking one costs more than writing."""
    for loop in dict.fromkeys(one.loop for one in batch):
        try:
            loop.call_soon_threadsafe(_wake, [one for one in batch if one.loop is loop])
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more


def _wake(batch: list[_Write]) -> None:
    for one in batch:
        if not one.done.done():  # cancelled meanwhile
            one.done.set_result(None)


def _begin_anew() -> None:
    """In a child: what waited when the process was forked is the parent's to write."""
    for one in list(_ALL):
        one.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
