"""Turns of a conversation, for `invoke`, `stream` and the socket; and their chunks in AgentFlow's format."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponseUpdate
from perdure.engine.run.request import accepts
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import IncompatibleWorkflow, NoPendingRequests, type_name
from perdure.events import WorkflowEvent
from perdure.names import new_thread_id
from perdure.server.auth.principal import check_id
from perdure.server.problems import HttpProblem
from perdure.server.threads.as_json import (
    MessageBody,
    context_of,
    message_to_client,
    messages_from_client,
    messages_to_client,
    output_messages,
    request_to_json,
    with_ids,
)
from perdure.server.threads.conversation import LONGEST_NAME, update_state
from perdure.server.threads.hub import Follower, StreamedEvent, frame
from perdure.server.threads.runs import ServedRun, failure_of, start
from perdure.server.threads.threads import Threads
from perdure.workflows.workflow import Workflow

Granularity = Literal["full", "partial", "low"]


class InvokeBody(msgspec.Struct, frozen=True):
    """A turn: messages, or the answer to a pending request."""

    messages: list[MessageBody] = []
    resume: Any | UnsetType = UNSET
    """The answer to the one pending request, or answers by request id."""
    initial_state: dict[str, Any] | None = None
    """Merged into the shared state before the turn."""
    config: dict[str, Any] = {}
    """`thread_id`, `run_id`, `thread_name`, `thread_meta`, `on_busy`."""
    recursion_limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Maximum supersteps; the default is the workflow's limit."""
    response_granularity: Granularity = "low"


class InvokedTurn:
    """One turn of a conversation."""

    def __init__(self, threads: Threads, body: InvokeBody) -> None:
        self.threads = threads
        self.body = body
        self.workflow: Workflow = threads.service.workflow(None)
        thread_id = body.config.get("thread_id")
        if thread_id is not None and (isinstance(thread_id, bool) or not isinstance(thread_id, str | int)):
            raise HttpProblem(422, "invalid_id", "config.thread_id must be a text.", field="config.thread_id")
        self.thread_id = new_thread_id() if thread_id is None else str(thread_id)
        self.stored_id = threads.space.stored_id(self.thread_id)
        self.served: ServedRun | None = None
        self._name: str | None = None
        self._message_count = 0
        """Output messages so far."""

    def follow(self) -> AbstractAsyncContextManager[Follower]:
        """Follow the thread of this turn, before it begins, for the events of its run."""
        threads = self.threads
        return threads.service.hub.follow(
            self.stored_id, threads.space, lambda: self.workflow.declared_types, from_end=True
        )

    async def begin(self, *, stream: bool) -> ServedRun:
        """Start the run, and if it is not streamed wait for its end. Raises HttpProblem and the error that rejected the
        run."""
        body = self.body
        is_resumed = body.resume is not UNSET
        if is_resumed == bool(body.messages):
            raise HttpProblem(
                422, "invalid_body", "Send either messages or resume. Nothing was started.", field="messages"
            )
        message = None
        if not is_resumed:
            message = input_from_messages(self.workflow, self._messages())
        on_busy = body.config.get("on_busy", "reject")
        if on_busy not in ("reject", "enqueue"):
            raise HttpProblem(422, "invalid_body", "config.on_busy must be reject or enqueue.", field="config.on_busy")
        run_id = body.config.get("run_id")
        if run_id is not None:
            check_id("config.run_id", run_id if isinstance(run_id, str) else "")
        responses = await self._answers() if is_resumed else None
        self._check_names()
        options: dict[str, Any] = {
            "responses": responses,
            "on_busy": on_busy,
            "stream": stream,
            "until_ended": not stream,
            "run_id": run_id,
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
        return self.served

    def _messages(self) -> list[Message]:
        """The messages of the initial state's context, then the new ones."""
        new, state = messages_from_client(self.body.messages), self.body.initial_state
        if not state:
            return new
        return [*messages_from_client(context_of(state, "initial_state.context"), "initial_state.context"), *new]

    def _check_names(self) -> None:
        name, metadata = self.body.config.get("thread_name"), self.body.config.get("thread_meta")
        if name is not None and (not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME):
            message = f"config.thread_name must be a text of 1 to {LONGEST_NAME} characters."
            raise HttpProblem(422, "invalid_body", message, field="config.thread_name")
        if metadata is not None and not isinstance(metadata, dict):
            raise HttpProblem(422, "invalid_body", "config.thread_meta must be an object.", field="config.thread_meta")

    async def _answers(self) -> dict[str, Any]:
        info, workflow, head = await self.threads.head(self.thread_id)
        self.workflow = workflow
        pending, answer = head.pending_request_info_events, self.body.resume
        if not pending:
            raise NoPendingRequests(info.thread_id)
        if not (isinstance(answer, dict) and answer and all(key in pending for key in answer)):
            if len(pending) > 1:
                names = ", ".join(sorted(pending))
                raise HttpProblem(
                    422,
                    "several_requests",
                    f"Thread {self.thread_id!r} waits for several answers ({names}). Send resume as an object by "
                    "request id. Nothing was written.",
                    field="resume",
                )
            answer = {next(iter(pending)): answer}
        return await self.threads.answers_for(self.thread_id, answer)

    async def invoke(self) -> dict[str, Any]:
        """Run the turn and return the reply of `invoke`. Raises HttpProblem if the run fails or takes too long."""
        served = await self.begin(stream=False)
        if not served.task.done():
            seconds = self.threads.service.config.limits.request_seconds
            raise HttpProblem(
                504,
                "run_takes_longer",
                f"Run {served.run_id} of thread {self.thread_id!r} is still running after {seconds:g} s. Follow it at "
                f"/v1/threads/{self.thread_id}/events.",
                headers={"X-Run-Id": served.run_id},
                thread_id=self.thread_id,
            )
        if served.result is None:
            raise failure_of(self.threads, served)
        self._message_count = 0
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
        messages = output_messages(event)
        if self.served is not None:
            messages = with_ids(messages, f"{self.served.run_id}-out", self._message_count)
        self._message_count += len(messages)
        return messages

    def chunk(self, event: str, **content: Any) -> dict[str, Any]:
        return chunk(self.thread_id, None if self.served is None else self.served.run_id, event, **content)

    def meta(self) -> dict[str, Any]:
        served = self.served
        is_new = served is not None and served.run.is_first
        requests = [] if served is None or served.result is None else served.result.get_request_info_events()
        return {
            "thread_id": self.thread_id,
            "is_new_thread": is_new,
            "thread_name": self._name,
            "run_id": None if served is None else served.run_id,
            "state": None if served is None else served.state,
            "pending_requests": [event.request_id for event in requests],
        }

    async def _name_thread(self, result: WorkflowRunResult) -> None:
        """Store the client's name and metadata, or generate a name for a thread without one."""
        config = self.body.config
        name, metadata = config.get("thread_name"), config.get("thread_meta")
        self._name = result.about.get("name")
        if isinstance(name, str) or isinstance(metadata, dict):
            about = {"name": name, "metadata": metadata}
            await self.workflow.describe(
                self.stored_id,
                {key: value for key, value in about.items() if value is not None},
                on_busy="enqueue",
                checkpoint_storage=self.threads.storage,
            )
            self._name = name if isinstance(name, str) else self._name
        elif self._name is None and self.threads.service.name_threads is not None:
            inputs = messages_from_client(self.body.messages)
            messages = [*inputs, *(message for event in result.outputs for message in output_messages(event))]
            self._name = await self.threads.service.name_threads(self.workflow, self.stored_id, messages)


def input_from_messages(workflow: Workflow, messages: list[Message]) -> Any:
    """The input for the workflow's start executor: all messages, the last one, or its text. Raises HttpProblem."""
    last = messages[-1]
    for candidate in (messages, last, last.text):
        if accepts(workflow.graph, candidate):
            return candidate
    expected = " or ".join(type_name(kind) for kind in workflow.input_types)
    raise HttpProblem(
        422,
        "wrong_input_type",
        f"{workflow.name!r} takes {expected}, not messages. Use POST /v1/threads/{{thread_id}}/runs. "
        "Nothing was started.",
        field="messages",
    )


LOOK_SECONDS = 1.0
"""How often a stream without events checks whether its run has ended."""

Chunk = tuple[int | None, dict[str, Any]]
"""The number of the committed event, if any, and the chunk."""


async def turn_chunks(turn: InvokedTurn, served: ServedRun, follower: Follower) -> AsyncGenerator[list[Chunk]]:
    """The chunks of a turn that has begun, until its run ends; none after a second without an event."""
    yield [(None, turn.chunk("updates", data={"status": "started", "cursor": follower.cursor}))]
    has_ended = False
    while not has_ended:
        is_done = served.task.done()
        events = await follower.next(0 if is_done else LOOK_SECONDS)
        own = [event for event in events if event.event.run_id == served.run_id]
        has_ended = any(map(_is_end, own)) or (is_done and not events)  # its end could not be stored: no event follows
        parts: list[Chunk] = []
        for streamed in own:
            messages = turn.messages_of(streamed.event) if streamed.event.type == "output" else ()
            parts += chunks_of_event(turn.thread_id, streamed, messages)
        if parts or not (events or has_ended):
            yield parts
    parts = []
    if turn.body.response_granularity == "full":
        parts.append((None, turn.chunk("state", state=await turn.threads.state(turn.thread_id))))
    await served.wait_ended()
    done = {**turn.meta(), "status": "done", "cursor": follower.cursor}
    yield [*parts, (None, turn.chunk("updates", data=done))]


def _is_end(streamed: StreamedEvent) -> bool:
    state = streamed.event.state
    return (
        streamed.event.type == "status" and state is not None and not state.value.startswith(("IN_PROGRESS", "STARTED"))
    )


CountBefore = Callable[[WorkflowEvent], Awaitable[int]]
"""Counts the output messages of an event's run before it."""


async def log_chunks(
    thread_id: str, batches: AsyncGenerator[list[StreamedEvent]], count_before: CountBefore
) -> AsyncGenerator[list[Chunk]]:
    """The chunks of a thread's events, for a client whose streamed turn broke off."""
    counts: dict[str | None, int] = {}  # output messages so far, by run
    async with aclosing(batches):
        async for events in batches:
            parts: list[Chunk] = []
            for streamed in events:
                event = streamed.event
                messages = output_messages(event) if event.type == "output" else []
                if event.run_id not in counts and not all(message.message_id for message in messages):
                    counts[event.run_id] = await count_before(event)
                if event.run_id in counts:  # the ids that they have in the stream of their turn
                    messages = with_ids(messages, f"{event.run_id}-out", counts[event.run_id])
                    counts[event.run_id] += len(messages)
                parts += chunks_of_event(thread_id, streamed, messages)
            yield parts


def to_frames(chunks: Iterable[Chunk]) -> bytes:
    return b"".join([frame(body["event"], body, seq) for seq, body in chunks])


def chunks_of_event(thread_id: str, streamed: StreamedEvent, messages: Iterable[Message]) -> list[Chunk]:
    """The chunks of one event. `messages`: those of an output."""
    event, seq = streamed.event, streamed.event.seq
    make = partial(chunk, thread_id, event.run_id)
    if event.type == "data" and isinstance(event.data, AgentResponseUpdate):
        update = event.data
        message = Message(update.role or "assistant", update.contents, update.author_name, update.message_id)
        return [(None, make("message", message={**message_to_client(message), "delta": True}))]
    if event.type == "output":
        return [(seq, make("message", message=message)) for message in messages_to_client(messages)]
    if event.type == "failed":
        return [(seq, make("error", data=streamed.to_json().get("details")))]
    if event.type == "request_info":
        data = {"status": "interrupted", "request": request_to_json(event, streamed.space)}
        return [(seq, make("updates", data=data))]
    fields = {key: value for key, value in streamed.to_json().items() if key not in _OF_THE_CHUNK}
    return [(seq, make("updates", data=fields))]


_OF_THE_CHUNK = frozenset({"thread_id", "run_id", "timestamp", "seq"})
"""Fields of an event that its chunk has."""


def chunk(
    thread_id: str,
    run_id: str | None,
    event: str,
    *,
    message: dict[str, Any] | None = None,
    state: dict[str, Any] | None = None,
    data: Any = None,
) -> dict[str, Any]:
    return {
        "event": event,
        "message": message,
        "state": state,
        "data": data,
        "thread_id": thread_id,
        "run_id": run_id,
        "metadata": {},
        "timestamp": time.time(),
    }
