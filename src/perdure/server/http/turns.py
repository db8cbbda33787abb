"""Turns of a conversation: AgentFlow's invoke, stream and socket, and its stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, WebSocket, post, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import JSONBody
from litestar.response import Stream
from msgspec import UNSET, Meta, UnsetType

from perdure.agents.conversation.message import Message
from perdure.engine.run.request import accepts
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import IncompatibleWorkflow, NoPendingRequests, PerdureError, type_name
from perdure.events import WorkflowEvent
from perdure.log import get_logger
from perdure.names import new_thread_id
from perdure.server.auth.principal import check_id
from perdure.server.http.middleware import BEARER, STREAM, OwnRequest, Visit, visit_of
from perdure.server.http.responses import Reply, agentflow_options, reply
from perdure.server.problems import HttpProblem, problem_of, unprocessable
from perdure.server.threads.as_json import (
    MessageBody,
    context_of,
    messages_from_client,
    messages_to_client,
    output_messages,
    with_ids,
)
from perdure.server.threads.conversation import LONGEST_NAME, update_state
from perdure.server.threads.hub import (
    Chunk,
    Follower,
    StreamedEvent,
    chunk,
    chunks_of_event,
    stream_frames,
    to_frames,
)
from perdure.server.threads.runs import ServedRun, failure_of, problem_of_run, start
from perdure.server.threads.threads import Threads
from perdure.workflows.workflow import Workflow

logger = get_logger("server")

LOOK_SECONDS = 1.0
"""How often a stream without events checks whether its run has ended."""


class TurnConfig(msgspec.Struct, frozen=True):
    """The thread and the run of a turn."""

    thread_id: str | int | None = None
    """A new one if omitted."""
    run_id: str | None = None
    on_busy: Literal["reject", "enqueue"] = "reject"
    thread_name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)] | None = None
    thread_meta: dict[str, Any] | None = None


class InvokeBody(msgspec.Struct, frozen=True):
    """A turn: messages, or the answer to a pending request."""

    messages: list[MessageBody] = []
    resume: Any | UnsetType = UNSET
    """The answer to the one pending request, or answers by request id."""
    initial_state: dict[str, Any] | None = None
    """Merged into the shared state before the turn."""
    config: TurnConfig = TurnConfig()
    recursion_limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Maximum supersteps; the default is the workflow's limit."""
    response_granularity: Literal["full", "partial", "low"] = "low"


class InvokedTurn:
    def __init__(self, threads: Threads, body: InvokeBody) -> None:
        self.threads = threads
        self.body = body
        self.workflow: Workflow = threads.service.default_workflow
        chosen = body.config.thread_id
        self.thread_id = new_thread_id() if chosen is None else str(chosen)
        self.stored_id = threads.space.stored_id(self.thread_id)
        self.served: ServedRun
        """The run, once it has begun."""
        self._name: str | None = None
        self._message_count = 0
        """Output messages so far."""

    def follow(self) -> AbstractAsyncContextManager[Follower]:
        """Follow the thread of this turn, before it begins, for the events of its run."""
        threads = self.threads
        return threads.service.hub.follow(
            self.stored_id, threads.space, lambda: self.workflow.declared_types, from_end=True
        )

    async def begin(self, *, stream: bool) -> None:
        """Start the run, and if it is not streamed wait for its end. Raises HttpProblem and the error that rejected the
        run."""
        body, config = self.body, self.body.config
        if (body.resume is UNSET) is not bool(body.messages):
            raise unprocessable("messages", "Send either messages or resume. Nothing was started.")
        message = None if body.resume is not UNSET else input_from_messages(self.workflow, self._messages())
        if config.run_id is not None:
            check_id("config.run_id", config.run_id)
        options: dict[str, Any] = {
            "responses": None if body.resume is UNSET else await self._answers(),
            "on_busy": config.on_busy,
            "stream": stream,
            "until_ended": not stream,
            "run_id": config.run_id,
            "max_iterations": body.recursion_limit,
            "afterwards": self._name_thread,
        }
        if body.initial_state:
            options["change_state"] = partial(update_state, changes=body.initial_state)
        try:
            self.served = await start(self.threads, self.workflow, self.stored_id, message, **options)
        except IncompatibleWorkflow:
            # Rare, so checked only after the failure: the thread belongs to another served workflow.
            _, other = await self.threads.workflow(self.thread_id)
            if other is self.workflow:
                raise
            self.workflow = other
            message = input_from_messages(other, self._messages())
            self.served = await start(self.threads, other, self.stored_id, message, **options)

    def _messages(self) -> list[Message]:
        """The messages of the initial state's context, then the new ones."""
        new, state = messages_from_client(self.body.messages), self.body.initial_state
        if not state:
            return new
        return [*messages_from_client(context_of(state, "initial_state.context"), "initial_state.context"), *new]

    async def _answers(self) -> dict[str, Any]:
        info, workflow, head = await self.threads.head(self.thread_id)
        self.workflow = workflow
        pending, answer = head.pending_request_info_events, self.body.resume
        if not pending:
            raise NoPendingRequests(info.thread_id)
        if not (isinstance(answer, dict) and answer and all(key in pending for key in answer)):
            if len(pending) > 1:
                waiting = f"Thread {self.thread_id!r} waits for several answers ({', '.join(sorted(pending))})."
                sentence = f"{waiting} Send resume as an object by request id. Nothing was written."
                raise unprocessable("resume", sentence, "several_requests")
            answer = {next(iter(pending)): answer}
        return await self.threads.answers_for(self.thread_id, answer)

    async def invoke(self) -> dict[str, Any]:
        """Run the turn and return the reply of `invoke`. Raises HttpProblem if the run fails or takes too long."""
        await self.begin(stream=False)
        served = self.served
        if not served.task.done():
            seconds = self.threads.service.config.limits.request_seconds
            sentence = f"is still running after {seconds:g} s. Follow it at /v1/threads/{self.thread_id}/events."
            raise problem_of_run(504, "run_takes_longer", served, self.thread_id, sentence)
        if served.result is None:
            raise failure_of(self.threads, served)
        messages = [
            message for event in served.result.outputs if event.type == "output" for message in self.messages_of(event)
        ]
        size = self.body.response_granularity
        state = None if size == "low" else await self.threads.state(self.thread_id)
        return {
            "messages": messages_to_client(messages),
            "state": state if size == "full" else None,
            "context": state and state["context"],
            "summary": None,
            "meta": self.meta(),
        }

    def messages_of(self, event: WorkflowEvent) -> list[Message]:
        """The messages of an output, with the ids that they have in the thread."""
        messages = with_ids(output_messages(event), f"{self.served.run_id}-out", self._message_count)
        self._message_count += len(messages)
        return messages

    def chunk(self, event: str, **content: Any) -> dict[str, Any]:
        return chunk(self.thread_id, self.served.run_id, event, **content)

    async def chunks(self, follower: Follower) -> AsyncGenerator[list[Chunk]]:
        """The chunks of a turn that has begun, until its run ends; none after a second without an event."""
        yield [(None, self.chunk("updates", data={"status": "started", "cursor": follower.cursor}))]
        served, has_ended = self.served, False
        while not has_ended:
            is_done = served.task.done()
            events = await follower.next(0 if is_done else LOOK_SECONDS)
            own = [event for event in events if event.event.run_id == served.run_id]
            # A run whose end could not be stored is done, and no event follows.
            has_ended = any(map(_is_end, own)) or (is_done and not events)
            parts: list[Chunk] = []
            for streamed in own:
                messages = self.messages_of(streamed.event) if streamed.event.type == "output" else ()
                parts += chunks_of_event(self.thread_id, streamed, messages)
            if parts or not (events or has_ended):
                yield parts
        parts = []
        if self.body.response_granularity == "full":
            parts.append((None, self.chunk("state", state=await self.threads.state(self.thread_id))))
        await served.wait_ended()
        done = {**self.meta(), "status": "done", "cursor": follower.cursor}
        yield [*parts, (None, self.chunk("updates", data=done))]

    def meta(self) -> dict[str, Any]:
        served = self.served
        requests = [] if served.result is None else served.result.get_request_info_events()
        return {
            "thread_id": self.thread_id,
            "is_new_thread": served.run.is_first,
            "thread_name": self._name,
            "run_id": served.run_id,
            "state": served.state,
            "pending_requests": [event.request_id for event in requests],
        }

    async def _name_thread(self, result: WorkflowRunResult) -> None:
        """Store the client's name and metadata, or generate a name for a thread without one."""
        config = self.body.config
        fields = {"name": config.thread_name, "metadata": config.thread_meta}
        about = {key: value for key, value in fields.items() if value is not None}
        self._name = config.thread_name or result.about.get("name")
        if about:
            await self.workflow.describe(
                self.stored_id, about, on_busy="enqueue", checkpoint_storage=self.threads.storage
            )
        elif self._name is None and self.threads.service.name_threads is not None:
            inputs = messages_from_client(self.body.messages)
            messages = [*inputs, *(message for event in result.outputs for message in output_messages(event))]
            self._name = await self.threads.service.name_threads(self.workflow, self.stored_id, messages)


def _is_end(streamed: StreamedEvent) -> bool:
    event, under_way = streamed.event, ("IN_PROGRESS", "STARTED")
    return event.type == "status" and event.state is not None and not event.state.value.startswith(under_way)


def input_from_messages(workflow: Workflow, messages: list[Message]) -> Any:
    """The input for the workflow's start executor: all messages, the last one, or its text. Raises HttpProblem."""
    last = messages[-1]
    for candidate in (messages, last, last.text):
        if accepts(workflow.graph, candidate):
            return candidate
    expected = " or ".join(type_name(kind) for kind in workflow.input_types)
    other = "Use POST /v1/threads/{thread_id}/runs. Nothing was started."
    sentence = f"{workflow.name!r} takes {expected}, not messages. {other}"
    raise unprocessable("messages", sentence, "wrong_input_type")


# ---------------------------------------------------------------- routes


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
        stack.enter_context(service.runs.stream_slot())
        follower = await stack.enter_async_context(turn.follow())
        await turn.begin(stream=True)
        frames = stream_frames(turn.chunks(follower), to_frames, follower, service.stopping, stack.pop_all())
        return Stream(frames, **STREAM)


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
        with visit.service.runs.stream_slot():
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
            await turn.begin(stream=True)
            chunks = await stack.enter_async_context(aclosing(turn.chunks(follower)))
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


ROUTES = [invoke, stream, stop, graph_socket]
