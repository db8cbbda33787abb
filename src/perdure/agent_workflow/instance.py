"""AgentWorkflowInstance: a workflow of agents that can be run, resumed, answered, drawn and written down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.agent_workflow.definition.config import WorkflowConfig
from perdure.agent_workflow.definition.draft import Draft
from perdure.agent_workflow.events import Subscribers, WorkflowApprovalRequestedEvent
from perdure.agent_workflow.execution.execution import Emit, Execution, Known, WorkflowResult, so_far
from perdure.agent_workflow.execution.planner import Planner
from perdure.agent_workflow.execution.views import answer_to, find_request, pending_approvals
from perdure.agents.tools import Tool
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import Clock
from perdure.engine.run.result import ResponseStream
from perdure.errors import AlreadyAnswered, InvalidRun, ThreadBusy, did_you_mean
from perdure.graph.policy import Seconds
from perdure.names import check_identifier, new_thread_id
from perdure.workflows.workflow import Workflow

if TYPE_CHECKING:
    from perdure.agent_workflow.store import StoredDefinition


EventT = TypeVar("EventT")
OPTIONS = (
    *("durability", "max_lag", "on_busy", "takeover", "force"),
    *("function_invocation_kwargs", "client_kwargs"),
)
"""Of `Workflow.run`: those that have a meaning here."""


class AgentWorkflowInstance:
    """Made by `AgentWorkflow.create()...build()`. One object serves any number of executions."""

    def __init__(
        self,
        definition: WorkflowConfig,
        workflow: Workflow,
        clock: Clock,
        draft: Draft,
        planner: Planner,
        *,
        store: StoreCheckpointStorage | None,
        is_kept: bool,
    ) -> None:
        self.definition = definition
        self.workflow = workflow
        """The graph that it is compiled to: all that perdure can do with a workflow can be done with it."""
        self.workflow_store = store
        """Where definitions are kept and, with checkpointing, executions; None without one."""
        self._clock = clock
        self._draft = draft
        """What it was made of, with all that a document cannot say."""
        self.planner = planner
        self.is_kept = is_kept
        """Whether executions survive this process."""
        self._running: list[Execution] = []
        self.subscribers = Subscribers()

    @property
    def name(self) -> str:
        return self.definition.name

    workflow_name = name

    @property
    def node_count(self) -> int:
        return len(self.definition.agents)

    def now(self) -> datetime:
        return self._clock.now()

    def inner(self, *, contains: bool) -> Workflow:
        """The graph as a node of another. `contains`: where it would stop, it ends with a result that says so."""
        from perdure.agent_workflow.compile.graph import compiled, planner_of

        return compiled(self._draft, planner_of(self._draft), storage=None, is_inner=contains)

    # ------------------------------------------------------------ running

    async def run(
        self, input: str | Mapping[str, Any], execution_id: str | None = None, **options: Any
    ) -> WorkflowResult:
        """Run until it has ended, stops at a failure, or waits for somebody.

        The id of an execution that there is resumes it; one that has ended gives its result again. Raises InputMismatch
        if it has another input. `options` are those of `Workflow.run` in `OPTIONS`, such as `durability`.
        """
        return await self.stream(input, execution_id, **options)

    def stream(
        self, input: str | Mapping[str, Any], execution_id: str | None = None, **options: Any
    ) -> ResponseStream[Any, WorkflowResult]:
        """The same, to iterate for events as they happen; awaited, it gives the result."""
        given = _checked(input)
        _check_options(options)
        check_identifier("execution_id", execution_id)
        return self._moved(execution_id or new_thread_id(), given, None, options)

    async def resume(self, execution_id: str, **options: Any) -> WorkflowResult:
        """Go on from where it stands. Raises ThreadNotFound."""
        return await self.stream_resumed(execution_id, **options)

    def stream_resumed(self, execution_id: str, **options: Any) -> ResponseStream[Any, WorkflowResult]:
        """`resume`, to iterate for events."""
        _check_options(options)
        check_identifier("execution_id", execution_id)
        return self._moved(execution_id, None, None, options)

    def _moved(
        self, execution_id: str, given: Any, responses: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> ResponseStream[Any, WorkflowResult]:
        async def start(emit: Emit) -> WorkflowResult:
            execution = Execution(self, execution_id)
            self._running.append(execution)
            try:
                result = await execution.move(given, responses, emit, options)
            finally:
                execution.end()
                self._running.remove(execution)
            others = any(one.execution_id == execution_id for one in self._running)
            if not self.is_kept and result.state == "completed" and not others:
                with contextlib.suppress(ThreadBusy):  # somebody asks for it again
                    await self.forget(execution_id)
            return result

        return ResponseStream[Any, WorkflowResult](start, lambda: False)

    # ------------------------------------------------------------ approving

    async def approve(
        self,
        request_id: str,
        *,
        reason: str | None = None,
        data: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        **options: Any,
    ) -> WorkflowResult:
        """Let an agent's output be used, with `data` put into it, and go on. If the execution is being run by this
        object, that run goes on, and the result says `running`. Raises UnknownRequest, AlreadyAnswered."""
        return await self._answer(request_id, True, reason, data, execution_id, options)

    async def deny(
        self, request_id: str, *, reason: str | None = None, execution_id: str | None = None, **options: Any
    ) -> WorkflowResult:
        """Do not let it be used: its node counts as skipped. Then go on."""
        return await self._answer(request_id, False, reason, None, execution_id, options)

    async def _answer(
        self,
        request_id: str,
        approved: bool,
        reason: str | None,
        data: Any,
        execution_id: str | None,
        options: Mapping[str, Any],
    ) -> WorkflowResult:
        _check_options(options)
        running = next((one for one in self._running if request_id in {*one.asked, *one.answered}), None)
        if running is not None:
            if request_id in running.answered:
                raise AlreadyAnswered(request_id, running.execution_id)
            answer = answer_to(running.asked[request_id].data, approved, reason, data)
            given = running.answer(request_id, answer)
            if running.loop is asyncio.get_running_loop():
                is_taken = await given
            else:  # it is run in another thread
                is_taken = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(given, running.loop))
            if is_taken:
                return so_far(running.execution_id, "running", None, self.now())
        found = await find_request(self.workflow, request_id, execution_id)
        answer = answer_to(found.data, approved, reason, data)
        return await self._moved(found.execution_id, None, {found.request_id: answer}, options)

    async def pending(self, execution_id: str | None = None) -> list[WorkflowApprovalRequestedEvent]:
        """Approvals that executions wait for, those that wait longest first; of all of them, or of one."""
        return await pending_approvals(self.workflow, self.planner.ways, execution_id)

    # ------------------------------------------------------------ subscribing

    def subscribe(self, kind: type[EventT], callback: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call it with each event of this type, of every execution that this object runs. It may be async: then it runs
        beside the execution, and `run` returns when it has ended. Returns what ends the subscription."""
        if not isinstance(kind, type):
            raise TypeError(f"subscribe expects a type of event, got {kind!r}.")
        return self.subscribers.add(kind, callback)

    def subscribe_any(self, callback: Callable[[Any], Any]) -> Callable[[], None]:
        """With every event."""
        return self.subscribers.add(None, callback)

    # ------------------------------------------------------------ looking

    async def forget(self, execution_id: str) -> bool:
        """Delete all that is stored of an execution; False if there was none. Without checkpointing those that failed
        or wait stay in memory until they are resumed, or forgotten. Raises ThreadBusy while it is being run."""
        return bool(await self.workflow.checkpoint_storage.delete_thread(execution_id))

    async def find(self, execution_id: str) -> Known | None:
        """What is stored of an execution."""
        checkpoint = await self.workflow.head(execution_id)
        return None if checkpoint is None else Known(checkpoint)

    # ------------------------------------------------------------ as a tool

    def as_tool(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        timeout: Seconds | None = None,
        stream_events: bool = True,
    ) -> Tool:
        """For an agent: `Agent(..., tools=[workflow.as_tool()])`. Its model calls it with a text, and is told the final
        answer. With checkpointing, a call that was interrupted goes on with its execution."""
        from perdure.agent_workflow.as_tool import workflow_tool

        return workflow_tool(self, name=name, description=description, timeout=timeout, stream_events=stream_events)

    # ------------------------------------------------------------ drawing

    def to_diagram(self) -> str:
        """A Mermaid flowchart of the definition."""
        from perdure.agent_workflow.compile.diagram import to_diagram

        return to_diagram(self._draft)

    # ------------------------------------------------------------ writing it down

    def to_config(self) -> WorkflowConfig:
        """The whole definition, with what only Python has by its import path; `AgentWorkflow.from_config` makes the
        same of it. Stores are no part of it. Raises InvalidDefinition for what cannot be written down."""
        from perdure.agent_workflow.documents.convert import config_for

        return config_for(self._draft)

    def export_config(self, format: str = "json") -> str:
        """The same as a document: `json` or `yaml`."""
        from perdure.agent_workflow.documents.convert import exported

        return exported(self._draft, format)

    def export_config_json(self) -> str:
        return self.export_config("json")

    def export_config_yaml(self) -> str:
        """Needs the extra `yaml`."""
        return self.export_config("yaml")

    # ------------------------------------------------------------ stored definitions

    async def save(self) -> StoredDefinition:
        """Keep the definition in the workflow store, under its name: `AgentWorkflow.load(name, storage)` has it again,
        in any process. One that has not changed makes no new version. Raises InvalidRun without a store, and
        InvalidDefinition for what only Python has."""
        from perdure.agent_workflow.documents.convert import config_for
        from perdure.agent_workflow.store import DefinitionStore

        if self.workflow_store is None:
            advice = "add one, such as with_sqlite_workflow_store(path)"
            raise InvalidRun(f"Workflow {self.name!r} has no workflow store to keep its definition in: {advice}.")
        return await DefinitionStore(self.workflow_store, clock=self._clock).save(config_for(self._draft))

    def __repr__(self) -> str:
        return f"AgentWorkflowInstance({self.name!r}, {self.node_count} nodes)"


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for one that there is not."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"run() got an unexpected keyword argument {name!r}{did_you_mean(name, OPTIONS)}")


def _checked(given: Any) -> str | dict[str, Any]:
    if isinstance(given, str):
        try:
            given.encode()
        except UnicodeEncodeError as error:
            raise InvalidRun(f"The input is no Unicode text: {error}. Nothing was run.") from error
        return given
    if isinstance(given, Mapping) and all(isinstance(one, str) for one in given):
        return dict(given)
    raise InvalidRun(f"An execution is given a text, or a mapping with texts as keys; got {given!r}.")
