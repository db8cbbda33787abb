"""Routes of a thread's history: checkpoints, diffs, forks, rewinds, pins, export and import."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from perdure.errors import NoThreadFile
from perdure.names import new_thread_id
from perdure.server.http.middleware import OwnRequest
from perdure.server.http.responses import Reply, reply, route_options
from perdure.server.http.routes.threads import Limit
from perdure.server.problems import HttpProblem
from perdure.server.threads.to_json import thread_to_json

read_options = partial(route_options, "checkpointer:read", "Time travel")
write_options = partial(route_options, "checkpointer:write", "Time travel")
HERE = "/v1/threads/{thread_id:str}"

Before = Annotated[str | None, QueryParameter(name="before", max_length=255)]


class ForkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head if omitted."""
    thread_id: str | None = None
    """Of the new thread."""
    update_state: dict[str, Any] = {}
    remove_state: list[str] = []


class RewindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str


class PinBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head if omitted."""
    is_pinned: bool = True


@get(f"{HERE}/checkpoints", **read_options("List checkpoints, newest first", 404))
async def list_checkpoints(
    thread_id: FromPath[str], request: OwnRequest, limit: Limit = 100, before: Before = None
) -> Response[Reply]:
    return reply(request, {"checkpoints": await request.threads.checkpoints(thread_id, limit, before)})


@get(f"{HERE}/checkpoints/{{checkpoint_id:str}}", **read_options("Get the state at a checkpoint", 404, 409))
async def get_checkpoint(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], request: OwnRequest
) -> Response[Reply]:
    return reply(request, {"checkpoint": await request.threads.checkpoint(thread_id, checkpoint_id)})


@get(
    f"{HERE}/checkpoints/{{checkpoint_id:str}}/diff/{{other:str}}", **read_options("Compare two checkpoints", 404, 409)
)
async def diff(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], other: FromPath[str], request: OwnRequest
) -> Response[Reply]:
    return reply(request, {"diff": await request.threads.diff(thread_id, checkpoint_id, other)})


@post(f"{HERE}/fork", **write_options("Fork a new thread from a checkpoint", 404, 409, status=201))
async def fork(thread_id: FromPath[str], data: JSONBody[ForkBody], request: OwnRequest) -> Response[Reply]:
    if data.thread_id is not None:
        await request.require_scope("checkpointer:write", data.thread_id)
    checkpoint = await request.threads.fork(
        thread_id, data.checkpoint_id, data.thread_id, data.update_state, data.remove_state
    )
    return reply(request, {"checkpoint": checkpoint}, status=201)


@post(f"{HERE}/rewind", **write_options("Rewind to a checkpoint; later checkpoints stay as a branch", 404, 409))
async def rewind(thread_id: FromPath[str], data: JSONBody[RewindBody], request: OwnRequest) -> Response[Reply]:
    return reply(request, {"checkpoint": await request.threads.rewind(thread_id, data.checkpoint_id)})


@post(f"{HERE}/pin", **write_options("Pin a checkpoint, so that pruning keeps it", 404, 409))
async def pin(thread_id: FromPath[str], data: JSONBody[PinBody], request: OwnRequest) -> Response[Reply]:
    pinned = await request.threads.pin(thread_id, data.checkpoint_id, is_pinned=data.is_pinned)
    return reply(request, {"checkpoint": pinned})


# ---------------------------------------------------------------- export and import


NDJSON = "application/x-ndjson"
PIECE_BYTES = 256 * 1024


@post(
    f"{HERE}/export",
    media_type=NDJSON,
    **route_options("checkpointer:read", "Moving", "Export a thread with its history as one file", 404, 409),
)
async def export_thread(thread_id: FromPath[str], request: OwnRequest) -> Stream:
    threads = request.threads
    info = await threads.find(thread_id)
    with tempfile.TemporaryDirectory(prefix="perdure-export-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "thread.jsonl"
        await threads.storage.export_thread(info.thread_id, path)
        file = path.open("rb")  # deleted before it is sent, so a killed server leaves no file
    headers = {"Content-Disposition": 'attachment; filename="thread.jsonl"'}
    return Stream(_pieces(file), media_type=NDJSON, headers=headers)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


@post(
    "/v1/threads/import",
    **route_options(
        "checkpointer:write", "Moving", "Import the thread of such a file, atomically", 404, 409, status=201
    ),
)
async def import_thread(
    request: OwnRequest,
    thread: Annotated[str | None, QueryParameter(name="thread_id", max_length=255)] = None,
) -> Response[Reply]:
    threads = request.threads
    stored_id = threads.space.stored_id(thread or new_thread_id())
    if thread is not None:
        await request.require_scope("checkpointer:write", thread)
    with tempfile.TemporaryDirectory(prefix="perdure-import-") as folder:
        path = Path(folder) / "thread.jsonl"
        with path.open("wb") as file:
            async for piece in request.stream():
                await asyncio.to_thread(file.write, piece)
        try:
            info = await threads.storage.import_thread(path, thread_id=stored_id)
        except NoThreadFile as error:  # without the server's path
            message = f"The body cannot be imported: {error.reason}. Nothing was imported."
            raise HttpProblem(422, error.code, message, field="body") from error
    return reply(request, {"thread": thread_to_json(info, threads.space)}, status=201)


ROUTES = [list_checkpoints, get_checkpoint, diff, fork, rewind, pin, export_thread, import_thread]
