"""Routes of threads: list, state, messages; and their history: checkpoints, forks, rewinds, pins, export and import."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from perdure.checkpoints.any_storage import load_checkpoint
from perdure.errors import NoThreadFile
from perdure.names import new_thread_id
from perdure.records import CheckpointInfo
from perdure.server.auth.principal import check_id
from perdure.server.http.middleware import OwnRequest
from perdure.server.http.responses import Reply, agentflow_options, reply, route_options
from perdure.server.problems import HttpProblem, unprocessable
from perdure.server.threads.as_json import (
    MessageBody,
    checkpoint_info_to_json,
    checkpoint_to_json,
    context_of,
    find_message,
    merge_messages,
    message_to_client,
    messages_from_client,
    thread_to_json,
    to_json,
    with_ids,
)
from perdure.server.threads.conversation import (
    OWN_KEYS,
    conversation,
    no_conversation,
    session_messages,
    speaker,
    update_state,
    with_messages,
)
from perdure.server.threads.threads import Threads

read_options = partial(agentflow_options, "checkpointer:read", "Threads")
write_options = partial(agentflow_options, "checkpointer:write", "Threads")
delete_options = partial(agentflow_options, "checkpointer:delete", "Threads")
history_options = partial(route_options, "checkpointer:read", "Time travel")
editing_options = partial(route_options, "checkpointer:write", "Time travel")
HERE = "/v1/threads/{thread_id:str}"

Search = Annotated[str | None, QueryParameter(name="search", max_length=255)]
Offset = Annotated[int, QueryParameter(name="offset", ge=0, le=1_000_000)]
Before = Annotated[str | None, QueryParameter(name="before", max_length=255)]
Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=1000)]


class StateBody(msgspec.Struct, frozen=True):
    """Merged into the state: messages of `context` are added, None and `execution_meta` are ignored."""

    state: dict[str, Any]
    config: dict[str, Any] | None = None


class MessagesBody(msgspec.Struct, frozen=True):
    """Messages to store without a turn."""

    messages: list[MessageBody]
    metadata: dict[str, Any] | None = None
    config: dict[str, Any] | None = None


class PatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    update_state: dict[str, Any] = {}
    remove_state: list[str] = []


@get("/v1/threads", **read_options("List threads, the latest updated first"))
async def list_threads(
    request: OwnRequest, search: Search = None, offset: Offset = 0, limit: Limit = 100
) -> Response[Reply]:
    return reply(request, {"threads": await request.threads.list_page(search, offset, limit)})


@get(HERE, **read_options("Get a thread", 404))
async def get_thread(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info = await threads.find(thread_id)
    return reply(request, {"thread": thread_to_json(info, threads.space, await threads.about(info))})


@delete(HERE, **delete_options("Delete a thread and its history", 404))
async def delete_thread(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    info = await request.threads.find(thread_id)
    await request.threads.storage.delete_thread(info.thread_id)
    return reply(request, _success("The thread was deleted."))


def _success(message: str, data: Any = None) -> dict[str, Any]:
    return {"success": True, "message": message, "data": data}


# ---------------------------------------------------------------- state


@get(f"{HERE}/state", **read_options("Get context, execution_meta and the shared state", 404))
async def get_state(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    return reply(request, {"state": await request.threads.state_view(thread_id)})


@put(f"{HERE}/state", **write_options("Merge into the state", 404))
async def put_state(thread_id: FromPath[str], data: JSONBody[StateBody], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    context = context_of(data.state, "state.context")
    agent_id = speaker(workflow)

    def change(head: Any) -> Any:
        after = msgspec.structs.replace(head, state=update_state(head.state, data.state))
        if agent_id is None:
            if context and any(message.message_id is None for message in context):
                raise no_conversation(workflow)
            return after
        messages = with_ids(session_messages(head, agent_id))
        existing = {message.message_id for message in messages}  # a client that read the state sends them back
        new = messages_from_client(
            [message for message in context if str(message.message_id) not in existing], "state.context"
        )
        return with_messages(after, agent_id, merge_messages(messages, new)) if new else after

    await workflow.edit(info.thread_id, change, checkpoint_storage=threads.storage)
    return reply(request, {"state": await threads.state_view(thread_id)})


@delete(f"{HERE}/state", **delete_options("Clear the state and the agent's memory; the history stays", 404))
async def delete_state(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    await workflow.clear(info.thread_id, checkpoint_storage=threads.storage)
    return reply(request, _success("The state was cleared."))


@patch(f"{HERE}/state", **editing_options("Change keys of the shared state, as the thread's next checkpoint", 404, 409))
async def patch_state(thread_id: FromPath[str], data: JSONBody[PatchBody], request: OwnRequest) -> Response[Reply]:
    _refuse_own_keys(data.update_state)
    storage = request.threads.storage
    info, workflow = await request.threads.workflow(thread_id)
    checkpoint = await workflow.update_state(
        info.thread_id, data.update_state, remove_state=data.remove_state, checkpoint_storage=storage
    )
    return _reply_checkpoint(request, checkpoint)


def _refuse_own_keys(state: Mapping[str, Any]) -> None:
    for key in OWN_KEYS & state.keys():
        sentence = f"{key} is not a key of the shared state. Nothing was written. PUT the state to add messages."
        raise unprocessable(f"update_state.{key}", sentence)


def _reply_checkpoint(request: OwnRequest, info: CheckpointInfo, *, status: int = 200) -> Response[Reply]:
    return reply(request, {"checkpoint": checkpoint_info_to_json(info, request.threads.space)}, status=status)


# ---------------------------------------------------------------- messages


@get(f"{HERE}/messages", **read_options("List messages", 404))
async def list_messages(
    thread_id: FromPath[str], request: OwnRequest, search: Search = None, offset: Offset = 0, limit: Limit = 100
) -> Response[Reply]:
    return reply(request, {"messages": await request.threads.messages_view(thread_id, search, offset, limit)})


@post(f"{HERE}/messages", **write_options("Add messages without a turn", 404))
async def add_messages(thread_id: FromPath[str], data: JSONBody[MessagesBody], request: OwnRequest) -> Response[Reply]:
    added = messages_from_client(
        msgspec.structs.replace(body, metadata={**(data.metadata or {}), **(body.metadata or {})} or None)
        for body in data.messages
    )
    if not added:
        raise unprocessable("messages", "messages is empty. Nothing was written.")
    await _change_messages(request.threads, thread_id, lambda messages: merge_messages(messages, added))
    return reply(request, _success("The messages were added.", [message.message_id for message in added]))


async def _change_messages(threads: Threads, thread_id: str, change: Any) -> None:
    info, workflow = await threads.workflow(thread_id)
    agent_id = speaker(workflow)
    if agent_id is None:
        raise no_conversation(workflow)
    await workflow.edit(
        info.thread_id,
        lambda head: with_messages(head, agent_id, change(session_messages(head, agent_id))),
        checkpoint_storage=threads.storage,
    )


@get(f"{HERE}/messages/{{message_id:str}}", **read_options("Get a message", 404))
async def get_message(thread_id: FromPath[str], message_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    _, workflow, head = await threads.head(thread_id)
    _, message = find_message(await conversation(threads.storage, workflow, head), message_id)
    return reply(request, {"message": message_to_client(message)})


@delete(f"{HERE}/messages/{{message_id:str}}", **delete_options("Delete a message from the agent's memory", 404))
async def delete_message(thread_id: FromPath[str], message_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    def without(messages: list[Any]) -> list[Any]:
        at, _ = find_message(messages, message_id)
        remaining = with_ids(messages)
        return [*remaining[:at], *remaining[at + 1 :]]

    await _change_messages(request.threads, thread_id, without)
    return reply(request, _success("The message was deleted."))


# ---------------------------------------------------------------- history


class ForkBody(PatchBody, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head if omitted."""
    thread_id: str | None = None
    """Of the new thread."""


class RewindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str


class PinBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    """The head if omitted."""
    is_pinned: bool = True


@get(f"{HERE}/checkpoints", **history_options("List checkpoints, newest first", 404))
async def list_checkpoints(
    thread_id: FromPath[str], request: OwnRequest, limit: Limit = 100, before: Before = None
) -> Response[Reply]:
    threads = request.threads
    info = await threads.find(thread_id)
    if before is not None:
        await threads.checkpoint_info(thread_id, before)
    infos = await threads.storage.list_checkpoint_infos(thread_id=info.thread_id, limit=limit, before=before)
    return reply(request, {"checkpoints": [checkpoint_info_to_json(each, threads.space) for each in reversed(infos)]})


@get(f"{HERE}/checkpoints/{{checkpoint_id:str}}", **history_options("Get the state at a checkpoint", 404, 409))
async def get_checkpoint(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], request: OwnRequest
) -> Response[Reply]:
    threads = request.threads
    _, workflow = await threads.find_workflow(thread_id)
    await threads.checkpoint_info(thread_id, checkpoint_id)
    if workflow is None:
        checkpoint = await threads.storage.load(checkpoint_id)
    else:
        checkpoint = await load_checkpoint(threads.storage, checkpoint_id, workflow.declared_types)
    return reply(request, {"checkpoint": checkpoint_to_json(checkpoint, threads.space)})


@get(
    f"{HERE}/checkpoints/{{checkpoint_id:str}}/diff/{{other:str}}",
    **history_options("Compare two checkpoints", 404, 409),
)
async def diff(
    thread_id: FromPath[str], checkpoint_id: FromPath[str], other: FromPath[str], request: OwnRequest
) -> Response[Reply]:
    threads = request.threads
    await threads.checkpoint_info(thread_id, checkpoint_id)
    check_id("other", other)
    stored = await threads.find_checkpoint(other)
    if stored is None or not stored.info.thread_id.startswith(threads.space.prefix):
        raise HttpProblem(404, "checkpoint_not_found", f"No checkpoint {other!r} exists.", field="other")
    return reply(request, {"diff": to_json(await threads.storage.diff(checkpoint_id, other))})


@post(f"{HERE}/fork", **editing_options("Fork a new thread from a checkpoint", 404, 409, status=201))
async def fork(thread_id: FromPath[str], data: JSONBody[ForkBody], request: OwnRequest) -> Response[Reply]:
    if data.thread_id is not None:
        await request.visit.require_scope("checkpointer:write", data.thread_id)
    _refuse_own_keys(data.update_state)
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    checkpoint = await workflow.fork(
        (await threads.checkpoint_info(thread_id, data.checkpoint_id or info.checkpoint_id)).checkpoint_id,
        thread_id=threads.space.stored_id(data.thread_id or new_thread_id()),
        update_state=data.update_state,
        remove_state=data.remove_state,
        checkpoint_storage=threads.storage,
    )
    return _reply_checkpoint(request, checkpoint, status=201)


@post(f"{HERE}/rewind", **editing_options("Rewind to a checkpoint; later checkpoints stay as a branch", 404, 409))
async def rewind(thread_id: FromPath[str], data: JSONBody[RewindBody], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    await threads.checkpoint_info(thread_id, data.checkpoint_id)
    checkpoint = await workflow.rewind(info.thread_id, data.checkpoint_id, checkpoint_storage=threads.storage)
    return _reply_checkpoint(request, checkpoint)


@post(f"{HERE}/pin", **editing_options("Pin a checkpoint, so that pruning keeps it", 404, 409))
async def pin(thread_id: FromPath[str], data: JSONBody[PinBody], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    target = data.checkpoint_id or (await threads.find(thread_id)).checkpoint_id
    checkpoint = await threads.checkpoint_info(thread_id, target)
    change = threads.storage.pin if data.is_pinned else threads.storage.unpin
    await change(checkpoint.checkpoint_id)
    return _reply_checkpoint(request, await threads.checkpoint_info(thread_id, target))


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
        await request.visit.require_scope("checkpointer:write", thread)
    with tempfile.TemporaryDirectory(prefix="perdure-import-") as folder:
        path = Path(folder) / "thread.jsonl"
        with path.open("wb") as file:
            async for piece in request.stream():
                await asyncio.to_thread(file.write, piece)
        try:
            info = await threads.storage.import_thread(path, thread_id=stored_id)
        except NoThreadFile as error:  # without the server's path
            message = f"The body cannot be imported: {error.reason}. Nothing was imported."
            raise unprocessable("body", message, error.code) from error
    return reply(request, {"thread": thread_to_json(info, threads.space)}, status=201)


ROUTES = [
    *(list_threads, get_thread, delete_thread, get_state, put_state, delete_state, patch_state),
    *(list_messages, add_messages, get_message, delete_message),
    *(list_checkpoints, get_checkpoint, diff, fork, rewind, pin, export_thread, import_thread),
]
