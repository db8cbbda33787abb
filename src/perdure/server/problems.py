"""Problems with a request: an HTTP status, a code for machines, a sentence for people, and the fields concerned."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from perdure import errors
from perdure.errors import CursorExpired, IncompatibleWorkflow, PerdureError, ThreadBusy, ThreadNotIdle

_ERRORS: dict[int, tuple[type[PerdureError], ...]] = {
    404: (
        *(errors.ThreadNotFound, errors.CheckpointNotFound, errors.ConversationNotFound, errors.DefinitionNotFound),
        *(errors.UnknownRequest,),
    ),
    409: (
        *(errors.NoPendingRequests, errors.AlreadyAnswered, errors.RequestExpired, errors.RequestWithdrawn),
        *(errors.DuplicateRequest, errors.ThreadBusy, errors.ThreadNotIdle, errors.ThreadConflict),
        *(errors.ThreadExists, errors.RunInterrupted, errors.CheckpointPinned, errors.IncompatibleWorkflow),
        *(errors.MigrationFailed, errors.InputMismatch, errors.DamagedCheckpoint),
    ),
    410: (errors.CursorExpired,),
    422: (
        *(errors.AnswerRejected, errors.WrongInputType, errors.WrongStateType, errors.UnsavableValue),
        *(errors.UnreadableValue, errors.UnsupportedId, errors.NoThreadFile, errors.NewerFormat, errors.InvalidRun),
    ),
    503: (errors.PoolExhausted, errors.StorageFailed),
}
"""The errors that a caller can act on, by the HTTP status that answers them."""
_FIELDS = {
    errors.WrongInputType: "input",
    errors.AnswerRejected: "value",
    errors.UnknownRequest: "request_id",
    errors.CursorExpired: "after",
    errors.NoThreadFile: "body",
}
"""The request field that each error concerns."""


class Detail(msgspec.Struct, frozen=True):
    """One mistake in a request."""

    message: str
    field: str | None = None


class HttpProblem(PerdureError):
    """A request that the server rejects, with its HTTP status and error code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        details: tuple[Detail, ...] = (),
        headers: Mapping[str, str] | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        window_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details or (() if field is None else (Detail(message, field),))
        self.headers = dict(headers or {})
        self.thread_id = thread_id
        self.limit = limit
        self.window_seconds = window_seconds

    @property
    def retry_after_seconds(self) -> int | None:
        seconds = self.headers.get("Retry-After")
        return None if seconds is None else int(seconds)


def problem_of(error: PerdureError) -> HttpProblem | None:
    """The error as an HTTP problem; None for a bug of the server or of a workflow's own code."""
    if isinstance(error, HttpProblem):
        return error
    status = next((status for status, kinds in _ERRORS.items() if isinstance(error, kinds)), None)
    if status is None:
        return None
    if status == 503:  # a driver's message may hold addresses
        sentence = "The storage cannot be reached. No data is lost; try again."
        return HttpProblem(503, error.code, sentence, headers={"Retry-After": "1"})
    field = next((name for kind, name in _FIELDS.items() if isinstance(error, kind)), None)
    thread_id = getattr(error, "thread_id", None)
    return HttpProblem(status, error.code, _sentence(error), field=field, thread_id=thread_id)


def _sentence(error: PerdureError) -> str:
    """The error's message, with advice for HTTP clients instead of the engine's advice for Python."""
    if isinstance(error, ThreadBusy):
        by = f" by run {error.run_id!r}" if error.run_id else ""
        return (
            f"Thread {error.thread_id!r} is being run{by}. Nothing was written. Wait for that run, send on_busy "
            "'enqueue', or end it with POST /v1/graph/stop."
        )
    if isinstance(error, ThreadNotIdle):
        return (
            f"Thread {error.thread_id!r} was interrupted and still has work due. Nothing was written. Resume "
            "it first: POST /v1/threads/{thread_id}/runs with an empty object."
        )
    if isinstance(error, CursorExpired):
        return "The events after the cursor were pruned. Read the remaining events without a cursor."
    if isinstance(error, IncompatibleWorkflow):
        return f"{str(error).splitlines()[0]} Nothing was changed. The server log has the details."
    return str(error)


def unprocessable(field: str, sentence: str, code: str = "invalid_body") -> HttpProblem:
    """422, for one field of the request."""
    return HttpProblem(422, code, sentence, field=field)


def not_found(thread_id: str) -> HttpProblem:
    return HttpProblem(404, "thread_not_found", f"No thread {thread_id!r} exists.", thread_id=thread_id)


def too_often(limit: int, window: float, seconds: float) -> HttpProblem:
    wait = max(1, int(seconds + 0.999))
    sentence, headers = f"At most {limit} requests in {window:g} s. Try again in {wait} s.", {"Retry-After": str(wait)}
    return HttpProblem(429, "rate_limited", sentence, headers=headers, limit=limit, window_seconds=window)


# ---------------------------------------------------------------- as JSON


class Metadata(msgspec.Struct, frozen=True):
    request_id: str
    timestamp: float
    message: str = "OK"


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    """For machines: stable."""
    message: str
    details: tuple[Detail, ...]
    limit: int | None = None
    """429 of the rate limit: the maximum number of requests."""
    window_seconds: float | None = None
    """429 of the rate limit: the window of that number."""
    retry_after_seconds: int | None = None
    """When to try again."""


class ErrorReply(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: ErrorBody
    metadata: Metadata


class StateConflictResponse(msgspec.Struct, frozen=True):
    """AgentFlow's format of a conflict on a thread."""

    error: str
    detail: str
    thread_id: str | None = None


encoder = msgspec.json.Encoder()


def error_body(request_id: str, problem: HttpProblem) -> bytes:
    error = msgspec.convert(problem, ErrorBody, from_attributes=True)
    return encoder.encode(ErrorReply(error, Metadata(request_id, time.time(), problem.message)))
