"""Function workflows: `@workflow` makes an async function with recorded steps a workflow."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.delivery.lane import current_context
from perdure.engine.functions import FunctionNode, get_run_context, read_function
from perdure.engine.run.request import check_storage
from perdure.engine.run.run import View
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent
from perdure.names import check_identifier
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.function_agent import FunctionalWorkflowAgent
from perdure.workflows.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")

_BUILT = {"_graph", "_durability", "_compiled", "_live", "id", "start_executor_id", "max_iterations"} | {
    "graph_signature",
    "graph_signature_hash",
}
"""What a workflow has once its graph is built."""


class FunctionalWorkflow(Workflow, Generic[P, R]):
    """The result of `@workflow`: a workflow that runs at once. `build` makes another one, with its own threads."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: Any = None,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
    ) -> None:
        check_identifier("name", name)
        if checkpoint_storage is not None:
            check_storage(checkpoint_storage)
        self.function = function
        self._shape = read_function(function)
        self.name = name or self._shape.name
        self.description = description if description is not None else inspect.getdoc(function)
        self._storage = checkpoint_storage
        self.allowed_types = tuple(allowed_types)
        self._migrations = tuple(migrations)
        self._clock = clock
        functools.update_wrapper(self, function, updated=())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Builds the graph at its first use: types that the module defines after the function exist by then."""
            if name not in _BUILT or name in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._set_up()
            return getattr(self, name)

    def _set_up(self) -> None:
        graph = WorkflowBuilder(
            name=self.name, description=self.description, start_executor=FunctionNode(self._shape, self.name)
        ).graph()
        super().__init__(
            graph, self._storage, allowed_types=self.allowed_types, migrations=self._migrations, clock=self._clock
        )

    def build(
        self,
        checkpoint_storage: Any = None,
        *,
        allowed_types: Iterable[type | str] | None = None,
        migrations: Iterable[AnyMigration] | None = None,
        clock: Clock | None = None,
    ) -> FunctionalWorkflow[P, R]:
        """A new workflow of this function, with its own threads."""
        built = FunctionalWorkflow(
            self.function,
            name=self.name,
            description=self.description,
            checkpoint_storage=checkpoint_storage if checkpoint_storage is not None else self._storage,
            allowed_types=self.allowed_types if allowed_types is None else allowed_types,
            migrations=self._migrations if migrations is None else migrations,
            clock=clock or self._clock,
        )
        built._set_up()
        return built

    def as_agent(  # type: ignore[override]  # another agent: a function takes any input
        self, name: str | None = None, *, description: str | None = None, context_providers: Any = None, **kwargs: Any
    ) -> FunctionalWorkflowAgent:
        """The function as an agent, whatever its parameter: each session is a thread of it."""
        return FunctionalWorkflowAgent(
            self, name=name, description=description, context_providers=context_providers, **kwargs
        )

    def _view(self, *, is_streaming: bool) -> View:
        """Without the events of the graph around the function. The log has them, for followers."""

        def show(event: WorkflowEvent) -> Sequence[WorkflowEvent]:
            is_around = event.type.startswith("executor_") and event.executor_id == self.name and event.child_id is None
            return () if is_around or event.type.startswith("superstep_") else (event,)

        return show

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

    def __repr__(self) -> str:
        return f"FunctionalWorkflow({self.name!r})"


FunctionalWorkflowDefinition = FunctionalWorkflow
"""The result of `@workflow` may have to be built first: here `build` returns another one of its kind."""


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

    make: Callable[..., Any] = functools.partial(
        FunctionalWorkflow,
        name=name,
        description=description,
        checkpoint_storage=checkpoint_storage,
        migrations=migrations,
    )
    return make if func is None else make(func)
