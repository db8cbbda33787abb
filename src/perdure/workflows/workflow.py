"""Workflow: what `build` gives. One object serves any number of threads at the same time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec

from perdure.checkpoints.checkpoint import every_delivery
from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.checkpoints.storage import read_lineage
from perdure.clock import Clock, SystemClock
from perdure.codec import DeclaredTypes
from perdure.engine.run.options import Durability, OnBusy, RunOptions, check_durability, check_storage, make_request
from perdure.engine.run.result import ResponseStream, WorkflowRunResult
from perdure.engine.run.run import Run
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.live_threads import LiveThreads
from perdure.errors import InvalidRun, NoStorage, ThreadNotFound
from perdure.events import WorkflowEvent, WorkflowRunState
from perdure.graph.executor import Executor
from perdure.graph.graph import EdgeGroup, Graph
from perdure.names import new_run_id
from perdure.records import CheckpointInfo, WorkflowMessage
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.handle import RunHandle
from perdure.workflows.history import EditingMethods
from perdure.workflows.stopping import StoppingMethods

if TYPE_CHECKING:
    from perdure.workflows.migration_check import ThreadFits


class Workflow(EditingMethods, StoppingMethods):
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
        self._live = LiveThreads(graph)
        self._clock = clock or SystemClock()
        self.id = new_run_id()
        self.name = graph.name
        self.description = graph.description
        self.start_executor_id = graph.start_executor_id
        self.max_iterations = graph.max_iterations
        self.graph_signature = self._compiled.signature
        self.graph_signature_hash = self._compiled.signature_hash

    @property
    def checkpoint_storage(self) -> Any:
        """What its threads are kept in; None if they live in this process alone."""
        return self._storage

    # ------------------------------------------------------------ running

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

        Gives something to await for the result or, with `stream=True`, to iterate for events as they happen. Calls that
        have no meaning raise InvalidRun here, before anything happens. The options are those of `RunOptions`.
        """
        run = self.new_run(message, **options)
        if not stream:
            return run.execute()
        return ResponseStream[WorkflowEvent, WorkflowRunResult](run.execute, run.interrupt)

    def new_run(self, message: Any = None, **options: Unpack[RunOptions]) -> Run:
        """A run that has not begun: whoever executes it knows whether it was refused, or failed later."""
        if self._durability != "sync":
            options.setdefault("durability", self._durability)
        return Run(self._compiled, self._live, self._clock, make_request(message, self._storage, options))

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
        result: Coroutine[Any, Any, WorkflowRunResult] = self.run(
            checkpoint_id=checkpoint_id, checkpoint_storage=checkpoint_storage, **options
        )
        return result

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
        if checkpoint_storage is not None:
            options["checkpoint_storage"] = checkpoint_storage
        request = make_request(None, self._storage, options)
        return RunHandle(self._compiled, self._live, self._clock, request)

    def as_agent(
        self, name: str | None = None, *, description: str | None = None, context_providers: None = None
    ) -> WorkflowAgent:
        """The workflow as an agent: each session is a thread of it. Its start executor must accept `list[Message]`."""
        return WorkflowAgent(self, name, description=description, context_providers=context_providers)

    # ------------------------------------------------------------ looking

    @property
    def status(self) -> WorkflowRunState:
        """What the object's own thread is doing."""
        thread = self._live.find(self._live.default_thread_id) if self._live.default_thread_id else None
        return WorkflowRunState.IDLE if thread is None else thread.status

    async def messages(self, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> list[WorkflowMessage]:
        """Every message that was exchanged in a thread, in the order of delivery, as far as its history is kept.

        Those inside of sub-workflows name sender and target by their path.
        """
        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        if storage is None:
            raise NoStorage("Reading a thread's messages")
        chosen = thread_id or self._live.default_thread_id
        history = await read_lineage(storage, chosen, self.name) if chosen is not None else []
        if chosen is None:
            raise InvalidRun("This workflow object has not run yet: name a thread, messages(thread_id).")
        if not history:
            raise ThreadNotFound(chosen)
        found = {message.delivery_id: message for checkpoint in history for message in every_delivery(checkpoint)}
        return [found[delivery_id] for delivery_id in sorted(found)]

    async def check_threads(
        self, *, checkpoint_storage: Any = None, progress: Callable[[int, int, str], None] | None = None
    ) -> ThreadFits:
        """What would become of each stored thread of this workflow if it were opened now: a dry run of the migrations.

        Reads all that a run would read first, also of threads that are being run. Claims and writes nothing.
        `progress` is called with how many were looked at, how many there are, and the last one's id.
        """
        from perdure.workflows.migration_check import check_threads

        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        if storage is None:
            raise NoStorage("Checking stored threads")
        check_storage(storage)
        return await check_threads(self._compiled, storage, progress)

    @property
    def declared_types(self) -> DeclaredTypes:
        """Those that its checkpoints and events may hold: whoever reads them for it needs these."""
        return self._compiled.declared

    @property
    def graph(self) -> Graph:
        """What it is made of, frozen."""
        return self._graph

    @property
    def edge_groups(self) -> list[EdgeGroup]:
        return list(self._graph.edge_groups)

    @property
    def executors(self) -> dict[str, Executor]:
        return dict(self._graph.executors)

    def get_start_executor(self) -> Executor:
        return self._graph.executors[self.start_executor_id]

    def get_executors_list(self) -> list[Executor]:
        return list(self._graph.executors.values())

    def get_output_executors(self) -> list[Executor]:
        return [one for one in self.get_executors_list() if self.is_terminal_executor(one.id)]

    def get_intermediate_executors(self) -> list[Executor]:
        return [one for one in self.get_executors_list() if self.is_intermediate_executor(one.id)]

    def is_terminal_executor(self, executor_id: str) -> bool:
        """Whether its outputs are results of the workflow."""
        return self._graph.designation.event_type(executor_id) == "output"

    def is_intermediate_executor(self, executor_id: str) -> bool:
        return self._graph.designation.event_type(executor_id) == "intermediate"

    @property
    def input_types(self) -> list[Any]:
        return self.get_start_executor().input_types

    @property
    def output_types(self) -> list[Any]:
        return list(self._graph.output_types)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "start_executor_id": self.start_executor_id,
            "max_iterations": self.max_iterations,
            "executors": {key: one.to_dict() for key, one in self._graph.executors.items()},
            "edge_groups": [group.to_dict() for group in self._graph.edge_groups],
        }

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_dict()).decode()

    # ------------------------------------------------------------ drawing, loaded when first used

    def to_mermaid(self, include_internal_executors: bool = False) -> str:
        """As a Mermaid flowchart."""
        from perdure.graph.drawing.markup import to_mermaid

        return to_mermaid(self._graph, include_internal_executors)

    def to_dot(self, include_internal_executors: bool = False) -> str:
        """In the language of Graphviz."""
        from perdure.graph.drawing.markup import to_dot

        return to_dot(self._graph, include_internal_executors)

    async def outcomes(self, thread_id: str | None = None, *, checkpoint_storage: Any = None) -> dict[str, str]:
        """What happened to each executor in a thread, by path: `completed`, `failed`, `waiting`, `due`, ..."""
        from perdure.workflows.outcomes import thread_outcomes

        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        if storage is None:
            raise NoStorage("Reading what happened in a thread")
        chosen = thread_id or self._live.default_thread_id
        if chosen is None:
            raise InvalidRun("This workflow object has not run yet: name a thread, outcomes(thread_id).")
        return await thread_outcomes(storage, chosen, self._compiled)

    def to_svg(
        self,
        *,
        thread: str | Iterable[WorkflowEvent] | None = None,
        outcomes: Mapping[str, str] | None = None,
        include_internal_executors: bool = False,
    ) -> str:
        """As a picture, drawn by perdure itself, with what happened.

        `thread` is the id of one in the workflow's storage, or the events of a run, such as its result; `outcomes` is
        what `await workflow.outcomes(thread_id)` gives.
        """
        from perdure.graph.drawing.outcomes import outcomes_of
        from perdure.graph.drawing.svg import to_svg

        if isinstance(thread, str):
            from perdure.workflows.outcomes import awaited_elsewhere

            outcomes = awaited_elsewhere(self.outcomes(thread))
        elif thread is not None:
            outcomes = outcomes_of(thread)
        return to_svg(self._graph, outcomes=outcomes, include_internal_executors=include_internal_executors)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.to_svg()

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._graph.nodes)} executors)"


def show_options(function: Any) -> None:
    """Let `help()` and editors that ask at run time list the options by name."""
    shown = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    options = (
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in RunOptions.__annotations__
    )
    function.__signature__ = inspect.Signature([*shown, *options])


show_options(Workflow.run)
