"""Function workflows as users have them: `@workflow`, and what it makes of a function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, overload

from perdure.agents.workflow_agent import WorkflowAgent
from perdure.agents.workflows import Workflow
from perdure.checkpoints.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine import functions, workflow as engine_workflow

P = ParamSpec("P")
R = TypeVar("R")


class FunctionalWorkflow(functions.FunctionalWorkflow[P, R]):
    """What `@workflow` makes of a function. `run` it, or `build` a Workflow with a storage of its own."""

    workflow_class: ClassVar[type[engine_workflow.Workflow]] = Workflow

    if TYPE_CHECKING:

        def build(
            self,
            checkpoint_storage: Any = None,
            *,
            allowed_types: Iterable[type | str] = (),
            migrations: Iterable[AnyMigration] | None = None,
            clock: Clock | None = None,
        ) -> Workflow: ...

    def as_agent(
        self, name: str | None = None, *, description: str | None = None, context_providers: None = None
    ) -> WorkflowAgent:
        """The function as an agent: each session is a thread of it. It must accept `list[Message]`."""
        return WorkflowAgent(self._workflow, name, description=description, context_providers=context_providers)


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

    It takes the message and, if it wants one, a `RunContext`. It may be run again from the top at any time: what it
    does outside of steps must come out the same, and have no effect.
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
