"""Replay: recorded results handed out again in the order in which they came, whichever branch asks first.

Code that runs several steps at once may go one way or another depending on which ends first. Given the same results
in the same order it goes the same way again, so that it asks for the steps that were recorded, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from perdure.engine.steps.calls import inside
from perdure.records import SETTLES, Record

QUIET_TURNS = 8
"""Turns of the event loop without news after which nothing more comes by itself: enough for a result to pass
through a few layers of gather, task groups and timeouts."""


class Quiet:
    """Calls back once nothing has stirred for a few turns of the event loop."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._news = 0
        self._is_watching = False

    def stir(self) -> None:
        self._news += 1

    def watch(self) -> None:
        """Begin, or begin again, to wait for quiet."""
        self._news += 1
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_soon(self._look, QUIET_TURNS, self._news)

    def stop(self) -> None:
        self._is_watching = False

    def _look(self, turns: int, seen: int) -> None:
        if not self._is_watching:
            return
        if seen != self._news:
            turns, seen = QUIET_TURNS, self._news
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._look, turns - 1, seen)
        else:
            self._is_watching = False
            self._then()


class Replay:
    """The settled calls of one delivery, to be taken up by the code that runs again."""

    def __init__(self, records: Sequence[Record]) -> None:
        settled = [record for record in records if record.kind in SETTLES]
        whole = {record.key for record in settled}
        self._found = {record.key: record for record in settled}
        # A step that was made in another step is not made again once that one is settled, however deep.
        self._order = [record.key for record in settled if not _is_covered(record, whole)]
        self._place = {key: place for place, key in enumerate(self._order)}
        self._next = 0
        self._is_past = False
        self._called: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._quiet = Quiet(self._release_next)

    def find(self, key: str) -> Record | None:
        return self._found.get(key)

    @property
    def is_over(self) -> bool:
        return self._next >= len(self._order)

    async def turn_of(self, record: Record) -> None:
        """Return when what settled before this record has been taken up, or clearly will not be."""
        key = record.key
        self._called.add(key)
        self._quiet.stir()
        place = self._place.get(key, -1)
        if place < self._next:
            return
        if place > self._next:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._quiet.watch()
            await waiting
            return
        self._next += 1
        if self._waiting:
            self._quiet.watch()

    def _release_next(self) -> None:
        """Nothing has stirred: those that have not come by now stay behind, and the next that waits goes on."""
        for place in range(self._next, len(self._order)):
            waiting = self._waiting.pop(self._order[place], None)
            if waiting is not None:
                self._next = place + 1
                if not waiting.done():
                    waiting.set_result(None)
                break
        if self._waiting:
            self._quiet.watch()

    async def over(self) -> None:
        """Return when everything recorded has been taken up, and code has had the time to act on it, or when it clearly
        will not be."""
        if self._is_past or not self._order:
            return
        turns = QUIET_TURNS
        while not self.is_over and (turns > 0 or self._waiting):
            turns -= 1
            await asyncio.sleep(0)
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
        self._is_past = True

    def unreached(self) -> list[str]:
        """Names of recorded calls that the code did not make this time."""
        return [self._found[key].name for key in self._order if key not in self._called]

    def stop(self) -> None:
        self._quiet.stop()


def _is_covered(record: Record, whole: Collection[str]) -> bool:
    """Whether it was made in a step that is settled itself, maybe with groups between, which are not recorded."""
    if record.within is None or record.within in whole:
        return record.within is not None
    return any(record.within.endswith(inside(key)) for key in whole)
