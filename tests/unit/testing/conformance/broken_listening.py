"""Stores that are broken in what they pass on: to too many, too late, never, or not without raising."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from pathlib import Path

from tests.unit.testing.conformance.passing import OnDisk, Passing, breaks

from perdure.records import Lease
from perdure.store import Listener
from perdure.stores.notify import Ear, Hall
from perdure.testing.conformance.clauses import notifications as listening


@breaks(listening.what_is_told_is_heard_by_all_who_listen_to_the_thread_and_in_order)
class TellsEverybody(Passing):
    def tell(self, thread_id: str, body: bytes) -> None:
        super().tell("t", body)
        super().tell("u", body)


@breaks(listening.a_commit_a_post_and_a_release_are_heard)
class GivesUpInSilence(Passing):
    async def release(self, lease: Lease) -> None:
        ears, self.inner.hall.ears = self.inner.hall.ears, {}  # type: ignore[attr-defined]  # of a MemoryStore
        await super().release(lease)
        self.inner.hall.ears = ears  # type: ignore[attr-defined]


class Slow:
    """Takes its time, whatever it was given."""

    async def next(self, seconds: float) -> bytes | None:
        await asyncio.sleep(1.1)
        return None


@breaks(listening.a_listener_comes_back_when_its_time_is_up)
class KeepsItsListeners(Passing):
    @asynccontextmanager
    async def listen(self, thread_id: str) -> AsyncIterator[Listener]:
        yield Slow()


@breaks(listening.somebody_who_listens_could_be_heard_of)
class ThinksNobodyListens(Passing):
    def is_heard(self, thread_id: str) -> bool:
        return False


@breaks(listening.telling_never_waits_and_never_raises)
class IsFullAtSomeTime(Passing):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.told = 0

    def tell(self, thread_id: str, body: bytes) -> None:
        self.told += 1
        if self.told > 1000:
            raise MemoryError("too much was told")
        super().tell(thread_id, body)


@breaks(listening.what_happens_through_another_object_is_noticed, listening.what_happens_in_another_process_is_noticed)
class HearsOnlyItself(OnDisk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hall = self.inner.hall = Hall()  # type: ignore[attr-defined]  # of a SqliteStore

    def listen(self, thread_id: str) -> AbstractAsyncContextManager[Listener]:
        return self._listen(thread_id)

    @asynccontextmanager
    async def _listen(self, thread_id: str) -> AsyncIterator[Listener]:
        ear = Ear(lambda _: inf)
        self.hall.enter(thread_id, ear)
        yield ear
        self.hall.leave(thread_id, ear)
