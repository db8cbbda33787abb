"""Server-sent events, decoded from bytes that may be split anywhere, and the stream of a thread's events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from perdure.client.connection import Connection, HttpCall, HttpStream
from perdure.client.errors import ClientError, ConnectionLost, CursorExpired, UnreadableAnswer
from perdure.client.fetch import TRY_AGAIN, Reconnects, events_call
from perdure.client.models import Event

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A larger frame is an error: the server sends something else than events."""
_BOM = b"\xef\xbb\xbf"


class SseFrame(msgspec.Struct, frozen=True):
    event: str
    data: str
    id: str | None = None
    """None if the frame has no `id` line."""


class Frames(msgspec.Struct, eq=False):
    """Returns a frame when its last byte arrives. Never returns a frame that was cut off."""

    largest: int = MAX_FRAME_BYTES
    retry_seconds: float | None = None
    """The wait before a reconnect that the server asks for."""
    comments: int = 0
    """Comments so far. A server sends them as heartbeats."""
    _pieces: list[bytes] = []
    """Parts of the last, unfinished line. They are joined once."""
    _has_begun: bool = False
    _ended_with_cr: bool = False
    _event: str = ""
    _data: list[bytes] = []
    _id: str | None = None
    _size: int = 0

    def feed(self, data: bytes) -> list[SseFrame]:
        """Raises ValueError if a frame exceeds the size limit, or if the bytes are not UTF-8."""
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
            if (frame := self._parse_line(line)) is not None:
                frames.append(frame)
        if rest:
            self._count(len(rest))
            self._pieces.append(rest)
        return frames

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self.largest:
            raise ValueError(f"A frame of the stream has more than {self.largest} bytes.")

    def _parse_line(self, line: bytes) -> SseFrame | None:
        if not self._has_begun:
            self._has_begun = True
            line = line.removeprefix(_BOM)
        if not line:
            event, data, its_id = self._event, self._data, self._id
            self._event, self._data, self._id, self._size = "", [], None, 0
            return SseFrame(event or "message", b"\n".join(data).decode(), its_id) if data else None
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


# ---------------------------------------------------------------- the stream of events


LogEntry = tuple[int | None, dict[str, Any]]
"""A `seq`, None for a live event, and the event."""


class EventStream:
    """A stream of events that can be opened again after it broke."""

    def __init__(self, connection: Connection) -> None:
        self._http = HttpStream(connection)
        self.reconnects = Reconnects(connection)
        self._frames = Frames()
        self._unread: deque[SseFrame] = deque()
        self.aclose = self._http.aclose

    async def open(self, call: HttpCall[Any]) -> None:
        """Raises ClientError: the server rejects the request, or the connection fails."""
        response = await self._http.open(call)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise UnreadableAnswer(f"{call.path} is not a stream of events but {kind!r}.", status=response.status_code)
        self._frames = Frames()
        self._unread.clear()

    async def next(self) -> LogEntry | None:
        """The next event; None for a heartbeat. Raises ConnectionLost when the stream ends."""
        while not self._unread:
            data = await self._http.read()
            if not data:
                raise ConnectionLost("The stream ended before the run did.")
            self.reconnects.reset()
            before = self._frames.comments
            try:
                self._unread.extend(self._frames.feed(data))
            except ValueError as error:
                raise UnreadableAnswer(f"The stream cannot be read: {error}") from error
            self.reconnects.asked_for = self._frames.retry_seconds or self.reconnects.asked_for
            if not self._unread and self._frames.comments > before:
                return None
        frame = self._unread.popleft()
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


async def events(
    connection: Connection, thread_id: str, after: int | None, *, live: bool, reconnect: bool
) -> AsyncGenerator[Event, None]:
    """Each event of a thread once and in order, until the caller stops. Raises ClientError."""
    cursor = after
    async with aclosing(EventStream(connection)) as stream:
        while True:
            try:
                await stream.open(events_call(thread_id, cursor, live=live))
                while True:
                    entry = await stream.next()
                    if entry is None:
                        continue
                    seq, event = entry
                    if seq is not None:
                        if cursor is not None and seq <= cursor:
                            continue
                        cursor = seq
                    yield msgspec.convert(event, Event)
            except msgspec.ValidationError as error:
                raise UnreadableAnswer(f"An event cannot be read: {error}") from error
            except TRY_AGAIN as error:
                error.thread_id = thread_id
                if not reconnect:
                    raise
                await stream.reconnects.pause(error)
