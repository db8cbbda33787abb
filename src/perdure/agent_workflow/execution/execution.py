"""One call that drives an execution, started, resumed or answered, until it rests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from perdure.agent_workflow import events
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.node import CONDUCTOR
from perdure.agent_workflow.execution.views import EventViews, metadata_of
from perdure.agent_workflow.state import DEFINITION, ExecutionResult, ExecutionState, NodeOutcome
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.engine.run.run import WorkflowRunResult
from perdure.errors import (
    AlreadyAnswered,
    ExecutionNotFound,
    IncompatibleWorkflow,
    InputMismatch,
    SubWorkflowFailed,
    ThreadConflict,
    WorkflowCheckpointException,
)
from perdure.events import WorkflowEvent, WorkflowRunState

if TYPE_CHECKING:
    from perdure.agent_workflow.instance import AgentWorkflowInstance


ResultState: TypeAlias = Literal["completed", "failed", "waiting", "running", "cancelled"]


@dataclass(frozen=True)
class WorkflowResult:
    """The result of an execution, or its partial result."""

    execution_id: str
    state: ResultState
    """`completed`: the execution has ended, with or without success. `failed`: it stopped at a failure, and `resume`
    retries from there. `waiting`: for an approval. `running`: in another call."""
    final_answer: str | None = None
    """The answers of the nodes at which the execution ended, joined."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """By `node.key`."""
    success: bool = False
    """Whether it is completed and no node failed without a fallback."""
    duration: float = 0.0
    """Seconds since it began."""
    error: str | None = None
    exception: BaseException | None = None
    """The exception of a node in this call."""
    pending: tuple[WorkflowApprovalRequestedEvent, ...] = ()
    """Pending approvals."""
    usage: dict[str, int] = field(default_factory=dict)
    """Usage of its agents, such as tokens, by name."""
    checkpoint_id: str | None = None


Emit = Callable[[Any], None]


class StoredExecution:
    """The stored state of an execution."""

    def __init__(self, checkpoint: WorkflowCheckpoint) -> None:
        self.checkpoint = checkpoint
        memory = checkpoint.executors.get(CONDUCTOR)
        private: Mapping[str, Any] = {} if memory is None or memory.private is None else memory.private
        self.state: ExecutionState | None = private.get("state")
        due = [delivery.data for delivery in checkpoint.deliveries if delivery.target_id == CONDUCTOR]
        self.outcomes = [data for data in due if isinstance(data, NodeOutcome)]
        """Outcomes of nodes that the conductor has not processed yet."""
        inputs = [data for data in due if isinstance(data, str | dict)]
        self.input: Any = inputs[-1] if inputs else self.state and self.state.input
        self.usage: dict[str, int] = dict(checkpoint.metadata.get("usage") or {})

    def check(self, execution_id: str, workflow_name: str, input: Any) -> None:
        """Raises InputMismatch."""
        if not _is_equal(input, self.input):
            raise InputMismatch(execution_id, workflow_name, self.input, input)


def _is_equal(value: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, keys have no order, and NaN equals itself."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_is_equal(item, other[key]) for key, item in value.items())
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(_is_equal, value, other))
    return type(value) is type(other) and bool(value == other or (value != value and other != other))


class Execution:
    """An execution that this process drives. Answers that arrive meanwhile are used when it rests."""

    def __init__(self, instance: AgentWorkflowInstance, execution_id: str, emit: Emit) -> None:
        self._instance = instance
        self._emit_to_stream = emit
        self._workflow = instance.workflow
        self.execution_id = execution_id
        self.asked: dict[str, WorkflowEvent] = {}
        """Unanswered requests of this call, by public id."""
        self.answered: set[str] = set()
        self._answers: dict[str, tuple[Any, asyncio.Future[bool]]] = {}
        """Answers that arrived during the run, by public id, each with a future that reports whether it was used."""
        self.loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._callbacks: set[asyncio.Task[Any]] = set()
        self._views: EventViews  # made when the stored state is known

    async def drive(
        self, input: Any, responses: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> WorkflowResult:
        """`input` None resumes the execution. Raises InputMismatch, or ThreadNotFound."""
        stored = await self._instance.find(self.execution_id)
        if stored is None and input is None:
            raise ExecutionNotFound(self.execution_id, self._workflow.name, is_kept=self._instance.is_durable)
        # The engine rejects the thread of another workflow.
        own = stored if stored is not None and stored.checkpoint.workflow_name == self._workflow.name else None
        if own is not None and input is not None:
            own.check(self.execution_id, self._workflow.name, input)
        state = None if own is None else own.state
        self._views = EventViews(self._workflow.name, self.execution_id, self._instance.planner.graph, state)
        self._views.add_outcomes(() if own is None else own.outcomes)
        if own is not None and state is not None and state.result is not None and responses is None:
            return _completed_result(self.execution_id, state.result, own.usage, own.checkpoint.checkpoint_id)
        call: dict[str, Any] = {"message": input} if stored is None else {}
        if responses is not None:
            call = {"responses": responses}
        while True:
            result = await self._run({**options, **call})
            # Another caller may have started the execution at the same time.
            if stored is None and (started := await self._instance.find(self.execution_id)) is not None:
                started.check(self.execution_id, self._workflow.name, input)
            if result.state != "waiting" or not await self._is_answered(result):
                while self._callbacks:  # until every async subscriber has returned
                    await asyncio.wait(list(self._callbacks))
                return result
            call = {"responses": self._take_answers(result)}

    def _take_answers(self, result: WorkflowResult) -> dict[str, Any]:
        responses = {}
        for event in result.pending:
            if event.request_id in self._answers:
                answer, waiter = self._answers.pop(event.request_id)
                responses[str(self.asked.pop(event.request_id).request_id)] = answer
                self.answered.add(event.request_id)
                if not waiter.done():
                    waiter.set_result(True)
        return responses

    async def _is_answered(self, result: WorkflowResult) -> bool:
        """Whether a subscriber has answered one of the pending requests."""
        while True:
            if any(event.request_id in self._answers for event in result.pending):
                return True
            if not self._callbacks:
                return False
            self._answered.clear()
            waiter = asyncio.ensure_future(self._answered.wait())
            try:
                await asyncio.wait({waiter, *self._callbacks}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()

    async def answer(self, request_id: str, answer: Any) -> bool:
        """Whether the run uses the answer: it does not if it stops before it rests. Raises AlreadyAnswered."""
        if request_id in self._answers or request_id in self.answered:
            raise AlreadyAnswered(request_id, self.execution_id)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = (answer, waiter)
        self._answered.set()
        return await waiter

    def end(self) -> None:
        """Cancel callbacks, and report unused answers to their callers."""
        for task in self._callbacks:
            task.cancel()
        for _, waiter in self._answers.values():
            if not waiter.done():
                waiter.set_result(False)

    async def _run(self, options: dict[str, Any]) -> WorkflowResult:
        views = self._views
        failed: WorkflowEvent | None = None
        ended: list[events.AgentWorkflowEvent] = []
        """Emitted once the result is saved."""
        chosen = {"on_busy": "enqueue", **options, "thread_id": self.execution_id}
        stream = self._workflow.new_run(chosen.pop("message", None), **chosen).stream()
        try:
            async for event in stream:
                failed = event if event.type == "failed" else failed
                for view in views.convert(event):
                    if isinstance(view, events.WorkflowApprovalRequestedEvent):
                        self.asked[view.request_id] = event
                    if isinstance(view, events.WorkflowCompletedEvent) and view.metadata.depth == 0:
                        ended += [] if event.replayed else [view]
                    elif not event.replayed or event.type == "request_info":
                        self._emit(view)
            result = await stream.get_final_response()
            for view in ended:
                self._emit(view)
        except Exception as error:
            if isinstance(error, IncompatibleWorkflow):
                error.add_note(await self._describe_start())
            is_trouble = isinstance(error, WorkflowCheckpointException | ThreadConflict)
            if is_trouble or failed is None or failed.details is None or failed.details.executor_id is None:
                source = "storage" if type(error).__module__ == "perdure.errors" else "execution"
                self._emit(views.diagnostic("error", source, f"{type(error).__name__}: {error}"))
                raise
            return await self._stop_at_failure(failed.details.executor_id, error)
        return await self._rest(result)

    async def _describe_start(self) -> str:
        """The version of the definition that the execution was started with."""
        stored = await self._instance.find(self.execution_id)
        start = {} if stored is None else stored.checkpoint.state.get(DEFINITION, {})
        how = f"AgentWorkflow.load({self._workflow.name!r}, storage, execution_id={self.execution_id!r}) loads it"
        number = f", number {start['number']} in its store: {how}" if start.get("number") else ""
        version = start.get("version")
        return f"Execution {self.execution_id!r} was started with version {version} of the definition{number}."

    def _emit(self, event: Any) -> None:
        """Into the stream and to subscribers. A failing subscriber is logged and does not stop the execution."""
        self._emit_to_stream(event)
        for kind, callback in list(self._instance.subscribers.values()):
            try:
                result = callback(event) if isinstance(event, kind) else None
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # see above
                _log_failure(error)
                continue
            if isinstance(result, Awaitable):
                task = asyncio.ensure_future(result)
                self._callbacks.add(task)
                task.add_done_callback(self._callback_done)

    def _callback_done(self, task: asyncio.Task[Any]) -> None:
        self._callbacks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log_failure(error)

    async def _rest(self, run: WorkflowRunResult) -> WorkflowResult:
        results = [output for output in run.get_outputs() if isinstance(output, ExecutionResult)]
        pending = tuple(self._views.request(event) for event in run.get_request_info_events())
        if results and not pending:
            return _completed_result(self.execution_id, results[-1], run.usage, run.checkpoint_id)
        state: ResultState = "cancelled" if run.get_final_state() is WorkflowRunState.CANCELLED else "waiting"
        stored = await self._instance.find(self.execution_id)
        reached = None if stored is None else stored.state
        before = partial_result(self.execution_id, state, reached, self._instance.now())
        return replace(before, pending=pending, usage=run.usage, checkpoint_id=run.checkpoint_id)

    async def _stop_at_failure(self, executor_id: str, error: Exception) -> WorkflowResult:
        """The result at a failure of a node whose mode is `stop`, with everything recorded or committed until then."""
        stored, views = await self._instance.find(self.execution_id), self._views
        node = next(iter(metadata_of(executor_id).agent_chain), None)
        first: BaseException = error
        while isinstance(first, SubWorkflowFailed) and first.__cause__ is not None:
            first = first.__cause__  # of the node, through any number of nested workflows
        text = f"{node}: {type(first).__name__}: {first}" if node else str(first)
        if node is not None and (event := views.report_failure(node, text)) is not None:
            self._emit(event)
        state = None if stored is None else stored.state
        if state is not None:  # with the outcomes since the last commit
            state = msgspec.structs.replace(state, nodes={**state.nodes, **views.outcomes})
        result = partial_result(self.execution_id, "failed", state, self._instance.now())
        counts = self._instance.planner.graph.count({} if state is None else state.nodes)
        ended = events.WorkflowCompletedEvent(
            **views.ids, duration=result.duration, success=False, error=text, **counts
        )
        self._emit(ended)
        if stored is not None:
            result = replace(result, usage=stored.usage, checkpoint_id=stored.checkpoint.checkpoint_id)
        return replace(result, error=text, exception=error)


def _log_failure(error: BaseException) -> None:
    events.logger.warning("a subscriber failed: %s: %s", type(error).__name__, error)


def _completed_result(
    execution_id: str, done: ExecutionResult, usage: dict[str, int], checkpoint_id: str | None
) -> WorkflowResult:
    own = {name: getattr(done, name) for name in ("final_answer", "outputs", "success", "duration", "error")}
    return WorkflowResult(execution_id, "completed", **own, usage=usage, checkpoint_id=checkpoint_id)


def partial_result(
    execution_id: str, result_state: ResultState, state: ExecutionState | None, now: datetime
) -> WorkflowResult:
    if state is None:
        return WorkflowResult(execution_id, result_state)
    duration = (now - state.began).total_seconds()
    return WorkflowResult(execution_id, result_state, outputs=state.outputs(), duration=duration, error=state.stopped)
