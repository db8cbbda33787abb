"""Errors of the client: one class for each failure that a caller can handle."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from perdure.client.models import Detail
from perdure.errors import PerdureError


class ClientError(PerdureError):
    """The base of all errors that a client raises."""

    code = "client"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

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
    """The request is wrong, or something in it."""


class NotAuthenticated(ClientError):
    """The credentials are not valid."""


class NotAllowed(ClientError):
    """The user lacks the scope for this."""


class NotFound(ClientError):
    """It does not exist, or belongs to another user."""


class Conflict(ClientError):
    """The thread is in a state that does not allow this."""


class CursorExpired(ClientError):
    """The events after the cursor were pruned."""


class TooManyRequests(ClientError):
    """Try again after `retry_after` seconds."""


class Unavailable(ClientError):
    """The server or its storage is away; see `retry_after`."""


class RunFailed(ClientError):
    """The workflow's own code failed."""


class RunInterrupted(ClientError):
    """No server continues the run."""


class StillRunning(ClientError):
    """The run takes longer than the request waited."""

    code = "run_takes_longer"


class ServerError(ClientError):
    """The server failed; its log has `request_id`."""

    code = "internal_error"


class ConnectionLost(ClientError, ConnectionError):
    """The answer is missing or incomplete."""


class UnreadableAnswer(ClientError):
    """The answer is not one of a perdure server."""


class NotSent(ConnectionLost):
    """No server could be reached. Nothing was sent."""


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
