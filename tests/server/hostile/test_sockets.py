"""Sockets that send garbage, frames that are too large, and very many of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from tests.server.hostile.conftest import SECRET
from tests.server.hostile.raw import connected, head, read_answer
from tests.server.serving import Server
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

MOST = 10_000_000
MANY = 60
TURN = json.dumps({"messages": [{"content": "hello"}], "config": {"thread_id": "socket"}})

GARBAGE: dict[str, str | bytes] = {
    "a word": "hello",
    "nothing": "",
    "null": "null",
    "a list": "[]",
    "deep": "[" * 100_000,
    "deep in any": '{"resume": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no turn": "{}",
    "wrong types": '{"messages": 5}',
    "wrong kind": '{"invoke_type": "live"}',
    "resumes nothing": '{"invoke_type": "resume", "resume": 1, "config": {"thread_id": "none"}}',
    "tool result": '{"tool_result": {}}',
    "bad id": '{"messages": [{"content": "x"}], "config": {"thread_id": "../x"}}',
    "half a surrogate": r'{"messages": [{"content": "\ud800"}]}',
    "large number": '{"recursion_limit": 1e999}',
    "bytes": b"\x00\xff\xfe",
    "bytes of json": b"{}",
}


def url(server: Server) -> str:
    return f"ws://127.0.0.1:{server.port}/v1/graph/ws"


async def turn_over(socket: ClientConnection, frame: str | bytes) -> list[dict[str, Any]]:
    """Returns the frames until the turn ends or is rejected."""
    await socket.send(frame)
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not frames or not (frames[-1]["event"] == "error" or (frames[-1]["data"] or {}).get("status") == "done"):
            frames.append(json.loads(await socket.recv()))
    return frames


async def test_invalid_frame_gets_an_error_and_the_socket_stays_open(server: Server) -> None:
    async with connect(url(server), proxy=None) as socket:
        for name, frame in GARBAGE.items():
            [reply] = await turn_over(socket, frame)
            assert reply["event"] == "error", name
            assert reply["data"]["status"] in (404, 409, 422), (name, reply)
        reply = (await turn_over(socket, TURN))[-1]
        assert reply["data"]["status"] == "done"


async def test_text_that_is_not_utf8_closes_the_socket(server: Server) -> None:
    async with connect(url(server), proxy=None) as socket:
        await socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code in (1002, 1007)


async def test_frame_that_is_too_large_closes_the_socket(server: Server) -> None:
    async with connect(url(server), proxy=None) as socket:
        with suppress(ConnectionClosed):  # it may not be read to its end
            await socket.send("x" * (MOST + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_many_sockets_each_get_their_own_turn(server: Server) -> None:
    async def talk_once(number: int) -> str:
        async with connect(url(server), proxy=None, open_timeout=60) as socket:
            turn = {"messages": [{"content": f"hello {number}"}], "config": {"thread_id": f"socket-{number}"}}
            frames = await turn_over(socket, json.dumps(turn))
            texts = [frame["message"]["content"][0]["text"] for frame in frames if frame["message"]]
            return str(texts[-1])

    assert await asyncio.gather(*map(talk_once, range(MANY))) == [f"1: hello {number}" for number in range(MANY)]


@pytest.mark.parametrize(
    "lines", [("Origin: http://evil.example",), ("Origin: null",), ("Host: evil.example",), ("Host: localhost.evil:1",)]
)
async def test_page_of_another_origin_gets_no_socket(server: Server, lines: tuple[str, ...]) -> None:
    asks = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    with connected(server) as sock:
        sock.sendall(head(server, "GET /v1/graph/ws", *asks, key, *lines))
        assert read_answer(sock).status in (400, 403)


async def test_socket_at_another_path_is_rejected(server: Server) -> None:
    for path in ("/v1/graph/live", "/ping", "/v1/threads/x/events"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None)
        assert refused.value.response.status_code in (403, 404, 405)


async def test_token_in_the_address_is_not_logged(server: Server) -> None:
    async with connect(f"{url(server)}?token={SECRET}", proxy=None) as socket:
        assert (await turn_over(socket, "{}"))[0]["event"] == "error"
    assert SECRET not in server.log
