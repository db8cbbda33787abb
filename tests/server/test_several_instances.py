"""Several servers of one project on PostgreSQL and Valkey: each of them serves the same threads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from tests.databases.postgres import Databases
from tests.databases.valkey import ValkeyServer
from tests.server.flows import WORDS
from tests.server.frames import following, log_of, until_rest
from tests.server.serving import Server, done, eventually, flows_project, turn

from perdure.server import ServerApp, create_app, service as service_module


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Databases, valkey_server: ValkeyServer
) -> Iterator[tuple[Server, Server]]:
    with postgres_server.database() as dsn:
        folder = flows_project(
            tmp_path_factory.mktemp("several") / "project", checkpointer=dsn, redis=valkey_server.url
        )
        with Server(folder) as first, Server(folder) as second:
            yield first, second


def test_client_of_a_killed_instance_continues_at_another_without_gap(
    pair: tuple[Server, Server],
) -> None:
    first, second = pair
    assert first.post("/v1/threads/moves/runs", {"input": "moves"}).status_code == 202
    eventually((first.folder / "moves.here").exists)
    with following(first, "moves") as stream:
        had = [next(stream) for _ in range(8)]
        first.kill()
    with following(second, "moves", had[-1].seq) as stream:
        had += [next(stream), next(stream)]
        (first.folder / "moves.open").touch()
        first.start()  # it continues the thread, and the other instance receives the events
        had += until_rest(stream)
    seqs = [frame.seq for frame in had if frame.seq is not None]
    assert seqs == list(range(1, len(seqs) + 1)) == [frame.seq for frame in log_of(first, "moves")]
    assert done(first, "moves") == WORDS
    assert log_of(first, "moves") == log_of(second, "moves")


def test_events_of_a_run_reach_the_other_instance_at_once(pair: tuple[Server, Server]) -> None:
    first, second = pair
    assert first.post("/v1/threads/heard/runs", {"input": "heard"}).status_code == 202
    eventually((first.folder / "heard.here").exists)
    with following(second, "heard") as there, following(first, "heard", 10) as here:
        before = [next(there) for _ in range(10)]
        (first.folder / "heard.open").touch()
        received = [[frame for frame in until_rest(stream) if frame.seq is not None] for stream in (there, here)]
    assert received[0] == received[1]
    assert [frame.seq for frame in before + received[0]] == list(range(1, 23))


def test_request_of_one_instance_can_be_answered_at_the_other(pair: tuple[Server, Server]) -> None:
    first, second = pair
    asked = first.post("/v1/threads/d/runs?wait=10", {"input": "tides", "workflow": "asking"})
    assert (asked.status_code, asked.json()["data"]["run"]["state"]) == (200, "IDLE_WITH_PENDING_REQUESTS")
    [request] = second.get("/v1/requests").json()["data"]["requests"]
    assert (request["thread_id"], request["data"]) == ("d", "A title for tides?")
    refused = second.post(f"/v1/threads/d/requests/{request['request_id']}/answer", {"value": 7})
    assert (refused.status_code, refused.json()["error"]["details"][0]["field"]) == (422, "value")
    answered = second.post(f"/v1/threads/d/requests/{request['request_id']}/answer?wait=10", {"value": "The sea"})
    assert answered.json()["data"]["run"]["outputs"] == ["The sea, about tides"]
    assert (answered.status_code, first.get("/v1/requests").json()["data"]["requests"]) == (200, [])
    again = first.post(f"/v1/threads/d/requests/{request['request_id']}/answer", {"value": "The moon"})
    assert again.status_code == 409
    assert done(first, "tides") == ["asked", "asked"]  # the function runs again from its top


def test_thread_run_by_one_instance_is_busy_at_the_other_which_can_stop_it(
    pair: tuple[Server, Server],
) -> None:
    first, second = pair
    run_id = first.post("/v1/threads/busy/runs", {"input": "busy"}).json()["data"]["run"]["run_id"]
    eventually((first.folder / "busy.here").exists)
    busy = second.post("/v1/graph/invoke", turn("busy"))
    assert (busy.status_code, busy.json()["error"], busy.json()["thread_id"]) == (409, "state_conflict", "busy")
    assert second.get(f"/v1/threads/busy/runs/{run_id}").json()["data"]["run"]["state"] == "IN_PROGRESS"
    assert second.post("/v1/graph/stop", {"thread_id": "busy"}).json()["data"] == {"ok": True, "running": True}
    assert eventually(
        lambda: first.get(f"/v1/threads/busy/runs/{run_id}").json()["data"]["run"]["state"] == "CANCELLED"
    )
    (first.folder / "busy.open").touch()
    resumed = second.post("/v1/threads/busy/runs?wait=10", {}).json()["data"]["run"]
    assert resumed["outputs"] == ["all four of busy"]
    # The third was at work when it was stopped, on an instance that may not know yet; nothing of it was recorded.
    assert [word for word in done(first, "busy") if word != "third"] == [word for word in WORDS if word != "third"]


def test_each_instance_reports_whether_postgresql_and_redis_are_available(pair: tuple[Server, Server]) -> None:
    for server in pair:
        ready = server.get("/readyz")
        assert (ready.status_code, ready.json()["data"]) == (
            200,
            {"is_ready": True, "checks": {"postgresql": "ok", "redis": "ok"}},
        )


async def test_living_instance_continues_the_runs_of_a_dead_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = flows_project(tmp_path / "project")
    monkeypatch.setattr(service_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(service_module, "LOOKS_BETWEEN", 1)
    living = app_of(folder, monkeypatch)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(living), base_url="http://localhost") as client:
        await client.get("/ping")  # which starts it
    with Server(folder) as dying:
        await asyncio.to_thread(dying.post, "/v1/threads/k/runs", {"input": "k"})
        await asyncio.to_thread(eventually, (folder / "k.here").exists)
        assert living.service.runs.active == 0  # the other one owns the thread
        (folder / "k.here").unlink()
    await asyncio.to_thread(eventually, (folder / "k.here").exists)
    (folder / "k.open").touch()
    [served] = living.service.runs.under_way
    assert await served.wait_ended(10)
    assert served.result is not None
    assert served.result.get_outputs() == ["all four of k"]
    assert (folder / "k.done").read_text(encoding="utf-8").splitlines() == WORDS
    await living.aclose()


def app_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ServerApp:
    """Creates the app of the project in this process, which drops the project's module afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "flows", ModuleType("flows"))
    del sys.modules["flows"]
    return create_app(folder / "perdure.json")
