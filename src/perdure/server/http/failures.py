"""Errors as answers. What a caller can do something about is told; what is ours is logged, and told by its id."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.exceptions import (
    ClientException,
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    SerializationException,
    ValidationException,
)

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.http.answers import JSON, conflict_body, error_body
from perdure.server.http.visits import visit_of
from perdure.server.problems import Detail, Problem, problem_of

logger = get_logger("server")

AnyRequest = Request[Any, Any, Any]


def answer_problem(request: AnyRequest, problem: Problem) -> Response[bytes]:
    visit = visit_of(request.scope)
    said = Problem(
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
        return answer_problem(request, Problem(400, "bad_request", "The body is no JSON.", field="body"))
    logger.error("request %s failed", visit.request_id, exc_info=error)
    said = f"Something went wrong; the log of the server says what, under {visit.request_id}."
    if not visit.service.hides_errors:
        said = f"{said} ({type(error).__name__})"
    return answer_problem(request, Problem(500, "internal_error", said))


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
        if isinstance(cause, Problem):
            return answer_problem(request, cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ValidationException):
        return answer_problem(request, _of_fields(error))
    if isinstance(error, NotFoundException):
        return answer_problem(request, Problem(404, "no_such_route", "There is nothing at this path."))
    if isinstance(error, MethodNotAllowedException):
        headers = dict(error.headers or {})
        return answer_problem(request, Problem(405, "no_such_method", "This path has other methods.", headers=headers))
    if isinstance(error, ClientException | SerializationException):
        status = getattr(error, "status_code", 400)
        text = "The body is no JSON." if "JSON" in error.detail or status == 400 else error.detail
        return answer_problem(request, Problem(status, "bad_request", text, field="body"))
    if error.status_code < 500:
        return answer_problem(request, Problem(error.status_code, "bad_request", error.detail))
    return answer_unknown(request, error)


def _of_fields(error: ValidationException) -> Problem:
    extra = error.extra if isinstance(error.extra, list) else []
    if any(isinstance(one, dict) and one.get("message") == "'data'" for one in extra):  # Litestar's word for the body
        return Problem(400, "bad_request", "The body is missing: send JSON.", field="body")
    details = tuple(
        Detail(str(one.get("message", "")), str(one.get("key") or one.get("source") or ""))
        for one in extra
        if isinstance(one, dict)
    )
    said = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in details[:5])
    return Problem(422, "invalid_request", f"{said or 'The request does not fit.'}", details=details)
