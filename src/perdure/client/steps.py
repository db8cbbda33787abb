"""Steps of a client, and its patience. Generators decide the steps; each client performs them.

The logic of both clients is written once, as generators that yield steps and receive their results. Tests drive them
without a network.
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
    """Send a request. The result is an Answered with its body. Raises NotSent or ConnectionLost."""

    call: HttpCall[Any]


class Open(msgspec.Struct, frozen=True):
    """Open a stream and close the one before. The result is an Answered; it has a body only on failure."""

    call: HttpCall[Any]


class Read(msgspec.Struct, frozen=True):
    """Read the next bytes of the open stream; empty at its end. Raises ConnectionLost."""


class Close(msgspec.Struct, frozen=True):
    """Close the stream, if one is open."""


class Wait(msgspec.Struct, frozen=True):
    seconds: float


class Emit(msgspec.Struct, frozen=True):
    """Yield this value to the caller."""

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
    """Attempts of a read at servers that are away or busy. The client repeats nothing else."""
    seconds: float = 60.0
    """How long a broken stream tries to reconnect."""
    first_wait: float | None = None
    """The wait before the second attempt; None: the server's `retry`, or 0.2 s. It doubles with each attempt, with
    jitter, so that clients of a server that stopped do not reconnect all at once."""
    longest_wait: float = 10.0
    """The longest wait between two attempts. A read fails at once if the server asks for more; `retry_after` says how
    much. A stream waits that long, within `seconds`."""


TRY_AGAIN = (ConnectionLost, TooManyRequests, Unavailable)
"""Errors that a later attempt may not meet."""


class ClientSession:
    """Servers, patience and clock of one client."""

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
        """A stream without a heartbeat for this long is broken."""
        self.clock = clock
        self._at = 0

    @property
    def url(self) -> str:
        """The current server."""
        return self.urls[self._at]

    def use_next_server(self) -> None:
        self._at = (self._at + 1) % len(self.urls)

    def wait_after(self, attempt: int, error: ClientError, asked_for: float | None = None) -> float:
        """Seconds to wait after this attempt, counted from 1."""
        if attempt < len(self.urls):  # the next server may answer at once
            return 0.0
        if error.retry_after is not None:
            return error.retry_after
        longest = self.patience.longest_wait
        first = self.patience.first_wait if self.patience.first_wait is not None else asked_for or 0.2
        return _add_jitter(min(longest, first * 2.0 ** min(attempt - 1, 16)))


def _add_jitter(seconds: float) -> float:
    return seconds * (0.5 + random.random() / 2)  # noqa: S311  # jitter, not a secret


class Reconnects:
    """Reconnects of one stream: how many, and since when."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._failures = 0
        self._since: float | None = None

    def reset(self) -> None:
        """Bytes arrived: the next failure counts from zero."""
        self._failures, self._since = 0, None

    def pause(self, error: ClientError, asked_for: float | None = None) -> Steps[None]:
        """Waits before the next attempt, at the next server. Raises ConnectionLost after `patience.seconds`."""
        session = self._session
        now = session.clock()
        self._since = now if self._since is None else self._since
        self._failures += 1
        seconds = session.patience.seconds
        wait = session.wait_after(self._failures, error, asked_for)
        if now + wait - self._since > seconds:
            raise ConnectionLost(
                f"The stream broke, and no server continued it for {seconds:g} s: {error.message} The run "
                "continues; read its events later.",
                thread_id=error.thread_id,
                run_id=error.run_id,
            ) from error
        session.use_next_server()
        yield Wait(wait)
