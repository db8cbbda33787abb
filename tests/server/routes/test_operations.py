"""Health, readiness and metrics, and the documentation that the server itself has."""

from __future__ import annotations

import json
import re

import pytest
from tests.server.routes.calling import called, data_of

from perdure.server import ServerApp


async def test_server_reports_that_it_is_healthy_and_ready() -> None:
    async with called("remembering") as app:
        assert await app.get("/ping") == "pong"
        assert await app.get("/healthz") == {"status": "ok"}
        assert await app.get("/readyz") == {"is_ready": True, "checks": {"storage": "ok"}}


async def test_unavailable_storage_is_reported_without_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with called("remembering") as app:

        async def fail(*_: object, **__: object) -> None:
            raise OSError("postgresql://user:hunter2@db/x")

        monkeypatch.setattr(app.service.storage.store, "thread_ids", fail)
        answer = await app.ask("GET", "/readyz")
        assert data_of(answer, 503) == {"is_ready": False, "checks": {"storage": "unavailable"}}
        assert "hunter2" not in answer.text
        assert await app.get("/healthz") == {"status": "ok"}


async def test_unavailable_redis_is_reported_and_the_server_stays_ready() -> None:
    async with called("remembering", redis="redis://127.0.0.1:1/0") as app:
        assert await app.get("/readyz") == {"is_ready": True, "checks": {"storage": "ok", "redis": "unavailable"}}


async def test_stopping_server_is_not_ready_and_rejects_runs() -> None:
    async with called("remembering") as app:
        app.service.begin_stopping()
        assert data_of(await app.ask("GET", "/readyz"), 503)["checks"]["server"] == "stopping"
        answer = await app.ask("POST", "/v1/threads/t/runs", {"input": "x"})
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["code"] == "stopping"


async def test_metrics_are_in_the_format_of_prometheus() -> None:
    async with called("remembering") as app:
        await app.invoke("hi", "t")
        answer = await app.ask("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        counted = [line for line in answer.text.splitlines() if line.startswith("perdure_http_requests_total{")]
        assert counted == ['perdure_http_requests_total{method="POST",route="/v1/graph/invoke",status="200"} 1.0']


async def test_requests_are_counted_by_route_without_the_ids_in_their_paths() -> None:
    async with called("remembering") as app:
        for path in ("/v1/threads/some-thread", "/nothing/some-thread"):
            await app.ask("GET", path)
        text = (await app.ask("GET", "/metrics")).text
    assert "some-thread" not in text


def operations(app: ServerApp) -> set[tuple[str, str]]:
    """Returns the method and path of all documented routes."""
    return {
        (method.lower(), re.sub(r":\w+}", "}", route.path))
        for route in app.routes.routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods - {"OPTIONS", "HEAD"}
        if handler.include_in_schema is not False
    }


async def test_openapi_document_has_every_route_and_no_external_url() -> None:
    async with called("remembering") as app:
        answer = await app.ask("GET", "/openapi.json")
        document = answer.json()
        assert document["openapi"].startswith("3.")
        documented = {(method, path) for path, item in document["paths"].items() for method in item}
        assert operations(app.app) <= documented
        assert len(documented) > 30
        assert not re.findall(r"https?://[^\"\s]*", json.dumps(document["paths"]))
        for path, item in document["paths"].items():
            for method, operation in item.items():
                assert operation["summary"], (method, path)
                assert {"400", "401", "403", "422", "429"} <= set(operation["responses"]), (method, path)


async def test_documentation_page_has_every_route_and_no_external_resource() -> None:
    async with called("remembering") as app:
        page = (await app.ask("GET", "/docs")).text
        document = (await app.ask("GET", "/openapi.json")).json()
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert "<script" not in page
    assert all(path in page for path in document["paths"])


async def test_production_serves_no_documentation_page() -> None:
    async with called("remembering", mode="production") as app:
        assert (await app.ask("GET", "/docs")).status_code == 404
        assert (await app.ask("GET", "/openapi.json")).status_code == 200


async def test_no_other_page_of_the_framework_is_served() -> None:
    async with called("remembering") as app:
        for path in ("/_openapi", "/_openapi/openapi.json", "/_openapi/swagger", "/schema", "/schema/openapi.json"):
            assert (await app.ask("GET", path)).status_code == 404, path
