"""Questions to people: answers checked before they are accepted, and deadlines that pass."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.engine.position import Position
from holdfast.errors import (
    AlreadyAnswered,
    AnswerRejected,
    InvalidRun,
    NoPendingRequests,
    NoResponseHandler,
    RequestExpired,
    UnknownRequest,
    type_name,
)
from holdfast.events import RequestTerms, WorkflowEvent
from holdfast.graph.coercion import coerce
from holdfast.graph.graph import Graph
from holdfast.graph.isolation import isolated
from holdfast.records import Answer, MessageType, WorkflowMessage


def agreed_terms(
    response_type: Any, deadline: datetime | None, default: Any, assignee: str | None
) -> RequestTerms | None:
    """What a request says beside its question. Raises InvalidRun for terms that could never be kept."""
    if deadline is not None and not isinstance(deadline, datetime):
        raise InvalidRun(f"A deadline is a datetime with a time zone, got {deadline!r}.")
    if deadline is not None and deadline.tzinfo is None:
        raise InvalidRun(f"A deadline needs a time zone, got {deadline!r}: try deadline.replace(tzinfo=UTC).")
    if default is not ... and deadline is None:
        raise InvalidRun("A request's default is delivered when its deadline passes: give a deadline too.")
    if default is not ...:
        try:
            default = isolated(coerce(default, response_type))
        except (ValueError, TypeError) as error:
            raise InvalidRun(
                f"The default of a request must be an answer to it: expected {type_name(response_type)}, got "
                f"{type_name(type(default))} ({error})."
            ) from error
    return RequestTerms(deadline, default, assignee) if deadline or assignee else None


def check_answers(graph: Graph, thread_id: str, position: Position, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers, coerced to what was asked for. All of them are sound, or an error is raised and none counts."""
    if not position.requests and not any(request_id in position.answered for request_id in answers):
        raise NoPendingRequests(thread_id)
    checked = {}
    for request_id, answer in answers.items():
        request = position.requests.get(request_id)
        if request is None:
            settled = position.answered.get(request_id)
            if settled is not None and settled.expired_for is not None:
                raise RequestExpired(request_id, settled.expired_for, settled.answered_at)
            if settled is not None:
                raise AlreadyAnswered(request_id, thread_id)
            raise UnknownRequest(request_id, thread_id, position.requests)
        checked[request_id] = isolated(_checked(graph, request, answer))
    return checked


def _checked(graph: Graph, request: WorkflowEvent, answer: Any) -> Any:
    try:
        value = coerce(answer, request.response_type)
    except (ValueError, TypeError) as error:
        raise AnswerRejected(str(request.request_id), request.response_type, answer, str(error)) from error
    executor = graph.executors[str(request.source_executor_id)]
    if executor.table.find_response(request.data, value) is None:
        raise NoResponseHandler(executor.id, type(request.data), type(value))
    return value


def deliver_answers(position: Position, answers: Mapping[str, Any], now: datetime) -> Position:
    """The position in which each answer is due to whoever asked. The position given is left as it is."""
    after = position.successor()
    after.requests = dict(position.requests)
    after.answered = dict(position.answered)
    after.mailbox = list(position.mailbox)
    for request_id, value in answers.items():
        request = after.requests.pop(request_id)
        asker = str(request.source_executor_id)
        after.answered[request_id] = Answer(now)
        after.mailbox.append(
            WorkflowMessage(
                value, f"internal:{asker}", asker, MessageType.RESPONSE, request, None, after.next_delivery_id
            )
        )
        after.next_delivery_id += 1
    return after


def pass_deadlines(position: Position, now: datetime) -> tuple[Position, list[WorkflowEvent]]:
    """Requests whose time is over: their default is delivered, or they expire with an `error` event."""
    due = [one for one in position.requests.values() if one.terms and one.terms.deadline and one.terms.deadline <= now]
    if not due:
        return position, []
    defaults = {str(one.request_id): one.terms.default for one in due if one.terms and one.terms.default is not ...}
    after = deliver_answers(position, defaults, now)
    expired = []
    for request in due:
        request_id = str(request.request_id)
        if request_id in after.requests and request.terms:
            del after.requests[request_id]
            asker, deadline = str(request.source_executor_id), request.terms.deadline
            after.answered[request_id] = Answer(deadline or now, expired_for=asker)
            error = RequestExpired(request_id, asker, deadline)
            expired.append(WorkflowEvent("error", error, executor_id=request.source_executor_id))
    return after, expired


def next_deadline(position: Position) -> datetime | None:
    deadlines = [one.terms.deadline for one in position.requests.values() if one.terms and one.terms.deadline]
    return min(deadlines, default=None)
