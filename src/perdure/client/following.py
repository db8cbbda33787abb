"""Lists that come in pages, the events of a thread, and files: what is given piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from perdure.client import calls
from perdure.client.calls import HttpCall
from perdure.client.errors import UnreadableAnswer
from perdure.client.event_stream import Line, refusal
from perdure.client.models import Checkpoint, Event
from perdure.client.retries import asked
from perdure.client.steps import TRY_AGAIN, Answered, ClientSession, Close, Emit, Open, Read, StepReturns, Steps

T = TypeVar("T")


def events(session: ClientSession, thread_id: str, after: int | None, *, live: bool, reconnect: bool) -> Steps[None]:
    """Each once and in order, until the caller leaves. Raises ClientError."""
    returns = StepReturns(session)
    line = Line(returns)
    cursor = after
    while True:
        try:
            yield from line.open(calls.events(thread_id, cursor, live=live, seconds=session.stream_seconds))
            while True:
                told = yield from line.next()
                if told is None:
                    continue
                seq, event = told
                if seq is not None:
                    if cursor is not None and seq <= cursor:
                        continue
                    cursor = seq
                yield Emit(read_event(event))
        except TRY_AGAIN as error:
            error.thread_id = thread_id
            if not reconnect:
                raise
            yield from returns.pause(error, line.retry_seconds)


def read_event(told: dict[str, Any]) -> Event:
    try:
        return msgspec.convert(told, Event)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"An event cannot be read: {error}") from error


def pages(
    session: ClientSession,
    page: Callable[[int, int], HttpCall[list[T]]],
    known_by: Callable[[T], object],
    size: int,
) -> Steps[None]:
    """All of a list. What moves from one page to another meanwhile is given once."""
    given: set[object] = set()
    offset = 0
    while True:
        found = yield from asked(session, page(offset, size))
        for one in found:
            if known_by(one) not in given:
                given.add(known_by(one))
                yield Emit(one)
        if len(found) < size:
            return
        offset += len(found)


def checkpoints(session: ClientSession, thread_id: str, before: str | None, size: int) -> Steps[None]:
    """Newest first."""
    while True:
        found: list[Checkpoint] = yield from asked(session, calls.checkpoints(thread_id, before, size))
        for one in found:
            yield Emit(one)
        if len(found) < size:
            return
        before = found[-1].checkpoint_id


def pieces(call: HttpCall[None]) -> Steps[None]:
    """Of a file that is sent to us. Raises ClientError."""
    answered: Answered = yield Open(call)
    error = refusal(call, answered)
    if error is not None:
        raise error
    while piece := (yield Read()):
        yield Emit(piece)
    yield Close()
