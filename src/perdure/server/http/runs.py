"""Routes of runs: start, cancel, events, pending requests and answers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream

from perdure.errors import CheckpointNotFound, RunInterrupted
from perdure.events import AT_REST, WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from perdure.server.auth.principal import check_id
from perdure.server.http.middleware import STREAM, OwnRequest
from perdure.server.http.responses import Reply, reply, route_options
from perdure.server.http.threads import HERE, Limit
from perdure.server.problems import HttpProblem
from perdure.server.threads import hub
from perdure.server.threads.as_json import error_to_json, request_to_json, to_json
from perdure.server.threads.conversation import count_output_messages, read_log
from perdure.server.threads.runs import RunBody, ServedRun, failure_of, start_run
from perdure.server.threads.threads import Threads

ENDED = {200: ResponseSpec(Reply, description="The run has ended.", generate_examples=False)}
run_options = partial(route_options, status=202, also=ENDED)

Wait = Annotated[
    float | None,
    QueryParameter(name="wait", ge=0, le=3600, description="Seconds to wait for the result; 202 after that."),
]
After = Annotated[int | None, QueryParameter(name="after", ge=0, le=2**53)]


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    run_id: str | None = None


@post(
    f"{HERE}/runs",
    **run_options(
        "graph:invoke", "Runs", "Start or resume a thread: with an input, with answers, or with neither", 404, 409, 504
    ),
)
async def create_run(
    thread_id: FromPath[str], data: JSONBody[RunBody], request: OwnRequest, wait: Wait = None
) -> Response[Reply]:
    return await start_and_reply(request, thread_id, data, wait)


async def start_and_reply(request: OwnRequest, thread_id: str, body: RunBody, wait: float | None) -> Response[Reply]:
    """200 with the result if the run ended within `wait`; otherwise 202 with its state."""
    threads = request.threads
    served = await start_run(threads, thread_id, body)
    has_ended = bool(wait) and await served.wait_ended(wait)
    if has_ended and isinstance(served.error, RunInterrupted):
        raise failure_of(threads, served)
    return reply(request, {"run": await run_to_json(threads, served)}, status=200 if has_ended else 202)


@get(f"{HERE}/runs/{{run_id:str}}", **route_options("checkpointer:read", "Runs", "Get a run of any instance", 404))
async def get_run(thread_id: FromPath[str], run_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    check_id("run_id", run_id)
    served = threads.service.runs.find(threads.space.stored_id(thread_id), run_id)
    if served is not None and served.state == "IN_PROGRESS" and served.run.has_begun:
        info = await threads.find(thread_id)
        was_ended = info.run_id is None and info.status == "CANCELLED"
        if was_ended or info.run_id not in (None, run_id):  # another instance took over the thread
            served = None
    body = (
        await run_to_json_from_log(threads, thread_id, run_id) if served is None else await run_to_json(threads, served)
    )
    return reply(request, {"run": body})


@post(
    f"{HERE}/runs/{{run_id:str}}/cancel",
    **route_options("graph:stop", "Runs", "Cancel a run of any instance; its thread can be resumed", 404, 409),
)
async def cancel_run(thread_id: FromPath[str], run_id: FromPath[str], request: OwnRequest) -> Response[Reply]:
    threads = request.threads
    check_id("run_id", run_id)
    served = threads.service.runs.find(threads.space.stored_id(thread_id), run_id)
    if served is not None and not served.run.has_begun:
        served.task.cancel()  # queued: nothing is stored yet
        return reply(request, {"run_id": run_id, "was_running": True})
    info, workflow = await threads.workflow(thread_id)
    if served is None and info.run_id != run_id:
        await run_to_json_from_log(threads, thread_id, run_id)  # 404 if it never existed
    was_running = info.run_id == run_id and await workflow.cancel(info.thread_id, checkpoint_storage=threads.storage)
    return reply(request, {"run_id": run_id, "was_running": was_running})


# ---------------------------------------------------------------- as JSON


async def run_to_json(threads: Threads, served: ServedRun) -> dict[str, Any]:
    """A run of this process as JSON. The result of a failed run is read from its log."""
    if served.error is not None and served.run.has_begun:
        return await run_to_json_from_log(threads, threads.space.public_id(served.thread_id), served.run_id)
    space, result = threads.space, served.result
    body = _empty_run(served.run_id, space.public_id(served.thread_id), served.workflow.name, served.state)
    if result is not None:
        body["outputs"] = [to_json(output) for output in result.get_outputs()]
        body["requests"] = [request_to_json(event, space) for event in result.get_request_info_events()]
        body["checkpoint_id"] = result.checkpoint_id
        body["usage"] = to_json(result.usage)
    elif served.error is not None and not isinstance(served.error, RunInterrupted):
        body["error"] = error_to_json(
            WorkflowErrorDetails.from_exception(served.error), hides=threads.service.hides_errors
        )
    return body


def _empty_run(run_id: str, thread_id: str, workflow_name: str, state: str | None) -> dict[str, Any]:
    """A run as JSON without results."""
    body: dict[str, Any] = {"run_id": run_id, "thread_id": thread_id, "workflow_name": workflow_name, "state": state}
    return {**body, "outputs": [], "requests": [], "checkpoint_id": None, "usage": {}, "error": None}


async def run_to_json_from_log(threads: Threads, thread_id: str, run_id: str) -> dict[str, Any]:
    """A run of any process as JSON, read from the log of its thread. Raises HttpProblem if the log has no such run."""
    info, workflow = await threads.find_workflow(thread_id)
    declared = None if workflow is None else workflow.declared_types
    space = threads.space
    body = _empty_run(run_id, thread_id, info.workflow_name, None)
    async for event in read_log(threads.storage, info.thread_id, declared):
        if event.run_id == run_id:
            _add_event(body, event, threads)
    if body["state"] is None:
        raise HttpProblem(404, "run_not_found", f"Thread {thread_id!r} has no run {run_id!r}.", field="run_id")
    try:
        if body["checkpoint_id"] is not None:
            checkpoint = await threads.storage.load(body["checkpoint_id"])
            body["usage"] = to_json(checkpoint.metadata.get("usage", {}))
    except CheckpointNotFound:  # pruned
        pass
    if body["state"] not in AT_REST and info.run_id != run_id:
        body["state"] = "INTERRUPTED"
    if info.status == WorkflowRunState.IDLE_WITH_PENDING_REQUESTS.value and body["state"] == info.status:
        pending = await threads.load_requests(thread_id)
        body["requests"] = [request_to_json(event, space) for event in pending.values()]
    return body


def _add_event(body: dict[str, Any], event: WorkflowEvent, threads: Threads) -> None:
    if event.type == "status" and event.state is not None:
        body["state"] = event.state.value
    elif event.type == "output":
        body["outputs"].append(to_json(event.data))
    elif event.type == "failed" and event.details is not None:
        body["error"] = error_to_json(event.details, hides=threads.service.hides_errors)
    if event.checkpoint is not None:
        body["checkpoint_id"] = event.checkpoint.checkpoint_id


# ---------------------------------------------------------------- events


@get(
    f"{HERE}/events",
    media_type="text/event-stream",
    **route_options(
        "checkpointer:read", "Runs", "Stream events; committed events have an id for reconnecting", 404, 410
    ),
)
async def events(
    thread_id: FromPath[str],
    request: OwnRequest,
    after: After = None,
    live: Annotated[bool, QueryParameter(name="live")] = True,
    chunks: Annotated[bool, QueryParameter(name="chunks", description="As the chunks of /v1/graph/stream.")] = False,
) -> Stream:
    threads = request.threads
    info, workflow = await threads.find_workflow(thread_id)
    last_event_id = _last_event_id(request.headers.get("last-event-id"))
    # A reconnecting browser sends both: `after` in its URL and Last-Event-ID.
    cursor = max((number for number in (after, last_event_id) if number is not None), default=None)
    if cursor is not None and cursor > await threads.storage.last_seq(info.thread_id):
        sentence = f"Thread {thread_id!r} has no event {cursor}: it may have been deleted and recreated."
        raise HttpProblem(410, "cursor_expired", f"{sentence} Read it without a cursor.", field="after")
    declared = None if workflow is None else workflow.declared_types
    service = request.visit.service
    async with AsyncExitStack() as stack:
        stack.enter_context(service.runs.stream_slot())
        follower = await stack.enter_async_context(
            service.hub.follow(info.thread_id, threads.space, lambda: declared, cursor)
        )
        await follower.read_log()  # an expired cursor becomes a 410 response
        count_before = partial(count_output_messages, threads.storage, declared, info.thread_id)
        events = follower.batches(hub.HEARTBEAT_SECONDS, live=live)
        ends = follower, service.stopping, stack.pop_all()
        if chunks:
            parts = hub.log_chunks(thread_id, events, count_before)
            return Stream(hub.stream_frames(parts, hub.to_frames, *ends), **STREAM)
        frames = hub.stream_frames(events, lambda batch: b"".join([event.frame for event in batch]), *ends)
        return Stream(frames, **STREAM)


def _last_event_id(text: str | None) -> int | None:
    """Raises HttpProblem for an invalid event id."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise HttpProblem(422, "invalid_cursor", "Last-Event-ID must be the id of an event.", field="Last-Event-ID")
    return int(text)


# ---------------------------------------------------------------- requests


@get(
    "/v1/requests",
    **route_options("requests:read", "Requests", "List pending requests across threads, the oldest first", 404),
)
async def list_requests(
    request: OwnRequest,
    limit: Limit = 100,
    thread: Annotated[str | None, QueryParameter(name="thread_id", max_length=255)] = None,
) -> Response[Reply]:
    if thread is not None:
        await request.visit.require_scope("requests:read", thread)
    return reply(request, {"requests": await request.threads.requests(thread, limit)})


@post(
    f"{HERE}/requests/{{request_id:str}}/answer",
    **run_options("requests:answer", "Requests", "Answer a request and resume its thread", 404, 409, 504),
)
async def answer(
    thread_id: FromPath[str],
    request_id: FromPath[str],
    data: JSONBody[AnswerBody],
    request: OwnRequest,
    wait: Wait = None,
) -> Response[Reply]:
    body = RunBody(responses={request_id: data.value}, on_busy="enqueue", run_id=data.run_id)
    return await start_and_reply(request, thread_id, body, wait)


ROUTES = [create_run, get_run, cancel_run, events, list_requests, answer]
