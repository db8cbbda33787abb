"""Steps, sleeps and questions inside one delivery: recorded when they settle, and not done again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.engine.steps.attempts import Attempts, StepEvents, Work
from perdure.engine.steps.calls import Calls, StepCall, bound_arguments, frames_of, normalise_arguments
from perdure.engine.steps.recorder import Recorder
from perdure.engine.steps.replay import Replay, Waits
from perdure.engine.thread.inputs import request_key
from perdure.errors import RequestExpired, WorkflowRunnerException
from perdure.graph.policy import FailurePolicy
from perdure.isolation import isolate
from perdure.names import check_identifier
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery


MAX_REJECTED_CALLS = 100
"""How often code may go on after it was cancelled, before that is called an error."""


class StepSession:
    """The recorded side of one delivery, made when its handler first needs it."""

    def __init__(self, delivery: Delivery, task: asyncio.Task[Any]) -> None:
        lane, message = delivery.lane, delivery.message
        scope = lane.scope
        self._delivery = delivery
        self._lane = lane
        self._clock = scope.clock
        self._delivery_id = message.delivery_id
        self._recorder = Recorder(lane, message)
        self.records = self._recorder.records
        self._calls = Calls(delivery, scope.codec or scope.compiled.codec, scope.thread.position.renamed_types)
        self._replay = Replay(self.records)
        self._in_flight: dict[str, asyncio.Future[Any]] = {}
        """Steps that were called in this run, by key, and what came of them: `key=` names one step, however often."""
        self._attempts = Attempts(delivery, self._recorder, self._calls, self._pause, self._in_flight)
        self._events = StepEvents(delivery)
        self._asked: Counter[str] = Counter()
        """How often each request id was used."""
        self._rejected_calls = 0
        """Calls that code made after the engine had cancelled it."""
        self._task = task
        self._others: set[asyncio.Task[Any]] = set()
        """Tasks that the handler made, while they are in a step, asleep, or wait for an answer."""
        self.waits = Waits(task, scope.clock)

    async def step(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        name: str,
        key: str | None,
        policy: FailurePolicy,
    ) -> Any:
        """The function's result: from the record, if there is one, otherwise by calling it now."""
        await self._check()
        if key is not None:
            check_identifier("A step's key", key)
        self._calls.check_name(name, function)
        call = self._calls.identify(name, *_identifying_arguments(function, arguments, keywords), key)
        if call.key in self._in_flight:  # the same key: the same step
            return await asyncio.shield(self._in_flight[call.key])
        with self._in_call(call):
            record = self._replay.find(call.key) or self._attempts.again.pop(call.key, None)
            if record is not None and record.kind == "cancelled":
                await self._cancelled_again(record)
            elif record is not None:
                return await self._replayed(call, record)
            # What the step does to its arguments, or the caller to its result, would be missing when it is replayed.
            own = arguments if key is not None else [_own(one) for one in arguments]
            named = keywords if key is not None else {name: _own(one) for name, one in keywords.items()}
            return isolate(await self._performed(call, Work(function, own, named, policy)))

    async def group(self, function: Callable[..., Any], arguments: Sequence[Any], name: str) -> Any:
        """The function's result; it is called whenever its delivery is run, and takes what the steps in it recorded."""
        await self._check()
        self._calls.check_name(name, function)
        call = self._calls.identify(name, *_identifying_arguments(function, arguments, {}), None)
        with self._in_call(call, is_recorded=False):
            return await self._attempts.grouped(call, lambda: function(*arguments))

    @contextmanager
    def _in_call(self, call: StepCall, *, is_recorded: bool = True) -> Iterator[None]:
        task = asyncio.current_task()
        is_other = task is not None and task is not self._task and task not in self._others
        if is_other and task is not None:
            self._others.add(task)
        self.waits.begin()
        try:
            yield
        finally:
            self.waits.end()
            if is_other and task is not None:
                self._others.discard(task)
            if is_recorded:  # else what was called last is the step in it
                self._calls.made(call)

    async def close(self) -> None:
        """The handler has ended. What it left behind in the middle of a call is cancelled and awaited: its side effects
        would belong to nobody."""
        cancelled: asyncio.CancelledError | None = None
        while self._others:
            for task in self._others:
                task.cancel()
            try:
                await asyncio.wait(list(self._others))
            except asyncio.CancelledError as error:  # it still comes first
                cancelled = error
            self._others = {task for task in self._others if not task.done()}
        if cancelled is not None:
            raise cancelled

    async def _check(self) -> None:
        """Raises what there is against a new call.

        Code that cleans up after a cancellation by the engine has not come to its end: it runs again, and what it did
        now would be missing, or done, then. Nor may code go on once nothing can be recorded any more. Both are told by
        CancelledError, which code that catches every Exception lets pass.
        """
        self._delivery.check_open()
        if self._recorder.broken is None and not self._delivery.is_cancelled:
            return
        # Code that does not give up must not keep the event loop to itself.
        await asyncio.sleep(0 if self._rejected_calls < MAX_REJECTED_CALLS else 0.05)
        self._rejected_calls += 1
        if self._rejected_calls <= MAX_REJECTED_CALLS:
            raise asyncio.CancelledError
        if self._recorder.broken is None:
            self._recorder.broken = WorkflowRunnerException(
                f"{self._lane.full_id!r} keeps its cancellation to itself and goes on. Nothing of it was kept. Let "
                "asyncio.CancelledError pass: catch Exception, not BaseException."
            )
        raise self._recorder.broken

    async def _replayed(self, call: StepCall, record: Record) -> Any:
        self._events.warn_if_moved(call, record)
        await self._turn_of(record)
        is_news = self._events.is_news(call, record)
        effects, value = self._recorder.read(record)
        if effects is not None:
            self._delivery.do_again(effects, is_news=is_news)
        if is_news:
            told = isolate(value) if record.kind == "step" else None
            self._events.emit("executor_bypassed", call, told)
            if self._lane.scope.spans is not None:
                self._lane.scope.spans.bypassed("step", self._events.path(call))
        if record.kind == "failed":
            raise value
        self._replay_done(call, value)
        return value

    async def _turn_of(self, record: Record) -> None:
        await self._replay.turn_of(record)
        await asyncio.sleep(0)  # as when it was made: tasks that were begun before it get to run

    async def _cancelled_again(self, record: Record) -> None:
        """The code itself cancelled the step, such as by a timeout or a lost race, and does so again.

        Returns if it does not, given somewhat more time than then: it goes another way now.
        """
        await self._replay.turn_of(record)
        await self._replay.over()
        elapsed: float = self._recorder.read(record)[1]
        await asyncio.sleep(2 * elapsed + 1)
        await self._recorder.take_back(record)

    def _replay_done(self, call: StepCall, value: Any) -> None:
        """A step whose key was given may be called again by another branch."""
        if " = " in call.key:
            done = self._in_flight[call.key] = asyncio.get_running_loop().create_future()
            done.set_result(value)

    async def _performed(self, call: StepCall, work: Work) -> Any:
        settled = self._in_flight[call.key] = asyncio.get_running_loop().create_future()
        settled.add_done_callback(_look_at)
        try:
            # While recorded results are still handed out new work waits: what lost a race then may lose it again now,
            # before it has begun.
            await self._replay.over()
            value = await self._attempts.made(call, work)
        except GeneratorExit:  # the event loop is being closed: its futures must be left alone
            raise
        except BaseException as error:
            settled.cancel() if isinstance(error, asyncio.CancelledError) else settled.set_exception(error)
            raise
        if not settled.done():
            settled.set_result(value)
        return value

    async def _pause(self, until: datetime) -> None:
        """Between two attempts: the step does not count as running, so its delivery may be suspended meanwhile."""
        if until > self._clock.now():
            with self._paused():
                await self.waits.until(until)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """This call waits, and so do the steps that it is made in: they do not keep the delivery going. Should it be
        suspended, they are called again."""
        frames = list(frames_of(self._delivery))
        self.waits.end()
        for frame in frames:  # a step counts once, in however many branches it waits
            frame.waiting += 1
            if frame.waiting == 1:
                self.waits.end()
        try:
            yield
        finally:
            for frame in frames:
                frame.waiting -= 1
                if frame.waiting == 0:
                    self.waits.begin()
            self.waits.begin()

    async def sleep(self, until: Callable[[], datetime], arguments: Sequence[Any]) -> None:
        """Return at that time: the time is recorded, so it is the same after a restart."""
        await self._check()
        call = self._calls.identify("sleep", arguments, {}, None)
        slept = self._replay.find(call.key)
        with self._in_call(call):
            if slept is not None:
                await self._turn_of(slept)
                return
            began = next((one.until for one in self.records if one.kind == "sleeping" and one.key == call.key), None)
            if began is None:
                began = until()
                await self._recorder.append(Record("sleeping", call.key, "sleep", until=began))
            await self._replay.over()
            if began > self._clock.now():
                with self._paused():
                    await self.waits.until(began)
            await self._recorder.record("slept", call)

    async def answer(self, call: StepCall, ask: Callable[[], None], request_id: str) -> Any:
        """The answer to a question. `ask` asks it, unless it is pending already. Raises RequestExpired."""
        await self._check()
        self._asked[request_id] += 1
        call = replace(call, key=request_key(request_id, self._asked[request_id]))
        settled = self._replay.find(call.key)
        with self._in_call(call):
            if settled is None:
                ask()
                with self._paused():
                    await self.waits.answered(request_id)
            assert settled is not None  # noqa: S101  # waiting for an answer ends in the suspension of the delivery
            await self._turn_of(settled)
        if settled.kind == "expired":
            raise RequestExpired(request_id, self._lane.full_id, settled.until)
        return self._recorder.read(settled)[1]

    def question(self, arguments: Sequence[Any], request_id: str | None) -> StepCall:
        return self._calls.identify("request", arguments, {}, request_id)

    async def take_back_failures(self, error: BaseException) -> bool:
        return await self._recorder.take_back_failures(error)

    @property
    def broken(self) -> Exception | None:
        return self._recorder.broken

    def end(self) -> None:
        """The handler came to its end by itself: recorded steps that it did not reach are worth a warning."""
        self._events.warn_of_unreached(self._replay.unreached())

    def stop(self) -> None:
        self.waits.stop()
        self._replay.stop()


def _identifying_arguments(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """What tells one call of a step from another."""
    given = normalise_arguments(function, arguments, keywords)
    bound, bound_named = bound_arguments(function)
    named = {name: one for name, one in {**bound_named, **given}.items() if not _is_context(one)}
    return [one for one in bound if not _is_context(one)], named


def _is_context(argument: Any) -> bool:
    """A context among the arguments says nothing about which call it is."""
    return bool(getattr(type(argument), "is_context_of_perdure", False))


def _own(argument: Any) -> Any:
    return argument if _is_context(argument) else isolate(argument)


def _look_at(settled: asyncio.Future[Any]) -> None:
    """Whoever called the step has its error; a future that nobody else waited for must not complain."""
    if not settled.cancelled():
        settled.exception()
