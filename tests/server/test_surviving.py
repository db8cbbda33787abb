"""Runs of a server continue after a kill, and after their client has disconnected."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.flows import WORDS
from tests.server.frames import Frame, following, frames, log_of, until_rest
from tests.server.serving import Server, done, eventually, flows_project, turn

WAYS = ("invoke", "stream", "run")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest) -> dict[str, str]:
    """Returns the environment that configures the store of a server."""
    if request.param == "sqlite":
        return {}
    place = request.getfixturevalue("postgres_place")
    return {"PERDURE_CHECKPOINTER": f"{place.dsn}?schema={place.schema}"}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for tests that do not stop it."""
    with Server(flows_project(tmp_path_factory.mktemp("lasting") / "project")) as server:
        yield server


def begin(server: Server, way: str) -> None:
    """Starts a run that waits at its gate. The connection lasts as long as the server."""
    try:
        if way == "run":
            assert server.post(f"/v1/threads/{way}/runs", {"input": way}).status_code == 202
        else:
            server.post(f"/v1/graph/{way}", turn(way))
    except httpx.TransportError:
        pass  # the server was killed meanwhile


def commits(server: Server, key: str) -> list[tuple[int, int, str]]:
    checkpoints = server.get(f"/v1/threads/{key}/checkpoints").json()["data"]["checkpoints"]
    return [(checkpoint["number"], checkpoint["iteration_count"], checkpoint["status"]) for checkpoint in checkpoints]


def shape(log: list[Frame]) -> list[tuple[Any, ...]]:
    return [(frame.seq, frame.event, frame.data.get("executor_id"), frame.data.get("state")) for frame in log]


def test_invoked_streamed_and_started_runs_continue_alike_after_a_kill(tmp_path: Path, where: dict[str, str]) -> None:
    with Server(flows_project(tmp_path / "project"), env=where) as server, ThreadPoolExecutor(3) as clients:
        asked = [clients.submit(begin, server, way) for way in WAYS]
        for way in WAYS:
            eventually((server.folder / f"{way}.here").exists)
        standing = {way: commits(server, way) for way in WAYS}
        assert standing["invoke"] == standing["stream"] == standing["run"]
        assert [number for number, _, _ in standing["stream"]] == [3, 2, 1]
        server.kill()
        for future in asked:
            future.result()
        assert [done(server, way) for way in WAYS] == [WORDS[:3]] * 3

        for way in WAYS:
            (server.folder / f"{way}.open").touch()
        server.start()  # no client asks again
        logs = {way: log_of(server, way) for way in WAYS}
        assert [done(server, way) for way in WAYS] == [WORDS] * 3
        for way in WAYS:
            assert [frame.seq for frame in logs[way]] == list(range(1, len(logs[way]) + 1))
            assert [frame.data["data"] for frame in logs[way] if frame.event == "output"] == [f"all four of {way}"]
        assert shape(logs["invoke"]) == shape(logs["stream"]) == shape(logs["run"])
        assert commits(server, "invoke") == commits(server, "stream") == commits(server, "run")


def test_run_continues_when_the_client_that_invoked_it_disconnects(lasting: Server) -> None:
    body = json.dumps(turn("hangs-up")).encode()
    head = f"POST /v1/graph/invoke HTTP/1.1\r\nHost: 127.0.0.1:{lasting.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", lasting.port)) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        eventually((lasting.folder / "hangs-up.here").exists)
    assert_continues(lasting, "hangs-up")


def test_run_continues_when_the_client_that_streams_it_disconnects(lasting: Server) -> None:
    with lasting.client() as client, client.stream("POST", "/v1/graph/stream", json=turn("walks-off")) as response:
        received = frames(response)
        assert next(received).data["data"]["status"] == "started"
        eventually((lasting.folder / "walks-off.here").exists)
    assert_continues(lasting, "walks-off")


def assert_continues(server: Server, key: str) -> None:
    assert server.get("/ping").status_code == 200  # it has had time to notice
    thread = server.get(f"/v1/threads/{key}").json()["data"]["thread"]
    assert (thread["status"], thread["number"]) == ("IN_PROGRESS", 3)
    (server.folder / f"{key}.open").touch()
    assert [frame.data["data"] for frame in log_of(server, key) if frame.event == "output"] == [f"all four of {key}"]
    assert done(server, key) == WORDS


def test_stream_sends_each_committed_event_once_with_its_id_in_the_log(lasting: Server) -> None:
    (lasting.folder / "streamed.open").touch()
    with lasting.client() as client, client.stream("POST", "/v1/graph/stream", json=turn("streamed")) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        received = list(frames(response))
    committed = [frame for frame in received if frame.seq is not None]
    assert [frame.seq for frame in committed] == [frame.seq for frame in log_of(lasting, "streamed")]
    assert received[-1].data["data"]["status"] == "done"
    assert received[-1].data["data"]["cursor"] == committed[-1].seq


def test_client_that_reconnects_after_a_restart_gets_the_missing_events(tmp_path: Path) -> None:
    with Server(flows_project(tmp_path / "project")) as server:
        server.post("/v1/threads/k/runs", {"input": "k"})
        eventually((server.folder / "k.here").exists)
        with following(server, "k") as stream:
            had = [next(stream) for _ in range(7)]
            server.kill()
        server.start()
        with following(server, "k", had[-1].seq) as stream:
            had += [next(stream)]
            (server.folder / "k.open").touch()
            had += until_rest(stream)
        assert [frame.seq for frame in had if frame.seq is not None] == list(range(1, len(log_of(server, "k")) + 1))


def test_message_to_an_interrupted_thread_waits_until_the_thread_rests(tmp_path: Path) -> None:
    with Server(flows_project(tmp_path / "project")) as server, ThreadPoolExecutor(1) as clients:
        server.post("/v1/threads/k/runs", {"input": "k"})
        eventually((server.folder / "k.here").exists)
        server.kill()
        (server.folder / "k.here").unlink()
        (server.folder / "next.open").touch()
        server.start()
        eventually((server.folder / "k.here").exists)  # it is resumed, and in the middle of its work
        body = turn("next") | {"config": {"thread_id": "k", "on_busy": "enqueue"}}
        invoked = clients.submit(server.post, "/v1/graph/invoke", body)
        (server.folder / "k.open").touch()
        assert invoked.result().json()["data"]["messages"][0]["content"][0]["text"] == "all four of next"
        assert done(server, "k") == done(server, "next") == WORDS
        outputs = [frame.data["data"] for frame in log_of(server, "k") if frame.event == "output"]
        assert outputs[0] == "all four of k"
