"""Requests of a thread: their terms, answers and passed deadlines. Each changes a copy of the position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from msgspec.structs import replace

from perdure.codec import Encoded
from perdure.engine.thread.level import change_asking_level, find_asking_level
from perdure.engine.thread.position import Position, every_level
from perdure.errors import (
    AlreadyAnswered,
    InvalidRun,
    NoPendingRequests,
    NoResponseHandler,
    RequestExpired,
    RequestWithdrawn,
    UnknownRequest,
    type_name,
)
from perdure.events import RequestTerms, WorkflowEvent
from perdure.graph.coercion import coerce
from perdure.graph.graph import Graph, coerce_answer
from perdure.isolation import isolate
from perdure.names import check_identifier
from perdure.records import Answer, MessageType, Record, WorkflowMessage


class Terms(TypedDict, total=False):
    deadline: datetime | None
    default: Any
    assignee: str | None


def make_terms(
    response_type: Any, deadline: datetime | None = None, default: Any = ..., assignee: str | None = None
) -> RequestTerms | None:
    """The terms of a request. Raises InvalidRun for terms that cannot be met."""
    check_identifier("assignee", assignee)
    if deadline is not None and not isinstance(deadline, datetime):
        raise InvalidRun(f"A deadline is a datetime with a time zone, got {deadline!r}.")
    if deadline is not None and deadline.tzinfo is None:
        raise InvalidRun(f"A deadline needs a time zone, got {deadline!r}: try deadline.replace(tzinfo=UTC).")
    if default is not ...:
        if deadline is None:
            raise InvalidRun("A request's default is delivered when its deadline passes: give a deadline too.")
        try:
            default = isolate(coerce(default, response_type))
        except (ValueError, TypeError) as error:
            raise InvalidRun(
                f"The default of a request must be an answer to it: expected {type_name(response_type)}, got "
                f"{type_name(type(default))} ({error})."
            ) from error
    return RequestTerms(deadline, default, assignee) if deadline or assignee else None


def check_answers(graph: Graph, thread_id: str, position: Position, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers, coerced to their response types, without repetitions of earlier ones. Raises if any is invalid; then
    none is accepted."""
    if not position.requests and not any(request_id in position.answered for request_id in answers):
        raise NoPendingRequests(thread_id)
    checked: dict[str, Any] = {}
    for request_id, answer in answers.items():
        request = position.requests.get(request_id)
        if request is None:
            settled = position.answered.get(request_id)
            if settled is None:
                raise UnknownRequest(request_id, thread_id, position.requests)
            if settled.expired_for is not None:
                raise RequestExpired(request_id, settled.expired_for, settled.answered_at)
            # Beside new answers, or to repeat a run that failed after its answers.
            may_repeat = bool(position.requests.keys() & answers) or position.is_interrupted
            if may_repeat and not settled.is_withdrawn and _repeats(position, request_id, answer):
                continue
            raise (RequestWithdrawn if settled.is_withdrawn else AlreadyAnswered)(request_id, thread_id)
        checked[request_id] = isolate(_check_answer(graph, position, request, answer))
    return checked


def _repeats(position: Position, request_id: str, answer: Any) -> bool:
    """Whether the answer equals the one that a suspended delivery has from this request."""
    for level in every_level(position):
        for delivery in level.suspended.values():
            for record in reversed(delivery.records):
                if record.kind == "answered" and _is_about(record.key, request_id):
                    value = record.value
                    value = value.codec.decode(value.tree, "answer") if isinstance(value, Encoded) else value
                    try:
                        return bool(coerce(answer, type(value)) == value)
                    except (ValueError, TypeError):
                        return False
    return False


def _check_answer(graph: Graph, position: Position, request: WorkflowEvent, answer: Any) -> Any:
    value = coerce_answer(request, answer)
    source = find_asking_level(graph, position, request)
    if source is None:
        raise UnknownRequest(str(request.request_id), str(request.source_executor_id), ())
    graph, level, asker = source
    if any(request.request_id in delivery.waits for delivery in level.suspended.values()):
        return value  # it awaits the answer itself, without a response handler
    if graph.executors[asker].table.find_response(request.data, value) is None:
        raise NoResponseHandler(str(request.source_executor_id), type(request.data), type(value))
    return value


def deliver_answers(
    position: Position,
    answers: Mapping[str, Any],
    now: datetime,
    next_delivery_id: int | None = None,
    answered_by: str | None = None,
) -> Position:
    """A position in which each answer is due to the executor that asked. `position` is not changed."""
    after = position.successor()
    if next_delivery_id is not None:
        after.next_delivery_id = next_delivery_id
    for request_id, value in answers.items():
        after = _deliver(after, after.requests[request_id], value, Answer(now, answered_by))
    return after


def _deliver(position: Position, request: WorkflowEvent, value: Any, how: Answer) -> Position:
    request_id, delivery_id = str(request.request_id), position.next_delivery_id

    def answer(level: Position, asked: WorkflowEvent) -> Position:
        woken = _wake(level, request_id, Record("answered", request_key(request_id), "request", value=value))
        if woken is not None:
            return woken
        asker = str(asked.source_executor_id)
        due = WorkflowMessage(value, f"internal:{asker}", asker, MessageType.RESPONSE, asked, None, delivery_id)
        return replace(level, mailbox=[*level.mailbox, due])

    after = _settle(position, request, how, answer)
    after.next_delivery_id = delivery_id + 1
    return after


def _settle(
    position: Position, request: WorkflowEvent, how: Answer, change: Callable[[Position, WorkflowEvent], Position]
) -> Position:
    """A position in which the request is no longer pending, and the level that made it is changed."""
    request_id = str(request.request_id)
    requests = {key: pending for key, pending in position.requests.items() if key != request_id}
    after = replace(position, requests=requests, answered={**position.answered, request_id: how})
    if request.child_id is None:
        return change(after, request)

    def change_child(level: Position, asked: WorkflowEvent) -> Position:
        changed = change(level, asked)
        return replace(changed, asked=changed.asked - {request_id}, since_input=0)

    return change_asking_level(after, request, change_child) or change(after, request)


def cancel_requests(position: Position, request_ids: Iterable[str], now: datetime) -> Position:
    """A position without these requests; ids that are not pending are ignored. A delivery that awaits an answer gets
    RequestWithdrawn."""
    after = position.successor()
    for request_id in request_ids:
        if request_id in after.requests:
            after = _expire(after, after.requests[request_id], Answer(now, is_withdrawn=True), [])
    return after


def request_key(request_id: str, occurrence: int = 1) -> str:
    """The record key of the answer to a request. `occurrence` counts the uses of one id in a delivery."""
    return f"request {request_id}" if occurrence == 1 else f"request {request_id} #{occurrence}"


def _wake(level: Position, request_id: str, record: Record) -> Position | None:
    """The level with the delivery that waits for the request made ready; None if none waits."""
    for delivery_id, delivery in level.suspended.items():
        if request_id in delivery.waits:
            waits = tuple(key for key in delivery.waits if key != request_id)
            earlier = [old for old in delivery.records if old.name == "request" and _is_about(old.key, request_id)]
            settled = replace(record, key=request_key(request_id, len(earlier) + 1))
            ready = replace(delivery, records=(*delivery.records, settled), is_ready=True, waits=waits)
            return replace(level, suspended={**level.suspended, delivery_id: ready})
    return None


def _is_about(key: str, request_id: str) -> bool:
    first = request_key(request_id)
    return key == first or (key.startswith(f"{first} #") and key[len(first) + 2 :].isdigit())


def pass_deadlines(position: Position, now: datetime) -> tuple[Position, list[WorkflowEvent]]:
    """Settle requests whose deadline has passed: deliver their default, or expire them with an `error` event."""
    expired: list[WorkflowEvent] = []
    return _pass_deadlines(position, now, expired, ""), expired


def _pass_deadlines(position: Position, now: datetime, expired: list[WorkflowEvent], path: str) -> Position:
    """Pass those of one level, then those of requests that its sub-workflows make to their parents."""
    for request in list(position.requests.values()):
        terms = request.terms
        if terms is None or terms.deadline is None or terms.deadline > now:
            continue
        if terms.default is not ...:
            position = _deliver(position, request, terms.default, Answer(now))
        else:
            how = Answer(terms.deadline, expired_for=f"{path}{request.source_executor_id}")
            position = _expire(position, request, how, expired)
    for child_id, child in position.children.items():
        first = replace(child.position, next_delivery_id=position.next_delivery_id)
        inner = _pass_deadlines(first, now, expired, f"{path}{child.executor_id}/")
        if inner is not first:
            children = {**position.children, child_id: child.at(inner)}
            position = replace(position, children=children, next_delivery_id=inner.next_delivery_id)
    return position


def _expire(position: Position, request: WorkflowEvent, how: Answer, expired: list[WorkflowEvent]) -> Position:
    """Settle a request without an answer. If its deadline passed and no delivery awaits the answer, `expired` gets an
    `error` event."""
    request_id, asker = str(request.request_id), how.expired_for
    until = None if asker is None else how.answered_at

    def change(level: Position, asked: WorkflowEvent) -> Position:
        woken = _wake(level, request_id, Record("expired", request_key(request_id), "request", until=until))
        if woken is None and asker is not None:
            error = RequestExpired(request_id, asker, until)
            expired.append(WorkflowEvent("error", error, executor_id=asker, child_id=request.child_id))
        return woken or level

    return _settle(position, request, how, change)
