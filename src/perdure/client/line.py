"""One open stream of events: its frames, and how it ends."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from perdure.client.calls import Call
from perdure.client.errors import ClientError, ConnectionLost, CursorExpired, UnreadableAnswer
from perdure.client.reading import refusal
from perdure.client.sse import Frame, Frames, FrameTooLarge
from perdure.client.steps import Answered, Close, Open, Read, Returns, Steps

Told = tuple[int | None, dict[str, Any]]
"""What a frame says, and its place in the log."""


class Line:
    """A stream that is opened again and again."""

    def __init__(self, returns: Returns) -> None:
        self._returns = returns
        self._frames = Frames()
        self._unread: deque[Frame] = deque()
        self.retry_seconds: float | None = None
        """As the server last asked for."""

    def open(self, call: Call[Any]) -> Steps[None]:
        """Raises ClientError if it is refused, NotSent or ConnectionLost."""
        answered: Answered = yield Open(call)
        error = refusal(call, answered)
        if error is not None:
            raise error
        kind = answered.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            yield Close()
            raise UnreadableAnswer(f"{call.path} is no stream of events but {kind!r}.", status=answered.status)
        self._frames = Frames()
        self._unread.clear()

    def next(self) -> Steps[Told | None]:
        """What is told next; None for a heartbeat. Raises ConnectionLost when the stream ends, however it does."""
        while not self._unread:
            given: bytes = yield Read()
            if not given:
                raise ConnectionLost("The stream ended before the run did.")
            self._returns.connected()
            before = self._frames.comments
            try:
                self._unread.extend(self._frames.feed(given))
            except (FrameTooLarge, UnicodeDecodeError) as error:
                raise UnreadableAnswer(f"The stream cannot be read: {error}") from error
            self.retry_seconds = self._frames.retry_seconds or self.retry_seconds
            if not self._unread and self._frames.comments > before:
                return None
        return self._read(self._unread.popleft())

    def _read(self, frame: Frame) -> Told:
        try:
            told = msgspec.json.decode(frame.data, type=dict[str, Any])
            seq = None if frame.id is None else int(frame.id)
        except (msgspec.DecodeError, ValueError) as error:
            raise UnreadableAnswer(f"A frame of the stream cannot be read: {error}") from error
        if "type" not in told and "event" not in told:  # no event of a thread: the server speaks of the stream itself
            raise ended_by(frame.event, told)
        return seq, told


def ended_by(name: str, told: dict[str, Any]) -> ClientError:
    """Why the server ends the stream."""
    if name == "closing":
        return ConnectionLost(str(told.get("reason") or "The server stops."), code="closing")
    code, message = str(told.get("code") or "unavailable"), str(told.get("message") or "The stream cannot go on.")
    if code == CursorExpired.code:
        return CursorExpired(message, status=410)
    return ConnectionLost(message, code=code)
