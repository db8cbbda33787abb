"""Performing a step: attempt after attempt, each of which counts wholly or not at all, as its policy says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from perdure.engine.calls import Call, Calls, enter_frame, inside, leave_frame
from perdure.engine.recorder import Recorder
from perdure.engine.step_telling import StepTelling
from perdure.engine.timeouts import TimeIsUp, within
from perdure.engine.work import Work
from perdure.errors import TimedOut
from perdure.graph.policy import ISOLATE, SKIP, STOP
from perdure.isolation import isolated
from perdure.records import SETTLES, Record

if TYPE_CHECKING:
    from perdure.engine.delivery import Delivery


Attempt = Coroutine[Any, Any, tuple[Any, Exception | None]]
"""The step's result, or why it failed."""


class Attempts:
    def __init__(
        self,
        delivery: Delivery,
        recorder: Recorder,
        calls: Calls,
        pause: Callable[[datetime], Awaitable[None]],
        in_flight: dict[str, asyncio.Future[Any]],
    ) -> None:
        self._delivery = delivery
        self._recorder = recorder
        self._calls = calls
        self._pause = pause
        self._in_flight = in_flight
        self._clock = delivery.lane.scope.clock
        self._telling = StepTelling(delivery)
        self.again: dict[str, Record] = {}
        """Recorded in a step whose attempt failed: its next attempt takes them up."""

    async def made(self, call: Call, work: Work) -> Any:
        """The step's result, recorded; or its error, recorded too, once no attempt is left."""
        attempts = [one for one in self._recorder.records if one.kind == "attempt" and one.key == call.key]
        number = len(attempts)
        if attempts and attempts[-1].until is not None:
            await self._pause(attempts[-1].until)
        else:
            self._telling.tell("executor_invoked", call)
        retry = work.policy.retry
        while True:
            value, failure = await self._traced(call, self._once(call, lambda: self._limited(call, work)), number + 1)
            if failure is None:
                self._telling.tell("executor_completed", call, isolated(value))
                return value
            number += 1
            if retry is None or not retry.retries(failure, number):
                return await self._failed(call, failure, work)
            await self._retry(call, failure, number, retry.delay_after(number))

    async def grouped(self, call: Call, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Once, and not recorded itself: only the steps in it are."""
        value, failure = await self._traced(call, self._once(call, work, is_recorded=False))
        if failure is not None:
            raise failure
        return value

    def _traced(self, call: Call, attempt: Attempt, number: int = 1) -> Attempt:
        spans = self._delivery.lane.scope.spans
        return attempt if spans is None else spans.step(self._telling.path(call), number, attempt)

    async def _once(
        self, call: Call, work: Callable[[], Coroutine[Any, Any, Any]], *, is_recorded: bool = True
    ) -> tuple[Any, Exception | None]:
        """One attempt: its result, recorded with all that it did, or its error, and then nothing is left of it."""
        last, began = self._calls.last, asyncio.get_running_loop().time()
        frame = enter_frame(call, self._delivery)
        try:
            value = await work()
        except BaseException as error:
            self._delivery.undo_frame(frame)
            if is_recorded:  # else it is not tried again, and what failed in it stays failed
                self._calls.go_back(last)
                if isinstance(error, Exception):
                    await self._recorder.take_back_inner(call.key, error)
                self._keep_for_next_attempt(call)
            if isinstance(error, Exception):
                return None, error
            is_inner = frame.outer is not None and frame.outer.owner is self._delivery  # whose attempt may be over
            is_own = isinstance(error, asyncio.CancelledError) and not self._delivery.is_cancelled
            if is_own and not is_inner and is_recorded:
                # The code itself did that: it would do so again, so the step need not be called again.
                elapsed = asyncio.get_running_loop().time() - began
                await self._recorder.record("cancelled", call, elapsed)
            raise
        finally:
            leave_frame(frame)
        if not is_recorded:
            self._delivery.keep_frame(frame)
            return value, None
        await self._recorder.record_result(call, value, frame)
        self._delivery.keep_frame(frame)
        await self._recorder.unless_broken(self._delivery.lane.scope.after_record())
        return value, None

    def _keep_for_next_attempt(self, call: Call) -> None:
        """What was recorded in an attempt that failed is not done again in the next one."""
        for key in [key for key in self._in_flight if key.endswith(inside(call.key))]:
            del self._in_flight[key]
        within = inside(call.key)
        inner = [one for one in self._recorder.records if one.key.endswith(within) and one.kind in SETTLES]
        self.again.update((record.key, record) for record in inner)

    async def _limited(self, call: Call, work: Work) -> Any:
        seconds = work.policy.timeout
        if seconds is None:
            return await work.done()
        try:
            return await within(seconds, work.done(), self._clock)
        except TimeIsUp as error:
            raise TimedOut(self._telling.path(call), seconds) from error.__cause__

    async def _retry(self, call: Call, error: Exception, number: int, delay: float) -> None:
        until = self._clock.now() + timedelta(seconds=delay)
        said = self._delivery.lane.scope.journal.kept_error(error)
        await self._recorder.append(Record("attempt", call.key, call.name, value=said, until=until))
        self._telling.tell("executor_retrying", call, {"attempt": number, "delay_seconds": delay}, error)
        await self._pause(until)

    async def _failed(self, call: Call, error: Exception, work: Work) -> Any:
        """All attempts are made: raise the error, or give what the policy puts in its place."""
        mode = work.policy.on_error
        self._telling.tell("executor_failed", call, error=error)
        if mode == STOP:
            await self._recorder.record_failure(call, error)
            raise error
        if mode in (SKIP, ISOLATE):
            value: Any = None if mode == SKIP else error
            await self._recorder.record_result(call, value)
        else:
            value, second = await self._traced(call, self._once(call, work.done_instead))
            if second is not None:
                await self._recorder.record_failure(call, second)
                raise second from error
        shown = mode if mode in (SKIP, ISOLATE) else "fallback"
        self._telling.tell("executor_skipped", call, shown, error)
        return value
