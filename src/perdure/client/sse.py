"""Server-sent events, read from bytes that may be split anywhere."""

from __future__ import annotations

import msgspec

LARGEST_FRAME = 64 * 1024 * 1024
"""Bytes. A stream that sends more without an end is none."""
_BOM = b"\xef\xbb\xbf"


class Frame(msgspec.Struct, frozen=True):
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

    def feed(self, given: bytes) -> list[Frame]:
        """Raises FrameTooLarge, and UnicodeDecodeError for what is no UTF-8."""
        found: list[Frame] = []
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

    def _line(self, line: bytes) -> Frame | None:
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

    def _dispatch(self) -> Frame | None:
        event, data, its_id = self._event, self._data, self._id
        self._event, self._data, self._id, self._size = "", [], None, 0
        if not data:
            return None
        return Frame(event or "message", b"\n".join(data).decode(), its_id)
