"""The routes: each is in the table of these tests, declares its scope, and rejects callers without that scope."""

from __future__ import annotations

import pytest
from litestar import get
from tests.server.hostile.in_process import app_of, bearer, client_of, talk
from tests.server.hostile.table import TABLE, Ids, path_of, routes_of, sent_by

from perdure.server.auth.principal import SCOPES
from perdure.server.http import app as http_app

UNKNOWN_IDS = Ids("nothing", "nothing", "nothing", "nothing", "nothing", "nothing")
PUBLIC = {"GET /ping", "GET /healthz", "GET /readyz", "GET /openapi.json", "GET /docs"}
"""Routes that need no credentials. Add a path only after a review."""


async def test_each_route_is_in_the_table_with_its_scope() -> None:
    async with app_of() as app:
        scopes = {key: handler.opt.get("scope") for key, handler in routes_of(app).items()}
    assert scopes == {key: calls[0].scope for key, calls in TABLE.items()}
    assert all({call.scope for call in calls} == {calls[0].scope} for calls in TABLE.values())
    assert {key for key, scope in scopes.items() if scope == "public"} == PUBLIC
    assert set(scopes.values()) - {"public"} == set(SCOPES)


async def test_production_has_no_route_for_the_documentation_page() -> None:
    async with app_of(mode="production") as app:
        assert set(routes_of(app)) == set(TABLE) - {"GET /docs"}


async def test_route_without_a_scope_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    @get("/v1/forgotten")
    async def forgotten() -> str:
        return ""

    monkeypatch.setattr(http_app, "ROUTES", [*http_app.ROUTES, forgotten])
    with pytest.raises(RuntimeError, match=r"/v1/forgotten declares no scope"):
        async with app_of():
            pass


async def test_only_public_routes_answer_without_credentials() -> None:
    async with app_of() as app, client_of(app) as anybody:
        for key, calls in TABLE.items():
            if key.startswith("WS "):
                [closed] = await talk(app, [], {})
                assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
                continue
            for call in calls:
                method, path = key.split(maxsplit=1)[0], path_of(key, call, UNKNOWN_IDS)
                answer = await anybody.request(method, path, **sent_by(call, UNKNOWN_IDS))
                assert answer.status_code == (200 if key in PUBLIC else 401), (key, answer.text)
                if key not in PUBLIC:
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert answer.json()["error"]["code"] == "not_authenticated"


async def test_each_route_needs_exactly_its_scope() -> None:
    async with app_of() as app:
        for key, calls in TABLE.items():
            scope = calls[0].scope
            if scope == "public":
                continue
            others = [other for other in SCOPES if other != scope]
            if key.startswith("WS "):
                refused = await talk(app, [], bearer("eve", others))
                assert [message["type"] for message in refused] == ["websocket.close"], refused
                assert refused[0]["code"] == 1008
                accepted = await talk(app, ["{}"], bearer("eve", [scope]))
                assert accepted[0]["type"] == "websocket.accept"
                continue
            async with client_of(app, "eve", others) as narrow, client_of(app, "eve", [scope]) as enough:
                for call in calls:
                    method, path, sent = (
                        key.split(maxsplit=1)[0],
                        path_of(key, call, UNKNOWN_IDS),
                        sent_by(call, UNKNOWN_IDS),
                    )
                    answer = await narrow.request(method, path, **sent)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed"), key
                    assert (await enough.request(method, path, **sent)).status_code not in (401, 403), key


@pytest.mark.parametrize("path", ["/ping/", "//ping", "/v1/../ping", "/%70ing/../v1/threads", "/ping/../v1/threads"])
async def test_path_that_only_looks_public_needs_credentials(path: str) -> None:
    async with app_of() as app, client_of(app) as anybody:
        answer = await anybody.get(path)
        assert answer.status_code == 401 or answer.json().get("data") == "pong", answer.text
