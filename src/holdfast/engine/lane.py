"""A lane: the deliveries of one executor in one superstep, run one after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.engine.context import DeliveryContext
from holdfast.engine.effects import DELETED, Effects, Replaced
from holdfast.engine.state import LaneState
from holdfast.engine.telling import own_event
from holdfast.errors import HandlerCancelled, WorkflowRunnerException
from holdfast.events import WorkflowErrorDetails, WorkflowEvent
from holdfast.graph.handlers import Handler, Returns
from holdfast.graph.isolation import isolated
from holdfast.records import WorkflowMessage

if TYPE_CHECKING:
    from holdfast.codec import Codec
    from holdfast.engine.position import Position
    from holdfast.engine.scope import RunScope


class Lane:
    """Sees the position that the superstep started from, plus its own writes; never another lane's."""

    __slots__ = (
        "_private",
        "_scope",
        "_state",
        "executor",
        "executor_id",
        "failure",
        "messages",
        "position",
        "results",
    )

    def __init__(self, scope: RunScope, executor_id: str) -> None:
        self._scope = scope
        self.executor_id = executor_id
        self.executor = scope.thread.executors[executor_id]
        self.position: Position = scope.thread.position
        self.messages: list[WorkflowMessage] = []
        self.results: list[Effects] = []
        self.failure: BaseException | None = None
        self._state: LaneState | None = None
        self._private: dict[str, Any] | None = None

    @property
    def scope(self) -> RunScope:
        return self._scope

    @property
    def state(self) -> LaneState:
        if self._state is None:
            self._state = LaneState(self.position.state, self._scope.compiled.graph.reducers)
        return self._state

    @property
    def touched_state(self) -> LaneState | None:
        return self._state

    @property
    def private(self) -> dict[str, Any]:
        if self._private is None:
            self._private = isolated(self.position.private.get(self.executor_id, {}))
        return self._private

    @property
    def touched_private(self) -> dict[str, Any] | None:
        return self._private

    def tell(self, event: WorkflowEvent, effects: Effects) -> None:
        self._scope.emit(event)
        if self._scope.is_logged:
            effects.events.append(event)

    async def deliver(self, message: WorkflowMessage) -> Effects:
        """Run the handler for one message. Its effects are added to `results`."""
        effects = Effects()
        request = message.original_request_info_event
        table = self.executor.table
        handler = table.find(message.data) if request is None else table.find_response(request.data, message.data)
        if handler is None:
            raise WorkflowRunnerException(
                f"Executor {self.executor_id!r} has no handler for a {type(message.data).__qualname__} any more; one "
                "was due when the checkpoint was made. Nothing was changed. Add the handler and resume."
            )
        executor_id = self.executor_id
        self.tell(WorkflowEvent("executor_invoked", message.data, executor_id=executor_id), effects)
        context = DeliveryContext(self, message, effects)
        try:
            # The mailbox keeps the message as it was sent: should this superstep fail, it is delivered again.
            await self._call(handler, isolated(message.data), request, context)
        except asyncio.CancelledError as error:
            if self._is_cancelled():
                raise
            self.failure = HandlerCancelled(executor_id)
            details = WorkflowErrorDetails.from_exception(self.failure, executor_id=executor_id)
            self._scope.emit(WorkflowEvent("executor_failed", executor_id=executor_id, details=details))
            raise self.failure from error
        except BaseException as error:
            self.failure = error
            details = WorkflowErrorDetails.from_exception(error, executor_id=executor_id)
            self._scope.emit(WorkflowEvent("executor_failed", executor_id=executor_id, details=details))
            raise
        finally:
            context.end()
        self.tell(WorkflowEvent("executor_completed", _done(effects), executor_id=executor_id), effects)
        self.results.append(effects)
        return effects

    def _is_cancelled(self) -> bool:
        """Whether somebody cancelled the run, rather than something inside the handler a task of its own."""
        task = asyncio.current_task()
        if task is None or task is self._scope.task:
            return self._scope.is_cancelled()
        return task.cancelling() > 0

    def settle(self, effects: Effects, codec: Codec | None) -> None:
        """Complete the effects of a delivery that is to be recorded by itself, with what it changed in place."""
        if self._state is not None:
            changed = self._state.changed_in_place(codec)
            effects.writes += [(key, Replaced(isolated(value))) for key, value in changed]
        if self._private is not None:
            effects.private = isolated(self._private)

    async def _call(self, handler: Handler, data: Any, request: WorkflowEvent | None, context: DeliveryContext) -> None:
        arguments = (data,) if request is None else (isolated(request.data), data)
        if handler.takes_context:
            returned = await handler.function(self.executor, *arguments, context)
        else:
            returned = await handler.function(self.executor, *arguments)
        if returned is None or handler.returns is Returns.NOTHING:
            return
        if handler.returns is Returns.SENT:
            await context.send_message(returned)
        else:
            await context.yield_output(returned)

    def replay(self, recorded: Effects) -> None:
        """Take the outcome of a delivery that ended before an interruption, instead of running it again."""
        told = WorkflowEvent("executor_bypassed", _done(recorded), executor_id=self.executor_id)
        recorded.events = []
        for event in (told, *recorded.outputs, *recorded.requests):
            self.tell(own_event(event), recorded)
        if recorded.requests:
            self._scope.on_request()
        for key, value in recorded.writes:
            self.state.write(key, _own(value))
        if recorded.private is not None:
            self._private = isolated(recorded.private)
        self.results.append(recorded)


def _own(written: Any) -> Any:
    """The journal keeps what it has: should this superstep fail too, it is replayed once more."""
    if written is DELETED:
        return written
    return Replaced(isolated(written.value)) if isinstance(written, Replaced) else isolated(written)


def _done(effects: Effects) -> list[Any] | None:
    data = [data for data, _ in effects.sends]
    data += [event.data for event in effects.outputs]
    return data or None
