"""Answers of a server, as frozen records. Fields that a newer server adds are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

AT_REST = frozenset({"IDLE", "IDLE_WITH_PENDING_REQUESTS", "FAILED", "CANCELLED"})
"""States in which a run has ended."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The base of all answers."""


class Detail(Answer, frozen=True, kw_only=True):
    """One problem of a request."""

    message: str = ""
    field: str | None = None


class Ready(Answer, frozen=True, kw_only=True):
    is_ready: bool
    checks: dict[str, str] = {}
    """`ok` or `unavailable` for each thing that the server depends on."""


class Workflow(Answer, frozen=True, kw_only=True):
    """A workflow that the server runs. Only `workflow(name)` returns the schemas and the drawing."""

    name: str
    workflow_name: str = ""
    description: str | None = None
    is_default: bool = False
    executors: list[str] = []
    start: str | None = None
    signature: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    mermaid: str | None = None


class Graph(Answer, frozen=True, kw_only=True):
    """The default workflow as nodes and edges."""

    info: dict[str, Any] = {}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []


class Tool(Answer, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    source: str = "local"
    parameters: dict[str, Any] = {}


class NodeTools(Answer, frozen=True, kw_only=True):
    """The tools of one agent."""

    node: str
    tools: list[Tool] = []


# ---------------------------------------------------------------- conversations


class Message(Answer, frozen=True, kw_only=True):
    role: str
    content: list[dict[str, Any]] = []
    """Blocks: text, image, tool_call, tool_result, ..."""
    message_id: str | int | None = None
    delta: bool = False
    """A part of a message that is still being streamed; never stored."""
    tools_calls: list[dict[str, Any]] | None = None
    reasoning: str | None = None
    metadata: dict[str, Any] | None = None
    usages: dict[str, Any] | None = None
    author_name: str | None = None

    @property
    def text(self) -> str:
        return "".join(str(block.get("text") or "") for block in self.content if block.get("type") == "text")


class TurnMeta(Answer, frozen=True, kw_only=True):
    """Thread, run and final state of a turn."""

    thread_id: str
    is_new_thread: bool | None = None
    thread_name: str | None = None
    run_id: str | None = None
    state: str | None = None
    pending_requests: list[str] = []
    """Ids of the requests that the thread waits for."""


class InvokeResult(Answer, frozen=True, kw_only=True):
    """The result of a turn."""

    messages: list[Message] = []
    """The messages of the answer."""
    meta: TurnMeta
    state: dict[str, Any] | None = None
    """With `response_granularity="full"`."""
    context: list[Message] | None = None
    """The whole conversation, with `full` and `partial`."""
    summary: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(message.text for message in self.messages if message.text)

    @property
    def thread_id(self) -> str:
        return self.meta.thread_id


class Chunk(Answer, frozen=True, kw_only=True):
    """A piece of a turn as it happens."""

    event: str
    """`message`, `updates`, `state` or `error`."""
    message: Message | None = None
    state: dict[str, Any] | None = None
    data: Any = None
    thread_id: str | None = None
    run_id: str | None = None
    """After a server was killed, the run that resumed the thread."""
    metadata: dict[str, Any] | None = None
    timestamp: float | None = None
    seq: int | None = None
    """Its place in the thread's log; such a chunk arrives exactly once. None for live chunks (deltas, notices), which
    may arrive again after a reconnect."""

    @property
    def status(self) -> str | None:
        """`started`, `reconnected`, `interrupted` (a request was made) or `done`, where it is such a notice."""
        status = self.data.get("status") if isinstance(self.data, dict) else None
        return status if isinstance(status, str) else None

    @property
    def text(self) -> str:
        return "" if self.message is None else self.message.text


# ---------------------------------------------------------------- threads and runs


class Thread(Answer, frozen=True, kw_only=True):
    thread_id: str
    thread_name: str | None = None
    user_id: str | None = None
    metadata: dict[str, Any] | None = None
    updated_at: datetime | None = None
    run_id: str | None = None
    """The run that moves it now."""
    workflow_name: str = ""
    status: str = ""
    checkpoint_id: str | None = None
    """Its head."""
    number: int = 0
    due_at: datetime | None = None
    """When it resumes by itself."""


class Checkpoint(Answer, frozen=True, kw_only=True):
    """A point of a thread's history. Accepted wherever the id of one is."""

    checkpoint_id: str
    thread_id: str = ""
    workflow_name: str = ""
    number: int = 0
    iteration_count: int = 0
    previous_checkpoint_id: str | None = None
    timestamp: datetime | None = None
    run_id: str | None = None
    status: str = ""
    is_pinned: bool = False


class Request(Answer, frozen=True, kw_only=True):
    """A request that waits for an answer."""

    request_id: str
    executor_id: str | None = None
    data: Any = None
    """The question."""
    response_type: Any = None
    response_schema: dict[str, Any] | bool | None = None
    """The JSON Schema of an answer."""
    deadline: datetime | None = None
    assignee: str | None = None
    thread_id: str | None = None
    workflow_name: str | None = None
    asked_at: datetime | None = None


class CheckpointState(Checkpoint, frozen=True, kw_only=True):
    """A checkpoint with the state of its thread."""

    state: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    """Deliveries that were due."""
    pending_requests: list[Request] = []
    outputs: list[Any] = []
    executors: dict[str, Any] = {}
    usage: dict[str, Any] = {}


class Change(Answer, frozen=True, kw_only=True):
    """One path that differs."""

    path: str
    kind: str = "changed"
    """`added`, `removed` or `changed`."""
    old: Any = None
    new: Any = None


class Diff(Answer, frozen=True, kw_only=True):
    """The differences from one checkpoint to another."""

    before: str
    after: str
    changes: list[Change] = []


class ErrorDetails(Answer, frozen=True, kw_only=True):
    """An error of a workflow's own code. In production only its type is shown."""

    error_type: str = ""
    message: str = ""
    executor_id: str | None = None


class Run(Answer, frozen=True, kw_only=True):
    run_id: str
    thread_id: str = ""
    workflow_name: str = ""
    state: str | None = None
    outputs: list[Any] = []
    requests: list[Request] = []
    checkpoint_id: str | None = None
    usage: dict[str, Any] = {}
    error: ErrorDetails | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in AT_REST


class Cancelled(Answer, frozen=True, kw_only=True):
    run_id: str
    was_running: bool = False


class Stopped(Answer, frozen=True, kw_only=True):
    ok: bool = False
    running: bool = False
    """Whether a run was active."""
    reason: str | None = None


class Event(Answer, frozen=True, kw_only=True):
    """One thing that happened in a thread. Which fields are set depends on `type`."""

    type: str
    data: Any = None
    state: str | None = None
    details: ErrorDetails | None = None
    executor_id: str | None = None
    iteration: int | None = None
    request_id: str | None = None
    source_executor_id: str | None = None
    request_type: Any = None
    response_type: Any = None
    terms: dict[str, Any] | None = None
    checkpoint: Checkpoint | None = None
    last_seq: int | None = None
    executors: list[str] | None = None
    has_pending_messages: bool | None = None
    has_pending_requests: bool | None = None
    child_id: int | None = None
    origin: str | None = None
    replayed: bool = False
    seq: int | None = None
    """Its place in the log; None for a live event, whose superstep is not committed yet."""
    timestamp: datetime | None = None
    thread_id: str | None = None
    run_id: str | None = None
