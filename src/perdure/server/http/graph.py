"""Routes of graphs: AgentFlow's graph and tools, and the served workflows."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from types import NoneType
from typing import Any, Union

from litestar import Response, get
from litestar.params import FromPath

from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.server.http.middleware import OwnRequest
from perdure.server.http.responses import Reply, agentflow_options, reply, route_options
from perdure.server.threads.as_json import schema_of
from perdure.workflows.workflow import Workflow

read_options = partial(agentflow_options, "graph:read", "Graph")


@get("/v1/graph", **read_options("Get the default workflow as a graph"))
async def graph(request: OwnRequest) -> Response[Reply]:
    return reply(request, graph_to_client(request.visit.service.default_workflow, request.visit.service.storage))


@get("/v1/graph/tools", **read_options("List the tools of its agents"))
async def tools(request: OwnRequest) -> Response[Reply]:
    executors = request.visit.service.default_workflow.executors.values()
    agents = [executor for executor in executors if isinstance(executor, AgentExecutor)]
    return reply(request, {"nodes": [{"node": agent.id, "tools": _tools(agent.agent)} for agent in agents]})


@get("/v1/graph:StateSchema", **read_options("Get the schema of a state"))
async def state_schema(request: OwnRequest) -> Response[Reply]:
    return reply(request, STATE_SCHEMA)


# ---------------------------------------------------------------- as JSON


STATE_SCHEMA: dict[str, Any] = {
    "title": "State",
    "type": "object",
    "properties": {
        "context": {"type": "array", "items": {"$ref": "#/$defs/Message"}, "description": "The messages so far."},
        "context_summary": {"type": ["string", "null"]},
        "execution_meta": {"type": "object", "readOnly": True, "description": "The status of the thread."},
    },
    "additionalProperties": True,
    "$defs": {
        "Message": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "message_id": {"type": "string"},
                "role": {"enum": ["user", "assistant", "system", "tool"]},
                "content": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


START, END = "__start__", "__end__"


def graph_to_client(workflow: Workflow, storage: StoreCheckpointStorage) -> dict[str, Any]:
    nodes = [START, *workflow.executors, END]
    edges = [(START, workflow.start_executor_id)]
    edges += [(edge.source_id, edge.target_id) for group in workflow.graph.edge_groups for edge in group.edges]
    leaves = [node for node in workflow.executors if all(source != node for source, _ in edges)]
    edges += [(node, END) for node in leaves]
    info = {
        "name": workflow.name,
        "node_count": len(nodes),
        "edge_count": len(edges),
        "is_realtime": False,
        "checkpointer": True,
        "checkpointer_type": type(storage).__name__,
        "publisher": False,
        "store": False,
        "interrupt_before": None,
        "interrupt_after": None,
        "context_type": None,
        "id_generator": "time-ordered",
        "id_type": "string",
        "state_type": "AgentState",
        "state_fields": ["context", "context_summary", "execution_meta"],
    }
    return {
        "info": info,
        "nodes": [{"id": node, "name": node} for node in nodes],
        "edges": [{"id": f"{source}->{target}", "source": source, "target": target} for source, target in edges],
    }


def _tools(agent: Any) -> list[dict[str, Any]]:
    tools = getattr(agent, "tools", None)
    entries: list[Any] = list(tools.values()) if isinstance(tools, Mapping) else list(tools or ())
    return [
        {"name": tool.name, "description": tool.description, "source": "local", "parameters": _parameters(tool)}
        for tool in entries
        if isinstance(tool, Tool)
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    hidden = {"return", tool.context_parameter}
    annotations = {name: annotation for name, annotation in tool._annotations.items() if name not in hidden}
    parameters = inspect.signature(tool.function).parameters
    required = [
        name for name in annotations if name in parameters and parameters[name].default is inspect.Parameter.empty
    ]
    return {
        "type": "object",
        "properties": {name: schema_of(annotation) for name, annotation in annotations.items()},
        "required": required,
    }


# ---------------------------------------------------------------- workflows


workflow_options = partial(route_options, "graph:read", "Workflows")


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


@get("/v1/workflows", **workflow_options("List workflows"))
async def list_workflows(request: OwnRequest) -> Response[Reply]:
    registry = request.visit.service.registry
    default = registry.default
    bodies = [workflow_to_json(each.name, each.workflow, is_default=each is default) for each in registry.values()]
    return reply(request, {"workflows": bodies})


def schema_of_any(annotations: Iterable[Any]) -> dict[str, Any]:
    """The JSON Schema of a union of these types."""
    kinds = [kind for kind in annotations if kind is not NoneType]
    if not kinds:
        return {}
    if together := schema_of(Union[tuple(kinds)]):  # noqa: UP007  # a union of types known only now
        return together
    each = [schema for kind in kinds if (schema := schema_of(kind))]
    return {"anyOf": each} if len(each) == len(kinds) else {}


@get("/v1/workflows/{name:str}", **workflow_options("Get a workflow with its schemas", 404))
async def get_workflow(name: FromPath[str], request: OwnRequest) -> Response[Reply]:
    service = request.visit.service
    workflow, default = service.workflow(name), service.registry.default
    body = workflow_to_json(name, workflow, is_default=default is not None and default.workflow is workflow)
    body["input_schema"] = schema_of_any(workflow.input_types)
    body["output_schema"] = schema_of_any(workflow.graph.output_types)
    body["mermaid"] = workflow.to_mermaid()
    return reply(request, {"workflow": body})


@get(
    "/v1/workflows/{name:str}/graph.svg", media_type="image/svg+xml", **workflow_options("Draw a workflow as SVG", 404)
)
async def drawing(name: FromPath[str], request: OwnRequest) -> Response[str]:
    return Response(request.visit.service.workflow(name).to_svg(), media_type="image/svg+xml")


ROUTES = [graph, tools, state_schema, list_workflows, get_workflow, drawing]
