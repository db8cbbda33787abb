"""Moving a thread: out as a file, and in again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from litestar import Request, Response, post
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from perdure.errors import NoThreadFile
from perdure.names import new_thread_id
from perdure.server.http.errors import Reply, errors, reply
from perdure.server.http.request_context import OwnThreads, OwnVisit
from perdure.server.http.routes.history import HERE
from perdure.server.problems import HttpProblem
from perdure.server.threads.to_json import plain_thread

NDJSON = "application/x-ndjson"
TAGS = ["Moving"]
PIECE = 256 * 1024


@post(
    f"{HERE}/export",
    status_code=200,
    media_type=NDJSON,
    opt={"scope": "checkpointer:read"},
    responses=errors(404, 409),
    tags=TAGS,
    summary="A thread with its history, as one file",
)
async def export_thread(thread_id: FromPath[str], visit: OwnVisit, threads: OwnThreads) -> Stream:
    info = await threads.find(thread_id)
    with tempfile.TemporaryDirectory(prefix="perdure-export-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "thread.jsonl"
        await threads.storage.export_thread(info.thread_id, path)
        file = path.open("rb")  # its name is gone before it is sent: a server that is killed leaves nothing behind
    headers = {"Content-Disposition": 'attachment; filename="thread.jsonl"'}
    return Stream(_pieces(file), media_type=NDJSON, headers=headers)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


@post(
    "/v1/threads/import",
    status_code=201,
    opt={"scope": "checkpointer:write"},
    responses=errors(404, 409),
    tags=TAGS,
    summary="Keep the thread of such a file, all of it or nothing",
)
async def import_thread(
    request: Request[Any, Any, Any],
    visit: OwnVisit,
    threads: OwnThreads,
    thread: Annotated[str | None, QueryParameter(name="thread_id", max_length=255)] = None,
) -> Response[Reply]:
    stored_id = threads.space.inside(thread or new_thread_id())
    if thread is not None:
        await visit.must("checkpointer:write", thread)
    with tempfile.TemporaryDirectory(prefix="perdure-import-") as folder:
        path = Path(folder) / "thread.jsonl"
        with path.open("wb") as file:
            async for piece in request.stream():
                await asyncio.to_thread(file.write, piece)
        try:
            info = await threads.storage.import_thread(path, thread_id=stored_id)
        except NoThreadFile as error:  # its path is nothing for the client
            said = f"The body cannot be imported: {error.reason}. Nothing was imported."
            raise HttpProblem(422, error.code, said, field="body") from error
    return reply(visit.request_id, {"thread": plain_thread(info, threads.space)}, status=201)


ROUTES = [export_thread, import_thread]
