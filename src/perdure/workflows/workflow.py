"""Workflow: the result of `build`. One object serves any number of threads at the same time."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock, SystemClock
from perdure.codec import DeclaredTypes
from perdure.engine.run.request import Durability, RunOptions, check_durability, make_request
from perdure.engine.run.run import Run, View, WorkflowRunResult
from perdure.engine.run.stream import ResponseStream
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThreads
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.graph.edges import EdgeGroup, InternalEdgeGroup
from perdure.graph.executor import Executor
from perdure.graph.graph import Graph
from perdure.names import OnBusy, new_run_id
from perdure.records import CheckpointInfo
from perdure.workflows import threads, time_travel
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.agent_output import AgentOutputs
from perdure.workflows.handle import RunHandle

if TYPE_CHECKING:
    from perdure.workflows.migration_check import ThreadFits


class Workflow:
    """A graph that can be run. Made by `WorkflowBuilder(...).build()`."""

    def __init__(
        self,
        graph: Graph,
        checkpoint_storage: Any = None,
        *,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
        durability: Durability = "sync",
    ) -> None:
        self._graph = graph
        self._storage = checkpoint_storage
        check_durability(durability)
        self._durability = durability
        self.allowed_types = tuple(allowed_types)
        self._compiled = Compiled(graph, self.allowed_types, migrations)
        self._live = LiveThreads(self._compiled, clock or SystemClock())
        self.id = new_run_id()
        self.name = graph.name
        self.description = graph.description
        self.start_executor_id = graph.start_executor_id
        self.max_iterations = graph.max_iterations
        self.graph_signature = self._compiled.signature
        self.graph_signature_hash = self._compiled.signature_hash

    @property
    def checkpoint_storage(self) -> Any:
        """The storage of its threads; None if they live in this process alone."""
        return self._storage

    @overload
    def run(
        self, message: Any = None, *, stream: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, WorkflowRunResult]: ...
    @overload
    def run(
        self, message: Any = None, *, stream: Literal[True], **options: Unpack[RunOptions]
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]: ...
    def run(self, message: Any = None, *, stream: bool = False, **options: Unpack[RunOptions]) -> Any:
        """Move a thread forward: a new message, answers to its requests, or a resume.

        Await it for the result or, with `stream=True`, iterate over its events as they happen. Raises InvalidRun at
        once for options that contradict each other. The options are those of `RunOptions`.
        """
        run = self.new_run(message, **options)
        if not stream:
            return run.execute(view=self._view(is_streaming=False))
        return run.stream(self._view(is_streaming=True))

    def _view(self, *, is_streaming: bool) -> View | None:
        """What the caller of a run gets of its events."""
        return AgentOutputs(self._graph) if is_streaming else None

    def new_run(self, message: Any = None, **options: Unpack[RunOptions]) -> Run:
        """A run that has not started: its caller can distinguish a rejected run from one that failed later."""
        if self._durability != "sync":
            options.setdefault("durability", self._durability)
        return Run(self._live, make_request(message, self._storage, options))

    def cancel_pending_requests(
        self, request_ids: Collection[str], **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, WorkflowRunResult]:
        """Settle requests without answers, and move the thread forward; ids that are not pending are ignored.

        An agent takes the cancellation of an approval as a rejection, and that of a call as its failure. A handler that
        awaits the answer gets RequestWithdrawn. Raises InvalidRun for ids that are not texts. The options are those of
        `run`.
        """
        if isinstance(request_ids, str) or not all(type(each) is str and each for each in request_ids):
            raise InvalidRun(f"Pending workflow request IDs must be non-empty strings, in a list, got {request_ids!r}.")
        request = make_request(None, self._storage, options)
        return Run(self._live, replace(request, cancelled=frozenset(request_ids))).execute()

    def run_streaming(
        self, message: Any = None, **options: Unpack[RunOptions]
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]:
        """`run(message, stream=True)`."""
        return self.run(message, stream=True, **options)

    run_stream = run_streaming

    def run_stream_from_checkpoint(
        self, checkpoint_id: str | CheckpointInfo, checkpoint_storage: Any = None, **options: Any
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]:
        """`run(checkpoint_id=..., stream=True)`."""
        return self.run(stream=True, checkpoint_id=checkpoint_id, checkpoint_storage=checkpoint_storage, **options)

    def run_from_checkpoint(
        self, checkpoint_id: str | CheckpointInfo, checkpoint_storage: Any = None, **options: Any
    ) -> Coroutine[Any, Any, WorkflowRunResult]:
        """`run(checkpoint_id=...)`."""
        return self.run(stream=False, checkpoint_id=checkpoint_id, checkpoint_storage=checkpoint_storage, **options)

    def open(
        self,
        *,
        thread_id: str | None = None,
        checkpoint_storage: Any = None,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
    ) -> RunHandle:
        """A live handle on a thread, for `async with`: send, answer, restore and watch while it runs."""
        options: RunOptions = {"thread_id": thread_id, "on_busy": on_busy, "takeover": takeover}
        options["checkpoint_storage"] = checkpoint_storage
        return RunHandle(self._live, make_request(None, self._storage, options))

    def as_agent(
        self,
        name: str | None = None,
        *,
        id: str | None = None,
        description: str | None = None,
        context_providers: Iterable[Any] | None = None,
    ) -> WorkflowAgent:
        """The workflow as an agent: each session is a thread of it. Its start executor must accept `list[Message]`."""
        return WorkflowAgent(self, name, id=id, description=description, context_providers=context_providers)

    @property
    def status(self) -> WorkflowRunState:
        """The status of the object's default thread."""
        thread = self._live.find(self._live.default_thread_id) if self._live.default_thread_id else None
        return WorkflowRunState.IDLE if thread is None else thread.status

    def get_last_checkpoint_id(self) -> str | None:
        """The head of the object's default thread; None without a storage, or before its first run."""
        thread = self._live.find(self._live.default_thread_id) if self._live.default_thread_id else None
        return None if thread is None else thread.head_id

    # Methods whose body is a function of the workflow, in the module of its idea.
    history = threads.history
    head = threads.head
    messages = threads.messages
    outcomes = threads.outcomes
    follow = threads.follow
    branches = threads.branches
    diff = threads.diff
    pin = threads.pin
    unpin = threads.unpin
    prune = threads.prune
    export_thread = threads.export_thread
    import_thread = threads.import_thread
    fork = time_travel.fork
    rewind = time_travel.rewind
    checkpoint = time_travel.checkpoint
    update_state = time_travel.update_state
    edit = time_travel.edit
    clear = time_travel.clear
    describe = time_travel.describe
    cancel = threads.cancel
    leave = threads.leave

    async def check_threads(
        self, *, checkpoint_storage: Any = None, progress: Callable[[int, int, str], None] | None = None
    ) -> ThreadFits:
        """A dry run of the migrations: what would happen to each stored thread of this workflow if it were opened now.

        Reads what a run would read first, also of running threads. Claims and writes nothing. Calls
        `progress(done, total, thread_id)` after each thread.
        """
        from perdure.workflows.migration_check import check_threads

        storage = threads.choose_storage(self, "Checking stored threads", checkpoint_storage)
        return await check_threads(self._compiled, storage, progress)

    @property
    def declared_types(self) -> DeclaredTypes:
        """The types that its checkpoints and events may hold: a reader needs them to decode."""
        return self._compiled.declared

    @property
    def graph(self) -> Graph:
        """Its executors and edges, frozen."""
        return self._graph

    @property
    def edge_groups(self) -> list[EdgeGroup]:
        """Its edges, and beside them the way of inputs and answers into each executor."""
        return [*map(InternalEdgeGroup, self._graph.nodes), *self._graph.edge_groups]

    @property
    def executors(self) -> dict[str, Executor]:
        return dict(self._graph.executors)

    def get_start_executor(self) -> Executor:
        return self._graph.executors[self.start_executor_id]

    def get_executors_list(self) -> list[Executor]:
        return list(self._graph.executors.values())

    def get_output_executors(self) -> list[Executor]:
        return [each for each in self.get_executors_list() if self.is_terminal_executor(each.id)]

    def get_intermediate_executors(self) -> list[Executor]:
        return [each for each in self.get_executors_list() if self.is_intermediate_executor(each.id)]

    def is_terminal_executor(self, executor_id: str) -> bool:
        """Whether its outputs are results of the workflow; true of any id if no executor is designated."""
        return not self._graph.has_designations or self._graph.output_kinds.get(executor_id) == "output"

    def is_intermediate_executor(self, executor_id: str) -> bool:
        return self._graph.output_kinds.get(executor_id) == "intermediate"

    @property
    def input_types(self) -> list[Any]:
        return self.get_start_executor().input_types

    @property
    def output_types(self) -> list[Any]:
        """The types that its executors may yield, intermediate and hidden ones too."""
        return list(dict.fromkeys(kind for each in self.get_executors_list() for kind in each.workflow_output_types))

    def to_dict(self) -> dict[str, Any]:
        """The definition as plain JSON. Functions, such as conditions, are names in it."""
        of_kind = {
            kind: sorted(each for each, designated in self._graph.output_kinds.items() if designated == kind)
            for kind in ("output", "intermediate")
        }
        return {
            "name": self.name,
            "id": self.id,
            "start_executor_id": self.start_executor_id,
            "max_iterations": self.max_iterations,
            "executors": {key: executor.to_dict() for key, executor in self._graph.executors.items()},
            "edge_groups": [group.to_dict() for group in self.edge_groups],
            "output_executors": of_kind["output"] if self._graph.has_designations else None,
            "intermediate_executors": of_kind["intermediate"] if self._graph.has_designations else None,
            **({} if self.description is None else {"description": self.description}),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def to_mermaid(self, include_internal_executors: bool = False) -> str:
        """As a Mermaid flowchart."""
        from perdure.graph.drawing.viz import to_mermaid

        return to_mermaid(self._graph, include_internal_executors)

    def to_dot(self, include_internal_executors: bool = False) -> str:
        """As a Graphviz graph."""
        from perdure.graph.drawing.viz import to_dot

        return to_dot(self._graph, include_internal_executors)

    def to_svg(
        self,
        *,
        thread: str | Iterable[WorkflowEvent] | None = None,
        outcomes: Mapping[str, str] | None = None,
        include_internal_executors: bool = False,
    ) -> str:
        """As an SVG picture that perdure draws, with the outcomes of a thread.

        `thread` is an id in the workflow's storage, or the events of a run, such as its result; `outcomes` is the
        result of `await workflow.outcomes(thread_id)`.
        """
        from perdure.graph.drawing.picture import outcomes_of
        from perdure.graph.drawing.svg import to_svg

        if isinstance(thread, str):
            # A worker thread runs a loop of its own: this method is not async, and the caller may be in a loop.
            with ThreadPoolExecutor(1, "perdure drawing") as worker:
                outcomes = worker.submit(asyncio.run, self.outcomes(thread)).result()
        elif thread is not None:
            outcomes = outcomes_of(thread)
        return to_svg(self._graph, outcomes=outcomes, include_internal_executors=include_internal_executors)

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.to_svg()

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._graph.nodes)} executors)"


# `help()` and editors list the options by name.
_named = [each for each in inspect.signature(Workflow.run).parameters.values() if each.kind is not each.VAR_KEYWORD]
_options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in RunOptions.__annotations__]
Workflow.run.__signature__ = inspect.Signature([*_named, *_options])  # type: ignore[attr-defined]  # a function has it
