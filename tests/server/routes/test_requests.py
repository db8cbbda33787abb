"""`/v1/requests`: all that waits for a person, and the answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.routes.calling import Body, Called, called, error_of


async def requests(app: Called, **parameters: Any) -> list[Body]:
    found: list[Body] = (await app.get("/v1/requests", **parameters))["requests"]
    return found


async def test_requests_of_all_threads_are_listed_those_who_wait_longest_first() -> None:
    async with called("asking", workflows={"digest": "digest"}) as app:
        assert await requests(app) == []
        await app.invoke("verdict", "one")
        await app.invoke("bool colour", "two")
        await app.run("three", input="x", workflow="digest")
        found = await requests(app)
        assert [(one["thread_id"], one["request_id"]) for one in found[:1]] == [("one", "verdict")]
        assert {(one["thread_id"], one["request_id"]) for one in found} == {
            ("one", "verdict"),
            ("two", "bool"),
            ("two", "colour"),
            ("three", "title"),
        }
        assert found[-1]["thread_id"] == "three"
        assert [one["asked_at"] for one in found] == sorted(one["asked_at"] for one in found)
        assert {one["request_id"] for one in await requests(app, thread_id="two")} == {"bool", "colour"}
        assert await requests(app, limit=2) == found[:2]
        error_of(await app.ask("GET", "/v1/requests?thread_id=nobody"), 404)


async def test_a_request_says_what_is_asked_and_what_an_answer_looks_like() -> None:
    async with called("asking") as app:
        await app.invoke("verdict colour bool", "t")
        found = {one["request_id"]: one for one in await requests(app)}
    verdict = found["verdict"]
    assert verdict["data"] == {"text": "verdict?"}
    assert (verdict["workflow_name"], verdict["executor_id"], verdict["assignee"]) == ("asking", "asker", "ada")
    assert verdict["response_type"] == "Verdict"
    shape = verdict["response_schema"]["$defs"]["Verdict"]
    assert shape["properties"]["approved"] == {"type": "boolean"} and shape["required"] == ["approved"]
    colours = found["colour"]["response_schema"]
    assert colours["$defs"]["Colour"]["enum"] == ["blue", "red"]
    assert found["bool"]["response_schema"] == {"type": "boolean"}


@pytest.mark.parametrize(
    ("asked", "value", "output"),
    [
        ("verdict", {"approved": False, "comment": "no"}, "Verdict False no"),
        ("colour", "red", "Colour RED"),
        ("bool", True, "bool True"),
    ],
)
async def test_an_answer_comes_as_what_was_asked_for_and_the_thread_goes_on(
    asked: str, value: Any, output: str
) -> None:
    async with called("asking") as app:
        await app.invoke(asked, "t")
        run = (await app.post(f"/v1/threads/t/requests/{asked}/answer", {"value": value}, wait=10))["run"]
        assert (run["state"], run["outputs"]) == ("IDLE", [output])
        assert await requests(app) == []


async def test_without_waiting_an_answer_is_accepted_and_told_by_its_run() -> None:
    async with called("asking") as app:
        await app.invoke("bool", "t")
        run = (await app.post("/v1/threads/t/requests/bool/answer", {"value": True}, 202))["run"]
        async with app.stream("GET", "/v1/threads/t/events") as events:
            while (event := await events.told()) is not None and event.event != "output":
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
async def test_a_wrong_answer_is_refused_and_the_request_still_waits(asked: str, body: Body) -> None:
    async with called("asking") as app:
        await app.invoke(asked, "t")
        before = (await app.get("/v1/threads/t"))["thread"]
        error = error_of(await app.ask("POST", f"/v1/threads/t/requests/{asked}/answer", body), 422)
        assert error["details"][0]["field"] is not None
        assert (await app.get("/v1/threads/t"))["thread"] == before
        assert [one["request_id"] for one in await requests(app)] == [asked]


async def test_a_second_answer_is_a_conflict_and_one_to_nothing_is_not_found() -> None:
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


async def test_the_answer_to_a_function_workflow_goes_on_in_the_middle_of_it() -> None:
    async with called("digest") as app:
        await app.invoke("tides", "t")
        run = (await app.post("/v1/threads/t/requests/title/answer", {"value": "News"}, wait=10))["run"]
    assert run["outputs"] == ["News: tides tides"]
