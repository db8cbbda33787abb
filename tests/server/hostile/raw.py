"""Bytes over a socket, as no well-behaved client would send them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import NamedTuple

from tests.server.serving import Server

PATIENCE = 30.0
INVOKE = "/v1/graph/invoke"


class RawAnswer(NamedTuple):
    status: int
    """0 if the server closed the connection without an answer."""
    head: str
    body: bytes


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def head(server: Server, first: str, *lines: str) -> bytes:
    """Returns the first line and headers of a request, in Latin-1. The host is right unless `lines` names one."""
    own = [] if any(line.lower().startswith("host:") for line in lines) else [f"Host: 127.0.0.1:{server.port}"]
    return "\r\n".join([f"{first} HTTP/1.1", *own, *lines, "", ""]).encode("latin-1")


def send_all(server: Server, pieces: Iterable[bytes], *, half_close: bool = False) -> RawAnswer:
    """Sends the pieces and returns the answer. A server may stop reading before the end."""
    with connected(server) as sock:
        try:
            for piece in pieces:
                sock.sendall(piece)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except OSError as error:  # the server has closed the connection, before a piece or before the shutdown
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise
        return read_answer(sock)


def read_answer(sock: socket.socket) -> RawAnswer:
    received = b""
    try:
        while not _is_whole(received) and (piece := sock.recv(65536)):
            received += piece
    except ConnectionResetError:
        pass
    top, _, body = received.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/1.1 ") else 0
    return RawAnswer(status, "\n".join(lines), body)


def _is_whole(received: bytes) -> bool:
    top, separator, body = received.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(separator) and bool(lengths) and len(body) >= lengths[0]


def posted(server: Server, body: bytes, *lines: str, path: str = INVOKE) -> RawAnswer:
    headers = ("Content-Type: application/json", f"Content-Length: {len(body)}", *lines)
    return send_all(server, [head(server, f"POST {path}", *headers), body])
