"""One call that moves an execution: begun, resumed or answered, until it rests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.agent_workflow import events as told
from perdure.agent_workflow.definition.config import START
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent, log_failure
from perdure.agent_workflow.execution.node import CONDUCTOR
from perdure.agent_workflow.execution.views import Views
from perdure.agent_workflow.state import DEFINITION, ExecutionResult, ExecutionState, NodeOutcome, flat
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.engine.run.result import WorkflowRunResult
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


# ---------------------------------------------------------------- result


State: TypeAlias = Literal["completed", "failed", "waiting", "running", "cancelled"]


@dataclass(frozen=True)
class WorkflowResult:
    """What an execution gave, or has given so far."""

    execution_id: str
    state: State
    """`completed`: it has come to its end, well or not. `failed`: it stopped at a failure, and `resume` tries again
    from there. `waiting`: for somebody's approval. `running`: in another call."""
    final_answer: str | None = None
    """Of the nodes at which it ended, one after the other where there are several."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """By `node.key`."""
    success: bool = False
    """Whether it is completed and no node failed without a fallback."""
    duration: float = 0.0
    """Seconds since it began."""
    error: str | None = None
    exception: BaseException | None = None
    """What a node raised in this call."""
    pending: tuple[WorkflowApprovalRequestedEvent, ...] = ()
    """Approvals that it waits for."""
    usage: dict[str, int] = field(default_factory=dict)
    """What its agents used: tokens and the like, by name."""
    checkpoint_id: str | None = None


Emit = Callable[[Any], None]


class Known:
    """What is stored of an execution."""

    def __init__(self, checkpoint: WorkflowCheckpoint) -> None:
        memory = checkpoint.executors.get(CONDUCTOR)
        private: Mapping[str, Any] = {} if memory is None or memory.private is None else memory.private
        self.standing: ExecutionState | None = private.get("standing")
        due = [one.data for one in checkpoint.deliveries if one.target_id == CONDUCTOR and _is_input(one.data)]
        self.outcomes = [one.data for one in checkpoint.deliveries if isinstance(one.data, NodeOutcome)]
        """What nodes came to that the conductor has not heard yet."""
        self.input: Any = due[-1] if due else None if self.standing is None else self.standing.input

    def check(self, execution_id: str, workflow_name: str, given: Any) -> None:
        """Raises InputMismatch."""
        if not _is_same(given, self.input):
            raise InputMismatch(execution_id, workflow_name, self.input, given)


def _is_same(one: Any, other: Any) -> bool:
    """As JSON has it: true is not 1, keys have no order; and NaN is itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _is_input(data: Any) -> bool:
    return isinstance(data, str | dict)


class Execution:
    """While it is being moved by this process. Answers that come meanwhile are given to it when it rests."""

    def __init__(self, instance: AgentWorkflowInstance, execution_id: str) -> None:
        self._instance = instance
        self._workflow = instance.workflow
        self.execution_id = execution_id
        self.asked: dict[str, WorkflowEvent] = {}
        """What was asked in this call, and not answered yet, by public id."""
        self.answered: set[str] = set()
        """Those that were, by public id."""
        self._answers: dict[str, tuple[Any, asyncio.Future[bool]]] = {}
        """Those that came while it ran, by public id, and who waits until they are taken."""
        self.loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._callbacks: set[asyncio.Task[Any]] = set()
        self._views: Views | None = None

    # ------------------------------------------------------------ moving

    async def move(
        self, given: Any, responses: Mapping[str, Any] | None, emit: Emit, options: Mapping[str, Any]
    ) -> WorkflowResult:
        """`given`: its input; None to resume it. Raises InputMismatch, or ThreadNotFound."""
        checkpoint = await self._workflow.head(self.execution_id)
        if checkpoint is None and given is None:
            raise ExecutionNotFound(self.execution_id, self._workflow.name, is_kept=self._instance.is_kept)
        known = None if checkpoint is None else Known(checkpoint)
        is_own = (
            checkpoint is not None and checkpoint.workflow_name == self._workflow.name
        )  # else the engine refuses it
        if known is not None and given is not None and is_own:
            known.check(self.execution_id, self._workflow.name, given)
        standing = known.standing if known is not None and is_own else None
        self._views = Views(self._workflow.name, self.execution_id, self._instance.planner.ways, standing)
        self._views.take_in(known.outcomes if known is not None and is_own else ())
        if standing is not None and standing.result is not None and responses is None and checkpoint is not None:
            return _completed(self.execution_id, standing.result, checkpoint.metadata.get("usage"), checkpoint)
        call: dict[str, Any] = {"message": given} if known is None else {}
        if responses is not None:
            call = {"responses": responses}
        while True:
            result = await self._run(emit, {**options, **call})
            if known is None:
                await self._check_input(given)
            if result.state != "waiting" or not await self._is_answered(result):
                await self.heard()
                return result
            call = {"responses": self._taken(result)}

    async def heard(self) -> None:
        """Those who subscribed have heard all of it."""
        while self._callbacks:
            await asyncio.wait(list(self._callbacks))

    async def _check_input(self, given: Any) -> None:
        """It may have been begun by somebody else in the same moment. Raises InputMismatch."""
        known = await self._instance.find(self.execution_id)
        if known is not None:
            known.check(self.execution_id, self._workflow.name, given)

    def _taken(self, result: WorkflowResult) -> dict[str, Any]:
        responses = {}
        for one in result.pending:
            if one.request_id in self._answers:
                answer, waiter = self._answers.pop(one.request_id)
                responses[str(self.asked.pop(one.request_id).request_id)] = answer
                self.answered.add(one.request_id)
                if not waiter.done():
                    waiter.set_result(True)
        return responses

    async def _is_answered(self, result: WorkflowResult) -> bool:
        """Whether somebody who heard of its requests has answered one of them."""
        while True:
            if any(one.request_id in self._answers for one in result.pending):
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
        """Whether it is taken: not where the execution stops before it rests. Raises AlreadyAnswered."""
        if request_id in self._answers or request_id in self.answered:
            raise AlreadyAnswered(request_id, self.execution_id)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = (answer, waiter)
        self._answered.set()
        return await waiter

    def end(self) -> None:
        """Nobody waits for it any more."""
        for task in self._callbacks:
            task.cancel()
        for _, waiter in self._answers.values():
            if not waiter.done():
                waiter.set_result(False)

    async def _run(self, emit: Emit, options: dict[str, Any]) -> WorkflowResult:
        views = self._views
        assert views is not None  # noqa: S101  # made before
        failed: WorkflowEvent | None = None
        ended: list[told.AgentWorkflowEvent] = []
        """That it has ended is told once it is saved."""
        chosen = {"on_busy": "enqueue", **options, "thread_id": self.execution_id}
        stream = self._workflow.run(chosen.pop("message", None), stream=True, **chosen)
        try:
            async for event in stream:
                failed = event if event.type == "failed" else failed
                for view in views.of(event):
                    if isinstance(view, told.WorkflowApprovalRequestedEvent):
                        self.asked[view.request_id] = event
                    if isinstance(view, told.WorkflowCompletedEvent) and view.metadata.depth == 0:
                        ended += [] if event.replayed else [view]
                    elif not event.replayed or event.type == "request_info":
                        self._tell(view, emit)
            result = await stream
            for view in ended:
                self._tell(view, emit)
        except Exception as error:
            if isinstance(error, IncompatibleWorkflow):
                error.add_note(await self._begun_with())
            is_trouble = isinstance(error, WorkflowCheckpointException | ThreadConflict)
            if is_trouble or failed is None or failed.details is None or failed.details.executor_id is None:
                self._tell(views.diagnostic("error", _source(error), f"{type(error).__name__}: {error}"), emit)
                raise
            return await self._stopped(failed.details.executor_id, error, emit)
        return await self._rested(result)

    async def _begun_with(self) -> str:
        """Which version of a definition it was begun with."""
        checkpoint = await self._workflow.head(self.execution_id)
        begun = {} if checkpoint is None else checkpoint.state.get(DEFINITION, {})
        how = f"AgentWorkflow.load({self._workflow.name!r}, storage, execution_id={self.execution_id!r}) makes that one"
        stored = f", number {begun['number']} in its store: {how}" if begun.get("number") else ""
        return (
            f"Execution {self.execution_id!r} was begun with version {begun.get('version')} of the definition{stored}."
        )

    # ------------------------------------------------------------ telling

    def _tell(self, event: Any, emit: Emit) -> None:
        emit(event)
        for called in self._instance.subscribers.tell(event):
            task = asyncio.ensure_future(called)
            self._callbacks.add(task)
            task.add_done_callback(self._callback_done)

    def _callback_done(self, task: asyncio.Task[Any]) -> None:
        self._callbacks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_failure(error)

    # ------------------------------------------------------------ what it came to

    async def _rested(self, run: WorkflowRunResult) -> WorkflowResult:
        views = self._views
        assert views is not None  # noqa: S101  # made before
        state = run.get_final_state()
        results = [one for one in run.get_outputs() if isinstance(one, ExecutionResult)]
        pending = tuple(views.request(one) for one in run.get_request_info_events())
        if results and not pending:
            return _completed(self.execution_id, results[-1], run.usage, run)
        now: State = "cancelled" if state is WorkflowRunState.CANCELLED else "waiting"
        known = await self._instance.find(self.execution_id)
        before = so_far(self.execution_id, now, None if known is None else known.standing, self._instance.now())
        return replace(before, pending=pending, usage=run.usage, checkpoint_id=run.checkpoint_id)

    async def _stopped(self, executor_id: str, error: Exception, emit: Emit) -> WorkflowResult:
        """At a failure of a node whose mode is to stop: told with what there is beside it, recorded or committed."""
        checkpoint = await self._workflow.head(self.execution_id)
        known = None if checkpoint is None else Known(checkpoint)
        views = self._views
        assert views is not None  # noqa: S101  # made before
        node, first = views.node_at(executor_id), _first(error)
        text = f"{node}: {type(first).__name__}: {first}" if node else str(first)
        if node is not None and (event := views.failed(node, text)) is not None:
            self._tell(event, emit)
        standing = views.seen(None if known is None else known.standing)
        result = so_far(self.execution_id, "failed", standing, self._instance.now())
        nodes = {} if standing is None else standing.nodes
        ended = told.WorkflowCompletedEvent(
            workflow_name=self._workflow.name,
            execution_id=self.execution_id,
            duration=result.duration,
            successful_nodes=sum(one.has_succeeded for name, one in nodes.items() if name != START),
            failed_nodes=sum(self._instance.planner.ways.is_failed(one, nodes) for one in nodes),
            skipped_nodes=sum(one.status == "skipped" and not one.has_succeeded for one in nodes.values()),
            success=False,
            error=text,
        )
        self._tell(ended, emit)
        checkpoint_id = None if checkpoint is None else checkpoint.checkpoint_id
        usage = {} if checkpoint is None else dict(checkpoint.metadata.get("usage", {}))
        return replace(result, error=text, exception=error, checkpoint_id=checkpoint_id, usage=usage)


def _first(error: BaseException) -> BaseException:
    """What a node raised, however many workflows it was in."""
    while isinstance(error, SubWorkflowFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _completed(
    execution_id: str,
    done: ExecutionResult,
    usage: Mapping[str, int] | None,
    at: WorkflowCheckpoint | WorkflowRunResult,
) -> WorkflowResult:
    return WorkflowResult(
        execution_id,
        "completed",
        done.final_answer,
        done.outputs,
        done.success,
        done.duration,
        done.error,
        usage=dict(usage or {}),
        checkpoint_id=at.checkpoint_id,
    )


def so_far(execution_id: str, state: State, standing: ExecutionState | None, now: datetime) -> WorkflowResult:
    if standing is None:
        return WorkflowResult(execution_id, state)
    duration = (now - standing.began).total_seconds()
    outputs = flat(standing.outputs())
    return WorkflowResult(execution_id, state, outputs=outputs, duration=duration, error=standing.stopped)


def _source(error: Exception) -> str:
    return "storage" if type(error).__module__ == "perdure.errors" else "execution"
