"""Results that arrive in parts: pages of a list, events of a thread, pieces of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from perdure.client import calls
from perdure.client.calls import HttpCall
from perdure.client.errors import UnreadableAnswer
from perdure.client.event_stream import EventStream, find_error
from perdure.client.models import Checkpoint, Event
from perdure.client.retries import fetch
from perdure.client.steps import TRY_AGAIN, Answered, ClientSession, Close, Emit, Open, Read, Reconnects, Steps

T = TypeVar("T")


def events(session: ClientSession, thread_id: str, after: int | None, *, live: bool, reconnect: bool) -> Steps[None]:
    """Emits each event once and in order, until the caller stops. Raises ClientError."""
    returns = Reconnects(session)
    stream = EventStream(returns)
    cursor = after
    while True:
        try:
            yield from stream.open(calls.events(thread_id, cursor, live=live, seconds=session.stream_seconds))
            while True:
                entry = yield from stream.next()
                if entry is None:
                    continue
                seq, event = entry
                if seq is not None:
                    if cursor is not None and seq <= cursor:
                        continue
                    cursor = seq
                yield Emit(read_event(event))
        except TRY_AGAIN as error:
            error.thread_id = thread_id
            if not reconnect:
                raise
            yield from returns.pause(error, stream.retry_seconds)


def read_event(event: dict[str, Any]) -> Event:
    try:
        return msgspec.convert(event, Event)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer(f"An event cannot be read: {error}") from error


def pages(
    session: ClientSession,
    page: Callable[[int, int], HttpCall[list[T]]],
    identify: Callable[[T], object],
    size: int,
) -> Steps[None]:
    """Emits all items of a list. An item that moves to another page meanwhile is emitted once."""
    emitted: set[object] = set()
    offset = 0
    while True:
        page_items = yield from fetch(session, page(offset, size))
        for item in page_items:
            if identify(item) not in emitted:
                emitted.add(identify(item))
                yield Emit(item)
        if len(page_items) < size:
            return
        offset += len(page_items)


def checkpoints(session: ClientSession, thread_id: str, before: str | None, size: int) -> Steps[None]:
    """Newest first."""
    while True:
        page_items: list[Checkpoint] = yield from fetch(session, calls.checkpoints(thread_id, before, size))
        for item in page_items:
            yield Emit(item)
        if len(page_items) < size:
            return
        before = page_items[-1].checkpoint_id


def pieces(call: HttpCall[None]) -> Steps[None]:
    """Emits a downloaded file in pieces. Raises ClientError."""
    answered: Answered = yield Open(call)
    error = find_error(call, answered)
    if error is not None:
        raise error
    while piece := (yield Read()):
        yield Emit(piece)
    yield Close()
