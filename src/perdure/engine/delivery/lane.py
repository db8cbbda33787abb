"""A lane: the deliveries of one executor in one superstep, in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from perdure.clock import run_with_timeout
from perdure.codec import Codec
from perdure.engine.delivery.context import DeliveryContext
from perdure.engine.delivery.delivery import Delivery, apply_failure_policy
from perdure.engine.delivery.scope import RunScope
from perdure.engine.thread.level import Level
from perdure.engine.thread.position import Effects, Position, own_event
from perdure.engine.thread.state import DELETED, LaneState, Replaced
from perdure.errors import HandlerCancelled, TimedOut, WorkflowRunnerException
from perdure.events import WorkflowErrorDetails, WorkflowEvent, change_event
from perdure.graph.coercion import in_family
from perdure.graph.executor import Executor
from perdure.graph.handlers import Returns
from perdure.graph.policy import DEFAULT, FailurePolicy
from perdure.isolation import isolate
from perdure.records import WorkflowMessage
from perdure.twins import HOMES


def take_off_suspension(context: DeliveryContext) -> bool:
    """Whether the delivery was suspended. A suspension cancels the handler's task, which may be the run's own, so this
    also removes that cancellation: the run itself was not cancelled."""
    if context.steps is None or not context.steps.waits.is_suspended:
        return False
    task = asyncio.current_task()
    if task is not None and task is context.task and task.cancelling():
        task.uncancel()
    return True


def is_error_of_suspension(error: BaseException, context: DeliveryContext) -> bool:
    """Whether the error results from a suspension: code may turn its cancellation into an error. The suspended delivery
    runs again, so an error with another cause is raised again."""
    if not isinstance(error, (Exception, BaseExceptionGroup)) or context.delivery.journal_error is not None:
        return False
    return take_off_suspension(context)


current_context: ContextVar[DeliveryContext | None] = ContextVar("perdure_context", default=None)
"""The context of the handler that runs in this task. A step called there belongs to its delivery."""

_INVOKED, _COMPLETED = WorkflowEvent("executor_invoked"), WorkflowEvent("executor_completed")


class Lane(msgspec.Struct, eq=False):
    """Sees the position that the superstep started from, plus its own writes; never another lane's.

    What each superstep makes is a Struct, which C code makes: 1.2 us less per superstep than classes in Python, which
    took 7.7 us (benchmarks/engine.py, one-executor loop).
    """

    scope: RunScope
    level: Level
    executor_id: str
    executor: Executor
    position: Position
    full_id: str
    """The executor's id in events: with the path of its sub-workflow."""
    _is_plain: bool
    """The common case: not in a sub-workflow, and no suspended deliveries. It saves 0.4 us of 7.9 us per delivery
    (benchmarks/engine.py, fan); test_plain_lanes_emit_what_other_lanes_emit compares both."""
    task: asyncio.Task[Any] | None
    """The one that runs it: the run's own for a single lane."""
    messages: list[WorkflowMessage] = []
    results: list[Effects] = []
    failure: BaseException | None = None
    failure_events: tuple[WorkflowEvent, ...] = ()
    """Events of the failed delivery, for the log."""
    is_dropped: bool = False
    """Whether its sub-workflow failed elsewhere, so that its results are discarded."""
    has_touched: bool = False
    """Whether a handler has looked at the state, shared or private."""
    touched_state: LaneState | None = None
    touched_private: dict[str, Any] | None = None

    @property
    def state(self) -> LaneState:
        if self.touched_state is None:
            self.has_touched = True
            self.touched_state = LaneState(self.position.state, self.level.compiled.graph.reducers, self.position.flat)
        return self.touched_state

    @property
    def private(self) -> dict[str, Any]:
        if self.touched_private is None:
            self.has_touched = True
            self.touched_private = isolate(self.position.private.get(self.executor_id, {}))
        return self.touched_private

    def write_again(self, key: str, value: Any) -> None:
        """Repeat a recorded write, with a copy: if this superstep fails too, the journal replays it once more."""
        if isinstance(value, Replaced):
            value = Replaced(isolate(value.value))
        elif value is not DELETED:
            value = isolate(value)
        self.state.write(key, value)

    def replace_private(self, private: dict[str, Any]) -> None:
        self.has_touched = True
        self.touched_private = isolate(private)

    def undo(self) -> None:
        """Return to the state after the earlier deliveries: this one failed or was suspended."""
        self.touched_state = None
        self.touched_private = None
        for done in self.results:
            for key, value in done.writes:
                self.write_again(key, value)
            if done.private is not None:
                self.replace_private(done.private)

    def emit(self, event: WorkflowEvent, effects: Effects) -> None:
        self.scope.emit(event)
        if self.scope.is_logged:
            effects.events.append(event)

    def in_child(self, event: WorkflowEvent) -> WorkflowEvent:
        child_id = self.level.child_id
        return event if child_id is None else change_event(event, child_id=child_id)

    def to_public(self, event: WorkflowEvent) -> WorkflowEvent:
        """An output or a request of this executor, as the run's consumer receives it."""
        return event if self.level.parent is None else self.in_child(self.level.to_public(event, self.executor_id))

    async def deliver(self, message: WorkflowMessage) -> Effects:
        """Run the handler for one message. Its effects are added to `results`."""
        if self.results and (self.touched_state is not None or self.touched_private is not None):
            for done in self.results:
                self.settle(done, self.scope.codec)  # so that this delivery can be undone alone
        effects = Effects()
        context = DeliveryContext(self, message, effects, self.task)
        event = msgspec.structs.replace(_INVOKED, data=message.data, executor_id=self.full_id)
        if self._is_plain:
            self.emit(event, effects)
        else:
            self._emit_invoked(event, message, effects)
        token = current_context.set(context)
        try:
            try:
                returns, work = self._work(message, context)
                returned = await work
            finally:
                if context.steps is not None:
                    await context.delivery.close()
            if context.steps is not None and context.steps.recorder.journal_error is not None:
                raise context.steps.recorder.journal_error
            if returned is not None and returns is not Returns.NOTHING:
                await (context.send_message if returns is Returns.SENT else context.yield_output)(returned)
            if context.steps is not None or not self._is_plain or message.in_place_of is not None:
                effects = self._complete(context, message, effects)
            if not effects.is_start and not effects.is_undone:  # a sub-workflow has only begun
                event = msgspec.structs.replace(_COMPLETED, data=_results(effects), executor_id=self.full_id)
                self.emit(event if self._is_plain else self.in_child(event), effects)
        except asyncio.CancelledError as error:
            is_suspended = take_off_suspension(context)
            if self._is_cancelled():
                raise
            if is_suspended:
                effects = self._suspend(context.delivery)
            else:  # the handler's own task was cancelled, but not the run: it failed
                failure = HandlerCancelled(self.full_id)
                failure.__cause__ = error
                effects = await self._apply_policy(failure, context.delivery)
        except GeneratorExit:  # the event loop is being closed: nothing can be awaited any more
            raise
        except BaseException as error:  # noqa: BLE001  # raised again, unless a policy handles it
            if is_error_of_suspension(error, context) and not self._is_cancelled():
                effects = self._suspend(context.delivery)
            else:
                effects = await self._apply_policy(error, context.delivery)
        finally:
            context.end()
            try:
                current_context.reset(token)
            except ValueError:  # `suppress` is slow; a coroutine that is discarded ends in another context
                pass
        self.results.append(effects)
        return effects

    def _emit_invoked(self, event: WorkflowEvent, message: WorkflowMessage, effects: Effects) -> None:
        before = self.position.suspended.get(message.delivery_id)
        if before is None or before.run_id is None:  # not suspended, only recorded in the middle of its work
            self.emit(self.in_child(event), effects)
        elif before.run_id != self.scope.run_id:
            self.scope.emit(own_event(self.in_child(event), replayed=True))

    def _work(self, message: WorkflowMessage, context: DeliveryContext) -> tuple[Returns, Coroutine[Any, Any, Any]]:
        """The handler's coroutine, not awaited yet, and how its result is used."""
        request = message.original_request_info_event
        table = self.executor.table
        handler = table.find(message.data) if request is None else table.find_response(request.data, message.data)
        if handler is None:
            raise WorkflowRunnerException(
                f"Executor {self.full_id!r} no longer has a handler for {type(message.data).__qualname__}, but one "
                "is due in the checkpoint. Nothing was changed. Add the handler and resume."
            )
        # The mailbox keeps the message unchanged: if this superstep fails, it is delivered again.
        arguments: tuple[Any, ...] = (isolate(message.data),)
        if request is not None:
            arguments = (isolate(request.data), *arguments)
        if HOMES.keys() & sys.modules.keys():  # `has_twins()`, without a call for each delivery
            types = (handler.message_type,) if request is None else (handler.request_type, handler.message_type)
            arguments = tuple(map(in_family, arguments, types))
        if handler.takes_context:
            arguments += (context,)
        work = handler.function(self.executor, *arguments)
        seconds = self._policy.timeout if self.level.compiled.graph.policies else None
        if seconds is not None or handler.own_task:
            work = self._in_own_task(work, seconds, context)
        return handler.returns, work

    @property
    def _policy(self) -> FailurePolicy:
        policies = self.level.compiled.graph.policies
        return policies.get(self.executor_id, DEFAULT) if policies else DEFAULT

    def _complete(self, context: DeliveryContext, message: WorkflowMessage, effects: Effects) -> Effects:
        if context.used is not None or message.delivery_id in self.position.suspended:
            if take_off_suspension(context):  # the handler caught the cancellation
                return self._suspend(context.delivery)
            delivery = context.delivery
            if delivery.steps is not None:
                delivery.steps.end()
            if delivery.before is not None and delivery.before.waits:
                effects.also(withdrawn=delivery.before.waits)
        effects.sent_as = self.level.stands_in_for(message)
        return effects

    def _suspend(self, delivery: Delivery) -> Effects:
        effects = delivery.suspension_effects()
        effects.is_undone = True
        self.undo()
        return effects

    async def _apply_policy(self, error: BaseException, delivery: Delivery) -> Effects:
        """The effects of a failed delivery under its policy. Raises the error if it ends the superstep."""
        if self.scope.spans is not None:
            self.scope.spans.delivery_failed(self, error)
        try:
            effects = await apply_failure_policy(delivery, error, self._policy)
        except Exception as second:  # such as one of a user's retry_on
            self._fail(second)
            raise
        if effects is None:
            failure = delivery.journal_error or error
            events = delivery.effects.events
            self.failure_events = tuple(event for event in events if event.type.startswith("executor_"))
            self._fail(failure)
            raise failure
        effects.is_undone = True
        effects.sent_as = self.level.stands_in_for(delivery.message)
        self.undo()
        return effects

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        details = WorkflowErrorDetails.from_exception(error, executor_id=self.full_id)
        event = self.in_child(WorkflowEvent.executor_failed(self.full_id, details))
        self.scope.emit(event)
        self.failure_events = (*self.failure_events, event)

    def _is_cancelled(self) -> bool:
        """Whether the run was cancelled, rather than a task inside the handler."""
        return self.is_cancelling(asyncio.current_task())

    def is_cancelling(self, task: asyncio.Task[Any] | None) -> bool:
        if task is None or task is self.scope.task:
            return self.scope.is_cancelled()
        return task.cancelling() > 0

    def settle(self, effects: Effects, codec: Codec | None) -> None:
        """Complete the effects of a delivery with its in-place changes, so that it can be recorded by itself."""
        if effects.is_settled:
            return
        effects.is_settled = True
        if self.touched_state is not None:
            changed = self.touched_state.changed_in_place(codec)
            effects.write((key, Replaced(isolate(value))) for key, value in changed)
        if self.touched_private is not None:
            effects.private = isolate(self.touched_private)

    async def _in_own_task(
        self, work: Coroutine[Any, Any, Any], seconds: float | None, context: DeliveryContext
    ) -> Any:
        def run_by(task: asyncio.Task[Any]) -> None:
            context.task, context.has_own_task = task, True

        late = None if seconds is None else TimedOut(self.full_id, seconds)
        mark_cancelled = partial(setattr, context, "is_cancelled", True)
        return await run_with_timeout(seconds, work, self.scope.clock, late, run_by, mark_cancelled)

    def replay(self, message: WorkflowMessage, recorded: Effects) -> None:
        """Take the recorded outcome of a delivery instead of running it again."""
        bypassed = WorkflowEvent("executor_bypassed", _results(recorded), executor_id=self.full_id)
        recorded.events = []
        recorded.sent_as = self.level.stands_in_for(message)
        for event in (self.in_child(bypassed), *map(self.to_public, (*recorded.outputs, *recorded.requests))):
            self.emit(own_event(event), recorded)
        if recorded.requests and self.level.is_asked_outside:
            self.scope.on_request()
        for key, value in recorded.writes:
            self.write_again(key, value)
        if recorded.private is not None:
            self.replace_private(recorded.private)
        self.results.append(recorded)


def make_lane(scope: RunScope, level: Level, executor_id: str) -> Lane:
    position, is_root = level.position, level.parent is None
    full_id = executor_id if is_root else level.path + executor_id
    is_plain = is_root and not position.suspended
    return Lane(scope, level, executor_id, level.executors[executor_id], position, full_id, is_plain, scope.task)


_DATA = itemgetter(0)


def _results(effects: Effects) -> list[Any] | None:
    data = list(map(_DATA, effects.sends))
    for event in effects.outputs:
        data.append(event.data)
    return data or None
