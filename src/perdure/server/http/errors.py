"""Errors as answers. What a caller can do something about is told; what is ours is logged, and told by its id."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    ClientException,
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    SerializationException,
    ValidationException,
)
from litestar.openapi.datastructures import ResponseSpec

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.http.request_context import visit_of
from perdure.server.problems import Detail, HttpProblem, problem_of

# ---------------------------------------------------------------- answers


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


class StateConflictResponse(msgspec.Struct, frozen=True):
    """What AgentFlow answers when somebody else moves the thread."""

    error: str
    detail: str
    thread_id: str | None = None


_encoder = msgspec.json.Encoder()


def reply(request_id: str, data: Any, *, status: int = 200, message: str = "OK") -> Response[Reply]:
    body = _encoder.encode(Reply(data, Metadata(request_id, time.time(), message)))
    return Response(body, status_code=status, media_type=JSON)  # type: ignore[arg-type]  # encoded already


def error_body(request_id: str, problem: HttpProblem) -> bytes:
    error = ErrorBody(
        problem.code,
        problem.message,
        problem.details,
        problem.limit,
        problem.window_seconds,
        problem.retry_after_seconds,
    )
    return _encoder.encode(ErrorReply(error, Metadata(request_id, time.time(), problem.message)))


def conflict_body(problem: HttpProblem) -> bytes:
    return _encoder.encode(StateConflictResponse("state_conflict", problem.message, problem.thread_id))


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
    found[409] = ResponseSpec(StateConflictResponse, description=_MEANINGS[409], generate_examples=False)
    return found


logger = get_logger("server")

AnyRequest = Request[Any, Any, Any]


def answer_problem(request: AnyRequest, problem: HttpProblem) -> Response[bytes]:
    visit = visit_of(request.scope)
    said = HttpProblem(
        problem.status,
        problem.code,
        visit.space.said(problem.message),
        details=tuple(Detail(visit.space.said(one.message), one.field) for one in problem.details),
        headers=problem.headers,
        thread_id=None if problem.thread_id is None else visit.space.outside(problem.thread_id),
        limit=problem.limit,
        window_seconds=problem.window_seconds,
    )
    handler: Any = request.scope.get("route_handler")  # none where no route was found
    is_agentflow = problem.status == 409 and handler is not None and handler.opt.get("agentflow")
    body = conflict_body(said) if is_agentflow else error_body(visit.request_id, said)
    return Response(body, status_code=said.status, media_type=JSON, headers=said.headers)


def answer_perdure(request: AnyRequest, error: PerdureError) -> Response[bytes]:
    problem = problem_of(error)
    if problem is None:
        return answer_unknown(request, error)
    if problem.status == 503 and error is not problem:  # the caller is not told where the storage is
        logger.warning("request %s: %s", visit_of(request.scope).request_id, error)
    return answer_problem(request, problem)


def answer_unknown(request: AnyRequest, error: Exception) -> Response[bytes]:
    visit = visit_of(request.scope)
    if isinstance(error, UnicodeDecodeError | RecursionError) and _is_of_body(error):
        return answer_problem(request, HttpProblem(400, "bad_request", "The body is no JSON.", field="body"))
    logger.error("request %s failed", visit.request_id, exc_info=error)
    said = f"Something went wrong; the log of the server says what, under {visit.request_id}."
    if not visit.service.hides_errors:
        said = f"{said} ({type(error).__name__})"
    return answer_problem(request, HttpProblem(500, "internal_error", said))


def _is_of_body(error: BaseException) -> bool:
    """Whether it was raised where Litestar reads a body, which knows of fewer things that can be wrong with one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and "msgspec_hooks" in trace.tb_frame.f_code.co_filename


def answer_http(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    """What Litestar refuses."""
    cause: BaseException | None = error
    while cause is not None:  # a body that is too large is noticed while Litestar reads it
        if isinstance(cause, HttpProblem):
            return answer_problem(request, cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ValidationException):
        return answer_problem(request, _of_fields(error))
    if isinstance(error, NotFoundException):
        return answer_problem(request, HttpProblem(404, "no_such_route", "There is nothing at this path."))
    if isinstance(error, MethodNotAllowedException):
        headers = dict(error.headers or {})
        return answer_problem(
            request, HttpProblem(405, "no_such_method", "This path has other methods.", headers=headers)
        )
    if isinstance(error, ClientException | SerializationException):
        status = getattr(error, "status_code", 400)
        text = "The body is no JSON." if "JSON" in error.detail or status == 400 else error.detail
        return answer_problem(request, HttpProblem(status, "bad_request", text, field="body"))
    if error.status_code < 500:
        return answer_problem(request, HttpProblem(error.status_code, "bad_request", error.detail))
    return answer_unknown(request, error)


def _of_fields(error: ValidationException) -> HttpProblem:
    extra = error.extra if isinstance(error.extra, list) else []
    if any(isinstance(one, dict) and one.get("message") == "'data'" for one in extra):  # Litestar's word for the body
        return HttpProblem(400, "bad_request", "The body is missing: send JSON.", field="body")
    details = tuple(
        Detail(str(one.get("message", "")), str(one.get("key") or one.get("source") or ""))
        for one in extra
        if isinstance(one, dict)
    )
    said = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in details[:5])
    return HttpProblem(422, "invalid_request", f"{said or 'The request does not fit.'}", details=details)
