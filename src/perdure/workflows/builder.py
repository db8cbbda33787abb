"""WorkflowBuilder: the graph builder whose `build` makes a Workflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from perdure.agents.adapters import adapt_agent
from perdure.agents.executor import AgentExecutor
from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.run.options import Durability, check_storage
from perdure.graph.builder import DEFAULT_MAX_ITERATIONS, Designated, GraphBuilder, Participant
from perdure.graph.executor import Executor
from perdure.graph.policy import Reducer
from perdure.graph.sub_workflow import AgentHost, is_agent
from perdure.workflows.workflow import Workflow


class WorkflowBuilder(GraphBuilder):
    """`WorkflowBuilder(start_executor=a).add_edge(a, b).build()`.

    Where executors are expected, agents and functions that make one are accepted too.
    """

    agent_host: ClassVar[AgentHost | None] = AgentExecutor

    def __init__(
        self,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        name: str | None = None,
        description: str | None = None,
        *,
        start_executor: Participant | None = None,
        checkpoint_storage: Any = None,
        output_from: Designated = None,
        intermediate_output_from: Designated = None,
        output_executors: Designated = None,
        state: Mapping[str, Reducer] | None = None,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
        durability: Durability = "sync",
    ) -> None:
        super().__init__(
            max_iterations,
            name,
            description,
            start_executor=start_executor,
            output_from=output_from,
            intermediate_output_from=intermediate_output_from,
            output_executors=output_executors,
            state=state,
        )
        self._allowed_types = tuple(allowed_types)
        self._migrations = tuple(migrations)
        self._clock = clock
        self._durability = durability
        self._storage: Any = None
        if checkpoint_storage is not None:
            self.with_checkpointing(checkpoint_storage)

    def with_checkpointing(self, checkpoint_storage: Any) -> Self:
        """Save a checkpoint after every superstep. Accepts any class with the six methods of CheckpointStorage."""
        check_storage(checkpoint_storage)
        self._storage = checkpoint_storage
        return self

    def build(self) -> Workflow:
        """Check the graph and make the workflow. Raises WorkflowValidationError."""
        return Workflow(
            self.graph(),
            self._storage,
            allowed_types=self._allowed_types,
            migrations=self._migrations,
            clock=self._clock,
            durability=self._durability,
        )

    def _add(self, thing: Any) -> str:
        """Wrap agents of other frameworks that have no `run`."""
        if isinstance(thing, (str, Executor)) or id(thing) in self._ids_by_thing or is_agent(thing):
            return super()._add(thing)
        agent = adapt_agent(thing)
        executor_id = super()._add(agent)
        if agent is not thing:
            self._ids_by_thing[id(thing)] = executor_id
            self._things.append(thing)  # keeps it alive, so that its id() stays unique
        return executor_id
