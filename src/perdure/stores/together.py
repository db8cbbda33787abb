"""Entries of the journal that wait at the same time are written together: one transaction, one sync for all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from weakref import WeakMethod

from perdure.records import JournalEntry, Lease
from perdure.stores.own_thread import OwnThread


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
