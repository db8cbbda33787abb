"""AgentWorkflowInstance: a built workflow of agents. It runs, resumes, answers, draws and exports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from perdure.agent_workflow.as_tool import workflow_tool
from perdure.agent_workflow.definition import Draft, WorkflowConfig
from perdure.agent_workflow.documents.convert import config_for, export_draft
from perdure.agent_workflow.documents.diagram import to_diagram
from perdure.agent_workflow.events import WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.execution import Emit, Execution, StoredExecution, WorkflowResult, partial_result
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.execution.views import answer_to, find_request, pending_approvals
from perdure.agent_workflow.store import DefinitionStore, StoredDefinition
from perdure.clock import SystemClock
from perdure.engine.run.stream import ResponseStream, StreamWork
from perdure.errors import AlreadyAnswered, InvalidRun, ThreadBusy
from perdure.names import check_identifier, check_options, new_thread_id
from perdure.workflows.workflow import Workflow

EventT = TypeVar("EventT")
OPTIONS = ("durability", "max_lag", "on_busy", "takeover", "force", "function_invocation_kwargs", "client_kwargs")
"""The options of `Workflow.run` that apply to an agent workflow."""


class ExecutionStream(ResponseStream[Any, WorkflowResult]):
    """The events of an execution. Awaited, it returns the result."""

    def __await__(self) -> Generator[Any, None, WorkflowResult]:  # type: ignore[override]  # a stream of a workflow: itself
        return self.get_final_response().__await__()


class AgentWorkflowInstance:
    """Built by `AgentWorkflow.create()...build()`. One object serves any number of executions."""

    def __init__(self, draft: Draft, workflow: Workflow, planner: Planner) -> None:
        self.definition = draft.to_config()
        self.workflow = workflow
        """The compiled graph. Every method of a perdure workflow applies to it."""
        self.workflow_store = draft.store
        """Stores definitions and, with checkpointing, executions; None without a store."""
        self.is_durable = draft.settings.checkpointing
        """Whether executions survive this process."""
        self.planner = planner
        self._clock = draft.clock or SystemClock()
        self._draft = draft
        """The source of this instance, with the objects that a document cannot hold."""
        self._running: list[Execution] = []
        self.subscribers: dict[object, tuple[type, Callable[[Any], Any]]] = {}
        """Callbacks, each with the type of its events."""

    @property
    def name(self) -> str:
        return self.definition.name

    workflow_name = name

    @property
    def node_count(self) -> int:
        return len(self.definition.agents)

    def now(self) -> datetime:
        return self._clock.now()

    async def run(
        self, input: str | Mapping[str, Any], execution_id: str | None = None, **options: Any
    ) -> WorkflowResult:
        """Run until the execution ends, stops at a failure, or waits for an answer.

        The id of a stored execution resumes it; an ended one returns its result again. Raises InputMismatch if the
        stored input differs. `options` are those of `Workflow.run` in `OPTIONS`, such as `durability`.
        """
        return await self.stream(input, execution_id, **options)

    def stream(
        self, input: str | Mapping[str, Any], execution_id: str | None = None, **options: Any
    ) -> ExecutionStream:
        """`run` as a stream: iterate for events as they happen, or await it for the result."""
        checked_input = _check_input(input)
        check_options("run", options, OPTIONS)
        check_identifier("execution_id", execution_id)
        return self._drive(execution_id or new_thread_id(), checked_input, None, options)

    async def resume(self, execution_id: str, **options: Any) -> WorkflowResult:
        """Continue from the last checkpoint. Raises ThreadNotFound."""
        return await self.stream_resumed(execution_id, **options)

    def stream_resumed(self, execution_id: str, **options: Any) -> ExecutionStream:
        """`resume` as a stream of events."""
        check_options("run", options, OPTIONS)
        check_identifier("execution_id", execution_id)
        return self._drive(execution_id, None, None, options)

    def _drive(
        self, execution_id: str, input: Any, responses: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> ExecutionStream:
        async def start(emit: Emit) -> WorkflowResult:
            execution = Execution(self, execution_id, emit)
            self._running.append(execution)
            try:
                result = await execution.drive(input, responses, options)
            finally:
                execution.end()
                self._running.remove(execution)
            is_shared = any(other.execution_id == execution_id for other in self._running)
            if not self.is_durable and result.state == "completed" and not is_shared:
                with contextlib.suppress(ThreadBusy):  # another caller runs it again
                    await self.forget(execution_id)
            return result

        return ExecutionStream(StreamWork(start))

    async def approve(
        self,
        request_id: str,
        *,
        reason: str | None = None,
        data: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        **options: Any,
    ) -> WorkflowResult:
        """Accept an agent's output, with `data` merged into it, and continue. If this object is running the execution,
        that run continues, and the result's state is `running`. Raises UnknownRequest, AlreadyAnswered."""
        return await self._answer(request_id, execution_id, options, True, reason, data)

    async def deny(
        self, request_id: str, *, reason: str | None = None, execution_id: str | None = None, **options: Any
    ) -> WorkflowResult:
        """Reject an agent's output: its node counts as skipped. Then continue."""
        return await self._answer(request_id, execution_id, options, False, reason, None)

    async def _answer(
        self, request_id: str, execution_id: str | None, options: Mapping[str, Any], *decision: Any
    ) -> WorkflowResult:
        """`decision`: whether it is approved, the reason and the data."""
        check_options("run", options, OPTIONS)
        running = next((each for each in self._running if request_id in {*each.asked, *each.answered}), None)
        if running is not None:
            if request_id in running.answered:
                raise AlreadyAnswered(request_id, running.execution_id)
            accepting = running.answer(request_id, answer_to(running.asked[request_id].data, *decision))
            if running.loop is asyncio.get_running_loop():
                is_accepted = await accepting
            else:  # another OS thread runs it
                is_accepted = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(accepting, running.loop))
            if is_accepted:
                return partial_result(running.execution_id, "running", None, self.now())
        thread_id, inner_id, request = await find_request(self.workflow, request_id, execution_id)
        return await self._drive(thread_id, None, {inner_id: answer_to(request, *decision)}, options)

    async def pending(self, execution_id: str | None = None) -> list[WorkflowApprovalRequestedEvent]:
        """Pending approvals, the oldest first: of one execution, or of all."""
        return await pending_approvals(self.workflow, self.planner.graph, execution_id)

    def subscribe(self, kind: type[EventT], callback: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call `callback` with each event of this type, of every execution that this object runs. An async callback
        runs beside the execution, and `run` waits for it. Returns a function that ends the subscription."""
        if not isinstance(kind, type):
            raise TypeError(f"subscribe expects a type of event, got {kind!r}.")
        if not callable(callback):
            raise TypeError(f"subscribe expects a function of the event, got {callback!r}.")
        key = object()
        self.subscribers[key] = kind, callback

        def end() -> None:
            self.subscribers.pop(key, None)

        return end

    def subscribe_any(self, callback: Callable[[Any], Any]) -> Callable[[], None]:
        """Call `callback` with every event. Returns a function that ends the subscription."""
        return self.subscribe(object, callback)

    async def forget(self, execution_id: str) -> bool:
        """Delete everything stored about an execution; False if nothing is stored. Without checkpointing, failed and
        waiting executions stay in memory until they are resumed or forgotten. Raises ThreadBusy while it runs."""
        return bool(await self.workflow.checkpoint_storage.delete_thread(execution_id))

    async def find(self, execution_id: str) -> StoredExecution | None:
        """The stored state of an execution."""
        checkpoint = await self.workflow.head(execution_id)
        return None if checkpoint is None else StoredExecution(checkpoint)

    as_tool = workflow_tool

    def to_diagram(self) -> str:
        """A Mermaid flowchart of the definition."""
        return to_diagram(self._draft, {(edge.source, edge.target) for edge in self.planner.graph.back})

    def to_config(self) -> WorkflowConfig:
        """The whole definition, with Python objects by import path. `AgentWorkflow.from_config` rebuilds the workflow
        from it. Stores are not included. Raises InvalidDefinition for objects without an import path."""
        return config_for(self._draft)

    def export_config(self, format: str = "json") -> str:
        """The definition as a document: `json` or `yaml`."""
        return export_draft(self._draft, format)

    def export_config_json(self) -> str:
        return self.export_config("json")

    def export_config_yaml(self) -> str:
        """Needs the extra `yaml`."""
        return self.export_config("yaml")

    async def save(self) -> StoredDefinition:
        """Save the definition in the workflow store under its name. `AgentWorkflow.load(name, storage)` loads it in any
        process. An unchanged definition gets no new version. Raises InvalidRun without a store, and InvalidDefinition
        for objects without an import path."""
        if self.workflow_store is None:
            advice = "add one, such as with_sqlite_workflow_store(path)"
            raise InvalidRun(f"Workflow {self.name!r} has no workflow store to save its definition in: {advice}.")
        return await DefinitionStore(self.workflow_store, clock=self._clock).save(config_for(self._draft))

    def __repr__(self) -> str:
        return f"AgentWorkflowInstance({self.name!r}, {self.node_count} nodes)"


def _check_input(value: Any) -> str | dict[str, Any]:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRun(f"The input is not valid Unicode text: {error}. Nothing was run.") from error
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise InvalidRun(f"The input of an execution is a text, or a mapping with texts as keys; got {value!r}.")
