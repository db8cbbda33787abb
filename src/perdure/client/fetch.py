"""Requests with one answer, repeated where that is safe."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import httpx
import msgspec

from perdure.client.connection import STREAM_SECONDS, Connection, HttpCall, HttpStream, build_path, omit_none
from perdure.client.errors import (
    ClientError,
    ConnectionLost,
    NotFound,
    NotSent,
    TooManyRequests,
    Unavailable,
    UnreadableAnswer,
    parse_error,
)
from perdure.client.models import Run, Thread

T = TypeVar("T")

TRY_AGAIN = (ConnectionLost, TooManyRequests, Unavailable)
"""Errors that a later attempt may not meet."""


class Reconnects(msgspec.Struct, eq=False):
    _connection: Connection
    asked_for: float | None = None
    """The server's last `retry`, in seconds."""
    _failures: int = 0
    _since: float | None = None

    def reset(self) -> None:
        """Bytes arrived: the next failure counts from zero."""
        self._failures, self._since = 0, None

    async def pause(self, error: ClientError) -> None:
        """Wait before the next attempt, at the next server. Raises ConnectionLost after `patience.seconds`."""
        connection = self._connection
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._failures += 1
        seconds = connection.patience.seconds
        wait = connection.wait_after(self._failures, error, self.asked_for)
        if now + wait - self._since > seconds:
            raise ConnectionLost(
                f"The stream broke, and no server continued it for {seconds:g} s: {error.message} The run "
                "continues; read its events later.",
                thread_id=error.thread_id,
                run_id=error.run_id,
            ) from error
        connection.use_next_server()
        await connection.io.sleep(wait)


# ---------------------------------------------------------------- one answer


async def fetch(connection: Connection, call: HttpCall[T]) -> T:
    """The answer of the first server that succeeds. Raises ClientError otherwise."""
    response, body = await repeat(connection, partial(_send, connection, call), only_reads=call.method == "GET")
    return decode_answer(call, response, body)


async def repeat(connection: Connection, send: Callable[[], Awaitable[T]], *, only_reads: bool) -> T:
    """The result of the first attempt that succeeds. A request that was not sent can be repeated, and one that only
    reads. Raises ClientError otherwise."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return await send()
        except ClientError as error:
            may_repeat = isinstance(error, NotSent) or (only_reads and isinstance(error, TRY_AGAIN))
            wait = connection.wait_after(attempt, error)
            is_last = attempt == connection.patience.attempts or wait > connection.patience.longest_wait
            if not may_repeat or is_last:
                raise
        connection.use_next_server()
        await connection.io.sleep(wait)


async def _send(connection: Connection, call: HttpCall[Any]) -> tuple[httpx.Response, bytes]:
    async with aclosing(HttpStream(connection)) as stream:
        return await stream.open(call), await stream.read_all()


async def fetch_patiently(connection: Connection, call: HttpCall[T]) -> T:
    """Repeats a read for `patience.seconds`, like a stream that reconnects."""
    reconnects = Reconnects(connection)
    while True:
        try:
            return await fetch(connection, call)
        except TRY_AGAIN as error:
            await reconnects.pause(error)


async def start_run(connection: Connection, call: HttpCall[T], thread_id: str, run_id: str) -> T:
    """Sends a request that starts a run, once.

    If the answer is lost, looks the run up and returns it where the request returns a run. Raises ConnectionLost with
    the run's state otherwise.
    """
    try:
        return await fetch(connection, call)
    except NotSent:
        raise
    except ConnectionLost as lost:
        error = lost
    where = f"run {run_id} of thread {thread_id!r}"
    try:
        run = await fetch(connection, run_call(thread_id, run_id))
    except NotFound:
        state = f"The server has no {where}: most likely it did not start."
    except ClientError:
        state = f"No server answered whether {where} started; ask later with get_run."
    else:
        if call.kind is Run:
            return run  # type: ignore[return-value]  # T is Run
        state = f"It started: {where} is {run.state}; get_run returns its result."
    raise ConnectionLost(
        f"The answer was lost ({error.message}). {state} The client did not send it again.",
        thread_id=thread_id,
        run_id=run_id,
    ) from error


def decode_answer(call: HttpCall[T], response: httpx.Response, body: bytes) -> T:
    """Raises UnreadableAnswer."""
    try:
        payload = msgspec.Raw(body)
        for key in ("data", call.under):
            if key is not None:
                payload = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])[key]
        value: T = msgspec.json.decode(payload, type=call.kind)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        if response.status_code in call.also:
            raise parse_error(response.status_code, response.headers, body) from error
        where = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UnreadableAnswer(
            f"{call.method} {call.path} has an answer that this client does not understand: {where}. The "
            "server may have done the work. Is this the address of a perdure server?",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        ) from error
    return value


# ---------------------------------------------------------------- requests of more than one method


def events_call(thread_id: str, after: int | None, *, live: bool = True, chunks: bool = False) -> HttpCall[None]:
    query = {"live": "true" if live else "false", **omit_none(after=after, chunks="true" if chunks else None)}
    path = build_path("threads", thread_id, "events")
    return HttpCall("GET", path, None, query=query, seconds=STREAM_SECONDS)


def run_call(thread_id: str, run_id: str) -> HttpCall[Run]:
    return HttpCall("GET", build_path("threads", thread_id, "runs", run_id), Run, "run")


def thread_call(thread_id: str) -> HttpCall[Thread]:
    return HttpCall("GET", build_path("threads", thread_id), Thread, "thread")


def state_call(thread_id: str) -> HttpCall[dict[str, Any]]:
    return HttpCall("GET", build_path("threads", thread_id, "state"), dict[str, Any], "state")
