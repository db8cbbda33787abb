"""The answers to a client that exceeds a limit."""

from __future__ import annotations

import pytest
from tests.server.routes.calling import called, turn


async def test_rate_limited_client_gets_the_limit_and_the_retry_time() -> None:
    async with called("remembering", rate_limit={"requests": 2, "window": 60}) as app:
        answers = [await app.ask("GET", "/v1/threads") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer.headers["x-ratelimit-limit"] for answer in answers] == ["2"] * 3
        assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
        refused = answers[-1]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        error = refused.json()["error"]
        assert (error["code"], error["limit"], error["window_seconds"]) == ("rate_limited", 2, 60)
        assert error["retry_after_seconds"] == int(refused.headers["retry-after"])
        assert refused.json()["metadata"]["request_id"] == refused.headers["x-request-id"]
        assert (await app.ask("GET", "/ping")).status_code == 200, "it is not counted"


async def test_turns_over_a_socket_are_counted_like_requests() -> None:
    async with called("remembering", rate_limit={"requests": 2, "window": 60}) as app, app.socket() as socket:
        await socket.turn(turn("one", "t"))
        [refused] = await socket.turn(turn("two", "t"))
        assert (refused["event"], refused["data"]["code"]) == ("error", "rate_limited")
        with pytest.raises(AssertionError, match=r"websocket\.close"):
            async with app.socket():
                pass


async def test_body_that_is_too_large_is_rejected_and_starts_nothing() -> None:
    async with called("remembering", limits={"max_request_bytes": 1000}) as app:
        answer = await app.ask("POST", "/v1/graph/invoke", turn("x" * 1000, "t"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert await app.get("/v1/threads") == {"threads": []}
