"""`/v1/requests`: the pending requests of all threads, and the answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.routes.calling import Body, Called, called, error_of


async def requests(app: Called, **parameters: Any) -> list[Body]:
    listed: list[Body] = (await app.get("/v1/requests", **parameters))["requests"]
    return listed


async def test_requests_of_all_threads_are_listed_oldest_first() -> None:
    async with called("asking", workflows={"digest": "digest"}) as app:
        assert await requests(app) == []
        await app.invoke("verdict", "one")
        await app.invoke("bool colour", "two")
        await app.run("three", input="x", workflow="digest")
        listed = await requests(app)
        assert [(entry["thread_id"], entry["request_id"]) for entry in listed[:1]] == [("one", "verdict")]
        assert {(entry["thread_id"], entry["request_id"]) for entry in listed} == {
            ("one", "verdict"),
            ("two", "bool"),
            ("two", "colour"),
            ("three", "title"),
        }
        assert listed[-1]["thread_id"] == "three"
        assert [entry["asked_at"] for entry in listed] == sorted(entry["asked_at"] for entry in listed)
        assert {entry["request_id"] for entry in await requests(app, thread_id="two")} == {"bool", "colour"}
        assert await requests(app, limit=2) == listed[:2]
        error_of(await app.ask("GET", "/v1/requests?thread_id=nobody"), 404)


async def test_request_has_its_question_and_the_schema_of_its_answer() -> None:
    async with called("asking") as app:
        await app.invoke("verdict colour bool", "t")
        by_id = {entry["request_id"]: entry for entry in await requests(app)}
    verdict = by_id["verdict"]
    assert verdict["data"] == {"text": "verdict?"}
    assert (verdict["workflow_name"], verdict["executor_id"], verdict["assignee"]) == ("asking", "asker", "ada")
    assert verdict["response_type"] == "Verdict"
    shape = verdict["response_schema"]["$defs"]["Verdict"]
    assert shape["properties"]["approved"] == {"type": "boolean"} and shape["required"] == ["approved"]
    colours = by_id["colour"]["response_schema"]
    assert colours["$defs"]["Colour"]["enum"] == ["blue", "red"]
    assert by_id["bool"]["response_schema"] == {"type": "boolean"}


@pytest.mark.parametrize(
    ("asked", "value", "output"),
    [
        ("verdict", {"approved": False, "comment": "no"}, "Verdict False no"),
        ("colour", "red", "Colour RED"),
        ("bool", True, "bool True"),
    ],
)
async def test_answer_has_the_requested_type_and_the_thread_continues(asked: str, value: Any, output: str) -> None:
    async with called("asking") as app:
        await app.invoke(asked, "t")
        run = (await app.post(f"/v1/threads/t/requests/{asked}/answer", {"value": value}, wait=10))["run"]
        assert (run["state"], run["outputs"]) == ("IDLE", [output])
        assert await requests(app) == []


async def test_answer_without_wait_is_accepted_and_its_run_emits_the_output() -> None:
    async with called("asking") as app:
        await app.invoke("bool", "t")
        run = (await app.post("/v1/threads/t/requests/bool/answer", {"value": True}, 202))["run"]
        async with app.stream("GET", "/v1/threads/t/events") as events:
            while (event := await events.next_event()) is not None and event.event != "output":
                pass
        assert event is not None and event.data["run_id"] == run["run_id"]


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ("verdict", {"value": {"approved": "yes"}}),
        ("verdict", {"value": {"comment": "none"}}),
        ("colour", {"value": "green"}),
        ("bool", {"value": 1}),
        ("bool", {"value": None}),
        ("bool", {}),
    ],
)
async def test_invalid_answer_is_rejected_and_the_request_stays_pending(asked: str, body: Body) -> None:
    async with called("asking") as app:
        await app.invoke(asked, "t")
        before = (await app.get("/v1/threads/t"))["thread"]
        error = error_of(await app.ask("POST", f"/v1/threads/t/requests/{asked}/answer", body), 422)
        assert error["details"][0]["field"] is not None
        assert (await app.get("/v1/threads/t"))["thread"] == before
        assert [entry["request_id"] for entry in await requests(app)] == [asked]


async def test_second_answer_conflicts_and_an_unknown_request_is_not_found() -> None:
    async with called("asking") as app:
        await app.invoke("bool colour", "t")
        await app.post("/v1/threads/t/requests/bool/answer", {"value": True}, wait=10)
        again = await app.ask("POST", "/v1/threads/t/requests/bool/answer", {"value": False})
        assert error_of(again, 409)["code"] == "already_answered"
        unknown = await app.ask("POST", "/v1/threads/t/requests/nothing/answer", {"value": 1})
        assert error_of(unknown, 404)["code"] == "unknown_request"
        error_of(await app.ask("POST", "/v1/threads/nobody/requests/bool/answer", {"value": True}), 404)
        await app.post("/v1/threads/t/requests/colour/answer", {"value": "red"}, wait=10)
        last = await app.ask("POST", "/v1/threads/t/requests/colour/answer", {"value": "red"})
        assert error_of(last, 409)["code"] == "already_answered"


async def test_answer_continues_a_function_workflow_in_the_middle() -> None:
    async with called("digest") as app:
        await app.invoke("tides", "t")
        run = (await app.post("/v1/threads/t/requests/title/answer", {"value": "News"}, wait=10))["run"]
    assert run["outputs"] == ["News: tides tides"]
