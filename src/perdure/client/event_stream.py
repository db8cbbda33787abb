"""Server-sent events, read from bytes that may be split anywhere."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

import msgspec

from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, CursorExpired, UnreadableAnswer, error_from
from perdure.client.steps import Answered, Close, Open, Read, StepReturns, Steps

LARGEST_FRAME = 64 * 1024 * 1024
"""Bytes. A stream that sends more without an end is none."""
_BOM = b"\xef\xbb\xbf"


class SseFrame(msgspec.Struct, frozen=True):
    """One event of a stream."""

    event: str
    data: str
    id: str | None = None
    """The one that it brought itself; None if it brought none."""


class FrameTooLarge(ValueError):
    """A frame without an end."""


class Frames:
    """Gives frames as their last byte comes in. A frame that is cut off is never given."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self.retry_seconds: float | None = None
        """How long the server wants clients to wait before they come back."""
        self.comments = 0
        """Comments so far: a server sends them to show that it is still there."""
        self._largest = largest
        self._pieces: list[bytes] = []
        """Of the line that has no end yet: joined once, however many there are."""
        self._has_begun = False
        self._ended_with_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._size = 0

    def feed(self, given: bytes) -> list[SseFrame]:
        """Raises FrameTooLarge, and UnicodeDecodeError for what is no UTF-8."""
        found: list[SseFrame] = []
        if self._ended_with_cr and given:
            self._ended_with_cr = False
            given = given[1:] if given.startswith(b"\n") else given
        *lines, rest = given.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n") if given else [b""]
        self._ended_with_cr = self._ended_with_cr or given.endswith(b"\r")
        for line in lines:
            self._count(len(line))
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
            frame = self._line(line)
            if frame is not None:
                found.append(frame)
        if rest:
            self._count(len(rest))
            self._pieces.append(rest)
        return found

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._largest:
            raise FrameTooLarge(f"A frame of the stream has more than {self._largest} bytes.")

    def _line(self, line: bytes) -> SseFrame | None:
        if not self._has_begun:
            self._has_begun = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name:
            self.comments += 1
        elif name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode()
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode()
        elif name == b"retry" and value.isdigit():
            self.retry_seconds = min(int(value[:9]) / 1000, 3600)
        return None

    def _dispatch(self) -> SseFrame | None:
        event, data, its_id = self._event, self._data, self._id
        self._event, self._data, self._id, self._size = "", [], None, 0
        if not data:
            return None
        return SseFrame(event or "message", b"\n".join(data).decode(), its_id)


# ---------------------------------------------------------------- reading


T = TypeVar("T")


class _Envelope(msgspec.Struct):
    data: msgspec.Raw


def refusal(call: HttpCall[Any], answered: Answered) -> ClientError | None:
    """None for a success."""
    if answered.is_success or answered.status in call.also:
        return None
    if 300 <= answered.status < 400:
        return UnreadableAnswer(
            f"{call.method} {call.path} was sent on to another address. Give the address that answers: credentials are "
            "not sent to any other.",
            status=answered.status,
        )
    return error_from(answered.status, answered.headers, answered.body)


def read(call: HttpCall[T], answered: Answered) -> T:
    """Raises UnreadableAnswer."""
    try:
        found = msgspec.json.decode(answered.body, type=_Envelope).data
        if call.under is not None:
            found = msgspec.json.decode(found, type=dict[str, msgspec.Raw])[call.under]
        value: T = msgspec.json.decode(found, type=call.kind)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        if answered.status in call.also:
            raise error_from(answered.status, answered.headers, answered.body) from error
        where = f"no {call.under!r}" if isinstance(error, KeyError) else str(error)
        raise UnreadableAnswer(
            f"{call.method} {call.path} was answered, but not as this client knows it: {where}. What was asked for may "
            "have been done. Is it the address of a perdure server?",
            status=answered.status,
            request_id=answered.headers.get("x-request-id"),
        ) from error
    return value


# ---------------------------------------------------------------- line


Told = tuple[int | None, dict[str, Any]]
"""What a frame says, and its place in the log."""


class Line:
    """A stream that is opened again and again."""

    def __init__(self, returns: StepReturns) -> None:
        self._returns = returns
        self._frames = Frames()
        self._unread: deque[SseFrame] = deque()
        self.retry_seconds: float | None = None
        """As the server last asked for."""

    def open(self, call: HttpCall[Any]) -> Steps[None]:
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

    def _read(self, frame: SseFrame) -> Told:
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
