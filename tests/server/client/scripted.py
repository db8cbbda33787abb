"""A server that replies with the bytes that a test supplies, and records each request."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.server.client.accepting import Accepting


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


Reply = Callable[[Asked], bytes | None]
"""The bytes of a whole answer. None closes the connection without an answer."""


class ScriptedServer(Accepting):
    """One connection for each request."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.asked: list[Asked] = []
        super().__init__()

    def connected(self, connection: socket.socket) -> None:
        with connection:
            asked = _read(connection)
            if asked is None:
                return
            self.asked.append(asked)
            reply = self._reply(asked)
            if reply is not None:
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)


def _read(connection: socket.socket) -> Asked | None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            return None
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, body)


# ---------------------------------------------------------------- answers


def answer(status: int, body: Any, **headers: str) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", "Content-Type: application/json", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(text)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


def data(body: Any) -> bytes:
    return answer(200, {"data": body, "metadata": {"request_id": "r1"}})


def error(status: int, code: str, message: str = "No.", **headers: str) -> bytes:
    return answer(status, {"error": {"code": code, "message": message}, "metadata": {"request_id": "r1"}}, **headers)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nretry: 10\n\n"


def stream(*frames: bytes) -> bytes:
    """A stream that ends after these."""
    return STREAM + b"".join(frames)


def frame(body: dict[str, Any], seq: int | None = None, event: str = "updates") -> bytes:
    head = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (head, event.encode(), json.dumps(body).encode())


def event(seq: int | None, kind: str, run_id: str = "run-1", **more: Any) -> bytes:
    return frame({"type": kind, "seq": seq, "run_id": run_id, "thread_id": "t", **more}, seq, kind)


def chunk(seq: int | None, body: dict[str, Any], run_id: str = "run-1") -> bytes:
    return frame({"event": "updates", "data": body, "thread_id": "t", "run_id": run_id}, seq)


def started(run_id: str = "run-1", cursor: int = 0) -> bytes:
    return chunk(None, {"status": "started", "cursor": cursor}, run_id)
