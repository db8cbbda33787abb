"""Time travel: checkpoints, what differs between them, forks, rewinds and pins."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from perdure.server.http.bodies import ForkBody, PinBody, RewindBody
from perdure.server.http.errors import Reply, errors, reply
from perdure.server.http.request_context import OwnThreads, OwnVisit
from perdure.server.http.routes.threads import Limit

READ = {"scope": "checkpointer:read"}
WRITE = {"scope": "checkpointer:write"}
TAGS = ["Time travel"]
HERE = "/v1/threads/{thread_id:str}"

Before = Annotated[str | None, QueryParameter(name="before", max_length=255)]


@get(f"{HERE}/checkpoints", opt=READ, responses=errors(404), tags=TAGS, summary="A thread's history, newest first")
async def list_checkpoints(
    thread_id: FromPath[str], visit: OwnVisit, threads: OwnThreads, limit: Limit = 100, before: Before = None
) -> Response[Reply]:
    return reply(visit.request_id, {"checkpoints": await threads.checkpoints(thread_id, limit, before)})


@get(
    f"{HERE}/checkpoints/{{checkpoint_id:str}}",
    opt=READ,
    responses=errors(404, 409),
    tags=TAGS,
    summary="The state at one",
)
async def get_checkpoint(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], visit: OwnVisit, threads: OwnThreads
) -> Response[Reply]:
    return reply(visit.request_id, {"checkpoint": await threads.checkpoint(thread_id, checkpoint_id)})


@get(
    f"{HERE}/checkpoints/{{checkpoint_id:str}}/diff/{{other:str}}",
    opt=READ,
    responses=errors(404, 409),
    tags=TAGS,
    summary="What differs from one to the other",
)
async def diff(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], other: FromPath[str], visit: OwnVisit, threads: OwnThreads
) -> Response[Reply]:
    return reply(visit.request_id, {"diff": await threads.diff(thread_id, checkpoint_id, other)})


@post(f"{HERE}/fork", opt=WRITE, responses=errors(404, 409), tags=TAGS, summary="A new thread that begins there")
async def fork(
    thread_id: FromPath[str], data: JSONBody[ForkBody], visit: OwnVisit, threads: OwnThreads
) -> Response[Reply]:
    if data.thread_id is not None:
        await visit.must("checkpointer:write", data.thread_id)
    made = await threads.fork(thread_id, data.checkpoint_id, data.thread_id, data.update_state, data.remove_state)
    return reply(visit.request_id, {"checkpoint": made}, status=201)


@post(
    f"{HERE}/rewind",
    status_code=200,
    opt=WRITE,
    responses=errors(404, 409),
    tags=TAGS,
    summary="Go back; what came after stays as a branch",
)
async def rewind(
    thread_id: FromPath[str], data: JSONBody[RewindBody], visit: OwnVisit, threads: OwnThreads
) -> Response[Reply]:
    return reply(visit.request_id, {"checkpoint": await threads.rewind(thread_id, data.checkpoint_id)})


@post(
    f"{HERE}/pin",
    status_code=200,
    opt=WRITE,
    responses=errors(404, 409),
    tags=TAGS,
    summary="Keep a checkpoint, whatever is pruned",
)
async def pin(
    thread_id: FromPath[str], data: JSONBody[PinBody], visit: OwnVisit, threads: OwnThreads
) -> Response[Reply]:
    pinned = await threads.pin(thread_id, data.checkpoint_id, is_pinned=data.is_pinned)
    return reply(visit.request_id, {"checkpoint": pinned})


ROUTES = [list_checkpoints, get_checkpoint, diff, fork, rewind, pin]
