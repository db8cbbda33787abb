"""The same over real connections: tokens that are sent at once, clients that break off, and other processes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.databases.daemon import free_port
from tests.server.routes.calling import HERE, called, is_done, texts, turn
from tests.server.routes.flows import open_gate
from tests.server.serving import Server, eventually
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from perdure.server import ServerConfig, create_app
from perdure.server.uvicorn import make_server

LIMIT_SECONDS = 60.0


class Gates:
    """Opens gates of `flows` in the server's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._loop = loop
        self.url = url

    def open(self, name: str) -> None:
        self._loop.call_soon_threadsafe(open_gate, name)


@pytest.fixture(scope="module")
def served() -> Iterator[Gates]:
    """A server in a thread of this process."""
    config = ServerConfig(
        workflows={"talking": f"{HERE}:talking", "asking": f"{HERE}:asking"},
        agent=f"{HERE}:talking",
        checkpointer="memory:",
        port=free_port(),
    )
    loops: list[asyncio.AbstractEventLoop] = []
    server = make_server(create_app(config), config)

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive())
        assert server.started
        yield Gates(loops[0], f"127.0.0.1:{config.port}")
    finally:
        server.should_exit = True
        thread.join(LIMIT_SECONDS)


def client(served: Gates) -> httpx.Client:
    return httpx.Client(base_url=f"http://{served.url}", timeout=LIMIT_SECONDS, trust_env=False)


def chunks(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_token_is_sent_before_the_turn_ends(served: Gates) -> None:
    with client(served) as http, http.stream("POST", "/v1/graph/stream", json=turn("real-1", "t1")) as answer:
        received = chunks(answer.iter_lines())
        token = next(chunk for chunk in received if chunk["event"] == "message")
        assert token["message"]["delta"] is True and texts([token["message"]]) == ["good "]
        served.open("real-1")  # the agent continues only now
        assert is_done(list(received)[-1])


def test_client_whose_connection_breaks_gets_all_missed_events(served: Gates) -> None:
    with client(served) as http:
        with http.stream("POST", "/v1/graph/stream", json=turn("real-2", "t2")) as answer:
            run_id = next(chunks(answer.iter_lines()))["run_id"]
        served.open("real-2")
        seen: list[int] = []
        with http.stream("GET", "/v1/threads/t2/events", headers={"Last-Event-ID": "1"}) as answer:
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    seen.append(int(line.removeprefix("id: ")))
                if '"IDLE"' in line and line.startswith("data: "):
                    break
        run = http.get(f"/v1/threads/t2/runs/{run_id}").json()["data"]["run"]
    assert seen == list(range(2, seen[-1] + 1))
    assert run["state"] == "IDLE"


def test_socket_has_several_turns_and_survives_garbage(served: Gates) -> None:
    served.open("real-3")
    with connect(f"ws://{served.url}/v1/graph/ws") as socket:
        for number in range(2):
            socket.send("garbage")
            assert json.loads(socket.recv(LIMIT_SECONDS))["event"] == "error"
            socket.send(json.dumps(turn("real-3", "t3")))
            chunk = json.loads(socket.recv(LIMIT_SECONDS))
            while not is_done(chunk):
                chunk = json.loads(socket.recv(LIMIT_SECONDS))
            assert chunk["data"]["is_new_thread"] is (number == 0)


def test_frame_that_is_too_large_closes_the_socket_and_not_the_server(served: Gates) -> None:
    with connect(f"ws://{served.url}/v1/graph/ws") as socket:
        with suppress(ConnectionClosed):  # it may be closed before all of it is sent
            socket.send("x" * 11_000_000)
        with pytest.raises(ConnectionClosed):
            socket.recv(LIMIT_SECONDS)
    with client(served) as http:
        assert http.get("/ping").status_code == 200


async def test_run_of_another_process_is_seen_and_stopped(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'threads.db'}"
    (tmp_path / "perdure.json").write_text(json.dumps({"agent": f"{HERE}:waiting", "checkpointer": database}))
    root = str(Path(__file__).parents[3])
    with Server(tmp_path, env={"PYTHONPATH": root}) as other:
        async with called("waiting", checkpointer=database) as app:
            begun = await asyncio.to_thread(other.post, "/v1/threads/t/runs", {"input": "never"})
            run_id = begun.json()["data"]["run"]["run_id"]
            assert (await app.get(f"/v1/threads/t/runs/{run_id}"))["run"]["state"] == "IN_PROGRESS"
            assert await app.post("/v1/graph/stop", {"thread_id": "t"}) == {"ok": True, "running": True}
            assert (await app.get("/v1/threads/t"))["thread"]["status"] == "CANCELLED"
            assert (await app.get(f"/v1/threads/t/runs/{run_id}"))["run"]["state"] == "CANCELLED"
