"""The envelope, the errors and the headers of every answer."""

from __future__ import annotations

import time

import pytest
from tests.server.routes.calling import called, conflict_of, error_of, turn
from tests.server.routes.flows import gates, reached


async def test_answer_has_its_data_and_the_request_id() -> None:
    async with called("remembering") as app:
        answer = await app.ask("GET", "/ping")
    body = answer.json()
    assert body["data"] == "pong"
    assert body["metadata"]["message"] == "OK"
    assert abs(body["metadata"]["timestamp"] - time.time()) < 60
    assert body["metadata"]["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"


async def test_valid_request_id_of_the_client_is_kept_and_invalid_is_replaced() -> None:
    async with called("remembering") as app:
        named = await app.ask("GET", "/ping", headers={"X-Request-Id": "req-1.a_B"})
        odd = await app.ask("GET", "/ping", headers={"X-Request-Id": "a b\t"})
        long = await app.ask("GET", "/ping", headers={"X-Request-Id": "a" * 65})
    assert named.json()["metadata"]["request_id"] == "req-1.a_B" == named.headers["x-request-id"]
    assert " " not in odd.headers["x-request-id"]
    assert len(long.headers["x-request-id"]) < 65


async def test_every_answer_has_the_security_headers() -> None:
    async with called("remembering") as app:
        for path in ("/ping", "/v1/nothing", "/docs"):
            headers = (await app.ask("GET", path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"
            assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "no_such_route"),
        ("DELETE", "/ping", 405, "no_such_method"),
        ("GET", "/v1/threads/nobody", 404, "thread_not_found"),
        ("GET", "/v1/threads/nobody/state", 404, "thread_not_found"),
        ("GET", "/v1/threads/nobody/messages", 404, "thread_not_found"),
        ("DELETE", "/v1/threads/nobody", 404, "thread_not_found"),
        ("GET", "/v1/threads/nobody/events", 404, "thread_not_found"),
        ("GET", "/v1/threads/nobody/checkpoints", 404, "thread_not_found"),
        ("POST", "/v1/threads/nobody/export", 404, "thread_not_found"),
        ("GET", "/v1/threads/nobody/runs/run-1", 404, "thread_not_found"),
        ("GET", "/v1/workflows/nobody", 404, "workflow_not_found"),
        ("GET", "/v1/threads?limit=0", 422, "invalid_request"),
        ("GET", "/v1/threads?limit=1001", 422, "invalid_request"),
        ("GET", "/v1/threads?offset=-1", 422, "invalid_request"),
        ("GET", "/v1/threads?limit=many", 422, "invalid_request"),
        ("GET", "/v1/threads/a%00b", 422, "invalid_id"),
        ("GET", "/v1/threads/%20", 404, "thread_not_found"),
        ("GET", f"/v1/threads/{'a' * 256}", 422, "invalid_id"),
    ],
)
async def test_rejected_request_has_its_status_and_error_code(method: str, path: str, status: int, code: str) -> None:
    async with called("remembering") as app:
        error = error_of(await app.ask(method, path), status)
    assert error["code"] == code


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"", 400), (b'"text"', 422), (b"[]", 422), (b'{"messages": 5}', 422), (b"\xff\xfe", 400)],
)
async def test_invalid_body_is_rejected_with_the_field_in_details(content: bytes, status: int) -> None:
    async with called("remembering") as app:
        answer = await app.ask(
            "POST", "/v1/graph/invoke", content=content, headers={"Content-Type": "application/json"}
        )
        error = error_of(answer, status)
        assert await app.get("/v1/threads") == {"threads": []}
    assert error["details"] and all(set(detail) == {"message", "field"} for detail in error["details"])


async def test_options_is_answered_without_an_error() -> None:
    async with called("remembering") as app:
        for path in ("/ping", "/v1/threads", "/v1/threads/t/runs"):
            assert (await app.ask("OPTIONS", path)).status_code in (200, 204, 405)


async def test_error_names_the_invalid_field() -> None:
    async with called("remembering") as app:
        for body, field in (
            ({**turn("hi"), "recursion_limit": 0}, "recursion_limit"),
            ({**turn("hi"), "recursion_limit": 101}, "recursion_limit"),
            ({**turn("hi"), "response_granularity": "huge"}, "response_granularity"),
            ({**turn("hi"), "config": []}, "config"),
            ({"messages": [{"role": "user"}]}, "messages"),
        ):
            error = await app.refused("POST", "/v1/graph/invoke", body, status=422)
            assert field in f"{error['message']} {error['details']}", error


async def test_conflict_has_the_agentflow_form_only_on_agentflow_routes() -> None:
    async with called("waiting") as app:
        run = await app.run("busy", 202, None, input="answers")
        await reached["answers"].wait()
        invoked = conflict_of(await app.ask("POST", "/v1/graph/invoke", turn("again", "busy")))
        deleted = conflict_of(await app.ask("DELETE", "/v1/threads/busy"))
        elsewhere = error_of(await app.ask("POST", "/v1/threads/busy/runs", {"input": "again"}), 409)
        gates["answers"].set()
        assert run["thread_id"] == invoked["thread_id"] == deleted["thread_id"] == "busy"
    assert elsewhere["code"] == "thread_busy"
    assert "'busy'" in elsewhere["message"]


async def test_internal_error_shows_only_the_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    async with called("remembering", mode="production") as app:
        await app.get("/ping")

        async def fail(*_: object, **__: object) -> None:
            raise RuntimeError("the password is hunter2")

        monkeypatch.setattr(app.service.storage, "list_threads", fail)
        answer = await app.ask("GET", "/v1/threads")
    error = error_of(answer, 500)
    assert error["code"] == "internal_error"
    assert answer.headers["x-request-id"] in error["message"]
    assert "hunter2" not in answer.text and "RuntimeError" not in answer.text
