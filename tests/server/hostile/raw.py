"""Bytes over a socket, as no well-behaved client would send them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import NamedTuple

from tests.server.serving import Server

PATIENCE = 10.0
INVOKE = "/v1/graph/invoke"


class Heard(NamedTuple):
    status: int
    """0: it was closed without an answer."""
    head: str
    body: bytes


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def head(server: Server, first: str, *lines: str) -> bytes:
    """The first line and headers of a request, in Latin-1, with a host that is right unless another one is given."""
    own = [] if any(one.lower().startswith("host:") for one in lines) else [f"Host: 127.0.0.1:{server.port}"]
    return "\r\n".join([f"{first} HTTP/1.1", *own, *lines, "", ""]).encode("latin-1")


def send_all(server: Server, pieces: Iterable[bytes], *, half_close: bool = False) -> Heard:
    """What is heard until an answer is whole, or the connection ends. A server may stop reading before the end."""
    with connected(server) as sock:
        try:
            for piece in pieces:
                sock.sendall(piece)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return hear(sock)


def hear(sock: socket.socket) -> Heard:
    heard = b""
    try:
        while not _is_whole(heard) and (piece := sock.recv(65536)):
            heard += piece
    except ConnectionResetError:
        pass
    top, _, body = heard.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/1.1 ") else 0
    return Heard(status, "\n".join(lines), body)


def _is_whole(heard: bytes) -> bool:
    top, found, body = heard.partition(b"\r\n\r\n")
    lengths = [int(one.split(b":")[1]) for one in top.lower().split(b"\r\n") if one.startswith(b"content-length:")]
    return bool(found) and bool(lengths) and len(body) >= lengths[0]


def posted(server: Server, body: bytes, *lines: str, path: str = INVOKE) -> Heard:
    headers = ("Content-Type: application/json", f"Content-Length: {len(body)}", *lines)
    return send_all(server, [head(server, f"POST {path}", *headers), body])
