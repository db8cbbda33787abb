"""A thread with pending requests continues by `resume`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.routes.calling import Called, called, conflict_of, error_of, texts


async def resume(app: Called, value: Any, thread_id: str = "t") -> Any:
    return await app.post("/v1/graph/invoke", {"resume": value, "config": {"thread_id": thread_id}})


@pytest.mark.parametrize(
    ("asked", "answer", "output"),
    [
        ("verdict", {"approved": True, "comment": "good"}, "Verdict True good"),
        ("verdict", {"verdict": {"approved": False}}, "Verdict False "),
        ("colour", "blue", "Colour BLUE"),
        ("colour", {"colour": "red"}, "Colour RED"),
        ("bool", True, "bool True"),
        ("bool", False, "bool False"),
    ],
)
async def test_resume_passes_the_answer_in_the_requested_type(asked: str, answer: Any, output: str) -> None:
    async with called("asking") as app:
        first = await app.invoke(asked, "t")
        assert first["meta"]["pending_requests"] == [asked]
        assert first["meta"]["state"] == "IDLE_WITH_PENDING_REQUESTS"
        meta = (await app.get("/v1/threads/t/state"))["state"]["execution_meta"]
        assert meta["status"] == "interrupted_before"
        assert meta["interrupted_node"] == "asker"
        assert meta["interrupt_data"] == {"request_id": asked, "value": {"text": f"{asked}?"}}
        result = await resume(app, answer)
    assert texts(result["messages"]) == [output]
    assert result["meta"]["pending_requests"] == []
    assert result["meta"]["is_new_thread"] is False


@pytest.mark.parametrize(
    ("asked", "answer"),
    [("verdict", "perhaps"), ("verdict", {"approved": 1}), ("verdict", None), ("colour", "green"), ("bool", "true")],
)
async def test_invalid_answer_is_rejected_and_the_thread_still_waits(asked: str, answer: Any) -> None:
    async with called("asking") as app:
        await app.invoke(asked, "t")
        before = (await app.get("/v1/threads/t"))["thread"]
        body = {"resume": answer, "config": {"thread_id": "t"}}
        error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
        assert error["code"] == "answer_rejected"
        assert asked in error["message"]
        assert (await app.get("/v1/threads/t"))["thread"] == before


async def test_several_requests_are_answered_by_id_together_or_separately() -> None:
    async with called("asking") as app:
        await app.invoke("colour bool verdict", "t")
        body = {"resume": True, "config": {"thread_id": "t"}}
        error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
        assert error["code"] == "several_requests"
        assert all(name in error["message"] for name in ("colour", "bool", "verdict"))
        two = await resume(app, {"bool": True, "colour": "red"})
        assert sorted(texts(two["messages"])) == ["Colour RED", "bool True"]
        assert two["meta"]["pending_requests"] == ["verdict"], "what is still asked"
        assert texts((await resume(app, {"approved": True}))["messages"]) == ["Verdict True "]


async def test_thread_without_pending_requests_cannot_be_resumed() -> None:
    async with called("asking") as app:
        error_of(await app.ask("POST", "/v1/graph/invoke", {"resume": 1, "config": {"thread_id": "nobody"}}), 404)
        error_of(await app.ask("POST", "/v1/graph/invoke", {"resume": 1}), 404)
        await app.invoke("bool", "t")
        await resume(app, True)
        again = await app.ask("POST", "/v1/graph/invoke", {"resume": True, "config": {"thread_id": "t"}})
    assert conflict_of(again)["thread_id"] == "t"


async def test_thread_with_a_pending_request_accepts_a_new_message() -> None:
    async with called("asking") as app:
        await app.invoke("bool", "t")
        result = await app.invoke("colour", "t")
        assert sorted(result["meta"]["pending_requests"]) == ["bool", "colour"]
        assert sorted(request["request_id"] for request in (await app.get("/v1/requests"))["requests"]) == [
            "bool",
            "colour",
        ]
