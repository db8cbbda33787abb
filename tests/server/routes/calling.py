"""Apps that are called without a network: whole answers by httpx, streams and sockets as ASGI messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import httpx

from perdure.server import ServerConfig, create_app
from perdure.server.http import app as app_module
from perdure.server.service import Service

HERE = "tests.server.routes.flows"
LIMIT_SECONDS = 60.0
Body = dict[str, Any]


class Called:
    """One app and its answers. Every answer is checked to be in its envelope."""

    def __init__(self, app: Any) -> None:
        self.app = app
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(
            transport=transport, trust_env=False, base_url="http://localhost", timeout=LIMIT_SECONDS
        )

    @property
    def service(self) -> Any:
        return self.app.service

    async def ask(self, method: str, path: str, body: Any = ..., **more: Any) -> httpx.Response:
        if body is not ...:
            more |= {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
        return await self.client.request(method, path, **more)

    async def get(self, path: str, **parameters: Any) -> Any:
        """Returns the data of a successful answer."""
        return data_of(await self.ask("GET", path, params=parameters))

    async def post(self, path: str, body: Any = ..., status: int = 200, **parameters: Any) -> Any:
        answer = await self.ask("POST", path, {} if body is ... else body, params=parameters)
        return data_of(answer, status)

    async def send(self, method: str, path: str, body: Any = ..., status: int = 200) -> Any:
        return data_of(await self.ask(method, path, body), status)

    async def refused(self, method: str, path: str, body: Any = ..., *, status: int, **more: Any) -> Body:
        """Returns the error of a rejected request."""
        answer = await self.ask(method, path, body, **more)
        return error_of(answer, status)

    async def invoke(self, text: str, thread_id: str | None = None, **more: Any) -> Any:
        return await self.post("/v1/graph/invoke", turn(text, thread_id, **more))

    async def run(self, thread_id: str, status: int = 200, wait: float | None = LIMIT_SECONDS, **body: Any) -> Any:
        parameters = {} if wait is None else {"wait": wait}
        return (await self.post(f"/v1/threads/{thread_id}/runs", body, status, **parameters))["run"]

    async def ended(self, thread_id: str, run_id: str) -> Any:
        """Returns the run, once the log of its thread has its end."""
        async with self.stream("GET", f"/v1/threads/{thread_id}/events?live=false") as events:
            while (event := await events.next_event()) is not None:
                state = event.data.get("state", "IN_PROGRESS")
                if event.data.get("run_id") == run_id and not state.startswith("IN_PROGRESS"):
                    return (await self.get(f"/v1/threads/{thread_id}/runs/{run_id}"))["run"]
        raise AssertionError("The stream ended before.")

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, unread: int = 0
    ) -> AsyncIterator[Stream]:
        """Opens an answer that is read piece by piece. The client leaves at the end of the block. `unread` is the
        number of pieces that the server may send before it has to wait. 0 means any number."""
        opened = Stream(self.app, method, path, body, dict(headers or {}), unread)
        try:
            await opened.begun()
            yield opened
        finally:
            await opened.leave()

    @asynccontextmanager
    async def socket(self, path: str = "/v1/graph/ws") -> AsyncIterator[Socket]:
        opened = Socket(self.app, path)
        try:
            await opened.open()
            yield opened
        finally:
            await opened.leave()


@asynccontextmanager
async def called(agent: str | None = None, **config: Any) -> AsyncIterator[Called]:
    """Serves an attribute of `flows` from an app in memory. `workflows={"name": "attribute"}` serves more of them."""
    settings: Body = {"checkpointer": "memory:", **config}
    if agent is not None:
        settings["agent"] = f"{HERE}:{agent}"
    settings["workflows"] = {name: f"{HERE}:{attribute}" for name, attribute in config.get("workflows", {}).items()}
    with patch.object(app_module, "make_routes", _routes_once):
        app = create_app(settings)
    try:
        yield Called(app)
    finally:
        await app.aclose()


_make_routes = app_module.make_routes
_made: dict[Any, Any] = {}


def _routes_once(service: Service) -> Any:
    """Returns the routes, which apps of the same settings share: making them takes longer than most tests.
    The routes do not depend on the service, because each request carries it."""
    config: ServerConfig = service.config
    key = (config.mode, config.cors, config.root_path)
    if key not in _made:
        _made[key] = _make_routes(service)
    return _made[key]


def turn(text: str, thread_id: str | None = None, **more: Any) -> Body:
    config = {**more.pop("config", {}), **({} if thread_id is None else {"thread_id": thread_id})}
    return {"messages": [{"role": "user", "content": text}], "config": config, **more}


def data_of(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"data", "metadata"}, body
    assert set(body["metadata"]) == {"request_id", "timestamp", "message"}
    assert body["metadata"]["request_id"] == answer.headers["x-request-id"]
    return body["data"]


def error_of(answer: httpx.Response, status: int) -> Body:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "metadata"}, body
    assert set(body["metadata"]) == {"request_id", "timestamp", "message"}
    error: Body = body["error"]
    more = {"limit", "window_seconds", "retry_after_seconds"} if status in (429, 503) else set()
    assert {"code", "message", "details"} <= set(error) <= {"code", "message", "details", *more}
    assert error["code"] and error["message"]
    return error


def conflict_of(answer: httpx.Response) -> Body:
    """Returns the body of a 409 in the form of AgentFlow."""
    assert answer.status_code == 409, answer.text
    body: Body = answer.json()
    assert set(body) == {"error", "detail", "thread_id"}, body
    assert body["error"] == "state_conflict" and body["detail"]
    return body


def texts(messages: list[Body]) -> list[str]:
    return ["".join(block.get("text", "") for block in message["content"]) for message in messages]


# ---------------------------------------------------------------- what comes piece by piece


class Event:
    """One server-sent event, as a browser reads it."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.is_comment = all(line.startswith(":") for line in lines)
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        assert set(fields) <= {"id", "event", "data", "retry"}, text
        self.id = int(fields["id"]) if "id" in fields else None
        self.event = fields.get("event")
        self.retry = fields.get("retry")
        self.data: Any = json.loads(fields["data"]) if "data" in fields else None


class _Connection:
    """The client's side of one ASGI connection."""

    def __init__(self, app: Any, scope: Body, unread: int = 0) -> None:
        self._from_client: asyncio.Queue[Body] = asyncio.Queue()
        self._to_client: asyncio.Queue[Body] = asyncio.Queue(unread)
        self._gone: Body = {}
        self._task = asyncio.ensure_future(app(scope, self._from_client.get, self._to_client.put))

    async def _next(self) -> Body:
        async with asyncio.timeout(LIMIT_SECONDS):
            getting = asyncio.ensure_future(self._to_client.get())
            await asyncio.wait([getting, self._task], return_when=asyncio.FIRST_COMPLETED)
            if not getting.done() and self._to_client.empty():
                getting.cancel()
                self._task.result()
                raise AssertionError("The app ended without another word.")
            return await getting

    async def leave(self) -> None:
        """Disconnects and waits until the app ends."""
        if not self._task.done():
            await self._from_client.put(self._gone)
        async with asyncio.timeout(LIMIT_SECONDS):
            while not self._task.done():  # what was on its way is lost
                getting = asyncio.ensure_future(self._to_client.get())
                await asyncio.wait([getting, self._task], return_when=asyncio.FIRST_COMPLETED)
                getting.cancel()
            await self._task


def _scope(kind: str, path: str, headers: Mapping[str, str]) -> Body:
    parts = urlsplit(path)
    pairs = [(b"host", b"localhost"), *((name.lower().encode(), value.encode()) for name, value in headers.items())]
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": pairs,
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }


class Stream(_Connection):
    def __init__(self, app: Any, method: str, path: str, body: Any, headers: dict[str, str], unread: int) -> None:
        if body is not None:
            headers["content-type"] = "application/json"
        super().__init__(app, {**_scope("http", path, headers), "method": method, "scheme": "http"}, unread)
        self._gone = {"type": "http.disconnect"}
        content = b"" if body is None else json.dumps(body).encode()
        self._from_client.put_nowait({"type": "http.request", "body": content, "more_body": False})
        self.status = 0
        self.headers: dict[str, str] = {}
        self._unread = ""

    async def begun(self) -> None:
        message = await self._next()
        assert message["type"] == "http.response.start", message
        self.status = message["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}

    async def next(self) -> Event | None:
        """Returns the next event, which may be a heartbeat, or None at the end."""
        while "\n\n" not in self._unread:
            message = await self._next()
            self._unread += message.get("body", b"").decode()
            if not message.get("more_body", False) and "\n\n" not in self._unread:
                assert self._unread == "", self._unread
                return None
        text, _, self._unread = self._unread.partition("\n\n")
        return Event(text)

    async def next_event(self) -> Event | None:
        """Returns the next event that is not a heartbeat, or None at the end."""
        while (event := await self.next()) is not None:
            if not event.is_comment and event.retry is None:
                return event
        return None

    async def all(self) -> list[Event]:
        """Returns all events until the end."""
        events = []
        while (event := await self.next_event()) is not None:
            events.append(event)
        return events

    async def until(self, last_id: int) -> list[Event]:
        """Returns the events up to this event of the log."""
        events: list[Event] = []
        while not events or events[-1].id != last_id:
            event = await self.next_event()
            assert event is not None, "The stream ended before."
            events.append(event)
        return events


class Socket(_Connection):
    def __init__(self, app: Any, path: str) -> None:
        super().__init__(app, {**_scope("websocket", path, {}), "scheme": "ws", "subprotocols": []})
        self._gone = {"type": "websocket.disconnect", "code": 1001}
        self._from_client.put_nowait({"type": "websocket.connect"})

    async def open(self) -> None:
        message = await self._next()
        assert message["type"] == "websocket.accept", message

    async def send(self, frame: Any) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        await self._from_client.put({"type": "websocket.receive", "text": text})

    async def receive(self) -> Body:
        message = await self._next()
        assert message["type"] == "websocket.send", message
        chunk: Body = json.loads(message["text"])
        return chunk

    async def turn(self, frame: Any) -> list[Body]:
        """Returns all chunks of one turn, up to its `done` chunk or the error that rejects it."""
        await self.send(frame)
        chunks = [await self.receive()]
        while not (is_done(chunks[-1]) or (chunks[-1]["event"] == "error" and len(chunks) == 1)):
            chunks.append(await self.receive())
        return chunks


def is_done(chunk: Body) -> bool:
    return bool(chunk["event"] == "updates" and chunk["data"].get("status") == "done")
