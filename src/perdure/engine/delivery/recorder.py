"""Steps of one delivery: attempts under a policy, each of which counts completely or not at all, and their records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.clock import complete, run_with_timeout
from perdure.codec import Encoded
from perdure.engine.delivery.replay import (
    SETTLES,
    Calls,
    Frame,
    StepCall,
    Waits,
    enter_frame,
    inside,
    last_call,
    leave_frame,
)
from perdure.engine.delivery.scope import decode_effects, encode_effects, value_of
from perdure.engine.thread.position import Effects, private_changes
from perdure.engine.thread.state import Replaced
from perdure.errors import TimedOut, UnreadableValue, UnsavableValue
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.executor import call_in_thread, is_async
from perdure.graph.policy import ISOLATE, SKIP, STOP, FailurePolicy
from perdure.isolation import isolate
from perdure.log import get_logger
from perdure.records import Record, RecordKind

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery


logger = get_logger("engine")

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    function: Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    policy: FailurePolicy

    def describe_arguments(self) -> dict[str, Any] | None:
        """A copy of the caller's arguments; None if there are none."""
        args = tuple(isolate(argument) for argument in self.arguments if not is_context(argument))
        kwargs = {name: isolate(value) for name, value in self.keywords.items() if not is_context(value)}
        return {"args": args, "kwargs": kwargs} if args or kwargs else None

    async def perform(self, fallback: Callable[..., Any] | None = None) -> Any:
        """Call the function, or its fallback with the same arguments."""
        function = self.function if fallback is None else fallback
        if is_async(function):
            return await function(*self.arguments, **self.keywords)
        return await call_in_thread(function, self.arguments, self.keywords)


def is_context(argument: Any) -> bool:
    """Whether the argument is a context, which does not identify a call."""
    return bool(getattr(type(argument), "is_context_of_perdure", False))


Attempt = Coroutine[Any, Any, tuple[Any, Exception | None]]
"""The step's result, or why it failed."""


class Recorder:
    def __init__(self, delivery: Delivery, waits: Waits) -> None:
        scope, message = delivery.lane.scope, delivery.message
        self._delivery = delivery
        self._lane = delivery.lane
        self._waits = waits
        self._clock = scope.clock
        self._journal = scope.journal
        self._delivery_id = message.delivery_id
        self.calls = Calls(delivery, scope.codec or scope.compiled.codec, scope.thread.position.renamed_types)
        self.records = self._journal.records_of(message, delivery.lane.position)
        self.in_flight: dict[str, asyncio.Future[Any]] = {}
        """Results of steps called in this run, by key. Calls with the same `key=` share one step."""
        self.again: dict[str, Record] = {}
        """Records inside a step whose attempt failed. Its next attempt replays them."""
        self._failures: dict[int, BaseException] = {}
        """Place of a record -> its error, as raised in this run."""
        self.journal_error: Exception | None = None
        """Why nothing can be recorded any more. The delivery fails with it, even if its code catches it."""

    async def append(self, record: Record) -> int:
        """Record, even if the delivery is cancelled meanwhile. Returns the place of the record.

        Raises the error of the storage, now and for every later record.
        """
        if self.journal_error is not None:
            raise self.journal_error
        return await self.unless_broken(complete(self._journal.append(self._delivery_id, record)))

    async def unless_broken(self, work: Awaitable[T]) -> T:
        """The result of the work. Its error fails the delivery, not the step."""
        try:
            return await work
        except Exception as error:
            self.journal_error = error
            raise

    async def record(self, kind: RecordKind, call: StepCall, value: Any = None, effects: Any = None) -> int:
        run_id = self._lane.scope.run_id
        record = Record(kind, call.key, call.name, call.after, call.within, value, effects, run_id=run_id)
        return await self.append(record)

    async def record_result(self, call: StepCall, value: Any, frame: Frame | None = None) -> None:
        """Raises UnsavableValue, with the step's name, for a result that cannot be stored."""
        effects: Any = None if frame is None else self._done_in(frame)
        codec = self._lane.scope.codec
        try:
            if effects is not None and codec is not None:
                effects = Encoded(encode_effects(effects, self._lane.executor_id, codec), codec)
            kept = self._journal.freeze(value, f"result of step {call.name!r}")
        except UnsavableValue as error:
            self.journal_error = error
            raise
        await self.record("step", call, kept, effects)

    def _done_in(self, frame: Frame) -> Effects | None:
        """The effects of the step, its in-place changes included; None if it has none."""
        lane, did = self._lane, Effects()
        did.add(frame.effects)
        did.write(frame.effects.writes)
        if frame.read and lane.touched_state is not None:
            changed = lane.touched_state.changed_since(frame.read, lane.scope.codec)
            did.write((key, Replaced(isolate(value))) for key, value in changed)
        if frame.private:
            did.private = private_changes(frame.private, lane.private)
        is_something = did.sends or did.outputs or did.requests or did.writes or did.usage or did.private is not None
        return did if is_something else None

    async def record_failure(self, call: StepCall, error: Exception) -> None:
        """Record an error, so that code that caught it takes the same path when it runs again."""
        try:
            kept = [error] if self._lane.scope.codec is None else self._kept_chain(error)
        except UnsavableValue:
            text = "step %r failed with %s, which cannot be stored: it is called again when its delivery runs again"
            logger.warning(text, call.name, type(error).__name__)
            return
        self._failures[await self.record("failed", call, kept)] = error

    def _kept_chain(self, error: BaseException) -> Any:
        """The error and its causes, as far as they can be stored. Raises UnsavableValue for the error itself."""
        chain = [error]
        self._journal.freeze(error, "error")
        while chain[-1].__cause__ is not None:
            try:
                self._journal.freeze(chain[-1].__cause__, "error")
            except UnsavableValue:
                break
            chain.append(chain[-1].__cause__)
        return self._journal.freeze(chain, "error")

    def read(self, record: Record) -> tuple[Effects | None, Any]:
        """Effects and value of a recorded call; for a failed one, the error to raise.

        Raises UnreadableValue for a damaged record. The delivery fails with it, not the step.
        """
        try:
            value = value_of(record.value, f"record of {record.name!r}")
            effects: Effects | None = record.effects
            if isinstance(record.effects, Encoded):
                effects = decode_effects(record.effects.tree, self._lane.executor_id, record.effects.codec)
            return effects, self._error_again(record, value) if record.kind == "failed" else value
        except UnreadableValue as error:
            self.journal_error = error
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"its parts do not fit together ({error!r})"
            self.journal_error = UnreadableValue(f"record of {record.name!r}", reason)
            raise self.journal_error from error

    def _error_again(self, record: Record, chain: list[BaseException]) -> BaseException:
        if not chain or not all(isinstance(error, BaseException) for error in chain):
            raise TypeError("it contains no error")
        for error, cause in pairwise(chain):
            error.__cause__ = cause
        place = next(place for place, other in enumerate(self.records) if other is record)
        self._failures[place] = chain[0]
        return chain[0]

    async def take_back(self, record: Record) -> None:
        places = [place for place, other in enumerate(self.records) if other is record]
        await self.unless_broken(self._journal.take_back(self._delivery_id, places))

    def _failed_because_of(self, error: BaseException) -> set[str]:
        """Keys of the calls whose recorded failures led to the error."""
        causes = set(map(id, _causes(error, set(map(id, self._failures.values())))))
        return {self.records[place].key for place, failure in self._failures.items() if id(failure) in causes}

    async def take_back_inner(self, within: str, error: BaseException) -> None:
        """Revoke the calls that made an attempt of a step fail: the next attempt repeats them."""
        if self.journal_error is not None:
            return
        failed = {(key, kind) for key in self._failed_because_of(error) for kind in ("failed", "attempt")}
        inner = [(place, record) for place, record in enumerate(self.records) if record.key.endswith(inside(within))]
        places = [place for place, record in inner if record.kind == "cancelled" or (record.key, record.kind) in failed]
        if getattr(error, "asks_again", False):  # the result of the last call was the cause
            places += [place for place, record in inner if record.kind == "step"][-1:]
        await self.unless_broken(self._journal.take_back(self._delivery_id, places))

    async def take_back_failures(self, error: BaseException) -> bool:
        """Revoke the failures that ended the delivery: its next attempt repeats their steps.

        Returns False, and revokes nothing, if a call was recorded after such a failure in the same flow of control.
        The code has then handled the failure, for example by compensating earlier steps, so a repeated step would
        succeed after its compensation.
        """
        if self.journal_error is not None:
            return False
        failed = self._failed_because_of(error)
        # Calls may have been cancelled because of the failure.
        failed |= {record.key for record in self.records if record.kind == "cancelled"}
        if failed & {record.after for record in self.records if record.kind in ("step", "failed")}:
            return False
        kinds = ("failed", "cancelled", "attempt")
        places = [place for place, record in enumerate(self.records) if record.key in failed and record.kind in kinds]
        await self._journal.take_back(self._delivery_id, places)
        return True

    def path(self, call: StepCall) -> str:
        lane = self._lane
        return f"{lane.level.path if lane.executor.is_function else f'{lane.full_id}/'}{call.name}"

    def emit(self, kind: str, call: StepCall, data: Any = None, error: Exception | None = None) -> None:
        if not call.is_shown:
            return
        path = self.path(call)
        details = None if error is None else WorkflowErrorDetails.from_exception(error, executor_id=path)
        data = details if kind == "executor_failed" else data
        self._delivery.emit(WorkflowEvent(kind, data, executor_id=path, details=details))

    async def perform(self, call: StepCall, work: Work) -> Any:
        """The step's recorded result. Raises its error, also recorded, after the last attempt."""
        records = self.records
        attempts = [record for record in records if record.kind == "attempt" and record.key == call.key]
        number = len(attempts)
        if attempts and attempts[-1].until is not None:
            await self._waits.wait_for(attempts[-1].until)
        else:
            self.emit("executor_invoked", call, work.describe_arguments())
        retry = work.policy.retry
        while True:
            attempt = self._once(call, lambda: self._perform_in_time(call, work))
            value, failure = await self._trace(call, attempt, number + 1)
            if failure is None:
                self.emit("executor_completed", call, isolate(value))
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
        return attempt if spans is None else spans.step(self.path(call), number, attempt)

    async def _once(
        self, call: StepCall, work: Callable[[], Coroutine[Any, Any, Any]], *, is_recorded: bool = True
    ) -> tuple[Any, Exception | None]:
        """One attempt: its result, recorded with its effects; or its error, and its effects are undone."""
        last, began = last_call.get(), asyncio.get_running_loop().time()
        frame = enter_frame(call, self._delivery)
        try:
            value = await work()
        except BaseException as error:
            self._delivery.undo_frame(frame)
            if is_recorded:  # else it is not retried, and failures in it stay recorded
                last_call.set(last)  # the calls since belong to the failed attempt
                if isinstance(error, Exception):
                    await self.take_back_inner(call.key, error)
                self._keep_for_next_attempt(call)
            if isinstance(error, Exception):
                return None, error
            is_inner = frame.outer is not None and frame.outer.owner is self._delivery  # whose attempt may be over
            is_own = isinstance(error, asyncio.CancelledError) and not self._delivery.is_cancelled
            if is_own and not is_inner and is_recorded:
                # The code itself cancelled it and would do so again, so the step need not be called again.
                elapsed = asyncio.get_running_loop().time() - began
                await self.record("cancelled", call, elapsed)
            raise
        finally:
            leave_frame(frame)
        if is_recorded:
            await self.record_result(call, value, frame)
        self._delivery.keep_frame(frame)
        if is_recorded:
            await self.unless_broken(self._lane.scope.after_record())
        return value, None

    def _keep_for_next_attempt(self, call: StepCall) -> None:
        """Keep the records of a failed attempt for the next one."""
        for key in [key for key in self.in_flight if key.endswith(inside(call.key))]:
            del self.in_flight[key]
        suffix, records = inside(call.key), self.records
        inner = [record for record in records if record.key.endswith(suffix) and record.kind in SETTLES]
        self.again.update((record.key, record) for record in inner)

    async def _perform_in_time(self, call: StepCall, work: Work) -> Any:
        seconds = work.policy.timeout
        if seconds is None:
            return await work.perform()
        return await run_with_timeout(seconds, work.perform(), self._clock, TimedOut(self.path(call), seconds))

    async def _retry(self, call: StepCall, error: Exception, number: int, delay: float) -> None:
        until = self._clock.now() + timedelta(seconds=delay)
        value = self._delivery.lane.scope.journal.kept_error(error)
        await self.append(Record("attempt", call.key, call.name, value=value, until=until))
        self.emit("executor_retrying", call, {"attempt": number, "delay_seconds": delay}, error)
        await self._waits.wait_for(until)

    async def _handle_failure(self, call: StepCall, error: Exception, work: Work) -> Any:
        """After the last attempt: raise the error, or return the policy's replacement."""
        mode = work.policy.on_error
        self.emit("executor_failed", call, error=error)
        if mode == STOP:
            await self.record_failure(call, error)
            raise error
        if mode in (SKIP, ISOLATE):
            value: Any = None if mode == SKIP else error
            await self.record_result(call, value)
        else:
            value, second = await self._trace(call, self._once(call, lambda: work.perform(work.policy.on_error)))
            if second is not None:
                await self.record_failure(call, second)
                raise second from error
        self.emit("executor_skipped", call, mode if mode in (SKIP, ISOLATE) else "fallback", error)
        return value


def _causes(error: BaseException, recorded: set[int]) -> list[BaseException]:
    """An error, those in its group, and all their causes.

    An error that was being handled counts as a cause, except for a recorded failure: that step had its own reason.
    """
    causes: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo:
        cause = todo.pop()
        if cause is not None and id(cause) not in causes:
            causes[id(cause)] = cause
            context = None if id(cause) in recorded else cause.__context__
            todo += [cause.__cause__, context, *getattr(cause, "exceptions", ())]
    return list(causes.values())
