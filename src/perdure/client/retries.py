"""Requests that are answered at once: sent again where that is safe, to another server if there is one."""

from __future__ import annotations

from typing import Any, TypeVar

from perdure.client import calls
from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, NotFound, NotSent
from perdure.client.event_stream import read, refusal
from perdure.client.models import Run
from perdure.client.steps import TRY_AGAIN, Answered, ClientSession, Send, StepReturns, Steps, Wait

T = TypeVar("T")


def answered(session: ClientSession, call: HttpCall[Any]) -> Steps[Answered]:
    """The answer, of whichever server. Raises ClientError for any that is no success."""
    for attempt in range(1, session.patience.attempts + 1):
        try:
            got: Answered = yield Send(call)
            error = refusal(call, got)
            if error is None:
                return got
        except ConnectionLost as lost:
            error = lost
        if not may_repeat(call, error) or attempt == session.patience.attempts:
            raise error
        wait = session.wait_after(attempt, error)
        if wait > session.patience.longest_wait:
            raise error
        session.go_on_elsewhere()
        yield Wait(wait)
    raise ValueError("patience.attempts must be at least 1.")


def may_repeat(call: HttpCall[Any], error: ClientError) -> bool:
    """What was never sent can be sent; beside that only what changes nothing."""
    return isinstance(error, NotSent) or (call.only_reads and isinstance(error, TRY_AGAIN))


def asked(session: ClientSession, call: HttpCall[T]) -> Steps[T]:
    return read(call, (yield from answered(session, call)))


def asked_patiently(session: ClientSession, call: HttpCall[T]) -> Steps[T]:
    """As long as a stream looks for a server. Only for reads."""
    returns = StepReturns(session)
    while True:
        try:
            return (yield from asked(session, call))
        except TRY_AGAIN as error:
            yield from returns.pause(error)


def begun(session: ClientSession, call: HttpCall[T], thread_id: str, run_id: str) -> Steps[T]:
    """A request that begins a run, sent once. Where its answer was lost, the run is asked for: it is the answer, if
    that is what the request answers. Raises ConnectionLost, with what is known, if not."""
    try:
        return (yield from asked(session, call))
    except NotSent:
        raise
    except ConnectionLost as lost:
        error = lost
    where = f"run {run_id} of thread {thread_id!r}"
    try:
        run = yield from asked(session, calls.get_run(thread_id, run_id))
    except NotFound:
        known = f"The server knows of no {where}: most likely it was not begun."
    except ClientError:
        known = f"Nobody could be asked whether {where} was begun; get_run tells it later."
    else:
        if call.kind is Run:
            return run  # type: ignore[return-value]  # T is Run
        known = f"It was begun: {where} is {run.state}; get_run tells how it ends."
    raise ConnectionLost(
        f"The answer was lost ({error.message}). {known} It was not sent again.", thread_id=thread_id, run_id=run_id
    ) from error
