"""The app: every route, behind the gate. It can be served, or mounted in an app of your own."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Litestar, Response, get
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Server
from litestar.types import Scope

from perdure.errors import PerdureError
from perdure.server.app.factory import make_service
from perdure.server.app.service import Service
from perdure.server.config.schema import ServerConfig
from perdure.server.http.docs_page import page
from perdure.server.http.errors import answer_http, answer_perdure, answer_problem, answer_unknown
from perdure.server.http.middleware import EXPOSED, Gate
from perdure.server.http.request_context import OwnVisit, authorize, provide_threads, provide_visit
from perdure.server.http.routes import graph, history, operations, runs, sockets, threads, transfer as moving, workflows
from perdure.server.problems import HttpProblem

ROUTES = [
    *operations.ROUTES,
    *graph.ROUTES,
    *sockets.ROUTES,
    *workflows.ROUTES,
    *threads.ROUTES,
    *runs.ROUTES,
    *history.ROUTES,
    *moving.ROUTES,
]


class ServerApp:
    """An ASGI app. Started by its first request where no one tells it of its lifespan, as when it is mounted."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.routes = make_routes(service)
        public = frozenset(
            route.path
            for route in self.routes.routes
            for handler in _handlers(route)
            if handler.opt.get("scope") == "public"
        )
        self._gate = Gate(service, self.routes, public)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self.service.start()
        root_path = self.service.config.root_path
        if root_path and scope["path"].startswith(f"{root_path}/"):  # a proxy may take it away, or leave it
            path = scope["path"][len(root_path) :]
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._gate(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        self.service.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def aclose(self) -> None:
        """Take no more work, let supersteps finish, and give back files and connections. For an app that is mounted:
        call it when yours is stopped."""
        await self.service.stop()


def create_app(
    config: ServerConfig | Mapping[str, Any] | str | os.PathLike[str] | None = None, *, service: Service | None = None
) -> ServerApp:
    """The app of a configuration: a ServerConfig, what stands in its file, or the file; None looks for one here.

    Raises InvalidConfig, NotImportable or NotServable.
    """
    if service is None:
        service = make_service(_loaded(config))
    return ServerApp(service)


def _loaded(config: Any) -> ServerConfig:
    from perdure.server.config.files import config_from, load_config

    if isinstance(config, ServerConfig):
        return config
    if isinstance(config, Mapping):
        return config_from(config)
    return load_config(None if config is None else os.fspath(config))


def make_routes(service: Service) -> Litestar:
    """Raises RuntimeError for a route that does not say what it needs."""
    config = service.config
    has_page = config.mode != "production"
    cors = CORSConfig(
        allow_origins=list(config.cors.origins),
        allow_credentials=config.cors.allow_credentials,
        allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "X-API-Key"],
        expose_headers=EXPOSED,
    )
    routes = Litestar(
        [*ROUTES, *((openapi_json, documentation) if has_page else (openapi_json,))],
        dependencies={
            "visit": Provide(provide_visit),
            "threads": Provide(provide_threads),
        },
        guards=[authorize],
        exception_handlers={
            HttpProblem: answer_problem,
            PerdureError: answer_perdure,
            HTTPException: answer_http,
            Exception: answer_unknown,
        },
        cors_config=cors if config.cors.origins else None,
        openapi_config=None,
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )
    for route in routes.routes:
        for handler in _handlers(route):
            if "scope" not in handler.opt:
                raise RuntimeError(f"The route {route.path} does not say which scope it needs: opt={{'scope': ...}}.")
    return routes


def _handlers(route: Any) -> list[Any]:
    """Of a route of any kind; those that Litestar adds by itself, for OPTIONS, only say what there is."""
    found = getattr(route, "route_handlers", None) or [route.route_handler]
    return [one for one in found if getattr(one, "http_methods", None) != {"OPTIONS"}]


@cache
def openapi_document(root_path: str = "") -> dict[str, Any]:
    """The routes as OpenAPI tells them. By an app that is never served: Litestar adds pages of its own to such a one,
    and theirs come from elsewhere."""
    config = OpenAPIConfig(
        title="perdure",
        version=version("perdure"),
        description="Durable agent workflows: conversations, runs, events, time travel.",
        servers=[Server(url=root_path or "/")],
    )
    dependencies = {"visit": Provide(provide_visit), "threads": Provide(provide_threads)}
    found: dict[str, Any] = Litestar(
        ROUTES, dependencies=dependencies, openapi_config=config, logging_config=None
    ).openapi_schema.to_schema()
    return found


@get("/openapi.json", opt={"scope": "public"}, include_in_schema=False)
async def openapi_json(scope: Scope, visit: OwnVisit) -> Response[Any]:
    root_path = scope.get("root_path") or visit.service.config.root_path
    return Response(openapi_document(root_path), media_type="application/json")


@get("/docs", opt={"scope": "public"}, include_in_schema=False, media_type="text/html")
async def documentation() -> Response[str]:
    return Response(page(openapi_document()), media_type="text/html")
