"""The app: all routes behind the middleware, among them health, metrics, the OpenAPI document and its page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.metadata import version
from typing import Any

from litestar import Litestar, Response, get
from litestar.config.cors import CORSConfig
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Server

from perdure.errors import PerdureError
from perdure.server.config.files import config_from, load_config
from perdure.server.config.schema import ServerConfig
from perdure.server.factory import make_service
from perdure.server.http import graph, runs, threads, turns
from perdure.server.http.middleware import EXPOSED, OwnRequest, ServerApp, authorize, handlers_of
from perdure.server.http.responses import (
    Reply,
    answer_http,
    answer_perdure,
    answer_problem,
    answer_unknown,
    reply,
    route_options,
)
from perdure.server.problems import HttpProblem
from perdure.server.service import Service

# ---------------------------------------------------------------- routes of the server itself


@get("/ping", **route_options("public", "Operations", "Check that the server answers"))
async def ping(request: OwnRequest) -> Response[Reply]:
    return reply(request, "pong")


@get("/healthz", **route_options("public", "Operations", "Liveness of the process"))
async def healthz(request: OwnRequest) -> Response[Reply]:
    return reply(request, {"status": "ok"})


_NOT_READY = {503: ResponseSpec(Reply, description="A dependency is not available.", generate_examples=False)}


@get("/readyz", **route_options("public", "Operations", "Readiness: the storage can be reached", also=_NOT_READY))
async def readyz(request: OwnRequest) -> Response[Reply]:
    checks = await request.visit.service.readiness()
    # Redis is optional: without it the server is slower but works.
    is_ready = all(verdict == "ok" for name, verdict in checks.items() if name != "redis")
    body = {"is_ready": is_ready, "checks": checks}
    return reply(request, body, status=200 if is_ready else 503, message="OK" if is_ready else "Not ready")


@get("/metrics", media_type="text/plain", **route_options("metrics:read", "Operations", "Metrics in Prometheus format"))
async def metrics(request: OwnRequest) -> Response[str]:
    text = request.visit.service.metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")  # type: ignore[arg-type]  # encoded


ROUTES = [*(ping, healthz, readyz, metrics), *graph.ROUTES, *turns.ROUTES, *threads.ROUTES, *runs.ROUTES]


def create_app(
    config: ServerConfig | Mapping[str, Any] | str | os.PathLike[str] | None = None, *, service: Service | None = None
) -> ServerApp:
    """The app of a configuration: a ServerConfig, its keys, or a file; None: the file in the current folder.

    Raises InvalidConfig, NotImportable or NotServable.
    """
    if service is None:
        if isinstance(config, Mapping):
            config = config_from(config)
        elif not isinstance(config, ServerConfig):
            config = load_config(config)
        service = make_service(config)
    return ServerApp(service, make_routes(service))


def make_routes(service: Service) -> Litestar:
    """Raises RuntimeError for a route without a scope."""
    config = service.config
    has_page = config.mode != "production"
    cors = CORSConfig(
        allow_origins=list(config.cors.origins),
        allow_credentials=config.cors.allow_credentials,
        allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "X-API-Key"],
        expose_headers=EXPOSED,
    )
    answers: dict[Any, Any] = {
        HttpProblem: answer_problem,
        PerdureError: answer_perdure,
        HTTPException: answer_http,
        Exception: answer_unknown,
    }
    routes = Litestar(
        [*ROUTES, *((openapi_json, documentation) if has_page else (openapi_json,))],
        request_class=OwnRequest,
        before_request=authorize,
        exception_handlers=answers,
        cors_config=cors if config.cors.origins else None,
        openapi_config=None,
        request_max_body_size=None,
        logging_config=None,
        debug=False,
    )
    for route in routes.routes:
        for handler in handlers_of(route):
            if "scope" not in handler.opt:
                raise RuntimeError(f"The route {route.path} declares no scope. Add opt={{'scope': ...}}.")
            if getattr(handler, "before_request", None) is not None:
                raise RuntimeError(f"The route {route.path} replaces the check of its scope. Remove before_request.")
    return routes


@cache
def openapi_document(root_path: str = "") -> dict[str, Any]:
    """The OpenAPI document of the routes.

    A separate app that is never served creates it, because Litestar would add its own documentation pages, which load
    files from other hosts.
    """
    config = OpenAPIConfig(
        title="perdure",
        version=version("perdure"),
        description="Durable agent workflows: conversations, runs, events, time travel.",
        servers=[Server(url=root_path or "/")],
    )
    app = Litestar(ROUTES, request_class=OwnRequest, openapi_config=config, logging_config=None)
    document: dict[str, Any] = app.openapi_schema.to_schema()
    return document


@get("/openapi.json", opt={"scope": "public"}, include_in_schema=False)
async def openapi_json(request: OwnRequest) -> Response[Any]:
    root_path = request.scope.get("root_path") or request.visit.service.config.root_path
    return Response(openapi_document(root_path), media_type="application/json")


@get("/docs", opt={"scope": "public"}, include_in_schema=False, media_type="text/html")
async def documentation() -> Response[str]:
    return Response(page(openapi_document()), media_type="text/html")


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
details { border-top: 1px solid #8884; padding: 0.5rem 0; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; }
table { border-collapse: collapse; } td, th { text-align: left; padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; }
"""


def page(document: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict):
                tag = (operation.get("tags") or ["Other"])[0]
                groups.setdefault(tag, []).append(_operation(path, method, operation))
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in groups.items())
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{escape(info["title"])} '
        f"{escape(info['version'])}</h1><p>{escape(info.get('description', ''))} "
        f'<a href="openapi.json">openapi.json</a></p>{parts}</html>'
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = [
        (entry["name"], entry["in"], entry.get("description", "")) for entry in operation.get("parameters", ())
    ]
    responses = [(status, entry.get("description", "")) for status, entry in operation.get("responses", {}).items()]
    body = ""
    if "requestBody" in operation:
        [content] = operation["requestBody"]["content"].values()
        name = str(content["schema"].get("$ref", content["schema"].get("type", "any"))).rsplit("/", 1)[-1]
        body = f"<p>Body: <code>{escape(name)}</code></p>"
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary>{body}{_table(parameters)}{_table(responses)}</details>"
    )


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """A table whose first column is code."""
    parts = "".join(
        f"<tr><td><code>{escape(name)}</code></td>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
        for name, *texts in rows
    )
    return f"<table>{parts}</table>"
