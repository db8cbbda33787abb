"""Function workflows: `@workflow` makes an async function with recorded steps a workflow."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.delivery.lane import current_context
from perdure.engine.functions import FunctionNode, get_run_context, read_function
from perdure.engine.run.request import OnBusy, RunOptions, check_storage
from perdure.engine.run.run import WorkflowRunResult
from perdure.engine.run.stream import ResponseStream
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent
from perdure.graph.graph import Graph
from perdure.names import check_identifier
from perdure.workflows.agent import WorkflowAgent
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.handle import RunHandle
from perdure.workflows.workflow import Workflow, show_options

P = ParamSpec("P")
R = TypeVar("R")


class FunctionalWorkflow(Generic[P, R]):
    """The result of `@workflow`. `run` it, or `build` a Workflow with its own storage."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: Any = None,
        migrations: Iterable[AnyMigration] = (),
    ) -> None:
        check_identifier("name", name)
        if checkpoint_storage is not None:
            check_storage(checkpoint_storage)
        self.function = function
        self._shape = read_function(function)
        self.name = name or self._shape.name
        self.description = description if description is not None else inspect.getdoc(function)
        self._storage = checkpoint_storage
        self._migrations = tuple(migrations)
        self._built: Workflow | None = None
        functools.update_wrapper(self, function, updated=())

    def build(
        self,
        checkpoint_storage: Any = None,
        *,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] | None = None,
        clock: Clock | None = None,
    ) -> Workflow:
        """A new Workflow with its own threads. It has all methods of a graph's workflow."""
        storage = checkpoint_storage if checkpoint_storage is not None else self._storage
        return WorkflowBuilder(
            name=self.name,
            description=self.description,
            start_executor=FunctionNode(self._shape, self.name),
            checkpoint_storage=storage,
            allowed_types=allowed_types,
            migrations=self._migrations if migrations is None else migrations,
            clock=clock,
        ).build()

    @property
    def _workflow(self) -> Workflow:
        if self._built is None:
            self._built = self.build()
        return self._built

    @property
    def graph(self) -> Graph:
        """A graph of one executor, for a WorkflowExecutor and for drawings."""
        return self._workflow.graph

    @overload
    def run(
        self, message: Any = None, *, stream: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, WorkflowRunResult]: ...
    @overload
    def run(
        self, message: Any = None, *, stream: Literal[True], **options: Unpack[RunOptions]
    ) -> ResponseStream[WorkflowEvent, WorkflowRunResult]: ...
    def run(self, message: Any = None, *, stream: bool = False, **options: Unpack[RunOptions]) -> Any:
        """Like `Workflow.run`: a new message, answers to pending requests, or a resume."""
        return self._workflow.run(message, stream=stream, **options)  # type: ignore[call-overload]  # a plain bool

    def open(
        self,
        *,
        thread_id: str | None = None,
        checkpoint_storage: Any = None,
        on_busy: OnBusy = "reject",
        takeover: bool = False,
    ) -> RunHandle:
        """Like `Workflow.open`: a live handle on a thread."""
        return self._workflow.open(
            thread_id=thread_id, checkpoint_storage=checkpoint_storage, on_busy=on_busy, takeover=takeover
        )

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a running workflow: call the function as a part of it, its steps recorded with the caller's."""
        context = current_context.get()
        if context is None:
            raise InvalidRun(
                f"Workflow {self.name!r} was called like a function outside of a workflow, where its steps are not "
                f"recorded. Use `await {self.name}.run(message)`."
            )
        if self._shape.context is not None and len(args) + len(kwargs) < self._shape.parameters:
            run_context: Any = get_run_context()
            args = (*args, run_context)  # type: ignore[assignment]  # the caller omitted the context
        return await self.function(*args, **kwargs)

    def as_agent(
        self,
        name: str | None = None,
        *,
        id: str | None = None,
        description: str | None = None,
        context_providers: Iterable[Any] | None = None,
    ) -> WorkflowAgent:
        """The function as an agent: each session is a thread of it. It must accept `list[Message]`."""
        return WorkflowAgent(self._workflow, name, id=id, description=description, context_providers=context_providers)

    def to_mermaid(self) -> str:
        return self._workflow.to_mermaid()

    def to_svg(self) -> str:
        return self._workflow.to_svg()

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.to_svg()

    def __repr__(self) -> str:
        return f"FunctionalWorkflow({self.name!r})"


show_options(FunctionalWorkflow.run)


@overload
def workflow(func: Callable[P, Coroutine[Any, Any, R]]) -> FunctionalWorkflow[P, R]: ...
@overload
def workflow(
    func: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    checkpoint_storage: Any = None,
    migrations: Iterable[AnyMigration] = (),
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], FunctionalWorkflow[P, R]]: ...
def workflow(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    checkpoint_storage: Any = None,
    migrations: Iterable[AnyMigration] = (),
) -> Any:
    """Make an async function a workflow: `@workflow` or `@workflow(name="triage", checkpoint_storage=...)`.

    It takes the message and optionally a `RunContext`. The engine may run it again from the top at any time: code
    outside of steps must be deterministic and without side effects.
    """

    def make(function: Callable[..., Any]) -> FunctionalWorkflow[Any, Any]:
        return FunctionalWorkflow(
            function,
            name=name,
            description=description,
            checkpoint_storage=checkpoint_storage,
            migrations=migrations,
        )

    return make if func is None else make(func)
