"""Responses: data, and errors. Callers see errors that they can act on; others are logged under the request id."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.openapi.datastructures import ResponseSpec

from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.http.middleware import OwnRequest, send_json
from perdure.server.problems import (
    Detail,
    ErrorReply,
    HttpProblem,
    Metadata,
    StateConflictResponse,
    encoder,
    error_body,
    problem_of,
)


class Reply(msgspec.Struct, frozen=True):
    """The body of a successful response."""

    data: Any
    metadata: Metadata


class JsonResponse(Response[Any]):
    """JSON that is encoded already: sent as it is, without what else a response of Litestar can hold."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str] | None = None) -> None:
        self.body, self.status_code, self.headers = body, status, dict(headers or {})

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        return self._send

    async def _send(self, scope: Any, receive: Any, send: Any) -> None:
        await send_json(send, self.status_code or 200, self.body, self.headers)


def reply(request: OwnRequest, data: Any, *, status: int = 200, message: str = "OK") -> Response[Reply]:
    return JsonResponse(encoder.encode(Reply(data, Metadata(request.visit.request_id, time.time(), message))), status)


_MEANINGS = {
    400: "The request cannot be read.",
    401: "The credentials are missing or not valid.",
    403: "The caller lacks the required scope.",
    404: "Not found among the caller's resources.",
    408: "The body took too long to arrive.",
    405: "The path does not support this method.",
    409: "The request conflicts with the state of the thread.",
    410: "The events after the cursor were pruned.",
    413: "The body is too large.",
    422: "The request is not valid.",
    429: "Too many requests, runs or streams.",
    502: "The workflow's own code failed.",
    503: "The storage cannot be reached, or the server is stopping.",
    504: "The run is still running; the request waited long enough.",
}
COMMON_ERRORS = (400, 401, 403, 408, 413, 422, 429, 503)
"""Statuses that every route may answer."""


def route_options(
    scope: str, tag: str, summary: str, *errors: int, status: int = 200, also: Mapping[int, ResponseSpec] | None = None
) -> dict[str, Any]:
    """The declaration of a route beside its path: the scope that it needs, and its entry in the OpenAPI document.

    `errors`: statuses beside those that every route may answer. `also`: further responses.
    """
    responses = {error: _error_spec(error, ErrorReply) for error in sorted({*COMMON_ERRORS, *errors})}
    return {
        "opt": {"scope": scope},
        "responses": {**responses, **(also or {})},
        "tags": [tag],
        "summary": summary,
        "status_code": status,
    }


def agentflow_options(scope: str, tag: str, summary: str, *errors: int) -> dict[str, Any]:
    """The same, with AgentFlow's format of a conflict."""
    options = route_options(scope, tag, summary, *errors)
    options["opt"]["agentflow"] = True
    options["responses"][409] = _error_spec(409, StateConflictResponse)
    return options


def _error_spec(status: int, body: type[msgspec.Struct]) -> ResponseSpec:
    return ResponseSpec(body, description=_MEANINGS[status], generate_examples=False)


logger = get_logger("server")


def answer_problem(request: OwnRequest, problem: HttpProblem) -> Response[bytes]:
    visit, to_public = request.visit, request.visit.space.with_public_ids
    problem.message = to_public(problem.message)
    problem.details = tuple(Detail(to_public(detail.message), detail.field) for detail in problem.details)
    handler: Any = request.scope.get("route_handler")  # missing where no route matched
    if problem.status == 409 and handler is not None and handler.opt.get("agentflow"):
        thread_id = None if problem.thread_id is None else visit.space.public_id(problem.thread_id)
        body = encoder.encode(StateConflictResponse("state_conflict", problem.message, thread_id))
    else:
        body = error_body(visit.request_id, problem)
    return JsonResponse(body, problem.status, problem.headers)


def answer_perdure(request: OwnRequest, error: PerdureError) -> Response[bytes]:
    problem = problem_of(error)
    if problem is None:
        return answer_unknown(request, error)
    if problem.status == 503 and error is not problem:  # the log names the storage; the response does not
        logger.warning("request %s: %s", request.visit.request_id, error)
    return answer_problem(request, problem)


def answer_unknown(request: OwnRequest, error: Exception) -> Response[bytes]:
    visit = request.visit
    [*_, (frame, _)] = traceback.walk_tb(error.__traceback__)
    # Litestar itself converts only some errors of decoding a body.
    if isinstance(error, UnicodeDecodeError | RecursionError) and "msgspec_hooks" in frame.f_code.co_filename:
        return answer_problem(request, HttpProblem(400, "bad_request", "The body is not valid JSON.", field="body"))
    logger.error("request %s failed", visit.request_id, exc_info=error)
    message = f"Internal error. The server log has the details under request id {visit.request_id}."
    if not visit.service.hides_errors:
        message = f"{message} ({type(error).__name__})"
    return answer_problem(request, HttpProblem(500, "internal_error", message))


def answer_http(request: OwnRequest, error: HTTPException) -> Response[bytes]:
    """A request that Litestar rejected."""
    cause: BaseException | None = error
    while cause is not None:  # a too large body is detected while Litestar reads it
        if isinstance(cause, HttpProblem):
            return answer_problem(request, cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ValidationException):
        problem = _validation_problem(error)
    elif isinstance(error, NotFoundException):
        problem = HttpProblem(404, "no_such_route", "No route has this path.")
    elif isinstance(error, MethodNotAllowedException):
        sentence = "The path does not support this method."
        problem = HttpProblem(405, "no_such_method", sentence, headers=dict(error.headers or {}))
    elif error.status_code < 500:
        is_unreadable = "JSON" in error.detail or error.status_code == 400
        text = "The body is not valid JSON." if is_unreadable else error.detail
        problem = HttpProblem(error.status_code, "bad_request", text, field="body")
    else:
        return answer_unknown(request, error)
    return answer_problem(request, problem)


def _validation_problem(error: ValidationException) -> HttpProblem:
    extra = [detail for detail in error.extra if isinstance(detail, dict)] if isinstance(error.extra, list) else []
    if any(detail.get("message") == "'data'" for detail in extra):  # Litestar's name for the body
        return HttpProblem(400, "bad_request", "The body is missing: send JSON.", field="body")
    details = tuple(
        Detail(str(detail.get("message", "")), str(detail.get("key") or detail.get("source") or "")) for detail in extra
    )
    message = "; ".join(
        f"{detail.field}: {detail.message}" if detail.field else detail.message for detail in details[:5]
    )
    return HttpProblem(422, "invalid_request", message or "The request is not valid.", details=details)
