"""A delivery while its handler runs: the engine's side of the context, and the policy for failures."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import MutableMapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec import Codec
from perdure.engine.delivery.replay import Frame, frame_of, frames_of
from perdure.engine.delivery.session import StepSession
from perdure.engine.thread.level import find_asking_child
from perdure.engine.thread.position import Effects, StateMapping, own_event
from perdure.engine.thread.state import DELETED, MISSING, Replaced
from perdure.errors import ContextEnded, UnsavableValue
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.graph import SubWorkflowResponseMessage, coerce_answer
from perdure.graph.policy import DEFAULT, ISOLATE, SKIP, FailurePolicy, RetryPolicy
from perdure.isolation import is_immutable, isolate
from perdure.records import Record, SuspendedDelivery, WorkflowMessage

if TYPE_CHECKING:
    from perdure.engine.delivery.context import DeliveryContext
    from perdure.engine.delivery.lane import Lane


RESULTS = frozenset({"output", "intermediate"})
"""Events that are results of the workflow. They count only if their delivery succeeds."""


class Delivery:
    """One message in one handler, and its outcome."""

    def __init__(self, lane: Lane, message: WorkflowMessage, effects: Effects, context: DeliveryContext) -> None:
        self.lane = lane
        self.message = message
        self.effects = effects
        suspended = lane.position.suspended
        self.before = suspended.get(message.delivery_id) if suspended else None
        """The delivery as it was last suspended; None if it runs for the first time."""
        self.asked: list[WorkflowEvent] = []
        """New requests whose answers it awaits itself."""
        self.emitted: list[WorkflowEvent] = []
        """The handler's own events as they left the engine, without those of the engine."""
        self._new: list[WorkflowEvent] = []
        """Events of the handler itself, those that an earlier run emitted included."""
        self._left = None if self.before is None else Counter(self.before.emitted)
        """Digests of events that an earlier run emitted and that this run has not repeated."""
        self._context = context
        self.steps: StepSession | None = None
        """None until the first recorded call."""
        self.is_over = False

    @property
    def session(self) -> StepSession:
        """Raises ContextEnded for a task that the handler left behind."""
        self.check_open()
        if self.steps is None:
            task = self._context.task
            assert task is not None  # noqa: S101  # set before the handler is called
            self.steps = self._context.steps = StepSession(self, task)
        return self.steps

    @property
    def frame(self) -> Frame | None:
        """The step of this delivery that runs in this task."""
        return None if self.steps is None else frame_of(self)

    def check_open(self) -> None:
        if self.is_over:
            raise ContextEnded(self.lane.executor_id)

    @property
    def is_cancelled(self) -> bool:
        """Whether the engine cancelled the handler: it was suspended, its run was cancelled, or a sibling failed."""
        if self._context.is_cancelled or (self.steps is not None and self.steps.waits.is_suspended):
            return True
        return not self._context.has_own_task and self.lane.is_cancelling(self._context.task)

    @property
    def idempotency_key(self) -> str:
        """Stable over all attempts of this delivery, or of the step that runs in it now. A rewind changes it."""
        frame = self.frame
        thread = self.lane.scope.thread
        step = "" if frame is None else frame.call.key
        parts = (thread.thread_id, thread.position.epoch, self.message.delivery_id, step)
        return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).hexdigest()

    def do_again(self, effects: Effects, *, is_news: bool) -> None:
        """Repeat the effects of a recorded step."""
        lane = self.lane
        self.sink.add(effects)
        for key, value in effects.writes:
            if isinstance(value, Replaced):
                self.remember_read(key, lane.state.get(key))
                lane.state.change_in_place(key, isolate(value.value))
            else:
                own = value if value is DELETED else isolate(value)
                self.remember_write(key)
                self.sink.write([(key, own)])
                lane.state.write(key, own)
        if effects.private is not None:
            private = self.private
            private.update(isolate(effects.private["changed"]))
            for key in effects.private["gone"]:
                private.pop(key, None)
        if is_news:
            for event in effects.outputs:
                lane.scope.emit(own_event(lane.to_public(event), replayed=True))

    @property
    def sink(self) -> Effects:
        """The effects that collect the handler's calls: its own, or those of the step that runs in this task.

        Raises ContextEnded for a task that the handler left behind.
        """
        self.check_open()
        frame = self.frame
        return self.effects if frame is None else frame.effects

    @property
    def requests_made(self) -> int:
        return len(self.effects.requests) + sum(len(frame.effects.requests) for frame in frames_of(self))

    def remember_write(self, key: str) -> None:
        """Remember the earlier writes of a state key, before a step writes it."""
        for frame in frames_of(self) if self.steps is not None else ():
            frame.written.setdefault(key, self.lane.state.list_writes(key))

    def remember_read(self, key: str, value: Any) -> None:
        """Remember a state value that a step reads: the step may change it in place."""
        for frame in frames_of(self) if self.steps is not None else ():
            if key not in frame.read and value is not MISSING and not is_immutable(value):
                frame.read[key] = isolate(value)

    @property
    def private(self) -> MutableMapping[str, Any]:
        """The executor's private state. A step remembers the value of each key before it uses the key."""
        private = self.lane.private

        def read(key: str) -> Any:
            value = private.get(key, MISSING)
            for frame in frames_of(self) if self.steps is not None else ():
                if key not in frame.private:
                    frame.private[key] = value if value is MISSING else isolate(value)
            return value

        def write(key: str, value: Any) -> None:
            read(key)
            private[key] = value

        return StateMapping(private.keys, read, write, private.__delitem__)

    def keep_frame(self, frame: Frame) -> None:
        """A step succeeded: add its effects to those of the enclosing step or handler."""
        outer = frame.outer
        around = outer.effects if outer is not None and outer.owner is self else self.effects
        around.add(frame.effects)
        around.write(write for write in frame.effects.writes if not isinstance(write[1], Replaced))

    def undo_frame(self, frame: Frame) -> None:
        """An attempt of a step failed: undo its writes and retract its events."""
        lane = self.lane
        for key, before in frame.written.items():
            mine = [value for name, value in frame.effects.writes if name == key]
            lane.state.take_back(key, mine, before)
        for key, then in frame.read.items() if lane.touched_state is not None else ():
            if key not in frame.written:
                lane.state.change_in_place(key, then)
        for key, value in frame.private.items():
            if value is MISSING:
                lane.private.pop(key, None)
            else:
                lane.private[key] = value
        lane.scope.retract(frame.emitted)

    def emit(self, event: WorkflowEvent) -> None:
        self.lane.emit(self.lane.in_child(event), self.effects)

    def emit_once(self, event: WorkflowEvent) -> None:
        """Emit to the consumer and the log. A suspended delivery runs again from the start and repeats its events:
        those of an earlier run are recognised by their digests, and emitted again only as `replayed`."""
        frame = None if self.steps is None else frame_of(self)
        if frame is None:  # a recorded step does not run again, so its events are new
            self._new.append(event)
            if self._left and self._is_repeated(event, self._left):
                return
        event = own_event(event)
        # A request stays pending when the step that made it runs again.
        (self.emitted if frame is None or event.type == "request_info" else frame.emitted).append(event)
        lane = self.lane
        if event.type in RESULTS:
            lane.scope.emitted_results.setdefault(self.message.delivery_id, []).append(event)
        lane.emit(event, self.effects)

    def _is_repeated(self, event: WorkflowEvent, left: Counter[str]) -> bool:
        digest, scope = _digest(event, self._codec), self.lane.scope
        if left[digest] <= 0:
            return False
        left[digest] -= 1
        if self.before is not None and self.before.run_id != scope.run_id:
            scope.emit(own_event(event, replayed=True))
        if event.type in RESULTS and scope.is_logged:
            self.effects.events.append(event)  # emitted before, but logged only when its delivery ends
        return True

    @property
    def _codec(self) -> Codec:
        scope = self.lane.scope
        return scope.codec or scope.compiled.codec

    def suspension_effects(self) -> Effects:
        """The effects of a suspended delivery: its requests and records so far. It repeats all else."""
        session = self.steps
        assert session is not None  # noqa: S101  # asked only of a delivery that is suspended
        effects = Effects()
        waits = session.waits.requests
        effects.requests = [request for request in self.asked if request.request_id in waits]
        # Its results are logged when it has ended: it may yet fail.
        effects.events = [event for event in self.effects.events if event.type not in RESULTS]
        emitted = Counter(_digest(event, self._codec) for event in self._new)
        waited: tuple[str, ...] = ()
        if self.before is not None:
            emitted |= Counter(self.before.emitted)
            waited = self.before.waits
        suspended = SuspendedDelivery(
            self.message,
            session.waits.due_at,
            waits,
            tuple(session.recorder.records),
            emitted=tuple(emitted.elements()),
            run_id=self.lane.scope.run_id,
        )
        effects.also(suspended=suspended, withdrawn=tuple(request for request in waited if request not in waits))
        return effects

    @property
    def journal_error(self) -> Exception | None:
        """Why its records cannot be stored. The delivery then fails, even if its handler catches the error."""
        return None if self.steps is None else self.steps.recorder.journal_error

    async def close(self) -> None:
        """Cancel and await the calls that the handler left running. Not while the event loop is closing: nothing can
        be awaited then."""
        if self.steps is not None and sys.exc_info()[0] is not GeneratorExit:
            await self.steps.close()

    def start_child(self) -> None:
        self.effects.also(message=self.message, is_start=True)

    def answer_child(self, answer: SubWorkflowResponseMessage) -> None:
        """Deliver the answer to a child; drop a late answer with a warning. Raises AnswerRejected for a wrong type."""
        lane, asked = self.lane, answer.source_event
        request_id = str(asked.request_id)
        children = lane.position.children
        child_id = find_asking_child(lane.position, lane.executor_id, asked)
        if child_id is None:
            text = (
                f"The answer to request {request_id!r} was dropped: no child of {lane.full_id!r} waits for it any more."
            )
            self.emit(WorkflowEvent("warning", text, executor_id=lane.full_id))
            return
        request = children[child_id].position.requests[request_id]
        value = coerce_answer(request, answer.data)
        self.effects.also(answers=(*self.effects.answers, SubWorkflowResponseMessage(isolate(value), asked)))


def _digest(event: WorkflowEvent, codec: Codec) -> str:
    try:
        data = codec.encode(event.data, "event")
    except UnsavableValue:
        data = type(event.data).__qualname__
    content = msgspec.json.encode([event.type, event.executor_id, getattr(event, "request_id", None), data])
    return hashlib.blake2b(content, digest_size=8).hexdigest()


async def apply_failure_policy(delivery: Delivery, error: BaseException, policy: FailurePolicy) -> Effects | None:
    """The effects of a failed delivery under its policy; None if the failure ends the superstep."""
    lane, message = delivery.lane, delivery.message
    may_retry = delivery.steps is None or await delivery.steps.recorder.take_back_failures(error)
    if policy is DEFAULT or delivery.journal_error is not None or not isinstance(error, Exception):
        return None
    records = lane.scope.journal.records_of(message, lane.position)
    earlier = [place for place, record in enumerate(records) if record.kind == "attempt" and not record.key]
    attempts = 1 + len(earlier)
    if policy.retry is not None and may_retry and policy.retry.retries(error, attempts):
        return await _retry(delivery, error, attempts, policy.retry)
    met = _step_over(delivery, error, policy) if policy.contains else None
    if met is None and earlier:  # the failure is final: a resume starts with all attempts again
        await lane.scope.journal.take_back(message.delivery_id, earlier)
    return met


async def _retry(delivery: Delivery, error: Exception, attempts: int, retry: RetryPolicy) -> Effects:
    """Suspend the delivery until its next attempt. Its records stay; it repeats all else."""
    lane, message = delivery.lane, delivery.message
    scope = lane.scope
    delay = retry.delay_after(attempts)
    until = scope.clock.now() + timedelta(seconds=delay)
    records = scope.journal.records_of(message, lane.position)
    attempt = Record("attempt", value=scope.journal.kept_error(error), until=until)
    await scope.journal.append(message.delivery_id, attempt)
    effects = _failure_effects(delivery, error)
    suspended = SuspendedDelivery(message, until, _still_asked(lane, message), tuple(records), run_id=scope.run_id)
    effects.also(suspended=suspended)
    _report(lane, effects, "executor_retrying", error, {"attempt": attempts, "delay_seconds": delay})
    return effects


def _step_over(delivery: Delivery, error: Exception, policy: FailurePolicy) -> Effects | None:
    lane, message = delivery.lane, delivery.message
    fallback_id = lane.level.compiled.graph.fallbacks.get(lane.executor_id)
    if fallback_id is not None and not lane.level.compiled.graph.executors[fallback_id].can_handle(message):
        return None  # such as an answer that only the failed executor accepts
    effects = _failure_effects(delivery, error)
    effects.also(
        message=message,
        withdrawn=_still_asked(lane, message),
        is_isolated=policy.on_error == ISOLATE,
        forwarded_to=fallback_id,
    )
    mode = policy.on_error if policy.on_error in (SKIP, ISOLATE) else f"fallback {fallback_id}"
    _report(lane, effects, "executor_skipped", error, mode)
    return effects


def _failure_effects(delivery: Delivery, error: Exception) -> Effects:
    """The effects of a failed attempt: only the events of its start and its failure. Retracts all other events."""
    lane = delivery.lane
    effects = Effects()
    effects.events = [event for event in delivery.effects.events if event.type.startswith("executor_")]
    earlier = lane.scope.emitted_results.pop(delivery.message.delivery_id, [])
    lane.scope.retract([*delivery.emitted, *earlier])
    effects.is_settled = True
    _report(lane, effects, "executor_failed", error)
    return effects


def _report(lane: Lane, effects: Effects, kind: str, error: Exception, data: Any = None) -> None:
    details = WorkflowErrorDetails.from_exception(error, executor_id=lane.full_id)
    data = details if kind == "executor_failed" else data
    lane.emit(lane.in_child(WorkflowEvent(kind, data, executor_id=lane.full_id, details=details)), effects)


def _still_asked(lane: Lane, message: WorkflowMessage) -> tuple[str, ...]:
    before = lane.position.suspended.get(message.delivery_id)
    return () if before is None else before.waits
