"""Writes that wait at the same time are made in one transaction: one sync for all of them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakMethod

from holdfast.stores.own_thread import OwnThread
from holdfast.stores.sqlite_tables import Tables

T = TypeVar("T")
MOST = 64
"""In one transaction: the first of them waits for the last."""


class _Write:
    __slots__ = ("error", "result", "syncs", "work")

    def __init__(self, work: Callable[[Tables], Any], syncs: bool) -> None:
        self.work = work
        self.syncs = syncs
        self.result: Any = None
        self.error: BaseException | None = None


class GroupedWrites:
    """`transact` makes one transaction. If it fails, each write is made by itself, so that what is wrong with one is
    told to that one only."""

    def __init__(self, thread: OwnThread, transact: Callable[..., Any]) -> None:
        self._thread = thread
        self._transact = WeakMethod(transact)
        self._waiting: deque[_Write] = deque()
        self._process_id = os.getpid()

    async def do(self, work: Callable[[Tables], T], *, syncs: bool, to_the_end: bool = False) -> T:
        one = _Write(work, syncs)
        if self._process_id != os.getpid():  # what waited when the process was forked is the parent's to write
            self._waiting, self._process_id = deque(), os.getpid()
        self._waiting.append(one)
        await (self._thread.do_to_the_end if to_the_end else self._thread.do)(self._write_some)
        if one.error is not None:
            raise one.error
        result: T = one.result
        return result

    def _write_some(self) -> None:
        """The first that comes writes for all; those after it find less, or nothing, left to do."""
        batch: list[_Write] = []
        while self._waiting and len(batch) < MOST:
            batch.append(self._waiting.popleft())
        transact = self._transact()
        if not batch or transact is None:
            return
        if len(batch) > 1:
            try:
                syncs = [one.syncs for one in batch]
                transact(lambda tables: _all(tables, batch), writes=True, syncs=any(syncs), checks=not all(syncs))
                return
            except Exception:  # noqa: BLE001, S110  # which of them it is shows when each is made by itself
                pass
        for one in batch:
            try:
                one.result = transact(one.work, writes=True, syncs=one.syncs)
            except BaseException as error:  # noqa: BLE001  # raised again where the write was asked for
                one.error = error


def _all(tables: Tables, batch: list[_Write]) -> None:
    for one in batch:
        one.result = one.work(tables)
