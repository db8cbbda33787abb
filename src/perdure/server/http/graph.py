"""Routes of graphs: AgentFlow's graph, tools, invoke, stream, stop and socket; and the served workflows."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from functools import partial
from types import NoneType
from typing import Any, Literal, Union

import msgspec
from litestar import Response, WebSocket, get, post, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromPath, JSONBody
from litestar.response import Stream
from msgspec import UNSET, UnsetType

from perdure.agents.executor import AgentExecutor
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.errors import PerdureError
from perdure.log import get_logger
from perdure.server.http.middleware import BEARER, STREAM, OwnRequest, Visit, visit_of
from perdure.server.http.responses import Reply, agentflow_options, reply, route_options
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.threads.as_json import schema_of
from perdure.server.threads.hub import stream_frames
from perdure.server.threads.turns import InvokeBody, InvokedTurn, to_frames, turn_chunks
from perdure.workflows.workflow import Workflow

logger = get_logger("server")

read_options = partial(agentflow_options, "graph:read", "Graph")


@get("/v1/graph", **read_options("Get the default workflow as a graph"))
async def graph(request: OwnRequest) -> Response[Reply]:
    return reply(request, graph_to_client(request.visit.service.workflow(None), request.visit.service.storage))


@get("/v1/graph/tools", **read_options("List the tools of its agents"))
async def tools(request: OwnRequest) -> Response[Reply]:
    executors = request.visit.service.workflow(None).executors.values()
    agents = [executor for executor in executors if isinstance(executor, AgentExecutor)]
    return reply(request, {"nodes": [{"node": agent.id, "tools": _tools(agent.agent)} for agent in agents]})


@get("/v1/graph:StateSchema", **read_options("Get the schema of a state"))
async def state_schema(request: OwnRequest) -> Response[Reply]:
    return reply(request, STATE_SCHEMA)


@post(
    "/v1/graph/invoke",
    **agentflow_options("graph:invoke", "Graph", "Run one turn and return its messages", 404, 502, 504),
)
async def invoke(data: JSONBody[InvokeBody], request: OwnRequest) -> Response[Reply]:
    turn = InvokedTurn(request.threads, data)
    await request.visit.require_scope("graph:invoke", turn.thread_id)
    return reply(request, await turn.invoke())


@post(
    "/v1/graph/stream",
    media_type="text/event-stream",
    **agentflow_options("graph:stream", "Graph", "Run one turn and stream its chunks", 404, 504),
)
async def stream(data: JSONBody[InvokeBody], request: OwnRequest) -> Stream:
    turn = InvokedTurn(request.threads, data)
    await request.visit.require_scope("graph:stream", turn.thread_id)
    service = request.visit.service
    async with AsyncExitStack() as stack:
        stack.enter_context(service.stream_slot())
        follower = await stack.enter_async_context(turn.follow())
        served = await turn.begin(stream=True)
        chunks = turn_chunks(turn, served, follower)
        return Stream(stream_frames(chunks, to_frames, follower, service.stopping, stack.pop_all()), **STREAM)


class StopBody(msgspec.Struct, frozen=True):
    thread_id: str
    config: dict[str, Any] | None = None


@post("/v1/graph/stop", **agentflow_options("graph:stop", "Graph", "Stop the run of a thread", 404))
async def stop(data: JSONBody[StopBody], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    await request.visit.require_scope("graph:stop", data.thread_id)
    info, workflow = await threads.workflow(data.thread_id)
    was_running = await workflow.cancel(info.thread_id, checkpoint_storage=threads.storage)
    body: dict[str, Any] = {"ok": True, "running": was_running}
    if not was_running:
        body["reason"] = "No run owns this thread."
    return reply(request, body)


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
    body["output_schema"] = schema_of_any(workflow.output_types)
    body["mermaid"] = workflow.to_mermaid()
    return reply(request, {"workflow": body})


@get(
    "/v1/workflows/{name:str}/graph.svg", media_type="image/svg+xml", **workflow_options("Draw a workflow as SVG", 404)
)
async def drawing(name: FromPath[str], request: OwnRequest) -> Response[str]:
    return Response(request.visit.service.workflow(name).to_svg(), media_type="image/svg+xml")


# ---------------------------------------------------------------- the socket


REJECTED, FAILED, TRY_LATER = 1008, 1011, 1013
"""Close codes of the socket."""


class FrameBody(InvokeBody, frozen=True):
    """A frame from a client: one turn."""

    invoke_type: Literal["fresh", "resume"] = "fresh"
    tool_result: Any | UnsetType = UNSET


@websocket("/v1/graph/ws", opt={"scope": "graph:stream", "agentflow": True})
async def graph_socket(socket: WebSocket[Any, Any, Any]) -> None:
    visit = visit_of(socket.scope)
    try:
        await visit.require_scope("graph:stream", None)
        await socket.accept(subprotocols=BEARER if BEARER in visit.protocols else None)
        with visit.service.stream_slot():
            while (text := await _receive(socket, visit)) is not None:
                await _turn(socket, visit, text)
        await socket.close(TRY_LATER, "The server stops. Reconnect.")
    except (WebSocketDisconnect, OSError):
        return  # the client disconnected; the run continues
    except HttpProblem as problem:
        await socket.close(TRY_LATER if problem.status in (429, 503) else REJECTED, problem.code)
    except Exception:  # clients do not see internal errors
        logger.exception("request %s over a socket failed", visit.request_id)
        await socket.close(FAILED, "internal_error")


async def _receive(socket: WebSocket[Any, Any, Any], visit: Visit) -> Any:
    """The next frame; None if the server stops first."""
    receiving = asyncio.ensure_future(socket.receive_data(mode="text"))
    stopping = asyncio.ensure_future(visit.service.stopping.wait())
    try:
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        return receiving.result() if receiving.done() else None
    finally:
        stopping.cancel()
        receiving.cancel()


async def _turn(socket: WebSocket[Any, Any, Any], visit: Visit, text: Any) -> None:
    """Run one turn. A rejected frame gets an error reply, and the socket stays open."""
    try:
        await visit.count_request()
        turn = InvokedTurn(visit.threads, _body(text))
        await visit.require_scope("graph:stream", turn.thread_id)
        async with turn.follow() as follower, AsyncExitStack() as stack:
            served = await turn.begin(stream=True)
            chunks = await stack.enter_async_context(aclosing(turn_chunks(turn, served, follower)))
            async for parts in chunks:
                for _, body in parts:
                    await _send(socket, body)
                if visit.service.stopping.is_set():
                    closing = {"status": "closing", "cursor": follower.cursor}
                    await _send(socket, turn.chunk("updates", data=closing))
                    return
    except PerdureError as error:
        problem = problem_of(error)
        if problem is None:
            logger.exception("a turn over a socket failed")
            problem = HttpProblem(500, "internal_error", "Internal error. The server log has the details.")
        data = {"code": problem.code, "message": visit.space.with_public_ids(problem.message), "status": problem.status}
        await _send(socket, {"event": "error", "data": data, "message": None, "state": None})


def _body(text: Any) -> InvokeBody:
    """Raises HttpProblem."""
    try:
        body = msgspec.json.decode(text, type=FrameBody)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpProblem(422, "invalid_frame", f"A frame must be a JSON object of a turn: {error}") from error
    if body.tool_result is not UNSET:
        raise HttpProblem(422, "invalid_frame", "tool_result is not supported: this server has no client tools.")
    if (body.invoke_type == "resume") is (body.resume is UNSET):
        raise HttpProblem(422, "invalid_frame", "invoke_type 'resume' needs resume, and 'fresh' needs messages.")
    return body


async def _send(socket: WebSocket[Any, Any, Any], data: Any) -> None:
    await socket.send_data(msgspec.json.encode(data).decode(), mode="text")


ROUTES = [
    *(graph, tools, state_schema, invoke, stream, stop, graph_socket),
    *(list_workflows, get_workflow, drawing),
]
