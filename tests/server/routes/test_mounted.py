"""The app inside of another one, and behind a proxy that shows it below a path."""

from __future__ import annotations

from typing import Any

from tests.server.routes.calling import HERE, Called, called, is_done, texts, turn

from perdure.server import create_app


class Mount:
    """Mounts an app as routers do. The path stays whole, and `root_path` is the part before the mounted app.
    The mounted app receives no lifespan events."""

    def __init__(self, path: str, app: Any) -> None:
        self._path = path
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert scope["type"] != "lifespan"
        if scope["path"].startswith(f"{self._path}/"):
            await self._app({**scope, "root_path": scope.get("root_path", "") + self._path}, receive, send)
        else:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"the other app"})


def config(**more: Any) -> dict[str, Any]:
    return {"agent": f"{HERE}:remembering", "checkpointer": "memory:", **more}


async def test_mounted_app_works_without_a_lifespan() -> None:
    inner = create_app(config())
    outer = Called(Mount("/ai", inner))
    try:
        assert (await outer.ask("GET", "/else")).status_code == 418
        assert await outer.get("/ai/ping") == "pong"
        await outer.post("/ai/v1/graph/invoke", turn("one", "t"))
        result = await outer.post("/ai/v1/graph/invoke", turn("two", "t"))
        assert texts(result["messages"]) == ["heard: one, two"]
        assert len((await outer.get("/ai/v1/threads/t/messages"))["messages"]) == 4
        async with outer.stream("POST", "/ai/v1/graph/stream", turn("three", "t")) as stream:
            assert is_done((await stream.all())[-1].data)
        async with outer.socket("/ai/v1/graph/ws") as socket:
            assert is_done((await socket.turn(turn("four", "t")))[-1])
        assert (await outer.ask("GET", "/ai/docs")).status_code == 200
        assert (await outer.ask("GET", "/ai/nothing")).status_code == 404
        assert (await outer.ask("GET", "/ai/openapi.json")).status_code == 200
    finally:
        await inner.aclose()


async def test_mounted_app_requires_credentials() -> None:
    inner = create_app(config(auth={"method": "custom", "path": f"{HERE}:reject_all"}))
    outer = Called(Mount("/ai", inner))
    try:
        assert (await outer.ask("GET", "/ai/ping")).status_code == 200
        assert (await outer.ask("GET", "/ai/v1/threads")).status_code == 401
    finally:
        await inner.aclose()


async def test_app_behind_a_proxy_that_strips_the_path_knows_its_root_path() -> None:
    async with called("remembering", root_path="/ai") as app:
        document = (await app.ask("GET", "/openapi.json")).json()
        assert await app.get("/ping") == "pong"
        assert texts((await app.invoke("one", "t"))["messages"]) == ["heard: one"]
    assert [server["url"] for server in document["servers"]] == ["/ai"]


async def test_app_with_a_lifespan_starts_and_stops_with_it() -> None:
    app = create_app(config())
    sent: list[str] = []
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(messages)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.service.runs.is_stopping
