"""Clients that are slow, leave early, or are very many do not slow down other clients."""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from tests.chance import draw_seed
from tests.server.hostile.conftest import megabytes
from tests.server.hostile.raw import connected, head, read_answer
from tests.server.serving import Server, eventually

JSON = "Content-Type: application/json"
MANY = 1000


def invoke(server: Server, thread: str, text: str = "x") -> None:
    """A turn, which is answered before the limit of the client."""
    turn = {"messages": [{"role": "user", "content": text}], "config": {"thread_id": thread}}
    answer = server.post("/v1/graph/invoke", turn)
    assert answer.status_code == 200, answer.text


@contextmanager
def open_sockets(server: Server, number: int, first: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(server)) for _ in range(number)]
        for sock in opened:
            sock.sendall(first)
        yield opened


def test_unfinished_heads_and_bodies_do_not_delay_other_clients(server: Server) -> None:
    halves = [
        b"",
        b"GET /v1/threads HTT",
        head(server, "GET /v1/threads")[:-2],
        head(server, "POST /v1/graph/invoke", JSON, "Content-Length: 50") + b"{",
        head(server, "POST /v1/graph/invoke", JSON, "Transfer-Encoding: chunked") + b"5\r\n{",
    ]
    with ExitStack() as stack:
        for half in halves:
            stack.enter_context(open_sockets(server, 40, half))
        invoke(server, "beside")


def test_body_that_arrives_byte_by_byte_times_out(server: Server) -> None:
    """This server waits one second for the whole body, not one second for each piece."""
    with connected(server) as sock:
        began = time.monotonic()
        sock.sendall(head(server, "POST /v1/graph/invoke", JSON, "Content-Length: 500"))
        sock.settimeout(0.2)
        received = None
        while received is None and time.monotonic() < began + 15:
            try:
                sock.sendall(b" ")
                received = sock.recv(65536, socket.MSG_PEEK)
            except TimeoutError:
                continue
        sock.settimeout(5)
        answer = read_answer(sock)
    assert answer.status == 408
    assert json.loads(answer.body)["error"]["code"] == "body_too_slow"


def test_request_head_that_does_not_end_times_out(server: Server) -> None:
    halves = [b"", b"GET /ping HTTP/1.1\r\nHost: loc", b"POST /v1/graph/invoke HTTP/1.1\r\n"]
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(server)) for _ in halves]
        for sock, half in zip(opened, halves, strict=True):
            sock.sendall(half)
            sock.settimeout(15)
        assert {read_answer(sock).status for sock in opened} <= {0, 400, 408}


def test_run_continues_after_its_client_leaves_in_the_middle(server: Server) -> None:
    chance = random.Random(draw_seed())
    for number in range(40):
        turn = {"messages": [{"content": "x"}], "config": {"thread_id": f"left-{number}"}}
        body = json.dumps(turn).encode()
        whole = head(server, "POST /v1/graph/stream", JSON, f"Content-Length: {len(body)}") + body
        with connected(server) as sock:
            sent = len(whole) if number % 2 else chance.randrange(len(whole))
            sock.sendall(whole[:sent])
            if number % 4 == 3:  # it has begun when it is answered
                sock.recv(64)
            if chance.random() < 0.5:  # without a goodbye
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    with server.client() as client:
        for number in range(3, 40, 4):
            path = f"/v1/threads/left-{number}/messages"
            eventually(lambda path=path: len(client.get(path).json().get("data", {}).get("messages", ())) == 2)  # type: ignore[misc]  # bound


def test_unread_streams_use_bounded_memory(server: Server) -> None:
    invoke(server, "unread")
    before = megabytes(server.pid)
    with open_sockets(server, 20, head(server, "GET /v1/threads/unread/events")) as streams:
        for stream in streams:
            stream.recv(64)
        text = "y" * 200_000
        for _ in range(15):
            invoke(server, "unread", text)
        assert megabytes(server.pid) < before + 150, "15 turns of 0.2 MB and their answers, for 20 who do not read"


def test_thousand_idle_streams_do_not_delay_other_clients(server: Server) -> None:
    for thread in range(10):
        invoke(server, f"idle-{thread}")
    before = megabytes(server.pid)
    with ExitStack() as stack:
        streams = [stack.enter_context(connected(server)) for _ in range(MANY)]
        for number, stream in enumerate(streams):
            stream.sendall(head(server, f"GET /v1/threads/idle-{number % 10}/events?after=0"))
        await_first_bytes(streams)
        invoke(server, "beside")
        invoke(server, "idle-3")
        assert megabytes(server.pid) < before + 100, "a tenth of a megabyte each"
    eventually(lambda: "perdure_streams_open 0.0" in server.get("/metrics").text)


def await_first_bytes(streams: list[socket.socket]) -> None:
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        waiting = len(streams)
        patience = time.monotonic() + 15
        while waiting:
            assert time.monotonic() < patience, f"{waiting} streams have sent nothing"
            for key, _ in selector.select(1):
                received = key.fileobj.recv(65536)  # type: ignore[union-attr]  # a socket
                assert b"200 OK" in received, received[:200]
                selector.unregister(key.fileobj)
                waiting -= 1


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stays"])
def test_stream_ends_cleanly_when_its_client_never_sends_the_body(server: Server, leaves: bool) -> None:
    invoke(server, "promised")
    with connected(server) as sock:
        sock.sendall(head(server, "GET /v1/threads/promised/events", "Content-Length: 5"))
        assert b"200 OK" in sock.recv(64)
        if not leaves:
            sock.settimeout(1.3)  # longer than a body may take
            with suppress(TimeoutError):
                while sock.recv(65536):
                    pass
    eventually(lambda: "perdure_streams_open 0.0" in server.get("/metrics").text)
    assert "Traceback" not in server.log
