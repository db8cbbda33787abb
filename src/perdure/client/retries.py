"""Requests with one answer. They are repeated where that is safe, at the next server if there are several."""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.client import calls
from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, NotFound, NotSent
from perdure.client.event_stream import decode_answer, find_error
from perdure.client.models import Run
from perdure.client.steps import TRY_AGAIN, Answered, ClientSession, Reconnects, Send, Steps, Wait

T = TypeVar("T")


def send_with_retries(session: ClientSession, call: HttpCall[Any]) -> Steps[Answered]:
    """The answer of the first server that succeeds. Raises ClientError otherwise."""
    for attempt in range(1, session.patience.attempts + 1):
        try:
            got: Answered = yield Send(call)
            error = find_error(call, got)
            if error is None:
                return got
        except ConnectionLost as lost:
            error = lost
        if not may_repeat(call, error) or attempt == session.patience.attempts:
            raise error
        wait = session.wait_after(attempt, error)
        if wait > session.patience.longest_wait:
            raise error
        session.use_next_server()
        yield Wait(wait)
    raise ValueError("patience.attempts must be at least 1.")


def may_repeat(call: HttpCall[Any], error: ClientError) -> bool:
    """A request that was not sent can be repeated, and one that only reads."""
    return isinstance(error, NotSent) or (call.only_reads and isinstance(error, TRY_AGAIN))


def fetch(session: ClientSession, call: HttpCall[T]) -> Steps[T]:
    return decode_answer(call, (yield from send_with_retries(session, call)))


def fetch_patiently(session: ClientSession, call: HttpCall[T]) -> Steps[T]:
    """Repeats a read for `patience.seconds`, like a stream that reconnects."""
    returns = Reconnects(session)
    while True:
        try:
            return (yield from fetch(session, call))
        except TRY_AGAIN as error:
            yield from returns.pause(error)


def start_run(session: ClientSession, call: HttpCall[T], thread_id: str, run_id: str) -> Steps[T]:
    """Sends a request that starts a run, once.

    If the answer is lost, looks the run up and returns it where the request returns a run. Raises ConnectionLost with
    the run's state otherwise.
    """
    try:
        return (yield from fetch(session, call))
    except NotSent:
        raise
    except ConnectionLost as lost:
        error = lost
    where = f"run {run_id} of thread {thread_id!r}"
    try:
        run = yield from fetch(session, calls.get_run(thread_id, run_id))
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
