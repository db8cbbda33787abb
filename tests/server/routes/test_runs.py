"""`/v1/threads/{id}/runs`: start, continue, read from any instance, and cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.server.routes.calling import called, error_of
from tests.server.routes.flows import gates, reached

ALL = {"counting": "counting", "asking": "asking", "waiting": "waiting", "parcels": "parcels", "sleeping": "sleeping"}
ALL |= {"failing": "failing", "digest": "digest", "reviewing": "reviewing"}


async def test_started_run_returns_its_id_at_once() -> None:
    async with called("waiting") as app:
        run = await app.run("t", 202, None, input="at-once")
        assert run["run_id"] and run["thread_id"] == "t"
        assert run["state"] in ("QUEUED", "IN_PROGRESS")
        await reached["at-once"].wait()
        current = (await app.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]
        assert (current["state"], current["outputs"]) == ("IN_PROGRESS", [])
        gates["at-once"].set()


async def test_run_with_wait_returns_its_result_or_its_state_after_the_wait() -> None:
    async with called("waiting") as app:
        run = await app.run("t", 202, 0.01, input="patience")
        assert run["state"] == "IN_PROGRESS"
        gates["patience"].set()
        done = await app.run("u", 200, 10, input="patience")
    assert (done["state"], done["outputs"], done["error"]) == ("IDLE", ["passed patience"], None)
    assert done["checkpoint_id"]


@pytest.mark.parametrize("wait", ["-1", "3601", "nan", "long", "inf"])
async def test_invalid_wait_is_rejected(wait: str) -> None:
    async with called("counting") as app:
        error_of(await app.ask("POST", f"/v1/threads/t/runs?wait={wait}", {"input": "x"}), 422)
        assert await app.get("/v1/threads") == {"threads": []}


async def test_input_is_converted_to_the_input_type_of_the_workflow() -> None:
    async with called("counting", workflows={"parcels": "parcels", "sleeping": "sleeping"}) as app:
        run = await app.run("p", input={"weight": 2, "to": "Oslo"}, workflow="parcels")
        assert run["outputs"] == [{"weight": 4.0, "to": "Oslo"}]
        assert (await app.run("s", input=0, workflow="sleeping"))["outputs"] == ["awake"]
        refused: list[Any] = [{"weight": "two", "to": "Oslo"}, {"weight": 1}, "text", None, [], 5]
        for wrong in refused:
            body = {"input": wrong, "workflow": "parcels"}
            error = await app.refused("POST", "/v1/threads/new/runs", body, status=422)
            assert error["code"] == "wrong_input_type", wrong
            assert error["details"][0]["field"] == "input"
        error_of(await app.ask("GET", "/v1/threads/new"), 404)


async def test_agent_accepts_a_text_and_messages() -> None:
    async with called("remembering") as app:
        assert (await app.run("t", input="one"))["state"] == "IDLE"
        run = await app.run("t", input=[{"role": "user", "contents": [{"type": "text", "text": "two"}]}])
        assert "heard: one, two" in str(run["outputs"])


async def test_thread_belongs_to_the_workflow_that_started_it() -> None:
    async with called("counting", workflows={"asking": "asking"}) as app:
        await app.run("t", input="bool", workflow="asking")
        error = await app.refused("POST", "/v1/threads/t/runs", {"input": "x", "workflow": "counting"}, status=409)
        assert error["code"] == "other_workflow"
        assert (await app.run("t", input="colour"))["state"] == "IDLE_WITH_PENDING_REQUESTS"
        error = await app.refused("POST", "/v1/threads/u/runs", {"input": "x", "workflow": "nobody"}, status=404)
        assert error["code"] == "workflow_not_found"
        error = await app.refused("POST", "/v1/threads/u/runs", {"input": "x", "workflow": "askin"}, status=404)
        assert error["message"].startswith("No workflow 'askin' exists (did you mean 'asking'?).")


async def test_run_takes_responses_or_nothing_but_not_input_and_responses() -> None:
    async with called("asking") as app:
        await app.run("t", input="bool colour")
        run = await app.run("t", responses={"bool": True, "colour": "red"})
        assert sorted(run["outputs"]) == ["Colour RED", "bool True"]
        assert (await app.run("t"))["state"] == "IDLE", "there was nothing to continue"
        both = {"input": "bool", "responses": {"bool": True}}
        assert (await app.refused("POST", "/v1/threads/t/runs", both, status=422))["code"] == "invalid_body"
        error_of(await app.ask("POST", "/v1/threads/nobody/runs", {}), 404)
        error_of(await app.ask("POST", "/v1/threads/nobody/runs", {"responses": {"bool": True}}), 404)


async def test_cancelled_run_continues_without_an_input() -> None:
    async with called("waiting") as app:
        run = await app.run("t", 202, None, input="cancelled")
        await reached["cancelled"].wait()
        result = await app.post(f"/v1/threads/t/runs/{run['run_id']}/cancel")
        assert result == {"run_id": run["run_id"], "was_running": True}
        assert (await app.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]["state"] == "CANCELLED"
        assert (await app.post(f"/v1/threads/t/runs/{run['run_id']}/cancel"))["was_running"] is False
        error_of(await app.ask("POST", "/v1/threads/t/runs/run-nobody/cancel", {}), 404)
        gates["cancelled"].set()
        assert (await app.run("t"))["outputs"] == ["passed cancelled"]


async def test_cancel_of_an_ended_run_does_not_stop_the_current_run() -> None:
    async with called("waiting") as app:
        gates["first-run"].set()
        first = await app.run("t", input="first-run")
        second = await app.run("t", 202, None, input="second-run")
        await reached["second-run"].wait()
        assert (await app.post(f"/v1/threads/t/runs/{first['run_id']}/cancel"))["was_running"] is False
        gates["second-run"].set()
        assert (await app.ended("t", second["run_id"]))["state"] == "IDLE"


async def test_run_on_a_busy_thread_conflicts_unless_it_is_enqueued() -> None:
    async with called("waiting") as app:
        first = await app.run("t", 202, None, input="runs-1")
        await reached["runs-1"].wait()
        assert error_of(await app.ask("POST", "/v1/threads/t/runs", {"input": "runs-2"}), 409)["code"] == "thread_busy"
        queued = asyncio.ensure_future(app.run("t", 200, 10, input="runs-2", on_busy="enqueue"))
        error_of(await app.ask("POST", "/v1/threads/t/runs", {"input": "x", "on_busy": "steal"}), 422)
        gates["runs-1"].set()
        gates["runs-2"].set()
        assert (await queued)["outputs"] == ["passed runs-2"]
        assert (await app.get(f"/v1/threads/t/runs/{first['run_id']}"))["run"]["outputs"] == ["passed runs-1"]


async def test_queued_run_is_answered_once_its_input_is_stored() -> None:
    async with called("waiting") as app:
        await app.run("t", 202, None, input="queue-1")
        await reached["queue-1"].wait()
        queued = asyncio.ensure_future(app.run("t", 202, None, input="queue-2", on_busy="enqueue"))
        gates["queue-1"].set()
        run = await queued
        checkpoints = (await app.get("/v1/threads/t/checkpoints"))["checkpoints"]
        assert run["run_id"] in {checkpoint["run_id"] for checkpoint in checkpoints}
        gates["queue-2"].set()
        assert (await app.ended("t", run["run_id"]))["outputs"] == ["passed queue-2"]


async def test_full_server_sends_retry_after_and_starts_nothing() -> None:
    async with called("waiting", limits={"max_runs": 1, "max_waiting": 0}) as app:
        run = await app.run("t", 202, None, input="full")
        await reached["full"].wait()
        for path, body in (
            ("/v1/threads/u/runs", {"input": "x"}),
            ("/v1/graph/invoke", {"messages": [{"content": "x"}], "config": {"thread_id": "u"}}),
            ("/v1/graph/stream", {"messages": [{"content": "x"}], "config": {"thread_id": "u"}}),
        ):
            answer = await app.ask("POST", path, body)
            assert error_of(answer, 429)["code"] == "too_many_runs"
            assert int(answer.headers["retry-after"]) >= 1
        error_of(await app.ask("GET", "/v1/threads/u"), 404)
        gates["full"].set()
        await app.ended("t", run["run_id"])
        assert (await app.run("u", input="full"))["outputs"] == ["passed full"]


@pytest.mark.parametrize("name", ["counting", "asking", "failing", "digest", "reviewing"])
async def test_run_is_the_same_from_its_own_instance_and_from_the_log(name: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    async with (
        called(None, workflows=ALL, checkpointer=url) as first,
        called(None, workflows=ALL, checkpointer=url) as second,
    ):
        body = {"input": "bool colour" if name == "asking" else "a b", "workflow": name}
        run = (await first.post("/v1/threads/t/runs", body, wait=10))["run"]
        assert run == (await first.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]
        assert run == (await second.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]
        error_of(await second.ask("GET", "/v1/threads/t/runs/run-nobody"), 404)
        error_of(await first.ask("GET", f"/v1/threads/other/runs/{run['run_id']}"), 404)


async def test_active_run_of_another_instance_is_seen_and_cancelled(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'threads.db'}"
    async with called("waiting", checkpointer=url) as first, called("waiting", checkpointer=url) as second:
        run = await first.run("t", 202, None, input="seen")
        await reached["seen"].wait()
        current = (await second.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]
        assert current["state"] == "IN_PROGRESS"
        assert (await second.post(f"/v1/threads/t/runs/{run['run_id']}/cancel"))["was_running"] is True
        assert (await second.get(f"/v1/threads/t/runs/{run['run_id']}"))["run"]["state"] == "CANCELLED"


async def test_run_that_sleeps_longer_than_the_client_waits_still_wakes() -> None:
    async with called("sleeping") as app:
        run = await app.run("t", 202, 0.01, input=0.05)
        assert run["state"] == "IN_PROGRESS"
        assert (await app.ended("t", run["run_id"]))["outputs"] == ["awake"]
