"""The conversation of AgentFlow's clients: invoke, stream, stop, and what the graph is."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from litestar import Response, get, post
from litestar.params import JSONBody
from litestar.response import Stream

from perdure.server.agentflow.graphs import graph_to_client, tools_to_client
from perdure.server.agentflow.invoking import InvokeBody, InvokedTurn
from perdure.server.agentflow.states import STATE_SCHEMA
from perdure.server.agentflow.streaming import chunks
from perdure.server.http.bodies import StopBody
from perdure.server.http.errors import Reply, errors_of_agentflow, reply
from perdure.server.http.request_context import OwnThreads, OwnVisit
from perdure.server.http.sse import event_stream, frames_of_chunks

READ = {"scope": "graph:read", "agentflow": True}
TAGS = ["Graph"]


@get("/v1/graph", opt=READ, responses=errors_of_agentflow(), tags=TAGS, summary="The default workflow as a graph")
async def graph(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, graph_to_client(visit.service.workflow(None), visit.service.storage))


@get("/v1/graph/tools", opt=READ, responses=errors_of_agentflow(), tags=TAGS, summary="The tools of its agents")
async def tools(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, tools_to_client(visit.service.workflow(None)))


@get("/v1/graph:StateSchema", opt=READ, responses=errors_of_agentflow(), tags=TAGS, summary="What a state looks like")
async def state_schema(visit: OwnVisit) -> Response[Reply]:
    return reply(visit.request_id, STATE_SCHEMA)


@post(
    "/v1/graph/invoke",
    status_code=200,
    opt={"scope": "graph:invoke", "agentflow": True},
    responses=errors_of_agentflow(404, 502, 504),
    tags=TAGS,
    summary="One turn, answered when it has ended",
)
async def invoke(data: JSONBody[InvokeBody], visit: OwnVisit, threads: OwnThreads) -> Response[Reply]:
    turn = InvokedTurn(threads, data)
    await visit.must("graph:invoke", turn.thread_id)
    await turn.begin()
    return reply(visit.request_id, await turn.ended())


def unheard(_: Any) -> None:
    """Having a listener makes a run stream; what it streams comes through the hub."""


@post(
    "/v1/graph/stream",
    status_code=200,
    media_type="text/event-stream",
    opt={"scope": "graph:stream", "agentflow": True},
    responses=errors_of_agentflow(404, 504),
    tags=TAGS,
    summary="One turn, told as it happens",
)
async def stream(data: JSONBody[InvokeBody], visit: OwnVisit, threads: OwnThreads) -> Stream:
    turn = InvokedTurn(threads, data)
    await visit.must("graph:stream", turn.thread_id)
    service = visit.service
    async with AsyncExitStack() as stack:
        stack.enter_context(service.stream_slot())
        follower = await stack.enter_async_context(await turn_follower(turn))
        await turn.begin(unheard)
        frames = frames_of_chunks(chunks(turn, follower), follower)
        return event_stream(service, frames, follower, stack.pop_all())


async def turn_follower(turn: InvokedTurn) -> Any:
    """Follows the turn's thread from where it stands now."""
    service, space = turn.threads.service, turn.threads.space
    after = await service.storage.last_seq(turn.stored_id)
    return service.hub.follow(turn.stored_id, space, lambda: turn.workflow.declared_types, after, is_last=True)


@post(
    "/v1/graph/stop",
    status_code=200,
    opt={"scope": "graph:stop", "agentflow": True},
    responses=errors_of_agentflow(404),
    tags=TAGS,
    summary="End what runs a thread",
)
async def stop(data: JSONBody[StopBody], visit: OwnVisit, threads: OwnThreads) -> Response[Reply]:
    await visit.must("graph:stop", data.thread_id)
    info, workflow = await threads.workflow(data.thread_id)
    was_running = await workflow.cancel(info.thread_id, checkpoint_storage=threads.storage)
    told: dict[str, Any] = {"ok": True, "running": was_running}
    if not was_running:
        told["reason"] = "Nothing runs this thread."
    return reply(visit.request_id, told)


ROUTES = [graph, tools, state_schema, invoke, stream, stop]
