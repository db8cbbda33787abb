"""Failed deliveries: tried again, stepped over, or handed to another executor, as their policy says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.engine.effects import Effects
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.policy import DEFAULT, ISOLATE, SKIP, FailurePolicy, RetryPolicy
from perdure.records import Record, SuspendedDelivery, WorkflowMessage

if TYPE_CHECKING:
    from perdure.engine.delivery.delivery import Delivery
    from perdure.engine.delivery.lane import Lane


async def apply_failure_policy(delivery: Delivery, error: BaseException, policy: FailurePolicy) -> Effects | None:
    """What the delivery comes to; None if its failure is to end the superstep."""
    lane, message = delivery.lane, delivery.message
    may_retry = await delivery.failed(error)
    if policy is DEFAULT or delivery.broken is not None or not isinstance(error, Exception):
        return None
    attempts = 1 + _recorded_attempts(lane, message)
    if policy.retry is not None and may_retry and policy.retry.retries(error, attempts):
        return await _retried(delivery, error, attempts, policy.retry)
    met = _stepped_over(delivery, error, policy) if policy.contains else None
    if met is None and attempts > 1:  # it failed for good: should it be resumed, it has all its attempts again
        await _forget_attempts(lane, message)
    return met


async def _forget_attempts(lane: Lane, message: WorkflowMessage) -> None:
    records = lane.scope.journal.records_of(message, lane.position)
    places = [place for place, one in enumerate(records) if one.kind == "attempt" and not one.key]
    await lane.scope.journal.take_back(message.delivery_id, places)


def _recorded_attempts(lane: Lane, message: WorkflowMessage) -> int:
    records = lane.scope.journal.records_of(message, lane.position)
    return sum(one.kind == "attempt" and not one.key for one in records)


async def _retried(delivery: Delivery, error: Exception, attempts: int, retry: RetryPolicy) -> Effects:
    """It waits for its next attempt; what it recorded stays recorded, all else is done again."""
    lane, message = delivery.lane, delivery.message
    scope = lane.scope
    delay = retry.delay_after(attempts)
    until = scope.clock.now() + timedelta(seconds=delay)
    records = scope.journal.records_of(message, lane.position)
    await scope.journal.append(
        message.delivery_id, Record("attempt", value=scope.journal.kept_error(error), until=until)
    )
    effects = _failed(delivery, error)
    suspended = SuspendedDelivery(message, until, _still_asked(lane, message), tuple(records), run_id=scope.run_id)
    effects.also(suspended=suspended)
    told = {"attempt": attempts, "delay_seconds": delay}
    details = WorkflowErrorDetails.from_exception(error, executor_id=lane.full_id)
    event = WorkflowEvent("executor_retrying", told, executor_id=lane.full_id, details=details)
    lane.emit(lane.in_child(event), effects)
    return effects


def _stepped_over(delivery: Delivery, error: Exception, policy: FailurePolicy) -> Effects | None:
    lane, message = delivery.lane, delivery.message
    fallback_id = lane.level.compiled.graph.fallbacks.get(lane.executor_id)
    if fallback_id is not None and not lane.level.compiled.graph.executors[fallback_id].can_handle(message):
        return None  # such as the answer to a question that only the failed executor could take
    effects = _failed(delivery, error)
    effects.also(
        message=message,
        withdrawn=_still_asked(lane, message),
        is_isolated=policy.on_error == ISOLATE,
        forwarded_to=fallback_id,
    )
    mode = policy.on_error if policy.on_error in (SKIP, ISOLATE) else f"fallback {fallback_id}"
    details = WorkflowErrorDetails.from_exception(error, executor_id=lane.full_id)
    event = WorkflowEvent("executor_skipped", mode, executor_id=lane.full_id, details=details)
    lane.emit(lane.in_child(event), effects)
    return effects


def _failed(delivery: Delivery, error: Exception) -> Effects:
    """In place of what it did: that it ran, and failed. What it told beside that does not count."""
    lane = delivery.lane
    effects = Effects()
    effects.events = [one for one in delivery.effects.events if one.type.startswith("executor_")]
    earlier = lane.scope.emitted_results.pop(delivery.message.delivery_id, [])
    lane.scope.retract([*delivery.told, *earlier])
    effects.is_settled = True
    details = WorkflowErrorDetails.from_exception(error, executor_id=lane.full_id)
    lane.emit(lane.in_child(WorkflowEvent("executor_failed", executor_id=lane.full_id, details=details)), effects)
    return effects


def _still_asked(lane: Lane, message: WorkflowMessage) -> tuple[str, ...]:
    before = lane.position.suspended.get(message.delivery_id)
    return () if before is None else before.waits
