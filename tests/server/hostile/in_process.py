"""The app in this process, and its users: no socket, no server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.server.hostile.served import token

from perdure.server import ServerApp, create_app

HERE = "tests.server.hostile.served"
URL = "http://localhost"
WORKFLOWS = {name: f"{HERE}:{name}" for name in ("ask", "failing", "waiting")}
LISTENING_SECONDS = 0.05
"""How long a client of an event stream without an end listens, before it leaves."""


def config(**more: Any) -> dict[str, Any]:
    served: dict[str, Any] = {"agent": f"{HERE}:agent", "workflows": WORKFLOWS, "checkpointer": "memory:"}
    served |= {"limits": {"shutdown_seconds": 0.05}}  # what waits for ever is left at once
    return {**served, "auth": {"method": "custom", "path": f"{HERE}:let_in"}, **more}


@asynccontextmanager
async def app_of(**more: Any) -> AsyncIterator[ServerApp]:
    """With the agent, the workflows and the users of served.py; `more` goes into its configuration."""
    app = create_app(config(**more))
    try:
        yield app
    finally:
        await app.aclose()


def bearer(user_id: str, scopes: Iterable[str] | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(user_id, scopes)}"}


def client_of(app: ServerApp, user_id: str | None = None, scopes: Iterable[str] | None = None) -> httpx.AsyncClient:
    headers = {} if user_id is None else bearer(user_id, scopes)
    transport = httpx.ASGITransport(app=leaving_streams(app))
    return httpx.AsyncClient(transport=transport, base_url=URL, headers=headers, timeout=10)


def leaving_streams(app: Any) -> Any:
    """The app as seen by clients that leave an event stream which has no end soon after it has begun."""

    async def seen(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/events"):
            await app(scope, receive, send)
            return
        left = asyncio.Event()
        has_started = False

        async def receive_or_leave() -> Any:
            if not has_started:
                return await receive()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send_and_note(message: Any) -> None:
            nonlocal has_started
            is_endless = message["type"] == "http.response.start" and message["status"] == 200
            if is_endless:
                has_started = True
                asyncio.get_running_loop().call_later(LISTENING_SECONDS, left.set)
            await send(message)

        await app(scope, receive_or_leave, send_and_note)
        if left.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return seen


# ---------------------------------------------------------------- sockets


def _is_done(frame: Mapping[str, Any]) -> bool:
    return isinstance(frame["data"], dict) and frame["data"].get("status") == "done"


async def talk(app: Any, frames: Iterable[Any], headers: Mapping[str, str], *, turns: int = 1) -> list[Any]:
    """Returns the messages that a socket at /v1/graph/ws receives until so many turns have ended, and its close."""
    received: list[Any] = []
    coming: asyncio.Queue[Any] = asyncio.Queue()
    coming.put_nowait({"type": "websocket.connect"})
    for frame in frames:
        coming.put_nowait({"type": "websocket.receive", "text": frame if isinstance(frame, str) else json.dumps(frame)})

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            received.append(json.loads(message["text"]))
            frames_of_turns = [item for item in received if "event" in item]
            ends = [item for item in frames_of_turns if item["event"] == "error" or _is_done(item)]
            if len(ends) == turns:
                coming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        else:
            received.append(message)

    scope = {
        "type": "websocket",
        "path": "/v1/graph/ws",
        "raw_path": b"/v1/graph/ws",
        "root_path": "",
        "query_string": b"",
        "scheme": "ws",
        "http_version": "1.1",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "subprotocols": [],
        "headers": [(b"host", b"localhost"), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
    }
    async with asyncio.timeout(60):
        await app(scope, coming.get, send)
    return received
