"""Rate limits: the headers of an answer, the clients that share a count, and the count of two processes."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from tests.server.hostile.conftest import project, serving
from tests.server.hostile.in_process import HERE, app_of, bearer, client_of, talk
from tests.server.hostile.served import token

TURN = {"messages": [{"content": "x"}], "config": {"thread_id": "t"}}


def limits_of(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (int(answer.headers[f"x-ratelimit-{name}"]) for name in ("limit", "remaining", "reset"))
    return limit, remaining, reset


async def test_answers_have_the_remaining_requests_and_the_retry_time() -> None:
    async with app_of(rate_limit={"requests": 3, "window": 60}) as app, client_of(app, "alice") as alice:
        for left in (2, 1, 0):
            answer = await alice.get("/v1/threads")
            assert answer.status_code == 200
            limit, remaining, reset = limits_of(answer)
            assert (limit, remaining) == (3, left)
            assert 0 < reset <= 60
        refused = await alice.get("/v1/threads")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert limits_of(refused)[:2] == (3, 0)
        assert refused.headers["x-content-type-options"] == "nosniff"


async def test_ping_and_excluded_paths_are_never_counted() -> None:
    limit = {"requests": 1, "window": 60, "exclude_paths": ["/metrics"]}
    async with app_of(rate_limit=limit) as app, client_of(app, "alice") as alice:
        for path in ("/ping", "/metrics", "/ping", "/metrics"):
            answer = await alice.get(path)
            assert answer.status_code == 200
            assert "x-ratelimit-limit" not in answer.headers
        assert (await alice.get("/v1/graph")).status_code == 200
        assert (await alice.get("/v1/graph")).status_code == 429
        assert (await alice.get("/ping")).status_code == 200


async def test_clients_of_one_address_share_a_count_unless_it_is_by_user() -> None:
    for by, others in (("user", 200), ("ip", 429), ("global", 429)):
        async with app_of(rate_limit={"requests": 1, "window": 60, "by": by}) as app:
            async with client_of(app, "alice") as alice, client_of(app, "bob") as bob:
                assert (await alice.get("/v1/graph")).status_code == 200
                assert (await alice.get("/v1/graph")).status_code == 429
                assert (await bob.get("/v1/graph")).status_code == others, by


async def test_forwarded_address_counts_only_from_a_trusted_proxy() -> None:
    for trusted, second in (([], 429), (["127.0.0.1"], 200), (["10.0.0.0/8"], 429)):
        async with app_of(rate_limit={"requests": 1, "window": 60, "trusted_proxies": trusted}) as app:
            async with client_of(app, "alice") as alice:
                statuses = [
                    (await alice.get("/v1/graph", headers={"X-Forwarded-For": address})).status_code
                    for address in ("192.0.2.1", "192.0.2.2")
                ]
        assert statuses == [200, second], trusted


async def test_requests_without_credentials_are_counted() -> None:
    async with app_of(rate_limit={"requests": 3, "window": 60}) as app, client_of(app) as anybody:
        statuses = [(await anybody.get("/v1/threads")).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]


async def test_each_turn_over_a_socket_counts_as_a_request() -> None:
    async with app_of(rate_limit={"requests": 3, "window": 60, "by": "user"}) as app:
        frames = await talk(app, [TURN] * 3, bearer("alice"), turns=3)
        ends = [frame for frame in frames if frame.get("event") == "error" or "done" in str(frame.get("data"))]
        assert [frame["event"] for frame in ends] == ["updates", "updates", "error"]
        assert ends[-1]["data"]["code"] == "rate_limited"
        async with client_of(app, "alice") as alice:
            assert (await alice.get("/v1/graph")).status_code == 429


def test_two_processes_count_together_in_valkey(tmp_path: Path, valkey_url: str) -> None:
    limit = {"backend": "redis", "requests": 4, "window": 60, "by": "user", "fail_open": False}
    auth = {"method": "custom", "path": f"{HERE}:let_in"}
    project(tmp_path, rate_limit=limit, redis=valkey_url, auth=auth)
    alice = {"headers": {"Authorization": f"Bearer {token('alice')}"}}
    bob = {"headers": {"Authorization": f"Bearer {token('bob')}"}}
    with serving(tmp_path) as first, serving(tmp_path) as second:
        answers = [server.get("/v1/graph", **alice) for server in (first, second, first, second, first, second)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429, 429]
        assert [limits_of(answer)[1] for answer in answers[:4]] == [3, 2, 1, 0]
        assert second.get("/v1/graph", **bob).status_code == 200
        assert json.loads(answers[-1].text)["error"]["code"] == "rate_limited"


@pytest.mark.parametrize(("fails_open", "status"), [(True, 200), (False, 429)])
async def test_requests_pass_or_fail_by_fail_open_when_valkey_is_unavailable(fails_open: bool, status: int) -> None:
    limit = {"backend": "redis", "requests": 1, "window": 60, "fail_open": fails_open}
    async with app_of(rate_limit=limit, redis="redis://127.0.0.1:1/0") as app, client_of(app, "alice") as alice:
        answers = [await alice.get("/v1/graph") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [status] * 3
        assert all(("retry-after" in answer.headers) is (status == 429) for answer in answers)
        assert (await alice.get("/ping")).status_code == 200
