"""Waiting: a run whose thread only sleeps lives until something is due, or something comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from perdure.engine.commit import Committer
from perdure.engine.run.requests import next_deadline, pass_deadlines
from perdure.engine.scope import RunScope
from perdure.engine.superstep.nesting import Nesting
from perdure.engine.superstep.position import Position, next_wake_up


class SleeperWait:
    def __init__(self, scope: RunScope, nesting: Nesting, committer: Committer) -> None:
        self._thread = scope.thread
        self._clock = scope.clock
        self._nesting = nesting
        self._committer = committer

    async def has_work(self, enter: Callable[[Position], Awaitable[None]]) -> bool:
        """Whether there is something to do now. Waits for sleepers; but not where somebody outside is asked: then the
        thread comes to rest, and they go on with the next run.

        What a passed deadline brings in is committed with `enter`.
        """
        thread = self._thread
        while True:
            position, now = thread.position, self._clock.now()
            if position.mailbox or thread.inbox:
                return True
            if not position.suspended and not position.children:
                return False
            limit = self._nesting.next_deadline
            if position.is_due(now) or (limit is not None and limit <= now):
                return True
            if position.requests:
                return False
            after, expired = pass_deadlines(position, now)
            if after is not position:  # of questions that executors answer, rather than somebody outside
                for event in expired:
                    self._committer.emit(event)
                await enter(after)
                continue
            if limit is None and next_wake_up(position) is None:
                return False
            times = [time for time in (limit, next_deadline(position)) if time is not None]
            await self._sleep_until(min(times))

    async def _sleep_until(self, time: datetime) -> None:
        """Until then, or until something comes into the inbox."""
        if self._thread.owner.is_leaving:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        waker = self._thread.waker = loop.create_future()
        alarm = loop.create_task(self._clock.sleep((time - self._clock.now()).total_seconds()))
        try:
            await asyncio.wait([waker, alarm], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._thread.waker = None
            alarm.cancel()
