"""What every answer looks like: data or an error, and what the request was known by."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from litestar import Response
from litestar.openapi.datastructures import ResponseSpec

from perdure.server.problems import Detail, Problem

JSON = "application/json"


class Metadata(msgspec.Struct, frozen=True):
    request_id: str
    timestamp: float
    message: str = "OK"


class Reply(msgspec.Struct, frozen=True):
    """What a request gave."""

    data: Any
    metadata: Metadata


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    """For machines: it does not change."""
    message: str
    details: tuple[Detail, ...]
    limit: int | None = None
    """429 of the rate limit: so many requests,"""
    window_seconds: float | None = None
    """in so many seconds."""
    retry_after_seconds: int | None = None
    """When to come again."""


class ErrorReply(msgspec.Struct, frozen=True):
    """Why a request was not served."""

    error: ErrorBody
    metadata: Metadata


class StateConflict(msgspec.Struct, frozen=True):
    """What AgentFlow answers when somebody else moves the thread."""

    error: str
    detail: str
    thread_id: str | None = None


_encoder = msgspec.json.Encoder()


def reply(request_id: str, data: Any, *, status: int = 200, message: str = "OK") -> Response[Reply]:
    body = _encoder.encode(Reply(data, Metadata(request_id, time.time(), message)))
    return Response(body, status_code=status, media_type=JSON)  # type: ignore[arg-type]  # encoded already


def error_body(request_id: str, problem: Problem) -> bytes:
    error = ErrorBody(
        problem.code,
        problem.message,
        problem.details,
        problem.limit,
        problem.window_seconds,
        problem.retry_after_seconds,
    )
    return _encoder.encode(ErrorReply(error, Metadata(request_id, time.time(), problem.message)))


def conflict_body(problem: Problem) -> bytes:
    return _encoder.encode(StateConflict("state_conflict", problem.message, problem.thread_id))


_MEANINGS = {
    400: "The request cannot be read.",
    401: "Nobody is known by these credentials.",
    403: "This is not theirs to do.",
    404: "There is no such thing, or not for them.",
    408: "The body took too long to come.",
    405: "There is no such method here.",
    409: "It does not go together with where the thread stands.",
    410: "What followed the cursor was forgotten.",
    413: "The body is too large.",
    422: "Something in the request is wrong.",
    429: "Too many at once.",
    502: "The workflow's own code failed.",
    503: "The storage cannot be reached, or the server is stopping.",
    504: "The run goes on, longer than the request waits.",
}


def errors(*statuses: int) -> dict[int, ResponseSpec]:
    """What a route may answer beside its data, for the OpenAPI document."""
    always = (400, 401, 403, 408, 413, 422, 429, 503)
    return {
        status: ResponseSpec(ErrorReply, description=_MEANINGS[status], generate_examples=False)
        for status in sorted({*always, *statuses})
    }


def errors_of_agentflow(*statuses: int) -> dict[int, ResponseSpec]:
    """The same, with the form that AgentFlow gives a conflict."""
    found = errors(*statuses)
    found[409] = ResponseSpec(StateConflict, description=_MEANINGS[409], generate_examples=False)
    return found
