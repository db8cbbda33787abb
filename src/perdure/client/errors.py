"""What goes wrong for a client: one class for each thing that a caller can do something about.

ClientError
├── Invalid               the request is wrong, or something in it
├── NotAuthenticated      nobody is known by these credentials
├── NotAllowed            they are known, and may not do this
├── NotFound              there is no such thing, or not for them
├── Conflict              it does not go together with where the thread stands
├── CursorExpired         what followed the cursor was forgotten
├── TooManyRequests       try again after `retry_after` seconds
├── Unavailable           the server or its storage is away; `retry_after` where it said so
├── RunFailed             the workflow's own code failed
├── RunInterrupted        nobody goes on with it
├── StillRunning          the run goes on, longer than the request waited
├── ServerError           something of the server's own went wrong; its log knows `request_id`
├── ConnectionLost        there was no answer, or only a part of one (also ConnectionError)
│   └── NotSent           no server was reached: nothing was begun
└── UnreadableAnswer      what answered does not speak as this server does
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.client.models import Detail
from perdure.errors import PerdureError


class ClientError(PerdureError):
    """The root of all that a client raises."""

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
        """Of HTTP; None where there was no answer."""
        if code is not None:
            self.code = code
        self.details = details
        """What is wrong with which field."""
        self.request_id = request_id
        """What the log of the server knows it by."""
        self.thread_id = thread_id
        self.run_id = run_id
        self.retry_after = retry_after
        """Seconds, where the server said so."""
        told = " ".join(str(one) for one in (status, self.code) if one is not None)
        super().__init__(f"{message} ({told}{f', request {request_id}' if request_id else ''})")


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
    """No server could be reached: nothing was sent, so nothing was begun."""

    code = "not_sent"


# ---------------------------------------------------------------- from answers

_BY_STATUS: dict[int, type[ClientError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: CursorExpired,
    429: TooManyRequests,
    502: Unavailable,  # of a proxy: those of a server have a code of their own
    503: Unavailable,
    504: Unavailable,
}
_BY_CODE: dict[str, type[ClientError]] = {"run_failed": RunFailed, "run_takes_longer": StillRunning}
LONGEST_TEXT = 500


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


def kind_of(status: int, code: str | None) -> type[ClientError]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Invalid if status < 500 else ServerError


def error_from(status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """What an answer that is no success says, whoever gave it: a proxy on the way knows nothing of our forms."""
    try:
        told = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Refusal()
    error = told.error if isinstance(told.error, _Body) else _Body(told.error, told.detail)
    text = body.decode("utf-8", "replace").strip()
    message = error.message or (text[:LONGEST_TEXT] if text and not told.error else f"The server answered {status}.")
    code = error.code or None
    return kind_of(status, code)(
        message,
        status=status,
        code=code,
        details=error.details,
        request_id=(told.metadata and told.metadata.request_id) or headers.get("x-request-id"),
        thread_id=told.thread_id,
        run_id=headers.get("x-run-id"),
        retry_after=seconds_of(headers.get("retry-after")),
    )


def seconds_of(given: str | None) -> float | None:
    """Of `Retry-After`, where it is a number. Dates are for caches: a client's clock may be anything."""
    if given is None or not given.strip().isascii() or not given.strip().isdigit():
        return None
    return float(given.strip()[:9])
