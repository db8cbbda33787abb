"""Suspending a delivery: once all that it does is wait, it is cancelled, kept, and run again when there is news."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from perdure.clock import Clock
from perdure.engine.steps.replay import Quiet


class Waits:
    """What the branches of one delivery wait for. While a step of it runs the delivery goes on; when none does, it is
    suspended: its superstep is committed without it, and nobody has to keep it in memory."""

    def __init__(self, task: asyncio.Task[object], clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._times: dict[asyncio.Future[None], datetime] = {}
        self._requests: dict[asyncio.Future[None], str] = {}
        self._alarms: set[asyncio.Task[None]] = set()
        self._active = 0
        self._quiet = Quiet(self._suspend_if_idle)
        self._is_over = False
        self.is_suspended = False

    @property
    def due_at(self) -> datetime | None:
        return min(self._times.values(), default=None)

    @property
    def requests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._requests.values()))

    def begin(self) -> None:
        """A call starts: a step, a sleep or a question, until it waits."""
        self._active += 1
        self._quiet.stir()

    def end(self) -> None:
        self._active -= 1
        self._look()

    async def until(self, time: datetime) -> None:
        """Return at that time, if something else keeps the delivery going until then."""
        future = self._future()
        self._times[future] = time
        await self._wait(future, self._times)

    async def answered(self, request_id: str) -> None:
        """Never returns: the answer finds the delivery suspended."""
        future = self._future()
        self._requests[future] = request_id
        await self._wait(future, self._requests)

    def _future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def _wait(self, future: asyncio.Future[None], waiting: dict[asyncio.Future[None], Any]) -> None:
        self._look()
        try:
            await future
        finally:
            if not self.is_suspended:  # a branch that was cancelled does not wait any more
                del waiting[future]
                self._look()

    def _look(self) -> None:
        if (self._times or self._requests) and not self._is_over:
            self._quiet.watch()

    def _suspend_if_idle(self) -> None:
        if self.is_suspended or (not self._times and not self._requests):
            return  # once is enough: code that cleans up must not be cut off
        if self._active:
            self._set_alarms()
        elif not self._task.done():
            self.is_suspended = True
            self._drop_alarms()
            self._task.cancel()

    def _set_alarms(self) -> None:
        """A step runs on: sleepers are woken here, should their time come before it has ended."""
        self._drop_alarms()
        for future, time in self._times.items():
            self._alarms.add(asyncio.get_running_loop().create_task(self._wake(future, time)))

    async def _wake(self, future: asyncio.Future[None], time: datetime) -> None:
        await self._clock.sleep((time - self._clock.now()).total_seconds())
        if not future.done():
            future.set_result(None)

    def _drop_alarms(self) -> None:
        for alarm in self._alarms:
            if not alarm.get_loop().is_closed():
                alarm.cancel()
        self._alarms.clear()

    def stop(self) -> None:
        """The delivery has ended: what it left behind must not cancel whatever its task does now."""
        self._is_over = True
        self._quiet.stop()
        self._drop_alarms()
