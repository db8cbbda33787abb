"""Several servers of one project on PostgreSQL and Valkey: whichever is asked, it is the same thread."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from tests.server.flows import WORDS
from tests.server.frames import following, log_of, until_rest
from tests.server.serving import Server, done, eventually, flows_project, turn
from tests.servers.postgres import Databases
from tests.servers.valkey import ValkeyServer

from perdure.server.app import service as service_module
from perdure.server.http.app import ServerApp, create_app


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Databases, valkey_server: ValkeyServer
) -> Iterator[tuple[Server, Server]]:
    with postgres_server.database() as dsn:
        folder = flows_project(
            tmp_path_factory.mktemp("several") / "project", checkpointer=dsn, redis=valkey_server.url
        )
        with Server(folder) as one, Server(folder) as other:
            yield one, other


def test_a_client_goes_on_at_another_instance_when_its_own_is_killed_and_misses_and_repeats_nothing(
    pair: tuple[Server, Server],
) -> None:
    one, other = pair
    assert one.post("/v1/threads/moves/runs", {"input": "moves"}).status_code == 202
    eventually((one.folder / "moves.here").exists)
    with following(one, "moves") as told:
        had = [next(told) for _ in range(8)]
        one.kill()
    with following(other, "moves", had[-1].seq) as told:
        had += [next(told), next(told)]
        (one.folder / "moves.open").touch()
        one.start()  # it goes on with the thread, and the other instance hears of it
        had += until_rest(told)
    seqs = [frame.seq for frame in had if frame.seq is not None]
    assert seqs == list(range(1, len(seqs) + 1)) == [frame.seq for frame in log_of(one, "moves")]
    assert done(one, "moves") == WORDS
    assert log_of(one, "moves") == log_of(other, "moves")


def test_events_of_a_run_on_one_instance_are_heard_at_once_on_the_other(pair: tuple[Server, Server]) -> None:
    one, other = pair
    assert one.post("/v1/threads/heard/runs", {"input": "heard"}).status_code == 202
    eventually((one.folder / "heard.here").exists)
    with following(other, "heard") as there, following(one, "heard", 10) as here:
        before = [next(there) for _ in range(10)]
        (one.folder / "heard.open").touch()
        heard = [[frame for frame in until_rest(told) if frame.seq is not None] for told in (there, here)]
    assert heard[0] == heard[1]
    assert [frame.seq for frame in before + heard[0]] == list(range(1, 23))


def test_what_one_instance_asks_is_answered_at_the_other_and_the_run_goes_on(pair: tuple[Server, Server]) -> None:
    one, other = pair
    asked = one.post("/v1/threads/d/runs?wait=10", {"input": "tides", "workflow": "asking"})
    assert (asked.status_code, asked.json()["data"]["run"]["state"]) == (200, "IDLE_WITH_PENDING_REQUESTS")
    [request] = other.get("/v1/requests").json()["data"]["requests"]
    assert (request["thread_id"], request["data"]) == ("d", "A title for tides?")
    refused = other.post(f"/v1/threads/d/requests/{request['request_id']}/answer", {"value": 7})
    assert (refused.status_code, refused.json()["error"]["details"][0]["field"]) == (422, "value")
    answered = other.post(f"/v1/threads/d/requests/{request['request_id']}/answer?wait=10", {"value": "The sea"})
    assert answered.json()["data"]["run"]["outputs"] == ["The sea, about tides"]
    assert (answered.status_code, one.get("/v1/requests").json()["data"]["requests"]) == (200, [])
    again = one.post(f"/v1/threads/d/requests/{request['request_id']}/answer", {"value": "The moon"})
    assert again.status_code == 409
    assert done(one, "tides") == ["asked", "asked"]  # the function runs again from its top


def test_a_thread_that_one_instance_runs_is_busy_for_the_other_which_can_wait_or_stop_it(
    pair: tuple[Server, Server],
) -> None:
    one, other = pair
    run_id = one.post("/v1/threads/busy/runs", {"input": "busy"}).json()["data"]["run"]["run_id"]
    eventually((one.folder / "busy.here").exists)
    busy = other.post("/v1/graph/invoke", turn("busy"))
    assert (busy.status_code, busy.json()["error"], busy.json()["thread_id"]) == (409, "state_conflict", "busy")
    assert other.get(f"/v1/threads/busy/runs/{run_id}").json()["data"]["run"]["state"] == "IN_PROGRESS"
    assert other.post("/v1/graph/stop", {"thread_id": "busy"}).json()["data"] == {"ok": True, "running": True}
    assert eventually(lambda: one.get(f"/v1/threads/busy/runs/{run_id}").json()["data"]["run"]["state"] == "CANCELLED")
    (one.folder / "busy.open").touch()
    resumed = other.post("/v1/threads/busy/runs?wait=10", {}).json()["data"]["run"]
    assert resumed["outputs"] == ["all four of busy"]
    # The third was at work when it was stopped, on an instance that may not know yet; nothing of it was recorded.
    assert [word for word in done(one, "busy") if word != "third"] == [word for word in WORDS if word != "third"]


def test_each_instance_tells_by_itself_whether_postgresql_and_redis_are_there(pair: tuple[Server, Server]) -> None:
    for server in pair:
        ready = server.get("/readyz")
        assert (ready.status_code, ready.json()["data"]) == (
            200,
            {"is_ready": True, "checks": {"postgresql": "ok", "redis": "ok"}},
        )


async def test_a_living_instance_goes_on_with_what_a_dead_one_has_left(
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
    """Of the project in this folder, in this process, which forgets the project's module afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "flows", ModuleType("flows"))
    del sys.modules["flows"]
    return create_app(folder / "perdure.json")
