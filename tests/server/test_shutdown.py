"""A server that stops: streams end with a cursor, supersteps finish or can resume, and the process ends in time."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Never

import httpx
import pytest
from tests.server.flows import WORDS
from tests.server.frames import Frame, following, frames, log_of
from tests.server.serving import Server, done, eventually, flows_project, turn

from perdure import WorkflowBuilder, WorkflowContext, executor
from perdure.server.http.app import create_app

LIMIT_SECONDS = 1.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = flows_project(tmp_path / "project", limits={"shutdown_seconds": LIMIT_SECONDS})
    with Server(folder) as server:
        yield server


def assert_stops(server: Server) -> None:
    """Asserts that the server exits with code 0, although one of its runs never ends."""
    assert server.wait() == 0, server.log


def streamed(server: Server, key: str) -> list[Frame]:
    with server.client() as client, client.stream("POST", "/v1/graph/stream", json=turn(key)) as response:
        return list(frames(response))


def test_stop_ends_streams_with_a_cursor_and_the_next_start_completes_runs(
    server: Server,
) -> None:
    keys = ("finishes", "stays", "streams")
    with ThreadPoolExecutor(3) as clients:
        finishing, staying = (clients.submit(server.post, "/v1/graph/invoke", turn(key)) for key in keys[:2])
        streaming = clients.submit(streamed, server, "streams")
        for key in keys:
            eventually((server.folder / f"{key}.here").exists)
        with following(server, "stays") as stream:
            had = [next(stream) for _ in range(10)]
            server.send(signal.SIGTERM)
            [closing] = stream
        (server.folder / "finishes.open").touch()
        assert_stops(server)
        assert_has_retry_after(finishing.result())
        assert_has_retry_after(staying.result())
    assert closing[:2] == (None, "closing")
    assert streaming.result()[-1][:2] == (None, "closing")
    assert closing.data["after"] == streaming.result()[-1].data["after"] == had[-1].seq == 10
    assert [len(done(server, key)) for key in keys] == [4, 3, 3]

    for key in keys:
        (server.folder / f"{key}.open").touch()
    server.start()
    for key in keys:
        assert [frame.data["data"] for frame in log_of(server, key) if frame.event == "output"] == [
            f"all four of {key}"
        ]
        assert done(server, key) == WORDS


def assert_has_retry_after(response: httpx.Response) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (503, "run_interrupted"), response.text
    assert int(response.headers["Retry-After"]) > 0
    assert response.headers["X-Run-Id"].startswith("run-")


def test_idle_connection_does_not_delay_the_stop_of_a_server(tmp_path: Path) -> None:
    with Server(flows_project(tmp_path / "project", limits={"shutdown_seconds": 600})) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as silent, server.client() as client:
            assert client.get("/ping").status_code == 200  # and the connection stays open
            server.send(signal.SIGTERM)
            assert_stops(server)
            assert silent.recv(1) == b""


@executor
async def echo(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text)


echoing = WorkflowBuilder(name="echoing", start_executor=echo).build()


async def test_stopping_server_rejects_runs_and_streams_and_is_not_ready() -> None:
    app = create_app({"agent": f"{__name__}:echoing", "checkpointer": "memory:"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.post("/v1/graph/invoke", json=turn("before"))).status_code == 200
        app.service.begin_stopping()
        asked = [
            await client.post("/v1/graph/invoke", json=turn("after")),
            await client.post("/v1/graph/stream", json=turn("after")),
            await client.post("/v1/threads/after/runs", json={"input": "k"}),
            await client.get("/v1/threads/before/events"),
        ]
        assert [(response.status_code, response.json()["error"]["code"]) for response in asked] == [
            (503, "stopping")
        ] * 4
        assert all(int(response.headers["Retry-After"]) > 0 for response in asked)
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["data"]["checks"]["server"]) == (503, "stopping")
        assert (await client.get("/v1/threads/before")).status_code == 200  # what there is can be read
        assert (await client.get("/v1/threads/after")).status_code == 404
    await app.aclose()
