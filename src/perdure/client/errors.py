"""Errors of the client: one class for each failure that a caller can handle.

ClientError
├── Invalid               the request is wrong, or something in it
├── NotAuthenticated      the credentials are not valid
├── NotAllowed            the user lacks the scope for this
├── NotFound              it does not exist, or belongs to another user
├── Conflict              the thread is in a state that does not allow this
├── CursorExpired         the events after the cursor were pruned
├── TooManyRequests       try again after `retry_after` seconds
├── Unavailable           the server or its storage is away; see `retry_after`
├── RunFailed             the workflow's own code failed
├── RunInterrupted        no server continues the run
├── StillRunning          the run takes longer than the request waited
├── ServerError           the server failed; its log has `request_id`
├── ConnectionLost        the answer is missing or incomplete (also ConnectionError)
│   └── NotSent           no server was reached: nothing was sent
└── UnreadableAnswer      the answer is not one of a perdure server
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.client.models import Detail
from perdure.errors import PerdureError


class ClientError(PerdureError):
    """The base of all errors that a client raises."""

    code = "client"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: tuple[Detail, ...] = (),
        request_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.message = message
        self.status = status
        """The HTTP status; None without an answer."""
        if code is not None:
            self.code = code
        self.details = details
        """Each invalid field, with its problem."""
        self.request_id = request_id
        """The id of the request in the server's log."""
        self.thread_id = thread_id
        self.run_id = run_id
        self.retry_after = retry_after
        """Seconds, from the `Retry-After` header."""
        refusal = " ".join(str(part) for part in (status, self.code) if part is not None)
        super().__init__(f"{message} ({refusal}{f', request {request_id}' if request_id else ''})")


class Invalid(ClientError):
    code = "invalid"


class NotAuthenticated(ClientError):
    code = "not_authenticated"


class NotAllowed(ClientError):
    code = "not_allowed"


class NotFound(ClientError):
    code = "not_found"


class Conflict(ClientError):
    code = "conflict"


class CursorExpired(ClientError):
    code = "cursor_expired"


class TooManyRequests(ClientError):
    code = "too_many_requests"


class Unavailable(ClientError):
    code = "unavailable"


class RunFailed(ClientError):
    code = "run_failed"


class RunInterrupted(ClientError):
    code = "run_interrupted"


class StillRunning(ClientError):
    code = "run_takes_longer"


class ServerError(ClientError):
    code = "internal_error"


class ConnectionLost(ClientError, ConnectionError):
    code = "connection_lost"


class UnreadableAnswer(ClientError):
    code = "unreadable_answer"


class NotSent(ConnectionLost):
    """No server could be reached. Nothing was sent."""

    code = "not_sent"


# ---------------------------------------------------------------- from answers

_BY_STATUS: dict[int, type[ClientError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: CursorExpired,
    429: TooManyRequests,
    502: Unavailable,  # from a proxy: our server sends a code
    503: Unavailable,
    504: Unavailable,
}
_BY_CODE: dict[str, type[ClientError]] = {"run_failed": RunFailed, "run_takes_longer": StillRunning}
MAX_TEXT = 500


class _Body(msgspec.Struct):
    code: str = ""
    message: str = ""
    details: tuple[Detail, ...] = ()


class _Metadata(msgspec.Struct):
    request_id: str | None = None


class _Refusal(msgspec.Struct):
    error: _Body | str = ""
    """A text on the routes of AgentFlow, for a conflict."""
    metadata: _Metadata | None = None
    detail: str = ""
    thread_id: str | None = None


def parse_error(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """The error for an answer that is not a success. A proxy may have sent it, in another form than ours."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = _Refusal()
    error = refusal.error if isinstance(refusal.error, _Body) else _Body(refusal.error, refusal.detail)
    text = body.decode("utf-8", "replace").strip()
    message = error.message or (text[:MAX_TEXT] if text and not refusal.error else f"The server answered {status}.")
    wait = headers.get("retry-after", "").strip()  # dates are ignored: the client's clock may be wrong
    kind = _BY_CODE.get(error.code) or _BY_STATUS.get(status) or (Invalid if status < 500 else ServerError)
    return kind(
        message,
        status=status,
        code=error.code or None,
        details=error.details,
        request_id=(refusal.metadata and refusal.metadata.request_id) or headers.get("x-request-id"),
        thread_id=refusal.thread_id,
        run_id=headers.get("x-run-id"),
        retry_after=float(wait[:9]) if wait.isascii() and wait.isdigit() else None,
    )
