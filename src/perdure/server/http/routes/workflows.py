"""What can run: its schema and its drawing."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.params import FromPath

from perdure.server.http.errors import Reply, errors, reply
from perdure.server.http.request_context import OwnVisit
from perdure.server.threads.to_json import schema_of_any
from perdure.workflows.workflow import Workflow

READ = {"scope": "graph:read"}
TAGS = ["Workflows"]


def told_workflow(name: str, workflow: Workflow, *, is_default: bool) -> dict[str, Any]:
    return {
        "name": name,
        "workflow_name": workflow.name,
        "description": workflow.description,
        "is_default": is_default,
        "executors": list(workflow.executors),
        "start": workflow.start_executor_id,
        "signature": workflow.graph_signature_hash,
    }


@get("/v1/workflows", opt=READ, responses=errors(), tags=TAGS, summary="What can run")
async def list_workflows(visit: OwnVisit) -> Response[Reply]:
    registry = visit.service.registry
    told = [told_workflow(one.name, one.workflow, is_default=one is registry.default) for one in registry]
    return reply(visit.request_id, {"workflows": told})


@get("/v1/workflows/{name:str}", opt=READ, responses=errors(404), tags=TAGS, summary="One of them, with its schema")
async def get_workflow(name: FromPath[str], visit: OwnVisit) -> Response[Reply]:
    workflow = visit.service.workflow(name)
    is_default = visit.service.registry.default is not None and visit.service.registry.default.workflow is workflow
    told = told_workflow(name, workflow, is_default=is_default)
    told["input_schema"] = schema_of_any(workflow.input_types)
    told["output_schema"] = schema_of_any(workflow.output_types)
    told["mermaid"] = workflow.to_mermaid()
    return reply(visit.request_id, {"workflow": told})


@get(
    "/v1/workflows/{name:str}/graph.svg",
    opt=READ,
    media_type="image/svg+xml",
    responses=errors(404),
    tags=TAGS,
    summary="Its drawing",
)
async def drawing(name: FromPath[str], visit: OwnVisit) -> Response[str]:
    return Response(visit.service.workflow(name).to_svg(), media_type="image/svg+xml")


ROUTES = [list_workflows, get_workflow, drawing]
