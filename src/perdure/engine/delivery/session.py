"""Steps, sleeps and requests inside one delivery: recorded when they settle, and not repeated."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from perdure.clock import cancel_and_wait
from perdure.engine.delivery.recorder import Recorder, Work, is_context
from perdure.engine.delivery.replay import Replay, StepCall, Waits
from perdure.engine.thread.inputs import request_key
from perdure.errors import RequestExpired, RequestWithdrawn, WorkflowRunnerException
from perdure.events import WorkflowEvent
from perdure.isolation import is_immutable, isolate, same_structure
from perdure.names import check_identifier
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery


MAX_REJECTED_CALLS = 100
"""How many calls after its cancellation code may make before the delivery fails."""


class StepSession:
    """The recorded side of one delivery, created with its first recorded call."""

    def __init__(self, delivery: Delivery, task: asyncio.Task[Any]) -> None:
        lane = delivery.lane
        self._delivery = delivery
        self._lane = lane
        self.waits = Waits(delivery, task, lane.scope.clock)
        self.recorder = Recorder(delivery, self.waits)
        self._replay = Replay(self.recorder.records)
        self._asked: Counter[str] = Counter()
        """How often each request id was used."""
        self._numbered = {record.name for record in self.recorder.records if record.kind == "asked"}
        """The ids of requests that got a number."""
        self._rejected_calls = 0
        """Calls after the engine cancelled the code."""
        self._task = task
        self._others: set[Any] = set()
        """The handler's own tasks that are in a step, asleep, or wait for an answer."""

    async def step(self, work: Work, name: str, key: str | None, *, is_shown: bool = True) -> Any:
        """The function's result: from its record, or by calling it now. `is_shown`: whether the step has events."""
        await self._check()
        if key is not None:
            check_identifier("A step's key", key)
        self.recorder.calls.check_name(name, code_of(work.function))
        identity = _identifying_arguments(work.function, work.arguments, work.keywords)
        call = self.recorder.calls.identify(name, *identity, key)
        call = call if is_shown else replace(call, is_shown=False)
        if call.key in self.recorder.in_flight:  # the same key: the same step
            return await asyncio.shield(self.recorder.in_flight[call.key])
        with self._in_call(call):
            record = self._replay.find(call.key) or self.recorder.again.pop(call.key, None)
            if record is not None and record.kind == "cancelled":
                await self._cancelled_again(record)
            elif record is not None:
                return await self._replay_call(call, record)
            if key is None:
                # Copies: a replay would lack changes of the step to its arguments, or of the caller to its result.
                named = {name: _own(value) for name, value in work.keywords.items()}
                work = replace(work, arguments=[_own(argument) for argument in work.arguments], keywords=named)
            return isolate(await self._perform(call, work))

    async def group(self, function: Callable[..., Any], arguments: Sequence[Any], name: str) -> Any:
        """The function's result. Each run of the delivery calls it; the steps in it are replayed."""
        await self._check()
        self.recorder.calls.check_name(name, code_of(function))
        call = self.recorder.calls.identify(name, *_identifying_arguments(function, arguments, {}), None)
        with self._in_call(call, is_recorded=False):
            return await self.recorder.perform_group(call, lambda: function(*arguments))

    @contextmanager
    def _in_call(self, call: StepCall, *, is_recorded: bool = True) -> Iterator[None]:
        task = asyncio.current_task()
        is_other = task is not self._task and task not in self._others
        if is_other:
            self._others.add(task)
        self.waits.begin()
        try:
            yield
        finally:
            self.waits.end()
            if is_other:
                self._others.discard(task)
            if is_recorded:  # else the last call is the step in it
                self.recorder.calls.mark_returned(call)

    async def close(self) -> None:
        """The handler has ended. Cancel and await its tasks that are still in a call: no side effect may follow."""
        cancelled: asyncio.CancelledError | None = None
        while self._others:
            cancelled = await cancel_and_wait(list(self._others)) or cancelled
            self._others = {task for task in self._others if not task.done()}
        if cancelled is not None:
            raise cancelled

    async def _check(self) -> None:
        """Reject new calls after the engine cancelled the handler, or once nothing can be recorded.

        A cancelled handler will run again, so anything recorded now would be lost or done twice. Raises CancelledError,
        which code that catches every Exception lets pass.
        """
        self._delivery.check_open()
        if self.recorder.journal_error is None and not self._delivery.is_cancelled:
            return
        # Code that keeps calling must not block the event loop.
        await asyncio.sleep(0 if self._rejected_calls < MAX_REJECTED_CALLS else 0.05)
        self._rejected_calls += 1
        if self._rejected_calls <= MAX_REJECTED_CALLS:
            raise asyncio.CancelledError
        if self.recorder.journal_error is None:
            self.recorder.journal_error = WorkflowRunnerException(
                f"{self._lane.full_id!r} catches its cancellation and keeps running. Its work was discarded. Let "
                "asyncio.CancelledError pass: catch Exception, not BaseException."
            )
        raise self.recorder.journal_error

    async def _replay_call(self, call: StepCall, record: Record) -> Any:
        if record.after != call.after:
            then, now = (_describe_place(key) for key in (record.after, call.after))
            self._warn(
                f"Step {call.name!r} of {self._lane.full_id!r} was recorded {then} and is now reached {now}: the code "
                "changed since. Its recorded result was used."
            )
        await self._turn_of(record)
        scope, mark = self._lane.scope, (self._delivery.message.delivery_id, call.key)
        # Once per run, for records of other runs: a delivery that sleeps often runs from the start often.
        is_news = record.run_id != scope.run_id and mark not in scope.bypassed
        effects, value = self.recorder.read(record)
        if effects is not None:
            self._delivery.do_again(effects, is_news=is_news)
        if is_news:
            scope.bypassed.add(mark)
            self.recorder.emit("executor_bypassed", call, isolate(value) if record.kind == "step" else None)
            if scope.spans is not None:
                scope.spans.record_bypass("step", self.recorder.path(call))
        if record.kind == "failed":
            raise value
        if " = " in call.key:  # a step with an explicit key: another branch may call it again
            done = self.recorder.in_flight[call.key] = asyncio.get_running_loop().create_future()
            done.set_result(value)
        return value

    async def _turn_of(self, record: Record) -> None:
        await self._replay.turn_of(record)
        await asyncio.sleep(0)  # as in the first run: tasks that started before it get a turn

    async def _cancelled_again(self, record: Record) -> None:
        """Wait for the code to cancel the step again, as it did before by a timeout or a lost race.

        Returns if it does not within twice the time: the code takes another path now.
        """
        await self._replay.turn_of(record)
        await self._replay.over()
        elapsed: float = self.recorder.read(record)[1]
        await asyncio.sleep(2 * elapsed + 1)
        await self.recorder.take_back(record)

    async def _perform(self, call: StepCall, work: Work) -> Any:
        settled = self.recorder.in_flight[call.key] = asyncio.get_running_loop().create_future()
        # Retrieve the error, which the caller has: the event loop would report a future without a waiter.
        settled.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # New work waits for the end of the replay: a step that lost a race then may lose it again before it starts.
            await self._replay.over()
            value = await self.recorder.perform(call, work)
        except GeneratorExit:  # the event loop is being closed: its futures must be left alone
            raise
        except BaseException as error:
            settled.cancel() if isinstance(error, asyncio.CancelledError) else settled.set_exception(error)
            raise
        if not settled.done():
            settled.set_result(value)
        return value

    async def sleep(self, until: Callable[[], datetime], arguments: Sequence[Any]) -> None:
        """Return at that time. The time is recorded, so it is the same after a restart."""
        await self._check()
        call = self.recorder.calls.identify("sleep", arguments, {}, None)
        slept = self._replay.find(call.key)
        with self._in_call(call):
            if slept is not None:
                await self._turn_of(slept)
                return
            records = self.recorder.records
            due_at = next((old.until for old in records if old.kind == "sleeping" and old.key == call.key), None)
            if due_at is None:
                due_at = until()
                await self.recorder.append(Record("sleeping", call.key, "sleep", until=due_at))
            await self._replay.over()
            await self.waits.wait_for(due_at)
            await self.recorder.record("slept", call)

    async def number_request(self, call: StepCall) -> str:
        """The id of a request without one: `auto::<n>`, the first number that is free in the thread.

        The number is recorded, so code that asks in another order keeps it.
        """
        await self._check()
        records, position = self.recorder.records, self._lane.position
        numbered = next((record.name for record in records if record.kind == "asked" and record.key == call.key), None)
        if numbered is None:
            asked = {request.request_id for done in self._lane.results for request in done.requests}
            taken = asked.union(position.requests, position.answered, self._numbered)
            numbered = next(name for name in map("auto::{}".format, itertools.count()) if name not in taken)
            self._numbered.add(numbered)
            with self._in_call(call, is_recorded=False):
                await self.recorder.append(Record("asked", call.key, numbered))
        return numbered

    async def answer(self, call: StepCall, ask: Callable[[], None], request_id: str) -> Any:
        """The answer to a request. Calls `ask` unless it is settled. Raises RequestExpired or RequestWithdrawn."""
        await self._check()
        self._asked[request_id] += 1
        call = replace(call, key=request_key(request_id, self._asked[request_id]))
        settled = self._replay.find(call.key)
        with self._in_call(call):
            if settled is None:
                ask()
                await self.waits.wait_for(request_id)
            assert settled is not None  # noqa: S101  # waiting for an answer ends in the suspension of the delivery
            await self._turn_of(settled)
        if settled.kind == "expired" and settled.until is None:
            raise RequestWithdrawn(request_id, self._lane.scope.thread.thread_id)
        if settled.kind == "expired":
            raise RequestExpired(request_id, self._lane.full_id, settled.until)
        return self.recorder.read(settled)[1]

    def end(self) -> None:
        """The handler ended by itself: warn about recorded steps that it did not reach."""
        names = dict.fromkeys(self._replay.unreached_names())
        if names:
            self._warn(
                f"{self._lane.full_id!r} ended without reaching recorded steps: {', '.join(map(repr, names))}. The "
                "code changed since, or is not deterministic. The recorded results were not used."
            )

    def stop(self) -> None:
        self.waits.stop()
        self._replay.stop()

    def _warn(self, text: str) -> None:
        event = WorkflowEvent("warning", text, executor_id=self._lane.full_id)
        self._delivery.emit_once(self._lane.in_child(event))


def _describe_place(key: str | None) -> str:
    if key is None:
        return "at the beginning"
    match = re.match(r"(.+?) (?:= |[0-9a-f]{16}(?: |$))", key)
    name = key.partition(" ")[0] if match is None else match.group(1)
    return f"after {name!r}"


def _identifying_arguments(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    passed = normalise_arguments(function, arguments, keywords)
    bound, bound_named = bound_arguments(function)
    named = {name: value for name, value in {**bound_named, **passed}.items() if not is_context(value)}
    return [value for value in bound if not is_context(value)], named


def _own(argument: Any) -> Any:
    return argument if is_context(argument) else isolate(argument)


def normalise_arguments(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameter name, without defaults, so that every spelling of a call has one identity. Unchanged
    if the function has no readable signature."""
    try:
        signature = _signature_of(function)
        bound = signature.bind(*arguments, **keywords).arguments
    except (TypeError, ValueError):
        return {"arguments": list(arguments), **keywords}
    named: dict[str, Any] = {}
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif not same_structure(value, parameter.default):
            named[name] = value
    return named


_Signatures = WeakKeyDictionary[Any, inspect.Signature]
_of_functions, _of_methods = _Signatures(), _Signatures()
"""By function; of its bound methods in the second. Weak: the closure of an agent's step holds its conversation."""


def _signature_of(function: Any) -> inspect.Signature:
    """Raises TypeError or ValueError for a callable without a hash or a readable signature."""
    hash(function)
    signatures, key = (_of_methods, function.__func__) if type(function) is MethodType else (_of_functions, function)
    try:
        signature = signatures.get(key)
    except TypeError:  # weak references to it are not possible
        return inspect.signature(function)
    if signature is None:
        signature = signatures[key] = inspect.signature(function)
    return signature


def code_of(function: Any) -> Any:
    """The code that identifies a function: a lambda in a loop is a new object each time, with the same code."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__") and not isinstance(function, type):
        function = type(function).__call__  # a callable object
    return getattr(function, "__code__", function)


def bound_arguments(function: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments bound by a partial, or by a method of a value. They identify a call like any argument."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        positional = [*function.args, *positional]
        named = {**function.keywords, **named}
        function = function.func
    owner = getattr(function, "__self__", None)
    # Not a mutable object: its digest would change.
    if owner is not None and not isinstance(owner, (type, ModuleType)) and is_immutable(owner):
        positional = [owner, *positional]
    return positional, named
