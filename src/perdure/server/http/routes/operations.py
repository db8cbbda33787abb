"""Routes of the server itself: health, readiness, metrics, and the served workflows."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath

from perdure.server.http.middleware import OwnVisit
from perdure.server.http.responses import Reply, errors, reply
from perdure.server.threads.to_json import schema_of_any
from perdure.workflows.workflow import Workflow

PUBLIC = {"scope": "public"}


class Readiness(msgspec.Struct, frozen=True):
    is_ready: bool
    checks: dict[str, str]
    """`ok` or `unavailable` for the storage and for Redis."""


@get("/ping", opt=PUBLIC, responses=errors(), tags=["Operations"], summary="Check that the server answers")
async def ping(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, "pong")


@get("/healthz", opt=PUBLIC, responses=errors(), tags=["Operations"], summary="Liveness of the process")
async def healthz(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, {"status": "ok"})


_NOT_READY = {503: ResponseSpec(Reply, description="A dependency is not available.", generate_examples=False)}


@get(
    "/readyz",
    opt=PUBLIC,
    responses=errors() | _NOT_READY,
    tags=["Operations"],
    summary="Readiness: the storage can be reached",
)
async def readyz(visit: OwnVisit) -> Response[Reply]:
    checks = dict(await visit.service.readiness())
    # Redis is optional: without it the server is slower but works.
    is_ready = all(verdict == "ok" for name, verdict in checks.items() if name != "redis")
    body = Readiness(is_ready, checks)
    return reply(visit.request_id, body, status=200 if is_ready else 503, message="OK" if is_ready else "Not ready")


@get(
    "/metrics",
    opt={"scope": "metrics:read"},
    media_type="text/plain",
    responses=errors(),
    tags=["Operations"],
    summary="Metrics in Prometheus format",
)
async def metrics(visit: OwnVisit) -> Response[str]:
    text = visit.service.metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")  # type: ignore[arg-type]  # encoded


# ---------------------------------------------------------------- workflows


READ = {"scope": "graph:read"}
TAGS = ["Workflows"]


def workflow_to_json(name: str, workflow: Workflow, *, is_default: bool) -> dict[str, Any]:
    return {
        "name": name,
        "workflow_name": workflow.name,
        "description": workflow.description,
        "is_default": is_default,
        "executors": list(workflow.executors),
        "start": workflow.start_executor_id,
        "signature": workflow.graph_signature_hash,
    }


@get("/v1/workflows", opt=READ, responses=errors(), tags=TAGS, summary="List workflows")
async def list_workflows(visit: OwnVisit) -> Response[Reply]:
    registry = visit.service.registry
    bodies = [
        workflow_to_json(served.name, served.workflow, is_default=served is registry.default) for served in registry
    ]
    return reply(visit.request_id, {"workflows": bodies})


@get("/v1/workflows/{name:str}", opt=READ, responses=errors(404), tags=TAGS, summary="Get a workflow with its schemas")
async def get_workflow(name: FromPath[str], visit: OwnVisit) -> Response[Reply]:
    workflow = visit.service.workflow(name)
    is_default = visit.service.registry.default is not None and visit.service.registry.default.workflow is workflow
    body = workflow_to_json(name, workflow, is_default=is_default)
    body["input_schema"] = schema_of_any(workflow.input_types)
    body["output_schema"] = schema_of_any(workflow.output_types)
    body["mermaid"] = workflow.to_mermaid()
    return reply(visit.request_id, {"workflow": body})


@get(
    "/v1/workflows/{name:str}/graph.svg",
    opt=READ,
    media_type="image/svg+xml",
    responses=errors(404),
    tags=TAGS,
    summary="Draw a workflow as SVG",
)
async def drawing(name: FromPath[str], visit: OwnVisit) -> Response[str]:
    return Response(visit.service.workflow(name).to_svg(), media_type="image/svg+xml")


ROUTES = [ping, healthz, readyz, metrics, list_workflows, get_workflow, drawing]
