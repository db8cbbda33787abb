"""Several servers of one project on PostgreSQL and Valkey: whichever is asked, it is the same thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.flows import WORDS
from tests.server.frames import following, log_of, until_rest
from tests.server.serving import Server, eventually, flows_project
from tests.server.test_surviving import done, turn
from tests.servers.fixtures import Place


@pytest.fixture
def pair(tmp_path: Path, postgres_place: Place, valkey_url: str) -> Iterator[tuple[Server, Server]]:
    folder = flows_project(
        tmp_path / "project",
        checkpointer=f"{postgres_place.dsn}?schema={postgres_place.schema}",
        redis=valkey_url,
    )
    with Server(folder) as one, Server(folder) as other:
        yield one, other


def test_a_client_goes_on_at_another_instance_when_its_own_is_killed_and_misses_and_repeats_nothing(
    pair: tuple[Server, Server],
) -> None:
    one, other = pair
    assert one.post("/v1/threads/k/runs", {"input": "k"}).status_code == 202
    eventually((one.folder / "k.here").exists)
    with following(one, "k") as told:
        had = [next(told) for _ in range(8)]
        one.kill()
    with following(other, "k", had[-1].seq) as told:
        had += [next(told), next(told)]
        (one.folder / "k.open").touch()
        one.start()  # it goes on with the thread, and the other instance hears of it
        had += until_rest(told)
    seqs = [frame.seq for frame in had if frame.seq is not None]
    assert seqs == list(range(1, len(seqs) + 1)) == [frame.seq for frame in log_of(one, "k")]
    assert done(one, "k") == WORDS
    assert log_of(one, "k") == log_of(other, "k")


def test_events_of_a_run_on_one_instance_are_heard_at_once_on_the_other(pair: tuple[Server, Server]) -> None:
    one, other = pair
    assert one.post("/v1/threads/k/runs", {"input": "k"}).status_code == 202
    eventually((one.folder / "k.here").exists)
    with following(other, "k") as there, following(one, "k", 10) as here:
        before = [next(there) for _ in range(10)]
        (one.folder / "k.open").touch()
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
    run_id = one.post("/v1/threads/k/runs", {"input": "k"}).json()["data"]["run"]["run_id"]
    eventually((one.folder / "k.here").exists)
    busy = other.post("/v1/graph/invoke", turn("k"))
    assert (busy.status_code, busy.json()["error"], busy.json()["thread_id"]) == (409, "state_conflict", "k")
    assert other.get(f"/v1/threads/k/runs/{run_id}").json()["data"]["run"]["state"] == "IN_PROGRESS"
    assert other.post("/v1/graph/stop", {"thread_id": "k"}).json()["data"] == {"ok": True, "running": True}
    assert eventually(lambda: one.get(f"/v1/threads/k/runs/{run_id}").json()["data"]["run"]["state"] == "CANCELLED")
    (one.folder / "k.open").touch()
    resumed = other.post("/v1/threads/k/runs?wait=10", {}).json()["data"]["run"]
    assert resumed["outputs"] == ["all four of k"]
    assert done(one, "k") == WORDS


def test_each_instance_tells_by_itself_whether_postgresql_and_redis_are_there(pair: tuple[Server, Server]) -> None:
    for server in pair:
        ready = server.get("/readyz")
        assert (ready.status_code, ready.json()["data"]) == (
            200,
            {"is_ready": True, "checks": {"postgresql": "ok", "redis": "ok"}},
        )
