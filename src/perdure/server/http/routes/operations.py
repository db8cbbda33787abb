"""What operators ask: is it there, is it ready, how does it do."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec

from perdure.server.http.errors import Reply, errors, reply
from perdure.server.http.request_context import OwnVisit

PUBLIC = {"scope": "public"}


class Readiness(msgspec.Struct, frozen=True):
    is_ready: bool
    checks: dict[str, str]
    """`ok` or `unavailable` for the storage and, by itself, for Redis."""


@get("/ping", opt=PUBLIC, responses=errors(), tags=["Operations"], summary="Whether it answers")
async def ping(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, "pong")


@get("/healthz", opt=PUBLIC, responses=errors(), tags=["Operations"], summary="Whether the process works")
async def healthz(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, {"status": "ok"})


_NOT_READY = {503: ResponseSpec(Reply, description="Something that it needs is away.", generate_examples=False)}


@get("/readyz", opt=PUBLIC, responses=errors() | _NOT_READY, tags=["Operations"], summary="Whether it can do its work")
async def readyz(visit: OwnVisit) -> Response[Reply]:
    checks = dict(await visit.service.readiness())
    # Redis only ever makes things faster: without it the server does its work.
    is_ready = all(verdict == "ok" for name, verdict in checks.items() if name != "redis")
    body = Readiness(is_ready, checks)
    return reply(visit.request_id, body, status=200 if is_ready else 503, message="OK" if is_ready else "Not ready")


@get(
    "/metrics",
    opt={"scope": "metrics:read"},
    media_type="text/plain",
    responses=errors(),
    tags=["Operations"],
    summary="How it does, for Prometheus",
)
async def metrics(visit: OwnVisit) -> Response[str]:
    text = visit.service.metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")  # type: ignore[arg-type]  # encoded


ROUTES = [ping, healthz, readyz, metrics]
