"""Answers and server-sent events, decoded from bytes that may be split anywhere."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

import msgspec

from perdure.client.calls import HttpCall
from perdure.client.errors import ClientError, ConnectionLost, CursorExpired, UnreadableAnswer, parse_error
from perdure.client.steps import Answered, Close, Open, Read, Reconnects, Steps

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A larger frame is an error: the server sends something else than events."""
_BOM = b"\xef\xbb\xbf"


class SseFrame(msgspec.Struct, frozen=True):
    """One event of a stream."""

    event: str
    data: str
    id: str | None = None
    """None if the frame has no `id` line."""


class FrameTooLarge(ValueError):
    """A frame exceeds the size limit."""


class Frames:
    """Returns a frame when its last byte arrives. Never returns a frame that was cut off."""

    def __init__(self, largest: int = MAX_FRAME_BYTES) -> None:
        self.retry_seconds: float | None = None
        """The wait before a reconnect that the server asks for."""
        self.comments = 0
        """Comments so far. A server sends them as heartbeats."""
        self._largest = largest
        self._pieces: list[bytes] = []
        """Parts of the last, unfinished line. They are joined once."""
        self._has_begun = False
        self._ended_with_cr = False
        self._event = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._size = 0

    def feed(self, data: bytes) -> list[SseFrame]:
        """Raises FrameTooLarge, and UnicodeDecodeError if the bytes are not UTF-8."""
        frames: list[SseFrame] = []
        if self._ended_with_cr and data:
            self._ended_with_cr = False
            data = data[1:] if data.startswith(b"\n") else data
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n") if data else [b""]
        self._ended_with_cr = self._ended_with_cr or data.endswith(b"\r")
        for line in lines:
            self._count(len(line))
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
            frame = self._parse_line(line)
            if frame is not None:
                frames.append(frame)
        if rest:
            self._count(len(rest))
            self._pieces.append(rest)
        return frames

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._largest:
            raise FrameTooLarge(f"A frame of the stream has more than {self._largest} bytes.")

    def _parse_line(self, line: bytes) -> SseFrame | None:
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


# ---------------------------------------------------------------- answers


T = TypeVar("T")


class _Envelope(msgspec.Struct):
    data: msgspec.Raw


def find_error(call: HttpCall[Any], answered: Answered) -> ClientError | None:
    """None for a success."""
    if answered.is_success or answered.status in call.also:
        return None
    if 300 <= answered.status < 400:
        return UnreadableAnswer(
            f"{call.method} {call.path} is redirected. Use the address that answers: the client sends "
            "credentials to no other address.",
            status=answered.status,
        )
    return parse_error(answered.status, answered.headers, answered.body)


def decode_answer(call: HttpCall[T], answered: Answered) -> T:
    """Raises UnreadableAnswer."""
    try:
        payload = msgspec.json.decode(answered.body, type=_Envelope).data
        if call.under is not None:
            payload = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])[call.under]
        value: T = msgspec.json.decode(payload, type=call.kind)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        if answered.status in call.also:
            raise parse_error(answered.status, answered.headers, answered.body) from error
        where = f"no {call.under!r}" if isinstance(error, KeyError) else str(error)
        raise UnreadableAnswer(
            f"{call.method} {call.path} has an answer that this client does not understand: {where}. The "
            "server may have done the work. Is this the address of a perdure server?",
            status=answered.status,
            request_id=answered.headers.get("x-request-id"),
        ) from error
    return value


# ---------------------------------------------------------------- the stream of events


LogEntry = tuple[int | None, dict[str, Any]]
"""A `seq`, None for a live event, and the event."""


class EventStream:
    """A stream of events that can be opened again after it broke."""

    def __init__(self, returns: Reconnects) -> None:
        self._returns = returns
        self._frames = Frames()
        self._unread: deque[SseFrame] = deque()
        self.retry_seconds: float | None = None
        """The server's last `retry`."""

    def open(self, call: HttpCall[Any]) -> Steps[None]:
        """Raises ClientError: the server rejects the request, or the connection fails."""
        answered: Answered = yield Open(call)
        error = find_error(call, answered)
        if error is not None:
            raise error
        kind = answered.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            yield Close()
            raise UnreadableAnswer(f"{call.path} is not a stream of events but {kind!r}.", status=answered.status)
        self._frames = Frames()
        self._unread.clear()

    def next(self) -> Steps[LogEntry | None]:
        """The next event; None for a heartbeat. Raises ConnectionLost when the stream ends."""
        while not self._unread:
            data: bytes = yield Read()
            if not data:
                raise ConnectionLost("The stream ended before the run did.")
            self._returns.reset()
            before = self._frames.comments
            try:
                self._unread.extend(self._frames.feed(data))
            except (FrameTooLarge, UnicodeDecodeError) as error:
                raise UnreadableAnswer(f"The stream cannot be read: {error}") from error
            self.retry_seconds = self._frames.retry_seconds or self.retry_seconds
            if not self._unread and self._frames.comments > before:
                return None
        return self._read(self._unread.popleft())

    def _read(self, frame: SseFrame) -> LogEntry:
        try:
            entry = msgspec.json.decode(frame.data, type=dict[str, Any])
            seq = None if frame.id is None else int(frame.id)
        except (msgspec.DecodeError, ValueError) as error:
            raise UnreadableAnswer(f"A frame of the stream cannot be read: {error}") from error
        if "type" not in entry and "event" not in entry:  # a notice about the stream itself
            raise stream_end_error(frame.event, entry)
        return seq, entry


def stream_end_error(name: str, entry: dict[str, Any]) -> ClientError:
    """The error for the notice with which the server ends the stream."""
    if name == "closing":
        return ConnectionLost(str(entry.get("reason") or "The server stops."), code="closing")
    code, message = str(entry.get("code") or "unavailable"), str(entry.get("message") or "The stream cannot continue.")
    if code == CursorExpired.code:
        return CursorExpired(message, status=410)
    return ConnectionLost(message, code=code)
