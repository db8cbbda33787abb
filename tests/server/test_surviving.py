"""Runs of a server go on: after it was killed, and when the client that asked for them has gone."""

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
    """What names the storage to a server."""
    if request.param == "sqlite":
        return {}
    place = request.getfixturevalue("postgres_place")
    return {"PERDURE_CHECKPOINTER": f"{place.dsn}?schema={place.schema}"}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave it standing."""
    with Server(flows_project(tmp_path_factory.mktemp("lasting") / "project")) as server:
        yield server


def begin(server: Server, way: str) -> None:
    """Ask for a run that waits at its gate. The connection lasts as long as the server."""
    try:
        if way == "run":
            assert server.post(f"/v1/threads/{way}/runs", {"input": way}).status_code == 202
        else:
            server.post(f"/v1/graph/{way}", turn(way))
    except httpx.TransportError:
        pass  # the server was killed meanwhile


def commits(server: Server, key: str) -> list[tuple[int, int, str]]:
    told = server.get(f"/v1/threads/{key}/checkpoints").json()["data"]["checkpoints"]
    return [(one["number"], one["iteration_count"], one["status"]) for one in told]


def shape(log: list[Frame]) -> list[tuple[Any, ...]]:
    return [(one.seq, one.event, one.data.get("executor_id"), one.data.get("state")) for one in log]


def test_runs_that_were_invoked_streamed_or_started_go_on_alike_after_a_kill_and_repeat_nothing(
    tmp_path: Path, where: dict[str, str]
) -> None:
    with Server(flows_project(tmp_path / "project"), env=where) as server, ThreadPoolExecutor(3) as clients:
        asked = [clients.submit(begin, server, way) for way in WAYS]
        for way in WAYS:
            eventually((server.folder / f"{way}.here").exists)
        standing = {way: commits(server, way) for way in WAYS}
        assert standing["invoke"] == standing["stream"] == standing["run"]
        assert [number for number, _, _ in standing["stream"]] == [3, 2, 1]
        server.kill()
        for one in asked:
            one.result()
        assert [done(server, way) for way in WAYS] == [WORDS[:3]] * 3

        for way in WAYS:
            (server.folder / f"{way}.open").touch()
        server.start()  # nobody asks again
        logs = {way: log_of(server, way) for way in WAYS}
        assert [done(server, way) for way in WAYS] == [WORDS] * 3
        for way in WAYS:
            assert [one.seq for one in logs[way]] == list(range(1, len(logs[way]) + 1))
            assert [one.data["data"] for one in logs[way] if one.event == "output"] == [f"all four of {way}"]
        assert shape(logs["invoke"]) == shape(logs["stream"]) == shape(logs["run"])
        assert commits(server, "invoke") == commits(server, "stream") == commits(server, "run")


def test_a_run_goes_on_when_the_client_that_invoked_it_closes_its_connection(lasting: Server) -> None:
    body = json.dumps(turn("hangs-up")).encode()
    head = f"POST /v1/graph/invoke HTTP/1.1\r\nHost: 127.0.0.1:{lasting.port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", lasting.port)) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        eventually((lasting.folder / "hangs-up.here").exists)
    assert_goes_on(lasting, "hangs-up")


def test_a_run_goes_on_when_the_client_that_streams_it_closes_its_connection(lasting: Server) -> None:
    with lasting.client() as client, client.stream("POST", "/v1/graph/stream", json=turn("walks-off")) as response:
        told = frames(response)
        assert next(told).data["data"]["status"] == "started"
        eventually((lasting.folder / "walks-off.here").exists)
    assert_goes_on(lasting, "walks-off")


def assert_goes_on(server: Server, key: str) -> None:
    assert server.get("/ping").status_code == 200  # it has had time to notice
    thread = server.get(f"/v1/threads/{key}").json()["data"]["thread"]
    assert (thread["status"], thread["number"]) == ("IN_PROGRESS", 3)
    (server.folder / f"{key}.open").touch()
    assert [one.data["data"] for one in log_of(server, key) if one.event == "output"] == [f"all four of {key}"]
    assert done(server, key) == WORDS


def test_a_stream_tells_each_committed_event_once_and_its_ids_are_those_of_the_log(lasting: Server) -> None:
    (lasting.folder / "streamed.open").touch()
    with lasting.client() as client, client.stream("POST", "/v1/graph/stream", json=turn("streamed")) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = list(frames(response))
    committed = [one for one in told if one.seq is not None]
    assert [one.seq for one in committed] == [one.seq for one in log_of(lasting, "streamed")]
    assert told[-1].data["data"]["status"] == "done"
    assert told[-1].data["data"]["cursor"] == committed[-1].seq


def test_a_client_that_comes_back_after_a_restart_gets_what_it_has_not_had(tmp_path: Path) -> None:
    with Server(flows_project(tmp_path / "project")) as server:
        server.post("/v1/threads/k/runs", {"input": "k"})
        eventually((server.folder / "k.here").exists)
        with following(server, "k") as told:
            had = [next(told) for _ in range(7)]
            server.kill()
        server.start()
        with following(server, "k", had[-1].seq) as told:
            had += [next(told)]
            (server.folder / "k.open").touch()
            had += until_rest(told)
        assert [one.seq for one in had if one.seq is not None] == list(range(1, len(log_of(server, "k")) + 1))


def test_a_message_to_a_thread_that_was_interrupted_waits_until_that_has_come_to_rest(tmp_path: Path) -> None:
    with Server(flows_project(tmp_path / "project")) as server, ThreadPoolExecutor(1) as clients:
        server.post("/v1/threads/k/runs", {"input": "k"})
        eventually((server.folder / "k.here").exists)
        server.kill()
        (server.folder / "k.here").unlink()
        (server.folder / "next.open").touch()
        server.start()
        eventually((server.folder / "k.here").exists)  # it is resumed, and in the middle of its work
        told = turn("next") | {"config": {"thread_id": "k", "on_busy": "enqueue"}}
        invoked = clients.submit(server.post, "/v1/graph/invoke", told)
        (server.folder / "k.open").touch()
        assert invoked.result().json()["data"]["messages"][0]["content"][0]["text"] == "all four of next"
        assert done(server, "k") == done(server, "next") == WORDS
        outputs = [one.data["data"] for one in log_of(server, "k") if one.event == "output"]
        assert outputs[0] == "all four of k"
