"""What a client does, one step after the other, and how long it is patient: decided here, done by either client.

The logic of both clients is generators that yield steps and are sent what came of them. So there is one of each, and
it can be tested without a network.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, TooManyRequests, Unavailable

T = TypeVar("T")


class Send(msgspec.Struct, frozen=True):
    """Send a request: an Answered, with its body. Raises NotSent or ConnectionLost."""

    call: HttpCall[Any]


class Open(msgspec.Struct, frozen=True):
    """Open a stream in place of the one before: an Answered, whose body is there only if it is no success."""

    call: HttpCall[Any]


class Read(msgspec.Struct, frozen=True):
    """What comes next in the open stream: bytes, none at its end. Raises ConnectionLost."""


class Close(msgspec.Struct, frozen=True):
    """Close the stream, if one is open."""


class Wait(msgspec.Struct, frozen=True):
    seconds: float


class Emit(msgspec.Struct, frozen=True):
    """Give this to the caller."""

    value: Any


class Answered(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


Steps: TypeAlias = Generator[Send | Open | Read | Close | Wait | Emit, Any, T]


# ---------------------------------------------------------------- patience


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client tries again."""

    attempts: int = 4
    """How often a read is sent that finds nobody, or a server that is busy. Nothing else is ever sent twice."""
    seconds: float = 60.0
    """How long a stream that broke looks for a server, before it gives up."""
    first_wait: float | None = None
    """Before the second attempt; None: what the server asks for, or 0.2 s. Doubles with each, and is spread at
    random, so that those whom one server left do not come back all at once."""
    longest_wait: float = 10.0
    """Between two attempts. A read is not tried again at a server that asks for more: the error says how long it
    wants. A stream waits for it, within `seconds`."""


TRY_AGAIN = (ConnectionLost, TooManyRequests, Unavailable)
"""What may be better in a moment."""


class ClientSession:
    """What all requests of a client share: its servers, its patience, and a clock."""

    def __init__(
        self,
        urls: Sequence[str],
        patience: Patience,
        *,
        stream_seconds: float = 45.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls = tuple(urls)
        self.patience = patience
        self.stream_seconds = stream_seconds
        """A stream without even a heartbeat for so long is broken."""
        self.clock = clock
        self._at = 0

    @property
    def url(self) -> str:
        """The server that is asked now."""
        return self.urls[self._at]

    def go_on_elsewhere(self) -> None:
        self._at = (self._at + 1) % len(self.urls)

    def wait_after(self, attempt: int, error: ClientError, asked_for: float | None = None) -> float:
        """After the attempt of this number, counted from 1."""
        if attempt < len(self.urls):  # another one may have time
            return 0.0
        if error.retry_after is not None:
            return error.retry_after
        longest = self.patience.longest_wait
        first = self.patience.first_wait if self.patience.first_wait is not None else asked_for or 0.2
        return _spread(min(longest, first * 2.0 ** min(attempt - 1, 16)))


def _spread(seconds: float) -> float:
    return seconds * (0.5 + random.random() / 2)  # noqa: S311  # nobody gains by guessing it


class StepReturns:
    """Coming back to a stream that broke."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._failures = 0
        self._since: float | None = None

    def connected(self) -> None:
        """Bytes came: a server is there."""
        self._failures, self._since = 0, None

    def pause(self, error: ClientError, asked_for: float | None = None) -> Steps[None]:
        """Before the next attempt, at another server if there are several. Raises ConnectionLost after too many."""
        session = self._session
        now = session.clock()
        self._since = now if self._since is None else self._since
        self._failures += 1
        seconds = session.patience.seconds
        wait = session.wait_after(self._failures, error, asked_for)
        if now + wait - self._since > seconds:
            raise ConnectionLost(
                f"The stream broke, and no server could go on with it for {seconds:g} s: {error.message} The run goes "
                "on without its listeners; what it commits can be read later.",
                thread_id=error.thread_id,
                run_id=error.run_id,
            ) from error
        session.go_on_elsewhere()
        yield Wait(wait)
