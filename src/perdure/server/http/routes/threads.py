"""Routes of threads: list, state, messages."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from perdure.server.http.middleware import OwnRequest
from perdure.server.http.responses import Reply, agentflow_options, reply, route_options
from perdure.server.problems import HttpProblem
from perdure.server.threads.conversation import (
    conversation,
    no_conversation,
    session_messages,
    speaker,
    with_messages,
    with_state,
)
from perdure.server.threads.messages import (
    MessageBody,
    context_of,
    find_message,
    merge_messages,
    message_to_client,
    messages_from_client,
    with_ids,
)
from perdure.server.threads.threads import Threads

read_options = partial(agentflow_options, "checkpointer:read", "Threads")
write_options = partial(agentflow_options, "checkpointer:write", "Threads")
delete_options = partial(agentflow_options, "checkpointer:delete", "Threads")

Search = Annotated[str | None, QueryParameter(name="search", max_length=255)]
Offset = Annotated[int, QueryParameter(name="offset", ge=0, le=1_000_000)]
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


@get("/v1/threads/{thread_id:str}", **read_options("Get a thread", 404))
async def get_thread(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    return reply(request, {"thread": await request.threads.get(thread_id)})


@delete("/v1/threads/{thread_id:str}", **delete_options("Delete a thread and its history", 404))
async def delete_thread(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    await request.threads.delete(thread_id)
    return reply(request, _success("The thread was deleted."))


def _success(message: str, data: Any = None) -> dict[str, Any]:
    return {"success": True, "message": message, "data": data}


# ---------------------------------------------------------------- state


@get("/v1/threads/{thread_id:str}/state", **read_options("Get context, execution_meta and the shared state", 404))
async def get_state(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    return reply(request, {"state": await request.threads.state_view(thread_id)})


@put("/v1/threads/{thread_id:str}/state", **write_options("Merge into the state", 404))
async def put_state(thread_id: FromPath[str], data: JSONBody[StateBody], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    context = context_of(data.state, "state.context")
    agent_id = speaker(workflow)

    def change(head: Any) -> Any:
        after = with_state(head, data.state)
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


@delete(
    "/v1/threads/{thread_id:str}/state",
    **delete_options("Clear the state and the agent's memory; the history stays", 404),
)
async def delete_state(thread_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    info, workflow = await threads.workflow(thread_id)
    await workflow.clear(info.thread_id, checkpoint_storage=threads.storage)
    return reply(request, _success("The state was cleared."))


@patch(
    "/v1/threads/{thread_id:str}/state",
    **route_options(
        "checkpointer:write",
        "Time travel",
        "Change keys of the shared state, as the thread's next checkpoint",
        404,
        409,
    ),
)
async def patch_state(thread_id: FromPath[str], data: JSONBody[PatchBody], request: OwnRequest) -> Response[Reply]:
    checkpoint = await request.threads.patch_state(thread_id, data.update_state, data.remove_state)
    return reply(request, {"checkpoint": checkpoint})


# ---------------------------------------------------------------- messages


@get("/v1/threads/{thread_id:str}/messages", **read_options("List messages", 404))
async def list_messages(
    thread_id: FromPath[str], request: OwnRequest, search: Search = None, offset: Offset = 0, limit: Limit = 100
) -> Response[Reply]:
    return reply(request, {"messages": await request.threads.messages_view(thread_id, search, offset, limit)})


@post("/v1/threads/{thread_id:str}/messages", **write_options("Add messages without a turn", 404))
async def add_messages(thread_id: FromPath[str], data: JSONBody[MessagesBody], request: OwnRequest) -> Response[Reply]:
    added = messages_from_client(_with_metadata(message, data.metadata) for message in data.messages)
    if not added:
        raise HttpProblem(422, "invalid_body", "messages is empty. Nothing was written.", field="messages")
    await _change_messages(request.threads, thread_id, lambda messages: merge_messages(messages, added))
    return reply(request, _success("The messages were added.", [message.message_id for message in added]))


def _with_metadata(body: MessageBody, metadata: dict[str, Any] | None) -> MessageBody:
    """Add the common metadata; the message's own keys win."""
    return msgspec.structs.replace(body, metadata={**metadata, **(body.metadata or {})}) if metadata else body


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


@get("/v1/threads/{thread_id:str}/messages/{message_id:str}", **read_options("Get a message", 404))
async def get_message(thread_id: FromPath[str], message_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    _, workflow, head = await threads.head(thread_id)
    _, message = find_message(await conversation(threads.storage, workflow, head), message_id)
    return reply(request, {"message": message_to_client(message, message_id)})


@delete(
    "/v1/threads/{thread_id:str}/messages/{message_id:str}",
    **delete_options("Delete a message from the agent's memory", 404),
)
async def delete_message(thread_id: FromPath[str], message_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    def without(messages: list[Any]) -> list[Any]:
        at, _ = find_message(messages, message_id)
        remaining = with_ids(messages)
        return [*remaining[:at], *remaining[at + 1 :]]

    await _change_messages(request.threads, thread_id, without)
    return reply(request, _success("The message was deleted."))


ROUTES = [
    *(list_threads, get_thread, delete_thread, get_state, put_state, delete_state, patch_state),
    *(list_messages, add_messages, get_message, delete_message),
]
