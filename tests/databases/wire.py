"""The messages of PostgreSQL's protocol, as far as a proxy and a pooler have to know them."""

from __future__ import annotations

import struct

CANCEL, SSL, GSS = 80877102, 80877103, 80877104
"""What stands in place of the version in the first message of connections that are not what they seem."""


class Frames:
    """Cuts a stream into messages, each as it came, header included."""

    def __init__(self, *, begins_untyped: bool = False) -> None:
        self._buffer = bytearray()
        self.is_untyped = begins_untyped
        """Whether the next message has no type byte: the first ones of a client have none."""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now."""
        self._buffer += data
        complete = []
        while (frame := self._next()) is not None:
            complete.append(frame)
        return complete

    def _next(self) -> bytes | None:
        header = 0 if self.is_untyped else 1
        if len(self._buffer) < header + 4:
            return None
        length = header + int(struct.unpack_from("!I", self._buffer, header)[0])
        if len(self._buffer) < length:
            return None
        frame = bytes(self._buffer[:length])
        del self._buffer[:length]
        if self.is_untyped and startup_code(frame) not in (SSL, GSS):
            self.is_untyped = False
        return frame


def startup_code(frame: bytes) -> int:
    return int(struct.unpack_from("!I", frame, 4)[0])


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def startup(parameters: dict[str, str]) -> bytes:
    body = struct.pack("!I", 3 << 16)
    body += b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def startup_parameters(frame: bytes) -> dict[str, str]:
    words = frame[8:].decode().rstrip("\0").split("\0")
    return dict(zip(words[::2], words[1::2], strict=True))


def cancel_request(pid: int, key: bytes) -> bytes:
    body = struct.pack("!II", CANCEL, pid) + key
    return struct.pack("!I", len(body) + 4) + body


def error(code: str, text: str) -> bytes:
    fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": text}
    return message(b"E", b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0")


# ---------------------------------------------------------------- prepared statements


def parsed(frame: bytes) -> tuple[bytes, bytes]:
    """Parse: the statement's name, and the rest (its SQL, terminated, and the types)."""
    name, _, rest = frame[5:].partition(b"\0")
    return name, rest


def bound(frame: bytes) -> tuple[bytes, bytes, bytes]:
    """Bind: the portal, the statement's name, and the rest."""
    portal, _, rest = frame[5:].partition(b"\0")
    name, _, rest = rest.partition(b"\0")
    return portal, name, rest


def described(frame: bytes) -> tuple[bytes, bytes]:
    """Describe, Close: S for a statement or P for a portal, and its name."""
    return frame[5:6], frame[6:-1]
