"""Performing a step: attempts under its policy. Each attempt counts completely or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from perdure.clock import Clock
from perdure.engine.delivery.calls import Calls, StepCall, enter_frame, inside, leave_frame, name_in
from perdure.engine.delivery.recorder import Recorder
from perdure.engine.delivery.replay import Waits
from perdure.errors import TimedOut
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.executor import call_in_thread, is_async
from perdure.graph.policy import ISOLATE, SKIP, STOP, FailurePolicy
from perdure.isolation import isolate
from perdure.records import SETTLES, Record

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery


class TimeLimitReached(Exception):  # a signal to the caller, who knows what took too long
    """The work did not end in time. It was cancelled and has ended."""


async def run_with_timeout(
    seconds: float | None,
    work: Coroutine[Any, Any, Any],
    clock: Clock,
    on_task: Callable[[asyncio.Task[Any]], None] | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> Any:
    """Run the work in a task of its own, without a limit if `seconds` is None. Returns its result.

    Raises TimeLimitReached, or the error of the work. If the work catches its cancellation and succeeds, its result
    counts.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    alarm = None if seconds is None else loop.create_task(clock.sleep(seconds))
    if on_task is not None:
        on_task(task)
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait([task] if alarm is None else [task, alarm], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError as error:
        cancelled = error
    if alarm is not None:
        alarm.cancel()
    was_late = not task.done()
    if was_late and on_cancel is not None:
        on_cancel()
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:  # cancelled again while waiting: still await the work
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: the cancellation replaces it
        raise cancelled
    if was_late and (task.cancelled() or task.exception() is not None):
        raise TimeLimitReached from (None if task.cancelled() else task.exception())
    return task.result()


@dataclass(frozen=True)
class Work:
    function: Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    policy: FailurePolicy

    async def perform(self) -> Any:
        return await self._call(self.function)

    async def perform_fallback(self) -> Any:
        """Call the fallback with the same arguments."""
        return await self._call(self.policy.on_error)

    async def _call(self, function: Callable[..., Any]) -> Any:
        if is_async(function):
            return await function(*self.arguments, **self.keywords)
        return await call_in_thread(function, self.arguments, self.keywords)


class StepEvents:
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._lane = delivery.lane

    def path(self, call: StepCall) -> str:
        return f"{self._lane.steps_path}{call.name}"

    def emit(self, kind: str, call: StepCall, data: Any = None, error: Exception | None = None) -> None:
        path = self.path(call)
        details = None if error is None else WorkflowErrorDetails.from_exception(error, executor_id=path)
        self._delivery.emit(WorkflowEvent(kind, data, executor_id=path, details=details))

    def is_news(self, call: StepCall, record: Record) -> bool:
        """Whether to emit the replay: once per run, for records of other runs. A delivery that sleeps often runs from
        the start often."""
        scope = self._lane.scope
        mark = (self._delivery.message.delivery_id, call.key)
        if record.run_id == scope.run_id or mark in scope.bypassed:
            return False
        scope.bypassed.add(mark)
        return True

    def warn_if_moved(self, call: StepCall, record: Record) -> None:
        if record.after != call.after:
            then, now = (_describe_place(key) for key in (record.after, call.after))
            self._warn(
                f"Step {call.name!r} of {self._lane.full_id!r} was recorded {then} and is now reached {now}: the code "
                "changed since. Its recorded result was used."
            )

    def warn_of_unreached(self, names: Sequence[str]) -> None:
        if names:
            listed = ", ".join(repr(name) for name in dict.fromkeys(names))
            self._warn(
                f"{self._lane.full_id!r} ended without reaching recorded steps: {listed}. The code changed since, or "
                "is not deterministic. The recorded results were not used."
            )

    def _warn(self, text: str) -> None:
        event = WorkflowEvent("warning", text, executor_id=self._lane.full_id)
        self._delivery.emit_once(self._lane.in_child(event))


def _describe_place(key: str | None) -> str:
    return "at the beginning" if key is None else f"after {name_in(key)!r}"


Attempt = Coroutine[Any, Any, tuple[Any, Exception | None]]
"""The step's result, or why it failed."""


class Attempts:
    def __init__(
        self,
        delivery: Delivery,
        recorder: Recorder,
        calls: Calls,
        waits: Waits,
        in_flight: dict[str, asyncio.Future[Any]],
    ) -> None:
        self._delivery = delivery
        self._recorder = recorder
        self._calls = calls
        self._waits = waits
        self._in_flight = in_flight
        self._clock = delivery.lane.scope.clock
        self._events = StepEvents(delivery)
        self.again: dict[str, Record] = {}
        """Records inside a step whose attempt failed. Its next attempt replays them."""

    async def perform(self, call: StepCall, work: Work) -> Any:
        """The step's recorded result. Raises its error, also recorded, after the last attempt."""
        records = self._recorder.records
        attempts = [record for record in records if record.kind == "attempt" and record.key == call.key]
        number = len(attempts)
        if attempts and attempts[-1].until is not None:
            await self._waits.until(attempts[-1].until)
        else:
            self._events.emit("executor_invoked", call)
        retry = work.policy.retry
        while True:
            value, failure = await self._trace(
                call, self._once(call, lambda: self._perform_in_time(call, work)), number + 1
            )
            if failure is None:
                self._events.emit("executor_completed", call, isolate(value))
                return value
            number += 1
            if retry is None or not retry.retries(failure, number):
                return await self._handle_failure(call, failure, work)
            await self._retry(call, failure, number, retry.delay_after(number))

    async def perform_group(self, call: StepCall, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Call the function once. Only the steps in it are recorded."""
        value, failure = await self._trace(call, self._once(call, work, is_recorded=False))
        if failure is not None:
            raise failure
        return value

    def _trace(self, call: StepCall, attempt: Attempt, number: int = 1) -> Attempt:
        spans = self._delivery.lane.scope.spans
        return attempt if spans is None else spans.step(self._events.path(call), number, attempt)

    async def _once(
        self, call: StepCall, work: Callable[[], Coroutine[Any, Any, Any]], *, is_recorded: bool = True
    ) -> tuple[Any, Exception | None]:
        """One attempt: its result, recorded with its effects; or its error, and its effects are undone."""
        last, began = self._calls.last, asyncio.get_running_loop().time()
        frame = enter_frame(call, self._delivery)
        try:
            value = await work()
        except BaseException as error:
            self._delivery.undo_frame(frame)
            if is_recorded:  # else it is not retried, and failures in it stay recorded
                self._calls.go_back(last)
                if isinstance(error, Exception):
                    await self._recorder.take_back_inner(call.key, error)
                self._keep_for_next_attempt(call)
            if isinstance(error, Exception):
                return None, error
            is_inner = frame.outer is not None and frame.outer.owner is self._delivery  # whose attempt may be over
            is_own = isinstance(error, asyncio.CancelledError) and not self._delivery.is_cancelled
            if is_own and not is_inner and is_recorded:
                # The code itself cancelled it and would do so again, so the step need not be called again.
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

    def _keep_for_next_attempt(self, call: StepCall) -> None:
        """Keep the records of a failed attempt for the next one."""
        for key in [key for key in self._in_flight if key.endswith(inside(call.key))]:
            del self._in_flight[key]
        suffix, records = inside(call.key), self._recorder.records
        inner = [record for record in records if record.key.endswith(suffix) and record.kind in SETTLES]
        self.again.update((record.key, record) for record in inner)

    async def _perform_in_time(self, call: StepCall, work: Work) -> Any:
        seconds = work.policy.timeout
        if seconds is None:
            return await work.perform()
        try:
            return await run_with_timeout(seconds, work.perform(), self._clock)
        except TimeLimitReached as error:
            raise TimedOut(self._events.path(call), seconds) from error.__cause__

    async def _retry(self, call: StepCall, error: Exception, number: int, delay: float) -> None:
        until = self._clock.now() + timedelta(seconds=delay)
        value = self._delivery.lane.scope.journal.kept_error(error)
        await self._recorder.append(Record("attempt", call.key, call.name, value=value, until=until))
        self._events.emit("executor_retrying", call, {"attempt": number, "delay_seconds": delay}, error)
        await self._waits.until(until)

    async def _handle_failure(self, call: StepCall, error: Exception, work: Work) -> Any:
        """After the last attempt: raise the error, or return the policy's replacement."""
        mode = work.policy.on_error
        self._events.emit("executor_failed", call, error=error)
        if mode == STOP:
            await self._recorder.record_failure(call, error)
            raise error
        if mode in (SKIP, ISOLATE):
            value: Any = None if mode == SKIP else error
            await self._recorder.record_result(call, value)
        else:
            value, second = await self._trace(call, self._once(call, work.perform_fallback))
            if second is not None:
                await self._recorder.record_failure(call, second)
                raise second from error
        self._events.emit("executor_skipped", call, mode if mode in (SKIP, ISOLATE) else "fallback", error)
        return value
